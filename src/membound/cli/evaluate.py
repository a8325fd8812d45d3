"""membound evaluate: the accuracy of weights of any supported kind."""

from pathlib import Path
from typing import Annotated

import typer

from membound.cli import options
from membound.errors import MemboundError


def evaluate_command(
    net: options.Net,
    data: options.Data,
    init: options.Init = None,
    name: options.Names = None,
    split: Annotated[str, typer.Option(help="Which half of the data: test or train.")] = "test",
    mean: options.Mean = None,
    layout: options.Layout = None,
    size: options.Size = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 500,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**32 - 1, help="Seed of a folder's split (the weights' own if left out)."),
    ] = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Evaluate a network with given weights."""
    if init is None:
        raise MemboundError(
            f"no weights: membound evaluate NET --init {net if Path(net).is_file() else 'FILE'} --data ... says which "
            "network and which weights"
        )
    if split not in ("test", "train"):
        raise MemboundError(f"there is no split {split!r}: choose test or train")
    from membound.data import load
    from membound.train.job import evaluate_weights, image_size
    from membound.train.weights import saved_facts

    # A folder is split and read as it was for training, so that no image trained on is tested on.
    saved = saved_facts(init)
    seed = saved.get("seed", 0) if seed is None else seed
    size = size or image_size(net, data, saved.get("image_size"))
    dataset = load(data, layout=layout, size=size, seed=seed)
    model = options.network(net, len(dataset.classes), seed)
    names = options.pairs("--name", name, str)
    facts = evaluate_weights(
        model, init, dataset, names, split=split, mean=mean, device=device, batch_size=batch_size
    )
    if as_json:
        options.print_json(facts)
    else:
        typer.echo(
            f"accuracy  {facts['accuracy']:.2f} %   ({facts['errors']:,} errors in {facts['images']:,} images)"
        )
        typer.echo(f"nonzeros  {facts['nonzeros']:,} of {facts['parameters']:,} parameters")
