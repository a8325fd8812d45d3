"""Figure 'partial-sparsity': only conv1, or only the first fully-connected layer, is made sparse, in different ways.

The paper: l0 and l1 are comparable in the middle range; l0 is ahead as the count comes within an order of magnitude of
dense; at the sparse end l0 keeps moderate accuracy where l1 often yields no very sparse model at all. On the layer
under study the sparsity update replaces the l2 decay, which stays on all others. Not in the paper: low rank.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from membound.paper.baselines import density_threshold, factorise, threshold_
from membound.paper.claims import Margin, above, claim, show, spread
from membound.paper.lab import NETS, Facts, Lab, Study, undecayed
from membound.search.jobs import Job
from membound.search.problem import Fresh
from membound.store.sizes import best_format
from membound.train.schedules import ramp
from membound.train.updates import l0_project, l1_shrink, l1_subgradient

PANELS = (("lenet", "conv1"), ("lenet", "fc1"), ("quick", "conv1"), ("quick", "fc1"))
PARTS = {"conv1": (0.5, 0.2, 0.1, 0.05), "fc1": (0.5, 0.2, 0.05, 0.02, 0.01)}  # kept by l0
# Of the subgradient; shrinkage, which momentum does not amplify, takes ten times as much for the same.
STRENGTHS = {
    ("lenet", "conv1"): (3e-3, 1e-2, 3e-2, 0.1, 0.3),
    ("lenet", "fc1"): (1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
    ("quick", "conv1"): (3e-3, 1e-2, 2e-2, 8e-2),
    ("quick", "fc1"): (3e-3, 1e-2, 3e-2, 0.1),
}
NEGLIGIBLE = (
    1e-3  # weights below are set to zero after training with the subgradient, which leaves none at zero
)
HIDDEN = {"lenet": (250, 100, 50, 20, 5), "quick": (32, 16, 8, 4)}
RANKS = {"lenet": (100, 50, 20, 5, 2), "quick": (20, 10, 5, 2)}
METHODS = {
    "l2": "l2, thresholded",
    "subgradient": "l1 subgradient",
    "shrink": "l1 shrinkage",
    "l0": "l0 projection",
    "hidden": "fewer hidden units",
    "rank": "low rank, fine-tuned",
    "ours": "l0 projection, our track",
}


def run(lab: Lab) -> dict[str, Any]:
    """All panels; every point is one training, or a trained network made smaller."""
    panels = [_panel(lab, net, layer) for net, layer in PANELS if net in lab.nets]
    return {"panels": panels, "negligible": NEGLIGIBLE}


def _panel(lab: Lab, net: str, layer: str) -> dict[str, Any]:
    study, ours, seeds = lab.study(net, "paper"), lab.study(net, "ours"), lab.size.seeds(3)
    weight, size = f"{layer}.weight", study.sizes[f"{layer}.weight"]
    parts, strengths = lab.size.some(PARTS[layer]), lab.size.some(STRENGTHS[net, layer])
    dense = study.do([study.dense(seed) for seed in seeds], weights=True)
    rows = [_thresholded(study, facts, weight, part) for facts in dense for part in parts]
    kept = [(s, seed) for s in strengths for seed in seeds]
    jobs = [_job(study, layer, "subgradient", undecayed(l1_subgradient(s)), s, seed) for s, seed in kept]
    found = study.do(jobs, weights=True)
    rows += [_threshold_negligible(study, facts, weight) for facts in found]
    jobs = [_job(study, layer, "shrink", undecayed(l1_shrink(10 * s)), 10 * s, seed) for s, seed in kept]
    for part in parts:
        update = undecayed(l0_project(float(part), study.every))
        jobs += [_job(study, layer, "l0", update, part, seed) for seed in seeds]
    # Kernels are looked at in another figure, which asks for the same trainings.
    rows += [_row(facts, weight) for facts in study.do(jobs, weights=layer == "conv1")]
    if layer == "fc1":
        rows += _narrower(lab, study) + _factorised(lab, study, dense)
    ours_jobs = [
        _job(ours, layer, "ours", l0_project(ramp(1.0, float(part), 0.1, 0.6), ours.problem.training.every), part, seed)
        for part in parts
        for seed in seeds
    ]  # fmt: skip
    rows += [_row(facts, weight) for facts in ours.do(ours_jobs)]
    ours_dense = ours.do([ours.dense(seed) for seed in seeds])
    return {
        "net": net, "layer": layer, "title": f"{NETS[net].title}, {layer}", "size": size, "iterations": study.steps,
        "dense": spread([facts["accuracy"] for facts in dense]),
        "ours_dense": spread([facts["accuracy"] for facts in ours_dense]), "rows": rows,
    }  # fmt: skip


def _job(study: Study, layer: str, method: str, update: Any, strength: float, seed: int) -> Job:
    return study.ruled({layer: update}, seed, about={"method": method, "strength": strength})


def _row(facts: Facts, weight: str, **changed: Any) -> dict[str, Any]:
    about = facts["job"]["about"]
    row = {"method": about["method"], "strength": about["strength"], "seed": facts["job"]["seed"]}
    failed = "failure" in facts
    row |= {"accuracy": facts["accuracy"], "nonzeros": None if failed else facts["counts"].get(weight)}
    return row | changed


def _thresholded(study: Study, dense: Facts, weight: str, part: float) -> dict[str, Any]:
    """The trained network, of whose layer only the largest weights are kept."""
    state = study.state(dense)
    model = study.network(state)
    counts = threshold_(model, density_threshold(state, [weight], part), [weight.removesuffix(".weight")])
    row = {"method": "l2", "strength": part, "seed": dense["job"]["seed"]}
    return row | {"accuracy": study.test(model), "nonzeros": counts[weight]}


def _threshold_negligible(study: Study, facts: Facts, weight: str) -> dict[str, Any]:
    if "failure" in facts:
        return _row(facts, weight)
    model = study.network(study.state(facts))
    counts = threshold_(model, NEGLIGIBLE, [weight.removesuffix(".weight")])
    return _row(facts, weight, nonzeros=counts[weight], accuracy=study.test(model))


def _narrower(lab: Lab, study: Study) -> list[dict[str, Any]]:
    widths = lab.size.some(HIDDEN[study.net])
    factory = NETS[study.net].factory
    variants = {f"hidden{width}": Fresh(partial(factory, hidden=width)) for width in widths}
    jobs = [
        study.dense(seed, network=f"hidden{width}", about={"method": "hidden", "strength": width})
        for width in widths
        for seed in lab.size.seeds(3)
    ]
    return [_row(facts, "fc1.weight") for facts in study.do(jobs, variants=variants)]


def _factorised(lab: Lab, study: Study, dense: list[Facts]) -> list[dict[str, Any]]:
    """The trained network with a layer of low rank, trained on as long as a candidate of the greedy search."""
    ranks = lab.size.some(RANKS[study.net])
    states = {facts["job"]["seed"]: study.state(facts) for facts in dense}
    variants = {f"rank{rank}": Factorised(study.problem.make, states, rank) for rank in ranks}
    jobs = [
        Job("rank", seed, network=f"rank{rank}", tuning=True, everything=True, may_fail=True,
            about={"method": "rank", "strength": rank})
        for rank in ranks for seed in states
    ]  # fmt: skip
    weights = study.problem.shapes["fc1.weight"]
    return [
        _row(facts, "fc1.weight", nonzeros=facts["job"]["about"]["strength"] * sum(weights))
        for facts in study.do(jobs, variants=variants)
    ]


class Factorised:
    """Makes networks of low rank from trained ones, by their seeds."""

    def __init__(self, make: Any, states: dict[int, dict[str, Tensor]], rank: int) -> None:
        self.make, self.states, self.rank = make, states, rank

    def __call__(self, seed: int) -> nn.Module:
        model = self.make(seed)
        model.load_state_dict(self.states[seed])
        with torch.random.fork_rng(devices=[]):  # new layers draw random numbers, which nobody keeps
            return factorise(model, "fc1", self.rank)


def layer_bytes(panel: dict[str, Any], row: dict[str, Any]) -> int:
    """Of the layer, at 32 bits, in the best of the paper's formats; fewer units and low rank are dense."""
    if row["method"] in ("hidden", "rank"):
        return int(4 * row["nonzeros"])
    return best_format(panel["size"], row["nonzeros"])[1]


def curve(panel: dict[str, Any], method: str) -> list[dict[str, Any]]:
    """Means over seeds at each strength of a method, from dense to sparse; what failed is left out."""
    points = []
    mine = [row for row in panel["rows"] if row["method"] == method and row["nonzeros"] is not None]
    for strength in dict.fromkeys(row["strength"] for row in mine):
        rows = [row for row in mine if row["strength"] == strength]
        points.append(
            {
                "strength": strength,
                "nonzeros": float(np.mean([row["nonzeros"] for row in rows])),
                "bytes": float(np.mean([layer_bytes(panel, row) for row in rows])),
                "accuracy": spread([row["accuracy"] for row in rows]),
            }
        )
    return points


def best_within(panel: dict[str, Any], methods: Sequence[str], count: float) -> dict[str, Any] | None:
    """The best accuracy of these methods with at most so many weights of the layer; None where there is none."""
    points = [point for method in methods for point in curve(panel, method)]
    within = [point["accuracy"] for point in points if 0 < point["nonzeros"] <= count]
    return max(within, default=None, key=lambda accuracy: accuracy["mean"])


def _lead(panel: dict[str, Any], part: float) -> Margin | None:
    """Points by which l0 is ahead of the best l1 with at most as many weights: this part of the layer's."""
    count = max(round(part * panel["size"]), 1)
    l0, l1 = best_within(panel, ["l0"], count), best_within(panel, ["shrink", "subgradient"], count)
    return None if l0 is None or l1 is None else above(l0, l1)


def claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for panel in result["panels"]:
        middle = 0.2 if panel["layer"] == "conv1" else 0.05
        if (lead := _lead(panel, middle)) is not None:
            gap = lead.gap
            text = f"{panel['title']}: l0 and l1 are comparable (within 1 point) at {middle:.0%} of the layer"
            detail = f"l0 {gap:+.2f} points from the best l1 with at most as many weights"
            found.append(claim(text, abs(gap) <= 1, detail, lead._replace(gap=1 - abs(gap))))
        if (lead := _lead(panel, 0.5)) is not None:
            text = f"{panel['title']}: l0 is ahead of l1 at half of the layer, within an order of magnitude of dense"
            found.append(claim(text, lead.gap > 0, f"by {lead.gap:+.2f} points", lead))
        found.append(_sparse_end(panel))
    return found


def _sparse_end(panel: dict[str, Any]) -> dict[str, Any]:
    text = f"{panel['title']}: at the sparse end l0 gives models where an l1 method has none in its sweep"
    points = curve(panel, "l0")
    if not points:
        return claim(text, None, "every training with l0 projection has failed")
    last = points[-1]
    least = {method: _sparsest(panel, method) for method in ("shrink", "subgradient")}
    missing = [METHODS[m] for m, count in least.items() if count is None or count > 1.5 * last["nonzeros"]]
    detail = (
        f"l0 has {last['accuracy']['mean']:.2f} % with {last['nonzeros']:,.0f} weights; sparsest with any: "
    )
    detail += ", ".join(f"{METHODS[m]} {'none' if n is None else format(n, ',')}" for m, n in least.items())
    if (lead := _lead(panel, last["nonzeros"] / panel["size"])) is not None:
        detail += f"; l0 is {lead.gap:+.2f} points from the best l1 with at most as many"
    return claim(text, bool(missing), detail)


def _sparsest(panel: dict[str, Any], method: str) -> int | None:
    """The fewest weights of a network of this method that has any."""
    return min(
        (row["nonzeros"] for row in panel["rows"] if row["method"] == method and row["nonzeros"]),
        default=None,
    )


def table(result: dict[str, Any]) -> list[list[str]]:
    rows = [["panel", "method", "strength", "weights of the layer", "its bytes", "test accuracy"]]
    for panel in result["panels"]:
        dense = panel["dense"]
        rows.append(
            [panel["title"], "l2, dense", "", f"{panel['size']:,}", f"{4 * panel['size']:,}",
             show(dense)]
        )  # fmt: skip
        for method, name in METHODS.items():
            for point in curve(panel, method):
                rows.append(
                    [panel["title"], name, f"{point['strength']:g}", f"{point['nonzeros']:,.0f}",
                     f"{point['bytes']:,.0f}", show(point["accuracy"])]
                )  # fmt: skip
    return rows
