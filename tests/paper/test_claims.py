"""Claims that any of several cases would prove."""

import pytest

from membound.paper.claims import above, best_above, claim

NONE = {"mean": 0.0, "std": 0.5, "n": 3}


def mean(value: float) -> dict[str, float]:
    return {"mean": value, "std": 0.5, "n": 3}


@pytest.mark.parametrize(
    ("means", "verdict"),
    [
        ([1.3], "holds"),
        ([1.3] * 8, "too few seeds to tell"),  # the best of eight equals is ahead by chance
        ([3.0] * 8, "holds"),
        ([-3.0, 3.0], "holds"),
        ([-1.3] * 8, "does not hold"),  # each of them is behind
        ([-1.3, 0.0], "too few seeds to tell"),
    ],
)
def test_the_best_of_many_cases_has_to_be_ahead_by_more(means, verdict):
    cases = {number: (mean(value), NONE) for number, value in enumerate(means)}
    case, lead = best_above(cases)
    assert lead.gap == max(means) == means[case]
    assert claim("some are ahead", lead.gap > 0, "", lead)["verdict"] == verdict
    assert lead.noise >= above(mean(means[case]), NONE).noise
