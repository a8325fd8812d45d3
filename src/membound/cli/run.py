"""membound run FILE INPUT...: run a network once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from membound.cli import options
from membound.cli.inspect import File
from membound.errors import MemboundError

SHOWN = 10  # images whose classes are printed
AT_ONCE = 64  # pictures
WRITES = "NEW_FOLDER writes the masks"
SHARES = "class and its share of the pixels"
LARGEST = "output: value, the largest first (of a classifier: scores, and the first is the class)"
PROBABILITIES = "class and probability (softmax of scores)"
MOST_NUMBERS = 100  # outputs of one example that are printed

Shares = list[tuple[str, float]]  # of the pixels of a mask, by classes

Threads = Annotated[int, typer.Option(min=0, max=256, metavar="N", help="Threads; 0 takes every CPU.")]


def run_command(
    file: File,
    input: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT",
            help="Pictures, or folders of them; or a .npy file of examples, [batch, ...]: uint8 pixels, or float32 as "
            "the network takes it; or, for a network of several inputs, an .npz file that names them.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Where the output goes. Masks: a .png file for one picture, a new folder for many. Else a .npy file "
            "(default: INPUT.out.npy, for pictures none), or an .npz file of several outputs. With --engine micro, an "
            ".npz file has the device's integers, too.",
        ),
    ] = None,
    threads: Threads = 0,
    engine: options.AnyEngine = "float",
    as_json: options.Json = False,
) -> None:
    """Run a model file on pictures or an array, and say what it finds.

    Prints classes with probabilities, the classes in a mask, or values; the first line says which.

    membound run net.safetensors cat.jpg photos/

    membound run scans.safetensors photo.png --out mask.png
    """
    from membound.run.files import run_arrays, write_outputs
    from membound.run.masks import gives_masks

    options.check_engine(engine)
    given, input = input, _with_folders(input)
    pictures = _are_pictures(input)
    masks = pictures and out is not None and out.suffix in (".png", "")
    if not masks:
        _check_names(input[0], None if pictures else out)
    net = _open(file, threads, engine)
    if pictures and not masks and out is not None:
        _check_suffix(out, _count_outputs(net) == 1 and gives_masks(net.output_shape))
    if masks or (pictures and out is None and _count_outputs(net) == 1 and gives_masks(net.output_shape)):
        _run_masks(net, given, input, out, as_json)
        return
    target = _target(net, input[0], out, pictures)
    if pictures and target is None and len(net.output_shape) != 1:
        _run_pictures(net, input[:1])  # if it does not take pictures at all, that comes first
        shape = " x ".join(map(str, net.output_shape))
        raise MemboundError(
            f"the network gives {shape} numbers for a picture, and no scores of classes to print: say with --out where "
            "its output goes"
        )
    if pictures:
        outputs = _run_pictures(net, input)
    elif input[0].suffix == ".npz":
        if engine == "micro":
            raise MemboundError(f"{input[0]}: the engine micro takes one array: give it in a .npy file")
        outputs = run_arrays(net, _given(input[0], target))
    else:
        outputs = _run(net, _given(input[0], target))
    integers = outputs.pop("integers") if engine == "micro" else None
    if target is not None:
        if integers is not None and target.suffix == ".npz":
            write_outputs(target, {**outputs, "integers": integers})
        else:
            write_outputs(target, outputs)
    output = next(iter(outputs.values()))
    meant = _read_meaning(net, output)
    if as_json:
        where = None if target is None else str(target)
        facts: dict[str, Any] = {"out": where, "shape": list(output.shape), **meant.facts}
        if pictures:
            facts["inputs"] = list(map(str, input))
        if len(outputs) > 1:
            facts["outputs"] = {name: list(each.shape) for name, each in outputs.items()}
        if integers is not None:
            facts |= {"integers": integers.tolist(), **_rounding(net)}
        options.print_json(facts)
    else:
        names = list(map(str, input)) if pictures else None
        beside = meant.facts["kind"] == "values" and integers is not None and integers[0].size <= MOST_NUMBERS
        _print(target, outputs, _with_integers(meant, integers) if beside else meant, names)
        if integers is not None:
            if not beside:
                _print_integers(integers, names)
            _print_rounding(net, "value" if meant.facts["kind"] == "values" else "score")


def _open(file: Path, threads: int, engine: str) -> Any:
    from membound.run.files import find_model_file
    from membound.run.net import load

    if engine == "micro":
        if threads:
            raise MemboundError("--threads: the engine micro has none: leave it out")
        return options.open_in_integers(file)
    net = load(find_model_file(file), threads=threads, engine=options.engine(engine))
    if net.model.activations:
        typer.echo(
            "this file is made for a microcontroller, whose numbers may differ a little from these: --engine micro "
            "gives them",
            err=True,
        )
    return net


def _count_outputs(net: Any) -> int:
    """A microcontroller's network has one."""
    return len(getattr(net, "outputs", [net]))


def _run(net: Any, array: Any) -> Any:
    """Outputs by name; of a microcontroller's network with its integers."""
    from membound.run.files import run_array, run_integers
    from membound.run.micro_net import MicroNet

    if isinstance(net, MicroNet) and array.dtype.name == "uint8" and not net.plan.net.takes_pixels:
        typer.echo(
            "note: uint8 is read as the bytes that the device is fed with, which net_input makes of numbers; for the "
            "numbers themselves, as in training, save float32",
            err=True,
        )
    return run_integers(net, array) if isinstance(net, MicroNet) else run_array(net, array)


def _print_integers(integers: Any, names: list[str] | None) -> None:
    """The device's own numbers, of as many examples as classes are printed of."""
    shown = SHOWN if names is None else len(names)
    for number, row in enumerate(integers[:shown].reshape(len(integers[:shown]), -1)):
        if row.size > MOST_NUMBERS:
            break
        example = f"{number:>4}" if names is None else names[number]
        typer.echo(f"{example}  integers {' '.join(map(str, row))}")
    if len(integers) > shown and integers[0].size <= MOST_NUMBERS:
        typer.echo(f"      and {len(integers) - shown:,} more")


def _print_rounding(net: Any, named: str) -> None:
    """What an integer stands for."""
    found = _rounding(net)
    meant = f"{named} = {found['scale']:.6g} * (integer - {found['zero']})".replace("- -", "+ ")
    typer.echo(f"device  as a microcontroller computes it, bit for bit: {meant}")


def _rounding(net: Any) -> dict[str, float]:
    last = net.plan.net.quantizations[net.plan.net.output]
    return {"scale": float(last.scale), "zero": int(last.zero)}


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
    if len(given) == 1 and given[0].suffix in (".npy", ".npz"):
        return False
    from membound.data.pictures import image_extensions

    known = image_extensions()
    others = [path for path in given if path.suffix.lower() not in known]
    if others and len(given) > 1:
        raise MemboundError(
            f"{others[0]} is not a picture (.jpg, .png, ...): several inputs must all be pictures"
        )
    return not others


def _run_masks(net: Any, given: list[Path], pictures: list[Path], out: Path | None, as_json: bool) -> None:
    """A mask for each picture: written where `out` says, and which classes are in it."""
    from membound.export.hub_folder import check_folder
    from membound.run.masks import gives_masks, mask_names, refuse_mask, shares, to_masks, write_masks

    if out is not None and (_count_outputs(net) != 1 or not gives_masks(net.output_shape)):
        refuse_mask(out, net.output_shape)
    one = out is not None and out.suffix == ".png"
    if one and (len(pictures) > 1 or any(path.is_dir() for path in given)):
        raise MemboundError(
            f"--out {out}: {len(pictures)} pictures give as many masks: name a new folder for them"
        )
    if one and out is not None and out.exists() and out.samefile(pictures[0]):
        raise MemboundError(f"--out {out} is the input: choose another name")
    if out is not None and not one:
        check_folder(out)
    found: list[Shares] = []

    def masks() -> Iterator[Any]:
        for begin in range(0, len(pictures), AT_ONCE):
            scores = next(iter(_run_pictures(net, pictures[begin : begin + AT_ONCE]).values()))
            for mask in to_masks(scores):
                found.append(shares(mask, net.classes))
                yield mask

    if one and out is not None:
        from membound.data.pictures import encode_mask
        from membound.store.whole import write_whole

        write_whole(out, [encode_mask(next(masks()))])
    elif out is not None:
        write_masks(out, mask_names(pictures, [path for path in given if path.is_dir()]), masks())
    else:
        for _ in masks():
            pass
    _, height, width = net.output_shape
    if as_json:
        where, inside = None if out is None else str(out), _name_shares(found)
        names = list(map(str, pictures))
        facts = {"kind": "masks", "out": where, "shape": [height, width], "masks": inside, "inputs": names}
        options.print_json(facts)
        return
    _print_rows(list(map(str, pictures)), _say_shares(found), "picture", SHARES)
    if out is None:
        typer.echo(
            f"output  none written: --out {'mask.png writes the mask' if len(pictures) == 1 else WRITES}"
        )
    else:
        what = "class numbers" if one else f"{len(pictures):,} masks of class numbers"
        typer.echo(f"output  {out}: {what}, {height} x {width} pixels of each picture's center")


def _find_shares(net: Any, output: Any) -> list[Shares] | None:
    """Which classes are in the mask of each example; None without names of classes: it may give pictures."""
    from membound.run.masks import gives_masks, shares, to_masks

    if _count_outputs(net) != 1 or not gives_masks(net.output_shape) or len(net.classes or ()) < 2:
        return None
    return [shares(mask, net.classes) for mask in to_masks(output)]


def _say_shares(found: list[Shares]) -> list[str]:
    """A line for each mask; of classes without names, their numbers.

    >>> _say_shares([[("sand", 0.75), ("0", 0.25)]])
    ['sand 75 %, class 0 25 %']
    """
    return [
        ", ".join(
            f"{f'class {name}' if name.isdecimal() else name} {100 * share:.3g} %" for name, share in row
        )
        for row in found
    ]


def _name_shares(found: list[Shares]) -> list[list[dict[str, Any]]]:
    return [[{"class": name, "share": share} for name, share in row] for row in found]


@dataclass(frozen=True)
class Meaning:
    """What the numbers of an output are: for --json, and a line for each example, below a head."""

    facts: dict[str, Any]
    lines: Sequence[str] = ()
    head: str = ""


def _read_meaning(net: Any, output: Any) -> Meaning:
    """Probabilities of classes, shares of a mask, or values."""
    from membound.run.meaning import FEW, best_classes, largest_values

    inside = _find_shares(net, output)
    if inside is not None:
        return Meaning(
            {"kind": "masks", "top": None, "masks": _name_shares(inside)}, _say_shares(inside), SHARES
        )
    if output.ndim != 2 or _count_outputs(net) != 1:
        return Meaning({"kind": "array", "top": None})
    count = output.shape[1]
    if net.classes is not None and count > 1:
        top = best_classes(net.classes, output)
        as_scores = "probability" not in top[0][0]
        lines = [", ".join(_say_class(each) for each in row) for row in top]
        return Meaning(
            {"kind": "classes", "top": top}, lines, "class and score" if as_scores else PROBABILITIES
        )
    facts: dict[str, Any] = {"kind": "values", "top": None}
    if count <= MOST_NUMBERS:
        facts["values"] = output.tolist()
    if count <= FEW:
        lines = [", ".join(f"{value:.4g}" for value in row) for row in output.tolist()]
        return Meaning(facts, lines, _name_values(net, count))
    best = largest_values(output)
    lines = [", ".join(f"{each['output']}: {each['value']:.4g}" for each in row) for row in best]
    return Meaning(facts | {"largest": best}, lines, LARGEST)


def _name_values(net: Any, count: int) -> str:
    """The head of a few values; of a microcontroller's network it is known whether they are scores, as its C says."""
    from membound.export.c_readme import says_class

    if count == 1:
        return "value"
    plan = getattr(net, "plan", None)
    if plan is not None and not says_class(plan, net.classes):
        return ", ".join(f"output {number}" for number in range(count))
    return f"values of outputs 0 to {count - 1} (of a classifier: scores, and the largest is the class)"


def _with_integers(meant: Meaning, integers: Any) -> Meaning:
    """Beside the values, the device's integers that stand for them."""
    rows = [" ".join(map(str, row)) for row in integers.reshape(len(integers), -1)]
    lines = [f"{said}  ({row})" for said, row in zip(meant.lines, rows, strict=True)]
    return replace(meant, lines=lines, head=f"{meant.head}  (integers)")


def _say_class(found: dict[str, Any]) -> str:
    """
    >>> _say_class({"class": "cat", "probability": 0.987, "score": 4.0}), _say_class({"class": "cat", "score": 0.9})
    ('cat 98.7 %', 'cat 0.9')
    >>> [_say_class({"class": "cat", "probability": part}) for part in (0.0004, 0.9996)]
    ['cat <0.1 %', 'cat >99.9 %']
    """
    part = found.get("probability")
    if part is None:
        return f"{found['class']} {found['score']:.4g}"
    shown = "<0.1" if part < 0.0005 else ">99.9" if part >= 0.9995 else f"{100 * part:.1f}"
    return f"{found['class']} {shown} %"


def _run_pictures(net: Any, paths: list[Path]) -> Any:
    """Some at a time, however many there are."""
    import numpy as np

    parts = [paths[begin : begin + AT_ONCE] for begin in range(0, len(paths), AT_ONCE)]
    found = [_run(net, net.read(*part)) for part in parts]
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}


def _check_names(given: Path, out: Path | None) -> None:
    """What can be said before the network is loaded."""
    if not given.name:
        raise MemboundError(f"{given} is a folder: name a .npy file or a picture")
    if out is not None:
        _check_suffix(out)


def _check_suffix(out: Path, masks: bool = False) -> None:
    """What the name of an output ends in; a network that gives masks can write pictures."""
    if out.suffix in (".npy", ".npz"):
        return
    if masks:
        raise MemboundError(
            f"--out {out}: a mask needs a lossless format: use .png (or a folder for several), or .npy for scores"
        )
    raise MemboundError(
        f"--out {out}: the output is an array: let its name end in .npy, or .npz for several outputs or integers"
    )


def _target(net: Any, given: Path, out: Path | None, pictures: bool) -> Path | None:
    """Where the output goes."""
    suffix = ".npy" if _count_outputs(net) == 1 else ".npz"
    if out is not None and out.suffix == ".npz" and not hasattr(net, "outputs"):
        return out  # scores and integers
    if out is None:
        return None if pictures else given.with_name(f"{given.stem}.out{suffix}")
    if out.suffix != suffix:
        raise MemboundError(
            f"--out {out}: the network has {_count_outputs(net)} outputs, which go into an {suffix} file: let its name "
            f"end in {suffix}"
        )
    return out


def _given(path: Path, target: Path | None) -> Any:
    from membound.run.files import read_array, read_arrays

    found = read_arrays(path) if path.suffix == ".npz" else read_array(path)
    if target is not None and target.exists() and target.samefile(path):
        raise MemboundError(f"--out {target} is the input: choose another name")
    return found


def _print_rows(names: Sequence[str], lines: Sequence[str], of: str, head: str) -> None:
    """A line for each example under a head, which says what the columns are."""
    width = max(map(len, [of, *names]), default=0)
    typer.echo(f"{of:<{width}}  {head}")
    for name, line in zip(names, lines, strict=True):
        typer.echo(f"{name:<{width}}  {line}")


def _print(target: Path | None, outputs: Any, meant: Meaning, names: list[str] | None) -> None:
    """What is said of each example, by its number or name."""
    shown = SHOWN if names is None else len(names)
    numbers = [f"{number:>4}" for number in range(len(meant.lines[:shown]))]
    if meant.lines:
        of = "example" if names is None else "picture"
        _print_rows(numbers if names is None else names, meant.lines[:shown], of, meant.head)
    if len(meant.lines) > shown:
        typer.echo(f"      and {len(meant.lines) - shown:,} more")
    if target is not None:
        shapes = [" x ".join(map(str, output.shape)) for output in outputs.values()]
        what = shapes[0] if len(shapes) == 1 else ", ".join(map(" ".join, zip(outputs, shapes, strict=True)))
        typer.echo(f"output  {target}: float32 {what}")
