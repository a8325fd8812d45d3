"""membound train: one network, with rules for its layers."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from membound.cli import options
from membound.cli.records import spread
from membound.cli.tables import Column, print_table, times
from membound.errors import MemboundError
from membound.report.text import weights_first
from membound.search.option import AUGMENT_HELP, AUGMENT_WORDS
from membound.store.other_files import refuse_as_network

Rules = list[str] | None
PACKAGES = ("membound", "torch", "numpy")  # whose versions a record has


@spread()
def train_command(
    net: options.Net,
    data: options.Data,
    source: options.Source,
    keep: Annotated[
        Rules,
        typer.Option(
            metavar="LAYER=N",
            help="l0: keep a fraction of the weights (0.05 or 5%) or a count (2000); repeatable.",
        ),
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Steps between l0 projections (default: 100)."),
    ] = None,
    ramp: Annotated[
        bool, typer.Option("--ramp", help="Tighten --keep along a cubic from 15 % to 70 % of the run.")
    ] = False,
    levels: Annotated[
        Rules,
        typer.Option(
            metavar="LAYER=N",
            help="At most N different nonzero values (1 to 256), from 60 % of the run on; repeatable.",
        ),
    ] = None,
    shrink: Annotated[
        Rules, typer.Option(metavar="LAYER=X", help="l1 by shrinkage, of this strength; repeatable.")
    ] = None,
    l1: Annotated[
        Rules, typer.Option(metavar="LAYER=X", help="l1 by subgradient, of this strength; repeatable.")
    ] = None,
    decay: Annotated[
        Rules, typer.Option(metavar="LAYER=X", help="l2 decay, instead of the solver's; repeatable.")
    ] = None,
    solver: options.Solver = None,
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Training steps (default: the solver's, or 5000).")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Images in a step, over all processes.")
    ] = None,
    lr: Annotated[float | None, typer.Option(metavar="X", help="Peak learning rate (sgd and adamw).")] = None,
    weight_decay: Annotated[
        float | None,
        typer.Option(metavar="X", help="Decay of every weight without a --decay (sgd and adamw)."),
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Steps of warm-up (sgd and adamw).")
    ] = None,
    validation: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Hold out this many training images, and report on them."),
    ] = None,
    subsample: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Train on this many images, chosen by the seed.")
    ] = None,
    bag: Annotated[
        bool, typer.Option("--bag", help="Train on a bagged resample, drawn by the seed.")
    ] = False,
    augment: Annotated[
        str | None,
        typer.Option(metavar="HOW", help=AUGMENT_HELP, autocompletion=options.completed(*AUGMENT_WORDS)),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the trained weights go (.safetensors).")
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where checkpoints go; the same command resumes from there."),
    ] = None,
    checkpoint_seconds: Annotated[
        float, typer.Option(min=0, metavar="X", help="Seconds between checkpoints.")
    ] = 20.0,
    evaluate_every: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Steps between evaluations.")
    ] = None,
    precision: Annotated[
        str,
        typer.Option(
            metavar="TYPE",
            help="float32, bf16 or float64.",
            autocompletion=options.completed("float32", "bf16", "float64"),
        ),
    ] = "float32",
    accumulate: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Pass a batch in this many parts, one after another, to save memory."
        ),
    ] = 1,
    shard: Annotated[
        bool,
        typer.Option("--shard", help="Spread weights and optimizer over torchrun's processes (FSDP)."),
    ] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write curves for TensorBoard.")] = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Train a network under rules, such as --keep fc1=0.05.

    A LAYER is a name or a pattern ('conv*', '*'); the first match of each kind wins, and kinds are chained
    decay, l1, shrink, keep, levels. The solver's own decay stays on every weight that no --decay names.

    membound train lenet --data mnist --keep 'fc*=0.05' --ramp --every 20 --out lenet.safetensors
    """
    refuse_as_network(net)
    _check_effective(keep=keep, every=every, ramp=ramp, init=source.init, name=source.name)
    from membound import data as sets
    from membound.machine import describe
    from membound.train import job
    from membound.train.loop import Interrupted
    from membound.train.run import Settings

    dataset = sets.load(
        data, layout=source.layout, size=source.size or job.image_size(net, data), seed=seed,
        skip_corrupt=source.skip_corrupt, cache=source.cache,
    )  # fmt: skip
    options.tell_left_out(dataset)
    options.tell_layout(dataset)
    model = options.network(net, dataset, seed)
    rules = job.combine_rules(
        model,
        decay=options.pairs("--decay", decay, float),
        l1=options.pairs("--l1", l1, float),
        shrink=options.pairs("--shrink", shrink, float),
        keep=options.pairs("--keep", keep, options.number),
        levels=options.pairs("--levels", levels, options.levels),
        every=every or 100,
        ramp=ramp,
    )
    settings = Settings(
        seed, device, precision, evaluate_every, run_dir, checkpoint_seconds, tensorboard,
        shard=shard, accumulate=accumulate,
    )  # fmt: skip
    recipe = job.choose_recipe(model, solver, steps, batch_size, lr, weight_decay, warmup)
    names = options.pairs("--name", source.name, str)
    if keep and (every or 100) > recipe.steps:
        typer.echo(
            f"--every {every or 100} is more than the {recipe.steps:,} steps: weights are projected only once, at the "
            "end, which is pruning in one shot; give a smaller --every",
            err=True,
        )
    try:
        with _progress_bar(recipe.steps) as bar:
            lost = out is None and run_dir is None
            show = (
                _tell_first("no --out and no --run-dir: the weights will not be kept", bar) if lost else bar
            )
            facts = job.train_network(
                model, dataset, recipe, rules, settings, init=source.init, names=names, mean=source.mean, out=out,
                validation=validation, subsample=subsample, bag=bag, augment=augment, show=show,
            )  # fmt: skip
    except Interrupted:
        again = "run the same command again to go on" if run_dir else options.NOTHING_SAVED
        raise options.Stopped(f"interrupted: {again}") from None
    if facts is not None:
        options.print_json(describe(PACKAGES) | facts) if as_json else _print(facts, out)


def _check_effective(
    keep: Rules, every: int | None, ramp: bool, init: Path | None, name: list[str] | None
) -> None:
    """An option that would do nothing is a misunderstanding: better said than ignored."""
    if ramp and not keep:
        raise MemboundError(
            "--ramp tightens --keep, and there is none: add --keep LAYER=FRACTION or leave it out"
        )
    if every is not None and not keep:
        raise MemboundError("--every is for --keep, and there is none: add --keep LAYER=N or leave it out")
    if name and init is None:
        raise MemboundError(
            "--name says where layers of --init go, and there is none: add --init or leave it out"
        )


def _tell_first(said: str, show: Callable[[Any], None] | None) -> Callable[[Any], None]:
    """Say it when training is under way: what is refused before has one line, and no other."""
    left = [said]

    def told(progress: Any) -> None:
        while left:
            typer.echo(left.pop(), err=True)
        if show is not None:
            show(progress)

    return told


@contextmanager
def _progress_bar(steps: int) -> Iterator[Callable[[Any], None] | None]:
    """A bar on the terminal when a person watches; nothing otherwise."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=steps)
        accuracy = ""

        def show(progress: Any) -> None:
            nonlocal accuracy
            if progress.score is not None:
                accuracy = f"  accuracy {progress.score.accuracy:.2f} %"
            bar.update(task, completed=progress.step, description=f"loss {progress.loss:.4f}{accuracy}")

        yield show


def _print(facts: dict[str, Any], out: Path | None) -> None:
    if facts["resumed"] is not None:
        typer.echo(f"resumed from step {facts['resumed']:,}")
    if facts["layers"]:
        columns = [
            Column("layer", right=False), Column("shape", 2, right=False), Column("nonzeros", 1), Column("kept"),
            Column("bytes"), Column("format", 3, right=False),
        ]  # fmt: skip
        rows = [
            [
                layer["name"], times(layer["shape"]), f"{layer['nonzeros']:,}",
                f"{layer['nonzeros'] / layer['size']:.2%}", f"{layer['bytes']:,}", layer["format"],
            ]
            for layer in weights_first(facts["layers"])
        ]  # fmt: skip
        print_table(columns, rows)
        typer.echo()
    typer.echo(
        f"accuracy  {facts['accuracy']:.2f} %{options.top5(facts)} on {facts['images']:,} "
        f"{facts['evaluated_on']} images ({facts['errors']:,} errors)"
    )
    typer.echo(f"nonzeros  {facts['nonzeros']:,} of {facts['parameters']:,} parameters")
    typer.echo(f"time      {facts['seconds']:.1f} s for {facts['steps']:,} steps")
    if out is not None:
        typer.echo(f"weights   {out}")
