"""One fit: what is searched first, then the final networks, judged through the deployed runtime."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from membound.data import Split
from membound.errors import MemboundError, ModelError
from membound.report.eight_bits import TAKEN
from membound.search import greedy
from membound.search.bits import describe_types, joined
from membound.search.bounds import Bound
from membound.search.budget import Limit, Plan, describe_device, describe_left_over, make_plans
from membound.search.deployed import Fitted, describe_speed, describe_stored
from membound.search.effort import describe_recipe
from membound.search.eight_bits import EightBits, better_in_8_bits, describe_choice, fits, in_8_bits
from membound.search.ensemble import Ensemble, join_states
from membound.search.jobs import Job
from membound.search.measure import FileBytes
from membound.search.micro import MicroBytes, calibrated, exported_bytes
from membound.search.place import Watch
from membound.search.problem import AUTO, Problem, State
from membound.search.request import Choices
from membound.search.scoring import rounding_hurts, score_stored
from membound.search.stages import Stages, search_stages
from membound.search.trim import trim_
from membound.search.wider import WIDER, better_of, widened
from membound.search.widths import WidthSearch
from membound.search.within import search_within
from membound.search.workshop import Workshop, as_candidate
from membound.store.model import StoredModel
from membound.train.evaluation import Score
from membound.train.parallel import World
from membound.train.rules import load_plain_
from membound.train.several import plain
from membound.train.teaching import Teaching

DenseTeaching = Callable[[State, Problem], Teaching]  # from the weights of the dense network


class Fitting:
    """One fit: choices first, then the final networks."""

    def __init__(
        self,
        workshop: Workshop,
        bound: Bound,
        choices: Choices,
        watch: Watch,
        at_once: int,
        world: World | None = None,
        dense_teaching: DenseTeaching | None = None,
    ) -> None:
        self.workshop, self.watch, self.at_once = workshop, watch, at_once
        self.world = world or World()
        self.bound, self.choices = bound, choices
        self.candidates: list[dict[str, Any]] = []
        self.tried: list[str] = []  # what a person should know of it
        self.known_dense: dict[str, Any] | None = None  # trained already, at another width
        self.dense_file: StoredModel | None = None  # for races against it
        self.eight_bits: EightBits | None = None  # the same weights in 8 bits, where they can be
        self.dense_teaching = dense_teaching  # None: networks under the bound do not learn from the dense one

    @property
    def problem(self) -> Problem:
        return self.workshop.problem

    @property
    def ram_limit(self) -> int | None:
        """The second bound, where there are two."""
        return self.problem.target.memory

    # Widths

    def run_widths(self, plans: list[Plan]) -> list[Fitted]:
        """The best of several widths for each limit; the dense network has the width of the user's own."""
        factors = self.choices.widths
        assert isinstance(factors, tuple)
        bound, choices, base = self.bound, self.choices, self.problem
        self.watch.say("trying widths")
        search = WidthSearch(
            self.workshop, factors, choices.seed, choices.layer_score, bound.members, bound.average
        )
        found = search.run([plan.limit for plan in plans])
        self.candidates += search.candidates
        if choices.dense:
            self.watch.say("training the dense network")
            self.known_dense = self._train_dense()
        results: dict[Limit, Fitted] = {}
        try:
            for factor in sorted(set(found)):
                self.workshop.problem = search.problems[factor]
                limits = [plan.limit for plan, own in zip(plans, found, strict=True) if own == factor]
                made = make_plans(self.problem, limits, bound.members, bound.average, choices.seed)
                for limit, fitted in zip(limits, self.run(made), strict=True):
                    tried = [*fitted.facts["tried"], search.describe(limit, factor)]
                    facts = {**fitted.facts, "width": factor, "tried": tried}
                    results[limit] = replace(fitted, facts=facts)
        finally:
            self.workshop.problem, self.known_dense = base, None
        return [results[plan.limit] for plan in plans]

    def _train_dense(self) -> dict[str, Any]:
        jobs = [Job("dense", self.choices.seed, everything=True, about={"budget": None})]
        if self._estimates:
            jobs.append(Job(greedy.DENSE, self.choices.seed, about={"round": 0}))
        return self._describe_dense(self.workshop.do(jobs)[0])

    @property
    def _estimates(self) -> bool:
        """Whether only images held out of the training ones can judge."""
        data = self.problem.data
        return data.test is None and data.given is None and data.validation is not None

    # Values

    def run(self, plans: list[Plan], suffix: str = "") -> list[Fitted]:
        wider = WIDER.get(self.problem.target.values)
        if not self.bound.may_widen or wider is None:
            return self._fit(plans, suffix)
        try:
            results = self._fit(plans, suffix)
        except ModelError:  # a training has led to a value that 16 bits cannot hold
            if self.choices.is_greedy:  # its rounds have counted in 16 bits
                raise
            self.watch.say(f"16 bits cannot hold a value: trained again in {wider}")
            return self._fit_wider(plans)
        for number, result in enumerate(results):
            hurts = rounding_hurts(self.problem, result.files, result.model.state_dict())
            if self.world.agree(hurts):
                again = self._retry_wider(plans[number : number + 1])
                results[number] = better_of(result, again, self.problem, self.world, self.watch)
        return results

    def _retry_wider(self, plans: list[Plan]) -> Fitted | None:
        """One result with wider values; None if the limit has no room for them."""
        now = self.problem.target.values
        few = "few bits" if now == AUTO else "16 bits"
        self.watch.say(f"values of {few} lose too much: trained again in {WIDER[now]}")
        try:
            self._plan_wider(plans)
        except MemboundError as error:
            self.watch.say(f"values of {few} stay: {error}")
            return None
        return self._fit_wider(plans)[0]

    def _plan_wider(self, plans: list[Plan]) -> list[Plan]:
        """The same limits for wider values, with the proportions that were found."""
        limits, bound = [plan.limit for plan in plans], self.bound
        made = make_plans(widened(self.problem), limits, bound.members, bound.average, self.choices.seed)
        pairs = zip(made, plans, strict=True)
        return [replace(new, counts=old.counts, start=old.start) for new, old in pairs]

    def _fit_wider(self, plans: list[Plan]) -> list[Fitted]:
        wider, narrow = self._plan_wider(plans), self.problem
        self.workshop.problem = widened(narrow)
        try:
            return self.run(wider, f"-{self.problem.target.values}")
        finally:
            self.workshop.problem = narrow

    # Choices

    def _fit(self, plans: list[Plan], suffix: str = "") -> list[Fitted]:
        if self.bound.within is not None:
            plans = [self._find_smallest(self.bound.within, suffix)]
        elif isinstance(self.bound.stages, Stages):
            plans = plans or [self._go_through(self.bound.stages)]
        elif self.choices.is_greedy and not suffix:
            self._search_greedily(plans)
        if self._estimates:
            assert self.problem.data.validation is not None
            self._estimate(plans, self.problem.data.validation, suffix)
        return self._finals(plans, suffix)

    def _find_smallest(self, points: float, suffix: str) -> Plan:
        self.watch.say("looking for the smallest size")
        size, key, candidates = search_within(
            self.workshop, points, self.choices.seed, self.choices.layer_score, self.at_once, suffix
        )
        known = {found["key"] for found in self.candidates}
        self.candidates += [found for found in candidates if found["key"] not in known]
        return Plan(Limit(f"{size}", size), size, found=key)

    def _go_through(self, stages: Stages) -> Plan:
        self.watch.say("going through stages")
        reached = search_stages(self.workshop, stages, self.choices.seed, self.watch.say, self.watch.warn)
        known = {found["key"] for found in self.candidates}
        self.candidates += [found for found in reached.candidates if found["key"] not in known]
        size = self.problem.measure(self.workshop.state(reached.key))
        limit = Limit("stages", size)
        return Plan(limit, size, reached.counts, exact=True, start=reached.key)

    def _search_greedily(self, plans: list[Plan]) -> None:
        """The proportions of layers, for every plan those of the first round that is within its share."""
        self.watch.say("searching greedily")
        shares = sorted({plan.share for plan in plans}, reverse=True)
        options = greedy.Greedy(self.choices.greedy_step)
        for round in greedy.search(self.workshop, shares, self.choices.seed, options):
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
        dense = Job(greedy.DENSE, self.choices.seed, about={"round": 0})
        self._train(jobs, dense, "training without the validation images, to judge on them")
        for plan in plans:
            model, files = self._network(plan, keys[id(plan)])
            files = self._for_device(files, model.state_dict())
            plan.estimate = score_stored(files.stored(model.state_dict()), validation, self.problem)

    def _train(self, jobs: list[Job], dense: Job, about: str) -> dict[str, dict[str, Any]]:
        """The facts of all by key: the dense network is trained beside the others, or before those that it teaches."""
        if self.choices.dense and self.known_dense is None:
            jobs = [dense, *jobs]
        problem = self.problem
        if self.dense_teaching is not None:
            self.watch.say("training the dense network, which teaches the others")
            self.workshop.do([dense])
            teaching = self.dense_teaching(self.workshop.state(dense.key), problem)
            self.workshop.problem = replace(problem, teaching=teaching)
        self.watch.say(about)
        try:
            return {job.key: found for job, found in zip(jobs, self.workshop.do(jobs), strict=True)}
        finally:
            self.workshop.problem = problem

    # The final networks

    def _keys(self, kind: str, plan: Plan, suffix: str) -> list[str]:
        return [f"{kind}-{plan.limit.label}-{member}{suffix}" for member in range(self.bound.members)]

    def _job(self, plan: Plan, member: int, key: str, everything: bool = False) -> Job:
        return Job(
            key,
            self.choices.seed + member,
            start=plan.start,
            warm=plan.start is not None,
            limit=None if plan.exact else plan.share,
            score=self.choices.layer_score,
            counts=plan.counts,
            everything=everything,
            bag=1000 * self.choices.seed + member if self.bound.members > 1 else None,
            about={"budget": plan.limit.text, "member": member if self.bound.members > 1 else None},
        )

    def _finals(self, plans: list[Plan], suffix: str) -> list[Fitted]:
        keys = [self._keys("final", plan, suffix) for plan in plans]
        jobs = [
            self._job(plan, member, key, everything=True)
            for plan, mine in zip(plans, keys, strict=True)
            for member, key in enumerate(mine)
        ]
        dense_job = Job("dense", self.choices.seed, everything=True, about={"budget": None})
        facts = self._train(jobs, dense_job, "training the final networks on all training images")
        self.watch.say("measuring the final networks through the runtime")
        dense = self._describe_dense(facts["dense"]) if "dense" in facts else self.known_dense
        results = [
            self._deploy(plan, [facts[key] for key in mine], dense, *self._network(plan, mine))
            for plan, mine in zip(plans, keys, strict=True)
        ]
        if "dense" not in facts or self.bound.values != AUTO or self.bound.members > 1:
            return results
        return [
            self._dense_if_better(plan, result, facts["dense"])
            for plan, result in zip(plans, results, strict=True)
        ]

    def _dense_if_better(self, plan: Plan, result: Fitted, facts: dict[str, Any]) -> Fitted:
        """Dense in 8 bits instead, where it fits and images other than those for the last word say so."""
        dense = self.eight_bits
        if dense is None or not result.facts["fits_in_8_bits"]:
            return result
        ours = result.files.stored(result.model.state_dict())
        scores = better_in_8_bits(self.problem, ours, plan.estimate, dense)
        if scores is None:
            return result
        model = self.problem.make(self.choices.seed)
        load_plain_(model, dense.state)
        plan = replace(plan, estimate=dense.estimate)
        found = self._deploy(plan, [facts], dict(result.dense or {}), model.eval(), dense.files)
        self.watch.note(f"{plan.limit.text}: {TAKEN}")
        own = [note for note in found.facts["tried"] if "teacher" not in note]  # dense has none
        tried = [*own, describe_choice(*scores)]
        return replace(found, facts={**found.facts, "tried": tried, "is_dense_in_8_bits": True})

    def _describe_dense(self, facts: dict[str, Any]) -> dict[str, Any]:
        plain, data = replace(self.problem.files, values="f32", types={}), self.problem.data
        stored = plain.stored(self.workshop.state("dense"))
        estimate = None
        if self._estimates and data.validation is not None:
            part = plain.stored(self.workshop.state(greedy.DENSE))
            estimate = score_stored(part, data.validation, self.problem)
        self.dense_file = stored
        about = describe_stored(stored, self.problem.target) | self._judge(stored, estimate)
        return about | {
            "curves": facts["history"],
            "steps": self._steps(facts),
            "seconds": facts["seconds"],
            "int8": self._describe_int8(),
        }

    def _describe_int8(self) -> dict[str, Any] | None:
        held_out = self.workshop.state(greedy.DENSE) if self._estimates else None
        dense, data = in_8_bits(self.problem, self.workshop.state("dense"), held_out), self.problem.data
        self.eight_bits = dense
        if dense is None or (data.test is None and data.given is None and dense.estimate is None):
            return None  # nothing but the training images could judge it
        return dense.describe(self.problem) | self._judge(dense.stored, dense.estimate)

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

    def _judge_members(self, model: nn.Module, facts: list[dict[str, Any]]) -> list[float | None]:
        if not isinstance(model, Ensemble):
            return []
        files = [replace(self.problem.files, types=each.get("types") or {}) for each in facts]
        found = [mine.stored(each.state_dict()) for mine, each in zip(files, model.members, strict=True)]
        return [self._judge(stored, None)["accuracy"] for stored in found]

    def _deploy(
        self,
        plan: Plan,
        facts: list[dict[str, Any]],
        dense: dict[str, Any] | None,
        model: nn.Module,
        files: FileBytes,
    ) -> Fitted:
        files, state = self._for_device(files, model.state_dict()), model.state_dict()
        stored = files.stored(state)
        about = describe_stored(stored, self.problem.target)
        if self.problem.target.micro:
            size = about["micro"]["flash_bytes"]
        elif self.ram_limit is None:
            size = self.problem.measure_of(model, files)(state)
        else:
            size = stored.file_bytes
        seconds = sum(found["seconds"] for found in facts)
        int8 = (dense or {}).get("int8")
        return Fitted(
            name=plan.limit.text,
            model=plain(model),
            files=files,
            limit=size if plan.exact else plan.limit.number,
            size=size,
            file_bytes=stored.file_bytes,
            values=describe_types(files.types) if files.types else files.values,
            **self._judge(stored, plan.estimate),
            members=self._judge_members(model, facts),
            history=list(self.candidates),
            dense=dense,
            facts=about
            | {
                "curves": facts[0]["history"],
                "steps": self._steps(facts[0]),
                "training": describe_recipe(self.problem, self.choices.seed, plan.start is not None),
                "seconds": seconds,
                "fits_in_8_bits": fits(int8, self.bound, plan.limit.number, self.ram_limit),
                "tried": [*self.tried, *self._notes(plan, files, state, about)],
            }
            | ({} if self.ram_limit is None else {"memory_limit": self.ram_limit})
            | ({} if self.problem.task.counts else {"score_name": self.problem.task.name or "score"}),
        )

    def _steps(self, facts: dict[str, Any]) -> int:
        """Those of a network and of all that it goes on from: a search trains its winners on."""
        steps, start = int(facts["steps"]), facts["job"].get("start")
        return steps if start is None else steps + self._steps(self.workshop.facts(start))

    def _notes(self, plan: Plan, files: FileBytes, state: State, about: dict[str, Any]) -> list[str]:
        """What a person should know of its bytes."""
        notes = [describe_speed(files, state, about)] if files.prefer == "speed" else []
        if plan.exact or self.bound.within is not None or plan.limit.key is not None:
            return notes
        if micro := about.get("micro"):
            notes += describe_device(micro, plan.limit.number, self.problem.target)
        types = set(files.types.values())
        return notes + describe_left_over(self.problem, plan, types, about)

    def _for_device(self, files: FileBytes, state: State) -> FileBytes:
        """What a microcontroller runs says how its values become int8."""
        data = self.problem.data
        return calibrated(files, state, data.train, data.preprocess) if self.problem.target.micro else files

    def _exported_bytes(self, files: FileBytes, state: State) -> int:
        """What the budget counts of a network as it is exported for a microcontroller."""
        target = self.problem.target
        return exported_bytes(self._for_device(files, state).stored(state), target.spare, target.timed)

    def _network(self, plan: Plan, keys: list[str]) -> tuple[nn.Module, FileBytes]:
        """The final network in torch and its file: one, or an ensemble within the limit."""
        states = [self.workshop.state(key) for key in keys]
        networks = [self.problem.make(self.choices.seed + number) for number in range(len(keys))]
        types = [self._types(key) for key in keys]
        if len(keys) == 1:
            model: nn.Module = networks[0]
            files = replace(self.problem.files, types=types[0])
        else:
            model = Ensemble(networks, self.bound.average)
            files = replace(self.problem.files_of(model), types=joined(types))
        if not plan.exact:
            measure = self.problem.measure_of(model, files)
            size = partial(self._exported_bytes, files) if isinstance(measure, MicroBytes) else measure
            trim_(states, self.problem, lambda: size(_joined(states)), plan.limit.number)
        for network, state in zip(networks, states, strict=True):
            load_plain_(network, state)
        return model.eval(), files

    def _types(self, key: str) -> dict[str, str]:
        """The types of the values of a job's weights."""
        return self.workshop.facts(key).get("types") or {}


def _joined(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return states[0] if len(states) == 1 else join_states(states)
