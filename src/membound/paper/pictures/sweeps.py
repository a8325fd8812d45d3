"""Accuracy against how much is kept: by thresholds, in one layer by many methods, and in all of LeNet."""

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from membound.paper import frontier, partial, thresholding
from membound.paper.pictures.looks import (
    ACCURACY,
    BLACK,
    GREY,
    METHODS,
    SMALL,
    TRACKS,
    Look,
    Numbers,
    add_legend,
    add_title,
    count,
    draw_level,
    draw_spread,
    focus,
    make_figure,
    set_log,
)

WAYS = {
    "thresholded": (METHODS["l2"], "l2, thresholded after training"),
    "paper": (TRACKS["paper"], "projection in training, paper track"),
    "ours": (TRACKS["ours"], "projection in training, our track"),
}
BESIDE = {"Sparse variational dropout": (8, -4), "Han et al.": (0, 8)}  # points from a mark to its name
ROOM = 2.0  # times the worst published error: above that, points are only marked at the edge


def draw_thresholding(numbers: Numbers) -> Figure:
    """Accuracy of networks that lose their small weights, after training or in it."""
    figure = make_figure(5.6)
    axes = figure.subplots()
    rows = thresholding.means(dict(numbers))
    for track, value in numbers["dense"].items():
        name = "our" if track == "ours" else track
        draw_level(axes, value, Look(TRACKS[track].colour, line=":"), f"dense, {name} track")
    for way, (look, label) in WAYS.items():
        draw_spread(axes, [(100 * row["density"], row[way]) for row in rows], look, label)
    for row in rows:
        if row["emptied"]:
            _name_emptied(axes, row)
    _set_delta_axis(axes, rows)
    axes.set(xlabel="part of all weights that is kept, %", ylabel=ACCURACY)
    add_legend(figure, [axes], 2)
    return figure


def _name_emptied(axes: Axes, row: Numbers) -> None:
    """Upright, for its neighbours have names too."""
    names = ", ".join(name.removesuffix(".weight") for name in row["emptied"])
    height = row["thresholded"]["mean"] + row["thresholded"]["std"] if row["thresholded"] else 0
    axes.annotate(
        f"{names} empty", (100 * row["density"], height), (0, 9), textcoords="offset points", rotation=90,
        ha="center", va="bottom", fontsize=SMALL,
    )  # fmt: skip


def _set_delta_axis(axes: Axes, rows: Sequence[Numbers]) -> None:
    """The thresholds, above the parts that they keep."""
    parts = [100 * row["density"] for row in rows]
    axes.set_xticks(parts, labels=[f"{part:.0f}" for part in parts])
    above = axes.secondary_xaxis("top")
    above.set_xticks(parts, labels=[f"{row['delta']['mean']:.2g}" for row in rows])
    above.set_xlabel("threshold delta")


def draw_partial(numbers: Numbers) -> Figure:
    """Accuracy against the nonzeros of the only layer that is made sparse, by methods."""
    figure = make_figure(8.6, 7.6)
    panels = numbers["panels"]
    all_axes = figure.subplots((len(panels) + 1) // 2, 2, squeeze=False).flatten()
    for axes, panel in zip(all_axes, panels, strict=False):
        _draw_methods(axes, panel)
    for axes in all_axes[len(panels) :]:
        axes.set_axis_off()
    add_legend(figure, all_axes, 3)
    return figure


def _draw_methods(axes: Axes, panel: Numbers) -> None:
    known = {**panel, "rows": [row for row in panel["rows"] if row["nonzeros"] is not None]}
    draw_level(axes, panel["dense"], Look(BLACK, line=(0, (1, 3))), "dense, l2")
    draw_level(axes, panel["ours_dense"], Look(TRACKS["ours"].colour, line=(0, (1, 3))), "dense, our track")
    points = [(panel["size"], panel["dense"]["mean"]), (panel["size"], panel["ours_dense"]["mean"])]
    emptied = 0
    for method, name in partial.METHODS.items():
        curve = partial.curve(known, method)
        some = [point for point in curve if point["nonzeros"] > 0]
        emptied += len(curve) - len(some)
        draw_spread(
            axes, [(point["nonzeros"], point["accuracy"]) for point in some], METHODS[method], name, markersize=5
        )
        points += [(point["nonzeros"], point["accuracy"]["mean"]) for point in some]
    set_log(axes, "x", [x for x, _ in points], 5)
    notes = [focus(axes, points), f"{count(emptied, 'point')} with no weights at all" if emptied else ""]
    add_title(axes, panel["title"], *notes)
    axes.set(xlabel=f"nonzero weights of {panel['layer']}", ylabel=ACCURACY)


def draw_frontier(numbers: Numbers) -> Figure:
    """Test error against nonzero weights, ours and others'."""
    figure = make_figure(5.6)
    axes = figure.subplots()
    sparse = [(row["weight_nonzeros"], row["error"]) for row in numbers["rows"] if row["weights"] is not None]
    dense = [(row["weight_nonzeros"], row["error"]) for row in numbers["rows"] if row["weights"] is None]
    draw_spread(axes, sparse, TRACKS["ours"], "ours")
    star = {"linestyle": "none", "marker": "*", "markersize": 13, "markeredgecolor": "white"}
    draw_spread(axes, dense, TRACKS["ours"], "ours, dense", **star)
    targets = frontier.WEIGHTS
    axes.plot(
        list(targets), list(targets.values()), linestyle="none", marker="_", markersize=13, color=GREY,
        markeredgewidth=2, label="our targets",
    )  # fmt: skip
    _draw_published(axes)
    set_log(axes, "x", [*targets, *(x for x, _ in [*sparse, *dense])], 7)
    note = _limit_errors(axes, [(x, error["mean"]) for x, error in [*sparse, *dense]])
    add_title(axes, "LeNet on MNIST", note)
    axes.set(xlabel="nonzero weights, without biases", ylabel="test error, %")
    add_legend(figure, [axes], 4)
    return figure


def _draw_published(axes: Axes) -> None:
    x, y = [count for _, count, _ in frontier.PUBLISHED], [error for _, _, error in frontier.PUBLISHED]
    axes.plot(x, y, linestyle="none", marker="X", markersize=8, color=BLACK, label="published")
    for name, weights, error in frontier.PUBLISHED:
        axes.annotate(
            name, (weights, error), BESIDE.get(name, (7, 5)), textcoords="offset points", fontsize=10, color=BLACK
        )


def _limit_errors(axes: Axes, points: Iterable[tuple[float, float]]) -> str:
    """Errors far above all published ones must not press those into one line."""
    most = ROOM * max(error for _, _, error in frontier.PUBLISHED)
    far = [x for x, error in points if error > most]
    axes.set_ylim(top=most if far else None)
    if not far:
        return ""
    axes.plot(far, [most] * len(far), linestyle="none", marker=6, color=TRACKS["ours"].colour, clip_on=False)
    return f"▴ {count(len(far), 'point')} of ours above {most:.3g} %"
