"""fit(): from a budget to a network.

Choices, where there are any (the rounds of the greedy search, the smallest size within some points of dense), are made
on validation images that no candidate was trained on. Then the final networks and the dense one beside them are
trained on all training images, as one population where that is possible, and judged through the deployed runtime.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from membound.data import Preprocess
from membound.errors import MemboundError
from membound.search import greedy
from membound.search.budget import Amount, Limit, resolve_limits
from membound.search.deployed import Fitted, describe_stored, rounding_loss, score_stored
from membound.search.ensemble import Average, Ensemble, join_states
from membound.search.jobs import Job, Show
from membound.search.ledger import open_run
from membound.search.measure import FileBytes
from membound.search.problem import Problem
from membound.search.setup import Choices, make_problem
from membound.search.within import search_within
from membound.search.workshop import Finished, Workers, Workshop, this_process
from membound.train.fingerprints import describe_split, network_digest
from membound.train.parallel import choose_device
from membound.train.projection import project_

STRATEGIES = {"global": "lamp", "magnitude": "magnitude", "uniform": "uniform", "greedy": "lamp"}
ROUNDING = 0.1  # points that 16-bit values may cost before 32 bits are taken
ROUNDED_IMAGES = 2000  # that this is seen on


@dataclass(frozen=True)
class Watch:
    """Who is told what happens: steps under way, jobs done, and what the fit is about to do."""

    show: Show | None = None
    done: Finished | None = None
    say: Callable[[str], None] = field(default=lambda text: None)


def fit(
    model: nn.Module | Callable[[], nn.Module],
    train_data: Any,
    budget: Amount | Sequence[Amount] | None = None,
    *,
    val_data: Any = None,
    test_data: Any = None,
    loss: Callable[..., Any] | None = None,
    score: Callable[..., Any] | None = None,
    steps: int | None = None,
    strategy: str | None = None,
    values: str = "auto",
    members: int = 1,
    average: Average = "scores",
    device: str | None = None,
    seed: int = 0,
    run_dir: str | Path | None = None,
    ram: Amount | Sequence[Amount] | None = None,
    nonzeros: Amount | Sequence[Amount] | None = None,
    within: float | None = None,
    batch: int = 1,
    preprocess: Preprocess | None = None,
    classes: Sequence[str] | None = None,
    dense: bool = True,
    workers: Workers | None = None,
    watch: Watch | None = None,
    **choices: Any,
) -> Any:
    """The most accurate network that fits: a Fitted, or a list of them for several budgets.

    `model` is a network, or a function that makes one (then every member of an ensemble starts anew). The data is a
    Dataset, a DataLoader, a pair (x, y) of arrays, or a membound Dataset. One bound is given: `budget` (bytes of the
    file: '40 KiB', 40960, or '10%' of the dense file), `ram` (weights and working memory at `batch` images),
    `nonzeros`, or `within` (the smallest file that is within so many points of dense). `strategy` is 'global' (the
    default), 'greedy' (the paper's), 'magnitude' or 'uniform'. Other choices are those of `setup.Choices`.

    With a `run_dir` a fit that was killed goes on when the same call is made again.
    """
    kind, amounts = _bound(budget, ram, nonzeros, within)
    named = strategy or "global"
    if named not in STRATEGIES:
        raise MemboundError(f"there is no strategy {named!r}: choose {', '.join(STRATEGIES)}")
    if isinstance(members, bool) or not isinstance(members, int) or not 1 <= members <= 64:
        raise MemboundError(f"members={members!r}: an ensemble has 1 to 64 networks")
    if within is not None and (members > 1 or named == "greedy"):
        raise MemboundError(
            "within goes with one network and one of the scores: leave members and greedy out"
        )
    if values not in ("auto", "f16", "f32"):
        raise MemboundError(f"there are no values {values!r}: choose auto, f16 or f32")
    picked = Choices(**choices, steps=steps)
    needs_validation = named == "greedy" or within is not None
    problem = make_problem(
        model, train_data, picked, kind=kind, values="f16" if values == "auto" else values, batch=batch, seed=seed,
        val_data=val_data, test_data=test_data, loss=loss, score=score, preprocess=preprocess, classes=classes,
        hold_out=needs_validation or (val_data is None and test_data is None),
    )  # fmt: skip
    wanted = Wanted(
        named, tuple(amounts), within, members, average, seed, dense, values == "auto", picked.greedy_step
    )
    limits = [] if within is not None else resolve_limits(problem, wanted.amounts)
    chosen = choose_device(device or "auto")
    config = {
        "wanted": vars(wanted) | {"amounts": [str(amount) for amount in amounts]},
        "target": vars(problem.target),
        "choices": picked.describe(),
        "recipe": problem.training.recipe.describe(),
        "network": network_digest(problem.make(seed)),
        "data": [
            describe_split(split) for split in (problem.data.train, problem.data.test) if split is not None
        ],
    }
    watch = watch or Watch()
    with ExitStack() as stack:
        directory = stack.enter_context(open_run(None if run_dir is None else Path(run_dir), config))
        workshop = Workshop(problem, directory, workers or this_process(chosen), watch.show, watch.done)
        fitting = _Fitting(workshop, wanted, watch, at_once=7 if chosen.type == "cuda" or workers else 1)
        results = fitting.run(limits)
    several = any(isinstance(given, list | tuple) for given in (budget, ram, nonzeros))
    return results if several else results[0]


@dataclass(frozen=True)
class Wanted:
    """What a fit is asked for."""

    strategy: str
    amounts: tuple[Amount, ...]
    within: float | None
    members: int
    average: Average
    seed: int
    dense: bool
    may_widen: bool  # values may become f32 where f16 is not enough
    greedy_step: float


def _bound(budget: Any, ram: Any, nonzeros: Any, within: float | None) -> tuple[str, list[Amount]]:
    given = {"file": budget, "ram": ram, "nonzeros": nonzeros, "within": within}
    found = {kind: amount for kind, amount in given.items() if amount is not None}
    if len(found) != 1:
        names = " and ".join(found) or "none"
        raise MemboundError(f"one bound is needed, of budget, ram, nonzeros and within: {names} was given")
    ((kind, amount),) = found.items()
    if kind == "within":
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < 100:
            raise MemboundError(
                f"within={amount!r}: write how many points below dense are allowed, such as 0.5"
            )
        return "file", []
    return kind, list(amount) if isinstance(amount, list | tuple) else [amount]


class _Fitting:
    """One fit: choices first, then the final networks."""

    def __init__(self, workshop: Workshop, wanted: Wanted, watch: Watch, at_once: int) -> None:
        self.workshop, self.wanted, self.watch, self.at_once = workshop, wanted, watch, at_once
        self.candidates: list[dict[str, Any]] = []

    @property
    def problem(self) -> Problem:
        return self.workshop.problem

    def run(self, limits: list[Limit]) -> list[Fitted]:
        if self.wanted.within is not None:
            self.watch.say("looking for the smallest size")
            found, self.candidates = search_within(
                self.workshop, self.wanted.within, self.wanted.seed, self._score, self.at_once
            )
            limits = [Limit(f"{found}", found)]
        plans = self._plans(limits)
        results = self._finals(plans)
        if self.wanted.may_widen and self.problem.target.values == "f16" and self._rounding_hurts(results):
            self.watch.say("values of 16 bits lose too much: trained again for values of 32 bits")
            self.workshop.problem = replace(self.problem, target=replace(self.problem.target, values="f32"))
            results = self._finals(plans, "-f32")
        return results

    @property
    def _score(self) -> str:
        return STRATEGIES[self.wanted.strategy]

    # Which counts

    def _plans(self, limits: list[Limit]) -> list["_Plan"]:
        """For every limit, what a member may take, and the proportions of layers where they are searched."""
        plans = [_Plan(limit, self._share(limit)) for limit in limits]
        if self.wanted.strategy == "greedy":
            shares = sorted({plan.share for plan in plans}, reverse=True)
            self.watch.say("searching greedily")
            options = greedy.Greedy(self.wanted.greedy_step)
            for round in greedy.search(self.workshop, shares, self.wanted.seed, options):
                self.candidates += [_candidate(facts, facts is round.winner) for facts in round.candidates]
                for plan in plans:
                    if plan.counts is None and round.winner["size"] <= plan.share:
                        plan.counts = dict(round.winner["counts"])
                        plan.estimate = round.winner["accuracy"]
        elif self.problem.data.test is None and self.problem.data.validation is not None:
            self.watch.say("training without the validation images, to judge on them")
            jobs = [self._job(plan, 0, f"estimate-{plan.limit.label}") for plan in plans]
            for plan, facts in zip(plans, self.workshop.do(jobs), strict=True):
                plan.estimate = facts["accuracy"]
        return plans

    def _share(self, limit: Limit) -> int:
        """What one member may take, so that the ensemble's file, with one header, is within the limit."""
        count = self.wanted.members
        if count == 1:
            return limit.number
        networks = [self.problem.make(self.wanted.seed + number) for number in range(count)]
        ensemble = Ensemble(networks, self.wanted.average)
        joint = self.problem.measure_of(ensemble, self.problem.files_of(ensemble)).dense()
        overhead = joint - count * self.problem.measure.dense()
        share = (limit.number - overhead) // count
        if share < self.problem.least():
            raise MemboundError(
                f"{limit.text} for {count} members leaves {share:,} {self.problem.target.unit} each, and one takes at "
                f"least {self.problem.least():,}: allow more, or fewer members"
            )
        return share

    def _job(self, plan: "_Plan", member: int, key: str, everything: bool = False) -> Job:
        return Job(
            key,
            self.wanted.seed + member,
            limit=plan.share,
            score=self._score,
            counts=plan.counts,
            everything=everything,
            bag=1000 * self.wanted.seed + member if self.wanted.members > 1 else None,
            about={"budget": plan.limit.text, "member": member if self.wanted.members > 1 else None},
        )

    # The final networks

    def _finals(self, plans: list["_Plan"], suffix: str = "") -> list[Fitted]:
        self.watch.say("training the final networks on all training images")
        keys = {
            (plan.limit.label, member): f"final-{plan.limit.label}-{member}{suffix}"
            for plan in plans
            for member in range(self.wanted.members)
        }
        jobs = [
            self._job(plan, member, keys[plan.limit.label, member], everything=True)
            for plan in plans
            for member in range(self.wanted.members)
        ]
        if self.wanted.dense:
            jobs.insert(0, Job("dense", self.wanted.seed, everything=True, about={"budget": None}))
        facts = {job.key: found for job, found in zip(jobs, self.workshop.do(jobs), strict=True)}
        self.watch.say("measuring the final networks through the runtime")
        dense = self._describe_dense(facts["dense"]) if self.wanted.dense else None
        results = []
        for plan in plans:
            mine = [keys[plan.limit.label, member] for member in range(self.wanted.members)]
            results.append(self._deploy(plan, mine, [facts[key] for key in mine], dense))
        return results

    def _describe_dense(self, facts: dict[str, Any]) -> dict[str, Any]:
        plain = replace(self.problem.files, values="f32")
        stored = plain.stored(self.workshop.state("dense"))
        about = describe_stored(stored, self.problem.target.batch) | self._judge(stored, None)
        return about | {"curves": facts["history"], "seconds": facts["seconds"]}

    def _judge(self, stored: Any, estimate: float | None) -> dict[str, Any]:
        """The last word, by images that no choice was made on; where there are none, the estimate of before."""
        data = self.problem.data
        judged = [("test", data.test)] if data.test is not None else [("validation", data.given)]
        for name, split in judged:
            if split is not None:
                score = score_stored(stored, split, self.problem)
                return {
                    "accuracy": score.accuracy,
                    "errors": score.errors,
                    "images": score.images,
                    "accuracy_on": name,
                }
        images = None if data.validation is None else len(data.validation)
        return {"accuracy": estimate, "errors": None, "images": images, "accuracy_on": "validation"}

    def _deploy(
        self, plan: "_Plan", keys: list[str], facts: list[dict[str, Any]], dense: dict[str, Any] | None
    ) -> Fitted:
        model, files = self._network(plan, keys)
        state = model.state_dict()
        stored = files.stored(state)
        judged = self._judge(stored, plan.estimate)
        size = self.problem.measure_of(model, files)(state)
        about = describe_stored(stored, self.problem.target.batch)
        return Fitted(
            model,
            plan.limit.number,
            size,
            stored.file_bytes,
            self.problem.target.values,
            judged["accuracy"],
            judged["accuracy_on"],
            judged["errors"],
            judged["images"],
            [found["accuracy"] for found in facts] if len(keys) > 1 else [],
            list(self.candidates),
            dense,
            about | {"curves": facts[0]["history"], "seconds": sum(found["seconds"] for found in facts)},
            plan.limit.text,
            files,
        )

    def _network(self, plan: "_Plan", keys: list[str]) -> tuple[nn.Module, FileBytes]:
        """The final network in torch and its file: one, or an ensemble within the limit."""
        states = [self.workshop.state(key) for key in keys]
        networks = [self.problem.make(self.wanted.seed + number) for number in range(len(keys))]
        if len(keys) == 1:
            model: nn.Module = networks[0]
            files = self.problem.files
        else:
            model = Ensemble(networks, self.wanted.average)
            files = self.problem.files_of(model)
        self._trim_(states, lambda: self.problem.measure_of(model, files)(_joined(states)), plan.limit.number)
        model.load_state_dict(_joined(states))
        return model.eval(), files

    def _trim_(self, states: list[dict[str, Tensor]], measure: Callable[[], int], limit: int) -> None:
        """Cut a few of the smallest weights where members that fit do not fit together."""
        while (size := measure()) > limit:
            kept = 1 - max(1.2 * (size - limit) / size, 1e-3)
            for state in states:
                for name in self.problem.weights:
                    project_(state[name], int(kept * int(state[name].count_nonzero())))

    def _rounding_hurts(self, results: list[Fitted]) -> bool:
        return any(
            rounding_loss(self.problem, result.files, result.model.state_dict(), ROUNDED_IMAGES) > ROUNDING
            for result in results
        )


@dataclass
class _Plan:
    """How one limit is met."""

    limit: Limit
    share: int  # of one member
    counts: dict[str, int] | None = None  # the proportions that were searched
    estimate: float | None = None  # accuracy on validation images


def _joined(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return states[0] if len(states) == 1 else join_states(states)


def _candidate(facts: Mapping[str, Any], won: bool) -> dict[str, Any]:
    """A candidate for the history, without its curves."""
    kept = ("accuracy", "size", "nonzeros", "weight_nonzeros", "counts", "steps", "seconds")
    about = facts["job"]["about"]
    return {"key": facts["job"]["key"], **about, **{name: facts[name] for name in kept}, "won": won}
