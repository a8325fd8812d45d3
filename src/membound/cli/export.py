"""membound export: trained weights become a model file, a model file becomes ONNX, C++, C or a folder for the Hub."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from membound.cli import options
from membound.cli.keywords import in_options
from membound.errors import MemboundError
from membound.export.catalogue import (
    CPP,
    CPP_FILE,
    EXPORTS,
    HUB,
    INT8,
    MODEL_FILE,
    ONNX,
    WEB,
    C,
)
from membound.export.request import Export, Request
from membound.store.other_files import refuse_tflite

Source = Annotated[
    str,
    typer.Argument(
        metavar="FILE|NET",
        help="A model file, for any of the exports below; or a network (with --init) or an .onnx file, which "
        "--out makes a model file of.",
    ),
]


def _target(export: Export) -> Any:
    return typer.Option(export.option, metavar=export.metavar, help=export.help)


def export_command(
    source: Source,
    onnx: Annotated[Path | None, _target(ONNX)] = None,
    sparse: Annotated[
        bool, typer.Option("--sparse", help="With --onnx: weights as sparse initializers, where smaller.")
    ] = False,
    hub: Annotated[Path | None, _target(HUB)] = None,
    cpp: Annotated[Path | None, _target(CPP)] = None,
    prefix: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="With --cpp or --c: what the names of functions and files begin with, in lower case.",
        ),
    ] = "net",
    cpp_file: Annotated[Path | None, _target(CPP_FILE)] = None,
    engine: options.Engine = "float",
    c: Annotated[Path | None, _target(C)] = None,
    clock: options.Clock = None,
    compiled: options.CompiledAs = None,
    input_unit: Annotated[
        str | None,
        typer.Option(
            metavar="X",
            help="With --c: also make input bytes from integers, such as a sensor's; X is what a count of 1 is in the "
            "unit of the training data (0.01 if 981 stands for 9.81), or X,Y,Z for each channel.",
        ),
    ] = None,
    web: Annotated[Path | None, _target(WEB)] = None,
    int8: Annotated[Path | None, _target(INT8)] = None,
    out: Annotated[Path | None, _target(MODEL_FILE)] = None,
    init: options.Init = None,
    name: options.Names = None,
    values: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="How the model file stores values: auto (default) in as few bits as hold them exactly, f32, f16, or "
            "p8 to p1 for 8 bits to 1; a model FILE keeps what it has.",
            autocompletion=options.completed("auto", *options.VALUES),
        ),
    ] = None,
    prefer: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="What formats are chosen for: bytes (the fewest), or speed.",
            autocompletion=options.completed("bytes", "speed"),
        ),
    ] = "bytes",
    shape: Annotated[
        str | None, typer.Option(metavar="C,H,W", help="Shape of one input, where the weights do not say it.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="DATA",
            help="Data that says shape, mean and classes, where the weights do not. --c, --web, --int8 and --values "
            "of few bits are also calibrated on it, and it shows what they cost.",
            autocompletion=options.completed(*options.DATA),
        ),
    ] = None,
    mean: options.Mean = None,
    layout: options.Layout = None,
    size: options.Size = None,
    as_json: options.Json = False,
) -> None:
    """Write ONNX, C++, C, a web page, or a model file of weights.

    membound export lenet --init weights.safetensors --out net.safetensors

    membound export model.onnx --out net.safetensors

    membound export net.safetensors --c firmware --data mnist

    membound export net.safetensors --cpp digits

    membound export net.safetensors --onnx net.onnx
    """
    targets = {
        ONNX: onnx,
        HUB: hub,
        CPP: cpp,
        CPP_FILE: cpp_file,
        C: c,
        WEB: web,
        INT8: int8,
        MODEL_FILE: out,
    }
    measured = init is not None and data is not None and values not in (None, "auto", "f32", "f16")
    chosen, target = (MODEL_FILE, None) if measured and not any(targets.values()) else _choose(targets)
    request = Request(
        source, target, sparse=sparse, init=init, name=options.pairs("--name", name, str), values=values,
        prefer=prefer, shape=_shape(shape), data=data, mean=mean, layout=layout, size=size, prefix=prefix,
        engine=options.engine(engine), clock=clock, compiled=compiled, input_unit=input_unit,
    )  # fmt: skip
    _refuse_weights(chosen, request)
    _check_effective(chosen, request)
    refuse_tflite(source)
    written = chosen.write(request)
    if written.note:
        from membound.report import advice

        typer.echo(advice.in_options(written.note), err=True)
    if as_json:
        options.print_json(written.facts)
        return
    for line in written.lines:
        typer.echo(in_options(line, {"engine": "--engine", "int8": "--int8"}))


def _choose(targets: Mapping[Export, Path | None]) -> tuple[Export, Path]:
    """The one export that a target is given for."""
    given = [(export, target) for export, target in targets.items() if target is not None]
    if len(given) > 1:
        options = " and ".join(export.option for export, _ in given)
        raise MemboundError(f"{options}: one at a time; run membound export once for each")
    if not given:
        *some, last = (f"{export.option} {export.metavar} ({export.purpose})" for export in EXPORTS)
        raise MemboundError(
            f"say what to write: {', '.join(some)} or {last}; membound export --help explains them"
        )
    return given[0]


def _refuse_weights(chosen: Export, request: Request) -> None:
    """A network, or an ONNX file, becomes a model file first, and that becomes the rest."""
    source, init = request.source, request.init
    starts = source.lower().endswith(".onnx") or (init is not None and not source.endswith(".safetensors"))
    if chosen is MODEL_FILE or not starts:
        return
    first = shlex.join(
        [
            "membound",
            "export",
            source,
            *([] if init is None else ["--init", str(init)]),
            "--out",
            "net.safetensors",
        ]
    )
    then = f"membound export net.safetensors {chosen.option} {shlex.quote(str(request.target))}"
    data = " --data DATA" if chosen in (C, WEB, INT8) and request.data is None else ""
    data = f" --data {shlex.quote(request.data)}" if request.data is not None else data
    raise MemboundError(f"{chosen.option} takes a model file: write one with {first}, then {then}{data}")


def _check_effective(chosen: Export, request: Request) -> None:
    """An option that would do nothing is a misunderstanding: better said than ignored."""
    usual = vars(Request(request.source, request.target))
    for name, value in vars(request).items():
        if value != usual[name] and name not in chosen.takes:
            those = " or ".join(export.option for export in EXPORTS if name in export.takes)
            option = name.replace("_", "-")
            raise MemboundError(f"--{option} goes with {those}, not with {chosen.option}: leave it out")


def _shape(text: str | None) -> tuple[int, ...] | None:
    """The sizes in a text such as 3,32,32.

    >>> _shape("3,32,32"), _shape("784")
    ((3, 32, 32), (784,))
    """
    if text is None:
        return None
    parts = text.lower().replace("x", ",").split(",")
    if not all(part.strip().isdecimal() and 0 < int(part) < 2**31 for part in parts):
        raise MemboundError(f"--shape {text!r} is not a list of sizes, such as 3,32,32")
    return tuple(int(part) for part in parts)
