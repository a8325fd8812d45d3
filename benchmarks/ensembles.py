"""Ensembles under one budget: n networks of the budget's n-th part each, on bagged resamples, their outputs averaged.

python benchmarks/ensembles.py --nonzeros 145578 --trials 3 --steps 20000 --out results/ensembles.json
"""

import statistics
import time
from pathlib import Path

import torch
from _problem import zoo_problem
from _record import arguments, record, settings

from membound.search.ensemble import Ensemble, join_states
from membound.search.jobs import Job, Order, carry_out
from membound.search.problem import Problem
from membound.train.batches import Feeder
from membound.train.evaluation import evaluate
from membound.train.parallel import choose_device


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--net", default="cifar10_quick")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--nonzeros", type=int, default=145_578)
    parser.add_argument("--most", type=int, default=5)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--files", type=Path, help="a folder for the model files")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    device = choose_device(options.device)
    problem = zoo_problem(
        options.net, options.data, steps=options.steps, every=options.every, kind="nonzeros"
    )
    begun = time.monotonic()
    rows: list[dict] = []
    for n in range(options.most, 0, -1):
        by_trial = [members(n, trial, options) for trial in range(options.trials)]
        orders = [Order(job) for jobs in by_trial for job in jobs]
        done = {job.key: outcome for job, outcome in carry_out(problem, orders, device)}
        for trial, jobs in enumerate(by_trial):
            rows.append(score(problem, [done[job.key] for job in jobs], trial, device, options))
            print(f"{time.monotonic() - begun:.0f} s", rows[-1], flush=True)
        summary = [
            summarise(n, [row for row in rows if row["n"] == n]) for n in sorted({row["n"] for row in rows})
        ]
        record(
            options.out,
            {**settings(options), "seconds": time.monotonic() - begun, "summary": summary, "rows": rows},
        )
    for line in summary:
        print(line)


def members(n: int, trial: int, options) -> list[Job]:
    """One network: dense, on the data as they are; several: each bounded, on a resample of its own."""
    if n == 1:
        return [Job(f"t{trial}-n1", trial, everything=True)]
    jobs = []
    for member in range(n):
        seed = 1000 * trial + 100 * n + member
        key = f"t{trial}-n{n}-{member}"
        jobs.append(Job(key, seed, limit=options.nonzeros // n, everything=True, bag=seed))
    return jobs


def score(problem: Problem, found, trial: int, device, options) -> dict:
    n = len(found)
    feeder = Feeder(problem.data.test, problem.data.preprocess, device, torch.float32)
    row = {"n": n, "trial": trial, "nonzeros": sum(outcome.facts["nonzeros"] for outcome in found)}
    row["members"] = [outcome.facts["accuracy"] for outcome in found]
    for average in ("scores", "probabilities"):
        ensemble = Ensemble([problem.make(0) for _ in found], average)
        state = join_states([outcome.state for outcome in found])
        ensemble.load_state_dict(state)
        row[average] = evaluate(ensemble.to(device), feeder).accuracy
        if average == "scores" and options.files is not None:
            options.files.mkdir(parents=True, exist_ok=True)
            files = problem.files_of(ensemble.cpu())
            row["file_bytes"] = files.write(options.files / f"t{trial}-n{n}.safetensors", state).file_bytes
    return row


def summarise(n: int, rows: list[dict]) -> dict:
    summary: dict = {"n": n, "trials": len(rows), "nonzeros": max(row["nonzeros"] for row in rows)}
    for average in ("scores", "probabilities"):
        values = [row[average] for row in rows]
        summary[average] = statistics.mean(values)
        summary[f"{average}_std"] = statistics.stdev(values) if len(values) > 1 else 0.0
    summary["member"] = statistics.mean(value for row in rows for value in row["members"])
    return summary


if __name__ == "__main__":
    main()
