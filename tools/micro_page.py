"""The table of docs/MICRO.md, from results/micro.json: python tools/micro_page.py"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "MICRO.md", ROOT / "results" / "micro.json"
BEGIN, END = "<!-- measured: python tools/micro_page.py -->\n", "<!-- end -->\n"


def _accuracy(row: dict[str, Any]) -> str:
    if row["accuracy"] is None:
        return ""
    return f"{row['accuracy']:.2f} % ({row['float_accuracy']:.2f} %)"


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each network."""
    lines = [
        "| network | constants | code | RAM | stack | arena with whole maps | multiplications | instructions, M3 | "
        "accuracy (in floating point) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        board, small = row["boards"]["cortex-m3"], row["boards"]["cortex-m4"]
        cells = [
            row["name"], f"{row['flash_bytes']:,}", f"{small['code_bytes']:,}", f"{row['ram_bytes']:,}",
            f"{small['stack_bytes']:,}", f"{row['arena_bytes_whole']:,}", f"{row['multiplications']:,}",
            f"{board['instructions']:,}", _accuracy(row),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def written(page: str, rows: list[dict[str, Any]]) -> str:
    """The page with its table made anew."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + table(rows) + END + rest.split(END, 1)[1]


def main() -> None:
    PAGE.write_text(written(PAGE.read_text(), json.loads(RESULTS.read_text())["rows"]))


if __name__ == "__main__":
    main()
