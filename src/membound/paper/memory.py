"""Figure 'memory', first row: every candidate of the greedy search, accuracy against bytes in the best format.

The paper: 'models that reduce the memory consumption by a factor of 3 or more with minimal loss in accuracy'.
"""

from collections.abc import Sequence
from typing import Any

from membound.paper.claims import claim, show, spread
from membound.paper.lab import NETS, Lab, Study
from membound.report.paired import Comparison, show_difference
from membound.search.greedy import Round

LIMITS = {  # nonzeros, biases included, of our track
    "lenet": (43_108, 21_554, 12_932, 8_622, 4_311, 2_155),
    "quick": (72_789, 43_673, 28_249, 14_557, 7_279, 3_640),
}
FACTORS = {"lenet": 25, "quick": 5}  # of dense bytes, at this loss
LOSS = 0.5


def run(lab: Lab) -> dict[str, Any]:
    """Candidates of three greedy searches for each network, and our bounds beside them."""
    return {"nets": {net: _run(lab, net) for net in lab.nets}}


def _run(lab: Lab, net: str) -> dict[str, Any]:
    paper, ours = lab.study(net, "paper"), lab.study(net, "ours")
    seeds = lab.size.seeds(3)
    searches = paper.search(list(seeds))
    candidates = [
        _candidate(paper, seed, round, facts)
        for seed, rounds in zip(seeds, searches, strict=True)
        for round in rounds
        for facts in round.candidates
        if "failure" not in facts
    ]
    limits = lab.size.some(LIMITS[net])
    jobs = [ours.limited(limit, seed) for limit in limits for seed in seeds]
    found = ours.do([*(ours.dense(seed) for seed in seeds), *jobs])
    dense, bounded = found[: len(seeds)], found[len(seeds) :]
    return {
        "title": NETS[net].title,
        "dense_bytes": paper.bytes({}),
        "candidates": candidates,
        "within": [_smallest(candidates, seed, paper.bytes({})) for seed in seeds],
        "ours": {
            "iterations": ours.steps,
            "dense": spread([facts["accuracy"] for facts in dense]),
            "rows": [
                _row(ours, limit, bounded[i * len(seeds) :][: len(seeds)]) for i, limit in enumerate(limits)
            ],
        },
    }


def _candidate(study: Study, seed: int, round: Round, facts: Any) -> dict[str, Any]:
    return {
        "seed": seed,
        "round": round.number,
        "layer": facts["job"]["about"].get("layer"),
        "won": facts is round.winner,
        "validation": facts["accuracy"],
        "test": facts["test_accuracy"],
        "nonzeros": facts["nonzeros"],
        "counts": facts["counts"],
        "bytes": study.bytes(facts["counts"]),
        "bytes_f16": study.bytes(facts["counts"], ours=True),
    }


def _smallest(candidates: list[dict[str, Any]], seed: int, dense_bytes: int) -> dict[str, Any]:
    """The smallest winner whose validation accuracy is within LOSS points of the dense network's."""
    mine = [each for each in candidates if each["seed"] == seed and each["won"]]
    dense = mine[0]
    near = [each for each in mine if each["validation"] >= dense["validation"] - LOSS]
    best = min(near, key=lambda each: each["bytes"])
    return {
        "seed": seed,
        "nonzeros": best["nonzeros"],
        "bytes": best["bytes"],
        "times_smaller": dense_bytes / best["bytes"],
        "times_smaller_f16": dense_bytes / best["bytes_f16"],
        "validation_loss": dense["validation"] - best["validation"],
        "test": best["test"],
        "dense_test": dense["test"],
    }


def _row(study: Study, limit: int, found: list[dict[str, Any]]) -> dict[str, Any]:
    sizes = [study.bytes(facts["counts"]) for facts in found]
    half = [study.bytes(facts["counts"], ours=True) for facts in found]
    return {
        "limit": limit,
        "nonzeros": max(facts["nonzeros"] for facts in found),
        "bytes": max(sizes),
        "bytes_f16": max(half),
        "accuracy": spread([facts["accuracy"] for facts in found]),
    }


def claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for net, numbers in result["nets"].items():
        factors = [each["times_smaller"] for each in numbers["within"]]
        half = min(each["times_smaller_f16"] for each in numbers["within"])
        lost = [each["test"] - each["dense_test"] for each in numbers["within"]]
        span = " to ".join(dict.fromkeys(f"{end(factors):.1f}" for end in (min, max)))
        detail = (
            f"{span} times smaller in the paper's formats (at least {half:.1f} in "
            f"ours at 16 bits), chosen on validation images; test accuracy {_show_change(lost)}"
        )
        text = f"{numbers['title']}: at least {{}} times smaller within {LOSS} points of dense"
        found.append(claim(text.format(3), min(factors) >= 3, f"the paper's claim; {detail}"))
        found.append(claim(text.format(FACTORS[net]), min(factors) >= FACTORS[net], f"our target; {detail}"))
    return found


def _show_change(points: Sequence[float]) -> str:
    """The mean of differences, ± half its 95 % confidence interval; one seed has none.

    They are paired: a seed's small network has grown out of the dense one that it is compared with.

    >>> _show_change([-0.3, -0.4, -0.5]), _show_change([-0.3])
    ('−0.40 ± 0.25 points (95 %, paired by seed)', '−0.30 points')
    """
    found = Comparison.of(points, [0.0] * len(points))
    shown = show_difference(found.difference, found.uncertainty, "+")
    return f"{shown} points" + ("" if found.uncertainty is None else " (95 %, paired by seed)")


def table(result: dict[str, Any]) -> list[list[str]]:
    """Of a search, not its last network: the smallest that it went through within LOSS points on validation images."""
    rows = [["network", "track", "nonzeros", "bytes (paper's formats)", "times smaller", "test accuracy"]]
    for numbers in result["nets"].values():
        dense = numbers["dense_bytes"]
        for each in numbers["within"]:
            rows.append(
                [numbers["title"], f"paper, greedy, seed {each['seed']}: smallest within {LOSS} points",
                 f"{each['nonzeros']:,}", f"{each['bytes']:,}", f"{each['times_smaller']:.1f}",
                 f"{each['test']:.2f} (dense {each['dense_test']:.2f})"]
            )  # fmt: skip
        if len(numbers["within"]) > 1:
            tested, begun = (
                spread([each[way] for each in numbers["within"]]) for way in ("test", "dense_test")
            )
            smaller = spread([each["times_smaller"] for each in numbers["within"]])
            judged = f"{show(tested)} (dense {show(begun)})"
            rows.append([numbers["title"], "paper, greedy, all seeds", "", "", show(smaller), judged])
        accuracy = numbers["ours"]["dense"]
        rows.append([numbers["title"], "ours, dense", "", f"{dense:,}", "1", show(accuracy)])
        for row in numbers["ours"]["rows"]:
            rows.append(
                [numbers["title"], "ours", f"{row['nonzeros']:,}", f"{row['bytes']:,}",
                 f"{dense / row['bytes']:.1f}", show(row["accuracy"])]
            )  # fmt: skip
    return rows
