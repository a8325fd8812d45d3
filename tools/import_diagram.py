"""docs/imports.svg from the code: which package of membound imports which, read from the syntax trees.

python tools/import_diagram.py
"""

import ast
from functools import cache
from pathlib import Path

from membound.report.markup import Markup, join, tag
from membound.store.whole import replace_file

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, PICTURE = ROOT / "src" / "membound", ROOT / "docs" / "imports.svg"
# Where a package stands from left to right. Rows come from the imports: a package is above all that it imports.
COLUMNS = {
    "cli": 1.5, "bench": 0.7, "paper": 2.3, "export": 0.7, "search": 1.9, "train": 0.2, "capture": 1.2, "run": 2.2,
    "report": 3.2, "zoo": 0.0, "data": 1.1, "micro": 2.2, "store": 2.2,
}  # fmt: skip
WIDTH, HEIGHT, ACROSS, DOWN, MARGIN = 112, 40, 150, 84, 12
HEAVY = ("torch", "safetensors", "triton")
Imports = dict[str, set[str]]

STYLE = """
text { font: 15px system-ui, sans-serif; fill: #1a1d21; text-anchor: middle; }
.note { font-size: 12px; fill: #59616b; text-anchor: start; }
rect { stroke: #59616b; fill: #e4f2ea; }
.torch { fill: #fbe9dd; }
.page { fill: #fff; stroke: none; }
path { stroke: #59616b; fill: none; stroke-width: 1.4; }
marker path { fill: #59616b; stroke: none; }
"""


@cache
def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imported(path: Path) -> set[str]:
    """Full names of all that a file imports, at its top or inside functions.

    Of `from a.b import c` both `a.b` and `a.b.c` are there, since c may be a module.
    """
    names = set()
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def packages() -> list[str]:
    """The packages inside membound."""
    return sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def read_imports() -> tuple[Imports, set[str]]:
    """What each package imports of the others, and which of them import torch."""
    inside: Imports = {part: set() for part in packages()}
    heavy = set()
    for part in inside:
        for name in set().union(*map(imported, sorted((PACKAGE / part).rglob("*.py")))):
            first, _, rest = name.partition(".")
            if first == "membound" and (other := rest.split(".")[0]) in inside and other != part:
                inside[part].add(other)
            elif first in HEAVY:
                heavy.add(part)
    return inside, heavy


def reach(imports: Imports, part: str) -> set[str]:
    """All that a package imports, through others too."""
    found: set[str] = set()
    for other in imports[part]:
        found |= {other} | reach(imports, other)
    return found


def reduced(imports: Imports) -> Imports:
    """Without what follows from the rest: a -> c where a -> b -> c.

    >>> reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()})
    {'a': {'b'}, 'b': {'c'}, 'c': set()}
    """
    return {
        part: {other for other in others if not any(other in reach(imports, via) for via in others - {other})}
        for part, others in imports.items()
    }


def find_rows(imports: Imports) -> dict[str, int]:
    """How many packages are below each, one upon the other."""
    rows: dict[str, int] = {}
    for part in sorted(imports, key=lambda part: len(reach(imports, part))):
        rows[part] = 1 + max((rows[other] for other in imports[part]), default=-1)
    return rows


def draw() -> str:
    """The picture: a box for each package, an arrow for each import that does not follow from others."""
    imports, heavy = read_imports()
    if missing := imports.keys() ^ COLUMNS.keys():
        raise SystemExit(
            f"COLUMNS and the packages differ: give {', '.join(sorted(missing))} a place, or take it"
        )
    rows = find_rows(imports)
    top = max(rows.values())
    at = {part: (MARGIN + ACROSS * COLUMNS[part], MARGIN + DOWN * (top - row)) for part, row in rows.items()}
    arrows = [
        _arrow(at[part], at[other]) for part, others in reduced(imports).items() for other in sorted(others)
    ]
    boxes = [_box(part, *at[part], part in heavy) for part in sorted(at)]
    width = max(x for x, _ in at.values()) + WIDTH + MARGIN
    height = max(y for _, y in at.values()) + HEIGHT + MARGIN
    point = tag("path", d="M0 0L8 4L0 8z")
    marker = tag("marker", point, id="head", markerWidth=8, markerHeight=8, refX=8, refY=4, orient="auto")
    page = tag("rect", width=width, height=height, class_="page")
    parts = join(
        Markup(f"<style>{STYLE}</style>"), tag("defs", marker), page, *arrows, *boxes, *_legend(width)
    )
    svg = Markup("http://www.w3.org/2000/svg")
    return (
        tag("svg", parts, xmlns=svg, viewBox=f"0 0 {width:g} {height:g}", width=width, height=height) + "\n"
    )


def _box(name: str, x: float, y: float, heavy: bool) -> Markup:
    box = tag("rect", x=x, y=y, width=WIDTH, height=HEIGHT, rx=6, class_="torch" if heavy else None)
    return join(box, tag("text", name, x=x + WIDTH / 2, y=y + HEIGHT / 2 + 5))


def _arrow(begin: tuple[float, float], end: tuple[float, float]) -> Markup:
    x1, y1, x2, y2 = begin[0] + WIDTH / 2, begin[1] + HEIGHT, end[0] + WIDTH / 2, end[1] - 2
    return tag("path", d=f"M{x1:g} {y1:g}L{x2:g} {y2:g}", marker_end="url(#head)")


def _legend(width: float) -> list[Markup]:
    x = width - 150
    shown = []
    for row, (kind, words) in enumerate((("torch", "may import torch"), (None, "never imports torch"))):
        y = MARGIN + 22 * row
        shown += [
            tag("rect", x=x, y=y, width=14, height=14, class_=kind),
            tag("text", words, x=x + 22, y=y + 12, class_="note"),
        ]
    return shown


if __name__ == "__main__":
    replace_file(PICTURE, [draw().encode()])
