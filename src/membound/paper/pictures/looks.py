"""What all pictures have in common: colours with markers and line styles, axes, legends and notes."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import NullLocator

from membound.report.axes import find_log_ticks, find_low, show_tick, widen, widen_log

Numbers = Mapping[str, Any]
Point = tuple[float, Mapping[str, Any] | None]  # where, and the mean and the spread there

# Okabe and Ito's colours, which people with any colour vision can tell apart.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#767676"

DPI = 150
WIDTH = 6.8  # inches: narrow, so that text is still legible where a phone shrinks it
SMALL = 9.5  # points
ACCURACY = "test accuracy, %"
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 11,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "figure.facecolor": "white",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Helvetica", "Arial", "sans-serif"],
    "font.size": 11,
    "grid.color": "#e4e4e4",
    "legend.fontsize": 10,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 6,
    "svg.fonttype": "none",
    "svg.hashsalt": "membound",
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
}


@dataclass(frozen=True)
class Look:
    """A colour, and a marker and a line style for those who do not see it."""

    colour: str
    marker: str = "o"
    line: Any = "-"


TRACKS = {
    "paper": Look(BLUE, "o", "-"),
    "ours": Look(VERMILLION, "s", "--"),
    "longer": Look(GREEN, "D", "-."),
}
METHODS = {
    "l2": Look(BLACK, "X", ":"),
    "subgradient": Look(ORANGE, "^", "--"),
    "shrink": Look(GREEN, "v", "-."),
    "l0": TRACKS["paper"],
    "hidden": Look(PURPLE, "D", (0, (1, 1))),
    "rank": Look(SKY, "P", (0, (5, 1, 1, 1, 1, 1))),
    "ours": TRACKS["ours"],
}


def make_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty one, which makes room for all that is written beside its panels."""
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def settle(figure: Figure) -> None:
    """Lay it out for good: the solver does not repeat the last digits of its places, which make names in the SVG."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, width, height = (
            round(float(side), 5) for side in axes.get_position(original=True).bounds
        )
        axes.set_position((left, bottom, width, height))


def add_note(figure: Figure, text: str) -> None:
    """For small trainings, which nobody should take for results."""
    figure.suptitle(text, fontsize=SMALL, color=VERMILLION, x=0.99, ha="right")


def add_legend(place: Figure | Axes, panels: Iterable[Axes], columns: int) -> None:
    """Below all panels, or in the middle of an empty one; each name once."""
    named: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    options: dict[str, Any] = {"ncols": columns, "handlelength": 3, "columnspacing": 1.4}
    options["loc"] = "center" if isinstance(place, Axes) else "outside lower center"
    if named:
        place.legend(list(named.values()), list(named), **options)


def add_title(axes: Axes, title: str, *notes: str) -> None:
    """With notes below it, above the data."""
    shown = [note for note in notes if note]
    axes.set_title(title, pad=6 + 13 * len(shown))
    if shown:
        axes.annotate(
            "\n".join(shown), (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points",
            va="bottom", fontsize=SMALL, color="#555555",
        )  # fmt: skip


def draw_spread(axes: Axes, points: Iterable[Point], look: Look, label: str, **changes: Any) -> None:
    """Means joined by a line in this order, standard deviations as bars; what is not known is left out."""
    known = [(x, value["mean"], value["std"]) for x, value in points if value is not None]
    if not known:
        return
    x, mean, std = zip(*known, strict=True)
    options: dict[str, Any] = {
        "color": look.colour, "marker": look.marker, "linestyle": look.line, "capsize": 2.5, "elinewidth": 1,
    }  # fmt: skip
    axes.errorbar(x, mean, std, label=label, **options | changes)


def draw_level(axes: Axes, value: Mapping[str, Any] | None, look: Look, label: str) -> None:
    """A line across, with a band as wide as the spread."""
    if value is None:
        return
    axes.axhline(value["mean"], color=look.colour, linewidth=1, linestyle=look.line, label=label)
    low, high = value["mean"] - value["std"], value["mean"] + value["std"]
    axes.axhspan(low, high, color=look.colour, alpha=0.12, linewidth=0)


def focus(axes: Axes, points: Iterable[Point]) -> str:
    """Leave out what is far below the rest, only marked at the edge; says in words how many points that is."""
    known = [(x, value["mean"], value["std"]) for x, value in points if value is not None]
    known = [point for point in known if all(map(math.isfinite, point))]
    if not known:
        return ""
    least = find_low([mean for _, mean, _ in known])
    ends = [end for _, mean, std in known if mean >= least for end in (mean - std, mean + std)]
    low, high = widen(min(ends), max(ends))
    axes.set_ylim(low, high)
    below = [x for x, mean, _ in known if mean < low]
    if not below:
        return ""
    axes.plot(below, [low] * len(below), linestyle="none", marker=7, markersize=6, color=GREY, clip_on=False)
    return f"▾ {count(len(below), 'point')} below {low:.3g} %"


def exactly(value: float) -> dict[str, float]:
    """A value without a spread."""
    return {"mean": value, "std": 0.0}


def count(number: int, name: str) -> str:
    """
    >>> count(1, "point"), count(2, "point")
    ('1 point', '2 points')
    """
    return f"{number} {name}" + ("" if number == 1 else "s")


def set_log(
    axes: Axes,
    axis: Literal["x", "y"],
    values: Iterable[float],
    most: int = 6,
    find: Callable[[float, float, int], Sequence[float]] = find_log_ticks,
    show: Callable[[float], str] = show_tick,
) -> None:
    """A logarithmic axis around the positive ones of `values`, with at most so many plain numbers along it."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = widen_log(min(positive), max(positive))
    ticks = find(low, high, most)
    axes.set(**{f"{axis}scale": "log", f"{axis}lim": (low, high)})
    side = axes.xaxis if axis == "x" else axes.yaxis
    side.set_ticks(ticks, labels=[show(tick) for tick in ticks])
    side.set_minor_locator(NullLocator())
