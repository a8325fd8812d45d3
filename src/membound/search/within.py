"""The inverse question: the smallest size at which the network is still as accurate as is asked.

Networks are judged on the same validation images, so they are compared image by image: with `lost` images that only
dense gets right and `won` that only the candidate does, of n, the candidate loses (lost - won) / n, give or take one
standard error, sqrt(lost + won) / n (McNemar). It is good enough when what it loses, less that
error, is within what is allowed: a few images of luck do not send the search to larger files.
"""

import math
from collections.abc import Mapping
from typing import Any

from membound.errors import MemboundError
from membound.search.allocation import Score
from membound.search.greedy import DENSE
from membound.search.jobs import Job
from membound.search.problem import Problem
from membound.search.scoring import check_scored
from membound.search.workshop import Workshop, as_candidate

CLOSE = 1.1  # the search ends when a size that is too small is at least 1/CLOSE of one that is not
SPARE = 1.2  # times the least size that there is: below that nothing is tried


def check_searchable(problem: Problem) -> None:
    """There are sizes between the least and all."""
    least, dense = problem.least(), problem.measure.dense()
    if dense <= CLOSE * SPARE * least:
        raise MemboundError(
            f"the network takes {dense:,} {problem.target.unit} dense and at least {least:,}: "
            "there is nothing to search between them; leave within out, and give a budget"
        )


def search_within(
    workshop: Workshop, points: float, seed: int, score: Score, at_once: int, suffix: str = ""
) -> tuple[int, str, list[dict[str, Any]]]:
    """The smallest size found whose validation accuracy is within `points` of dense, its job, and every candidate.

    Sizes are tried in ratios, `at_once` of them at a time: one where candidates are trained one after another.
    """
    problem = workshop.problem
    (dense,) = workshop.do([Job(DENSE, seed, paired=True, about={"round": 0})])
    check_scored([dense], "the dense network")
    candidates = [as_candidate(dense, True)]
    # Too small, and large enough; measured here, since values may have become wider since that job was done.
    low, high = SPARE * problem.least(), float(problem.measure(workshop.state(DENSE)))
    number, winner = 0, DENSE
    while high / low > CLOSE:
        number += 1
        ratio = (high / low) ** (1 / (at_once + 1))
        limits = sorted({round(low * ratio**step) for step in range(1, at_once + 1)})
        jobs = [
            Job(
                f"within-{limit}{suffix}",
                seed,
                limit=limit,
                score=score,
                paired=True,
                about={"round": number},
            )
            for limit in limits
        ]
        found = workshop.do(jobs)
        # The smallest that is good enough, whatever luck larger ones had: then all below it are too small.
        good = [job for job, facts in zip(jobs, found, strict=True) if is_within(facts, dense, points)]
        best = min(good, key=lambda job: job.limit or 0, default=None)
        candidates += [as_candidate(facts, job is best) for job, facts in zip(jobs, found, strict=True)]
        unneeded = [job.key for job in jobs if job is not best]
        if best is not None:
            unneeded += [] if winner == DENSE else [winner]
            high, winner = float(best.limit or 0), best.key
        low = float(max([limit for limit in limits if limit < high], default=low))
        workshop.forget(unneeded)
    return int(high), winner, candidates


def is_within(facts: Mapping[str, Any], dense: Mapping[str, Any], points: float) -> bool:
    """Whether a network is not clearly more than `points` below dense; by bare scores, where nothing else is known.

    >>> dense, other = {"accuracy": 98.0, "images": 1000, "wrong": [1, 2]}, {"accuracy": 97.9, "wrong": [1, 2, 3]}
    >>> is_within(other, dense, 0.0), is_within({**other, "wrong": [1, 2, *range(3, 9)]}, dense, 0.0)
    (True, False)
    """
    if facts["accuracy"] is None:
        return False
    if "wrong" not in facts or "wrong" not in dense:  # a score of the user's own
        return facts["accuracy"] is not None and bool(facts["accuracy"] >= dense["accuracy"] - points)
    images, mine, its = dense["images"], set(facts["wrong"]), set(dense["wrong"])
    lost, won = len(mine - its), len(its - mine)
    return bool(lost - won - math.sqrt(lost + won) <= points / 100 * images)
