"""The figure of a search: accuracy against bytes, with the best there is at every size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from membound.report import marks
from membound.report.axes import (
    Frame,
    Scale,
    draw_figure,
    find_byte_ticks,
    find_log_ticks,
    find_low,
    find_ticks,
    show_byte_tick,
    show_tick,
    widen,
    widen_log,
)
from membound.report.device import find_flash, is_micro
from membound.report.markup import Markup, join, tag
from membound.report.text import Score, find_number, find_part, find_rows, find_text, shorten, show_count
from membound.report.verdict import show_seeds
from membound.units import show_bytes

WIDE = Frame(width=860, height=430, left=52, right=16, top=30, bottom=46)
NARROW = Frame(width=352, height=340, left=44, right=10, top=30, bottom=44)  # the same, for a phone

SEEN = 1.02  # times the smallest size: below that the steps of the frontier would be one upright line
ASIDE = 11  # pixels from an error bar to the dots of its seeds


@dataclass(frozen=True)
class Point:
    """A network that was tried: what it is, its size, its score."""

    kind: str
    key: str
    size: float
    score: float  # of several seeds the mean
    tip: str
    spread: float | None = None  # the standard deviation over seeds
    seeds: tuple[tuple[float, str], ...] = ()  # score and tip of each

    @property
    def reach(self) -> tuple[float, ...]:
        """Every score that is drawn for it."""
        around = () if self.spread is None else (self.score - self.spread, self.score + self.spread)
        return (self.score, *around, *(value for value, _ in self.seeds))


def find_frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The (size, score) at which the best score at or below a size rises, smallest first.

    >>> find_frontier([(30, 9), (10, 5), (20, 4), (30, 7), (40, 9)])
    [(10, 5), (30, 9)]
    """
    steps: list[tuple[float, float]] = []
    for size, score in sorted(points, key=lambda point: (point[0], -point[1])):
        if not steps or score > steps[-1][1]:
            steps.append((size, score))
    return steps


def make_scatter(result: Mapping[str, Any], score: Score) -> Markup | None:
    """The figure with its legend and a line on what it leaves out; None where there is nothing to compare."""
    candidates = find_rows(result, "candidates")
    tried = _find_points(candidates, score)
    finals = _find_finals(result, score)
    dense = find_part(result, "dense")
    dense_score = find_number(find_part(dense, "seeds"), "mean") or find_number(dense, "accuracy")
    repeated = any(point.spread is not None for point in finals)
    if not tried and len(finals) < 2 and not (repeated and dense_score is not None):
        return None
    axis = "flash" if is_micro(result) else "file size"
    beside = [] if is_micro(result) else find_beside(dense, score)
    figure = _Scatter(
        tried, finals, dense_score, beside, _find_limits(result), score, axis, _is_binary(result)
    )
    return join(
        tag("div", figure.draw(WIDE, "scatter-wide"), class_="wide"),
        tag("div", figure.draw(NARROW, "scatter-narrow"), class_="narrow"),
        figure.legend(),
        _note(figure.count_below(), len(candidates) - len(tried)),
    )


def _find_points(candidates: Sequence[Mapping[str, Any]], score: Score) -> list[Point]:
    points = []
    for candidate in candidates:
        size, value = find_number(candidate, "bytes"), find_number(candidate, "accuracy")
        if size is None or size <= 0 or value is None:
            continue
        key = find_text(candidate, "key") or ""
        won = bool(candidate.get("won"))
        tip = f"{key}: {score.show(value)} in {show_count(size)} bytes" + (", won its round" if won else "")
        points.append(Point("winner" if won else "candidate", key, size, value, tip.removeprefix(": ")))
    return points


def _find_finals(result: Mapping[str, Any], score: Score) -> list[Point]:
    points = []
    for final in find_rows(result, "finals"):
        size = find_flash(final) or find_number(final, "file_bytes")
        points.append(find_point("final", find_text(final, "name") or "final", size, final, score))
    return [point for point in points if point is not None]


def find_beside(dense: Mapping[str, Any], score: Score) -> list[Point]:
    """The dense network, and the same in 8 bits."""
    kinds = (("dense", "dense", dense), ("int8", "8 bits", find_part(dense, "int8")))
    points = [find_point(kind, name, find_number(net, "file_bytes"), net, score) for kind, name, net in kinds]
    return [point for point in points if point is not None]


def find_point(
    kind: str, name: str, size: float | None, net: Mapping[str, Any], score: Score
) -> Point | None:
    """A network; where it was trained with several seeds, their mean, and around it each of them."""
    seeds = find_part(net, "seeds")
    mean, spread = find_number(seeds, "mean"), find_number(seeds, "std")
    value = find_number(net, "accuracy") if mean is None else mean
    if size is None or size <= 0 or value is None:
        return None
    shown = score.show(value) if spread is None else f"{show_seeds(seeds, score)} (mean ± SD)"
    tip = f"{name}: {shown} in {show_count(size)} bytes"
    if spread is None:
        return Point(kind, name, size, value, tip)
    scores = [find_number({"": each}, "") for each in seeds.get("accuracies") or ()]
    numbers = seeds.get("seeds") or range(len(scores))
    each = [
        (found, f"{name}, seed {seed}: {score.show(found)}")
        for seed, found in zip(numbers, scores, strict=False)
        if found is not None
    ]
    return Point(kind, name, size, value, tip, spread, tuple(each))


def _find_limits(result: Mapping[str, Any]) -> list[float]:
    """The budgets, where they are sizes of files or flash: another kind has no place on this axis."""
    budget = find_part(result, "budget")
    if budget.get("kind") not in ("file", "flash"):
        return []
    limits = {find_number(final, "limit") for final in find_rows(result, "finals")}
    limits |= {find_number(budget, "limit")}
    return sorted(limit for limit in limits if limit is not None and limit > 0)


def _is_binary(result: Mapping[str, Any]) -> bool:
    """Whether the axis counts in KiB, as the budgets do; else in KB, as the rest of the page.

    >>> _is_binary({"budget": {"text": "20KiB, 10%"}}), _is_binary({"budget": {"text": "20 KB"}}), _is_binary({})
    (True, False, False)
    """
    return "ib" in (find_text(find_part(result, "budget"), "text") or "").lower()


def _note(below: int, absent: int) -> Markup | None:
    words = (
        [f"Triangles on the axis: {below} of the candidates, which score less than it shows."]
        if below
        else []
    )
    words += [f"Not drawn: {absent} of the candidates, which have no size or no score."] if absent else []
    return tag("p", " ".join(words), class_="note") if words else None


@dataclass(frozen=True)
class _Scatter:
    """What is drawn; the same at every width."""

    tried: list[Point]
    finals: list[Point]
    dense_score: float | None
    beside: list[Point]  # dense, and dense in 8 bits
    limits: list[float]
    score: Score
    axis: str  # what sizes are those of
    binary: bool  # whether they are in KiB, not in KB

    def draw(self, frame: Frame, name: str) -> Markup:
        x, y = self._scales(frame)
        count = 7 if frame is WIDE else 4
        find, show = (find_byte_ticks, show_byte_tick) if self.binary else (find_log_ticks, show_bytes)
        bytes_ticks = [(tick, show(tick)) for tick in find(x.low, x.high, count)]
        ticks = [tick for tick in find_ticks(y.low, y.high, 6) if not self.score.percent or 0 <= tick <= 100]
        return draw_figure(
            name, f"{self.score.name} against {self.axis}", self._describe(), frame.width, frame.height,
            frame.draw_y(y, [(tick, show_tick(tick)) for tick in ticks], self.score.axis),
            frame.draw_x(x, bytes_ticks, f"{self.axis}, log scale"),
            *[
                tag("line", x1=x.place(limit), x2=x.place(limit), y1=frame.top, y2=frame.height - frame.bottom,
                    class_="limit")
                for limit in self.limits
            ],
            self._draw_reference(frame, y),
            self._draw_frontier(x, y),
            *[self._draw_seeds(point, x, y) for point in (*self.finals, *self.beside)],
            *[self._draw_point(point, x, y) for point in (*self.tried, *self.finals, *self.beside)],
            self._draw_labels(frame, x, y),
        )  # fmt: skip

    def _scales(self, frame: Frame) -> tuple[Scale, Scale]:
        drawn = [*self.tried, *self.finals, *self.beside]
        sizes = [point.size for point in drawn] + self.limits
        x = Scale(*widen_log(min(sizes), max(sizes)), frame.left, frame.width - frame.right, log=True)
        scores = [value for point in drawn for value in point.reach]
        shown = [value for point in drawn if point.kind != "candidate" for value in point.reach]
        if self.dense_score is not None:
            scores, shown = [*scores, self.dense_score], [*shown, self.dense_score]
        low = min([find_low(scores), *shown])
        return x, Scale(*widen(low, max(scores)), frame.height - frame.bottom, frame.top)

    def count_below(self) -> int:
        """How many candidates lie under the axis."""
        _, y = self._scales(WIDE)
        return sum(point.kind == "candidate" and point.score < y.low for point in self.tried)

    def _draw_point(self, point: Point, x: Scale, y: Scale) -> Markup:
        below = point.kind == "candidate" and point.score < y.low
        at = {"data_key": point.key} if point.kind in ("candidate", "winner") else {}
        return marks.draw_mark(
            "low" if below else point.kind, x.place(point.size), y.clamp(point.score), point.tip, **at
        )

    def _draw_seeds(self, point: Point, x: Scale, y: Scale) -> Markup | None:
        """An error bar around a mean, and beside it a faint dot for each seed."""
        if point.spread is None:
            return None
        at = x.place(point.size)
        low, high = y.clamp(point.score - point.spread), y.clamp(point.score + point.spread)
        levels = [y.clamp(value) for value, _ in point.seeds]
        dots = [
            marks.draw_mark("seed", at - ASIDE - marks.APART * row, level, tip)
            for row, level, (_, tip) in zip(marks.count_aside(levels), levels, point.seeds, strict=True)
        ]
        return join(marks.draw_spread(point.kind, at, low, high), *dots)

    def _draw_reference(self, frame: Frame, y: Scale) -> Markup | None:
        if self.dense_score is None:
            return None
        level = y.place(self.dense_score)
        return tag(
            "line", x1=frame.left, x2=frame.width - frame.right, y1=level, y2=level, class_="reference"
        )

    def _draw_frontier(self, x: Scale, y: Scale) -> Markup | None:
        """Steps: a size between two networks affords the smaller of them."""
        places = self._corners(x, y)
        if len(places) < 2:
            return None
        path = f"M{places[0][0]:.1f} {places[0][1]:.1f}" + "".join(f"H{a:.1f}V{b:.1f}" for a, b in places[1:])
        return tag("path", d=path, class_="frontier")

    def _corners(self, x: Scale, y: Scale) -> list[tuple[float, float]]:
        """Where the networks of the frontier are."""
        steps = find_frontier([(point.size, point.score) for point in self.tried or self.finals])
        if not steps or steps[-1][0] < SEEN * steps[0][0]:
            return []
        return [(x.place(size), y.clamp(score)) for size, score in steps]

    def _draw_labels(self, frame: Frame, x: Scale, y: Scale) -> Markup:
        """Names at the final networks and at the dense level, where there is room; the table has all of them."""
        within = marks.Box(frame.left, 16, frame.width - 2, frame.height - frame.bottom - 1)
        crowd = [marks.box_around(x.place(p.size), y.clamp(p.score), 5) for p in self.tried]
        crowd += [marks.Box(x.place(limit) - 1, 0, x.place(limit) + 1, frame.height) for limit in self.limits]
        for (a, b), (c, d) in pairwise(self._corners(x, y)):  # the line of the frontier: along, then up
            crowd += [marks.Box(a, b - 1, c, b + 1), marks.Box(c - 1, min(b, d), c + 1, max(b, d))]
        places = [(x.place(p.size), y.clamp(p.score)) for p in self.finals]
        taken = [marks.box_around(a, b, 7) for a, b in places]
        taken += [marks.box_around(x.place(p.size), y.clamp(p.score), 5) for p in self.beside]
        for point in (*self.finals, *self.beside):
            across, levels = x.place(point.size), [y.clamp(value) for value in point.reach]
            rows = max(marks.count_aside([y.clamp(value) for value, _ in point.seeds]), default=0)
            left = across - ASIDE - marks.APART * rows - 3
            crowd.append(marks.Box(left, min(levels) - 3, across + 5, max(levels) + 3))
        labels = [
            (marks.boxes_beside(*place, words), words)
            for place, words in zip(places, self._names(frame), strict=True)
        ]
        if self.dense_score is not None:
            level = y.place(self.dense_score)
            crowd.append(marks.Box(0, level - 1, frame.width, level + 1))
            words = f"dense {self.score.show(self.dense_score)}"
            labels.append((_boxes_along(frame, level, words), words))
        drawn = []
        for choices, words in labels:
            box = marks.choose_box(choices, taken, crowd, within)
            if box is not None:
                taken.append(box)
                drawn.append(marks.draw_label(box, words))
        return join(*drawn)

    def _names(self, frame: Frame) -> list[str]:
        """The score too, where few names leave room for it."""
        long = len(self.finals) <= (4 if frame is WIDE else 1)
        names = [shorten(point.key, 16) for point in self.finals]
        return [
            f"{name} {self._show(point)}" if long else name
            for name, point in zip(names, self.finals, strict=True)
        ]

    def _show(self, point: Point) -> str:
        """Its score, with the spread over seeds."""
        if point.spread is None:
            return self.score.show(point.score)
        return show_seeds({"mean": point.score, "std": point.spread}, self.score)

    def _describe(self) -> str:
        found = find_frontier([(point.size, point.score) for point in self.tried or self.finals])
        steps = [f"{self.score.show(score)} at {show_count(size)} bytes" for size, score in found]
        return (
            f"{len(self.tried)} candidates and {len(self.finals)} final networks. "
            f"The best {self.score.name} at or below each size: {', '.join(steps)}."
        )

    def legend(self) -> Markup:
        kinds = {point.kind for point in self.tried}
        entries = [
            ("candidate" in kinds, marks.draw_mark("candidate", 14, 10), "candidate"),
            ("winner" in kinds, marks.draw_mark("winner", 14, 10), "winner of its round"),
            (bool(self.finals), marks.draw_mark("final", 14, 10), "final network"),
            *((True, marks.draw_mark(point.kind, 14, 10), point.key) for point in self.beside),
            (
                self._draw_frontier(Scale(1, 2, 0, 1), Scale(0, 1, 0, 1)) is not None,
                tag("path", d="M1 16H12V9H20V4H27", class_="frontier"),
                "best at or below each size",
            ),
            (
                any(point.spread is not None for point in (*self.finals, *self.beside)),
                join(
                    marks.draw_spread("final", 19, 3, 17),
                    marks.draw_mark("seed", 8, 7),
                    marks.draw_mark("seed", 8, 13),
                ),
                "mean ± standard deviation, and each seed",
            ),
            (bool(self.limits), tag("line", x1=14, x2=14, y1=1, y2=19, class_="limit"), "budget"),
        ]
        return marks.draw_legend([(drawing, words) for present, drawing, words in entries if present])


def _boxes_along(frame: Frame, level: float, words: str) -> list[marks.Box]:
    """Above or below a line across the figure, at one of several places."""
    width = marks.LETTER * len(words)
    first, last = frame.left + 4, frame.width - frame.right - 4 - width
    lefts = [first + (last - first) * step / 6 for step in range(7)]
    tops = (level - marks.LINE - 2, level + 3)
    return [marks.Box(left, top, left + width, top + marks.LINE) for top in tops for left in lefts]
