"""Said when training ends: running statistics of batch norms may be those of other networks than the last one."""

import warnings
from collections.abc import Iterable

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from membound.train.rules import Target

STACK = 3  # from here to who calls finish()


class StaleStatistics(UserWarning):
    """Batch norms have averaged over networks that were denser than the final one."""


def tell_stale(model: nn.Module, constrained: Iterable[Target], steps: int) -> None:
    """Warn where weights left their bounds between steps, and the network has batch norms that averaged meanwhile."""
    left = [target.name for target in constrained if target.update.leaves_bound]
    norms = any(isinstance(each, _BatchNorm) and each.running_mean is not None for each in model.modules())
    if steps and left and norms:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        warnings.warn(
            f"batch norm: '{left[0]}'{more} left the bound between projections, so running statistics are partly those "
            "of denser networks; average them again with torch.optim.swa_utils.update_bn(train_loader, model), or "
            "project with every=1 in the last steps",
            StaleStatistics,
            stacklevel=STACK,
        )
