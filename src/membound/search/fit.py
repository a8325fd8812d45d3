"""fit(): from a budget to a network.

Choices, where there are any (the rounds of the greedy search, the smallest size within some points of dense), are made
on validation images that no candidate was trained on. Then the final networks and the dense one beside them are
trained on all training images, as one population where that is possible, and judged through the deployed runtime.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from membound.data import Preprocess, Split
from membound.errors import MemboundError, ModelError
from membound.run.net import EVERY
from membound.search import greedy
from membound.search.budget import (
    STRATEGIES,
    Amount,
    Limit,
    Plan,
    Wanted,
    find_bound,
    make_plans,
    resolve_limits,
)
from membound.search.deployed import Fitted, describe_stored, rounding_hurts, score_stored
from membound.search.ensemble import Average, Ensemble, join_states
from membound.search.jobs import Job, Show
from membound.search.ledger import open_run
from membound.search.measure import FileBytes
from membound.search.problem import Problem
from membound.search.setup import Choices, make_problem
from membound.search.stages import Stages, search_stages
from membound.search.within import check_searchable, search_within
from membound.search.workshop import Finished, Workers, Workshop, as_candidate, this_process
from membound.store.model import StoredModel
from membound.train.evaluation import Score
from membound.train.fingerprints import describe_preprocess, describe_split, describe_task, network_digest
from membound.train.parallel import choose_device
from membound.train.population import trains_together
from membound.train.projection import project_
from membound.train.rules import load_plain_
from membound.train.tensorboard import check_installed

WIDER = "-f32"  # what the keys of jobs end with that are done again for values of 32 bits


@dataclass(frozen=True)
class Watch:
    """Who is told what happens: steps under way, jobs done, what the fit is about to do, and what it could not do."""

    show: Show | None = None
    done: Finished | None = None
    say: Callable[[str], None] = field(default=lambda text: None)
    warn: Callable[[str], None] = field(default=lambda text: print(text, file=sys.stderr))


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
    tensorboard: bool = False,
    ram: Amount | Sequence[Amount] | None = None,
    nonzeros: Amount | Sequence[Amount] | None = None,
    within: float | None = None,
    stages: Stages | str | Path | None = None,
    batch: int = 1,
    isa: str = EVERY,
    preprocess: Preprocess | None = None,
    classes: Sequence[str] | None = None,
    dense: bool = True,
    workers: Workers | None = None,
    watch: Watch | None = None,
    **choices: Any,
) -> Any:
    """The most accurate network that fits: a Fitted, or a list of them for several budgets.

    - `model` is a network, or a function that makes one (then every member of an ensemble starts anew).
    - `train_data`, `val_data`, `test_data`: a torch Dataset or DataLoader, a pair (x, y) of arrays, or a membound
      Dataset, which brings its test images with it. A DataLoader's batch size, order, workers and collate_fn are
      followed, or refused (docs/FITTING.md). Choices are made on `val_data`, or on images held out of
      `train_data`; test images only judge.
    - One bound is given. `budget`: bytes of the file, as '40 KiB', 40960, or '10%' of the dense file. `ram`: file and
      working memory at `batch` images on one thread, on every instruction set or on `isa` alone ('avx2', 'avx512',
      'neon', 'scalar'). `nonzeros`: parameters that are not zero. `within`: the smallest file within so many points of
      dense. `stages`: counts of layers, tightened as long as accuracy allows (a `search.stages.Stages`, or its file). A
      list of budgets gives a list of results.
    - `strategy` says which layer keeps how much: 'global' (the default), 'greedy' (the paper's), 'magnitude' or
      'uniform'. `steps`, `batch_size`, `lr` and the other fields of Choices are named like other arguments.
    - `values` are stored in 'f16', 'f32', or 'auto': 16 bits unless they cost accuracy.
    - `members` above 1 make an ensemble in one file, which averages 'scores' or 'probabilities' (`average`).
    - `loss(outputs, targets)` and `score(outputs, targets)` are for tasks other than classification.
    - `dense=False` trains no dense network to compare with.
    - With a `run_dir` a fit that was killed goes on when the same call is made again; with `tensorboard` the curves of
      every network that it trains are there, too.
    - `workers` say where it is trained, such as a `ray_cluster`; `watch` is told what happens.
    """
    if tensorboard and run_dir is None:
        raise MemboundError("curves for TensorBoard are kept in the run directory: name one as run_dir")
    if tensorboard:
        check_installed()
    if isinstance(stages, str | Path):
        stages = Stages.read(stages)
    watch = watch or Watch()
    kind, amounts = find_bound(budget, ram, nonzeros, within, stages)
    if values not in ("auto", "f16", "f32"):
        raise MemboundError(f"there are no values {values!r}: choose auto, f16 or f32")
    picked = Choices.pick(**choices, steps=steps)
    wanted = Wanted(
        strategy or "global", tuple(amounts), within, members, average, seed, dense, values == "auto",
        picked.greedy_step, stages,
    )  # fmt: skip
    problem = make_problem(
        model, train_data, picked, kind=kind, values="f16" if values == "auto" else values, batch=batch, isa=isa,
        seed=seed, val_data=val_data, test_data=test_data, loss=loss, score=score, preprocess=preprocess,
        classes=classes, hold_out=wanted.strategy == "greedy" or within is not None or stages is not None,
        warn=watch.warn,
    )  # fmt: skip
    if wanted.may_widen:
        problem = _storable(problem)
    if within is not None:
        check_searchable(problem)
    if stages is not None:
        stages.resolve(problem)  # what is wrong with them is said before anything is trained
    limits = [] if within is not None or stages is not None else resolve_limits(problem, wanted.amounts)
    plans = make_plans(problem, limits, members, average, seed)
    chosen = choose_device(device or "auto")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise MemboundError(
            "fit under torchrun would do all work in every process: use a Ray cluster (--ray)"
        )
    with ExitStack() as stack:
        config = _describe(problem, wanted, picked)
        directory = stack.enter_context(open_run(None if run_dir is None else Path(run_dir), config))
        workshop = Workshop(
            problem, directory, workers or this_process(chosen), watch.show, watch.done, tensorboard
        )
        together = workers is not None or trains_together(problem.make(seed), chosen)
        fitting = _Fitting(workshop, wanted, watch, at_once=7 if together else 1)
        results = fitting.run(plans)
    several = any(isinstance(given, list | tuple) for given in (budget, ram, nonzeros))
    return results if several else results[0]


def _describe(problem: Problem, wanted: Wanted, choices: Choices) -> dict[str, Any]:
    """What must be the same for a fit to go on."""
    data = problem.data
    splits = {"train": data.train, "validation": data.given, "test": data.test}
    return {
        "wanted": wanted.describe(),
        "target": vars(problem.target),
        "choices": choices.describe(),
        "recipe": problem.training.recipe.describe(),
        "network": network_digest(problem.make(wanted.seed)),
        "data": {name: None if split is None else describe_split(split) for name, split in splits.items()},
        "preprocess": describe_preprocess(data.preprocess),
        "classes": data.classes,
        "task": describe_task(problem.task),
    }


def _storable(problem: Problem) -> Problem:
    """With values of 32 bits, where those of 16 cannot hold the network as it starts."""
    try:
        problem.least()
    except ModelError:
        problem = _widened(problem)
        problem.least()  # if something else is wrong, it is said now
    return problem


def _widened(problem: Problem) -> Problem:
    return replace(problem, target=replace(problem.target, values="f32"))


class _Fitting:
    """One fit: choices first, then the final networks."""

    def __init__(self, workshop: Workshop, wanted: Wanted, watch: Watch, at_once: int) -> None:
        self.workshop, self.wanted, self.watch, self.at_once = workshop, wanted, watch, at_once
        self.candidates: list[dict[str, Any]] = []

    @property
    def problem(self) -> Problem:
        return self.workshop.problem

    @property
    def _score(self) -> str:
        return STRATEGIES[self.wanted.strategy]

    # Values

    def run(self, plans: list[Plan]) -> list[Fitted]:
        if not self.wanted.may_widen or self.problem.target.values == "f32":
            return self._fit(plans)
        try:
            results = self._fit(plans)
        except ModelError:  # a training has led to a value that 16 bits cannot hold
            if self.wanted.strategy == "greedy":  # its rounds have counted in 16 bits
                raise
            self.watch.say("16 bits cannot hold a value: trained again for values of 32 bits")
            return self._fit_wider(plans)
        for number, result in enumerate(results):
            if rounding_hurts(self.problem, result.files, result.model.state_dict()):
                results[number] = self._retry_wider(plans[number : number + 1]) or result
        return results

    def _retry_wider(self, plans: list[Plan]) -> Fitted | None:
        """One result with values of 32 bits; None if the limit has no room for them."""
        self.watch.say("values of 16 bits lose too much: trained again for values of 32 bits")
        try:
            self._plan_wider(plans)
        except MemboundError as error:
            self.watch.say(f"values of 16 bits stay: {error}")
            return None
        return self._fit_wider(plans)[0]

    def _plan_wider(self, plans: list[Plan]) -> list[Plan]:
        """The same limits for values of 32 bits, with the proportions that were found."""
        limits, wanted = [plan.limit for plan in plans], self.wanted
        made = make_plans(_widened(self.problem), limits, wanted.members, wanted.average, wanted.seed)
        return [
            replace(new, counts=old.counts, start=old.start) for new, old in zip(made, plans, strict=True)
        ]

    def _fit_wider(self, plans: list[Plan]) -> list[Fitted]:
        wider, narrow = self._plan_wider(plans), self.problem
        self.workshop.problem = _widened(narrow)
        try:
            return self._fit(wider, WIDER)
        finally:
            self.workshop.problem = narrow

    # Choices

    def _fit(self, plans: list[Plan], suffix: str = "") -> list[Fitted]:
        if self.wanted.within is not None:
            plans = [self._find_smallest(self.wanted.within, suffix)]
        elif self.wanted.stages is not None:
            plans = plans or [self._go_through(self.wanted.stages)]
        elif self.wanted.strategy == "greedy" and not suffix:
            self._search_greedily(plans)
        data = self.problem.data
        if data.test is None and data.given is None and data.validation is not None:
            self._estimate(plans, data.validation, suffix)
        return self._finals(plans, suffix)

    def _find_smallest(self, points: float, suffix: str) -> Plan:
        self.watch.say("looking for the smallest size")
        size, key, candidates = search_within(
            self.workshop, points, self.wanted.seed, self._score, self.at_once, suffix
        )
        known = {found["key"] for found in self.candidates}
        self.candidates += [found for found in candidates if found["key"] not in known]
        return Plan(Limit(f"{size}", size), size, found=key)

    def _go_through(self, stages: Stages) -> Plan:
        self.watch.say("going through stages")
        reached = search_stages(self.workshop, stages, self.wanted.seed, self.watch.say, self.watch.warn)
        known = {found["key"] for found in self.candidates}
        self.candidates += [found for found in reached.candidates if found["key"] not in known]
        size = self.problem.measure(self.workshop.state(reached.key))
        limit = Limit("stages", size)
        return Plan(limit, size, reached.counts, exact=True, start=reached.key)

    def _search_greedily(self, plans: list[Plan]) -> None:
        """The proportions of layers, for every plan those of the first round that is within its share."""
        self.watch.say("searching greedily")
        shares = sorted({plan.share for plan in plans}, reverse=True)
        options = greedy.Greedy(self.wanted.greedy_step)
        for round in greedy.search(self.workshop, shares, self.wanted.seed, options):
            self.candidates += [
                as_candidate(facts, facts is round.winner)
                for facts in round.candidates
                if "failure" not in facts
            ]
            for plan in plans:
                if plan.counts is None and round.winner["size"] <= plan.share:
                    plan.counts = dict(round.winner["counts"])
                    plan.start = round.winner["job"]["key"]

    def _estimate(self, plans: list[Plan], validation: Split, suffix: str) -> None:
        """Where no other images can judge: networks trained as the final ones, but not on the validation images."""
        keys = {
            id(plan): [plan.found] if plan.found is not None else self._keys("estimate", plan, suffix)
            for plan in plans
        }
        jobs = [
            self._job(plan, member, key)
            for plan in plans
            if plan.found is None
            for member, key in enumerate(keys[id(plan)])
        ]
        if self.wanted.dense:
            jobs.append(Job(greedy.DENSE, self.wanted.seed, about={"round": 0}))
        self.watch.say("training without the validation images, to judge on them")
        self.workshop.do(jobs)
        for plan in plans:
            model, files = self._network(plan, keys[id(plan)])
            plan.estimate = score_stored(files.stored(model.state_dict()), validation, self.problem)

    # The final networks

    def _keys(self, kind: str, plan: Plan, suffix: str) -> list[str]:
        return [f"{kind}-{plan.limit.label}-{member}{suffix}" for member in range(self.wanted.members)]

    def _job(self, plan: Plan, member: int, key: str, everything: bool = False) -> Job:
        return Job(
            key,
            self.wanted.seed + member,
            start=plan.start,
            warm=plan.start is not None,
            limit=None if plan.exact else plan.share,
            score=self._score,
            counts=plan.counts,
            everything=everything,
            bag=1000 * self.wanted.seed + member if self.wanted.members > 1 else None,
            about={"budget": plan.limit.text, "member": member if self.wanted.members > 1 else None},
        )

    def _finals(self, plans: list[Plan], suffix: str) -> list[Fitted]:
        self.watch.say("training the final networks on all training images")
        keys = [self._keys("final", plan, suffix) for plan in plans]
        jobs = [
            self._job(plan, member, key, everything=True)
            for plan, mine in zip(plans, keys, strict=True)
            for member, key in enumerate(mine)
        ]
        if self.wanted.dense:
            jobs.insert(0, Job("dense", self.wanted.seed, everything=True, about={"budget": None}))
        facts = {job.key: found for job, found in zip(jobs, self.workshop.do(jobs), strict=True)}
        self.watch.say("measuring the final networks through the runtime")
        dense = self._describe_dense(facts["dense"]) if self.wanted.dense else None
        return [
            self._deploy(plan, mine, [facts[key] for key in mine], dense)
            for plan, mine in zip(plans, keys, strict=True)
        ]

    def _describe_dense(self, facts: dict[str, Any]) -> dict[str, Any]:
        plain, data = replace(self.problem.files, values="f32"), self.problem.data
        stored = plain.stored(self.workshop.state("dense"))
        estimate = None
        if data.test is None and data.given is None and data.validation is not None:
            part = plain.stored(self.workshop.state(greedy.DENSE))
            estimate = score_stored(part, data.validation, self.problem)
        about = describe_stored(stored, self.problem.target) | self._judge(stored, estimate)
        return about | {"curves": facts["history"], "seconds": facts["seconds"]}

    def _judge(self, stored: StoredModel, estimate: Score | None) -> dict[str, Any]:
        """The last word, by images that it was not trained on; where there are none, the estimate of before."""
        data = self.problem.data
        split = data.given if data.test is None else data.test
        score = estimate if split is None else score_stored(stored, split, self.problem)
        return {
            "accuracy": None if score is None else score.accuracy,
            "errors": None if score is None else score.errors,
            "images": None if score is None else score.images,
            "accuracy_on": "validation" if data.test is None else "test",
        }

    def _judge_members(self, model: nn.Module) -> list[float | None]:
        members = model.members if isinstance(model, Ensemble) else []
        files = self.problem.files
        return [self._judge(files.stored(each.state_dict()), None)["accuracy"] for each in members]

    def _deploy(
        self, plan: Plan, keys: list[str], facts: list[dict[str, Any]], dense: dict[str, Any] | None
    ) -> Fitted:
        model, files = self._network(plan, keys)
        state = model.state_dict()
        stored = files.stored(state)
        judged = self._judge(stored, plan.estimate)
        size = self.problem.measure_of(model, files)(state)
        about = describe_stored(stored, self.problem.target)
        return Fitted(
            model,
            size if plan.exact else plan.limit.number,
            size,
            stored.file_bytes,
            self.problem.target.values,
            judged["accuracy"],
            judged["accuracy_on"],
            judged["errors"],
            judged["images"],
            self._judge_members(model),
            list(self.candidates),
            dense,
            about | {"curves": facts[0]["history"], "seconds": sum(found["seconds"] for found in facts)},
            plan.limit.text,
            files,
        )

    def _network(self, plan: Plan, keys: list[str]) -> tuple[nn.Module, FileBytes]:
        """The final network in torch and its file: one, or an ensemble within the limit."""
        states = [self.workshop.state(key) for key in keys]
        networks = [self.problem.make(self.wanted.seed + number) for number in range(len(keys))]
        if len(keys) == 1:
            model: nn.Module = networks[0]
            files = self.problem.files
        else:
            model = Ensemble(networks, self.wanted.average)
            files = self.problem.files_of(model)
        if not plan.exact:
            measure = self.problem.measure_of(model, files)
            self._trim_(states, lambda: measure(_joined(states)), plan.limit.number)
        for network, state in zip(networks, states, strict=True):
            load_plain_(network, state)
        return model.eval(), files

    def _trim_(self, states: list[dict[str, Tensor]], measure: Callable[[], int], limit: int) -> None:
        """Cut a few of the smallest weights where members that fit do not fit together."""
        names = set(self.problem.weights)
        bounded = [tied for tied in self.problem.files.tracer.parameters if not names.isdisjoint(tied)]
        while (size := measure()) > limit:
            kept, cut = 1 - max(1.2 * (size - limit) / size, 1e-3), False
            for state, (first, *others) in product(states, bounded):
                count = int(state[first].count_nonzero())
                if count > 1:
                    project_(state[first], max(int(kept * count), 1))
                    state.update(dict.fromkeys(others, state[first]))
                    cut = True
            if not cut:
                raise MemboundError(
                    f"the members take {size:,} together, which is more than {limit:,}: allow more"
                )


def _joined(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return states[0] if len(states) == 1 else join_states(states)
