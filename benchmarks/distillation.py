"""Whether sparse LeNets gain by learning from dense ones, on validation images: how `reproduce frontier` was chosen.

python benchmarks/distillation.py --out results/distillation.json
"""

import statistics
import time
from dataclasses import replace

import torch
from _problem import zoo_problem
from _record import arguments, record, settings

from membound.search.bound import Ramp
from membound.search.jobs import Job, Order, Outcome, carry_out
from membound.search.problem import Problem
from membound.train.batches import Feeder
from membound.train.distill import distillation, mean_scores, teach
from membound.train.parallel import choose_device
from membound.train.recipe import modern
from membound.train.rules import load_plain_

WAYS: dict[str, tuple[float, float] | None] = {
    "labels alone": None
}  # else a temperature and the teacher's part
WAYS |= {
    f"T {t:g}, {part:g}": (t, part)
    for t, part in ((1, 0.5), (2, 0.7), (3, 0.5), (4, 0.3), (4, 0.9), (8, 0.95))
}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--nonzeros", type=int, nargs="+", default=[6_580, 3_160])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    device, begun = choose_device(options.device), time.monotonic()
    recipe = modern(
        "sgd", options.steps, 128, lr=0.1, weight_decay=5e-4, warmup=min(200, options.steps // 10)
    )
    problem = zoo_problem(
        "lenet", "mnist", steps=options.steps, every=options.every, kind="nonzeros", mean=None,
        ramp=Ramp(0.15, 0.7), recipe=recipe, validation=10_000,
    )  # fmt: skip
    dense = train(problem, [Job(f"dense-{seed}", seed) for seed in range(options.seeds)], device)
    scores = mean_scores(
        networks(problem, dense), Feeder(problem.data.part, problem.data.preprocess, device, torch.float32)
    )
    taught = replace(problem.data, part=teach(problem.data.part, scores))
    rows = [row("dense", None, dense)]
    print(rows[-1], flush=True)
    for way in options.ways:
        setting = WAYS[way]
        given = problem if setting is None else replace(problem, data=taught, task=distillation(*setting))
        jobs = [
            Job(f"{nonzeros}-{seed}", seed, limit=nonzeros, may_fail=True)
            for nonzeros in options.nonzeros
            for seed in range(options.seeds)
        ]
        found = train(given, jobs, device)
        for number, nonzeros in enumerate(options.nonzeros):
            rows.append(row(way, nonzeros, found[number * options.seeds :][: options.seeds]))
            print(f"{time.monotonic() - begun:.0f} s", rows[-1], flush=True)
        record(
            options.out,
            {**settings(options), "validation": 10_000, "seconds": time.monotonic() - begun, "rows": rows},
        )


def train(problem: Problem, jobs: list[Job], device: torch.device) -> list[Outcome]:
    done = {job.key: outcome for job, outcome in carry_out(problem, [Order(job) for job in jobs], device)}
    return [done[job.key] for job in jobs]


def networks(problem: Problem, found: list[Outcome]):
    for outcome in found:
        model = problem.make(0)
        load_plain_(model, outcome.state)
        yield model


def row(way: str, nonzeros: int | None, found: list[Outcome]) -> dict:
    errors = [100 - outcome.facts["accuracy"] for outcome in found if not outcome.failed]
    return {
        "way": way, "nonzeros": nonzeros, "errors": errors, "failed": len(found) - len(errors),
        "error": statistics.mean(errors) if errors else None,
        "std": statistics.stdev(errors) if len(errors) > 1 else None,
    }  # fmt: skip


if __name__ == "__main__":
    main()
