"""Small tables for notebooks: HTML that stands alone, in which every name is escaped."""

from collections.abc import Sequence
from html import escape

PAD = "padding: 2px 12px 2px 0; "
LEFT, RIGHT = f"{PAD}text-align: left", f"{PAD}text-align: right; font-variant-numeric: tabular-nums"


def html_table(head: Sequence[str], rows: Sequence[Sequence[object]], words: int = 1) -> str:
    """A table whose first `words` columns are words, and the others numbers, to the right.

    >>> html_table(["layer", "bytes"], [["a<b", "1,024"]]).count("&lt;")
    1
    """

    def cells(row: Sequence[object], tag: str) -> str:
        styles = [LEFT if column < words else RIGHT for column in range(len(row))]
        shown = zip(row, styles, strict=True)
        return "".join(f'<{tag} style="{style}">{escape(str(cell))}</{tag}>' for cell, style in shown)

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{cells(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def html_block(title: str, *tables: str, note: str = "") -> str:
    """Tables under a title, with a note below."""
    below = f"<p>{escape(note)}</p>" if note else ""
    return f"<div><p><strong>{escape(title)}</strong></p>{''.join(tables)}{below}</div>"


def show_shape(shape: Sequence[int]) -> str:
    """
    >>> show_shape((1, 28, 28))
    '1 x 28 x 28'
    """
    return " x ".join(map(str, shape))
