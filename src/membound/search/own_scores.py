"""A strategy of the user's own, tried before anything is trained: it must give the same scores for the same weights."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from membound.errors import MemboundError
from membound.search.allocation import check_scores

Scores = Callable[[str, Tensor], Tensor]


def refuse_no_scores(score: Scores, network: nn.Module, names: Iterable[str]) -> None:
    """Refuse a result that is no score before anything is trained; a function that wants a gradient may fail here.

    >>> refuse_no_scores(lambda name, weight: weight.sum(), nn.Linear(2, 2), ["weight"])
    Traceback (most recent call last):
    membound.errors.MemboundError: the strategy's scores of 'weight' have shape (): give a tensor of the weight's \
shape, (2, 2)
    >>> refuse_no_scores(lambda name, weight: (weight * weight.grad).abs(), nn.Linear(2, 2), ["weight"])
    """
    for name in names:
        copy = nn.Parameter(network.get_parameter(name).detach().clone())
        try:
            with torch.random.fork_rng(), torch.no_grad():
                check_scores(name, copy, score)
        except MemboundError:
            raise
        except Exception:  # there is no gradient yet: the training tells what else is wrong
            return


def warn_if_changing(
    score: Scores, network: nn.Module, names: Iterable[str], warn: Callable[[str], None]
) -> None:
    """Said of scores that change from call to call: a bound that follows them never settles.

    >>> warn_if_changing(lambda name, weight: torch.rand_like(weight), nn.Linear(2, 2), ["weight"], print)
    the strategy gives other scores for the same weights ('weight'), so what is pruned changes at every step: let it \
depend on its arguments alone (for a random baseline, seed a torch.Generator by the name)
    >>> warn_if_changing(lambda name, weight: weight.abs(), nn.Linear(2, 2), ["weight"], print)
    """
    for name in names:
        if _changes(score, name, network.get_parameter(name)):
            warn(
                f"the strategy gives other scores for the same weights ({name!r}), so what is pruned changes at every "
                "step: let it depend on its arguments alone (for a random baseline, seed a torch.Generator by the name)"
            )
            return


def _changes(score: Scores, name: str, weight: Tensor) -> bool:
    """Whether two calls differ; an error is for the training to tell, which has true gradients."""
    copy = nn.Parameter(weight.detach().clone())
    copy.grad = weight.detach().clone()
    try:
        with torch.random.fork_rng():  # what is drawn here must not change the training
            first, second = (score(name, copy).detach().clone() for _ in range(2))
    except Exception:
        return False
    return not torch.equal(first.nan_to_num(), second.nan_to_num())
