"""Where the batch is in torch's shapes: attention and windows move it, and fold other axes into it."""

import math
from typing import Any

import torch
from torch import Tensor

from membound.capture.call import Place, Value
from membound.capture.export import Batch, sizes
from membound.store.graph import Shape

# What goes on where the batch is not torch's first axis, or other axes are folded into it: element by element, or along
# axes that are named.
COMPARISONS = ("eq", "ne", "gt", "ge", "lt", "le")
LOGIC = ("logical_not", "bitwise_not", "logical_and", "bitwise_and", "logical_or", "bitwise_or")
ELEMENTWISE = (
    "relu", "relu6", "leaky_relu", "silu", "gelu", "sigmoid", "tanh", "hardswish", "hardsigmoid", "elu", "selu",
    "clamp", "clamp_min", "clamp_max", "hardtanh", "mish", "softplus", "abs", "sqrt", "add", "sub", "mul", "div",
    "true_divide", "neg", "square", "pow", "dropout", "clone", "contiguous", "detach", "alias", "to", "_to_copy",
    "type_as", "maximum", "minimum", "softsign", *COMPARISONS, *LOGIC, "where", "masked_fill", "exp", "log", "sin",
    "cos", "rsqrt", "float", "celu", "log_sigmoid", "lerp",
)  # fmt: skip
MOVES = ("view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze", "expand")
ALONG = (
    *ELEMENTWISE, *MOVES, "permute", "transpose", "select", "slice", "unbind", "split", "split_with_sizes", "chunk",
    "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "cat", "stack", "softmax", "_softmax", "mean", "sum",
    "amax", "linear", "addmm", "mm", "matmul", "bmm",
    "layer_norm", "native_layer_norm", "batch_norm", "_native_batch_norm_legit_no_training",
    "scaled_dot_product_attention", "roll", "flip", "t", "linalg_vector_norm", "max", "glu", "masked_fill", "narrow",
    "index_select", "log_softmax", "rms_norm", "amin", "min", "var", "var_mean", "std", "std_mean", "baddbmm",
    "tril", "triu",
)  # fmt: skip
# What is exact for whole numbers in float32, and for true and false as 1 and 0.
WHOLE_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
WHOLE = (
    *COMPARISONS, *LOGIC, *MOVES, "permute", "transpose", "select", "slice", "unbind", "split", "split_with_sizes",
    "chunk", "cat", "stack", "add", "sub", "rsub", "mul", "neg", "abs", "maximum", "minimum", "clamp", "clamp_min",
    "clamp_max", "sum", "amax", "cumsum", "to", "_to_copy", "type_as", "clone", "contiguous", "detach", "alias",
    "repeat", "flip", "roll", "index_select", "narrow", "where", "masked_fill", "expand_as", "zeros_like", "ones_like",
    "t", "pad", "constant_pad_nd", "new_zeros", "new_ones", "new_full",
)  # fmt: skip
# What gives the same for a constant whether it is computed once or for every image.
SPREADABLE = (
    *ELEMENTWISE, *MOVES, "permute", "transpose", "select", "slice", "linear", "layer_norm", "cat", "unbind", "chunk",
    "split", "split_with_sizes", "t", "unsqueeze", "addmm", "cumsum", "stack", "flip", "roll",
    "conv1d", "conv2d", "embedding", "matmul", "group_norm", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk",
)  # fmt: skip


def find_place(val: Tensor, batch: Batch) -> tuple[Shape, Place] | None:
    """The shape of a traced tensor without its batch, and where that is, if it is in one axis alone."""
    found = sizes(val)
    if isinstance(batch, int):  # traced for one size: what else is as large cannot be told apart
        rest = found[1:]
        return (tuple(map(int, rest)), Place()) if found and found[0] == batch else None
    where = [dim for dim, size in enumerate(found) if isinstance(size, str)]
    if len(where) != 1:
        return None
    fold = _multiple(val.shape[where[0]], batch)
    if fold is None:
        return None
    at = where[0]
    kept = (*found[:at], *([fold] if fold > 1 else []), *found[at + 1 :])
    return tuple(map(int, kept)), Place(at, fold)


def _multiple(size: Any, batch: frozenset[str]) -> int | None:
    """How often the batch is in a size that is a multiple of it."""
    expression = size.node.expr
    symbols = expression.free_symbols
    if len(symbols) != 1 or str(next(iter(symbols))) not in batch:
        return None
    ratio = expression / next(iter(symbols))
    return int(ratio) if ratio.is_Integer and int(ratio) > 0 else None


def followed(value: Value, shape: Shape, place: Place) -> Place | None:
    """Where a reshape takes the batch: what came before it still does, or it is none of a graph's."""
    before = math.prod(value.shape[: value.place.at]) * value.place.outer
    ahead = math.prod(shape[: place.at])
    outer = before // ahead
    return (
        Place(place.at, place.fold, outer)
        if outer * ahead == before and outer and place.fold % outer == 0
        else None
    )
