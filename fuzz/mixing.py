"""Networks of attention, norms, resizing, gathering, embeddings and recurrent steps: sizes above and beside the
widths of vectors, so that whole vectors are computed and what is left of them, too."""

import numpy as np
import stored

from membound.store.graph import Graph, Input, Node, Output
from membound.store.model import Model


def models() -> list[Model]:
    return [attention(), images(), words(), recurrent()]


def files() -> list[bytes]:
    """Each with values as they are, and in few bits."""
    return [stored.plain_bytes(model, kind) for model in models() for kind in ("f32", "f16", "p4")]


def _weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Half of the elements of each are zero."""
    return {
        name.replace("_", ".", 1): stored.sparse(shape, max(int(np.prod(shape)) // 2, 1), number)
        for number, (name, shape) in enumerate(shapes.items())
    }


def attention() -> Model:
    """A block of a transformer: norms, heads, a mask, a product of values with a constant, a class token."""
    nodes = (
        Node("constant", (), {}, {"c": "token"}),
        Node("concat", (1, 0), {"axis": 0}),
        Node("layernorm", (2,), {}, {"w": "n.weight", "b": "n.bias"}),
        Node("linear", (3,), {}, {"w": "qkv.weight", "b": "qkv.bias"}),
        Node("reshape", (4,), {"shape": (18, 3, 4, 9)}),
        Node("permute", (5,), {"axes": (1, 2, 0, 3)}),
        *(Node("slice", (6,), {"axis": 0, "start": at, "stop": at + 1}) for at in range(3)),
        Node("matmul", (7, 8), {"transpose": True, "scale": 0.3}),
        Node("add", (10,), {}, {"c": "mask"}),
        Node("softmax", (11,), {"axis": 3}),
        Node("matmul", (12, 9), {}),
        Node("permute", (13,), {"axes": (0, 2, 1, 3)}),
        Node("reshape", (14,), {"shape": (18, 36)}),
        Node("linear", (15,), {"act": ("gelu",)}, {"w": "out.weight"}),
        Node("add", (16, 2), {}),
        Node("layernorm", (17,), {"last": 2, "eps": 1e-3}),
        Node("max", (18,), {"axes": (0,)}),
        Node("linear", (19,), {}, {"w": "head.weight"}),
    )
    shapes = {
        "token": (1, 37), "n_weight": (37,), "n_bias": (37,), "qkv_weight": (108, 37), "qkv_bias": (108,),
        "mask": (1, 1, 18, 18), "out_weight": (37, 36), "head_weight": (5, 37),
    }  # fmt: skip
    return Model(Graph((17, 37), nodes, 20), _weights(**shapes))


def images() -> Model:
    """Every way of resizing, pixels gathered, a product that broadcasts, channels scaled and cut off."""
    nodes = (
        Node("conv", (0,), {"pad": (1, 1, 1, 1), "act": ("mish",)}, {"w": "c.weight", "b": "c.bias"}),
        Node("resize", (1,), {"kind": "cubic", "size": (23, 8), "corners": True}),
        Node("resize", (2,), {"kind": "exact", "size": (9, 33), "scale": (0.4, 4.2)}),
        Node("resize", (3,), {"kind": "nearest", "size": (5, 40)}),
        Node("resize", (4,), {"kind": "linear", "size": (11, 19), "scale": (2.3, 0.5)}),
        Node("upsample", (5,), {"factor": (1, 2)}),
        Node("gather", (6,), {"axis": 2, "indices": (*range(37, 4, -2), 0, 0, 7)}),
        Node("constant", (), {}, {"c": "matrix"}),
        Node("matmul", (7, 8), {}),
        Node("maximum", (9,), {}, {"c": "lows"}),
        Node("minimum", (10,), {"value": 2.5}),
        Node("layernorm", (11,), {"last": 3}),
        Node("mean", (12,), {"axes": (1, 2)}),
    )
    shapes = {"c_weight": (17, 6, 3, 3), "c_bias": (17,), "matrix": (1, 20, 33), "lows": (17, 1, 1)}
    return Model(Graph((6, 11, 19), nodes, 13), _weights(**shapes))


def words() -> Model:
    """Indices and features in, two outputs."""
    nodes = (
        Node("input", (), {"shape": (12,)}),
        Node("embedding", (1,), {}, {"w": "e.weight"}),
        Node("add", (2,), {}, {"c": "places"}),
        Node("layernorm", (3,), {}, {"w": "n.weight"}),
        Node("reshape", (0,), {"shape": (1, 33)}),
        Node("mul", (4, 5), {}),
        Node("softmax", (6,), {"axis": 0, "log": True}),
        Node("matmul", (7, 4), {"transpose": True}),
    )
    shapes = {"e_weight": (50, 33), "places": (12, 33), "n_weight": (33,)}
    graph = Graph((33,), nodes, 8, (Input("x"), Input("ids", whole=True)), (Output(8, "a"), Output(7, "b")))
    return Model(graph, _weights(**shapes))


def recurrent() -> Model:
    """Two steps of a gated unit, as capture unrolls them: the same weights twice."""
    nodes = [Node("constant", (), {}, {"c": "state"})]
    state = 1
    for step in range(2):
        begin = len(nodes)
        nodes += [
            Node("slice", (0,), {"axis": 0, "start": step, "stop": step + 1}),
            Node("reshape", (begin + 1,), {"shape": (21,)}),
            Node("linear", (begin + 2,), {}, {"w": "i.weight", "b": "i.bias"}),
            Node("linear", (state,), {}, {"w": "h.weight"}),
            Node("add", (begin + 3, begin + 4), {"act": ("sigmoid",)}),
            Node("slice", (begin + 5,), {"axis": 0, "start": 0, "stop": 35}),
            Node("slice", (begin + 5,), {"axis": 0, "start": 35, "stop": 70}),
            Node("mul", (begin + 6, state), {"act": ("tanh",)}),
            Node("mul", (begin + 8, begin + 7), {}),
        ]
        state = len(nodes)
    shapes = {"state": (35,), "i_weight": (70, 21), "i_bias": (70,), "h_weight": (70, 35)}
    return Model(Graph((2, 21), tuple(nodes), state), _weights(**shapes))
