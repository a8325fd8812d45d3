"""The table of operators in docs/FORMAT.md, made of the catalogue.

python tools/format_page.py            writes it
"""

from pathlib import Path
from typing import Any

from membound.store.operators import OPERATORS, REQUIRED, Operator

PAGE = Path(__file__).parents[1] / "docs" / "FORMAT.md"
BEGIN, END = "<!-- operators: python tools/format_page.py -->\n", "<!-- end -->\n"


def table() -> str:
    """Operators that differ in their names alone share a row."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for operator in OPERATORS.values():
        row = _attributes(operator), _tensors(operator), operator.table
        names.setdefault(row, []).append(operator.name)
    lines = ["| operator | attributes (= default) | tensors | inputs -> output |", "|---|---|---|---|"]
    lines += [f"| {', '.join(found)} | {' | '.join(row)} |" for row, found in names.items()]
    return "\n".join(lines) + "\n"


def _attributes(operator: Operator) -> str:
    return ", ".join(
        name + _default(operator, name, each.default) + (f" ({each.note})" if each.note else "")
        for name, each in operator.attributes.items()
    )


def _default(operator: Operator, name: str, default: Any) -> str:
    if default is REQUIRED:
        return ""
    if default is None:
        return " = kernel" if name == "stride" and "kernel" in operator.attributes else " = none"
    if isinstance(default, bool):
        return f" = {str(default).lower()}"
    if isinstance(default, str):
        return f' = "{default}"'
    return f" = {str(default).replace(' ', '').replace('(', '[').replace(')', ']')}"


def _tensors(operator: Operator) -> str:
    return ", ".join(
        f"{role} {about.shape}".strip() + ("" if about.required else " or none")
        for role, about in operator.roles.items()
    )


def page() -> str:
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END, 1)[1]


if __name__ == "__main__":
    PAGE.write_text(page())
