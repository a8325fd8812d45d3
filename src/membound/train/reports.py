"""What the weights under rules take, layer by layer."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from membound.notebook import html_block, html_table, show_shape
from membound.store.quantize import LINEAR_FROM
from membound.store.sizes import best_format, best_packed_format
from membound.train.grids import Even
from membound.train.palette import count_values
from membound.train.rules import Target
from membound.train.sharded import count_empty, count_nonzeros


@dataclass(frozen=True)
class LayerReport:
    """The state of one weight under a rule: its nonzeros, and how many are allowed now (`bound`).

    `bytes` are in the best format, which is `format`: in float32 of the paper's. Where a palette acts, `levels` is how
    many different nonzero values are allowed now, and `distinct` how many there are; with at most 64 levels, bytes are
    those of `bits` a value, in the best format of packed files. `empty` counts its rows and columns, the outputs and
    inputs of a layer, that are all zero.
    """

    name: str
    shape: tuple[int, ...]
    size: int
    nonzeros: int
    bound: int | None
    format: str
    bytes: int
    levels: int | None = None
    distinct: int | None = None
    empty: int = 0

    def at_bound(self) -> "LayerReport":
        """The same with its bound imposed: what would be deployed now."""
        if self.bound is None or self.nonzeros <= self.bound:
            return self
        name, size = _best(self.shape, self.bound, self.bits)  # a palette has acted on the weight already
        return replace(self, nonzeros=self.bound, format=name, bytes=size)

    @property
    def bits(self) -> int:
        """Of a value: 32, or as few as hold the levels of a palette."""
        few = 0 if self.levels is None else max((self.levels - 1).bit_length(), 1)
        return few if 0 < few < LINEAR_FROM else 32


@dataclass(frozen=True)
class Report:
    """The weights under rules, layer by layer and in all.

    A file may have fewer nonzeros: `save` leaves out channels that no later layer uses, or that are constant, with
    all their weights, and counts biases.
    """

    layers: list[LayerReport]

    @property
    def nonzeros(self) -> int:
        return sum(layer.nonzeros for layer in self.layers)

    @property
    def bytes(self) -> int:
        return sum(layer.bytes for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """For `json.dumps`: `nonzeros` and `bytes` in all, and `layers` as `membound train --json` has them."""
        layers = [{**asdict(layer), "shape": list(layer.shape)} for layer in self.layers]
        return {"nonzeros": self.nonzeros, "bytes": self.bytes, "layers": layers}

    @property
    def _has_palettes(self) -> bool:
        return any(layer.levels is not None for layer in self.layers)

    def _values(self, layer: LayerReport) -> list[str]:
        """The cell of how many values a layer has, if there is such a column."""
        found = "-" if layer.levels is None else f"{layer.distinct:,} of {layer.levels}"
        return [found] if self._has_palettes else []

    def _repr_html_(self) -> str:
        rows = [
            [
                layer.name, show_shape(layer.shape), layer.format, f"{layer.nonzeros:,}",
                "–" if layer.bound is None else f"{layer.bound:,}", *self._values(layer), f"{layer.bytes:,}",
            ]
            for layer in self.layers
        ]  # fmt: skip
        values = ["values"] if self._has_palettes else []
        head = ["layer", "shape", "format", "nonzeros", "allowed", *values, self._bytes]
        title = f"{self.nonzeros:,} nonzeros under rules, {self.bytes:,} bytes"
        return html_block(title, html_table(head, rows, words=3), note=self._note)

    def at_bound(self) -> "Report":
        """The same with every bound imposed: between projections weights are dense, deployed they are not."""
        return Report([layer.at_bound() for layer in self.layers])

    def __str__(self) -> str:
        values = ["values"] if self._has_palettes else []
        rows = [("layer", "shape", "nonzeros", "kept", "bound", *values, self._bytes, "format")]
        for layer in self.layers:
            shape = "x".join(map(str, layer.shape))
            kept = f"{layer.nonzeros / max(layer.size, 1):.2%}"
            bound = "-" if layer.bound is None else str(layer.bound)
            row = (layer.name, shape, str(layer.nonzeros), kept, bound)
            rows.append((*row, *self._values(layer), str(layer.bytes), layer.format))
        rows.append(("all", "", str(self.nonzeros), "", "", *("" for _ in values), str(self.bytes), ""))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join([*lines, self._counted, *([self._note] if self._note else [])])

    @property
    def _bytes(self) -> str:
        """The heading of bytes: in how many bits a value."""
        counted = sorted({layer.bits for layer in self.layers}) or [32]
        few = [str(bits) for bits in counted if bits < 32]
        if not few:
            return "bytes in float32"
        return f"bytes in {' and '.join(few)} bits{'' if counted[-1] < 32 else ' or float32'}"

    @property
    def _counted(self) -> str:
        """What is counted."""
        if all(layer.bits == 32 for layer in self.layers):
            return "bytes: these weights in float32, in the smaller of two formats; mb.save may write fewer"
        palettes = "those with a palette in its bits, palette and positions included"
        others = ", others in float32" if any(layer.bits == 32 for layer in self.layers) else ""
        return (
            f"bytes: these weights, {palettes}{others}; mb.save adds biases and a header, and may write fewer"
        )

    @property
    def _note(self) -> str:
        """Why a file will have fewer nonzeros, where it can be seen."""
        empty = sum(layer.empty for layer in self.layers)
        if not empty:
            return ""
        one = "1 row or column of these weights is"
        them = one if empty == 1 else f"{empty:,} rows and columns of these weights are"
        left_out = "save leaves out dead channels with all their weights"
        return f"{them} all zero: {left_out}, so a file may have fewer nonzeros"


def report_layer(target: Target, progress: float | None) -> LayerReport:
    """One weight as it is now, and what its update allows at this progress."""
    weight, update = target.weight, target.update
    size, nonzeros = weight.numel(), count_nonzeros(weight)
    bound = None if update.bound is None else update.allowed(size, progress)
    few = update.levels
    levels = few.at(progress) if few is not None and few.acts(progress) else None
    if isinstance(levels, Even):  # every row has values of its own
        levels = None
    distinct = None if levels is None else count_values(weight)
    shape = tuple(weight.shape)
    layer = LayerReport(
        target.name, shape, size, nonzeros, bound, "", 0, levels, distinct, count_empty(weight)
    )
    name, nbytes = _best(shape, nonzeros, layer.bits)
    return replace(layer, format=name, bytes=nbytes)


def _best(shape: tuple[int, ...], nonzeros: int, bits: int) -> tuple[str, int]:
    """The best format for so many nonzeros, and its bytes."""
    if bits == 32 or not nonzeros:
        return best_format(math.prod(shape), nonzeros)
    return best_packed_format(shape, nonzeros, f"p{bits}")
