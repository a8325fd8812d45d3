"""The tables of docs/INT8.md and the picture beside them, from results/: python tools/int8_page.py"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE, PICTURE, RESULTS = ROOT / "docs" / "INT8.md", ROOT / "docs" / "int8.svg", ROOT / "results"
MARKS = {
    name: (f"<!-- {name}: python tools/int8_page.py -->\n", "<!-- end -->\n") for name in ("equal", "parts")
}
NETWORKS = {
    "lenet": "LeNet, MNIST",
    "quick": "CIFAR-10-quick",
    "resnet8": "ResNet-8, CIFAR-10, not augmented",
    "lite0": "EfficientNet-Lite0, Imagenette",
    "alexnet": "AlexNet, Imagenette",
}
PLAIN = {
    "lite0": "efficientnet-lite0.json",
    "alexnet": "pretrained-alexnet-smaller.json",
}  # 16 bits, by another script
OURS, HALF = "membound, few bits", "membound, 16 bits"
COLORS = {
    "f32": "#6b7280", "int8": "#d97706", "int8, trained": "#b45309", "4 bits, trained": "#7c3aed",
    HALF: "#93c5fd", OURS: "#1d4ed8",
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """What a way of making a network small comes to."""

    contender: str
    note: str
    size: int
    mean: float
    std: float
    seeds: int


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return found


def points(net: str) -> list[Point]:
    """Of one network, the largest files first."""
    return sorted(_points(net), key=lambda point: -point.size)


def _points(net: str) -> Iterator[Point]:
    for row in load(f"quantized-{net}.json")["summary"]:
        note = "" if row["width"] == 1 else f"{row['width']:g} of the width"
        yield Point(row["contender"], note, row["bytes"], row["mean"], row["std"], row["n"])
    rows = load(f"few-bits-{net}.json")["summary"]
    steps = {row.get("steps") for row in rows}
    for row in rows:
        kind = {"auto": OURS, "f16": HALF}.get(row["values"])
        if kind is not None:
            score = row["accuracy"]
            note = f"{row['steps']:,} steps" if len(steps) > 1 else ""
            yield Point(kind, note, row["file_bytes"], score["mean"], score["std"], score["n"])
    if net == "resnet8":  # the same training but for the number's format and 281 steps
        row = next(
            row for row in load("best-for-bytes-parts.json")["summary"] if row["name"] == "f16, no recipe"
        )
        score = row["accuracy"]
        yield Point(HALF, "11,719 steps, bf16", row["most_bytes"], score["mean"], score["std"], score["n"])
    for row in load(PLAIN[net])["summary"] if net in PLAIN else ():
        yield Point(HALF, "", row["limit"], row["sparse"]["mean"], row["sparse"]["std"], row["sparse"]["n"])


def show_bytes(size: int) -> str:
    """As on a disk: powers of ten.

    >>> show_bytes(7964), show_bytes(146588), show_bytes(1346492), show_bytes(227636776)
    ('8.0 KB', '147 KB', '1.35 MB', '228 MB')
    """
    if size < 1_000_000:
        return f"{size / 1000:.1f} KB" if size < 100_000 else f"{size / 1000:.0f} KB"
    return f"{size / 1e6:.2f} MB" if size < 10_000_000 else f"{size / 1e6:.0f} MB"


def equal_table() -> str:
    """Every contender of every network, by size."""
    lines = ["| network | what | bytes | accuracy, % | seeds |", "|---|---|---|---|---|"]
    for net, title in NETWORKS.items():
        for number, point in enumerate(points(net)):
            what = point.contender + (f" ({point.note})" if point.note else "")
            score = f"{point.mean:.2f} ± {point.std:.2f}"
            if point.contender == OURS:
                what, score = f"**{what}**", f"**{score}**"
            name = title if number == 0 else ""
            lines.append(f"| {name} | {what} | {show_bytes(point.size)} | {score} | {point.seeds} |")
    return "\n".join(lines) + "\n"


def parts_table() -> str:
    """Where the bytes of files are, of the first seed of each."""
    lines = [
        "| file | bytes | values | positions | their entropy | scales | palettes | header |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for net, title in NETWORKS.items():
        seen = set()
        for row in load(f"few-bits-{net}.json")["rows"]:
            if row["values"] != "auto" or row["budget"] in seen or row["seed"] != 0:
                continue
            seen.add(row["budget"])
            part = row["bytes"]
            over = part["layers_position_bytes"] / part["layers_position_entropy_bytes"] - 1
            cells = [
                f"{title.split(',')[0]}, {show_bytes(row['limit'])}", f"{row['file_bytes']:,}",
                f"{part['layers_value_bytes']:,}", f"{part['layers_position_bytes']:,}",
                f"{part['layers_position_entropy_bytes']:,.0f} (+{100 * over:.1f} %)",
                f"{part['layers_scale_bytes']:,}", f"{part['layers_palette_bytes']:,}", f"{part['header_bytes']:,}",
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


# The picture: a panel for each network, accuracy against bytes.

WIDTH, PANEL, LEFT, TOP, BOTTOM, GAP = 860, 250, 40, 64, 36, 30


def picture() -> str:
    """All networks, as SVG that needs no fonts or scripts."""
    across = 3
    rows = math.ceil(len(NETWORKS) / across)
    height = TOP + rows * (PANEL + GAP)
    wide = (WIDTH - LEFT) / across
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        '<text x="12" y="20" font-size="14" font-weight="bold">Accuracy on test images against bytes of the network '
        "(mean and spread over 3 seeds)</text>",
    ]
    at = 12.0
    for name, color in COLORS.items():
        parts.append(f'<circle cx="{at + 5:.0f}" cy="40" r="4.5" fill="{color}"/>')
        parts.append(f'<text x="{at + 14:.0f}" y="44">{_label(name)}</text>')
        at += 40 + 6.4 * len(_label(name))
    for number, (net, title) in enumerate(NETWORKS.items()):
        x, y = LEFT + (number % across) * wide, TOP + (number // across) * (PANEL + GAP)
        parts += _panel(points(net), title, x, y, wide - 34)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _label(name: str) -> str:
    return {"f32": "dense, 32 bits"}.get(name, name)


def _panel(found: Sequence[Point], title: str, x: float, y: float, wide: float) -> list[str]:
    tall = PANEL - BOTTOM
    sizes = [math.log10(point.size) for point in found]
    low, high = min(sizes) - 0.15, max(sizes) + 0.15
    least = min(point.mean - point.std for point in found)
    most = max(point.mean + point.std for point in found)
    least, most = least - 0.06 * (most - least), most + 0.06 * (most - least)

    def across(size: float) -> float:
        return x + (math.log10(size) - low) / (high - low) * wide

    def up(score: float) -> float:
        return y + 20 + (most - score) / (most - least) * (tall - 20)

    parts = [f'<text x="{x:.0f}" y="{y + 10:.0f}" font-weight="bold">{title}</text>']
    for size in (10**power * times for power in range(3, 9) for times in (1, 3)):
        if low < math.log10(size) < high:
            at = across(size)
            parts.append(f'<path d="M{at:.1f} {y + 20:.1f}V{y + tall:.1f}" stroke="#e5e7eb"/>')
            text = f"{size // 1000} KB" if size < 10**6 else f"{size // 10**6} MB"
            parts.append(
                f'<text x="{at:.1f}" y="{y + tall + 14:.1f}" text-anchor="middle" fill="#555">{text}</text>'
            )
    step = next(step for step in (0.1, 0.2, 0.5, 1, 2, 5) if (most - least) / step <= 6)
    for count in range(math.ceil(least / step), math.floor(most / step) + 1):
        at = up(count * step)
        parts.append(f'<path d="M{x:.1f} {at:.1f}h{wide:.1f}" stroke="#e5e7eb"/>')
        parts.append(
            f'<text x="{x - 4:.1f}" y="{at + 4:.1f}" text-anchor="end" fill="#555">{count * step:.4g}</text>'
        )
    longest = max(
        (point.note for point in found if point.contender == OURS), default=""
    )  # of several trainings one
    mine = [point for point in found if point.contender == OURS and point.note == longest]
    line = " ".join(f"{across(point.size):.1f},{up(point.mean):.1f}" for point in mine)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{COLORS[OURS]}" stroke-width="2"/>')
    for point in found:
        at, color = across(point.size), COLORS[point.contender]
        parts.append(
            f'<path d="M{at:.1f} {up(point.mean - point.std):.1f}V{up(point.mean + point.std):.1f}" stroke="{color}"/>'
            f'<circle cx="{at:.1f}" cy="{up(point.mean):.1f}" r="4.5" fill="{color}"><title>{point.contender} '
            f"{point.note} {show_bytes(point.size)} {point.mean:.2f} %</title></circle>"
        )
    return parts


def written(page: str) -> str:
    """The page with its tables made anew."""
    for name, table in (("equal", equal_table()), ("parts", parts_table())):
        begin, end = MARKS[name]
        before, rest = page.split(begin)
        page = before + begin + table + end + rest.split(end, 1)[1]
    return page


def main() -> None:
    PAGE.write_text(written(PAGE.read_text()))
    PICTURE.write_text(picture())


if __name__ == "__main__":
    main()
