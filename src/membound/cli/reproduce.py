"""membound reproduce: a figure or table of the paper."""

import contextlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from membound.cli import options
from membound.cli.tables import print_grouped
from membound.errors import DataError, MemboundError, say_no_folder

if TYPE_CHECKING:
    from membound.paper.lab import Size

try:
    from membound.paper import FIGURES, LARGE, PANELS
except ModuleNotFoundError:  # it is in a clone of the repository, not in the wheel
    FIGURES = LARGE = PANELS = ()

INSTALL = "pip install -e '.[train,paper]'"


def reproduce_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=f"all, or one of {', '.join((*FIGURES, *LARGE)) or 'the figures, in a clone'}.",
            autocompletion=options.completed("all", *FIGURES, *LARGE),
        ),
    ],
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Little of everything, to see it work: a minute or two on two idle cores. The numbers mean nothing.",
        ),
    ] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where numbers and pictures go.")] = Path(
        "reproduced"
    ),
    run_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where trained networks are kept (default: OUT/networks)."),
    ] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Train on a Ray cluster: auto, local, HOST:PORT.")
    ] = None,
    draw: Annotated[bool, typer.Option("--draw", help="Train nothing: draw again what is in OUT.")] = False,
    net: Annotated[
        list[str] | None,
        typer.Option(
            "--net",
            metavar="NET",
            help="Only lenet or only quick, in figures that have both.",
            autocompletion=options.completed("lenet", "quick"),
        ),
    ] = None,
    longer: Annotated[
        bool, typer.Option(help="Also train ensembles for 20,000 steps as well as for the paper's 5,000.")
    ] = True,
    data: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="imagenet: a folder of class folders, or with train/ and val/."),
    ] = None,
    init: options.Init = None,
    layer: options.Names = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="At most this many steps per training, to see more than --quick shows: nothing is claimed then. "
            "imagenet: the steps of the dense training and of the last one.",
        ),
    ] = None,
    candidate_steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="imagenet: training steps of one tightening in a stage (default: 10000).",
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="imagenet: images per step.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="How many seeds: tables and pictures have mean and standard deviation over them.",
        ),
    ] = None,
    cache: options.Cache = None,
    skip_corrupt: options.SkipCorrupt = False,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Make a figure or table of the paper (in a clone).

    The paper's protocol to the letter, with ours beside it. What was trained is kept: the same command goes on where it
    stopped, and trains only what has changed.

    all leaves out imagenet, which needs --data: AlexNet, trained dense or from --init, is brought under the paper's
    counts.

    membound reproduce memory --quick --net lenet
    """
    if not FIGURES:
        raise MemboundError(
            "the paper's experiments run from a clone of the repository, but membound is installed outside of one: "
            f"run `{INSTALL}` in the clone (-e keeps membound there)"
        )
    if find_spec("matplotlib") is None:  # said now, not when everything is trained
        raise MemboundError(f"reproduce draws with matplotlib: run `{INSTALL}` in the clone")
    large = ", ".join(LARGE)
    if (data is None) == (name in LARGE) and not draw:
        raise MemboundError(
            f"reproduce {name} needs its images: add --data FOLDER"
            if data is None
            else f"--data is for {large}: {name} has its own data; leave it out"
        )
    if name not in LARGE:
        own = {
            "--init": init, "--name": layer, "--batch-size": batch_size, "--cache": cache,
            "--skip-corrupt": skip_corrupt or None, "--candidate-steps": candidate_steps,
        }  # fmt: skip
        if given := [option for option, value in own.items() if value is not None]:
            raise MemboundError(f"{given[0]} is for {large}: {name} has its own; leave it out")
    if net and name in (*FIGURES, *LARGE) and name not in PANELS:
        raise MemboundError(f"--net is for {', '.join(PANELS)}: {name} has one network; leave it out")
    if draw and (net or data is not None or seeds is not None or steps is not None):
        raise MemboundError("--draw draws what is there: leave --net, --seeds, --steps and --data out")
    from membound.paper import figure
    from membound.paper import reproduce as work
    from membound.paper.lab import Size
    from membound.train.loop import Interrupted
    from membound.train.parallel import choose_device

    names = work.choose(name)
    choose_device(device)  # said before a folder is made
    if not draw and (not out.parent.is_dir() or out.is_file()):
        raise MemboundError(f"--out {out}: {say_no_folder(out if out.is_file() else out.parent)}")
    documents = {}
    try:
        with contextlib.ExitStack() as stack:
            lab = None
            if not draw:
                size = Size(quick, seeds, None if name in LARGE else steps)
                lab = stack.enter_context(_lab(run_dir or out / "networks", device, ray, size, longer, net))
                if data is not None:
                    from membound import data as sets
                    from membound.paper.imagenet import Task

                    dataset = sets.load(data, size=256, skip_corrupt=skip_corrupt, cache=cache)
                    options.tell_left_out(dataset)
                    mapped = options.pairs("--name", layer, str)
                    lab.imagenet = Task(
                        dataset, init, mapped, steps, candidate_steps or 10_000, seeds or 1, batch_size
                    )
                _check_data(names, lab)
                out.mkdir(exist_ok=True)  # what cannot be written to is said before anything is trained
            for each in names:
                if lab is None:
                    documents[each] = work.read(out, each)
                    work.draw(out, each, documents[each])
                else:
                    documents[each] = work.reproduce(each, lab, out)
                if not as_json:
                    _print(each, documents[each], figure(each).table(documents[each]["numbers"]), out)
    except Interrupted:
        raise options.Stopped("interrupted: run the same command again to go on") from None
    if as_json:
        options.print_json(documents if name == "all" else documents[name])


@contextlib.contextmanager
def _lab(
    folder: Path, device: str, ray: str | None, size: "Size", longer: bool, nets: list[str] | None
) -> Iterator[Any]:
    from membound.paper.lab import NETS, Lab
    from membound.paper.progress import Lines
    from membound.search.workshop import this_process
    from membound.train.parallel import choose_device

    def say(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    if unknown := [net for net in nets or () if net not in NETS]:
        raise MemboundError(f"there is no network {unknown[0]!r} in the paper: choose {', '.join(NETS)}")
    chosen = choose_device(device)
    lines = Lines(say)
    told: dict[str, Any] = {"show": lines.show, "done": lines.done, "begin": lines.begin, "say": say}
    if ray is None:
        yield Lab(folder, this_process(chosen), chosen, size, tuple(nets or NETS), longer, **told)
        return
    from membound.search.cluster import ray_cluster

    with ray_cluster(ray, device=device) as workers:
        yield Lab(folder, workers, chosen, size, tuple(nets or NETS), longer, **told)


def _check_data(names: list[str], lab: Any) -> None:
    """All that is needed is read before anything is trained: a figure of both networks begins with the other one."""
    from membound.paper.lab import NETS
    from membound.paper.reproduce import nets_of

    for name in names:
        nets = nets_of(name, lab)
        for net in nets:
            try:
                lab.images(net)
            except DataError as error:
                others = [other for other in nets if other != net]
                instead = ""
                if others and len(names) == 1:
                    instead = f", or take {NETS[others[0]].title.split(' on ')[0]} alone: --net {others[0]}"
                raise DataError(f"{name}{f' --net {net}' if others else ''}: {error}{instead}") from error


def _print(name: str, document: dict[str, Any], rows: list[list[str]], out: Path) -> None:
    from membound.paper.claims import UNDECIDED, say_small

    small = say_small(document)
    print_grouped(rows, name if small is None else f"{name}, {small}")
    if small is not None:
        typer.echo(document["not_claimed"])
    else:
        for each in document["claims"]:
            typer.echo(f"{each['verdict']}: {each['claim']} ({each['detail']})")
        for verdict in sorted({each["verdict"] for each in document["claims"]} & UNDECIDED.keys()):
            typer.echo(f"{verdict}: {UNDECIDED[verdict]}")
    typer.echo(f"{document['seconds']:.0f} s; {out / name}.json, .svg, .png")
