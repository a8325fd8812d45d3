"""Beyond the paper: LeNet on MNIST with ever fewer nonzero weights, against what others have published.

Our track with more iterations: as long as it takes, no augmentation. The dense networks teach the sparse ones, with the
mean of their scores. Published counts are of weights, without biases.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from membound.paper.claims import below, claim, show, spread
from membound.paper.lab import Facts, Lab, Study
from membound.search.bound import Ramp
from membound.train.batches import Feeder
from membound.train.distill import distillation, mean_scores, teach
from membound.train.recipe import modern

WEIGHTS = {
    36_000: 0.74,
    12_000: 0.75,
    6_000: 0.80,
    3_977: 0.85,
    2_580: 0.92,
    1_500: 1.10,
}  # and our targets, in %
PUBLISHED = (  # method, nonzero weights, test error in %
    ("Han et al.", 36_000, 0.77),
    ("Dynamic Network Surgery", 3_977, 0.91),
    ("ADMM", 6_050, 0.80),
    ("progressive ADMM", 2_580, 1.00),
    ("Sparse variational dropout", 1_500, 0.75),
)
EVERY = 20
SEEDS = 5
TEMPERATURE, PART = 3.0, 0.5  # of what is learned from the dense networks; chosen on validation images


def run(lab: Lab) -> dict[str, Any]:
    """Dense networks first; then every count and seed as one population."""
    study = make_study(lab)
    biases = sum(study.problem.shapes[name][0] for name in study.problem.shapes if name not in study.sizes)
    seeds, counts = lab.size.seeds(SEEDS), lab.size.some(list(WEIGHTS))
    dense = study.do([study.dense(seed) for seed in seeds], weights=True)
    students = taught(study, dense)
    jobs = [students.limited(count + biases, seed) for count in counts for seed in seeds]
    found = students.do(jobs)
    rows = [_row(None, dense)]
    for number, count in enumerate(counts):
        rows.append(_row(count, found[number * len(seeds) :][: len(seeds)]))
    return {"iterations": study.steps, "batch_size": study.recipe.batch_size, "rows": rows}


def make_study(lab: Lab) -> Study:
    """LeNet, trained longer, at a higher rate, and dense for a while."""
    study = Study(lab, "lenet", "longer")
    rate = 0.1 if not lab.size.quick else 0.01  # few images a step, and little time to warm up
    study.recipe = modern(
        "sgd", study.steps, 128, lr=rate, weight_decay=5e-4, warmup=min(200, study.steps // 10)
    )
    every = EVERY if lab.size.is_full else min(EVERY, study.every)
    training = replace(study.problem.training, every=every, ramp=Ramp(0.15, 0.7))
    study.problem = replace(study.problem, training=training)
    return study


def taught(study: Study, teachers: Sequence[Facts]) -> Study:
    """The same with what these networks say of the training images beside the labels."""
    problem, students = study.problem, make_study(study.lab)
    feeder = Feeder(problem.data.train, problem.data.preprocess, study.lab.device, torch.float32)
    scores = mean_scores((study.network(study.state(facts)) for facts in teachers), feeder)
    data = replace(problem.data, train=teach(problem.data.train, scores))
    students.problem = replace(problem, data=data, task=distillation(TEMPERATURE, PART))
    return students


def _row(count: int | None, found: list[Facts]) -> dict[str, Any]:
    return {
        "weights": count,
        "weight_nonzeros": max(facts["weight_nonzeros"] for facts in found),
        "nonzeros": max(facts["nonzeros"] for facts in found),
        "error": spread([100 - facts["accuracy"] for facts in found]),
        "errors": [100 - facts["accuracy"] for facts in found],
        "counts": found[0]["counts"],
    }


def claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for row in result["rows"]:
        if row["weights"] is not None:
            target, error = WEIGHTS[row["weights"]], row["error"]
            text = f"LeNet with {row['weights']:,} weights: at most {target:.2f} % error"
            found.append(claim(text, error["mean"] <= target, f"{show(error)} %", below(error, target)))
    return found


def table(result: dict[str, Any]) -> list[list[str]]:
    rows = [["nonzero weights", "with biases", "test error, %", "target", "published at about this count"]]
    for row in result["rows"]:
        error = show(row["error"], 3)
        if row["weights"] is None:
            rows.append([f"{row['weight_nonzeros']:,} (dense)", f"{row['nonzeros']:,}", error, "", ""])
            continue
        near = [
            f"{name} {published:.2f} ({count:,})"
            for name, count, published in PUBLISHED
            if abs(count - row["weights"]) <= 0.02 * row["weights"]
        ]
        target = f"{WEIGHTS[row['weights']]:.2f}"
        rows.append([f"{row['weight_nonzeros']:,}", f"{row['nonzeros']:,}", error, target, ", ".join(near)])
    return rows
