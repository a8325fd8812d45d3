"""The paper's greedy search on CIFAR-10-quick, complete, from dense to under a tenth of the nonzeros; and how much
slower the same search is one candidate at a time in an eager loop, extrapolated from some rounds.

python benchmarks/greedy_search.py --out results/greedy-quick.json
"""

import time

from _problem import zoo_problem
from _record import arguments, record, settings

from membound.search.greedy import Greedy, search
from membound.search.jobs import Job, Order, carry_out
from membound.search.ledger import open_run
from membound.search.workshop import Workshop, this_process
from membound.train import population, stepping
from membound.train.parallel import choose_device


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--net", default="cifar10_quick")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--nonzeros", type=int, default=14_557, help="where the search ends")
    parser.add_argument("--steps", type=int, default=5000, help="of the dense network")
    parser.add_argument("--candidate-steps", type=int, default=1000)
    parser.add_argument("--validation", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eager-rounds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    problem = zoo_problem(
        options.net, options.data, steps=options.steps, every=100, kind="nonzeros", mean=None,
        validation=options.validation, candidate_steps=options.candidate_steps,
    )  # fmt: skip
    device = choose_device(options.device)
    begun = time.monotonic()
    with open_run(None, {}) as directory:
        workshop = Workshop(problem, directory, this_process(device))
        rounds = []
        for round in search(workshop, [options.nonzeros], options.seed, Greedy()):
            seconds = time.monotonic() - begun
            facts = round.winner
            print(
                round.number,
                facts["job"]["key"],
                f"{facts['accuracy']:.2f}",
                facts["size"],
                f"{seconds:.0f} s",
                flush=True,
            )
            rounds.append(
                {
                    "round": round.number,
                    "seconds": seconds,
                    "winner": facts["job"]["key"],
                    "accuracy": facts["accuracy"],
                    "nonzeros": facts["nonzeros"],
                    "counts": facts["counts"],
                    "candidates": [
                        {"key": c["job"]["key"], "accuracy": c["accuracy"], "nonzeros": c["nonzeros"]}
                        for c in round.candidates
                    ],
                }
            )
        total = time.monotonic() - begun
        eager = time_eager(workshop, rounds, options, device)
    candidates = sum(len(r["candidates"]) for r in rounds[1:])
    searching = total - rounds[0]["seconds"]
    extrapolated = eager["seconds_a_candidate"] * candidates
    summary = {
        "rounds": len(rounds) - 1,
        "candidates": candidates,
        "seconds": total,
        "search_seconds": searching,
        "eager_seconds_extrapolated": extrapolated,
        "times_faster": extrapolated / searching,
        "nonzeros": rounds[-1]["nonzeros"],
        "validation_accuracy": rounds[-1]["accuracy"],
        "dense_validation_accuracy": rounds[0]["accuracy"],
    }
    print(summary)
    record(options.out, {**settings(options), "summary": summary, "eager": eager, "rounds": rounds})


def time_eager(workshop, rounds, options, device) -> dict:
    """The candidates of the first rounds, one at a time, launched kernel by kernel."""
    for module in (population, stepping):
        module.draws_random_numbers = lambda model: True  # so nothing is recorded, nothing side by side
    seconds, count = 0.0, 0
    for number in range(1, min(options.eager_rounds, len(rounds) - 1) + 1):
        start = rounds[number - 1]
        state = workshop.state(start["winner"])
        orders = []
        for candidate in rounds[number]["candidates"]:
            counts = {**start["counts"]}
            layer = candidate["key"].split("-", 1)[1] + ".weight"
            counts[layer] = round(counts[layer] * 0.8)
            orders.append(Order(Job(candidate["key"], options.seed, tuning=True, counts=counts), state))
        begun = time.monotonic()
        list(carry_out(workshop.problem, orders, device))
        seconds, count = seconds + time.monotonic() - begun, count + len(orders)
    return {"candidates": count, "seconds": seconds, "seconds_a_candidate": seconds / max(count, 1)}


if __name__ == "__main__":
    main()
