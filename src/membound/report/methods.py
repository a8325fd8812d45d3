"""Networks of one budget side by side: a column each, and each against each, paired by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from membound.report import marks
from membound.report.alike import ALIKE, find_unequal
from membound.report.axes import Frame, Scale, draw_figure, find_ticks, show_tick, widen
from membound.report.device import find_flash
from membound.report.markup import Markup, join, tag
from membound.report.paired import (
    BETTER,
    TOO_FEW,
    WITHIN,
    WORSE,
    Comparison,
    compare_networks,
    say_rule_of,
    show_difference,
)
from membound.report.scatter import Point, find_beside, find_point
from membound.report.tables import draw_table
from membound.report.text import ABSENT, Score, find_number, find_part, find_rows, find_text, shorten

WIDE = Frame(width=860, height=400, left=52, right=16, top=30, bottom=42)
NARROW = Frame(width=352, height=330, left=44, right=10, top=30, bottom=42)
TURNED = 34  # pixels that turned names take below the others
LETTER = 6.4  # pixels that a letter of a tick takes
LEAST_PART = 0.25  # of the figure's height that the methods have: dense is left out where it would take more
LONGEST = 14  # letters of a name that is turned
ASIDE = 13.0  # pixels from the mean to the dots of seeds

Facts = Mapping[str, Any]


def have_one_budget(result: Facts) -> bool:
    """Whether several networks were made for one budget, within a percent.

    >>> have_one_budget({"finals": [{"limit": 8000}, {"limit": 8050}]}), have_one_budget({"finals": [{"limit": 8000}]})
    (True, False)
    """
    finals = find_rows(result, "finals")
    limits = [find_number(final, "limit") or 0.0 for final in finals]
    return len(finals) > 1 and 0 < max(limits) <= ALIKE * min(limits)


def make_columns(result: Facts, score: Score) -> Markup | None:
    """A column for each method: its mean ± standard deviation, and a dot for each seed; None where budgets differ."""
    if not have_one_budget(result):
        return None
    finals = find_rows(result, "finals")
    found = [
        find_point("final", find_text(final, "name") or "final", _size(final), final, score)
        for final in finals
    ]
    points = [(index, point) for index, point in enumerate(found) if point is not None]
    if len(points) < 2:
        return None
    beside, left_out = _choose_beside(
        [point for _, point in points], find_beside(find_part(result, "dense"), score)
    )
    figure = _Columns(points, beside, score)
    return join(
        tag("div", figure.draw(WIDE, "columns-wide"), class_="wide"),
        tag("div", figure.draw(NARROW, "columns-narrow"), class_="narrow"),
        figure.legend(),
        _note(left_out),
    )


def _size(final: Facts) -> float | None:
    return find_flash(final) or find_number(final, "file_bytes")


def _choose_beside(points: Sequence[Point], beside: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """Dense and 8 bits that are near enough to be drawn, and those so far off that the methods would look the same."""
    reach = [value for point in points for value in point.reach]
    low, high = min(reach), max(reach)
    near: list[Point] = []
    far: list[Point] = []
    for point in beside:
        whole = max(high, *point.reach) - min(low, *point.reach)
        (near if high - low >= LEAST_PART * whole else far).append(point)
    return near, far


def _note(left_out: Sequence[Point]) -> Markup | None:
    if not left_out:
        return None
    return tag("p", f"Too far away to draw: {'; '.join(point.tip for point in left_out)}.", class_="note")


@dataclass(frozen=True)
class _Columns:
    """What is drawn; the same at every width."""

    points: Sequence[tuple[int, Point]]  # a method's index, which is its color, and what it reached
    beside: Sequence[Point]  # dense, and dense in 8 bits
    score: Score

    @property
    def all(self) -> list[tuple[str, Point]]:
        """Each with the classes of its marks."""
        methods = [(f"s{index % marks.COLOURS}", point) for index, point in self.points]
        return [*methods, *(("", point) for point in self.beside)]

    def draw(self, frame: Frame, name: str) -> Markup:
        slot = (frame.width - frame.left - frame.right) / len(self.all)
        turned = max(len(point.key) for _, point in self.all) * LETTER > slot
        if turned:
            frame = replace(frame, height=frame.height + TURNED, bottom=frame.bottom + TURNED)
        reach = [value for _, point in self.all for value in point.reach]
        y = Scale(*widen(min(reach), max(reach)), frame.height - frame.bottom, frame.top)
        ticks = [tick for tick in find_ticks(y.low, y.high, 6) if not self.score.percent or 0 <= tick <= 100]
        places = [frame.left + slot * (number + 0.5) for number in range(len(self.all))]
        floor = frame.height - frame.bottom
        drawn = [
            self._draw_column(classes, point, x, y)
            for (classes, point), x in zip(self.all, places, strict=True)
        ]
        return draw_figure(
            name, f"{self.score.name} of each method", self._describe(), frame.width, frame.height,
            frame.draw_y(y, [(tick, show_tick(tick)) for tick in ticks], self.score.axis),
            tag("line", x1=frame.left, x2=frame.width - frame.right, y1=floor, y2=floor, class_="axis"),
            self._draw_edge(frame, slot),
            *drawn,
            *self._draw_names(places, 0 if turned else int(slot / LETTER), floor),
        )  # fmt: skip

    def _draw_edge(self, frame: Frame, slot: float) -> Markup | None:
        """What has another size than the methods stands behind a line."""
        if not self.beside:
            return None
        x = frame.left + slot * len(self.points)
        return tag("line", x1=x, x2=x, y1=frame.top, y2=frame.height - frame.bottom, class_="limit")

    def _draw_column(self, classes: str, point: Point, x: float, y: Scale) -> Markup:
        level = y.place(point.score)
        if point.spread is None:
            return self._draw_mean(classes, point, x, level)
        spread = marks.draw_spread(
            f"{point.kind} {classes}".strip(),
            x,
            y.place(point.score - point.spread),
            y.place(point.score + point.spread),
        )
        rows = marks.count_aside([y.place(value) for value, _ in point.seeds])
        dots = [
            marks.draw_mark(f"seed {classes}".strip(), x - ASIDE - marks.APART * row, y.place(value), tip)
            for row, (value, tip) in zip(rows, point.seeds, strict=True)
        ]
        return join(spread, *dots, self._draw_mean(classes, point, x, level))

    def _draw_mean(self, classes: str, point: Point, x: float, level: float) -> Markup:
        kind = f"mean {classes}" if point.kind == "final" else point.kind
        return marks.draw_mark(kind, x, level, point.tip)

    def _draw_names(self, places: Sequence[float], letters: int, floor: float) -> list[Markup]:
        """Below the columns, with their means where `letters` leave room; where not even names fit, they are turned."""
        drawn = []
        for (_, point), x in zip(self.all, places, strict=True):
            if not letters:
                words, at = shorten(point.key, LONGEST), f"rotate(-40 {x:.1f} {floor + 14:.1f})"
                drawn.append(
                    tag("text", tag("title", point.tip), words, x=x + 5, y=floor + 14, text_anchor="end",
                        transform=at, class_="tick")
                )  # fmt: skip
                continue
            shown = self._show(point)
            drawn.append(
                tag("text", tag("title", point.tip), point.key, x=x, y=floor + 17, text_anchor="middle", class_="tick")
            )  # fmt: skip
            if len(shown) <= letters:
                drawn.append(tag("text", shown, x=x, y=floor + 33, text_anchor="middle", class_="value"))
        return drawn

    def _show(self, point: Point) -> str:
        """A mean and its spread as short as they are clear."""
        if point.spread is None:
            return self.score.show(point.score)
        if self.score.percent:
            return f"{point.score:.2f} ± {point.spread:.2f}"
        return f"{point.score:.4g} ± {point.spread:.2g}"

    def _describe(self) -> str:
        return "; ".join(point.tip for _, point in self.all)

    def legend(self) -> Markup | None:
        """Names that the figure has in full are not said again."""
        cut = any(len(point.key) > LONGEST for _, point in self.all)
        keys = [
            (marks.draw_mark(f"mean {classes}" if point.kind == "final" else point.kind, 14, 10), point.key)
            for classes, point in self.all
            if cut
        ]
        if any(point.spread is not None for _, point in self.all):
            drawing = join(
                marks.draw_spread("dense", 19, 3, 17),
                marks.draw_mark("seed", 8, 7),
                marks.draw_mark("seed", 8, 13),
            )
            keys.append((drawing, "mean ± standard deviation, and each seed"))
        return marks.draw_legend(keys) if keys else None


def make_duels(result: Facts, score: Score) -> Markup | None:
    """A table of each method against each, paired by seed; None where budgets differ, or nothing can be compared."""
    if not have_one_budget(result):
        return None
    finals = find_rows(result, "finals")
    names = [find_text(final, "name") or "final" for final in finals]
    found = [
        [None if ours is other else compare_networks(ours, other) for other in finals] for ours in finals
    ]
    known = [each for row in found for each in row if each is not None]
    if not known:
        return None
    rows = [[name, *map(_cell, row)] for name, row in zip(names, found, strict=True)]
    table = draw_table(["row \N{MINUS SIGN} column", *names], rows, "method against method")
    return join(tag("div", table, class_="duels"), tag("p", _say_rule(known, score), class_="note"))


def _cell(found: Comparison | None) -> Markup | str:
    if found is None:
        return ABSENT
    shown = show_difference(found.difference, found.uncertainty, "+")
    kind = found.verdict if found.verdict in (BETTER, WORSE) else None
    return join(shown, tag("small", found.verdict, class_=kind) if found.verdict else None)


def _say_rule(known: Sequence[Comparison], score: Score) -> str:
    """What the numbers of the table are."""
    counts = {len(each.seeds) for each in known}
    what = f"Each row's {score.name} less each column's{', in points' if score.percent else ''}"
    if max(counts) < 2:
        if known[0].uncertainty is None:
            return f"{what}, of one seed: nothing says how much of it is chance. Use three seeds or more."
        paired = all(each.by_image for each in known)
        how = "paired by example" if paired else "of 1.96 standard errors"
        return (
            f"{what}, ± half its 95 % confidence interval over test examples, {how}, of one seed: another seed may "
            "say otherwise. Use three seeds or more."
        )
    seeds = f"{max(counts)} seeds" if len(counts) == 1 else f"{min(counts)} to {max(counts)} seeds"
    return (
        f"{what}: the mean over {seeds} of the differences seed by seed. "
        f"{say_rule_of([each.verdict for each in known])} Intervals are by Student's t; about 1 in 20 comparisons of "
        "equals excludes 0 by chance."
    )


def say_best(result: Facts, score: Score) -> str | None:
    """Which methods the best one beats, in a sentence; None where budgets differ or one seed says it all.

    >>> a = {"seeds": [0, 1, 2], "accuracies": [9.1, 9.2, 9.3], "mean": 9.2}
    >>> b = {"seeds": [0, 1, 2], "accuracies": [8.0, 8.1, 8.3], "mean": 8.13}
    >>> finals = [{"name": name, "limit": 8000, "seeds": each} for name, each in (("A", a), ("B", b), ("C", a))]
    >>> say_best({"finals": finals}, Score())
    'Paired by seed, A is better than B; C is within the spread of it.'
    >>> say_best({"finals": [finals[0], finals[2]]}, Score())
    'Paired by seed, these seeds cannot tell A and C apart (0.00 ± 0.00 points).'
    """
    finals = find_rows(result, "finals")
    means = [find_number(find_part(final, "seeds"), "mean") for final in finals]
    known = [each for each in means if each is not None]
    if not have_one_budget(result) or len(known) < len(finals):
        return None
    best = finals[known.index(max(known))]
    others = [(find_text(each, "name"), compare_networks(best, each)) for each in finals if each is not best]
    named = {
        word: [str(name) for name, found in others if found is not None and found.verdict == word]
        for word in (BETTER, WITHIN, TOO_FEW)
    }
    beaten, tied, few = named.values()
    if not beaten and not tied and not few:
        return None
    name = str(find_text(best, "name"))
    if not beaten and not few:
        return (
            f"Paired by seed, these seeds cannot tell {_list([name, *tied])} apart{_say_gap(others, score)}."
        )
    rest = [f"{_list(tied)} {'is' if len(tied) == 1 else 'are'} {WITHIN} of it"] if tied else []
    rest += [f"two seeds are too few to tell for {_list(few)}"] if few else []
    if not beaten:
        return f"Paired by seed, {name} is ahead, but {' and '.join(rest)}."
    return f"Paired by seed, {'; '.join([f'{name} is better than {_list(beaten)}', *rest])}."


def _say_gap(others: Sequence[tuple[str | None, Comparison | None]], score: Score) -> str:
    """By how much the best is ahead of a single other."""
    found = [each for _, each in others if each is not None]
    if len(found) != 1:
        return ""
    shown = show_difference(found[0].difference, found[0].uncertainty, "+" if found[0].difference else "-")
    return f" ({shown} points)" if score.percent else f" ({shown})"


def say_unlike(result: Facts) -> str | None:
    """What networks differ in beside method and budget, each against the first: no fair race.

    That dense in 8 bits took the place of some of several budgets is said of all of them elsewhere.

    >>> finals = [{"name": name, "training": {"steps": steps}} for name, steps in (("A", 9), ("B", 9), ("C", 5))]
    >>> say_unlike({"finals": finals}), say_unlike({"finals": finals[:2]})
    ('Not alike: A and C: steps 9 and 5.', None)
    >>> budgets = [{"name": "8KB", "limit": 8000, "is_dense_in_8_bits": True}, {"name": "4KB", "limit": 4000}]
    >>> say_unlike({"finals": budgets}), say_unlike({"finals": [each | {"limit": 8000} for each in budgets]})
    (None, 'Not alike: 8KB and 4KB: file dense in 8 bits and fitted.')
    """
    first, *others = ({**final, "limit": None} for final in find_rows(result, "finals"))
    is_race = have_one_budget(result)
    found = []
    for other in others:
        unequal = [each for each in find_unequal(first, other) if is_race or not each.startswith("file ")]
        if unequal:
            found.append(f"{find_text(first, 'name')} and {find_text(other, 'name')}: {', '.join(unequal)}")
    return f"Not alike: {'; '.join(found)}." if found else None


def _list(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
