"""Every export as one record: the option that asks for it, what it takes, how it is written.

The records are read where commands are parsed, so each imports what it needs, numpy included, when it is called.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from membound.errors import MemboundError
from membound.export.request import Export, Request, Written

if TYPE_CHECKING:
    from membound.export.rounded import Rounded
    from membound.store.formats import Prefer


def _write_onnx(request: Request) -> Written:
    from membound.export.onnx_file import export_onnx

    target = request.target
    assert target is not None
    made = export_onnx(request.source, target, sparse=request.sparse)
    size, dense = made.onnx_bytes, made.dense_onnx_bytes
    how = f"sparse initializers, {dense:,} dense" if request.sparse else "dense"
    return Written(
        {
            "out": str(target),
            "onnx_bytes": size,
            "dense_onnx_bytes": dense,
            "file_bytes": made.file_bytes,
            "input": made.input,
        },
        [
            f"onnx      {target}: {size:,} bytes, {how} (the model file has {made.file_bytes:,})",
            f"input     {made.input}",
        ],
        "note: sparse initializers save bytes of the file only: ONNX Runtime makes them dense as it loads, in memory "
        "and time they save nothing, and OpenVINO does not read them"
        if request.sparse
        else None,
    )


def _write_hub(request: Request) -> Written:
    from membound.export.hub_folder import check_folder, write_folder
    from membound.run.files import find_model_file

    folder, data = request.target, request.data
    assert folder is not None
    if data is None and (request.layout or request.size):
        raise MemboundError(
            "layout and size go with data, and there is none: add it or leave them out",
            about=("layout", "size", "data"),
        )
    check_folder(folder)
    file = find_model_file(Path(request.source))
    known: dict[str, Any] = {}
    told = "accuracy not known, for there is no data"
    if data is not None:
        from membound.run.evaluation import evaluate_file, image_size, load_like, open_for_evaluation

        net = open_for_evaluation(file)
        side = request.size or image_size(net, data)
        images = load_like(net.input_shape, data, layout=request.layout, size=side)
        known = {"accuracy": evaluate_file(net, images)["accuracy"], "data": Path(data).name}
        told = f"accuracy {known['accuracy']:.2f} %"
    write_folder(folder, file, **known)
    return Written(
        {"out": str(folder), **known},
        [
            f"folder    {folder}: the model file and its card ({told})",
            f"upload    hf upload ORG/{folder.absolute().name} {folder}",
        ],
    )


def _write_c(request: Request) -> Written:
    from membound.export.c_project import header_of, say_other_input
    from membound.export.micro import Way, facts_of, lines_of, write_c

    folder, prefix, way = request.target, request.prefix, Way(request.clock, request.compiled)
    assert folder is not None
    header = header_of(folder, prefix)
    made = write_c(
        folder, request.source, request.data, request.layout, request.size, prefix, way, request.input_unit
    )
    found, way, has_units = made.found, made.way, made.has_units
    names = f"{prefix}.c, {prefix}.h, the runtime, {prefix}_test.c, main.c, CMakeLists.txt, README.md"
    lines = [f"folder    {folder}: {names}", *_say_kept(made.kept), *lines_of(found, way, prefix, has_units)]
    if "main.c" in made.kept and (other := say_other_input(header, found.net.plan, prefix, has_units)):
        lines.insert(2, f"          {other}")
    note = "\n".join(f"note: {each}" for each in made.notes) or None
    return Written({"out": str(folder), "kept": made.kept, **facts_of(found, way, has_units)}, lines, note)


def _say_kept(kept: Sequence[str]) -> list[str]:
    return [f"kept      {' and '.join(kept)}: edited since the last export"] if kept else []


def _say_network(source: str) -> tuple[str, str]:
    """What net_id gives of a model file, and the line that says it."""
    from membound.run.files import find_model_file
    from membound.store.file import read

    found = read(find_model_file(Path(source))).id
    return (
        found,
        f"network   {found}: the first 16 digits of the model file's SHA-256; net_id returns the same",
    )


def _write_cpp(request: Request) -> Written:
    from membound.export.cpp_project import CODE, export_cpp, say_engine

    folder, prefix = request.target, request.prefix
    assert folder is not None
    made = export_cpp(request.source, folder, prefix=prefix, engine=request.engine)
    absent = f"note: no preprocessing in this file: {prefix}_prepare is left out; save with preprocess=..."
    if made.prepares and not made.takes_pixels:
        absent = (
            f"note: trained on floats: {prefix}_prepare takes no pixels, and examples/app does not compile with it; "
            "fit with uint8 images, or say in Python how pixels became floats: mb.fit(..., pixels=...)"
        )
    facts = {"weight_bytes": made.weight_bytes, "file_bytes": made.file_bytes, "kept": list(made.kept)}
    facts |= {"changed": made.changed}
    changed = [] if made.changed is None else [f"changed   {made.changed}"]
    build = f"{folder}/build"
    network, which = _say_network(request.source)
    return Written(
        {"out": str(folder), **facts, "engine": request.engine, "network": network},
        [
            f"folder    {folder}: {prefix}.h, {prefix}.cpp, weights.cpp, {prefix}_test.cpp, the kernels, main.cpp, "
            "CMakeLists.txt, Makefile",
            *_say_kept(made.kept),
            *changed,
            f"weights   {made.weight_bytes:,} bytes of the program: unpacked, and biases and tables in 32 bits (the "
            f"model file has {made.file_bytes:,})",
            f"code      {CODE}, stripped; the networks of a program share it",
            f"engine    {say_engine(request.engine, request.source if made.may_use_integers else None)}",
            which,
            f"try it    cmake -S {folder} -B {build} && cmake --build {build} -j 4 && {build}/main --check",
        ],
        None if made.prepares and made.takes_pixels else absent,
    )


def _write_cpp_file(request: Request) -> Written:
    from membound.export.cpp_file import export_cpp_file
    from membound.export.cpp_interface import FILE_FORMAT
    from membound.export.cpp_project import say_engine

    target = request.target
    assert target is not None
    size = export_cpp_file(request.source, target, engine=request.engine)
    network, which = _say_network(request.source)
    other = "float" if request.engine == "int8" else "int8"
    return Written(
        {"out": str(target), "file_bytes": size, "engine": request.engine, "network": network},
        [
            f"file      {target}: {size:,} bytes, for net_open_file of an app: unpacked, and biases and tables in 16 "
            "bits where that is exact",
            f"engine    {say_engine(request.engine)}; this network runs in {request.engine}, even in an app "
            f"exported with engine={other!r}",
            which,
            f"app       one whose net.h has NET_FILE_FORMAT {FILE_FORMAT}, for the same inputs, outputs and classes",
        ],
    )


def _write_web(request: Request) -> Written:
    from membound.export.micro import facts_of, lines_of, write_web

    folder = request.target
    assert folder is not None
    found, sizes = write_web(folder, request.source, request.data, request.layout, request.size)
    page = f"page      {folder}/index.html: {sizes['page_bytes']:,} bytes, of which the module {sizes['wasm_bytes']:,}"
    return Written({"out": str(folder), **sizes, **facts_of(found)}, [page, *lines_of(found)])


def _write_int8(request: Request) -> Written:
    from membound.export.micro import facts_of, lines_of, write_int8

    target = request.target
    assert target is not None
    if request.data is None:
        raise MemboundError("int8 values are calibrated on data, and there is none: name it", about="data")
    if target.suffix != ".safetensors":
        raise MemboundError(
            f"{target}: a model file is a safetensors file: let its name end in .safetensors", about="int8"
        )
    found = write_int8(target, request.source, request.data, request.layout, request.size)
    size = target.stat().st_size
    return Written(
        {"out": str(target), "file_bytes": size, **facts_of(found)},
        [f"file      {target}: {size:,} bytes, with scales of int8 values", *lines_of(found)],
    )


def _write_anew(request: Request) -> Written:
    """A model file in other formats, or with values of another type."""
    from membound.export.reencoded import reencode, size_for
    from membound.run.inspection import inspect

    source, target = Path(request.source), request.target
    for name in ("name", "shape", "mean"):
        if getattr(request, name):
            raise MemboundError(
                f"{source} is a model file, which says its own {name}: leave it out", about=name
            )
    _check_words(request)
    if target is not None:
        _check_target(target, source)
    prefer: Prefer = "speed" if request.prefer == "speed" else "bytes"
    if _is_rounded(request.values) and request.data is not None:
        from membound.data import load
        from membound.export.rounded import round_trained
        from membound.store.file import read

        side = request.size or size_for(source, request.data)
        dataset = load(request.data, layout=request.layout, size=side)
        return _write_rounded(
            request, round_trained(read(source).decode(), str(request.values), dataset, prefer)
        )
    assert target is not None
    before, stored = source.stat().st_size, reencode(source, target, request.values, prefer)
    line = f"file      {target}: {stored.file_bytes:,} bytes ({before:,} before)"
    return Written({"out": str(target), **inspect(target)}, [line])


def _write_model_file(request: Request) -> Written:
    from membound.export.reencoded import is_model_file

    if request.init is None and is_model_file(request.source):
        return _write_anew(request)
    weights, values = _check_weights(request), request.values or "auto"
    import torch

    from membound import zoo
    from membound.data import load
    from membound.export.rounded import round_trained, rounded_tensors
    from membound.export.trained import capture_trained, say_assumed
    from membound.run.inspection import inspect
    from membound.store.file import write
    from membound.train.job import image_size
    from membound.train.weights import saved_facts

    net, about, dataset = request.source, {} if weights is None else saved_facts(weights), None
    if request.data is not None:
        side = request.size or image_size(net, request.data, about.get("image_size"))
        dataset = load(request.data, layout=request.layout, size=side, seed=about.get("seed", 0))
    classes = about.get("classes") or (dataset.classes if dataset is not None else None)
    torch.manual_seed(0)  # what a network makes up beside its weights is the same every time
    captured = capture_trained(
        zoo.build(net) if classes is None else zoo.build_for(net, len(classes), _channels(about, dataset)),
        weights, names=request.name, shape=request.shape, dataset=dataset, mean=request.mean,
    )  # fmt: skip
    prefer: Prefer = "speed" if request.prefer == "speed" else "bytes"
    few = _is_rounded(values)
    note = None
    if dataset is not None and request.mean is None and not about:
        note = say_assumed(weights, captured, str(request.data))
    if few and dataset is not None:
        return replace(_write_rounded(request, round_trained(captured, values, dataset, prefer)), note=note)
    assert request.target is not None
    stored = write(request.target, captured, values, prefer)
    facts = {"out": str(request.target), **inspect(request.target)}
    lines = [
        f"file      {request.target}: {facts['file_bytes']:,} bytes ({facts['dense_file_bytes']:,} dense)",
        f"nonzeros  {facts['nonzeros']:,} of {facts['parameters']:,} parameters",
    ]
    if few and (rounded := rounded_tensors(captured, stored)):
        lines.append(
            f"note: {len(rounded)} of {len(stored.tensors)} tensors were rounded without data, which costs accuracy: "
            "where there are data, they are calibrated, and what it costs is measured"
        )
    if stored.preprocess is None:
        lines.append(
            "note: neither the weights nor data say how images are prepared, so the file does not either"
        )
    return Written(facts, lines, note)


def _channels(about: Mapping[str, Any], dataset: Any) -> int | None:
    """Of the images, where the weights or the data say so."""
    shape: Sequence[int] = about.get("shape") or ([] if dataset is None else dataset.shape)
    return shape[0] if len(shape) == 3 else None


def _write_rounded(request: Request, found: "Rounded") -> Written:
    """The file, if there is to be one, and a table of what it cost."""
    from membound.run.inspection import inspect

    if request.target is not None:
        found.write(request.target)
    facts = inspect(found.stored if request.target is None else request.target)
    rows = [
        ("", "values", "bytes", "accuracy", "errors"),
        *(
            (name, kind, f"{each['file_bytes']:,}", f"{each['accuracy']:.2f} %", f"{each['errors']:,}")
            for name, kind, each in (
                ("before", "f32", found.before), ("after", str(request.values), found.after)
            )
        ),
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            text.ljust(width) if place < 2 else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines += [
        f"data      calibrated on {found.calibrated_on:,} training images without their labels, measured on "
        f"{found.after['images']:,} test images",
        f"file      {'not written: it has no name' if request.target is None else request.target}",
    ]
    compared = {"before": found.before, "after": found.after, "calibrated_on": found.calibrated_on}
    out = None if request.target is None else str(request.target)
    return Written({"out": out, "stored_as": request.values, **compared, **facts}, lines)


def _check_weights(request: Request) -> Path | None:
    """All that can be said before torch is imported; the file of weights, unless the network is a file with its own."""
    net, init, out = request.source, request.init, request.target
    is_whole = net.lower().endswith(".onnx")
    if is_whole and init is not None:
        raise MemboundError(f"{net} has weights of its own: leave out the others", about="init")
    if init is None and not is_whole:
        raise MemboundError(
            f"no weights: {net} is not a model file, and becomes {out} with trained weights: name their file",
            about="init",
        )
    if out is not None:
        _check_target(out, Path(net) if init is None else init)
    _check_words(request)
    if request.data is None and (request.mean or request.layout or request.size):
        raise MemboundError(
            "mean, layout and size go with data, and there is none: add it or leave them out",
            about=("mean", "layout", "size", "data"),
        )
    return init


def _is_rounded(values: str | None) -> bool:
    """Whether weights are made to have few values."""
    from membound.store.exact import AUTO
    from membound.store.values import value_type

    return values not in (None, AUTO) and value_type(str(values)).coded


def _check_words(request: Request) -> None:
    from membound.store.exact import AUTO
    from membound.store.values import VALUE_TYPES

    if request.values is not None and request.values not in (AUTO, *VALUE_TYPES):
        *some, last = (AUTO, *VALUE_TYPES)
        raise MemboundError(
            f"there are no values {request.values!r}: choose {', '.join(some)} or {last}", about="values"
        )
    if request.prefer not in ("bytes", "speed"):
        raise MemboundError(
            f"there is no preference {request.prefer!r}: choose bytes or speed", about="prefer"
        )


def _check_target(out: Path, init: Path) -> None:
    if out.suffix != ".safetensors":
        raise MemboundError(
            f"{out}: a model file is a safetensors file: let its name end in .safetensors", about="out"
        )
    if out.exists() and init.exists() and out.samefile(init):
        raise MemboundError(f"{out} is the file of weights: choose another name", about="out")


_IMAGES = frozenset({"data", "layout", "size"})  # what says which images a model file is measured on
ONNX = Export(
    option="--onnx",
    metavar="OUT",
    help="Write the model FILE as dense ONNX here (.onnx).",
    purpose="other runtimes",
    takes=frozenset({"sparse"}),
    write=_write_onnx,
)
HUB = Export(
    option="--hub",
    metavar="FOLDER",
    help="Write the model FILE and its card as a folder for the Hugging Face Hub.",
    purpose="the Hugging Face Hub",
    takes=_IMAGES,
    write=_write_hub,
)
C = Export(
    option="--c",
    metavar="FOLDER",
    help="Write the model FILE as plain C for microcontrollers, in integers; --data calibrates and measures it.",
    purpose="C for microcontrollers",
    takes=_IMAGES | {"prefix", "clock", "compiled", "input_unit"},
    write=_write_c,
)
CPP = Export(
    option="--cpp",
    metavar="FOLDER",
    help="Write the model FILE as C++ for apps: the fast runtime with the weights compiled in, behind a C header.",
    purpose="C++ for apps",
    takes=frozenset({"prefix", "engine"}),
    write=_write_cpp,
)
CPP_FILE = Export(
    option="--cpp-file",
    metavar="OUT",
    help="Write the model FILE for an app of --cpp to open as it runs: an update without a new release.",
    purpose="an update for such an app",
    takes=frozenset({"engine"}),
    write=_write_cpp_file,
)
WEB = Export(
    option="--web",
    metavar="FOLDER",
    help="Write the model FILE as a web page, the same C as WebAssembly; needs ziglang, or clang and lld.",
    purpose="a web page",
    takes=_IMAGES,
    write=_write_web,
)
INT8 = Export(
    option="--int8",
    metavar="OUT",
    help="Write the model FILE with the scales of a microcontroller's integers, calibrated on --data (.safetensors): "
    "for --engine micro. Phones and servers need none: their --engine int8 runs any model FILE.",
    purpose="microcontroller scales",
    takes=_IMAGES,
    write=_write_int8,
)
MODEL_FILE = Export(
    option="--out",
    metavar="OUT",
    help="Write NET with the weights of --init, an .onnx file, or a model FILE anew as a model file (.safetensors).",
    purpose="a model file of trained weights",
    takes=frozenset({"init", "name", "values", "prefer", "shape", "data", "mean", "layout", "size"}),
    write=_write_model_file,
)
EXPORTS = (ONNX, HUB, CPP, CPP_FILE, C, WEB, INT8, MODEL_FILE)
