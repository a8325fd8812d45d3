"""The figures of the layers: how many weights each one keeps, and which part of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from membound.report import marks
from membound.report.axes import draw_figure
from membound.report.markup import Markup, join, tag
from membound.report.text import (
    divide,
    find_number,
    find_rows,
    find_size,
    find_text,
    name_layer,
    shorten,
    shorten_names,
    show_count,
    show_share,
)

WIDTH = 352.0
NAME_LETTERS = 18
MOST_LAYERS = 30  # in a figure: the table has all of them
MOST_FINALS = 6
BAR = 13.0
GAP = 9.0

Layer = Mapping[str, Any]
Group = tuple[
    str, list[tuple[int, str, Layer]]
]  # a layer's name; index and name of each network, and its facts


def make_bars(result: Mapping[str, Any]) -> Markup | None:
    """Nonzeros of each layer, absolute and as part of the layer; None where no layers are known."""
    finals = [final for final in find_rows(result, "finals") if find_rows(final, "layers")]
    names = [find_text(final, "name") or "final" for final in finals]
    groups = _group(finals[:MOST_FINALS], names)
    shown = _largest(groups)
    if not shown:
        return None
    several = len(finals) > 1
    panels = [
        _draw_panel("bars-nonzeros", "weights that are not zero", shown, several, relative=False),
        _draw_panel("bars-kept", "their share of the layer's weights", shown, several, relative=True),
    ]
    keys = [(marks.draw_swatch(index), shorten(name, 40)) for index, name in enumerate(names[:MOST_FINALS])]
    return join(
        marks.draw_legend(keys) if several else None,
        tag("div", *panels, class_="panels"),
        _note(len(groups), len(finals)),
    )


def _group(finals: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Group]:
    """The layers in the order of the network, each with its facts from every network."""
    groups: dict[str, list[tuple[int, str, Layer]]] = {}
    for index, final in enumerate(finals):
        for layer in filter(_has_weights, find_rows(final, "layers")):
            groups.setdefault(name_layer(layer), []).append((index, names[index], layer))
    return list(groups.items())


def _has_weights(layer: Layer) -> bool:
    """A bias has one dimension, and nothing of it is dropped on purpose: a bar would say nothing."""
    shape = layer.get("shape")
    return not isinstance(shape, list | tuple) or len(shape) > 1


def _largest(groups: list[Group]) -> list[Group]:
    if len(groups) <= MOST_LAYERS:
        return groups
    sizes = [max(find_size(layer) or 0 for _, _, layer in bars) for _, bars in groups]
    least = sorted(sizes, reverse=True)[MOST_LAYERS - 1]
    return [group for group, size in zip(groups, sizes, strict=True) if size >= least][:MOST_LAYERS]


def _note(layers: int, finals: int) -> Markup | None:
    words = []
    if layers > MOST_LAYERS:
        words.append(f"The {MOST_LAYERS} largest of {layers} layers: the table below has all of them.")
    if finals > MOST_FINALS:
        words.append(f"The first {MOST_FINALS} of {finals} networks.")
    return tag("p", " ".join(words), class_="note") if words else None


@dataclass(frozen=True)
class _Panel:
    """Where the bars begin, how long they may be and what the longest stands for."""

    left: float
    room: float
    most: float
    several: bool
    relative: bool

    def draw_bar(self, top: float, index: int, final: str, layer: Layer) -> tuple[Markup, str]:
        """A bar with its number at the end, and the number in words."""
        count, size = find_number(layer, "nonzeros"), find_size(layer)
        share = divide(count, size)
        length = (share or 0.0) if self.relative else (count or 0.0) / self.most
        width = min(max(length, 0.0), 1.0) * self.room
        shown = show_share(share) if self.relative else show_count(count)
        words = f"{name_layer(layer)} {shown}" + (f" in {final}" if self.several else "")
        place: dict[str, object] = {"x": self.left, "y": top + 1, "height": BAR - 2}
        tip = tag("title", f"{words}: {show_count(count)} of {show_count(size)}")
        aside = tag("tspan", f" {shorten(final, 9)}", class_="aside") if self.several else None
        end = self.left + (self.room if self.relative else width) + 5
        drawn = join(
            tag("rect", width=self.room, class_="track", **place) if self.relative else None,
            tag("rect", tip, width=width, class_=f"bar mark s{index % marks.COLOURS}", **place),
            tag("text", shown, aside, x=end, y=top + BAR - 3, class_="value"),
        )
        return drawn, words


def _with_operator(name: str, bars: list[tuple[int, str, Layer]]) -> str:
    """A layer of nn.Sequential has only a number: its operator says which one it is.

    >>> _with_operator("0", [(0, "4KB", {"operator": "conv"})]), _with_operator("fc", [(0, "", {"operator": "linear"})])
    ('0 conv', 'fc')
    """
    operator = find_text(bars[0][2], "operator")
    return f"{name} {operator}" if operator and name.replace(".", "").isdigit() else name


def _draw_panel(name: str, title: str, groups: list[Group], several: bool, relative: bool) -> Markup:
    names = [_with_operator(*group) for group in groups]
    left = 6 * min(max(map(len, names)), NAME_LETTERS) + 12.0
    most = max(find_number(layer, "nonzeros") or 0 for _, bars in groups for _, _, layer in bars) or 1.0
    panel = _Panel(left, WIDTH - left - (118 if several else 58), most, several, relative)
    drawn, described, top = [], [], 4.0
    short = shorten_names(names, NAME_LETTERS)
    for (_, bars), layer_name, shown in zip(groups, names, short, strict=True):
        words = join(tag("title", layer_name), shown)
        middle = top + BAR * len(bars) / 2 + 4
        drawn.append(tag("text", words, x=left - 8, y=middle, text_anchor="end", class_="layer"))
        for index, final, layer in bars:
            bar, said = panel.draw_bar(top, index, final, layer)
            drawn.append(bar)
            described.append(said)
            top += BAR
        top += GAP
    figure = draw_figure(name, f"{title}, by layer", "; ".join(described), WIDTH, top, *drawn)
    return tag("figure", tag("figcaption", title), figure)
