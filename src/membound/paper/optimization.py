"""Figure 'optim': training loss and accuracy of quick, penalties on the fully-connected layers, ten repetitions each.

The paper: every method converges, every time.
"""

from typing import Any

from membound.paper.claims import claim, show, spread
from membound.paper.lab import Facts, Lab, undecayed
from membound.train.schedules import ramp
from membound.train.updates import l0_project, l1_shrink, l1_subgradient

METHODS = {
    "l2": "l2 decay",
    "subgradient": "l1 subgradient",
    "shrink": "l1 shrinkage",
    "l0": "l0 projection",
    "ours": "l0 projection, our track",
}
STRENGTH, KEEP = 1e-2, 0.2  # of the subgradient (ten times that of shrinkage), and of the projection
LOOKS = 25
NEAR = 5.0  # points from its method's median at which a repetition is taken to have converged


def run(lab: Lab) -> dict[str, Any]:
    """Ten repetitions of every method, with curves."""
    study, ours, seeds = lab.study("quick", "paper"), lab.study("quick", "ours"), lab.size.seeds(10)
    updates = {
        "subgradient": undecayed(l1_subgradient(STRENGTH)),
        "shrink": undecayed(l1_shrink(10 * STRENGTH)),
        "l0": undecayed(l0_project(KEEP, study.every)),
    }
    jobs = [study.dense(seed, looks=LOOKS, may_fail=True, about={"method": "l2"}) for seed in seeds]
    for method, update in updates.items():
        jobs += [study.ruled({"fc*": update}, seed, looks=LOOKS, about={"method": method}) for seed in seeds]
    found = study.do(jobs)
    tightening = l0_project(ramp(1.0, KEEP, 0.1, 0.6), ours.problem.training.every)
    found += ours.do(
        [ours.ruled({"fc*": tightening}, seed, looks=LOOKS, about={"method": "ours"}) for seed in seeds]
    )
    return {
        "iterations": study.steps,
        "rows": [_row(facts) for facts in found],
        "strength": STRENGTH,
        "keep": KEEP,
    }


def _row(facts: Facts) -> dict[str, Any]:
    return {
        "method": facts["job"]["about"]["method"],
        "seed": facts["job"]["seed"],
        "accuracy": facts["accuracy"],
        "failure": facts.get("failure"),
        "curve": [
            {name: entry.get(name) for name in ("iteration", "loss", "accuracy")}
            for entry in facts["history"]
        ],
    }


def converged(result: dict[str, Any], method: str) -> list[bool]:
    """Of each repetition, whether it ended, and near the others."""
    mine = [row for row in result["rows"] if row["method"] == method]
    ends = sorted(row["accuracy"] for row in mine if row["accuracy"] is not None)
    if not ends:
        return [False] * len(mine)
    median = ends[len(ends) // 2]
    return [row["accuracy"] is not None and row["accuracy"] >= median - NEAR for row in mine]


def claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for method, name in METHODS.items():
        good = converged(result, method)
        detail = f"{sum(good)} of {len(good)} end within {NEAR:g} points of their median"
        found.append(claim(f"{name}: every repetition converges", all(good), detail))
    return found


def table(result: dict[str, Any]) -> list[list[str]]:
    rows = [["method on fc1 and fc2", "converged", "training loss at the end", "test accuracy"]]
    for method, name in METHODS.items():
        mine = [row for row in result["rows"] if row["method"] == method and row["accuracy"] is not None]
        good = converged(result, method)
        losses = spread([row["curve"][-1]["loss"] for row in mine]) if mine else None
        accuracies = spread([row["accuracy"] for row in mine]) if mine else None
        loss = "-" if losses is None else show(losses, 3)
        rows.append(
            [name, f"{sum(good)} of {len(good)}", loss,
             "-" if accuracies is None else show(accuracies)]
        )  # fmt: skip
    return rows
