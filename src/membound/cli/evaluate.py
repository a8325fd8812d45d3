"""membound evaluate: the accuracy of a model file, or of weights of any supported kind."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from membound.cli import options
from membound.cli.tables import say
from membound.errors import MemboundError
from membound.report.advice import name_class
from membound.units import name_examples

WORST = 3  # classes that are named


def evaluate_command(
    net: Annotated[
        str, typer.Argument(metavar="FILE|NET", help="A model file; or, with --init, a network as for train.")
    ],
    data: options.Data,
    init: options.Init = None,
    name: options.Names = None,
    split: Annotated[
        str,
        typer.Option(
            metavar="HALF",
            help="Which part of the data: test, train, or all.",
            autocompletion=options.completed("test", "train", "all"),
        ),
    ] = "test",
    mean: options.Mean = None,
    layout: options.Layout = None,
    size: options.Size = None,
    skip_corrupt: options.SkipCorrupt = False,
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Images at once.")] = 500,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, max=2**32 - 1, metavar="N", help="Seed of a folder's split (default: the weights' own)."
        ),
    ] = None,
    device: options.Device = "auto",
    engine: options.AnyEngine = "float",
    as_json: options.Json = False,
) -> None:
    """Measure the accuracy of a model file, or of weights.

    A model file is run without torch, as it will be deployed; weights of other kinds (--init) in torch.

    membound evaluate net.safetensors --data mnist
    """
    options.check_engine(engine)
    if init is None and _is_model_file(net):
        unused = {"--name": name, "--mean": mean, "--device": None if device in ("auto", "cpu") else device}
        if given := [option for option, value in unused.items() if value is not None]:
            raise MemboundError(f"{given[0]} goes with NET --init: the file says all, and runs on the CPU")
        folder = {"layout": layout, "seed": seed or 0, "skip_corrupt": skip_corrupt}
        _evaluate_file(Path(net), data, _split(split), size, batch, folder, engine, as_json)
        return
    if init is None:
        from membound.store.other_files import refuse_other_kinds

        refuse_other_kinds(net)
        raise MemboundError(
            f"no weights: membound evaluate NET --init {net if Path(net).is_file() else 'FILE'} --data ... says which "
            "network and which weights"
        )
    if engine != "float":
        raise MemboundError("--engine goes with a model FILE: weights run in torch")
    split = _split(split)
    if split == "all":
        raise MemboundError("--split all goes with a model FILE: weights are judged on test or train")
    from membound.data import load
    from membound.train.job import evaluate_weights, image_size
    from membound.train.weights import saved_facts

    names = options.pairs("--name", name, str)
    options.check_sample(net, data, init, names)
    # A folder is split and read as it was for training, so that no image trained on is tested on.
    saved = saved_facts(init)
    seed = saved.get("seed", 0) if seed is None else seed
    size = size or image_size(net, data, saved.get("image_size"))
    dataset = load(data, layout=layout, size=size, seed=seed, skip_corrupt=skip_corrupt)
    options.tell_left_out(dataset)
    model = options.network(net, dataset, seed)
    facts = evaluate_weights(model, init, dataset, names, split=split, mean=mean, device=device, batch=batch)
    if as_json:
        options.print_json(facts)
    else:
        _warn_of_one_class(facts, dataset.classes, name_examples(dataset.shape).removesuffix("s"))
        _say_accuracy(facts, name_examples(dataset.shape))
        say("nonzeros", f"{facts['nonzeros']:,} of {facts['parameters']:,} parameters")


def _is_model_file(net: str) -> bool:
    """Whether NET is a FILE; one that holds weights alone needs its network."""
    from membound.run.files import holds_plain_weights
    from membound.run.hub import is_address

    return is_address(net) or (net.endswith(".safetensors") and not holds_plain_weights(Path(net)))


def _split(name: str) -> str:
    if name not in ("test", "train", "all"):
        raise MemboundError(f"there is no split {name!r}: choose test, train or all")
    return name


def _evaluate_file(
    file: Path,
    data: str,
    split: str,
    size: Any,
    batch: int,
    folder: dict[str, Any],
    engine: str,
    as_json: bool,
) -> None:
    from membound.run.evaluation import (
        check_sample,
        evaluate_file,
        image_size,
        load_like,
        lost_in_integers,
        open_for_evaluation,
    )
    from membound.run.micro_net import MicroNet

    net = (
        options.open_in_integers(file)
        if engine == "micro"
        else open_for_evaluation(file, batch, options.engine(engine))
    )
    size = size or image_size(net, data)
    check_sample(net, data)
    dataset = load_like(net.input_shape, data, size=size, **folder)
    options.tell_left_out(dataset)
    facts = evaluate_file(net, dataset, split, batch)
    if isinstance(net, MicroNet):
        facts["lost_in_integers"] = lost = lost_in_integers(net, dataset, split)
        if lost is not None:
            _warn_of_rounding(lost, name_examples(dataset.shape))
    if split != "all":
        options.tell_drawn(dataset)
    if as_json:
        options.print_json(facts)
        return
    _warn_of_one_class(facts, dataset.classes, name_examples(dataset.shape).removesuffix("s"))
    if "score_name" in facts:
        _print_score(facts, dataset.classes, engine)
        return
    _say_accuracy(facts, name_examples(dataset.shape))
    _print_worst(facts["classes"])
    if engine != "float":
        say("engine", engine)
    say("nonzeros", f"{facts['nonzeros']:,} in a file of {facts['file_bytes']:,} bytes")


def _say_accuracy(facts: dict[str, Any], examples: str) -> None:
    say(
        "accuracy",
        f"{facts['accuracy']:.2f} %{options.top5(facts)}   ({facts['errors']:,} errors in {facts['images']:,} "
        f"{examples})",
    )


def _warn_of_one_class(facts: dict[str, Any], classes: Sequence[str], example: str) -> None:
    """Said of a network that has collapsed: a good score would only show which class is usual."""
    number = facts.get("collapsed")
    if number is not None:
        name = name_class(number, classes)
        what = "pixel" if facts.get("task") == "segmentation" else example
        typer.echo(
            f"warning: it predicts class {name} for every {what}: train longer, or in more bytes", err=True
        )


def _warn_of_rounding(lost: dict[str, float], examples: str) -> None:
    """Said of a network that is good in floats, and collapses in integers."""
    typer.echo(
        f"warning: in integers it has {lost['accuracy']:.2f} % of {lost['images']:,} {examples}, in floats "
        f"{lost['float_accuracy']:.2f} %: calibrate on more inputs, as in training (membound export FILE --int8 NEW "
        "--data DATA), or train in int8 (membound fit --target micro)",
        err=True,
    )


def _print_worst(classes: Sequence[dict[str, Any]]) -> None:
    """The classes with the lowest accuracies; all are in JSON."""
    known = [each for each in classes if each["accuracy"] is not None]
    worst = sorted(known, key=lambda each: each["accuracy"])[:WORST]
    if len(known) > 1 and worst[0]["accuracy"] < 100:
        shown = ", ".join(
            f"{each['name']} {each['accuracy']:.2f} %" for each in worst if each["accuracy"] < 100
        )
        say("worst", f"{shown} (--json has all {len(known)} classes)")


def _print_score(facts: dict[str, Any], classes: Sequence[str], engine: str) -> None:
    """Of segmentation or regression."""
    if facts["task"] == "segmentation":
        say("mean IoU", f"{_with_error(facts)} over {facts['images']:,} images, of the classes in each")
        say("pixels", f"{100 * facts['pixels_right']:.2f} % right")
        known = [
            (name, iou) for name, iou in zip(classes, facts["class_iou"], strict=True) if iou is not None
        ]
        each = ", ".join(f"{name} {iou:.4f}" for name, iou in known)
        say("IoU", f"{each}, mean {facts['mean_class_iou']:.4f}, over all pixels")
    else:
        say("R²", f"{_with_error(facts)} on {facts['images']:,} examples")
        say(
            "errors",
            f"{facts['mean_absolute_error']:.4g} on average, {facts['root_mean_square_error']:.4g} root mean square, "
            "in the units of the targets",
        )
    if engine != "float":
        say("engine", engine)
    say("nonzeros", f"{facts['nonzeros']:,} in a file of {facts['file_bytes']:,} bytes")


def _with_error(facts: dict[str, Any]) -> str:
    """
    >>> _with_error({"score": 0.9, "standard_error": 0.01}), _with_error({"score": 0.9, "standard_error": None})
    ('0.9000 ± 0.0100 (standard error)', '0.9000')
    """
    error = facts["standard_error"]
    return f"{facts['score']:.4f}" + ("" if error is None else f" ± {error:.4f} (standard error)")
