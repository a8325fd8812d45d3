"""membound data NAME: fetch, verify and describe a data set."""

from itertools import groupby
from typing import Annotated, Any

import typer

from membound.cli import options
from membound.cli.tables import Column, print_table


def data_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help=options.DATA_HELP, autocompletion=options.completed(*options.DATA)
        ),
    ],
    as_json: options.Json = False,
    layout: options.Layout = None,
    size: options.Size = None,
    test_fraction: Annotated[
        float,
        typer.Option(
            metavar="X", help="Fraction of a folder's images to test on, where it has no test images."
        ),
    ] = 0.2,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of that choice.")] = 0,
    skip_corrupt: options.SkipCorrupt = False,
) -> None:
    """Fetch, check and describe a data set.

    membound data photos/
    """
    from membound.data import describe, load
    from membound.data.examples import SEGMENTATION
    from membound.data.source import has_own_size
    from membound.units import name_examples

    dataset = load(
        name, layout=layout, size=size, test_fraction=test_fraction, seed=seed, skip_corrupt=skip_corrupt
    )
    facts = describe(dataset)
    if size is None and not has_own_size(name):
        options.tell_size(dataset)
    if as_json:
        options.print_json(facts)
    else:
        name = name_examples(dataset.shape)
        _print(facts, name, "pixels" if dataset.task == SEGMENTATION else name)


def _print(facts: dict[str, Any], name: str, counted: str) -> None:
    """`name` is what its examples are called, and `counted` what labels are of."""
    from rich.console import Console
    from rich.markup import escape

    from membound.report.advice import in_options

    console = Console()
    shape = " x ".join(map(str, facts["shape"]))
    count = len(facts["classes"])
    what = (
        f"{count} class{'' if count == 1 else 'es'}"
        if facts["labels"]
        else f"{count} output{'' if count == 1 else 's'}"
    )
    console.print(
        f"[bold]{escape(facts['name'])}[/bold]: {facts['images']['train']:,} training and "
        f"{facts['images']['test']:,} test {name}, {shape} {facts['dtype']}, {what}",
        highlight=False,
        soft_wrap=True,
    )
    of = "" if facts["mean_of"] == facts["images"]["train"] else f" (of {facts['mean_of']:,} training {name})"
    mean, std = (", ".join(f"{value:.4g}" for value in facts[key]) for key in ("mean", "std"))
    if mean:
        console.print(
            f"mean per channel {mean}; standard deviation {std}{of}", highlight=False, soft_wrap=True
        )
    if facts["labels"]:
        _print_classes(facts, counted)
    for note in facts["notes"]:
        console.print(f"note: {escape(in_options(note))}", highlight=False, soft_wrap=True)


def _print_classes(facts: dict[str, Any], counted: str) -> None:
    """How many images, or pixels of masks, there are of each class."""
    columns = [Column("class", right=False), Column("name", right=False)]
    columns += [Column(f"{half} {counted}") for half in ("training", "test")]
    shown: list[list[str]] = []
    rows = enumerate(zip(facts["classes"], facts["labels"]["train"], facts["labels"]["test"], strict=True))
    for empty, group in groupby(rows, lambda each: each[1][1:] == (0, 0)):
        together = list(group)
        if empty and len(together) > 2:  # in one row
            shown.append([f"{together[0][0]} to {together[-1][0]}", "", "none", "none"])
            continue
        for label, (name, train, test) in together:
            shown.append([str(label), name, f"{train:,}", f"{test:,}"])
    print_table(columns, shown)
