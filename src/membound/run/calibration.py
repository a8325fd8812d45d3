"""How the values of a network are rounded to int8: scales and zero points, chosen on real inputs."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError
from membound.micro.arithmetic import Quantization, quantization
from membound.micro.layers import find_layers, quantized_values
from membound.run.net import Net
from membound.store.file import assemble
from membound.store.graph import Shape
from membound.store.model import StoredModel

INPUTS = 512  # to calibrate on: more do not help
FEW = 20  # with fewer, ranges depend on which they are
BATCH = 32
SAMPLE = 1 << 18  # numbers of a value that the range is chosen on
SHARES = np.linspace(0.3, 1, 36)  # of the whole range: what is beyond is clipped

Float32 = npt.NDArray[np.float32]


def calibrate_activations(model: StoredModel, inputs: Float32) -> dict[int, tuple[float, int]]:
    """A scale and a zero point for each value that a microcontroller stores, as `StoredModel.activations` has them.

    `inputs` are prepared as the network takes them. Each range is the one of least squared error on them; the network's
    output keeps all of its range.
    """
    found = find_layers(model)  # which refuses what has no integers, before anything is said of images
    _check_inputs(model.shapes[0], inputs)
    chosen = {}
    for value in sorted(quantized_values(found)):
        if value == 0:
            made = exact_input(model) or choose_range(_sample(inputs))
        else:
            numbers = _compute(model, value, inputs)
            if not np.isfinite(numbers).all():
                raise ModelError(
                    f"images= to calibrate on make value {value} of the network infinite or NaN: prepare them as in "
                    "training",
                    about="images",
                )
            made = whole_range(numbers) if value == found.output else choose_range(_sample(numbers))
        chosen[value] = (float(np.float32(made.scale)), made.zero)
    return chosen


def _check_inputs(shape: Shape, inputs: Float32) -> None:
    if inputs.shape[1:] != shape or not len(inputs):
        wanted = ", ".join(map(str, ("batch", *shape)))
        raise ModelError(
            f"images= to calibrate on have the shape {inputs.shape}: this network takes ({wanted}), at least one; "
            "some hundred training examples are best",
            about="images",
        )
    if (inputs == inputs[:1]).all() and (len(inputs) > 1 or inputs.min() == inputs.max()):
        raise ModelError(
            "images= to calibrate on are all the same example: give some hundred different ones, as in training",
            about="images",
        )
    wrong = len(inputs) - int(np.isfinite(inputs).all(axis=tuple(range(1, inputs.ndim))).sum())
    if wrong:
        raise ModelError(
            f"images= to calibrate on: {wrong:,} of {len(inputs):,} hold values that are not finite (NaN or "
            "infinite): leave them out",
            about="images",
        )


def say_few(inputs: Float32) -> str | None:
    """What to know of a calibration on next to nothing."""
    count = len(inputs)
    if count >= FEW:
        return None
    return f"calibrated on {count} example{'s' if count > 1 else ''}: some hundred are better"


def with_activations(
    model: StoredModel, activations: dict[int, tuple[float, int]]
) -> list[bytes | memoryview]:
    """The parts of the same model file that says how its values are rounded."""
    dense = replace(model.decode(), activations=activations)
    return assemble(dense, model.tensors)[0]


def exact_input(model: StoredModel) -> Quantization | None:
    """Where all channels of pixels are prepared alike, with a whole mean, the input is the pixels themselves."""
    said = model.preprocess
    if not said or said.get("takes", "uint8") != "uint8" or said.get("mean") == "image":
        return None
    means, stds = set(said.get("mean", [0.0])), set(said.get("std", [1.0]))
    scale, mean = float(said.get("scale", 1.0)), means.pop()
    if means or len(stds) > 1 or scale < 0 or mean != int(mean) or not 0 <= mean <= 255:
        return None
    return Quantization(scale / stds.pop(), int(mean) - 128)


def _compute(model: StoredModel, value: int, inputs: Float32) -> Float32:
    """Numbers of a value inside the network."""
    net = net_until(model, value)
    batches = [_sample(net(inputs[begin : begin + BATCH])) for begin in range(0, len(inputs), BATCH)]
    return np.concatenate(batches)


def net_until(model: StoredModel, value: int) -> Net:
    """The network that ends at a value inside of it, in float32."""
    graph = replace(model.graph, nodes=model.graph.nodes[:value], output=value)
    return Net(replace(model, graph=graph, shapes=model.shapes[: value + 1]), max_batch=BATCH)


def _sample(numbers: Float32) -> Float32:
    """Some of them, the least and the largest among them."""
    flat = numbers.reshape(-1)
    step = -(-len(flat) // (SAMPLE // 4))
    ends = np.array([flat.min(), flat.max()], np.float32)
    return np.concatenate([flat[::step], ends])


def whole_range(numbers: Float32) -> Quantization:
    """From the least to the largest."""
    return quantization(float(numbers.min()), float(numbers.max()))


def choose_range(numbers: Float32) -> Quantization:
    """The range of least squared error, where what is beyond is clipped."""
    low, high = float(numbers.min()), float(numbers.max())
    x = numbers.astype(np.float64)
    best, least = quantization(low, high), np.inf
    for share in SHARES:
        made = quantization(low * share, high * share)
        back = (made.round(x).astype(np.float64) - made.zero) * made.scale
        error = float(((back - x) ** 2).sum())
        if error < least:
            best, least = made, error
    return best
