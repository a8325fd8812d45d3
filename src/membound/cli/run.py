"""membound run FILE INPUT...: run a network once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from membound.cli import options
from membound.cli.inspect import File
from membound.errors import MemboundError

SHOWN = 10  # images whose classes are printed
AT_ONCE = 64  # pictures

Threads = Annotated[int, typer.Option(min=0, max=256, metavar="N", help="Threads; 0 takes every CPU.")]


def run_command(
    file: File,
    input: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT",
            help="Pictures or folders of them; or an array [batch, ...] in a .npy file: uint8 as it is, or float32: as "
            "prepared, or as the data that the network was trained on.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT.npy", help="Where the output goes (default: INPUT.out.npy; for pictures, nowhere)."
        ),
    ] = None,
    threads: Threads = 0,
    as_json: options.Json = False,
) -> None:
    """Run a model file on pictures or an array; write the output.

    membound run net.safetensors cat.jpg photos/
    """
    from membound.run.files import find_model_file, run_array, top_classes, write_array
    from membound.run.net import load

    input = _with_folders(input)
    pictures = _are_pictures(input)
    target = _target(input[0], out, pictures)
    net = load(find_model_file(file), threads=threads)
    if pictures and target is None and (net.classes is None or len(net.output_shape) != 1):
        raise MemboundError(
            "the network has no names of classes to print: say with --out where its output goes"
        )
    output = _run_pictures(net, input) if pictures else run_array(net, _array(input[0], target))
    if target is not None:
        write_array(target, output)
    top = top_classes(net, output)
    if as_json:
        named = (
            None if top is None else [[{"class": name, "score": score} for name, score in row] for row in top]
        )
        where = None if target is None else str(target)
        options.print_json({"out": where, "shape": list(output.shape), "top": named})
    else:
        _print(target, output, top, _names(input) if pictures else None)


def _with_folders(given: list[Path]) -> list[Path]:
    """The inputs, with the pictures that are in a folder, or below it, in the folder's place."""
    if not any(path.is_dir() for path in given):
        return given
    from membound.data.pictures import image_extensions

    known, found = image_extensions(), []
    for path in given:
        inside = [path]
        if path.is_dir():
            inside = sorted(
                file for file in path.rglob("*") if file.suffix.lower() in known and file.is_file()
            )
            if not inside:
                raise MemboundError(
                    f"{path} is a folder without pictures, such as .jpg or .png: name a .npy file or pictures"
                )
        found += inside
    return found


def _are_pictures(given: list[Path]) -> bool:
    """By their names; several inputs must be."""
    if len(given) == 1 and given[0].suffix == ".npy":
        return False
    from membound.data.pictures import image_extensions

    known = image_extensions()
    others = [path for path in given if path.suffix.lower() not in known]
    if others and len(given) > 1:
        raise MemboundError(
            f"{len(given)} inputs: several are pictures, which {others[0]} is not by its name"
        )
    return not others


def _names(paths: list[Path]) -> list[str]:
    """File names; where two are the same, with their folders.

    >>> _names([Path("a/cat.jpg"), Path("b/cat.jpg")])
    ['a/cat.jpg', 'b/cat.jpg']
    """
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def _run_pictures(net: Any, paths: list[Path]) -> Any:
    """Some at a time, however many there are."""
    import numpy as np

    from membound.run.files import read_pictures, run_array

    parts = [paths[begin : begin + AT_ONCE] for begin in range(0, len(paths), AT_ONCE)]
    return np.concatenate([run_array(net, read_pictures(net, part)) for part in parts])


def _target(given: Path, out: Path | None, pictures: bool) -> Path | None:
    """Where the output goes."""
    if not given.name:
        raise MemboundError(f"{given} is a folder: name a .npy file or a picture")
    if out is None:
        return None if pictures else given.with_name(f"{given.stem}.out.npy")
    if out.suffix != ".npy":
        raise MemboundError(f"--out {out}: the output is a .npy file: let its name end in .npy")
    return out


def _array(path: Path, target: Path | None) -> Any:
    from membound.run.files import read_array

    images = read_array(path)
    if target is not None and target.exists() and target.samefile(path):
        raise MemboundError(f"--out {target} is the input: choose another name")
    return images


def _print(target: Path | None, output: Any, top: Any, names: list[str] | None) -> None:
    shown = SHOWN if names is None else len(names)
    for number, row in enumerate((top or [])[:shown]):
        image = f"{number:>4}" if names is None else names[number]
        typer.echo(f"{image}  " + ", ".join(f"{name} {score:.4g}" for name, score in row))
    if top is not None and len(top) > shown:
        typer.echo(f"      and {len(top) - shown:,} more")
    if target is not None:
        typer.echo(f"output  {target}: float32 {' x '.join(map(str, output.shape))}")
