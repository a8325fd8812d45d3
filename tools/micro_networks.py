"""Networks for the microcontroller's runtime: random ones, and small ones of known architectures."""

import numpy as np

from membound.run.calibration import calibrate_activations
from membound.run.micro_net import MicroNet
from membound.store.file import assemble
from membound.store.formats import decode, encode
from membound.store.graph import Graph, Node
from membound.store.model import Model, StoredModel
from membound.store.operators import OPERATORS, attributes

FORMATS = ("dense", "bitmask", "indexed", "csr", "rice")
TYPES = ("f32", "f16", "p1", "p2", "p3", "p4", "p5", "p8")
ACTS = (
    None, None, ("relu",), ("relu",), ("clip", 0.0, 6.0), ("clip", -1.0, 1.0), ("leaky", 0.1), ("silu",), ("gelu",),
    ("tanh",), ("sigmoid",), ("hardswish",), ("hardsigmoid",), ("elu", 1.0), ("gelu_tanh",),
    ("mish",), ("softplus",),
)  # fmt: skip


class Builder:
    """A graph that grows: each method adds a node and gives the number of its value."""

    def __init__(self, shape: tuple[int, ...], seed: int, density: float = 0.5) -> None:
        self.draw = np.random.default_rng(seed)
        self.density = density
        self.shapes, self.nodes, self.tensors = [shape], [], {}

    def add(
        self, op: str, inputs: tuple[int, ...], tensors: dict[str, np.ndarray] | None = None, **given
    ) -> int:
        names = {}
        for role, array in (tensors or {}).items():
            names[role] = f"n{len(self.nodes)}.{role}"
            self.tensors[names[role]] = array.astype(np.float32)
        node = Node(op, inputs, {key: value for key, value in given.items() if value is not None}, names)
        shapes = {role: self.tensors[name].shape for role, name in names.items()}
        self.shapes.append(OPERATORS[op].shape([self.shapes[v] for v in inputs], attributes(node), shapes))
        self.nodes.append(node)
        return len(self.nodes)

    def weight(self, *shape: int) -> np.ndarray:
        fan = max(1, int(np.prod(shape[1:])))
        w = self.draw.normal(0, 1 / np.sqrt(max(1, fan * self.density)), shape)
        return w * (self.draw.random(shape) < self.density)

    def conv(self, value, out, kernel=3, stride=1, pad=None, groups=1, act=None, dilation=(1, 1)) -> int:
        kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
        sides = (kh // 2, kw // 2, kh // 2, kw // 2) if pad is None else pad
        strides = (stride, stride) if isinstance(stride, int) else stride
        tensors = {
            "w": self.weight(out, self.shapes[value][0] // groups, kh, kw),
            "b": self.draw.normal(0, 0.2, out),
        }
        return self.add(
            "conv", (value,), tensors, stride=strides, pad=sides, groups=groups, act=act, dilation=dilation
        )

    def flat_linear(self, value: int, out: int, act=None) -> int:
        size = int(np.prod(self.shapes[value]))
        if len(self.shapes[value]) != 1:
            value = self.add("reshape", (value,), shape=(size,))
        return self.add(
            "linear", (value,), {"w": self.weight(out, size), "b": self.draw.normal(0, 0.2, out)}, act=act
        )

    def store(self, kind: str | None = None, output: int | None = None, preprocess=None) -> StoredModel:
        """As a file has it, each weight in some format and type of values."""
        tensors = {}
        for name, array in self.tensors.items():
            chosen = kind or str(self.draw.choice(TYPES))
            scales = None
            if name.endswith(".b"):
                tensors[name] = encode(array, "dense", "f32")
                continue
            if chosen.startswith("p") and self.draw.random() < 0.5:
                scales = self.draw.uniform(0.2, 2, len(array)).astype(np.float32) * self.draw.choice(
                    [-1, 1], len(array)
                )
            tensors[name] = encode(array, str(self.draw.choice(FORMATS)), chosen, scales)
        graph = Graph(self.shapes[0], tuple(self.nodes), output or len(self.nodes))
        model = Model(graph, {name: decode(each) for name, each in tensors.items()}, preprocess=preprocess)
        return assemble(model, tensors)[1]


def random_network(seed: int) -> StoredModel:
    """A few operators of any kind on a small image."""
    draw = np.random.default_rng(seed)
    shape = (int(draw.integers(1, 5)), int(draw.integers(4, 13)), int(draw.integers(4, 13)))
    net = Builder(shape, seed, float(draw.choice([0.1, 0.4, 1.0])))
    value = 0
    for _ in range(int(draw.integers(1, 7))):
        value = _grow(net, draw, value)
    if draw.random() < 0.6:
        value = net.flat_linear(value, int(draw.integers(1, 12)), ACTS[draw.integers(len(ACTS))])
        if draw.random() < 0.3:
            value = net.add("softmax", (value,), axis=0)
    pixels = {"mean": [float(m) for m in draw.integers(0, 255, shape[0])], "std": [64.0] * shape[0]}
    return net.store(output=value, preprocess=pixels)


def _grow(net: Builder, draw, value: int) -> int:
    channels, height, width = net.shapes[value]
    act = ACTS[draw.integers(len(ACTS))]
    choice = draw.integers(11)
    if choice <= 3 or not net.nodes:
        groups = channels if choice == 3 else 1
        kernel = (min(int(draw.integers(1, 5)), height), min(int(draw.integers(1, 5)), width))
        dilation = (2, 2) if choice == 2 and min(height, width) > 8 else (1, 1)
        pad = tuple(int(p) for p in draw.integers(0, 3, 4))
        out = channels * int(draw.integers(1, 3)) if groups > 1 else int(draw.integers(1, 9))
        stride = (int(draw.integers(1, 4)), int(draw.integers(1, 4)))
        return net.conv(value, out, kernel, stride, pad, groups, act, dilation)
    if choice in (4, 5) and min(height, width) >= 3:
        kernel, stride = (
            (int(draw.integers(1, 4)), int(draw.integers(1, 4))),
            tuple(int(s) for s in draw.integers(1, 4, 2)),
        )
        pad = tuple(int(draw.integers(0, k)) for k in kernel)
        kind = "maxpool" if choice == 4 else "avgpool"
        more = {} if choice == 4 else {"count": [None, "valid", 3.0][draw.integers(3)]}
        return net.add(kind, (value,), kernel=kernel, stride=stride, pad=(*pad, *pad), **more)
    if choice == 6:
        return net.add("act", (value,), act=act or ("relu",))
    same = [v for v, shape in enumerate(net.shapes) if shape == (channels, height, width) and v != value]
    if choice == 7 and same:
        return net.add(("add", "sub")[draw.integers(2)], (value, int(draw.choice(same))), act=act)
    alike = [v for v, s in enumerate(net.shapes) if len(s) == 3 and s[1:] == (height, width)]
    if choice == 8:
        return net.add("concat", (value, int(draw.choice(alike))), axis=0)
    if choice == 9:
        pads = ((0, 0), (1, int(draw.integers(0, 2))), (int(draw.integers(0, 2)), 1))
        return net.conv(net.add("pad", (value,), pad=pads), 3, 1, pad=(0, 0, 0, 0), act=act)
    if choice == 10:
        return net.add(("add", "mul")[draw.integers(2)], (value,), value=float(draw.normal()), act=act)
    return net.conv(value, 4, 1, act=act)


def random_residual(seed: int) -> StoredModel:
    """Blocks of convolutions beside shortcuts, whose rows meet in sums."""
    draw = np.random.default_rng(seed)
    shape = (int(draw.integers(1, 4)), int(draw.integers(6, 17)), int(draw.integers(6, 14)))
    net = Builder(shape, seed, float(draw.choice([0.2, 0.6])))
    v = net.conv(0, int(draw.integers(2, 6)), int(draw.choice([1, 3])), act=ACTS[draw.integers(len(ACTS))])
    for _ in range(int(draw.integers(1, 5))):
        channels, height, width = net.shapes[v]
        stride = int(draw.integers(1, 3)) if min(height, width) > 3 else 1
        out = channels if stride == 1 and draw.random() < 0.7 else int(draw.integers(2, 6))
        inner = net.conv(v, out, int(draw.choice([1, 3, 5])), stride, act=ACTS[draw.integers(len(ACTS))])
        for _ in range(int(draw.integers(0, 3))):
            inner = net.conv(inner, out, int(draw.choice([1, 3])), act=ACTS[draw.integers(3)])
        short = v if out == channels and stride == 1 else net.conv(v, out, 1, stride)
        if draw.random() < 0.2:
            short = net.add("act", (short,), act=ACTS[draw.integers(2, len(ACTS))])
        both = (inner, short) if draw.random() < 0.5 else (short, inner)
        v = net.add(("add", "sub")[draw.integers(2)], both, act=ACTS[draw.integers(len(ACTS))])
    if draw.random() < 0.7:
        net.flat_linear(net.add("mean", (v,), axes=(1, 2)), 3)
    pixels = {"mean": [float(m) for m in draw.integers(0, 255, shape[0])], "std": [64.0] * shape[0]}
    return net.store(preprocess=pixels)


def lenet() -> StoredModel:
    net = Builder((1, 28, 28), 1, 0.1)
    v = net.add("maxpool", (net.conv(0, 8, 5, pad=(0, 0, 0, 0)),), kernel=(2, 2))
    v = net.add("maxpool", (net.conv(v, 16, 5, pad=(0, 0, 0, 0)),), kernel=(2, 2))
    net.flat_linear(net.flat_linear(v, 32, ("relu",)), 10)
    return net.store("p4", preprocess={"scale": 0.00390625})


def resnet8() -> StoredModel:
    net = Builder((3, 32, 32), 2, 0.15)
    v = net.conv(0, 16, act=("relu",))
    for width, stride in ((16, 1), (32, 2), (64, 2)):
        inner = net.conv(net.conv(v, width, 3, stride, act=("relu",)), width)
        short = v if stride == 1 else net.conv(v, width, 1, stride)
        v = net.add("add", (inner, short), act=("relu",))
    net.flat_linear(net.add("adaptive", (v,), kind="avg", size=(1, 1)), 10)
    return net.store("p4", preprocess={"mean": [125.3, 123.0, 113.9], "std": [63.0, 62.1, 66.7]})


def mobilenet(side: int = 32) -> StoredModel:
    """MobileNet of a quarter of the width."""
    net = Builder((3, side, side), 3, 0.5)
    relu6 = ("clip", 0.0, 6.0)
    v = net.conv(0, 8, 3, 2, act=relu6)
    for out, stride in ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1)):
        v = net.conv(v, net.shapes[v][0], 3, stride, groups=net.shapes[v][0], act=relu6)
        v = net.conv(v, out, 1, act=relu6)
    net.flat_linear(net.add("mean", (v,), axes=(1, 2)), 2)
    return net.store("p8", preprocess={"mean": [127.0] * 3, "scale": 0.0078125})


def dscnn(density: float = 0.5) -> StoredModel:
    """Keyword spotting: a picture of sound, not square."""
    net = Builder((1, 49, 10), 4, density)
    v = net.conv(0, 24, (10, 4), (2, 2), (4, 1, 5, 1), act=("relu",))
    for _ in range(2):
        v = net.conv(net.conv(v, 24, 3, groups=24, act=("relu",)), 24, 1, act=("relu",))
    net.flat_linear(net.add("adaptive", (v,), kind="avg", size=(1, 1)), 12)
    return net.store("p8")


def concat_residual() -> StoredModel:
    """Branches that are joined, added, pooled with overlap, and activations that are tables."""
    net = Builder((3, 16, 16), 5, 0.4)
    v = net.conv(0, 8, act=("silu",))
    pooled = net.add("maxpool", (v,), kernel=(3, 3), stride=(1, 1), pad=(1, 1, 1, 1))
    joined = net.add("concat", (net.conv(v, 4, 1, act=("tanh",)), v, pooled), axis=0)
    w = net.add("add", (net.conv(joined, 20, act=("hardswish",)), joined), act=("relu",))
    w = net.add("avgpool", (w,), kernel=(3, 3), stride=(2, 2), over=(1, 1))
    w = net.add("maxpool", (net.conv(w, 8),), kernel=(3, 3), stride=(2, 2), pad=(0, 0, 1, 1))
    net.flat_linear(net.add("act", (w,), act=("relu",)), 5)
    return net.store("p5", preprocess={"mean": [100.0, 120.0, 140.0], "scale": 0.02})


def cifar_quick() -> StoredModel:
    net = Builder((3, 32, 32), 6, 0.1)
    v = net.add("maxpool", (net.conv(0, 16, 5),), kernel=(3, 3), stride=(2, 2), pad=(0, 0, 1, 1))
    v = net.conv(net.add("act", (v,), act=("relu",)), 16, 5, act=("relu",))
    v = net.add("avgpool", (v,), kernel=(3, 3), stride=(2, 2), over=(1, 1))
    v = net.conv(v, 24, 5, act=("relu",))
    v = net.add("avgpool", (v,), kernel=(3, 3), stride=(2, 2), over=(1, 1))
    net.flat_linear(v, 10)
    return net.store("p4", preprocess={"mean": [125.3, 123.0, 113.9]})


NETWORKS = {
    "lenet": lenet,
    "resnet8": resnet8,
    "mobilenet": mobilenet,
    "dscnn": dscnn,
    "concat": concat_residual,
    "quick": cifar_quick,
}


def some_images(model: StoredModel, count: int = 3, seed: int = 0) -> np.ndarray:
    """Bytes, smooth enough to be pictures of something."""
    draw = np.random.default_rng(seed)
    noise = draw.normal(0, 1, (count, *model.shapes[0]))
    for axis in (-1, -2)[: noise.ndim - 2]:
        noise = np.cumsum(noise, axis) / 3
    return np.clip(128 + 60 * noise, 0, 255).astype(np.uint8)


def prepared(model: StoredModel, images: np.ndarray) -> np.ndarray:
    """Float32 as the network takes it."""
    said = model.preprocess or {}
    shape = (-1, 1, 1)
    mean = np.reshape(said.get("mean", [0.0]), shape)
    std = np.reshape(said.get("std", [1.0]), shape)
    scale = said.get("scale", 1.0 if said else 1 / 64)
    return ((images - mean) * scale / std).astype(np.float32)


def micro(model: StoredModel, maps: str = "auto") -> MicroNet:
    """Calibrated on some images."""
    scales = calibrate_activations(model, prepared(model, some_images(model, 8, seed=1)))
    return MicroNet(model, activations=scales, maps=maps)
