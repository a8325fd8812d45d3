"""The last cut: members of an ensemble that fit, each for itself, fit together."""

from collections.abc import Callable, Sequence
from itertools import product

from torch import Tensor

from membound.errors import MemboundError
from membound.search.problem import Problem
from membound.train.projection import project_


def trim_(
    states: Sequence[dict[str, Tensor]], problem: Problem, measure: Callable[[], int], limit: int
) -> None:
    """Cut a few of the smallest weights where members that fit do not fit together."""
    names = set(problem.weights)
    bounded = [tied for tied in problem.files.tracer.parameters if not names.isdisjoint(tied)]
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
                f"the members take {size:,} together, which is more than {limit:,}: raise the budget"
            )
