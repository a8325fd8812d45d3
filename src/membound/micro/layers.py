"""The layers that a graph comes to on a microcontroller: few kinds, each with what is fused into it.

Reshapes vanish, a linear layer is a convolution over all of its input, padding joins the convolution behind it, an
activation the layer before it, a max pool or an addition the convolution before it; the parts of a concatenation are
written where they belong. Nothing here knows of numbers.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from membound.errors import ModelError
from membound.micro.over_time import along_height
from membound.micro.ways_out import RECURRENT, SEQUENCES, WAYS_OUT
from membound.store.graph import Node
from membound.store.model import StoredModel
from membound.store.operators import attributes

Image = tuple[int, int, int]  # channels, height, width
Act = tuple[Any, ...]
MOST_DILATION = 255
BOUNDING = ("relu", "clip")  # activations that are no more than a lowest and a highest number


@dataclass
class Window:
    """A window over rows and columns. Of means: `valid` leaves padding out of the count, `divisor` replaces it."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, left, bottom, right
    dilation: tuple[int, int] = (1, 1)
    over: tuple[int, int] = (0, 0)
    valid: bool = False
    divisor: float | None = None

    def size(self, height: int, width: int) -> tuple[int, int]:
        sides = []
        for i, side in enumerate((height, width)):
            padded = side + self.pad[i] + self.pad[2 + i] + self.over[i]
            sides.append((padded - self.dilation[i] * (self.kernel[i] - 1) - 1) // self.stride[i] + 1)
        return sides[0], sides[1]


@dataclass
class Layer:
    """One operation: conv, sum, max, mean or act. A sum is offset + the sum of factor * input.

    `pool` and `plus` are what a convolution does with its rows: a max pool, or the addition of another input.
    """

    kind: str
    inputs: list[int]
    output: int
    name: str  # for people
    act: Act | None = None
    window: Window | None = None
    groups: int = 1
    weight: str | None = None
    bias: str | None = None
    factors: list[float] = field(default_factory=list)
    offset: float = 0.0
    pool: Window | None = None
    plus: "Layer | None" = None  # the sum that was fused
    between: int = 0  # the value before `pool` or `plus`
    first: int = 0  # channel of the output
    part: bool = False  # of a concatenation
    linear: bool = False  # a convolution over all of its input, for people


@dataclass
class Layers:
    """All of a network, in order; `images` has the shape of each value that is stored."""

    layers: list[Layer]
    images: dict[int, Image]
    output: int
    dropped: str = ""  # what the device leaves to its caller


def find_layers(model: StoredModel, origins: Mapping[int, str] | None = None) -> Layers:
    """The layers of a stored network; a ModelError says what a microcontroller cannot do, and what to do instead.

    `origins` says where nodes come from, by number, where that is known: what a person wrote, for messages.
    """
    found = _Reader(along_height(model), origins or {}).read()
    _fold_activations_(found)
    _fuse_(found)
    _hasten_(found)
    return found


def quantized_values(found: Layers) -> set[int]:
    """The values whose scale and zero point are needed: all that are stored, and what is between fused parts.

    A max pool leaves its input's as they are: that of its output holds for both. Numbers below 0 are of values that the
    graph does not have, before activations, whose scales follow from those behind.
    """
    values = {0}
    for layer in found.layers:
        values |= {layer.output} - {value for value in found.images if value < 0}
        if layer.plus is not None:
            values.add(layer.between)
    return values


class _Reader:
    """Node by node: a value is the stored value that it is a view of, with padding that is still to be applied."""

    def __init__(self, model: StoredModel, origins: Mapping[int, str]) -> None:
        self.model = model
        self.origins = origins
        self.images: dict[int, Image] = {}
        self.roots = {0: 0}
        self.pads: dict[int, tuple[int, int, int, int]] = {}
        self.layers: list[Layer] = []
        self._add_image(0)

    def read(self) -> Layers:
        graph = self.model.graph
        if len(graph.taken) > 1 or len(graph.given) > 1:
            raise ModelError(
                f"inputs: {len(graph.taken)}, outputs: {len(graph.given)}: the microcontroller's runtime has one of "
                "each: save a network that takes and gives one"
            )
        if any(each.whole for each in graph.inputs):
            raise ModelError(
                "this network takes whole numbers, as embeddings do: the microcontroller's runtime takes pixels or "
                "numbers: save the network behind the embedding"
            )
        if _recurs(graph.nodes):
            raise ModelError(RECURRENT)
        output, dropped = graph.output, ""
        for number, node in enumerate(graph.nodes, 1):
            if node.op == "softmax" and number == graph.output:
                output, dropped = node.inputs[0], "softmax"
                continue
            reader = READERS.get(node.op)
            if reader is None:
                self.refuse(number, node, f"has no {node.op}", WAYS_OUT.get(node.op, "train without it"))
            reader(self, number, node, attributes(node))
        output = self.roots[output]
        if not self.layers or output == 0:
            raise ModelError("this network computes nothing that is left for a microcontroller")
        return Layers(self.layers, self.images, output, dropped)

    def refuse(self, number: int, node: Node, what: str, instead: str) -> NoReturn:
        raise ModelError(f"{self.name(number, node)}: the microcontroller's runtime {what}: {instead}")

    def name(self, number: int, node: Node) -> str:
        """A node, and the layer that it belongs to or comes after: nodes have no names of their own."""
        if "w" not in node.tensors and (origin := self.origins.get(number)):
            return f"{node.op} of {origin}"
        if weights := [*node.tensors.values()]:
            return f"layer {_layer_of(weights[0])!r} ({node.op})"
        before = [name for each in self.model.graph.nodes[: number - 1] for name in each.tensors.values()]
        where = f", after layer {_layer_of(before[-1])!r}" if before else ""
        return f"node {number} ({node.op}{where})"

    def _add_image(self, value: int) -> Image:
        shape = self.model.shapes[value]
        if len(shape) not in (1, 3):
            what = f"value {value}" if value else "the input"
            if origin := self.origins.get(value):
                what = f"the output of {origin},"
            raise ModelError(
                f"{what} has the shape {list(shape)}: the microcontroller's runtime takes maps [channels, height, "
                f"width], such as images, or vectors [features]: {SEQUENCES if len(shape) == 2 else 'flatten it'}"
            )
        self.images[value] = (shape[0], 1, 1) if len(shape) == 1 else (shape[0], shape[1], shape[2])
        self.roots[value] = value
        return self.images[value]

    def plain(self, number: int, node: Node) -> list[int]:
        """The stored values that a node takes, none of them padded or flattened."""
        found = []
        for value in node.inputs:
            root, shape = self.roots[value], self.model.shapes[value]
            image = self.images[root]
            if value in self.pads:
                self.refuse(number, node, "pads only before a convolution", "use the pool's own padding")
            if shape not in (image, image[:1] if image[1:] == (1, 1) else image):
                self.refuse(
                    number, node, "takes a flattened map only in a linear layer", "flatten just before it"
                )
            found.append(root)
        return found

    def conv(self, number: int, node: Node, a: dict[str, Any]) -> None:
        value = node.inputs[0]
        extra = self.pads.get(value, (0, 0, 0, 0))
        root = self.roots[value]
        if max(a["dilation"]) > MOST_DILATION:
            self.refuse(number, node, f"dilates by at most {MOST_DILATION}", "use a smaller dilation")
        pad = tuple(own + more for own, more in zip(a["pad"], extra, strict=True))
        kernel = self.model.tensors[node.tensors["w"]].shape[2:]
        window = Window((kernel[0], kernel[1]), a["stride"], (pad[0], pad[1], pad[2], pad[3]), a["dilation"])
        self._product(number, node, root, window, a["groups"], a["act"])

    def linear(self, number: int, node: Node, a: dict[str, Any]) -> None:
        root = self.roots[node.inputs[0]]
        _, height, width = self.images[root]
        if len(self.model.shapes[node.inputs[0]]) != 1:
            self.refuse(number, node, "has linear layers of one vector only", "flatten the input first")
        self._product(number, node, root, Window((height, width), (height, width)), 1, a["act"])
        self.layers[-1].linear = True

    def _product(
        self, number: int, node: Node, root: int, window: Window, groups: int, act: Act | None
    ) -> None:
        self._add_image(number)
        weight = node.tensors["w"]
        self.layers.append(
            Layer(
                "conv", [root], number, weight.removesuffix(".weight"), act, window, groups, weight,
                node.tensors.get("b"),
            )
        )  # fmt: skip

    def pool(self, number: int, node: Node, a: dict[str, Any]) -> None:
        (root,) = self.plain(number, node)
        if a.get("dilation", (1, 1)) != (1, 1):
            self.refuse(number, node, "has no dilated pools", "use a stride instead")
        window = Window(a["kernel"], a["stride"], a["pad"], over=a.get("over", (0, 0)))
        if node.op == "avgpool":
            window.valid = a["count"] == "valid"
            window.divisor = None if isinstance(a["count"], str) else float(a["count"])
        self._add_image(number)
        kind = "max" if node.op == "maxpool" else "mean"
        self.layers.append(Layer(kind, [root], number, f"{node.op} {number}", window=window))

    def adaptive(self, number: int, node: Node, a: dict[str, Any]) -> None:
        (root,) = self.plain(number, node)
        _, height, width = self.images[root]
        rows, columns = a["size"]
        if height % rows or width % columns:
            self.refuse(
                number, node, f"pools {height} x {width} only to sizes that divide it", "choose such a size"
            )
        kernel = height // rows, width // columns
        self._add_image(number)
        kind = "max" if a["kind"] == "max" else "mean"
        self.layers.append(Layer(kind, [root], number, f"pool {number}", window=Window(kernel, kernel)))

    def mean(self, number: int, node: Node, a: dict[str, Any]) -> None:
        (root,) = self.plain(number, node)
        if sorted(a["axes"]) != [1, 2]:
            self.refuse(
                number, node, "has the mean over height and width only", "use adaptive pooling to 1 x 1"
            )
        _, height, width = self.images[root]
        self._add_image(number)
        window = Window((height, width), (height, width))
        self.layers.append(Layer("mean", [root], number, f"mean {number}", window=window))

    def act(self, number: int, node: Node, a: dict[str, Any]) -> None:
        (root,) = self.plain(number, node)
        self._add_image(number)
        self.layers.append(Layer("act", [root], number, f"{a['act'][0]} {number}", a["act"]))

    def binary(self, number: int, node: Node, a: dict[str, Any]) -> None:
        if "c" in node.tensors or (len(node.inputs) == 2 and node.op in ("mul", "div")):
            self.refuse(number, node, "adds, and scales by one number only", WAYS_OUT[node.op])
        if a["swap"] and node.op == "div":
            self.refuse(number, node, "divides by a number only", "leave the division out")
        roots, value = self.plain(number, node), a["value"]
        factors, offset = [1.0] * len(roots), 0.0
        if len(roots) == 2:
            if self.images[roots[0]] != self.images[roots[1]]:
                self.refuse(number, node, "adds values of one shape only", "make the shapes equal")
            factors[1] = 1.0 if node.op == "add" else -1.0
        elif node.op == "add":
            offset = value
        elif node.op == "sub":
            factors, offset = ([-1.0], value) if a["swap"] else ([1.0], -value)
        else:
            factors = [value if node.op == "mul" else 1.0 / value]
        image, act, name = self._add_image(number), a["act"], f"{node.op} {number}"
        if act is None or act[0] in BOUNDING:
            self.layers.append(Layer("sum", roots, number, name, act, factors=factors, offset=offset))
            return
        self.images[-number] = image  # a value of its own between the two
        self.layers.append(Layer("sum", roots, -number, name, factors=factors, offset=offset))
        self.layers.append(Layer("act", [-number], number, f"{act[0]} {number}", act))

    def concat(self, number: int, node: Node, a: dict[str, Any]) -> None:
        if a["axis"] != 0:
            self.refuse(number, node, "joins channels only", "concatenate along axis 1 of the batch")
        roots, first = self.plain(number, node), 0
        self._add_image(number)
        for root in roots:
            part = Layer("sum", [root], number, f"concat {number}", factors=[1.0], first=first, part=True)
            self.layers.append(part)
            first += self.images[root][0]

    def reshape(self, number: int, node: Node, a: dict[str, Any]) -> None:
        value = node.inputs[0]
        root = self.roots[value]
        image, shape = self.images[root], tuple(a["shape"])
        if shape == self.model.shapes[value]:  # padding stays to be applied
            self.roots[number] = root
            self.pads |= {number: self.pads[value]} if value in self.pads else {}
            return
        flat = (image[0] * image[1] * image[2],)
        allowed = {image, flat} | ({(*flat, 1, 1)} if image[1:] == (1, 1) else set())
        if value in self.pads or shape not in allowed:
            self.refuse(number, node, "reshapes a map only to a vector", WAYS_OUT[node.op])
        self.roots[number] = root

    def pad(self, number: int, node: Node, a: dict[str, Any]) -> None:
        value, pad = node.inputs[0], a["pad"]
        if len(pad) != 3 or pad[0] != (0, 0) or a["value"] != 0:
            self.refuse(number, node, "pads height and width with 0 only", "let the convolution pad")
        before = self.pads.get(value, (0, 0, 0, 0))
        more = (pad[1][0], pad[2][0], pad[1][1], pad[2][1])
        t, left, b, r = (own + new for own, new in zip(before, more, strict=True))
        self.roots[number] = self.roots[value]
        self.pads[number] = (t, left, b, r)


READERS: dict[str, Callable[[_Reader, int, Node, dict[str, Any]], None]] = {
    "conv": _Reader.conv,
    "linear": _Reader.linear,
    "maxpool": _Reader.pool,
    "avgpool": _Reader.pool,
    "adaptive": _Reader.adaptive,
    "mean": _Reader.mean,
    "act": _Reader.act,
    **dict.fromkeys(("add", "sub", "mul", "div"), _Reader.binary),
    "concat": _Reader.concat,
    "reshape": _Reader.reshape,
    "pad": _Reader.pad,
}


def _layer_of(tensor: str) -> str:
    """The layer that a tensor is of.

    >>> _layer_of("features.0.weight"), _layer_of("scale")
    ('features.0', 'scale')
    """
    return tensor.rpartition(".")[0] or tensor


def _recurs(nodes: Sequence[Node]) -> bool:
    """Whether steps of time are unrolled: a weight that several linear layers share, and gates."""
    shared = Counter(node.tensors["w"] for node in nodes if node.op == "linear")
    gated = any(node.op == "mul" and len(node.inputs) == 2 for node in nodes)
    return gated and max(shared.values(), default=0) > 1


def _uses(found: Layers) -> Counter[int]:
    uses = Counter(value for layer in found.layers for value in layer.inputs)
    uses[found.output] += 1  # the caller's
    return uses


def _writers(found: Layers, value: int) -> list[Layer]:
    return [layer for layer in found.layers if layer.output == value]


def _fold_activations_(found: Layers) -> None:
    """An activation joins the layer before it; one that only bounds may pass through a max pool on its way."""
    for layer in [layer for layer in found.layers if layer.kind == "act"]:
        chain, value = [], layer.inputs[0]
        act = layer.act
        assert act is not None
        while True:
            writers = _writers(found, value)
            if len(writers) != 1 or _uses(found)[value] != 1:
                break
            producer = writers[0]
            chain.append(producer)
            if producer.kind == "max" and act[0] in BOUNDING:
                value = producer.inputs[0]
                continue
            bounding = act[0] in BOUNDING
            if producer.act is None and (producer.kind == "conv" or (bounding and producer.kind == "sum")):
                producer.act = act
                chain[0].output = layer.output
                found.layers.remove(layer)
            break


def _fuse_(found: Layers) -> None:
    """Sums, max pools and parts of concatenations join the layer before them, which then never stores its own rows."""
    for layer in list(found.layers):
        if layer.kind not in ("sum", "max"):
            continue
        uses, depths = _uses(found), _depths(found)
        # The longer branch first: what the shorter one gives is there before, and has to be stored anyway.
        for value in sorted(layer.inputs, key=lambda value: -depths[value]):
            writers = _writers(found, value)
            if len(writers) != 1 or uses[value] != 1:
                continue
            producer = writers[0]
            if _join_(found, producer, layer, value):
                break


def _depths(found: Layers) -> dict[int, int]:
    """How many layers are between the input and each value, at most."""
    depths = {0: 0}
    for layer in found.layers:
        depth = 1 + max(depths[value] for value in layer.inputs)
        depths[layer.output] = max(depths.get(layer.output, 0), depth)
    return depths


def _hasten_(found: Layers) -> None:
    """A layer whose output is only added to that of another comes as soon as it can.

    The runtime prefers later layers: so the longer branch takes a row, and the sum, before the next of the shorter.
    """
    for layer in list(found.layers):
        readers = [each for each in found.layers if layer.output in each.inputs]
        if layer.part or len(_writers(found, layer.output)) != 1 or layer.output == found.output:
            continue
        if readers and all(each.inputs[0] != layer.output for each in readers):
            found.layers.remove(layer)
            before = [n for n, each in enumerate(found.layers) if each.output in layer.inputs]
            found.layers.insert(max(before, default=-1) + 1, layer)


def _join_(found: Layers, producer: Layer, layer: Layer, value: int) -> bool:
    plain = producer.kind == "conv" and producer.pool is None and producer.plus is None
    if layer.kind == "max" and plain:
        producer.pool, producer.between = layer.window, value
    elif layer.kind == "sum" and len(layer.inputs) == 2 and plain and len(set(layer.inputs)) == 2:
        other = 1 - layer.inputs.index(value)
        layer.factors = [layer.factors[1 - other], layer.factors[other]]
        producer.inputs = [*producer.inputs, layer.inputs[other]]
        producer.plus, producer.between = layer, value
        found.layers.remove(producer)
        found.layers.insert(found.layers.index(layer), producer)
    elif layer.part and producer.kind in ("conv", "sum", "mean") and not producer.part:
        producer.first = layer.first
    else:
        return False
    producer.output = layer.output
    found.layers.remove(layer)
    return True
