"""LeNet on the embedded MNIST, dense and with l0 projection to 5 % of its weights: `make demo`.

Both networks train for the same number of steps from the same random start. Nothing here looks at the test images
before the end.
"""

import argparse
import json
import sys
import time
from contextlib import contextmanager

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import membound as mb
from membound.store.sizes import best_format
from membound.train.job import count_parameters
from membound.train.loop import Settings, train
from membound.train.preprocessing import preprocess_for
from membound.train.recipe import modern

# How much of each layer is kept: 21,525 of 430,500 weights. The first and the last layer are small and matter most.
KEEP = {"conv1": 0.55, "conv2": 0.15, "fc1": 0.04, "fc2": 0.3}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--iterations", type=int, default=1500)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--device", default="auto")
    arguments.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = arguments.parse_args()

    data = mb.data.load("mnist")
    bound = {
        layer: mb.l0_project(mb.ramp(1.0, keep, begin=0.1, until=0.6), every=20)
        for layer, keep in KEEP.items()
    }
    rows = [_train(name, rules, data, options) for name, rules in (("dense", {}), ("sparse", bound))]
    if options.json:
        print(json.dumps(rows))
    else:
        _print(rows)


def _train(name: str, rules: dict, data: mb.data.Dataset, options: argparse.Namespace) -> dict:
    torch.manual_seed(options.seed)
    net = mb.zoo.lenet()
    recipe = modern("sgd", options.iterations, batch_size=128, lr=0.05, warmup=100)
    settings = Settings(seed=options.seed, device=options.device, evaluate_every=options.iterations)
    started = time.monotonic()
    with _bar(f"training {name}", options.iterations) as show:
        result = train(
            net, data.train, recipe, rules,
            preprocess=preprocess_for(net, data.train), held_out=data.test, settings=settings, show=show,
        )  # fmt: skip
    sizes = [best_format(p.numel(), int(p.count_nonzero()))[1] for p in net.parameters()]
    counts = count_parameters(net)
    return {
        "network": name,
        "accuracy": result.score.accuracy,
        "errors": result.score.errors,
        "weight_nonzeros": counts["weight_nonzeros"],
        "kept": counts["weight_nonzeros"] / 430_500,
        "bytes": sum(sizes),
        "iterations": options.iterations,
        "seconds": round(time.monotonic() - started, 1),
    }


@contextmanager
def _bar(title: str, iterations: int):
    """A progress bar when a person watches, nothing otherwise."""
    if not sys.stderr.isatty():
        yield None
        return
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=iterations)
        yield lambda progress: bar.update(task, completed=progress.iteration)


def _print(rows: list[dict]) -> None:
    table = Table("network")
    for column in ("accuracy", "test errors", "nonzero weights", "kept", "bytes", "seconds"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row["network"], f"{row['accuracy']:.2f} %", str(row["errors"]), f"{row['weight_nonzeros']:,}",
            f"{row['kept']:.1%}", f"{row['bytes']:,}", f"{row['seconds']:.0f}",
        )  # fmt: skip
    Console().print(table)
    print(
        f"The sparse network takes {rows[0]['bytes'] / rows[1]['bytes']:.1f} times fewer bytes than the dense one."
    )


if __name__ == "__main__":
    main()
