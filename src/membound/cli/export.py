"""membound export: trained weights become a model file, a model file becomes ONNX or a folder for the Hub."""

from pathlib import Path
from typing import Annotated, Any

import typer

from membound.cli import options
from membound.errors import MemboundError

Source = Annotated[
    str,
    typer.Argument(
        metavar="FILE|NET",
        help="A model file (with --onnx or --hub), or a network (with --init and --out).",
    ),
]

SPARSE_NOTE = (
    "note: sparse initializers save bytes of the file only: ONNX Runtime makes them dense as it loads, in memory and "
    "time they save nothing, and OpenVINO does not read them"
)


def export_command(
    source: Source,
    onnx: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write the model FILE as dense ONNX here (.onnx).")
    ] = None,
    sparse: Annotated[
        bool, typer.Option("--sparse", help="With --onnx: weights as sparse initializers, where smaller.")
    ] = False,
    hub: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write the model FILE and its card as a folder for the Hugging Face Hub."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="OUT",
            help="Write NET with the weights of --init as a model file here (.safetensors).",
        ),
    ] = None,
    init: options.Init = None,
    name: options.Names = None,
    values: Annotated[
        str,
        typer.Option(
            metavar="TYPE",
            help="How the model file stores values: f32 or f16.",
            autocompletion=options.completed("f32", "f16"),
        ),
    ] = "f32",
    prefer: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="What its formats are chosen for: fewest bytes, or speed.",
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
            help="Data to take shape, mean and classes from, where the weights do not say them.",
            autocompletion=options.completed(*options.DATA),
        ),
    ] = None,
    mean: options.Mean = None,
    layout: options.Layout = None,
    size: options.Size = None,
    as_json: options.Json = False,
) -> None:
    """Make a model file of weights, or ONNX or a Hub folder of a model file.

    membound export lenet --init weights.safetensors --out net.safetensors

    membound export net.safetensors --onnx net.onnx

    membound export net.safetensors --hub lenet-20k --data mnist
    """
    if [onnx, hub, out].count(None) != 2:
        raise MemboundError(
            "say what to write, one of: membound export FILE --onnx OUT.onnx, membound export FILE --hub FOLDER, "
            "membound export NET --init WEIGHTS --out FILE"
        )
    if out is None:
        read_data = {} if hub is not None else {"--data": data, "--layout": layout, "--size": size}
        unused = {"--init": init, "--name": name, "--shape": shape, "--mean": mean, **read_data}
        given = [option for option, value in unused.items() if value is not None]
        if given:
            raise MemboundError(f"{given[0]} goes with NET and --out: a model FILE already is all it says")
    if onnx is not None:
        _to_onnx(Path(source), onnx, sparse, as_json)
        return
    if sparse:
        raise MemboundError("--sparse goes with --onnx: a model file is sparse by itself")
    if hub is not None:
        _to_hub(Path(source), hub, data, layout, size, as_json)
        return
    assert out is not None
    if init is None:
        raise MemboundError(f"no weights: add --init WEIGHTS to export {source} --out {out}")
    if out.suffix != ".safetensors":
        raise MemboundError(
            f"--out {out}: a model file is a safetensors file: let its name end in .safetensors"
        )
    if out.exists() and init.exists() and out.samefile(init):
        raise MemboundError(f"--out {out} is the file of weights: choose another name")
    _to_model_file(source, init, out, name, values, prefer, _shape(shape), data, mean, layout, size, as_json)


def _to_onnx(file: Path, target: Path, sparse: bool, as_json: bool) -> None:
    from membound.run.files import find_model_file
    from membound.store.file import read
    from membound.store.onnx import to_onnx, write_onnx

    if target.suffix != ".onnx":
        raise MemboundError(f"--onnx {target}: let the name of an ONNX model end in .onnx")
    model = read(find_model_file(file))
    size = write_onnx(target, model, sparse)
    dense = sum(map(len, to_onnx(model))) if sparse else size
    if sparse:
        typer.echo(SPARSE_NOTE, err=True)
    if as_json:
        facts = {"out": str(target), "onnx_bytes": size, "dense_onnx_bytes": dense}
        options.print_json(facts | {"file_bytes": model.file_bytes})
    else:
        how = f"sparse initializers, {dense:,} dense" if sparse else "dense"
        typer.echo(f"onnx      {target}: {size:,} bytes, {how} (the model file has {model.file_bytes:,})")


def _to_hub(
    given: Path, folder: Path, data: str | None, layout: str | None, size: int | None, as_json: bool
) -> None:
    from membound.run.files import find_model_file
    from membound.run.hub_folder import check_folder, write_folder

    if data is None and (layout or size):
        raise MemboundError("--layout and --size go with --data, and there is none: add it or leave them out")
    check_folder(folder)
    file = find_model_file(given)
    known: dict[str, Any] = {}
    if data is not None:
        from membound.data import load
        from membound.run.evaluation import evaluate_file, image_size, open_for_evaluation

        net = open_for_evaluation(file)
        facts = evaluate_file(net, load(data, layout=layout, size=size or image_size(net, data)))
        known = {"accuracy": facts["accuracy"], "data": Path(data).name}
    write_folder(folder, file, **known)
    if as_json:
        options.print_json({"out": str(folder), **known})
        return
    told = "accuracy not known: add --data" if data is None else f"accuracy {known['accuracy']:.2f} %"
    typer.echo(f"folder    {folder}: the model file and its card ({told})")
    typer.echo(f"upload    hf upload ORG/{folder.absolute().name} {folder}")


def _to_model_file(
    net: str,
    init: Path,
    out: Path,
    name: list[str] | None,
    values: str,
    prefer: str,
    shape: tuple[int, ...] | None,
    data: str | None,
    mean: str | None,
    layout: str | None,
    size: int | None,
    as_json: bool,
) -> None:
    if values not in ("f32", "f16"):
        raise MemboundError(f"there are no values {values!r}: choose f32 or f16")
    if prefer not in ("bytes", "speed"):
        raise MemboundError(f"there is no preference {prefer!r}: choose bytes or speed")
    if data is None and (mean or layout or size):
        raise MemboundError(
            "--mean, --layout and --size go with --data, and there is none: add it or leave them out"
        )
    from membound import zoo
    from membound.capture.trained import store_trained
    from membound.data import load
    from membound.train.weights import saved_facts

    about = saved_facts(init)
    dataset = None if data is None else load(data, layout=layout, size=size, seed=about.get("seed", 0))
    classes = about.get("classes") or (dataset.classes if dataset is not None else None)
    model = zoo.build(net) if classes is None else options.network(net, len(classes), 0)
    stored = store_trained(
        model, init, out, names=options.pairs("--name", name, str), shape=shape, dataset=dataset, mean=mean,
        values=values, prefer="speed" if prefer == "speed" else "bytes",
    )  # fmt: skip
    from membound.run.inspection import inspect

    facts = {"out": str(out), **inspect(stored)}
    if as_json:
        options.print_json(facts)
        return
    typer.echo(f"file      {out}: {facts['file_bytes']:,} bytes ({facts['dense_bytes']:,} dense)")
    typer.echo(f"nonzeros  {facts['nonzeros']:,} of {facts['parameters']:,} parameters")
    if stored.preprocess is None:
        typer.echo(
            "note: neither the weights nor --data say how images are prepared, so the file does not either"
        )


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
