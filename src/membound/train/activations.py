"""Activations of 8 bits in the last part of training: values inside a network are rounded as a device will do it.

A value is what one call of a torch function gives, known by the number of the call in a forward pass: so any module
will do, and none is changed. The gradient passes through the rounding as it is, and not where a value was clipped
(straight through). Scales and zero points are tensors that stay where they are: a recorded step sees new ones.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from membound.train.batches import Feeder
from membound.train.evaluation import in_eval_mode

BEGIN = 0.75  # of training: weights take few values before that
OFTEN = 20  # calibrations in a training, if it were calibrated from its start
IMAGES, BATCH = 512, 128  # to calibrate on
SAMPLE = 1 << 14  # numbers of a value and a batch
INPUT = -1  # the number of the "call" that gives the network's input
LOW, HIGH = -128, 127

Samples = Mapping[int, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Points:
    """Which calls are rounded, and how: `settle` gives a scale and a zero point for each, from numbers that it gave."""

    calls: tuple[int, ...]
    settle: Callable[[Samples], Mapping[int, tuple[float, int]]]


class Calls(TorchFunctionMode):
    """Inside, `change` sees the floating-point tensors that torch functions give, numbered, and may replace them."""

    def __init__(self, change: Callable[[int, Tensor], Tensor]) -> None:
        super().__init__()
        self.change, self.count = change, 0
        self.names: list[str] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor) and found.is_floating_point():
            self.names.append(getattr(func, "__name__", ""))
            found = self.change(self.count, found)
            self.count += 1
        return found


class RoundedActivations:
    """The rounding of one network's values: nothing until it is calibrated for the first time."""

    def __init__(self, points: Points, steps: int, device: torch.device) -> None:
        self.points = points
        self.begin = math.ceil(BEGIN * steps)
        self.every = max(steps // OFTEN, 1)
        self.places = {call: place for place, call in enumerate(points.calls)}
        self.scales = torch.ones(len(self.places), device=device)
        self.zeros = torch.zeros(len(self.places), dtype=torch.int32, device=device)
        self.begun = False

    def due(self, step: int) -> bool:
        """Whether it is calibrated after so many steps."""
        late = step - self.begin
        return late >= 0 and (not self.begun or late % self.every == 0)

    def forward(self, network: nn.Module, x: Tensor) -> Any:
        """What the network gives with its values rounded."""
        if not self.begun:
            return network(x)
        x = self._round(INPUT, x)  # here, as rounding has calls of its own
        with Calls(self._round):
            return network(x)

    def _round(self, call: int, value: Tensor) -> Tensor:
        place = self.places.get(call)
        if place is None:
            return value
        scale, zero = self.scales[place : place + 1], self.zeros[place : place + 1]
        whole = torch.fake_quantize_per_tensor_affine(value.float(), scale, zero, LOW, HIGH)
        return whole.to(value.dtype)  # which is less where training is in bf16

    @torch.no_grad()
    def calibrate(self, model: nn.Module, feeder: Feeder) -> None:
        """Scales and zero points from what values are on training images, as the network is tested."""
        found: dict[int, list[Tensor]] = {call: [] for call in self.places}

        def look(call: int, value: Tensor) -> Tensor:
            if call in found:
                found[call].append(_sample(value))
            return value

        images = len(feeder.split)
        rows = np.unique(np.linspace(0, images - 1, min(IMAGES, images)).astype(np.int64))
        with in_eval_mode(model):
            for x, _ in feeder.batches(np.array_split(rows, -(-len(rows) // BATCH))):
                look(INPUT, x)
                with Calls(look):
                    model(x)
        chosen = self.points.settle({call: torch.cat(each).cpu().numpy() for call, each in found.items()})
        self._set([chosen[call] for call in self.points.calls])

    def _set(self, chosen: list[tuple[float, int]]) -> None:
        scales, zeros = zip(*chosen, strict=True)
        self.scales.copy_(torch.tensor(scales))
        self.zeros.copy_(torch.tensor(zeros, dtype=torch.int32))
        self.begun = True

    def describe(self) -> list[Any]:
        """What must be the same for a run to be resumed."""
        return [list(self.points.calls), self.begin, self.every]

    def state_dict(self) -> dict[str, Tensor]:
        """The scales and zero points, once there are any."""
        return {"scales": self.scales.clone(), "zeros": self.zeros.clone()} if self.begun else {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on with those."""
        if state:
            self.scales.copy_(state["scales"])
            self.zeros.copy_(state["zeros"])
            self.begun = True


def _sample(value: Tensor) -> Tensor:
    """Some of the numbers of a value, the least and the largest among them."""
    flat = value.detach().reshape(-1)
    return torch.cat([flat[:: -(-len(flat) // SAMPLE)], flat.amin()[None], flat.amax()[None]])
