"""Which values of a torch network a microcontroller rounds to int8, so that training can round them, too.

The planner knows them as values of the graph, torch as results of functions. They are found by what they are: a network
with weights that are all different is run both ways, and a value is the first result that has the same numbers.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from membound.micro.arithmetic import Quantization
from membound.micro.integers import share_scales
from membound.micro.layers import Layers, find_layers, quantized_values
from membound.run.calibration import choose_range, exact_input, net_until, whole_range
from membound.search.measure import FileBytes
from membound.train.activations import INPUT, Calls, Points, Samples

IMAGES = 2  # that values are compared on
CLOSE = 1e-3  # of the largest number of a value: rounding differs by much less, other values by much more
PERTURBED = 0.1


def find_points(files: FileBytes, network: nn.Module) -> Points | None:
    """The points of a network; None where training calls other functions than testing, so that numbers differ."""
    model = _perturbed(network)
    stored = replace(files, values="f32", types={}).stored(model.state_dict())
    x = torch.randn(IMAGES, *stored.shapes[0], generator=torch.Generator().manual_seed(0))
    found = find_layers(stored)
    results, tested = _results(model.eval(), x)
    _, trained = _results(model.train(), x)
    if tested != trained:
        return None
    calls: dict[int, int] = {}
    for value in sorted(quantized_values(found)):
        if value == 0:
            if exact_input(stored) is None:
                calls[0] = INPUT
            continue
        numbers = net_until(stored, value)(x.numpy())
        if (
            x.ndim == 3 < numbers.ndim
        ):  # a sequence, which the graph has as an image of height 1, and torch has not
            numbers = numbers[:, :, 0]
        call = _first_alike(results, torch.from_numpy(numbers), max(calls.values(), default=INPUT) + 1)
        if call is None:
            return None
        calls[value] = call
    return Points(tuple(calls.values()), _Settle(found, calls, exact_input(stored)))


def _perturbed(network: nn.Module) -> nn.Module:
    """A copy without zeros: layers that start at zero would be alike."""
    model = copy.deepcopy(network).cpu().float()
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(PERTURBED * torch.randn(weight.shape, generator=random))
    return model


@torch.no_grad()
def _results(model: nn.Module, x: Tensor) -> tuple[list[Tensor], list[str]]:
    """What torch functions give in a forward pass, and their names."""
    results: list[Tensor] = []

    def keep(call: int, value: Tensor) -> Tensor:
        results.append(value.clone())
        return value

    with Calls(keep) as calls:
        model(x)
    return results, calls.names


def _first_alike(results: list[Tensor], numbers: Tensor, begin: int) -> int | None:
    """The first result from `begin` on that has these numbers, in this shape."""
    for call in range(begin, len(results)):
        value = results[call]
        if value.shape == numbers.shape and bool(
            ((value - numbers).abs() <= CLOSE * numbers.abs().max()).all()
        ):
            return call
    return None


@dataclass(frozen=True)
class _Settle:
    """Ranges as calibration chooses them, shared as the planner shares them."""

    found: Layers
    calls: Mapping[int, int]
    exact: Quantization | None  # how the input is rounded, where that is known

    def __call__(self, samples: Samples) -> dict[int, tuple[float, int]]:
        scales = {} if self.exact is None else {0: self.exact}
        for value, call in self.calls.items():
            choose = whole_range if value == self.found.output else choose_range
            scales[value] = choose(samples[call])
        shared = share_scales(self.found, scales)
        return {call: (shared[value].scale, shared[value].zero) for value, call in self.calls.items()}
