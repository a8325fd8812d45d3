"""Figure 'nnz-distribution': which layers the greedy search cuts, and what that is worth against uniform sparsity.

The paper: tightest relative bounds on conv3 and both fully-connected layers, conv1 and conv2 relatively untouched; in
absolute counts conv3 and fc1 are cut most; clearly ahead of uniform sparsity.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from membound.paper.claims import above, claim, show, spread
from membound.paper.lab import NETS, Lab, Study, name_track
from membound.search.greedy import Round
from membound.search.jobs import Job

TARGETS = {"lenet": (43_108, 8_622, 4_311), "quick": (72_789, 28_249, 14_557)}  # nonzeros


def run(lab: Lab) -> dict[str, Any]:
    """Winners of the greedy searches; then their counts, uniform ones and ours, each trained the same way."""
    return {"nets": {net: _run(lab, net) for net in lab.nets}}


def _run(lab: Lab, net: str) -> dict[str, Any]:
    paper = lab.study(net, "paper")
    seeds = lab.size.seeds(3)
    searches = paper.search(list(seeds))
    winners = [
        {
            "seed": seed, "round": round.number, "validation": round.winner["accuracy"],
            "test": round.winner["test_accuracy"], "nonzeros": round.winner["nonzeros"],
            "counts": round.winner["counts"],
        }
        for seed, rounds in zip(seeds, searches, strict=True)
        for round in rounds
    ]  # fmt: skip
    return {
        "title": NETS[net].title,
        "sizes": paper.sizes,
        "winners": winners,
        "compared": _compare(lab, net, searches),
    }


def _compare(lab: Lab, net: str, searches: Sequence[Sequence[Round]]) -> list[dict[str, Any]]:
    """Counts of the search, uniform ones and ours at the same nonzeros in all."""
    tracks = [lab.study(net, "paper"), lab.study(net, "ours")]
    wanted: list[tuple[Study, str, int, Job]] = []
    for target in lab.size.some(TARGETS[net]):
        for seed, rounds in zip(lab.size.seeds(3), searches, strict=True):
            for study in tracks:
                even = _uniform(study, target)
                wanted.append((study, "uniform", target, study.counted(even, seed)))
                wanted.append((study, "greedy", target, study.counted(greedy_counts(rounds, target), seed)))
            wanted.append((tracks[1], "global", target, tracks[1].limited(target, seed)))
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for study in tracks:
        mine = [each for each in wanted if each[0] is study]
        for (_, way, target, _), facts in zip(mine, study.do([each[3] for each in mine]), strict=True):
            if "failure" not in facts:
                groups.setdefault((study.track, way, target), []).append(facts)
    return [
        {
            "track": track,
            "way": way,
            "target": target,
            "nonzeros": max(facts["nonzeros"] for facts in found),
            "accuracy": spread([facts["accuracy"] for facts in found]),
        }
        for (track, way, target), found in groups.items()
    ]


def _uniform(study: Study, target: int) -> dict[str, int]:
    """The same part of every layer; biases stay, and are counted."""
    sizes, shapes = study.sizes, study.problem.shapes
    biases = sum(shapes[name][0] for name in shapes if name not in sizes)
    part = (target - biases) / sum(sizes.values())
    return {name: max(int(part * size), 1) for name, size in sizes.items()}


def greedy_counts(rounds: Sequence[Round], nonzeros: int) -> Mapping[str, int]:
    """The counts of the first winner with at most so many nonzeros; of the last if there is none."""
    near = next((round for round in rounds if round.winner["nonzeros"] <= nonzeros), rounds[-1])
    counts: Mapping[str, int] = near.winner["counts"]
    return counts


def kept(numbers: Mapping[str, Any]) -> dict[str, float]:
    """The part of each layer that the last winners keep, on average over searches."""
    last = {each["seed"]: each for each in numbers["winners"]}.values()
    return {
        name: sum(each["counts"][name] for each in last) / len(last) / size
        for name, size in numbers["sizes"].items()
    }


def claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for net, numbers in result["nets"].items():
        if net in OWN_CLAIMS:
            found += OWN_CLAIMS[net](numbers)
    for numbers in result["nets"].values():
        by = {(row["target"], row["track"], row["way"]): row["accuracy"] for row in numbers["compared"]}
        targets = sorted({target for target, _, _ in by}, reverse=True)
        for track in ("paper", "ours"):
            margins = [above(by[t, track, "greedy"], by[t, track, "uniform"]) for t in targets]
            gains = [margin.gap for margin in margins]
            where = f"{numbers['title']}, {name_track(track)}"
            text = f"{where}: the search's counts are ahead of uniform ones at equal nonzeros"
            detail = ", ".join(f"{g:+.2f} at {t:,}" for g, t in zip(gains, targets, strict=True))
            found.append(claim(text, min(gains) > 0, f"{detail} nonzeros", *margins))
    return found


def _claims_of_quick(quick: Mapping[str, Any]) -> list[dict[str, Any]]:
    parts = {name.removesuffix(".weight"): part for name, part in kept(quick).items()}
    cut = {
        name.removesuffix(".weight"): size * (1 - parts[name.removesuffix(".weight")])
        for name, size in quick["sizes"].items()
    }
    shown = ", ".join(f"{name} {part:.1%}" for name, part in parts.items())
    tight, loose = max(parts["conv3"], parts["fc1"], parts["fc2"]), min(parts["conv1"], parts["conv2"])
    most = sorted(cut, key=lambda name: -cut[name])[:2]
    return [
        claim(
            "CIFAR-10-quick: conv3, fc1 and fc2 are bounded more tightly than conv1 and conv2",
            tight < loose, f"kept at the end of the search: {shown}",
        ),
        claim(
            "CIFAR-10-quick: in absolute counts conv3 and fc1 are cut most", set(most) == {"conv3", "fc1"},
            ", ".join(f"{name} by {count:,.0f}" for name, count in cut.items()),
        ),
    ]  # fmt: skip


OWN_CLAIMS = {"quick": _claims_of_quick}  # what the paper says of one network alone


def table(result: dict[str, Any]) -> list[list[str]]:
    rows = [["network", "nonzeros", "track", "counts", "test accuracy"]]
    for numbers in result["nets"].values():
        for row in numbers["compared"]:
            rows.append(
                [numbers["title"], f"{row['nonzeros']:,}", row["track"], row["way"], show(row["accuracy"])]
            )
    return rows
