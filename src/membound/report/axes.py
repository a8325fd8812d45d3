"""Scales, ticks and the frame of a figure, in SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from membound.report.markup import Markup, join, tag
from membound.units import format_bytes

FAR = 4000.0  # pixels: a point further out is drawn there, outside of every figure
KEPT_SPREADS = 4  # how much of the low values a figure shows, in distances from the best to the quartile


@dataclass(frozen=True)
class Scale:
    """Where a value lies between the pixels `start` and `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """
        >>> Scale(1, 100, 0, 200, log=True).place(10)
        100.0
        """
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        position = self.start + (value - low) / (high - low) * (self.end - self.start)
        return min(max(position, -FAR), FAR)

    def clamp(self, value: float) -> float:
        """The place of `value`, or of the nearer end of the scale."""
        return self.place(min(max(value, self.low), self.high))


def find_low(values: Sequence[float]) -> float:
    """Where an axis of scores begins: far failures must not flatten all that is worth comparing.

    >>> find_low([97.0, 98.0, 99.0]), find_low([10.0, 98.0, 98.2, 98.8, 99.0])
    (97.0, 95.0)
    """
    ranked = sorted(values)
    quartile = ranked[len(ranked) // 4]
    spread = ranked[-1] - quartile
    return max(ranked[0], ranked[-1] - KEPT_SPREADS * spread) if spread > 0 else ranked[0]


def widen(low: float, high: float, share: float = 0.06) -> tuple[float, float]:
    """A little room on both sides, also where all values are the same.

    >>> widen(0, 100), widen(5, 5)
    ((-6.0, 106.0), (4.75, 5.25))
    """
    same = high - low <= abs(high) * 1e-6  # no tick could tell them apart
    room = (abs(high) * 0.05 or 1.0) if same else (high - low) * share
    return low - room, high + room


def widen_log(low: float, high: float, share: float = 0.06) -> tuple[float, float]:
    """The same in proportion; at least by a quarter."""
    factor = max((high / low) ** share, 1.25)
    return low / factor, high * factor


def find_ticks(low: float, high: float, count: int) -> list[float]:
    """At most count + 1 round numbers from low to high.

    >>> find_ticks(0, 100, 5), find_ticks(98.2, 99.2, 4)
    ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [98.5, 99.0])
    """
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def find_log_ticks(low: float, high: float, count: int) -> list[float]:
    """Powers of ten, with steps between them where there is room, without some where there is not.

    >>> find_log_ticks(0.008, 3, 5), find_log_ticks(900, 500000, 7)
    ([0.01, 0.1, 1.0], [1000.0, 3000.0, 10000.0, 30000.0, 100000.0, 300000.0])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for times, every in (((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2), ((1,), 4), ((1,), 20)):
        found = [float(f"{n}e{power}") for power in decades if power % every == 0 for n in times]
        found = [value for value in found if low <= value <= high]
        if len(found) <= count:
            break
    return found if len(found) >= 2 else find_ticks(low, high, count)


def find_byte_ticks(low: float, high: float, count: int) -> list[float]:
    """Powers of two, or round numbers of their unit where a power of two comes too rarely.

    >>> find_byte_ticks(2000, 2_000_000, 6)
    [4096.0, 16384.0, 65536.0, 262144.0, 1048576.0]
    >>> find_byte_ticks(20000, 31000, 4)
    [20480.0, 25600.0, 30720.0]
    """
    powers = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    if len(powers) < 3:
        unit = next(size for size in (1024**3, 1024**2, 1024, 1) if high >= 2 * size or size == 1)
        return [tick * unit for tick in find_ticks(low / unit, high / unit, count)]
    every = next(step for step in range(1, 100) if sum(power % step == 0 for power in powers) <= count)
    return [2.0**power for power in powers if power % every == 0]


def show_tick(value: float) -> str:
    """
    >>> show_tick(0.1), show_tick(12000.0), show_tick(2500000.0), show_tick(98.5), show_tick(1324.0)
    ('0.1', '12k', '2.5M', '98.5', '1,324')
    """
    if 1e3 <= abs(value) < 1e5 and value % 100:
        return f"{value:,.6g}"
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.4g}{letter}"
    return f"{value:.6g}"


def show_byte_tick(value: float) -> str:
    """
    >>> show_byte_tick(4096.0), show_byte_tick(1024.0 * 1.5)
    ('4 KiB', '1.5 KiB')
    """
    number, unit = format_bytes(round(value)).split()
    return f"{float(number):g} {unit}"


@dataclass(frozen=True)
class Frame:
    """The part of a figure that the axes enclose."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float

    def draw_x(self, scale: Scale, ticks: Sequence[tuple[float, str]], name: str) -> Markup:
        """Ticks below and the name of the axis under them."""
        floor = self.height - self.bottom
        marks = [
            join(
                tag("line", x1=x, x2=x, y1=floor, y2=floor + 4, class_="axis"),
                tag("text", label, x=x, y=floor + 17, text_anchor=_anchor(x, self), class_="tick"),
            )
            for x, label in ((scale.place(value), label) for value, label in ticks)
        ]
        line = tag("line", x1=self.left, x2=self.width - self.right, y1=floor, y2=floor, class_="axis")
        middle = (self.left + self.width - self.right) / 2
        title = tag("text", name, x=middle, y=self.height - 5, text_anchor="middle", class_="name")
        return join(line, *marks, title)

    def draw_y(self, scale: Scale, ticks: Sequence[tuple[float, str]], name: str | None = None) -> Markup:
        """Lines across at the ticks, their numbers on the left, the name of the axis above them."""
        marks = [
            join(
                tag("line", x1=self.left, x2=self.width - self.right, y1=y, y2=y, class_="grid"),
                tag("text", label, x=self.left - 6, y=y + 4, text_anchor="end", class_="tick"),
            )
            for y, label in ((scale.place(value), label) for value, label in ticks)
        ]
        return join(*marks, tag("text", name, x=2, y=11, class_="name") if name else None)


def _anchor(x: float, frame: Frame) -> str:
    """Labels at the right end must not run out of the figure."""
    return "end" if x > frame.width - frame.right - 12 else "middle"


def draw_figure(
    name: str, title: str, description: str, width: float, height: float, *parts: object
) -> Markup:
    """An SVG that scales with the page and says what it shows; `name` is unique in the page."""
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        *parts,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        class_=name.split("-")[0],
    )
