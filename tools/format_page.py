"""The tables of operators and of codes in packed layers, and the preset dictionary, in docs/FORMAT.md.

python tools/format_page.py            writes them
"""

from pathlib import Path
from typing import Any

from membound.store.compact import DICTIONARY
from membound.store.operators import OPERATORS, REQUIRED, Operator
from membound.store.packed import LAYOUT_CODES, PALETTE_CODES, TYPE_CODES

PAGE = Path(__file__).parents[1] / "docs" / "FORMAT.md"
END = "<!-- end -->\n"


def begin(name: str) -> str:
    return f"<!-- {name}: python tools/format_page.py -->\n"


def operators() -> str:
    """Operators that differ in their names alone share a row."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for operator in OPERATORS.values():
        row = _attributes(operator), _tensors(operator), operator.table
        names.setdefault(row, []).append(operator.name)
    lines = ["| operator | attributes (= default) | tensors | inputs -> output |", "|---|---|---|---|"]
    lines += [f"| {', '.join(found)} | {' | '.join(row)} |" for row, found in names.items()]
    return "\n".join(lines) + "\n"


def codes() -> str:
    """What each code of a prefix stands for."""
    arrays = {each: ", ".join(f"`{index.suffix}`" for index in each.arrays) for each in LAYOUT_CODES.values()}
    kinds = [
        (
            "layout",
            {
                code: each.name + (f" ({arrays[each]})" if each.packed else "")
                for code, each in LAYOUT_CODES.items()
            },
        ),
        ("type of values", {code: each.name for code, each in TYPE_CODES.items()}),
        ("palette", {code: name or "none" for code, name in PALETTE_CODES.items()}),
    ]
    lines = ["| | codes |", "|---|---|"]
    for kind, names in kinds:
        lines.append(f"| {kind} | {', '.join(f'{code} {name}' for code, name in sorted(names.items()))} |")
    return "\n".join(lines) + "\n"


def dictionary() -> str:
    """What deflated descriptions refer to, in lines that a page can show."""
    text = DICTIONARY.decode()
    return "\n".join(f"    {text[at : at + 100]}" for at in range(0, len(text), 100)) + "\n"


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
    for name, table in (("operators", operators()), ("codes", codes()), ("dictionary", dictionary())):
        before, rest = text.split(begin(name))
        text = before + begin(name) + table + END + rest.split(END, 1)[1]
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
