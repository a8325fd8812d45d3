"""The first table of README.md: files that fit writes beside dense, int8 and 4 bits, from results/.

python tools/readme_table.py
"""

from collections.abc import Iterator
from pathlib import Path

import int8_page
from int8_page import NETWORKS, OURS, Point

from membound.report.paired import Comparison
from membound.store.whole import replace_file

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = "<!-- files that fit writes: python tools/readme_table.py -->", "<!-- end -->"
FITS = {"vit": "ViT-tiny, Imagenette at 64 pixels", "unet": "U-Net, digits on photos, mean IoU"}
PEERS = ("f32", "int8", "4 bits, trained")
FILES = 2  # of a network, the largest ones


def show(point: Point, between: str = "<br>") -> str:
    """
    >>> show(Point("int8", "", 433980, 99.33, 0.0436, 3))
    '99.33 ± 0.04 %<br>434 KB'
    """
    unit, number = ("MB", point.size / 1e6) if point.size >= 1e6 else ("KB", point.size / 1e3)
    digits = 0 if number >= 100 else 1 if number >= 10 else 2 if unit == "MB" else 1
    return f"{point.mean:.2f} ± {point.std:.2f} %{between}{number:,.{digits}f} {unit}"


def rows() -> Iterator[tuple[str, list[Point], list[Point]]]:
    """Each network, its peers, and our files of the peers' length of training."""
    for name in NETWORKS:
        found, steps = int8_page.points(name), int8_page.load(f"quantized-{name}.json")["steps"]
        peers = [next(p for p in found if p.contender == kind and not p.note) for kind in PEERS]
        ours = [p for p in found if p.contender == OURS and p.note in ("", f"{steps:,} steps")]
        yield name, peers, ours[:FILES]


def less_int8(name: str) -> dict[int, Comparison]:
    """Our files less int8, seed by seed, by their bounds in bytes: all with the peers' length of training."""
    quantized = int8_page.load(f"quantized-{name}.json")
    theirs = {
        row["seed"]: row["accuracy"]
        for row in quantized["rows"]
        if (row["contender"], row["width"]) == ("int8", 1)
    }
    found: dict[int, dict[int, float]] = {}
    for row in int8_page.load(f"few-bits-{name}.json")["rows"]:
        if row["values"] == "auto" and row.get("steps", quantized["steps"]) == quantized["steps"]:
            found.setdefault(row["limit"], {})[row["seed"]] = row["accuracy"]
    return {limit: _pair(ours, theirs) for limit, ours in sorted(found.items(), reverse=True)}


def _pair(ours: dict[int, float], theirs: dict[int, float]) -> Comparison:
    seeds = sorted(ours.keys() & theirs.keys())
    return Comparison.of([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds], seeds)


def show_difference(found: Comparison, places: int = 2) -> str:
    """With half its 95 % confidence interval.

    >>> show_difference(Comparison.of([80.1, 79.2, 81.3], [82.0, 81.0, 83.0]))
    '−1.80 ± 0.25, worse'
    """
    sign = "+" if found.difference >= 0 else "−"
    shown = f"{sign}{abs(found.difference):.{places}f} ± {found.uncertainty:.{places}f}"
    return shown if found.verdict == "within the spread" else f"{shown}, {found.verdict}"


def fit_rows() -> Iterator[list[str]]:
    """Attention and segmentation: dense, int8 and a tenth of the bytes, none of them trained in 4 bits."""
    document = int8_page.load("attention-fits.json")
    summary = document["summary"]
    for name, title in FITS.items():
        cells = [_show_score(summary[name][who]) for who in ("dense", "int8", "tenth")]
        rows = [row for row in document["rows"] if row["network"] == name]
        ours, theirs = ({row["seed"]: row[who] for row in rows} for who in ("tenth", "int8"))
        less = show_difference(_pair(ours, theirs), 2 if summary[name]["dense"]["mean"] > 1 else 3)
        title = f"[{title}](results/attention-fits.json)"
        yield [title, f"**{cells[2].replace('<br>', ', ')}**", cells[1], less, "not measured", cells[0]]


def _show_score(found: dict[str, float]) -> str:
    """
    >>> _show_score({"mean": 0.807, "std": 0.0053, "bytes": 1953772})
    '0.807 ± 0.005<br>1.95 MB'
    """
    if found["mean"] > 1:
        return show(Point("", "", int(found["bytes"]), found["mean"], found["std"], 3))
    size = show(Point("", "", int(found["bytes"]), 0.0, 0.0, 3)).partition("<br>")[2]
    return f"{found['mean']:.3f} ± {found['std']:.3f}<br>{size}"


def make_table() -> str:
    # What tells most comes first: a narrow screen shows two columns.
    lines = [
        "| | **membound fit** | int8 | fit minus int8 | 4 bits, trained | dense, float32 |",
        "|---|---|---|---|---|---|",
    ]
    for name, (dense, int8, four), ours in rows():
        title = f"[{NETWORKS[name]}](results/few-bits-{name}.json)"
        fitted = "<br>".join(f"**{show(point, ', ')}**" for point in ours)
        less = "<br>".join(map(show_difference, list(less_int8(name).values())[: len(ours)]))
        cells = [title, fitted, show(int8), less, show(four), show(dense)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"| {' | '.join(cells)} |" for cells in fit_rows()]
    return "\n".join(lines)


def with_table(page: str) -> str:
    """The README with the table of now."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{make_table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    replace_file(README, [with_table(README.read_text()).encode()])
