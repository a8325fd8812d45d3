"""membound fit: from a budget to a network, as a file of that size."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from membound.cli import options
from membound.cli.fit_tables import tell
from membound.cli.records import spread
from membound.errors import MemboundError, a_kind, say_no_folder
from membound.search.bounds import Bound
from membound.search.place import Place
from membound.search.request import TEACHERS, Choices, Examples, split_keywords
from membound.store.other_files import refuse_as_network


@dataclass(frozen=True)
class Beside:
    """What is written beside the model file."""

    hub: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Also write a folder with a model card for the Hugging Face Hub."
        ),
    ] = None
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="HTML report (default: NAME.report.html beside --out)."),
    ] = None
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no report.")] = False

    def page(self, out: Path) -> Path | None:
        """Where the report goes."""
        if self.no_report and self.report is not None:
            raise MemboundError(f"--report {self.report} and --no-report: leave one out")
        return None if self.no_report else self.report or out.with_name(f"{out.stem}.report.html")


@spread(Bound, Choices, Place)
def fit_command(
    context: typer.Context,
    net: options.Net,
    data: options.Data,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Model file (.safetensors); with several budgets, one file each, named after its budget.",
        ),
    ],
    asked: dict[str, Any],
    source: options.Source,
    beside: Beside,
    teacher_init: Annotated[
        Path | None,
        typer.Option(metavar="WEIGHTS", help="Weights of the --teacher, where it is a NET."),
    ] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Train on a Ray cluster: auto, local or HOST:PORT.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print a line to stderr for each network trained.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Fit a network into a budget of bytes, as a file of that size.

    Give one bound: bytes of the file (--budget), memory (--ram), time (--latency), --nonzeros, points below the dense
    network (--within), or --stages. --budget goes with --ram or with --latency; with --target micro give --budget,
    --latency or both, and --ram beside them. The dense network is trained, too, to compare with, and a report is
    written next to the file.

    membound fit lenet --data mnist --budget 20KiB --out net.safetensors
    """
    refuse_as_network(net)
    _check_effective(asked, source, ray)
    _check_teacher(asked.get("teacher"), teacher_init)
    if "validation" in asked:
        asked["validation"] = _fraction(asked["validation"])
    if ":" in (asked.get("strategy") or ""):
        asked["strategy"] = _find_score(asked["strategy"])
    bound, choices, place, examples = split_keywords(asked | {"train_data": data})
    begun = time.monotonic()
    try:
        with _terminable():
            page = beside.page(out)
            _check_files([out], page, source.init)  # what is wrong with names takes no torch to say
            options.check_there(net, data)
            with options.reading() as tells:
                files = _name_files(out, bound.amounts)
                _check_files(files, page, source.init)
                _check_hub(beside.hub, files)
                from membound.cli.live import CHECKING
                from membound.search.micro import alike
                from membound.train.parallel import choose_device, leads
                from membound.train.preprocessing import preprocess_for, say_measured

                network, dataset, preprocess = source.load(net, data, choices.seed)
            if tells:
                typer.echo(CHECKING, err=True)
            examples = replace(examples, train_data=dataset, preprocess=preprocess)
            choices = replace(choices, pretrained=source.has_weights(net))
            if choices.pretrained and leads(place.device):
                used = preprocess or preprocess_for(network, dataset.train)
                if preprocess is None and bound.is_micro:
                    used = alike(used, dataset.shape[0])  # as the fit does
                if source.init is None and source.mean is None and (said := say_measured(used, data)):
                    typer.echo(said, err=True)
                if not as_json:
                    _tell_loaded(network, dataset, used, place.device)
            if teacher_init is not None:
                choices = replace(choices, teacher=_load_teacher(choices.teacher, teacher_init, dataset))
            results = _fit(network, examples, bound, choices, place, ray=ray, verbose=verbose)
            if not leads(place.device):
                return
            for result, file in zip(results, files, strict=True):
                result.save(file)
            if beside.hub is not None:
                _write_hub(beside.hub, files[0], results[0], data)
    except KeyboardInterrupt:
        raise options.Stopped(f"interrupted: {_say_kept(place.run_dir)}") from None
    from membound.search.summary import summarise

    _time_elsewhere(results)
    summary = summarise(
        results, network=net, data=data, strategy=choices.strategy_name, seed=choices.seed,
        seconds=time.monotonic() - begun, budget_kind=bound.kind, within=bound.within, files=files,
        device="cpu" if ray is not None else str(choose_device(place.device or "auto")),
    )  # fmt: skip
    failure = _write_report(page, summary, files)
    tell(summary, None if failure else page, asked.get("run_dir"), beside.hub, as_json, context.obj)
    if failure is not None:
        raise failure


def _say_kept(run_dir: Any) -> str:
    """What is left of a fit that somebody has stopped."""
    if run_dir is None:
        return options.NOTHING_SAVED
    folder = Path(run_dir)
    if not folder.is_dir() or not any(folder.iterdir()):
        return "nothing was saved yet: run the same command to start again"
    return "run the same command again to go on"


def _check_effective(asked: Mapping[str, Any], source: options.Source, ray: str | None) -> None:
    """An option that would do nothing is a misunderstanding: better said than ignored."""
    micro = asked.get("target") == "micro"
    for option in ("batch", "isa", "threads", "members", "prefer") if micro else ():
        if option in asked:
            what = (
                "stores weights in formats of its own"
                if option == "prefer"
                else "runs one network on one input"
            )
            raise MemboundError(f"the target micro {what}: leave --{option} out")
    greedy, several = asked.get("strategy") == "greedy", asked.get("members", 1) > 1
    steps_on = greedy or "stages" in asked
    needs = {
        "--batch": ("batch" in asked, "--ram", "ram" in asked),
        "--isa": ("isa" in asked, "--ram", "ram" in asked),
        "--clock": ("clock" in asked, "--target micro", micro),
        "--compiled": ("compiled" in asked, "--target micro", micro),
        "--threads": ("threads" in asked, "--latency", "latency" in asked),
        "--average": ("average" in asked, "--members 2 or more", several),
        "--greedy-step": ("greedy_step" in asked, "--strategy greedy", greedy),
        "--candidate-steps": ("candidate_steps" in asked, "--strategy greedy or --stages", steps_on),
        "--validation": (
            "validation" in asked, "--strategy greedy, --within, --stages or --widths",
            steps_on or "within" in asked or "widths" in asked or asked.get("effort") == "best",
        ),
        "--name": (bool(source.name), "--init", source.init is not None),
        "--tensorboard": ("tensorboard" in asked, "--run-dir", "run_dir" in asked),
    }  # fmt: skip
    for option, (given, other, there) in needs.items():
        if given and not there:
            raise MemboundError(f"{option} needs {other}: add {other}, or leave {option} out")
    if "tensorboard" in asked and ray is not None:
        raise MemboundError(
            "--tensorboard and --ray: the workers of a cluster write no curves: leave one out"
        )
    if "dense" in asked and "within" in asked and not micro:  # which takes no --within at all
        raise MemboundError("--within compares with the dense network: leave --no-dense out")


def _check_teacher(teacher: str | None, init: Path | None) -> None:
    """A file stands for itself; a network needs weights."""
    if teacher is None and init is not None:
        raise MemboundError("--teacher-init needs --teacher NET: add that, or leave --teacher-init out")
    if teacher is None or teacher in TEACHERS:
        if init is not None:
            raise MemboundError(f"--teacher {teacher} takes no weights: leave --teacher-init out")
        return
    is_file = Path(teacher).is_file()
    if is_file and init is not None:
        raise MemboundError(f"--teacher {teacher} is a file with its own weights: leave --teacher-init out")
    if not is_file and init is None:
        raise MemboundError(
            f"--teacher {teacher!r} is not a file: give a model file, a NET with --teacher-init WEIGHTS, dense, auto "
            "or none"
        )


def _load_teacher(net: str, init: Path, dataset: Any) -> Any:
    """The network, and how images are prepared for it where its weights say so."""
    from membound.train.weights import load_weights_

    network = options.network(net, dataset, 0)
    prepared = load_weights_(network, init)
    return network if prepared is None else (network, prepared)


def _fraction(text: str) -> int | float:
    try:
        return options.number(text)
    except ValueError:
        raise MemboundError(
            f"--validation {text!r} is not a count or a fraction, such as 5000 or 0.1"
        ) from None


def _name_files(out: Path, amounts: Sequence[str | int]) -> list[Path]:
    """--out itself for one network; of several budgets each is a part of its file's name."""
    if len(amounts) < 2:
        return [out]
    from membound.search.budget import Limit

    return [out.with_name(f"{out.stem}-{Limit(str(amount), 0).label}{out.suffix}") for amount in amounts]


def _check_files(files: Sequence[Path], page: Path | None, init: Path | None) -> None:
    """Before training, so that nothing is lost at its end."""
    from membound.train.writable import check_writable

    for file in files:
        check_writable(file)
        if init is not None and file.exists() and init.exists() and file.samefile(init):
            raise MemboundError(f"--out {file} is the file of weights: choose another name")
    if page is None:
        return
    if not page.resolve().parent.is_dir():
        raise MemboundError(f"--report {page}: {say_no_folder(page.parent)}")
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


def _fit(
    network: Any,
    examples: Examples,
    bound: Bound,
    choices: Choices,
    place: Place,
    *,
    ray: str | None,
    verbose: bool,
) -> list[Any]:
    """The fit, where it is asked for, and shown to who watches."""
    from membound.cli.live import watched
    from membound.search.cluster import ray_cluster
    from membound.search.fit import fit_all
    from membound.search.workshop import this_process
    from membound.train.parallel import choose_device, leads

    device = place.device or "auto"
    if ray is None and not leads(device):  # the first process of a torchrun tells for all
        return fit_all(network, examples, bound, choices, place)
    with ExitStack() as stack:
        if ray is not None:
            cluster = stack.enter_context(ray_cluster(ray, device=device))
            place = replace(place, workers=cluster, device="auto")
        watch, board = stack.enter_context(watched(verbose, place.run_dir is not None))
        if board is not None:
            workers = place.workers
            if workers is None and bound.within is None:  # how many sizes it tries at once is where it runs
                workers = this_process(choose_device(device))
            place = replace(place, workers=None if workers is None else board.count(workers))
        return fit_all(network, examples, bound, choices, replace(place, watch=watch))


def _tell_loaded(network: Any, dataset: Any, preprocess: Any, device: str | None) -> None:
    """How good the weights are before anything is done to them: a wrong mean shows here, not after hours."""
    from membound.train.job import judge_loaded
    from membound.train.preprocessing import describe

    if dataset.task != "classes" or len(dataset.shape) != 3:
        return
    accuracy = judge_loaded(network, dataset, preprocess, device or "auto")
    typer.echo(
        f"weights as loaded: {accuracy:.2f} % on the test images, prepared by {describe(preprocess)} (--mean)",
        err=True,
    )


def _find_score(spec: str) -> Any:
    """A strategy of the user's own: a function of a weight's name and the weight."""
    from membound.zoo.networks import find_callable

    found = find_callable(spec)
    if not callable(found):
        raise MemboundError(f"--strategy {spec} is {a_kind(found)}: name a function that scores weights")
    return found


def _time_elsewhere(results: Sequence[Any]) -> None:
    """How fast dense is in ONNX Runtime, in int8 and in floats, by turns with the file, where it is installed.

    Of int8 in membound and there, the faster is what the file is compared with.
    """
    from membound.bench.int8 import onnx_runs
    from membound.run.net import Net
    from membound.search import timing

    first = results[0]
    dense = first.dense or {}
    if not dense.get("int8") or "micro" in first.facts or (whole := first.whole()) is None:
        return
    threads = int(first.facts["threads"])
    ours = Net(first.files.stored(first.model.state_dict()), threads=threads)
    with onnx_runs(whole, threads) as runs:
        if runs is not None:
            _, floats, int8 = timing.race([timing.one_input(ours), *runs])
            by = {"latency_by": "ONNX Runtime"}
            dense["floats_elsewhere"] = floats.facts(threads) | by
            if int8.ms <= dense["int8"].get(
                "latency_ms", int8.ms
            ):  # or that of membound's own integers stays
                dense["int8"] |= int8.facts(threads) | by


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
