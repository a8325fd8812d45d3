"""membound run FILE INPUT.npy: run a network once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from membound.cli import options
from membound.cli.inspect import File
from membound.errors import MemboundError

SHOWN = 10  # images whose classes are printed

Threads = Annotated[int, typer.Option(min=0, max=256, metavar="N", help="Threads; 0 takes every CPU.")]


def run_command(
    file: File,
    input: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT.npy",
            help="An array [batch, ...]: uint8 images as they are, or float32 as prepared.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="OUT.npy", help="Where the output goes (INPUT.out.npy if left out)."),
    ] = None,
    threads: Threads = 0,
    as_json: options.Json = False,
) -> None:
    """Run a model file on an array, and write the output."""
    from membound.run.files import find_model_file, read_array, run_array, top_classes, write_array
    from membound.run.net import load

    if not input.name:
        raise MemboundError(f"{input} is a folder: name a .npy file")
    target = input.with_name(f"{input.stem}.out.npy") if out is None else out
    if target.suffix != ".npy":
        raise MemboundError(f"--out {target}: the output is a .npy file: let its name end in .npy")
    net = load(find_model_file(file), threads=threads)
    images = read_array(input)
    if target.exists() and target.samefile(input):
        raise MemboundError(f"--out {target} is the input: choose another name")
    output = run_array(net, images)
    write_array(target, output)
    top = top_classes(net, output)
    if as_json:
        named = (
            None if top is None else [[{"class": name, "score": score} for name, score in row] for row in top]
        )
        options.print_json({"out": str(target), "shape": list(output.shape), "top": named})
    else:
        _print(target, output, top)


def _print(target: Path, output: Any, top: Any) -> None:
    for number, row in enumerate((top or [])[:SHOWN]):
        typer.echo(f"{number:>4}  " + ", ".join(f"{name} {score:.4g}" for name, score in row))
    if top is not None and len(top) > SHOWN:
        typer.echo(f"      and {len(top) - SHOWN:,} more")
    typer.echo(f"output  {target}: float32 {' x '.join(map(str, output.shape))}")
