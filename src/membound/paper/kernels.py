"""Figure 'kernels': the first layer's filters of quick, with l2 and with l1 shrinkage, and where they are not zero.

The paper: sparse filters, 20 of 32 all zero.
"""

from typing import Any

from membound.paper.claims import above, claim, show, spread
from membound.paper.lab import Facts, Lab, Study, undecayed
from membound.train.updates import l1_shrink

FILTERS, ZERO = 32, 20  # in the paper
STRENGTHS = (0.03, 0.1, 0.2, 0.4, 0.8)


def run(lab: Lab) -> dict[str, Any]:
    """A network with l2, and with each strength of shrinkage on conv1; those nearest to the paper's zeros are shown."""
    study, seeds = lab.study("quick", "paper"), lab.size.seeds(3)
    dense = study.do([study.dense(seed) for seed in seeds], weights=True)
    strengths = lab.size.some(STRENGTHS)
    jobs = [
        study.ruled(
            {"conv1": undecayed(l1_shrink(strength))}, seed, about={"method": "shrink", "strength": strength}
        )
        for strength in strengths
        for seed in seeds
    ]
    rows = [_row(study, facts) for facts in study.do(jobs, weights=True) if "failure" not in facts]
    strengths = [strength for strength in strengths if any(row["strength"] == strength for row in rows)]
    nearest = min(strengths, key=lambda s: abs(_mean_zero(rows, s) - ZERO))
    shown = next(row for row in rows if row["strength"] == nearest)
    baseline = _row(study, dense[0])
    return {
        "l2": {**baseline, "accuracy": spread([facts["accuracy"] for facts in dense])},
        "shrink": shown,
        "sweep": [
            {
                "strength": strength,
                "all_zero": spread([row["all_zero"] for row in rows if row["strength"] == strength]),
                "nonzeros": spread([row["nonzeros"] for row in rows if row["strength"] == strength]),
                "accuracy": spread([row["accuracy"] for row in rows if row["strength"] == strength]),
            }
            for strength in strengths
        ],
    }


def _mean_zero(rows: list[dict[str, Any]], strength: float) -> float:
    mine = [row["all_zero"] for row in rows if row["strength"] == strength]
    return float(sum(mine) / len(mine))


def _row(study: Study, facts: Facts) -> dict[str, Any]:
    weight = study.state(facts)["conv1.weight"]
    return {
        "strength": facts["job"]["about"].get("strength"),
        "seed": facts["job"]["seed"],
        "accuracy": facts["accuracy"],
        "nonzeros": int(weight.count_nonzero()),
        "all_zero": int((weight.flatten(1) == 0).all(1).sum()),
        "filters": [[round(float(value), 5) for value in row.flatten()] for row in weight],
    }


def claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    shown = result["shrink"]
    (row,) = (row for row in result["sweep"] if row["strength"] == shown["strength"])
    zero, accuracy, dense = row["all_zero"]["mean"], show(row["accuracy"]), show(result["l2"]["accuracy"])
    detail = f"{zero:.1f} of {FILTERS} at strength {row['strength']:g}, {accuracy} % (l2: {dense} %)"
    detail += f"; shown is one of them with {shown['all_zero']}"
    text = "l1 shrinkage makes most filters all zero (20 of 32 in the paper)"
    return [claim(text, zero > FILTERS / 2, detail, above(row["all_zero"], FILTERS / 2))]


def table(result: dict[str, Any]) -> list[list[str]]:
    rows = [
        [
            "strength of l1 shrinkage on conv1",
            "filters all zero, of 32",
            "nonzeros, of 2,400",
            "test accuracy",
        ]
    ]
    rows.append(["none (l2)", str(result["l2"]["all_zero"]), "2,400", show(result["l2"]["accuracy"])])
    for row in result["sweep"]:
        rows.append(
            [f"{row['strength']:g}", f"{row['all_zero']['mean']:.1f}", f"{row['nonzeros']['mean']:,.0f}",
             show(row["accuracy"])]
        )  # fmt: skip
    return rows
