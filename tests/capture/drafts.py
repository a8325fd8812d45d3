"""Random drafts of networks: sparse, padded, branching, of every operator that channels pass through."""

import numpy as np

from membound.capture.draft import Draft
from membound.errors import ModelError
from membound.store.graph import Node
from membound.store.shapes import infer_shapes

ACTS = [
    ["relu"],
    ["leaky", 0.1],
    ["clip", 0.0, 6.0],
    ["clip", -0.5, 0.5],
    ["silu"],
    ["sigmoid"],
    ["tanh"],
    ["hardswish"],
]


class Random:
    """A draft that grows by random nodes, from a generator of random numbers."""

    def __init__(self, seed: int, density: float) -> None:
        self.numbers = np.random.default_rng(seed)
        self.density = density
        channels, size = self.integer(1, 4), self.integer(5, 9)
        self.draft = Draft((channels, size, self.integer(5, 9)))
        self.last = 0

    def integer(self, low: int, high: int) -> int:
        return int(self.numbers.integers(low, high + 1))

    def chance(self, probability: float) -> bool:
        return bool(self.numbers.random() < probability)

    def pick(self, choices):
        return choices[self.integer(0, len(choices) - 1)]

    def weights(self, *shape: int) -> np.ndarray:
        array = self.numbers.normal(size=shape) / np.sqrt(max(np.prod(shape[1:]) * self.density, 1))
        array *= self.numbers.random(shape) < self.density
        if self.chance(0.5):  # and whole channels off
            array *= (self.numbers.random(shape[0]) < 0.5).reshape(-1, *(1 for _ in shape[1:]))
        return array.astype(np.float32)

    def biases(self, count: int) -> np.ndarray:
        numbers = self.numbers.normal(size=count) * (self.numbers.random(count) < self.pick([0, 0.3, 1]))
        return numbers.astype(np.float32)

    def add(self, op: str, *inputs: int, named=None, **attributes) -> bool:
        """Append a node if it fits."""
        draft = self.draft
        tensors = {role: f"{op}{len(draft.nodes)}.{role}" for role in named or {}}
        arrays = {tensors[role]: array for role, array in (named or {}).items()}
        number = draft.add(op, inputs, (), attributes, tensors)
        draft.tensors |= arrays
        draft.output = number
        try:
            shapes = infer_shapes(draft.graph(), {name: array.shape for name, array in draft.tensors.items()})
        except ModelError:
            del draft.nodes[number], draft.shapes[number]
            return False
        draft.shapes[number] = shapes[-1]
        self.last = number
        return True

    @property
    def shape(self):
        return self.draft.shapes[self.last]

    def grow(self, op: str) -> None:
        getattr(self, f"grow_{op}")()

    def act(self):
        return {"act": self.pick(ACTS)} if self.chance(0.6) else {}

    def grow_conv(self) -> None:
        if len(self.shape) != 3:
            return
        channels = self.shape[0]
        groups = self.pick([1, 1, 1, channels, 2])
        if channels % groups:
            groups = 1
        outputs = groups * self.integer(1, 8 if groups == 1 else 3)
        kernel = self.pick([(1, 1), (3, 3), (2, 3)])
        named = {"w": self.weights(outputs, channels // groups, *kernel)}
        if self.chance(0.7):
            named["b"] = self.biases(outputs)
        pad = self.pick([(0, 0, 0, 0), (0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 1, 0)])
        stride = self.pick([(1, 1), (1, 1), (2, 1)])
        self.add("conv", self.last, named=named, groups=groups, pad=pad, stride=stride, **self.act())

    def grow_linear(self) -> None:
        outputs = self.integer(1, 8)
        named = {"w": self.weights(outputs, self.shape[-1])}
        if self.chance(0.7):
            named["b"] = self.biases(outputs)
        self.add("linear", self.last, named=named, **self.act())

    def grow_flatten(self) -> None:
        self.add("reshape", self.last, shape=(int(np.prod(self.shape)),))
        self.grow_linear()

    def grow_unflatten(self) -> None:
        shape = self.shape
        ways = [(*shape, 1), (1, *shape), (*shape[:-2], -1), (shape[0], -1), (-1, shape[-1]), (2, -1)]
        way = self.pick(ways)
        size = int(np.prod(shape))
        rest = int(-np.prod(way))
        if -1 in way and (rest == 0 or size % rest):
            return
        if len(way) <= 4:
            self.add("reshape", self.last, shape=tuple(size // rest if n == -1 else n for n in way))

    def grow_pool(self) -> None:
        kernel, pad = self.pick([((2, 2), (0, 0, 0, 0)), ((3, 3), (1, 1, 1, 1)), ((2, 3), (0, 1, 1, 1))])
        stride = self.pick([kernel, (1, 1), (2, 1)])
        if self.chance(0.5):
            self.add("maxpool", self.last, kernel=kernel, pad=pad, stride=stride)
        else:
            count = self.pick(["all", "valid", 5])
            over = self.pick([(0, 0), (1, 0)])
            self.add("avgpool", self.last, kernel=kernel, pad=pad, stride=stride, count=count, over=over)

    def grow_adaptive(self) -> None:
        self.add(
            "adaptive",
            self.last,
            kind=self.pick(["avg", "max"]),
            size=(self.integer(1, 4), self.integer(1, 4)),
        )

    def grow_act(self) -> None:
        self.add("act", self.last, act=self.pick(ACTS))

    def grow_constant(self) -> None:
        op = self.pick(["add", "sub", "mul", "mul", "div"])
        swap = {"swap": True} if op == "sub" and self.chance(0.5) else {}
        if self.chance(0.3):
            self.add(op, self.last, value=self.pick([0.5, 2.0, -1.0]), **swap)
            return
        shape = tuple(size if self.chance(0.5) else 1 for size in self.shape)
        constant = self.biases(int(np.prod(shape))).reshape(shape) + np.float32(op == "div") * 9
        self.add(op, self.last, named={"c": constant}, **swap, **self.act())

    def others(self):
        values = [
            n for n in self.draft.shapes if n != self.last and len(self.draft.shapes[n]) == len(self.shape)
        ]
        self.numbers.shuffle(values)
        return values

    def grow_join(self) -> None:
        """Add, multiply or subtract an earlier value of a shape that broadcasts."""
        for other in self.others():
            pair = (self.last, other) if self.chance(0.5) else (other, self.last)
            if self.add(self.pick(["add", "add", "mul", "sub", "maximum"]), *pair, **self.act()):
                return

    def grow_gate(self) -> None:
        """Squeeze and excite."""
        if len(self.shape) != 3:
            return
        before, channels = self.last, self.shape[0]
        self.add("mean", self.last, axes=(1, 2), keep=True)
        for outputs in (self.integer(1, 4), channels):
            named = {"w": self.weights(outputs, self.shape[0], 1, 1), "b": self.biases(outputs)}
            self.add("conv", self.last, named=named, act=self.pick(ACTS))
        self.add("mul", before, self.last)

    def grow_concat(self) -> None:
        axis = self.pick([0, 0, 0, len(self.shape) - 1])
        for other in self.others():
            pair = (self.last, other) if self.chance(0.5) else (other, self.last)
            if self.add("concat", *pair, axis=axis):
                return
        self.add("concat", self.last, self.last, axis=axis)

    def grow_slice(self) -> None:
        axis = self.pick([0, 0, len(self.shape) - 1])
        start = self.integer(0, self.shape[axis] - 1)
        stop = self.integer(start + 1, self.shape[axis])
        self.add("slice", self.last, axis=axis, start=start, stop=stop, step=self.pick([1, 1, 2]))

    def grow_permute(self) -> None:
        self.add("permute", self.last, axes=tuple(int(n) for n in self.numbers.permutation(len(self.shape))))

    def grow_mean(self) -> None:
        axes = [axis for axis in range(len(self.shape)) if self.chance(0.4)]
        if len(axes) < len(self.shape):
            self.add("mean", self.last, axes=tuple(axes), keep=self.chance(0.5))

    def grow_softmax(self) -> None:
        self.add("softmax", self.last, axis=self.integer(0, len(self.shape) - 1), log=self.chance(0.3))

    def grow_pad(self) -> None:
        pads = tuple(
            self.pick([(0, 0), (1, 0), (1, 1)]) if axis else (0, self.pick([0, 0, 1]))
            for axis, _ in enumerate(self.shape)
        )
        self.add("pad", self.last, pad=pads, value=self.pick([0.0, 0.0, 0.5]))

    def grow_lrn(self) -> None:
        self.add("lrn", self.last, size=self.integer(1, 4), alpha=0.5, beta=0.75, k=1.0)

    def grow_upsample(self) -> None:
        if max(self.shape[1:], default=0) < 12:  # a few in a row would be many pixels
            self.add("upsample", self.last, factor=self.pick([(2, 2), (1, 3), (2, 1)]))

    def grow_resize(self) -> None:
        kind = self.pick(["nearest", "exact", "linear", "cubic"])
        self.add("resize", self.last, kind=kind, size=(self.integer(1, 9), self.integer(1, 9)))

    def grow_max(self) -> None:
        axes = [axis for axis in range(len(self.shape)) if self.chance(0.4)]
        if len(axes) < len(self.shape):
            self.add("max", self.last, axes=tuple(axes), keep=self.chance(0.5))

    def grow_gather(self) -> None:
        axis = self.integer(0, len(self.shape) - 1)
        count = self.integer(1, 6)
        indices = tuple(self.integer(0, self.shape[axis] - 1) for _ in range(count))
        self.add("gather", self.last, axis=axis, indices=indices)

    def grow_matmul(self) -> None:
        for other in self.others():
            if self.add("matmul", self.last, other, transpose=self.chance(0.5)):
                return
        self.add("matmul", self.last, self.last, transpose=True, scale=0.1)

    def grow_token(self) -> None:
        """A constant that is concatenated."""
        if self.add("constant", named={"c": self.biases(int(np.prod(self.shape))).reshape(self.shape)}):
            value = self.last
            others = [n for n in self.others() if n != value]
            self.add("concat", *(others[:1] or [value]), value, axis=0)

    def grow_layernorm(self) -> None:
        last = self.integer(1, len(self.shape))
        self.add("layernorm", self.last, last=last, eps=self.pick([1e-5, 0.1]))

    def grow_tied(self) -> None:
        """A layer with the weights of an earlier one, where they fit."""
        layers = [node for node in self.draft.nodes.values() if node.op in ("conv", "linear")]
        if layers:
            node: Node = self.pick(layers)
            number = self.draft.add(node.op, (self.last,), (), node.attributes, node.tensors)
            before, self.draft.output = self.draft.output, number
            try:
                arrays = self.draft.tensors.items()
                self.draft.shapes[number] = infer_shapes(self.draft.graph(), {n: a.shape for n, a in arrays})[
                    -1
                ]
                self.last = number
            except ModelError:
                del self.draft.nodes[number], self.draft.shapes[number]
                self.draft.output = before


GROWTHS = sorted(name.removeprefix("grow_") for name in vars(Random) if name.startswith("grow_"))
