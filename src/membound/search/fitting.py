"""One fit: what is searched first, then the training of the final networks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from membound.data import Split
from membound.errors import MemboundError, ModelError
from membound.search import greedy
from membound.search.bounds import Bound
from membound.search.budget import Limit, Plan, make_plans
from membound.search.deployed import Fitted
from membound.search.finals import Finals
from membound.search.jobs import Job
from membound.search.place import Watch
from membound.search.problem import AUTO, Problem, State
from membound.search.request import Choices
from membound.search.scoring import rounding_hurts
from membound.search.stages import Stages, search_stages
from membound.search.wider import FEW, WIDER, better_of, widened
from membound.search.widths import WidthSearch
from membound.search.within import search_within
from membound.search.workshop import Workshop, as_candidate
from membound.train.parallel import World
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
        self.finals = Finals(workshop, bound, choices, watch)
        self.known_dense: dict[str, Any] | None = None  # trained already, at another width
        self.dense_teaching = dense_teaching  # None: networks under the bound do not learn from the dense one

    @property
    def problem(self) -> Problem:
        return self.workshop.problem

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
        self.finals.candidates += search.candidates
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
        if self.finals.estimates:
            jobs.append(Job(greedy.DENSE, self.choices.seed, about={"round": 0}))
        return self.finals.describe_dense(self.workshop.do(jobs)[0])

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
            self.watch.say(f"a value is too large for 16 bits: training again in {wider}")
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
        few = FEW[now]
        self.watch.say(f"values of {few} lose too much accuracy: training again in {WIDER[now]}")
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
        if self.finals.estimates:
            assert self.problem.data.validation is not None
            self._estimate(plans, self.problem.data.validation, suffix)
        return self._finals(plans, suffix)

    def _find_smallest(self, points: float, suffix: str) -> Plan:
        self.watch.say("looking for the smallest size")
        size, key, candidates = search_within(
            self.workshop, points, self.choices.seed, self.choices.layer_score, self.at_once, suffix
        )
        self.finals.remember(candidates)
        return Plan(Limit(f"{size}", size), size, found=key)

    def _go_through(self, stages: Stages) -> Plan:
        self.watch.say("going through stages")
        reached = search_stages(self.workshop, stages, self.choices.seed, self.watch.say, self.watch.warn)
        self.finals.remember(reached.candidates)
        size = self.problem.measure(self.workshop.state(reached.key))
        limit = Limit("stages", size)
        return Plan(limit, size, reached.counts, exact=True, start=reached.key)

    def _search_greedily(self, plans: list[Plan]) -> None:
        """The proportions of layers, for every plan those of the first round that is within its share."""
        self.watch.say("searching greedily")
        shares = sorted({plan.share for plan in plans}, reverse=True)
        options = greedy.Greedy(self.choices.greedy_step)
        candidates = 0
        for round in greedy.search(self.workshop, shares, self.choices.seed, options):
            if round.number:
                candidates += len(round.candidates)
            elif rounds := greedy.fewest_rounds(self.problem, round.winner, shares[-1], options):
                self.watch.say(self._describe_search(rounds))
            self.finals.candidates += [
                as_candidate(facts, facts is round.winner)
                for facts in round.candidates
                if "failure" not in facts
            ]
            for plan in plans:
                if plan.counts is None and round.winner["size"] <= plan.share:
                    plan.counts = dict(round.winner["counts"])
                    plan.start = round.winner["job"]["key"]
        if candidates:
            done = f"{_count(round.number, 'round')}, {_count(candidates, 'candidate')}"
            self.watch.say(f"the search took {done} in all")

    def _describe_search(self, rounds: int) -> str:
        """How much there is to do: how many rounds it takes depends on the layers that win them."""
        layers, steps = len(self.problem.weights), self.problem.training.tuning.steps
        return (
            f"the search takes at least {_count(rounds, 'round')} of up to {_count(layers, 'candidate')}, "
            f"{_count(steps, 'step')} each"
        )

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
        self._train(
            jobs, dense, "training copies without the validation images, to measure accuracy on these"
        )
        for plan in plans:
            plan.estimate = self.finals.estimate(plan, keys[id(plan)], validation)

    def _train(self, jobs: list[Job], dense: Job, about: str) -> dict[str, dict[str, Any]]:
        """The facts of all by key: the dense network is trained beside the others, or before those that it teaches."""
        if self.choices.dense and self.known_dense is None:
            jobs = [dense, *jobs]
        problem = self.problem
        if self.dense_teaching is not None:
            if not self.workshop.has(dense.key):  # trained already where others follow in wider values
                self.watch.say("training the dense network, which teaches the others")
            self.workshop.do([dense])
            teaching = self.dense_teaching(self.workshop.state(dense.key), problem)
            self.workshop.problem = problem.changed(teaching=teaching)
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
        alone = len(jobs) == 1 and (self.dense_teaching is not None or not self.choices.dense)
        what = "under the bound," if alone else "the final networks"
        facts = self._train(jobs, dense_job, f"training {what} on all training images")
        self.watch.say("measuring the final networks through the runtime")
        dense = self.finals.describe_dense(facts["dense"]) if "dense" in facts else self.known_dense
        results = [
            self.finals.deploy(plan, [facts[key] for key in mine], dense, *self.finals.network(plan, mine))
            for plan, mine in zip(plans, keys, strict=True)
        ]
        if self.finals.estimates:
            self.watch.say(
                "accuracies are those of copies trained without the validation images; the networks in the files are "
                "trained on all images: give test data to measure these"
            )
        if "dense" not in facts or self.bound.values != AUTO or self.bound.members > 1:
            return results
        return [
            self.finals.dense_if_better(plan, result, facts["dense"])
            for plan, result in zip(plans, results, strict=True)
        ]


def _count(number: int, what: str) -> str:
    """
    >>> _count(1, "round"), _count(1200, "round")
    ('1 round', '1,200 rounds')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
