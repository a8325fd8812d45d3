"""Marks, legends and labels: every kind differs in shape or dash, not in colour alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from membound.report.markup import Markup, join, tag

COLOURS = 6
DASHES = 4
LETTER = 7.3  # pixels that a letter of a label takes, on the generous side
LINE = 13.0
APART = 5.0  # pixels between the dots of seeds of nearly the same score
RADII = {"candidate": 3.2, "seed": 2.2, "mean": 6.0}


def name_series(index: int) -> str:
    """The classes of the index-th network: colours and dashes together tell twelve apart.

    >>> name_series(0), name_series(7)
    ('s0 d0', 's1 d3')
    """
    return f"s{index % COLOURS} d{index % DASHES}"


def draw_mark(kind: str, x: float, y: float, tip: str | None = None, **attributes: object) -> Markup:
    """Circles are candidates, triangles those below, diamonds winners, stars final, squares dense or 8 bits.

    A small dot is one seed of those that a mark is the mean of; a large one is the mean of a method, which has a color.
    """
    hint = tag("title", tip) if tip else None
    if (first := kind.split()[0]) in RADII:
        return tag("circle", hint, cx=x, cy=y, r=RADII[first], class_=f"mark {kind}", **attributes)
    corners = {
        "low": _ring(x, y, (-5.0,), 3),
        "winner": _ring(x, y, (5.4,), 4),
        "final": _ring(x, y, (9, 3.9), 10),
        "dense": _square(x, y, 4.6),
        "int8": _square(x, y, 3.4),
    }
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in corners[kind]) + "Z"
    return tag(
        "path", hint, d=path, class_=f"mark {'candidate low' if kind == 'low' else kind}", **attributes
    )


def draw_spread(kind: str, x: float, low: float, high: float) -> Markup:
    """An error bar: a line from `low` to `high` with a cap at either end."""
    path = (
        f"M{x:.1f} {low:.1f}V{high:.1f}M{x - 5:.1f} {low:.1f}H{x + 5:.1f}M{x - 5:.1f} {high:.1f}H{x + 5:.1f}"
    )
    return tag("path", d=path, class_=f"spread {kind}")


def _ring(x: float, y: float, radii: Sequence[float], count: int) -> list[tuple[float, float]]:
    """Corners around a middle, the first at the top."""
    turns = [2 * math.pi * corner / count for corner in range(count)]
    return [
        (x + radii[corner % len(radii)] * math.sin(turn), y - radii[corner % len(radii)] * math.cos(turn))
        for corner, turn in enumerate(turns)
    ]


def _square(x: float, y: float, half: float) -> list[tuple[float, float]]:
    return [(x - half, y - half), (x + half, y - half), (x + half, y + half), (x - half, y + half)]


def draw_legend(entries: Sequence[tuple[Markup, str]]) -> Markup:
    """Small drawings, each with the words for it; they wrap as the page does."""
    items = [
        tag("li", tag("svg", drawing, viewBox="0 0 28 20", class_="key", aria_hidden="true"), words)
        for drawing, words in entries
    ]
    return tag("ul", *items, class_="legend")


def draw_line_key(classes: str) -> Markup:
    """A short line for a legend."""
    return tag("line", x1=1, x2=27, y1=10, y2=10, class_=f"line {classes}")


@dataclass(frozen=True)
class Box:
    """A rectangle that text or a mark takes up."""

    left: float
    top: float
    right: float
    bottom: float

    def shared(self, other: "Box") -> float:
        """The area that both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(width, 0.0) * max(height, 0.0)


def box_around(x: float, y: float, half: float) -> Box:
    return Box(x - half, y - half, x + half, y + half)


def boxes_beside(x: float, y: float, words: str, gap: float = 11) -> list[Box]:
    """Where the label of a mark may be: above, below, right, left and the corners."""
    width = LETTER * len(words)
    spots = [
        (x - width / 2, y - gap - LINE), (x - width / 2, y + gap), (x + gap, y - LINE / 2),
        (x - gap - width, y - LINE / 2), (x + gap, y - gap - LINE), (x - gap - width, y - gap - LINE),
        (x + gap, y + gap), (x - gap - width, y + gap), (x - width / 2, y - 2 * gap - LINE),
        (x - width / 2, y + 2 * gap),
    ]  # fmt: skip
    return [Box(left, top, left + width, top + LINE) for left, top in spots]


def choose_box(choices: Sequence[Box], taken: Sequence[Box], crowd: Sequence[Box], within: Box) -> Box | None:
    """The choice inside `within` that hides least of the crowd and nothing of what is taken; None if none is.

    >>> free, hidden, edge = Box(0, 0, 9, 9), Box(20, 0, 29, 9), Box(-5, 0, 4, 9)
    >>> choose_box([edge, hidden, free], [Box(25, 5, 26, 6)], [], Box(0, 0, 50, 50)) == free
    True
    """
    fitting = [
        choice
        for choice in choices
        if choice.left >= within.left
        and choice.right <= within.right
        and choice.top >= within.top
        and choice.bottom <= within.bottom
        and not any(choice.shared(box) for box in taken)
    ]
    return min(fitting, key=lambda choice: sum(choice.shared(box) for box in crowd), default=None)


def draw_label(box: Box, words: str, kind: str = "label") -> Markup:
    """Words in the middle of their box, with a rim of the page's colour."""
    return tag(
        "text", words, x=(box.left + box.right) / 2, y=box.bottom - 3, text_anchor="middle", class_=kind
    )


def draw_swatch(index: int) -> Markup:
    """The key of a bar."""
    return join(tag("rect", x=4, y=4, width=20, height=12, class_=f"bar s{index % COLOURS}"))


def count_aside(levels: Sequence[float]) -> list[int]:
    """How many dots aside each of them is, so that none hides another.

    >>> count_aside([10.0, 30.0, 11.0, 12.0])
    [0, 0, 1, 2]
    """
    placed: list[tuple[float, int]] = []
    for level in levels:
        taken = {row for other, row in placed if abs(other - level) < APART}
        placed.append((level, next(row for row in range(len(levels)) if row not in taken)))
    return [row for _, row in placed]
