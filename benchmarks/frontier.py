"""Accuracy against size: strategies, budgets and seeds of one network, trained as one population.

python benchmarks/frontier.py cifar10_quick cifar10 --budgets 75KiB 40KiB --seeds 5 --steps 20000 \\
    --scores lamp uniform --out results/frontier-quick.json
"""

import json
import statistics
import time
from pathlib import Path

from _problem import zoo_problem
from _record import arguments, record, settings

from membound.search.bound import Ramp
from membound.search.jobs import Job, Order, carry_out
from membound.train.parallel import choose_device
from membound.train.recipe import modern
from membound.units import parse_bytes


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("net")
    parser.add_argument("data")
    parser.add_argument("--budgets", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--scores", nargs="*", default=["lamp"])
    parser.add_argument(
        "--rates", nargs="*", type=float, default=[1.0], help="times the solver's learning rate"
    )
    parser.add_argument("--batch-size", type=int)
    parser.add_argument(
        "--sgd", type=float, help="this peak learning rate, in plain SGD, instead of the solver's"
    )
    parser.add_argument(
        "--counts", help="a result of greedy_search.py: its layers' proportions are a strategy, too"
    )
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--ramp", nargs=2, type=float, default=[0.1, 0.6])
    parser.add_argument("--mean", default="channel")
    parser.add_argument("--no-dense", action="store_true")
    parser.add_argument("--files", type=Path, help="a folder for the model files")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    problem = zoo_problem(
        options.net, options.data, steps=options.steps, every=options.every, ramp=Ramp(*options.ramp),
        mean=None if options.mean == "own" else options.mean, batch_size=options.batch_size,
        recipe=None if options.sgd is None else modern("sgd", options.steps, options.batch_size or 128, options.sgd),
    )  # fmt: skip
    jobs = make_jobs(options)
    begun, rows = time.monotonic(), []
    for job, outcome in carry_out(problem, [Order(job) for job in jobs], choose_device(options.device)):
        facts = outcome.facts
        row = {**job.about, "accuracy": facts["accuracy"], "errors": facts["errors"], "size": facts["size"]}
        row |= {key: facts[key] for key in ("nonzeros", "weight_nonzeros", "counts", "seconds")}
        rows.append({**row, "seed": job.seed, "key": job.key})
        print(
            job.key,
            f"{facts['accuracy']:.2f}",
            facts["size"],
            facts["nonzeros"],
            f"{time.monotonic() - begun:.0f} s",
            flush=True,
        )
        if options.files is not None:
            options.files.mkdir(parents=True, exist_ok=True)
            problem.files.write(options.files / f"{job.key}.safetensors", outcome.state)
    summary = summarise(rows)
    for line in summary:
        print(line)
    record(
        options.out,
        {**settings(options), "seconds": time.monotonic() - begun, "summary": summary, "rows": rows},
    )


def make_jobs(options) -> list[Job]:
    jobs = []
    for seed in range(options.seeds):
        for rate in options.rates:
            tail = f"-x{rate:g}" if len(options.rates) > 1 else ""
            if not options.no_dense:
                about = {"strategy": "dense", "budget": None, "rate": rate}
                jobs.append(Job(f"dense{tail}-s{seed}", seed, everything=True, lr_scale=rate, about=about))
            for budget in options.budgets:
                for score in options.scores:
                    about = {"strategy": score, "budget": budget, "rate": rate}
                    key = f"{score}-{budget}{tail}-s{seed}"
                    limit = parse_bytes(budget)
                    jobs.append(
                        Job(key, seed, limit=limit, score=score, everything=True, lr_scale=rate, about=about)
                    )
            for budget in options.budgets if options.counts else []:
                about = {"strategy": "greedy", "budget": budget, "rate": rate}
                limit, counts = parse_bytes(budget), greedy_counts(options.counts, parse_bytes(budget))
                key = f"greedy-{budget}{tail}-s{seed}"
                jobs.append(
                    Job(key, seed, limit=limit, counts=counts, everything=True, lr_scale=rate, about=about)
                )
    return jobs


def greedy_counts(path: str, limit: int) -> dict[str, int]:
    """The counts of the first winner of a greedy search that is about as small as this limit."""
    rounds = json.loads(Path(path).read_text())["rounds"]
    return next((r["counts"] for r in rounds if r["nonzeros"] * 3 <= limit), rounds[-1]["counts"])


def summarise(rows: list[dict]) -> list[dict]:
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault((row["strategy"], row["budget"], row["rate"]), []).append(row)
    return [
        {
            "strategy": strategy,
            "budget": budget,
            "rate": rate,
            "seeds": len(found),
            "accuracy": statistics.mean(row["accuracy"] for row in found),
            "std": statistics.stdev(row["accuracy"] for row in found) if len(found) > 1 else 0.0,
            "size": max(row["size"] for row in found),
            "nonzeros": round(statistics.mean(row["nonzeros"] for row in found)),
        }
        for (strategy, budget, rate), found in groups.items()
    ]


if __name__ == "__main__":
    main()
