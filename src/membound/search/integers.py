"""How good files are with convolutions in 8-bit integers, where a runtime is faster with these."""

from collections.abc import Sequence
from dataclasses import replace

from membound.report.engines import gains_by_integers
from membound.search.deployed import Fitted
from membound.search.problem import Problem
from membound.search.scoring import score_stored
from membound.train.parallel import World


def with_integers_judged(results: Sequence[Fitted], problem: Problem, world: World) -> list[Fitted]:
    """The same with the accuracy of the engine int8 beside its latency, where it gains, by the images that judged."""
    data = problem.data
    split = data.given if data.test is None else data.test
    if split is None:
        return list(results)

    def judge(found: Fitted) -> Fitted:
        if not gains_by_integers(found.facts):
            return found
        stored = found.files.stored(found.model.state_dict())
        score = world.from_leader(lambda: score_stored(stored, split, problem, "int8"))
        judged = {**found.facts["engine_int8"], "accuracy": score.known, "errors": score.errors}
        return replace(found, facts={**found.facts, "engine_int8": judged})

    return [judge(found) for found in results]
