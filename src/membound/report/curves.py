"""The figures of training: loss, accuracy and nonzeros over the steps."""

from collections.abc import Mapping, Sequence
from typing import Any

from membound.report import marks
from membound.report.axes import (
    Frame,
    Scale,
    draw_figure,
    find_log_ticks,
    find_low,
    find_ticks,
    show_tick,
    widen,
    widen_log,
)
from membound.report.markup import Markup, join, tag
from membound.report.text import Score, find_number, find_part, find_rows, find_text, shorten

FRAME = Frame(width=312, height=216, left=42, right=12, top=10, bottom=42)
BUCKETS = 200  # of each the lowest and the highest point are drawn: no spike is lost
LOG_RATIO = 10  # a wider range is drawn logarithmically, where it can be

Line = list[tuple[float, float]]


def make_curves(result: Mapping[str, Any], score: Score) -> Markup | None:
    """One panel a quantity, all with the same steps; None where nothing was recorded."""
    runs = _find_runs(result)
    panels = []
    for key, title in (
        ("loss", "loss"),
        ("accuracy", score.axis),
        ("nonzeros", "weights that may be nonzero"),
    ):
        lines = {name: _find_line(curve, key) for name, (_, curve) in runs.items()}
        drawn = {name: line for name, line in lines.items() if len(line) > 1}
        if drawn:
            classes = {name: runs[name][0] for name in drawn}
            panels.append(_draw_panel(key, title, drawn, classes, _last_step(runs)))
    if not panels:
        return None
    keys = [(marks.draw_line_key(classes), shorten(name, 40)) for name, (classes, _) in runs.items()]
    return join(marks.draw_legend(keys), tag("div", *panels, class_="panels"), _note(result))


def _note(result: Mapping[str, Any]) -> Markup | None:
    """Said where losses cannot be compared, and where there were other seeds."""
    finals = find_rows(result, "finals")
    notes = [note for final in finals for note in final.get("tried") or ()]
    words = []
    if any("teacher" in str(note) for note in notes):
        words.append(
            "The loss of a network that learns from a teacher also counts how far it is from the teacher's scores: "
            "compare accuracies with the dense network's, not losses."
        )
    if any(find_rows(final, "curves") and find_rows(final, "curves")[-1].get("nonzeros") for final in finals):
        words.append(
            "The figure of nonzeros shows the limit during training. It can rise for a while: the size of the file is "
            "measured anew several times, and where that shows room, weights return. The file can have fewer: when a "
            "channel has no weights left, those that read it are removed, too."
        )
    if seeds := find_part(finals[0], "seeds").get("seeds"):
        words.append(f"These curves are those of seed {seeds[0]}.")
    return tag("p", " ".join(words), class_="note") if words else None


def _find_runs(result: Mapping[str, Any]) -> dict[str, tuple[str, list[Mapping[str, Any]]]]:
    """The classes and the curve of each network that has one."""
    runs = {}
    dense = find_rows(find_part(result, "dense"), "curves")
    if dense:
        runs["dense"] = ("densely", dense)
    for index, final in enumerate(find_rows(result, "finals")):
        curve = find_rows(final, "curves")
        if curve and not (dense and final.get("is_dense_in_8_bits")):  # whose curve is that of dense
            name = find_text(final, "name") or "final"
            name = name if name not in runs else f"{name} ({index + 1})"
            runs[name] = (marks.name_series(index), curve)
    return runs


def _find_line(curve: Sequence[Mapping[str, Any]], key: str) -> Line:
    pairs = [(find_number(point, "iteration"), find_number(point, key)) for point in curve]
    return sorted((x, y) for x, y in pairs if x is not None and y is not None)


def _last_step(runs: Mapping[str, tuple[str, list[Mapping[str, Any]]]]) -> float:
    return max(find_number(point, "iteration") or 1.0 for _, curve in runs.values() for point in curve)


def _draw_panel(
    key: str, title: str, lines: dict[str, Line], classes: Mapping[str, str], last: float
) -> Markup:
    frame = FRAME
    x = Scale(0, max(last, 1.0), frame.left, frame.width - frame.right)
    y = _find_scale(key, [value for line in lines.values() for _, value in line], frame)
    ticks = find_log_ticks(y.low, y.high, 5) if y.log else find_ticks(y.low, y.high, 7)
    bounds = (
        frame.left,
        frame.top,
        frame.width - frame.left - frame.right,
        frame.height - frame.top - frame.bottom,
    )
    # Dense, the first, is drawn last and dashed: so a line that it lies on shows through.
    drawn = [_draw_line(name, lines[name], classes[name], x, y) for name in reversed(lines)]
    # A nested svg cuts off what leaves the frame, without an id for a clip path.
    inside = tag(
        "svg", *drawn, x=bounds[0], y=bounds[1], width=bounds[2], height=bounds[3],
        viewBox=" ".join(f"{number:g}" for number in bounds),
    )  # fmt: skip
    ends = [f"{name} ends at {line[-1][1]:.4g}" for name, line in lines.items()]
    figure = draw_figure(
        f"curves-{key}", f"{title} over the steps", "; ".join(ends), frame.width, frame.height,
        frame.draw_y(y, [(tick, show_tick(tick)) for tick in ticks]),
        frame.draw_x(x, [(tick, show_tick(tick)) for tick in find_ticks(0, x.high, 4)], "step"),
        inside,
    )  # fmt: skip
    return tag("figure", tag("figcaption", title + (", log scale" if y.log else "")), figure)


def _find_scale(key: str, values: Sequence[float], frame: Frame) -> Scale:
    """Logarithmic where a range is wide; accuracies from where they begin to differ."""
    start, end = frame.height - frame.bottom, frame.top
    low, high = min(values), max(values)
    if key == "accuracy":
        return Scale(*widen(find_low(values), high), start, end)
    if low > 0 and high / low > LOG_RATIO:
        return Scale(*widen_log(low, high, 0.04), start, end, log=True)
    below, above = widen(low, high)
    return Scale(max(below, 0.0) if low >= 0 else below, above, start, end)


def _draw_line(name: str, line: Line, classes: str, x: Scale, y: Scale) -> Markup:
    path = "M" + "L".join(f"{x.place(a):.1f} {y.place(b):.1f}" for a, b in thin(line))
    return tag("path", tag("title", name), d=path, class_=f"line {classes}")


def thin(line: Line, buckets: int = BUCKETS) -> Line:
    """A line of few points that looks like the whole one.

    >>> thin([(0, 5), (1, 9), (2, 1), (3, 4), (4, 4), (5, 4)], buckets=2)
    [(0, 5), (1, 9), (2, 1), (3, 4), (5, 4)]
    """
    if len(line) <= 2 * buckets:
        return line
    kept = {line[0], line[-1]}
    for bucket in range(buckets):
        part = line[bucket * len(line) // buckets : (bucket + 1) * len(line) // buckets]
        kept |= {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
    return sorted(kept)
