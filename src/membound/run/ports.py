"""What goes into a network and what comes out: several arrays, with names or without."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.errors import ModelError
from membound.store.graph import Graph, Shape

Float32 = npt.NDArray[np.float32]
Outputs = Float32 | tuple[Float32, ...] | dict[str, Float32]
CHAIN = "net(net.preprocess(net.read(frame)))"  # from any picture to an output
MOST = 2**24  # whole numbers up to here are exact in float32, which the runtime computes in


@dataclass(frozen=True)
class Port:
    """An input or an output: its name, its shape without the batch, and whether it takes whole numbers."""

    name: str
    shape: Shape
    whole: bool = False

    def __str__(self) -> str:
        kind = "whole numbers" if self.whole else "float32"
        return f"{self.name}: {kind} ({', '.join(map(str, ('batch', *self.shape)))})"


def inputs_of(graph: Graph, shapes: Sequence[Shape]) -> tuple[Port, ...]:
    """The inputs in order; one that has no name is called input, further ones input_2 and so on."""
    found = []
    for number, value in enumerate(graph.taken):
        said = graph.inputs[number] if graph.inputs else None
        name = said.name if said else "input" if number == 0 else f"input_{number + 1}"
        found.append(Port(name, shapes[value], said is not None and said.whole))
    return tuple(found)


def outputs_of(graph: Graph, shapes: Sequence[Shape]) -> tuple[Port, ...]:
    """The outputs in order; one that has no name is called output, further ones output_2 and so on."""
    names = [output.name for output in graph.outputs] or [""]
    found = []
    for number, (name, value) in enumerate(zip(names, graph.given, strict=True)):
        found.append(Port(name or ("output" if number == 0 else f"output_{number + 1}"), shapes[value]))
    return tuple(found)


def take(
    ports: Sequence[Port],
    given: Sequence[Any],
    named: Mapping[str, Any],
    advise: Callable[[Shape], str],
) -> list[Float32]:
    """The arrays of a call in the order of the inputs, checked, as the core takes them.

    `advise` says what to do about an only input of a wrong shape.

    A small network runs in microseconds: what most calls do not need is not done for them.
    """
    if named or len(given) != len(ports):
        given = _in_order(ports, given, named)
    if len(ports) == 1:
        return [_checked(ports[0], given[0], advise)]
    found = [_checked(port, each) for port, each in zip(ports, given, strict=True)]
    if len({len(array) for array in found}) > 1:
        sizes = ", ".join(f"{port.name} {len(array)}" for port, array in zip(ports, found, strict=True))
        raise ModelError(f"the inputs have batches of different sizes: {sizes}")
    return found


def _in_order(ports: Sequence[Port], given: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """Arrays by position and by name, each input once."""
    names = [port.name for port in ports]
    arrays = dict(zip(names, given, strict=False))
    if len(given) > len(ports) or arrays.keys() & named.keys() or arrays.keys() | named.keys() != set(names):
        wanted = "; ".join(map(str, ports))
        raise ModelError(f"the network takes {len(ports)} {_plural(ports)}, by position or by name: {wanted}")
    arrays |= named
    return [arrays[name] for name in names]


def _plural(ports: Sequence[Port]) -> str:
    return "input" if len(ports) == 1 else "inputs"


def _checked(port: Port, given: Any, advise: Callable[[Shape], str] | None = None) -> Float32:
    array, alone = np.asarray(given), advise is not None
    if port.whole:
        array = _whole(_name(port, alone), array)
    elif array.dtype != np.float32:
        picture = f"; for a picture: {CHAIN}" if len(port.shape) == 3 and port.shape[0] in (1, 3) else ""
        raise ModelError(
            f"{_name(port, alone)} has the type {array.dtype}: net(x) takes preprocessed float32, as "
            f"net(net.preprocess(x)) gives it{picture}"
        )
    if array.ndim != len(port.shape) + 1 or array.shape[1:] != port.shape:
        wanted = ", ".join(map(str, ("batch", *port.shape)))
        last = (
            len(port.shape) == 3 and array.ndim == 4 and array.shape[1:] == (*port.shape[1:], port.shape[0])
        )
        advice = "" if advise is None else advise(array.shape)
        hint = "; this is NHWC: call x.transpose(0, 3, 1, 2)" if last else advice
        raise ModelError(
            f"{_name(port, alone)} has the shape {array.shape}: this network takes ({wanted}){hint}"
        )
    return np.ascontiguousarray(array)


def _name(port: Port, alone: bool) -> str:
    return "the input" if alone else f"input {port.name!r}"


def _whole(what: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind not in "iub":
        raise ModelError(f"{what} has the type {array.dtype}: it takes whole numbers, such as int64")
    if array.size and (int(array.max()) > MOST or int(array.min()) < -MOST):
        raise ModelError(f"{what} has numbers beyond {MOST:,}, which float32 does not hold exactly")
    return array.astype(np.float32)


def random_inputs(ports: Sequence[Port], batch: int, chance: np.random.Generator) -> list[npt.NDArray[Any]]:
    """An array for each input: normal numbers; of whole ones 0 and 1, which embeddings and masks both allow."""
    shapes = [(batch, *port.shape) for port in ports]
    return [
        chance.integers(0, 2, shape) if port.whole else chance.standard_normal(shape, dtype=np.float32)
        for port, shape in zip(ports, shapes, strict=True)
    ]


def give(graph: Graph, arrays: Sequence[Float32]) -> Outputs:
    """What the network gave in torch: an array, a tuple of them, or a dict."""
    if not graph.outputs:
        return arrays[0]
    if all(output.name for output in graph.outputs):
        return {output.name: array for output, array in zip(graph.outputs, arrays, strict=True)}
    return tuple(arrays)
