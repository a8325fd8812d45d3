"""The inverse question: the smallest size at which the network is still as accurate as is asked."""

from typing import Any

from membound.errors import TrainingError
from membound.search.jobs import Job
from membound.search.workshop import Workshop

CLOSE = 1.1  # the search ends when a size that is too small is at least 1/CLOSE of one that is not


def search_within(
    workshop: Workshop, points: float, seed: int, score: str, at_once: int
) -> tuple[int, list[dict[str, Any]]]:
    """The smallest size found whose validation accuracy is within `points` of dense; and every candidate.

    Sizes are tried in ratios, `at_once` of them at a time: one where candidates are trained one after another.
    """
    (dense,) = workshop.do([Job("dense-part", seed, about={"round": 0})])
    wanted = dense["accuracy"] - points
    candidates = [_candidate(dense, 0, True)]
    low, high = 1.2 * workshop.problem.least(), float(dense["size"])  # too small, and large enough
    number = 0
    while high / low > CLOSE:
        number += 1
        ratio = (high / low) ** (1 / (at_once + 1))
        limits = sorted({round(low * ratio**step) for step in range(1, at_once + 1)})
        jobs = [
            Job(f"within-{limit}", seed, limit=limit, score=score, about={"round": number})
            for limit in limits
        ]
        found = workshop.do(jobs)
        # The smallest that is good enough, whatever luck larger ones had: then all below it are too small.
        good = [limit for limit, facts in zip(limits, found, strict=True) if facts["accuracy"] >= wanted]
        best = min(good, default=None)
        candidates += [
            _candidate(facts, number, limit == best) for limit, facts in zip(limits, found, strict=True)
        ]
        if best is not None:
            high = float(best)
        low = float(max([limit for limit in limits if limit < high], default=low))
        workshop.forget([job.key for job in jobs])
    if high >= dense["size"] and number == 0:
        raise TrainingError("the network cannot be made smaller than it is: there is nothing to search")
    return int(high), candidates


def _candidate(facts: dict[str, Any], number: int, won: bool) -> dict[str, Any]:
    kept = ("accuracy", "size", "nonzeros", "weight_nonzeros", "counts", "steps", "seconds")
    return {"key": facts["job"]["key"], "round": number, "won": won, **{name: facts[name] for name in kept}}
