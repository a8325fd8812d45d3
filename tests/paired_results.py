"""What results say of one way against another, paired by seed: what documents may say with a ±, and in words."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from membound.report.paired import Comparison

RESULTS = Path(__file__).parents[1] / "results"
Rows = list[dict[str, Any]]


def rows(name: str) -> Rows:
    return json.loads((RESULTS / f"{name}.json").read_text())["rows"]


def by_seed(
    found: Rows, key: Callable[[dict], Any], value: str = "accuracy", seed: str = "seed"
) -> dict[Any, dict[int, float]]:
    """The score of each seed, by what `key` says of a row."""
    scores: dict[Any, dict[int, float]] = {}
    for row in found:
        scores.setdefault(key(row), {})[row[seed]] = row[value]
    return scores


def pair(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Comparison:
    seeds = sorted(ours.keys() & theirs.keys())
    return Comparison.of([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds], seeds)


def deployed(name: str) -> dict[str, dict[int, float]]:
    """Of networks whose keys end in their seeds, such as lamp-20KiB-s0."""
    split = [
        {**row, **dict(zip(("way", "at"), row["key"].rsplit("-s", 1), strict=True))} for row in rows(name)
    ]
    return by_seed([{**row, "at": int(row["at"])} for row in split], lambda row: row["way"], seed="at")


def _few_bits(network: str) -> Iterator[tuple[str, Comparison]]:
    """Files of few bits less what was quantized after or during as long a training."""
    steps = json.loads((RESULTS / f"quantized-{network}.json").read_text())["steps"]
    whole = [row for row in rows(f"quantized-{network}") if row["width"] == 1]
    few = [row for row in rows(f"few-bits-{network}") if row["values"] == "auto"]
    few = [row for row in few if row.get("steps", steps) == steps]
    peers = by_seed(whole, lambda row: row["contender"])
    for limit, ours in by_seed(few, lambda row: row["limit"]).items():
        for peer in ("f32", "int8", "4 bits, trained"):
            yield f"few-bits, {network}, {limit}, {peer}", pair(ours, peers[peer])


@cache
def comparisons() -> dict[str, Comparison]:
    return dict(_all())


def _all() -> Iterator[tuple[str, Comparison]]:
    for name in ("recipes-test", "recipes"):
        found = rows(name)
        keys = [lambda row: (row["case"], row["way"], row["steps"])] * 2
        fitted, dense = (
            by_seed(found, key, value) for key, value in zip(keys, ("fitted", "dense"), strict=True)
        )
        for key, ours in fitted.items():
            yield f"{name}, {key}", pair(ours, dense[key])
            case, way, steps = key
            before = {"dense": "none", "hard": "dense"}.get(way)
            if (case, before, steps) in fitted:
                yield f"{name}, {case}, {way} against {before}", pair(ours, fitted[case, before, steps])
    for name in ("own-network", "own-network-long", "own-mobilenet"):
        ours, theirs = (by_seed(rows(name), lambda row: 0, value)[0] for value in ("fitted", "dense"))
        yield name, pair(ours, theirs)
    for name in ("pretrained-alexnet", "pretrained-alexnet-smaller"):
        single = name == "pretrained-alexnet"  # one limit a seed
        key = (lambda row: 0) if single else (lambda row: row["limit"])
        ours_by, theirs_by = (by_seed(rows(name), key, value) for value in ("accuracy", "dense_accuracy"))
        for limit, ours in ours_by.items():
            yield f"{name}, {limit}", pair(ours, theirs_by[limit])
    for network in ("vit", "unet"):
        found = [row for row in rows("attention-fits") if row["network"] == network]
        ours, *peers = (by_seed(found, lambda row: 0, value)[0] for value in ("tenth", "dense", "int8"))
        for peer, theirs in zip(("dense", "int8"), peers, strict=True):
            yield f"attention-fits, {network}, {peer}", pair(ours, theirs)
    for network in ("lenet", "quick", "resnet8", "lite0", "alexnet"):
        yield from _few_bits(network)
    quick, lenet = deployed("frontier-quick-deployed"), deployed("frontier-lenet-deployed")
    for way, theirs in by_seed(rows("frontier-quick-others"), lambda row: row["strategy"]).items():
        yield f"quick, global against {way}", pair(quick["lamp-40KiB"], theirs)
    for way in ("greedy-20KiB", "uniform-20KiB"):
        yield f"lenet, global against {way}", pair(lenet["lamp-20KiB"], lenet[way])
    ways = [
        by_seed(rows("ensembles"), lambda row: row["n"], way, "trial") for way in ("probabilities", "scores")
    ]
    for count in (2, 3, 4, 5):
        yield f"ensembles of {count}, probabilities", pair(ways[0][count], ways[1][count])
    parts = by_seed(rows("best-for-bytes-parts"), lambda row: row["name"])
    yield "widths", pair(parts["all"], parts["narrow dense, 4 bits, recipe, teacher"])
