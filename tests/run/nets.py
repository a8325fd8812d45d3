"""What the runtime's tests share: networks in a forced format, and the reference they are held to.

The reference is the graph run by torch's functions in float64 on the tensors as stored, decoded by numpy.
"""

from collections.abc import Mapping

import numpy as np
import torch
from interpreter import interpret

from membound import _core
from membound.run import Net
from membound.store.file import assemble
from membound.store.formats import decode, encode
from membound.store.graph import Graph, Node
from membound.store.model import Model, StoredModel

FORMATS = ("dense", "bitmask", "indexed", "csr", "delta", "rice")
VALUES = ("f32", "f16", "p4", "p2", "p8")
ISAS = _core.isas()
RELU6 = ("clip", 0.0, 6.0)


def stored(model: Model, formats: str | Mapping[str, str] = "dense", values: str = "f32") -> StoredModel:
    """The network with its tensors in these formats, checked as a file's reader checks it."""
    chosen = dict.fromkeys(model.tensors, formats) if isinstance(formats, str) else formats
    tensors = {name: encode(array, chosen[name], values) for name, array in model.scaled().tensors.items()}
    return assemble(model, tensors, values)[1]


def one_node(op: str, shape, attributes=None, tensors=None, inputs=(0,), others=()) -> Model:
    """A network of one node; `others` are nodes before it."""
    tensors = tensors or {}
    node = Node(op, inputs, attributes or {}, {role: f"node.{role}" for role in tensors})
    nodes = (*others, node)
    arrays = {f"node.{role}": np.asarray(array, np.float32) for role, array in tensors.items()}
    return Model(Graph(tuple(shape), nodes, len(nodes)), arrays)


def conv(rows, columns, kernel=1, stride=1, pad=(0, 0, 0, 0), groups=1, act=None):
    """A convolution's weight shape and attributes."""
    window = {"stride": (stride, stride), "pad": pad, "dilation": (1, 1), "groups": groups}
    return (rows, columns // groups, kernel, kernel), window | ({} if act is None else {"act": act})


def chain(shape, layers, seed=0, thin="1", bias=1.0) -> StoredModel:
    """Convolutions one after another; the weights of each are drawn from the seed and its number."""
    nodes, tensors = [], {}
    for number, (weight, attributes) in enumerate(layers):
        roles = {"w": f"{number}.w", "b": f"{number}.b"}
        nodes.append(Node("conv", (number,), attributes, roles))
        fan_in = np.prod(weight[1:])
        tensors[roles["w"]] = thinned(
            normal(seed + number, *weight) * np.float32(fan_in**-0.5), thin, seed + number
        )
        tensors[roles["b"]] = normal(seed + 50 + number, weight[0]) * np.float32(bias)
    return stored(Model(Graph(shape, tuple(nodes), len(nodes)), tensors))


def expected(model: StoredModel, x: np.ndarray) -> np.ndarray:
    """What the network must give, in float64."""
    tensors = {name: decode(tensor) for name, tensor in model.tensors.items()}
    return interpret(model.graph, tensors, torch.from_numpy(x).double()).numpy()


def distance(found: np.ndarray, wanted: np.ndarray, usual: float = 0.0) -> float:
    """The largest difference over the largest magnitude; of zeros, the largest difference.

    `usual` is the magnitude that outputs have but for chance: a single one may be near zero, where its terms cancel.
    """
    assert found.shape == wanted.shape
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    largest = max(float(np.abs(wanted).max(initial=0.0)), usual)
    return float(np.abs(found - wanted).max(initial=0.0)) / (largest or 1.0)


def check(
    model: StoredModel, x: np.ndarray, tolerance: float = 1e-5, threads=(1, 2), usual: float = 0.0, **options
) -> None:
    """Every instruction set agrees with the reference, and does not depend on the number of threads."""
    wanted = expected(model, x)
    for isa in ISAS:
        results = [Net(model, threads=count, isa=isa, **options)(x) for count in threads]
        off = distance(results[0], wanted, usual)
        assert off <= tolerance, f"{isa}: {off:g} off"
        for other in results[1:]:
            assert distance(other, wanted, usual) <= tolerance


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def thinned(array: np.ndarray, kind: str, seed: int = 0) -> np.ndarray:
    """The array with zeros: "1", "0.1" and so on keep that share; "rows" empties two rows of three; "zero" all."""
    rng = np.random.default_rng(seed)
    if kind == "zero":
        return np.zeros_like(array)
    if kind == "rows":
        mask = (np.arange(len(array)) % 3 == 1).reshape(-1, *[1] * (array.ndim - 1))
        return np.where(mask & (rng.random(array.shape) < 0.5), array, np.float32(0))
    return np.where(rng.random(array.shape) < float(kind), array, np.float32(0))


def thin(model: Model, kind: str, seed: int = 0) -> Model:
    """The network with its weights and biases made sparse; constants stay."""
    names = [name for node in model.graph.nodes for role, name in node.tensors.items() if role in ("w", "b")]
    tensors = dict(model.tensors)
    for number, name in enumerate(sorted(set(names))):
        tensors[name] = thinned(tensors[name], kind, seed + number)
    return Model(model.graph, tensors, model.original_shapes)
