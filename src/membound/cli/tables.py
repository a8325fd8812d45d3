"""Tables for terminals of any width: where there is no room, columns go before words are broken."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

import typer

from membound.report.text import shorten_names

GAP = 2  # spaces between columns
LEAST_NAME = 12  # letters of a name that are always shown
LONGEST_NUMBER = 14  # letters that are never broken, such as those of a mean ± its spread


@dataclass(frozen=True)
class Column:
    """A column; those of a higher `rank` are left out first, those of rank 0 never."""

    head: str
    rank: int = 0
    right: bool = True


def print_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str | None = None
) -> list[str]:
    """Print a table as wide as the terminal at most, and give the heads that had no room.

    In a pipe or a file nothing is left out.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    room = terminal_width()
    console = Console(width=10_000 if room is None else room)
    chosen, cells = fit_table(columns, rows, room)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), show_edge=False, pad_edge=False, title=title,
                  title_justify="left")  # fmt: skip
    for column in chosen:
        table.add_column(column.head, justify="right" if column.right else "left", no_wrap=True)
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)
    whole, _ = fit_table(columns, rows, None)
    return [column.head for column in whole if column not in chosen]


def print_grouped(rows: Sequence[Sequence[str]], title: str) -> None:
    """Print rows below the head, `rows[0]`; in a narrow terminal, what begins several rows is said once, above them."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    room = terminal_width()
    (head, *body), console = group_rows(rows, room), Console(width=10_000 if room is None else room)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), show_edge=False, pad_edge=False, title=title,
                  title_justify="left")  # fmt: skip
    longest = [max((len(row[index]) for row in body), default=0) for index in range(len(head))]
    widths = [max(most, *map(len, words.split())) for most, words in zip(longest, head, strict=True)]
    least = [width if most <= LONGEST_NUMBER else None for width, most in zip(widths, longest, strict=True)]
    breaks = room is not None and sum(each or LEAST_NAME for each in least) + GAP * (len(head) - 1) > room
    for words, width, unbroken in zip(head, widths, least, strict=True):
        table.add_column(
            "\n".join(wrap(words, width)), min_width=None if breaks else unbroken, overflow="fold"
        )
    for row in body:
        table.add_row(*map(Text, row))
    console.print(table)


def group_rows(rows: Sequence[Sequence[str]], room: int | None) -> list[list[str]]:
    """The same rows where they fit into `room`; else without their first column, whose values head their rows.

    >>> rows = [["network", "track", "bytes"], ["LeNet", "ours", "9"], ["LeNet", "paper", "8"]]
    >>> group_rows(rows, 16)
    [['network, track', 'bytes'], ['LeNet', ''], ['  ours', '9'], ['  paper', '8']]
    """
    head, *body = rows
    widths = [max(len(row[index]) for row in rows) for index in range(len(head))]
    repeats = len({row[0] for row in body}) < len(body)
    if room is None or sum(widths) + GAP * (len(widths) - 1) <= room or not repeats or len(head) < 3:
        return [list(row) for row in rows]
    found, last = [[f"{head[0]}, {head[1]}", *head[2:]]], None
    for first, second, *rest in body:
        if first != last:
            found.append([first, *([""] * (len(head) - 2))])
        found.append([f"  {second}", *rest])
        last = first
    return found


def terminal_width() -> int | None:
    """Columns of the terminal, or what COLUMNS says; None in a pipe or a file."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal or os.environ.get("COLUMNS", "").isdecimal() else None


def fit_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int | None
) -> tuple[list[Column], list[list[str]]]:
    """The columns that have a cell and fit into `room`, and their cells; names in the first are cut in the middle.

    >>> columns = [Column("layer", right=False), Column("shape", 2), Column("bytes")]
    >>> fit_table(columns, [["features.12.conv.weight", "64x32x3x3", "1,024"]], 22)[1]
    [['feature….weight', '1,024']]
    >>> fit_table(columns, [["conv.weight", "", "1,024"]], None)[1]
    [['conv.weight', '1,024']]
    """
    kept = [index for index in range(len(columns)) if not rows or any(row[index] for row in rows)]
    if room is None:
        return [columns[index] for index in kept], [[row[index] for index in kept] for row in rows]
    widths = [
        max(len(column.head), *(len(row[index]) for row in rows), 0) for index, column in enumerate(columns)
    ]

    def taken(first: int) -> int:
        return first + sum(widths[index] + GAP for index in kept[1:])

    while taken(min(widths[0], LEAST_NAME)) > room or (
        taken(widths[0]) > room and any(columns[index].rank > 1 for index in kept)
    ):
        last = max(kept, key=lambda index: columns[index].rank)
        if columns[last].rank == 0:
            break
        kept.remove(last)
    length = max(widths[0] + room - taken(widths[0]), LEAST_NAME)
    names = shorten_names([row[0] for row in rows], length) if rows else []
    cells = [[name, *(row[index] for index in kept[1:])] for name, row in zip(names, rows, strict=True)]
    return [columns[index] for index in kept], cells


def say(word: str, text: str) -> None:
    """A line such as `file      net.safetensors`; a long one goes on under its text, not under the word."""
    _wrap(f"{word:<10}{text}", 10)


def tell(text: str) -> None:
    """A sentence or two, which go on below in a narrow terminal."""
    _wrap(text, 0)


def _wrap(text: str, indent: int) -> None:
    from textwrap import fill

    room, further = terminal_width() or 10_000, " " * indent
    typer.echo(fill(text, room, subsequent_indent=further, break_long_words=False, break_on_hyphens=False))


def times(shape: Sequence[int]) -> str:
    """
    >>> times([20, 1, 5, 5])
    '20x1x5x5'
    """
    return "x".join(map(str, shape))
