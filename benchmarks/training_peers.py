"""Ways to train a sparse network, at equal bytes of file: accuracy, and what a step takes.

    python benchmarks/training_peers.py lenet mnist --bytes 20480 --steps 1500 --out results/training-peers-lenet.json

Same network, images, optimizer, learning rates and number of steps for all; only what makes zeros differs.

    one shot           trained dense, then the largest weights of the whole network are kept
    one shot, tuned    the same at two thirds of the training, which then goes on under the mask
    torch prune        torch.nn.utils.prune, global magnitudes, ten prunings along a cubic, then on under the mask;
                       `uniform` takes the same part of each layer, for networks whose layers differ in scale
    torchao            proximal pruning (prototype/pat), one global constraint along its own cubic schedule, then its
                       healing; `uniform` is its constraint on each layer alone
    torch prune, 8 bits    torch prune, and what is left is rounded after training: to 8 or 4 bits a value (of 4, the
    torch prune, 4 bits    first layer to 8). How much is kept follows from the bytes of the rounded file
    membound           one bound on the file, LAMP scores along a cubic ramp, as fit trains, in 16 bits a value
    membound, few bits the same, trained for few values, how many is chosen layer by layer: fit's default

How much others keep is set so that the file of the result is within the bytes: what they prune last is found by
bisection, and torchao, whose sparsity is fixed at the start, is trained again with what the attempts before say.
Files with values of few bits are judged as they are deployed, through the runtime; the others in torch. Steps are
timed alone: where seeds are trained side by side, each method once more after them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from statistics import fmean, stdev
from typing import Any

import torch
from _problem import zoo_problem
from _record import arguments, record, settings
from _seeds import each_seed
from _timing import wait
from torch import Tensor, nn
from torch.nn.utils import prune

from membound.search.jobs import Job, Order, carry_out
from membound.search.problem import Problem
from membound.search.scoring import score_stored
from membound.train.batches import Feeder, index_stream
from membound.train.evaluation import evaluate
from membound.train.projection import project_
from membound.train.recipe import make_optimizer, set_learning_rate_

BEGIN, UNTIL, PRUNINGS = (
    0.1,
    0.6,
    10,
)  # when others prune, in parts of the training; the ramp of ours is the same
TUNED_AT = 2 / 3
ROUNDED = {", 8 bits": "p8", ", 4 bits": "p4"}
CLOSE = 0.97  # of the bytes: near enough
TRIES = 6


class Trial:
    """One training in a plain loop; `after(step)` prunes."""

    def __init__(
        self,
        problem: Problem,
        seed: int,
        device: torch.device,
        feeders: dict[str, Feeder],
        uniform: bool = False,
        values: str | None = None,
    ) -> None:
        self.problem, self.seed, self.device, self.feeders = problem, seed, device, feeders
        self.measure = problem.measure if values is None else replace(problem.files, values=values)
        self.uniform = uniform  # layers are pruned alike, not all weights together
        self.model = problem.make(seed).to(device)
        self.recipe = problem.training.recipe
        self.optimizer: Any = make_optimizer(self.model, self.recipe)

    def weights(self) -> list[tuple[nn.Module, str]]:
        return [
            (self.model.get_submodule(name.rpartition(".")[0]), "weight") for name in self.problem.weights
        ]

    def run(self, after: Callable[[int], None] = lambda step: None) -> float:
        """Seconds of a step."""
        feeder, loss = self.feeders["train"], nn.functional.cross_entropy
        indices = index_stream(len(feeder.split), self.recipe.batch_size, self.seed)
        begin = time.monotonic()
        for step, (x, y) in zip(range(self.recipe.steps), feeder.augmented(indices, self.seed), strict=False):
            set_learning_rate_(self.optimizer, self.recipe.lr(step))
            self.optimizer.zero_grad()
            loss(self.model(x), y).backward()
            self.optimizer.step()
            after(step + 1)
        wait(self.device)
        return (time.monotonic() - begin) / self.recipe.steps

    def state(self) -> dict[str, Tensor]:
        """Plain, whatever torch's pruning has made of it."""
        for module, name in self.weights():
            if prune.is_pruned(module):
                prune.remove(module, name)
        return {name: value.detach().cpu() for name, value in self.model.state_dict().items()}

    def keep_to_(self, limit: int) -> None:
        self.prune_(self.affordable(limit))

    def affordable(self, limit: int) -> int:
        """The most weights whose file is within the limit; one with a layer that has none left is small."""
        whole = sum(self.problem.sizes.values())
        low, high = 1, whole
        while high - low > max(low // 200, 1):
            middle = (low + high) // 2
            if self.measure(self._cut(middle)) <= limit:
                low = middle
            else:
                high = middle
        return low

    def _cut(self, kept: int) -> dict[str, Tensor]:
        """The state with so many weights, without touching the network."""
        state = {
            name.replace("_orig", ""): value
            for name, value in self.model.state_dict().items()
            if "_mask" not in name
        }
        for (module, _), name in zip(self.weights(), self.problem.weights, strict=True):
            state[name] = module.weight.detach()  # under its mask
        if self.uniform:
            for name in self.problem.weights:
                state[name] = _largest(state[name], self._share(name, kept))
        else:
            every = _largest(torch.cat([state[name].flatten() for name in self.problem.weights]), kept)
            parts = every.split([state[name].numel() for name in self.problem.weights])
            for name, part in zip(self.problem.weights, parts, strict=True):
                state[name] = part.view_as(state[name])
        return {name: value.cpu() for name, value in state.items()}

    def prune_(self, kept: int) -> None:
        """So many weights in all are left; torch counts what it has pruned before."""
        if self.uniform:
            for (module, _), name in zip(self.weights(), self.problem.weights, strict=True):
                more = int(module.weight.count_nonzero()) - self._share(name, kept)
                if more > 0:
                    prune.l1_unstructured(module, "weight", more)
            return
        left = sum(int(getattr(module, name).count_nonzero()) for module, name in self.weights())
        if kept < left:
            prune.global_unstructured(self.weights(), prune.L1Unstructured, amount=left - kept)

    def _share(self, name: str, kept: int) -> int:
        return max(round(kept * self.problem.sizes[name] / sum(self.problem.sizes.values())), 1)


def _largest(values: Tensor, kept: int) -> Tensor:
    found = values.clone()
    project_(found, kept)
    return found


def one_shot(trial: Trial, limit: int) -> float:
    seconds = trial.run()
    trial.keep_to_(limit)
    return seconds


def one_shot_tuned(trial: Trial, limit: int) -> float:
    at = round(TUNED_AT * trial.recipe.steps)
    return trial.run(lambda step: trial.keep_to_(limit) if step == at else None)


def torch_prune(trial: Trial, limit: int) -> float:
    steps, whole = trial.recipe.steps, sum(trial.problem.sizes.values())
    times = [round(steps * (BEGIN + (UNTIL - BEGIN) * (n + 1) / PRUNINGS)) for n in range(PRUNINGS)]

    def after(step: int) -> None:
        if step == times[-1]:
            trial.keep_to_(limit)
        elif step in times:
            left = (1 - (times.index(step) + 1) / PRUNINGS) ** 3
            least = trial.affordable(limit)
            trial.prune_(round(least + (whole - least) * left))

    return trial.run(after)


WAYS = {"one shot": one_shot, "one shot, tuned": one_shot_tuned, "torch prune": torch_prune}


def torchao(trial: Trial, sparsity: float, kind: str) -> float:
    from torchao.prototype.pat.optim import PruneOptimizer

    bounded = {id(module.weight) for module, _ in trial.weights()}
    groups = []
    for group in trial.optimizer.param_groups:
        rest = {key: value for key, value in group.items() if key != "params"}
        mine = [weight for weight in group["params"] if id(weight) in bounded]
        others = [weight for weight in group["params"] if id(weight) not in bounded]
        config = {
            "prox_type": kind, "group_type": "KElementGrouper", "k": 1, "min_sparsity": sparsity,
            "min_sparsity_schedule": True, "prox_freq": trial.problem.training.every,
        }  # fmt: skip
        groups += [{"params": mine, **rest, **config}] if mine else []
        groups += [{"params": others, **rest}] if others else []
    steps = trial.recipe.steps
    base = type(trial.optimizer)(groups, lr=trial.recipe.lr(0), momentum=trial.recipe.momentum)
    trial.optimizer = PruneOptimizer(base, round(BEGIN * steps), round(UNTIL * steps))
    return trial.run()


def _proximal(
    problem: Problem, seed: int, limit: int, device: torch.device, feeders: Any, kind: str, tries: int
) -> tuple[dict[str, Tensor], float]:
    """Its sparsity is fixed at the start: trained again, at most so often, until the file is just within the limit.

    The largest that is within, or, if none is, the smallest.
    """
    within, beyond, kept = 0.0, 1.0, limit / 3.25 / sum(problem.sizes.values())  # parts of the weights
    found: dict[int, tuple[dict[str, Tensor], float]] = {}
    for _ in range(tries):
        trial = Trial(problem, seed, device, feeders)
        seconds = torchao(trial, 1 - kept, kind)
        state = trial.state()
        size = problem.measure(state)
        found[size] = state, seconds
        if CLOSE * limit <= size <= limit:
            break
        within, beyond = (kept, beyond) if size <= limit else (within, kept)
        header = problem.measure({name: torch.zeros_like(value) for name, value in state.items()})
        kept *= 0.993 * (limit - header) / max(size - header, 1)
        if not within < kept < beyond:  # layers that vanish make sizes jump
            kept = (within + beyond) / 2
    return found[max((size for size in found if size <= limit), default=min(found))]


def fitted(
    problem: Problem,
    method: str,
    seed: int,
    limit: int,
    device: torch.device,
    feeders: Any,
    tries: int = TRIES,
) -> dict[str, Any]:
    """One network by one method: its accuracy, bytes, nonzeros and seconds a step."""
    files = problem.files
    if method.startswith("membound"):
        values = "auto" if "few bits" in method else None
        order = Order(Job("ours", seed, limit=limit, values=values, everything=True))
        begin = time.monotonic()
        ((_, outcome),) = carry_out(problem, [order], device)
        seconds = (time.monotonic() - begin) / problem.training.recipe.steps
        state = outcome.state
        if values is not None:
            base = replace(problem.target, values=values).base
            files = replace(files, values=base, types=outcome.facts["types"])
    elif method.startswith("torchao"):
        kind = "MinSparsityConstraint" if "uniform" in method else "GlobalMinSparsityConstraint"
        state, seconds = _proximal(problem, seed, limit, device, feeders, kind, tries)
    else:
        values = next((kind for words, kind in ROUNDED.items() if method.endswith(words)), None)
        trial = Trial(problem, seed, device, feeders, uniform="uniform" in method, values=values)
        way = method
        for words in (", uniform", *ROUNDED):
            way = way.removesuffix(words)
        seconds = WAYS[way](trial, limit)
        state = trial.state()
        if values is not None:
            files = replace(files, values=values)
    if files is problem.files:
        model = problem.make(seed)
        model.load_state_dict(state)
        score, size = evaluate(model.to(device), feeders["test"]), problem.measure(state)
    else:  # as it is deployed
        stored = files.stored(state)
        score, size = score_stored(stored, problem.data.test, problem), stored.file_bytes
    nonzeros = sum(int(state[name].count_nonzero()) for name in problem.weights)
    row = {"method": method, "seed": seed, "accuracy": score.accuracy, "bytes": size}
    return {**row, "nonzeros": nonzeros, "ms_a_step": 1000 * seconds}


METHODS = (
    "one shot", "one shot, tuned", "torch prune", "torch prune, uniform", "torchao", "torchao, uniform", "membound"
)  # fmt: skip
VARIED = ("", ", uniform", *ROUNDED)  # each way, with the same part of each layer, or rounded
KNOWN = (*(f"{way}{more}" for way in WAYS for more in VARIED), *METHODS[-3:], "membound, few bits")


def known_methods(text: str) -> str:
    """The same, if every method between its semicolons is one: said before anything is trained."""
    for name in text.split(";"):
        if name not in KNOWN:
            meant = get_close_matches(name, KNOWN, 1)
            hint = f"did you mean {meant[0]!r}? " if meant else ""
            listed = "; ".join(KNOWN)
            raise argparse.ArgumentTypeError(f"there is no method {name!r}: {hint}choose from {listed}")
    return text


def one_seed(options: argparse.Namespace, seed: int, tries: int = TRIES) -> list[dict[str, Any]]:
    device = torch.device(options.device)
    problem = zoo_problem(options.net, options.data, steps=options.steps, every=options.every)
    feeders = {
        name: Feeder(split, problem.data.preprocess, device, torch.float32)
        for name, split in (("train", problem.data.train), ("test", problem.data.test))
    }
    rows = []
    for method in options.methods.split(";"):
        rows.append(fitted(problem, method, seed, options.bytes, device, feeders, tries))
        print(rows[-1], flush=True)
    return rows


def summarize(rows: list[dict], timed: list[dict]) -> dict[str, dict]:
    """The mean of each method, its standard deviation where there are several seeds, and its fastest step."""
    summary = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        accuracies = [row["accuracy"] for row in rows if row["method"] == method]
        times = [row["ms_a_step"] for row in timed if row["method"] == method]
        summary[method] = {
            "accuracy": fmean(accuracies),
            "std": stdev(accuracies) if len(accuracies) > 1 else None,
            "ms_a_step": None if None in times else min(times),
        }
    return summary


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("net", choices=("lenet", "cifar10_quick"))
    parser.add_argument("data", choices=("mnist", "cifar10"))
    parser.add_argument("--bytes", type=int, default=20_480)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="seeds that are trained side by side")
    parser.add_argument("--every", type=int, default=7, help="steps between projections")
    parser.add_argument(
        "--untimed", action="store_true", help="leave out what a step takes: others use the machine"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--methods", type=known_methods, default=";".join(METHODS), help=f"by semicolons: {'; '.join(KNOWN)}"
    )
    parser.add_argument("--out", default="results/training-peers-lenet.json")
    options = parser.parse_args()
    rows: list[dict] = []
    for more in each_seed(partial(one_seed, options), range(options.seeds), options.processes):
        rows += more
    rows.sort(key=lambda row: row["seed"])
    if options.untimed:
        timed = [{**row, "ms_a_step": None} for row in rows]
        rows = [{key: value for key, value in row.items() if key != "ms_a_step"} for row in rows]
    else:
        timed = rows if options.processes == 1 else one_seed(options, 0, tries=1)
    if options.seeds == 1:
        print("one seed: there is no standard deviation, and no verdict on which method is better")
    summary = summarize(rows, timed)
    record(options.out, {**settings(options), "summary": summary, "rows": rows})


if __name__ == "__main__":
    main()
