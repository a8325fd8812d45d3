"""membound fit: from a budget to a network, as a file of that size."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from membound.cli import options
from membound.cli.fit_tables import tell
from membound.errors import MemboundError

Texts = list[str] | None
KINDS = {
    "--budget": "file", "--ram": "ram", "--nonzeros": "nonzeros", "--within": "file", "--stages": "file"
}  # fmt: skip


def fit_command(
    net: options.Net,
    data: options.Data,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The model file (.safetensors); of several budgets one each, which its name tells.",
        ),
    ],
    budget: Annotated[
        Texts,
        typer.Option(metavar="SIZE", help="Bound the file: 20KiB, 20480 bytes, or 10% of dense; repeatable."),
    ] = None,
    ram: Annotated[
        Texts, typer.Option(metavar="SIZE", help="Or bound the memory in which it runs; repeatable.")
    ] = None,
    nonzeros: Annotated[
        Texts, typer.Option(metavar="N", help="Or bound the nonzero parameters: 4000, or 10%; repeatable.")
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(metavar="POINTS", help="Or find the smallest file within so many points of dense."),
    ] = None,
    stages: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Or tighten layers stage by stage, as this TOML file says."),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Images at once, for --ram (1 if left out).")
    ] = None,
    isa: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Let --ram hold on this instruction set alone: avx512, avx2, neon or scalar.",
            autocompletion=options.completed("avx512", "avx2", "neon", "scalar", "every"),
        ),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="How layers share the bound: global, greedy (the paper's search), uniform or magnitude.",
            autocompletion=options.completed("global", "greedy", "uniform", "magnitude"),
        ),
    ] = "global",
    values: Annotated[
        str,
        typer.Option(
            metavar="TYPE",
            help="How values are stored: f16, f32, or auto (f16 unless that costs accuracy).",
            autocompletion=options.completed("auto", "f16", "f32"),
        ),
    ] = "auto",
    members: Annotated[
        int,
        typer.Option(min=1, max=64, metavar="N", help="Networks of an ensemble, together within the bound."),
    ] = 1,
    average: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="What an ensemble averages: scores (if left out) or probabilities.",
            autocompletion=options.completed("scores", "probabilities"),
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Training steps of each network (the solver's if left out)."),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, metavar="N", help="Images in a step.")] = None,
    lr: Annotated[float | None, typer.Option(metavar="X", help="Peak learning rate.")] = None,
    weight_decay: Annotated[float | None, typer.Option(metavar="X", help="Weight decay.")] = None,
    solver: options.Solver = None,
    every: Annotated[int | None, typer.Option(min=1, metavar="N", help="Steps between projections.")] = None,
    layer: Annotated[
        Texts, typer.Option(metavar="PATTERN", help="Bound only these layers, such as 'fc*'; repeatable.")
    ] = None,
    protect: Annotated[
        Texts, typer.Option(metavar="PATTERN", help="Leave these layers dense; repeatable.")
    ] = None,
    depthwise: Annotated[
        bool, typer.Option("--depthwise", help="Bound depthwise convolutions, too.")
    ] = False,
    greedy_step: Annotated[
        float | None,
        typer.Option(metavar="X", help="Part of a layer that a greedy candidate loses (0.2 if left out)."),
    ] = None,
    candidate_steps: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Steps of a greedy candidate, or of a step in a stage (1000)."),
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Training images held out to make choices by: a count or a fraction (0.1 if left out).",
        ),
    ] = None,
    init: options.Init = None,
    name: options.Names = None,
    mean: options.Mean = None,
    layout: options.Layout = None,
    size: options.Size = None,
    cache: options.Cache = None,
    skip_corrupt: options.SkipCorrupt = False,
    no_dense: Annotated[
        bool, typer.Option("--no-dense", help="Train no dense network to compare with.")
    ] = False,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Train on a Ray cluster: auto, local, HOST:PORT.")
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep what is finished here: the same command goes on from there after a crash.",
        ),
    ] = None,
    hub: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Also write a folder with a model card for the Hugging Face Hub."
        ),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write curves for TensorBoard into --run-dir.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The HTML report (NAME.report.html beside --out if left out)."),
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no report.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Say on stderr when a network is trained, a line each.")
    ] = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Fit a network into a budget of bytes, as a file of that size.

    One bound is given: --budget, --ram, --nonzeros, --within or --stages. A dense network is trained beside it, to
    compare with, and a report is written beside the file.

    membound fit lenet --data mnist --budget 20KiB --out net.safetensors
    """
    bound, amounts = _find_bound(
        {"--budget": budget, "--ram": ram, "--nonzeros": nonzeros, "--within": within, "--stages": stages}
    )
    steps_on = strategy == "greedy" or stages is not None
    searches = steps_on or within is not None
    _check_effective("--batch", batch, "--ram", ram)
    _check_effective("--isa", isa, "--ram", ram)
    _check_effective("--average", average, "--members 2 or more", members > 1)
    _check_effective("--greedy-step", greedy_step, "--strategy greedy", strategy == "greedy")
    _check_effective("--candidate-steps", candidate_steps, "--strategy greedy or --stages", steps_on)
    _check_effective("--validation", validation, "--strategy greedy, --within or --stages", searches)
    _check_effective("--name", name, "--init", init)
    _check_effective("--tensorboard", tensorboard or None, "--run-dir", run_dir)
    if tensorboard and ray is not None:
        raise MemboundError(
            "--tensorboard and --ray: the workers of a cluster write no curves: leave one out"
        )
    if no_dense and within is not None:
        raise MemboundError("--within compares with the dense network: leave --no-dense out")
    page = None if no_report else report or out.with_name(f"{out.stem}.report.html")
    if no_report and report is not None:
        raise MemboundError(f"--report {report} and --no-report: leave one out")
    files = _name_files(out, amounts)
    _check_files([out, *files], page, init)
    _check_hub(hub, files)
    begun = time.monotonic()
    given = {
        "steps": steps, "batch_size": batch_size, "lr": lr, "weight_decay": weight_decay, "solver": solver,
        "every": every, "layers": layer, "protect": protect, "depthwise": depthwise, "greedy_step": greedy_step,
        "candidate_steps": candidate_steps, "validation": _fraction(validation), "average": average, "batch": batch,
        "isa": isa,
    }  # fmt: skip
    asked: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    asked |= {"strategy": strategy, "values": values, "members": members, "dense": not no_dense, "seed": seed}
    asked["tensorboard"] = tensorboard
    folder = {"skip_corrupt": skip_corrupt, "cache": cache}
    try:
        with _terminable():
            network, dataset, more = _load(net, data, init, name, mean, layout, size, seed, folder)
            value = {"--within": within, "--stages": stages}.get(bound, amounts)
            asked |= {bound.removeprefix("--"): value, **more}
            results = _fit(network, dataset, asked, ray=ray, device=device, run_dir=run_dir, verbose=verbose)
            for result, file in zip(results, files, strict=True):
                result.save(file)
            if hub is not None:
                _write_hub(hub, files[0], results[0], data)
    except KeyboardInterrupt:
        again = "run the same command again to go on" if run_dir else "without --run-dir nothing was saved"
        raise options.Stopped(f"interrupted: {again}") from None
    from membound.search.summary import summarise
    from membound.train.parallel import choose_device

    summary = summarise(
        results, network=net, data=data, strategy=strategy, seed=seed, seconds=time.monotonic() - begun,
        budget_kind=KINDS[bound], within=within, files=files,
        device="cpu" if ray is not None else str(choose_device(device)),
    )  # fmt: skip
    failure = _write_report(page, summary, files)
    tell(summary, None if failure else page, run_dir, hub, as_json)
    if failure is not None:
        raise failure


def _find_bound(given: dict[str, Any]) -> tuple[str, list[str]]:
    """The one kind of bound that is given, and its amounts; --within and --stages have none."""
    found = [option for option, value in given.items() if value is not None and value != []]
    if len(found) != 1:
        there = " and ".join(found) + " are given" if found else "there is none"
        raise MemboundError(f"one bound is needed, of {', '.join(given)}: {there}")
    (bound,) = found
    return bound, [] if bound in ("--within", "--stages") else list(given[bound])


def _check_effective(option: str, value: object, other: str, there: object) -> None:
    """An option that would do nothing is a misunderstanding: better said than ignored."""
    if value not in (None, []) and not there:
        raise MemboundError(f"{option} goes with {other}, which is not there: add it or leave {option} out")


def _fraction(text: str | None) -> int | float | None:
    try:
        return None if text is None else options.number(text)
    except ValueError:
        raise MemboundError(
            f"--validation {text!r} is not a count or a fraction, such as 5000 or 0.1"
        ) from None


def _name_files(out: Path, amounts: Sequence[str]) -> list[Path]:
    """--out itself for one network; of several budgets each is a part of its file's name."""
    if len(amounts) < 2:
        return [out]
    from membound.search.budget import Limit

    return [out.with_name(f"{out.stem}-{Limit(amount, 0).label}{out.suffix}") for amount in amounts]


def _check_files(files: Sequence[Path], page: Path | None, init: Path | None) -> None:
    """Before training, so that nothing is lost at its end."""
    from membound.train.job import check_writable

    for file in files:
        check_writable(file)
        if init is not None and file.exists() and init.exists() and file.samefile(init):
            raise MemboundError(f"--out {file} is the file of weights: choose another name")
    if page is None:
        return
    if not page.resolve().parent.is_dir():
        raise MemboundError(f"--report {page}: there is no folder {page.parent}")
    if not os.access(page.resolve().parent, os.W_OK):
        raise MemboundError(f"--report {page}: the folder {page.parent} cannot be written")
    if page.is_dir():
        raise MemboundError(f"--report {page} is a folder: name a file, such as {page / 'report.html'}")
    if page.suffix.lower() not in (".html", ".htm"):
        raise MemboundError(f"--report {page}: the report is a web page, so name the file {page.stem}.html")


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends a fit as Ctrl-C does, also between its trainings."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _load(
    net: str,
    data: str,
    init: Path | None,
    name: list[str] | None,
    mean: str | None,
    layout: str | None,
    size: int | None,
    seed: int,
    folder: dict[str, Any],
) -> tuple[Any, Any, dict[str, Any]]:
    """The network or what makes it, the data, and what they say about the fit."""
    from functools import partial

    from membound import data as sets
    from membound import zoo
    from membound.train.job import image_size
    from membound.train.preprocessing import preprocess_for
    from membound.train.weights import load_weights_, saved_facts

    # A folder is split and read as it was for training, so that no image trained on is tested on.
    saved = {} if init is None else saved_facts(init)
    side = size or image_size(net, data, saved.get("image_size"))
    dataset = sets.load(data, layout=layout, size=side, seed=saved.get("seed", seed), **folder)
    options.tell_left_out(dataset)
    model = options.network(net, len(dataset.classes), seed)
    more: dict[str, Any] = {}
    if init is not None:
        found = load_weights_(model, init, options.pairs("--name", name, str))
        more = {"pretrained": True, "preprocess": found}
    if mean is not None:
        more["preprocess"] = preprocess_for(model, dataset.train, mean)
    return model if init is not None else partial(zoo.build_for, net, len(dataset.classes)), dataset, more


def _fit(
    network: Any,
    dataset: Any,
    asked: dict[str, Any],
    *,
    ray: str | None,
    device: str,
    run_dir: Path | None,
    verbose: bool,
) -> list[Any]:
    """The fit, where it is asked for, and shown to who watches."""
    from membound.cli.live import watched
    from membound.search.cluster import ray_cluster
    from membound.search.fit import fit
    from membound.search.workshop import Workers, this_process
    from membound.train.parallel import choose_device

    with ExitStack() as stack:
        workers: Workers | None = None
        if ray is not None:
            workers, device = stack.enter_context(ray_cluster(ray, device=device)), "auto"
        watch, board = stack.enter_context(watched(verbose))
        if board is not None:
            if workers is None and "within" not in asked:  # how many sizes it tries at once is where it runs
                workers = this_process(choose_device(device))
            workers = None if workers is None else board.count(workers)
        results = fit(network, dataset, run_dir=run_dir, device=device, workers=workers, watch=watch, **asked)
    return results if isinstance(results, list) else [results]


def _write_report(page: Path | None, summary: dict[str, Any], files: Sequence[Path]) -> MemboundError | None:
    """Write the report; what went wrong is told after the results, which are there."""
    from membound.report import write_report

    try:
        if page is not None:
            write_report(page, summary)
    except MemboundError as error:
        there = "the network is" if len(files) == 1 else "the networks are"
        return MemboundError(f"{error}; {there} in {', '.join(map(str, files))}")
    return None


def _check_hub(hub: Path | None, files: Sequence[Path]) -> None:
    """Before training, so that nothing is lost at its end."""
    if hub is None:
        return
    from membound.export.hub_folder import check_folder

    if len(files) > 1:
        raise MemboundError(
            "--hub is a folder for one network: export the files of several with membound export --hub"
        )
    check_folder(hub)


def _write_hub(hub: Path, file: Path, result: Any, data: str) -> None:
    from membound.export.hub_folder import write_folder

    where = {"accuracy_on": result.accuracy_on, "data": Path(data).name}
    write_folder(hub, file, accuracy=result.accuracy, dense=result.dense, **where)
