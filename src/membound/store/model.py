"""A network in memory: as captured, with dense arrays, and as stored, with its tensors encoded."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.store.formats import Encoded, decode, scale_rows
from membound.store.graph import Graph, Shape

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Model:
    """A network that can be stored: its graph, and each tensor as a dense array under its name in torch.

    `original_shapes` are those of tensors that lost dead channels; `preprocess` is what `Preprocess.to_json` gives,
    and `mean_image` the array it leaves out where its mean is "image".

    `scales` has one number for each row of a weight, by the weight's name: the network computes with that row of
    `tensors` times it. Kept apart, they leave a weight of few values what it is when batch norm is folded into it:
    files of few bits store them so, others the product.
    """

    graph: Graph
    tensors: dict[str, Float32]
    original_shapes: dict[str, Shape] = field(default_factory=dict)
    preprocess: dict[str, Any] | None = None
    classes: list[str] | None = None
    mean_image: Float32 | None = None
    scales: Mapping[str, Float32] = field(default_factory=dict)
    activations: Mapping[int, tuple[float, int]] = field(
        default_factory=dict
    )  # scale and zero point, by value

    def scaled(self) -> "Model":
        """The same network with the scales multiplied in, so that `tensors` are what it computes with."""
        tensors = {
            name: scale_rows(array, self.scales[name]) if name in self.scales else array
            for name, array in self.tensors.items()
        }
        return replace(self, tensors=tensors, scales={})


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A network as its file has it: all of it has been checked, so that kernels may trust it."""

    graph: Graph
    tensors: dict[str, Encoded]  # may be views onto the mapped file
    shapes: list[Shape]  # of every value, the input's first
    original_shapes: dict[str, Shape]
    preprocess: dict[str, Any] | None
    classes: list[str] | None
    mean_image: Encoded | None
    header_bytes: int
    file_bytes: int
    mapped: bool = False
    activations: Mapping[int, tuple[float, int]] = field(default_factory=dict)
    content: tuple[npt.NDArray[Any], ...] = ()  # the bytes of the file, in parts: views, not copies

    @property
    def id(self) -> str:
        """Which network it is: the first 16 hexadecimal digits of its file's SHA-256."""
        digest = hashlib.sha256()
        for part in self.content:
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()[:16]

    def __repr__(self) -> str:
        nonzeros = sum(tensor.nonzeros for tensor in self.tensors.values())
        words = f"{self.file_bytes:,} bytes, {nonzeros:,} nonzeros in {len(self.tensors)} tensors"
        left_out = sum(
            math.prod(shape) - math.prod(self.tensors[name].shape)
            for name, shape in self.original_shapes.items()
            if name in self.tensors
        )
        return (
            f"StoredModel({words}{f', {left_out:,} weights of dead channels left out' if left_out else ''})"
        )

    def decode(self) -> Model:
        """The network with dense float32 arrays."""
        return Model(
            self.graph,
            {name: decode(tensor) for name, tensor in self.tensors.items()},
            dict(self.original_shapes),
            self.preprocess,
            self.classes,
            None if self.mean_image is None else decode(self.mean_image),
            activations=self.activations,
        )
