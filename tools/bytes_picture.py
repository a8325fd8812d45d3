"""Accuracy against bytes, dense, int8, 4 bits and ours: the README's table, and docs/accuracy-bytes.svg.

python tools/bytes_picture.py

All of it comes from results/few-bits-*.json and results/quantized-*.json: a network is there once its file is.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from membound.report.markup import Markup, join, tag
from membound.store.whole import replace_file

ROOT = Path(__file__).resolve().parents[1]
RESULTS, README, PICTURE = ROOT / "results", ROOT / "README.md", ROOT / "docs" / "accuracy-bytes.svg"
BEGIN, END = "<!-- files that fit writes: begin -->", "<!-- files that fit writes: end -->"
TITLES = {
    "lenet": "LeNet, MNIST",
    "quick": "CIFAR-10-quick, CIFAR-10",
    "alexnet": "AlexNet, Imagenette",
    "lite0": "EfficientNet-Lite0, Imagenette",
    "resnet8": "ResNet-8, CIFAR-10",
}
ELSEWHERE = {
    "quick": "frontier-quick-deployed",
    "lite0": "efficientnet-lite0",
}  # dense, where nothing else has it
CONTENDERS = {"f32": "dense", "int8": "int8", "4 bits, trained": "4 bits"}
WIDTH, HEIGHT, ACROSS, LEFT, TOP, BOTTOM = 300, 200, 3, 46, 34, 34
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1a1d21; }
.soft { fill: #59616b; font-size: 11px; }
.title { font-weight: 600; font-size: 13px; }
.page { fill: #fff; } .frame { fill: none; stroke: #d8dde3; }
.dense { fill: #1a1d21; } .int8 { fill: #8b3fa8; } .four { fill: #0b63b6; } .ours { fill: #b3470a; }
.line { fill: none; stroke: #b3470a; stroke-width: 1.5; }
"""
KINDS = {"dense": "dense", "int8": "int8", "4 bits": "four", "membound": "ours"}


@dataclass(frozen=True)
class Point:
    """One kind of file of a network: its bytes, and its accuracy over seeds."""

    kind: str
    size: int
    mean: float
    std: float

    def show(self) -> str:
        """
        >>> Point("int8", 433980, 99.33, 0.0436).show()
        '99.33 ± 0.04 %, 434 KB'
        """
        return f"{self.mean:.2f} ± {self.std:.2f} %, {show_bytes(self.size)}"


def show_bytes(size: float) -> str:
    """
    >>> show_bytes(4972), show_bytes(1346492), show_bytes(56957084)
    ('5.0 KB', '1.35 MB', '57 MB')
    """
    unit, number = ("MB", size / 1e6) if size >= 1e6 else ("KB", size / 1e3)
    digits = 0 if number >= 10 else 2 if unit == "MB" else 1
    return f"{number:,.{digits}f} {unit}"


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def networks() -> Iterator[tuple[str, list[Point]]]:
    """Each network and its points, the peers first."""
    for path in sorted(RESULTS.glob("few-bits-*.json"), key=lambda path: _rank(path.stem)):
        name, found = path.stem.removeprefix("few-bits-"), json.loads(path.read_text())
        if "net" in found and name in TITLES:
            yield name, [*_peers(name), *_ours(name, found["summary"])]


def _rank(stem: str) -> int:
    name = stem.removeprefix("few-bits-")
    return list(TITLES).index(name) if name in TITLES else len(TITLES)


def _peers(name: str) -> list[Point]:
    if (RESULTS / f"quantized-{name}.json").exists():
        rows = [row for row in read(f"quantized-{name}")["summary"] if row["width"] == 1.0]
        return [
            Point(CONTENDERS[row["contender"]], row["bytes"], row["mean"], row["std"])
            for row in rows
            if row["contender"] in CONTENDERS
        ]
    if name not in ELSEWHERE:
        return []
    first = read(ELSEWHERE[name])["summary"][0]
    dense = first.get("dense", first)
    return [Point("dense", _float32_bytes(name), dense.get("mean", dense.get("accuracy")), dense["std"])]


def _float32_bytes(name: str) -> int:
    """Four bytes for each parameter, as the peers are counted."""
    from membound import zoo

    network = zoo.build_for(read(f"few-bits-{name}")["net"], classes=10)  # as these data sets have
    return 4 * sum(weight.numel() for weight in network.parameters())


def _ours(name: str, summary: list[dict[str, Any]]) -> list[Point]:
    """Of the length of training that the peers had, where they are known; else of the longest."""
    rows = [row for row in summary if row["values"] == "auto" and "note" not in row]
    peers = RESULTS / f"quantized-{name}.json"
    steps = json.loads(peers.read_text())["steps"] if peers.exists() else None
    if steps not in {row["steps"] for row in rows}:
        steps = max(row["steps"] for row in rows)
    found = [
        Point("membound", row["file_bytes"], row["accuracy"]["mean"], row["accuracy"]["std"])
        for row in rows
        if row["steps"] == steps
    ]
    return sorted(found, key=lambda point: -point.size)


def make_table() -> str:
    """The rows are files that fit writes; beside them what one would ship today."""
    lines = ["| | dense, float32 | int8 | 4 bits, trained | **membound fit** |", "|---|---|---|---|---|"]
    for name, points in networks():
        peers = [
            next((p.show() for p in points if p.kind == kind), "not measured")
            for kind in ("dense", "int8", "4 bits")
        ]
        ours = "; ".join(f"**{point.show()}**" for point in points if point.kind == "membound")
        lines.append(f"| [{TITLES[name]}](results/few-bits-{name}.json) | {' | '.join(peers)} | {ours} |")
    return "\n".join(lines)


def make_picture() -> str:
    """A panel for each network."""
    panels = [
        (name, points) for name, points in networks() if any(point.kind != "membound" for point in points)
    ]
    rows = -(-len(panels) // ACROSS)
    width, height = ACROSS * WIDTH, rows * HEIGHT + 30
    drawn = [
        tag("g", *_draw_panel(TITLES[name], points),
            transform=f"translate({index % ACROSS * WIDTH}, {index // ACROSS * HEIGHT})")
        for index, (name, points) in enumerate(panels)
    ]  # fmt: skip
    legend = [
        join(
            tag("circle", cx=LEFT + 110 * index, cy=rows * HEIGHT + 14, r=5, class_=kind),
            tag("text", name, x=LEFT + 110 * index + 10, y=rows * HEIGHT + 18),
        )
        for index, (name, kind) in enumerate(KINDS.items())
    ]
    page = tag("rect", x=0, y=0, width=width, height=height, class_="page")
    words = "Accuracy against bytes of the file: dense, int8, 4 bits and membound"
    box = {"viewBox": f"0 0 {width} {height}", "xmlns": "http://www.w3.org/2000/svg", "role": "img"}
    return (
        tag("svg", tag("title", words), Markup(f"<style>{STYLE}</style>"), page, *drawn, *legend, **box)
        + "\n"
    )


def _draw_panel(title: str, points: list[Point]) -> list[Markup]:
    room, high = WIDTH - LEFT - 20, HEIGHT - TOP - BOTTOM
    sizes = [math.log10(point.size) for point in points]
    least, most = min(sizes) - 0.25, max(sizes) + 0.25
    bottom = math.floor(min(point.mean - point.std for point in points) - 0.3)
    top = math.ceil(max(point.mean + point.std for point in points) + 0.1)

    def place(point: Point) -> tuple[float, float]:
        across = (math.log10(point.size) - least) / (most - least)
        return LEFT + across * room, TOP + (top - point.mean) / (top - bottom) * high

    ours = [place(point) for point in points if point.kind == "membound"]
    path = " ".join(f"{'L' if number else 'M'}{x:.1f},{y:.1f}" for number, (x, y) in enumerate(ours))
    marks = []
    for number, point in enumerate(sorted(points, key=lambda point: point.size)):
        x, y = place(point)
        tip = tag("title", f"{point.kind}: {point.show()}")
        marks.append(tag("circle", tip, cx=x, cy=y, r=5, class_=KINDS[point.kind]))
        marks.append(
            tag(
                "text",
                show_bytes(point.size),
                x=x,
                y=y + (-9 if number % 2 else 18),
                text_anchor="middle",
                class_="soft",
            )
        )
    return [
        tag("text", title, x=LEFT, y=20, class_="title"),
        tag("rect", x=LEFT, y=TOP, width=room, height=high, class_="frame"),
        tag("text", f"{top} %", x=LEFT - 6, y=TOP + 8, text_anchor="end", class_="soft"),
        tag("text", f"{bottom} %", x=LEFT - 6, y=TOP + high, text_anchor="end", class_="soft"),
        tag("text", "bytes of the file, log scale", x=LEFT + room / 2, y=TOP + high + 16, text_anchor="middle",
            class_="soft"),
        tag("path", d=path, class_="line"),
        *marks,
    ]  # fmt: skip


def with_table(page: str) -> str:
    """The README with the table of now."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{make_table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    replace_file(PICTURE, [make_picture().encode()])
    replace_file(README, [with_table(README.read_text()).encode()])
