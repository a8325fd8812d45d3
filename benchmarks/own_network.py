"""A network of one's own on a folder of photographs, fitted to a part of its bytes: against dense, and against one-shot
pruning of the same dense network to the same bytes.

python benchmarks/own_network.py imagenette160 --budget 10% --seeds 3 --out results/own-network.json
python benchmarks/own_network.py imagenette160 --net mobilenet --size 128 --steps 3000 --out results/own-mobilenet.json
"""

import argparse
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from _networks import mobilenet
from _record import ROOT, arguments, record, settings
from _seeds import each_seed

import membound as mb
from membound.paper.claims import spread
from membound.search.bound import NetworkBound, Ramp
from membound.search.ledger import open_run
from membound.search.problem import Target
from membound.search.request import Choices, Examples
from membound.search.scoring import score_stored
from membound.search.setup import make_problem

sys.path.insert(0, str(ROOT))
from examples.residual import small_resnet

NETWORKS = {"resnet": small_resnet, "mobilenet": partial(mobilenet, 10)}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data")
    parser.add_argument("--net", choices=NETWORKS, default="resnet")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--budget", default="10%")
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="seeds that are trained side by side")
    parser.add_argument("--file", type=Path, help="where the network of the first seed is saved")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    rows: list[dict] = []
    for row in each_seed(partial(one_seed, options), range(options.seeds), options.processes):
        rows = sorted([*rows, row], key=lambda row: row["seed"])
        print(row, flush=True)
        judged = ("dense", "fitted", "one_shot_magnitude", "one_shot_lamp")
        summary = {name: spread([row[name] for row in rows]) for name in judged}
        record(
            options.out,
            {**settings(options), "data": Path(options.data).name, "summary": summary, "rows": rows},
        )
    print(summary)


def one_seed(options: argparse.Namespace, seed: int) -> dict:
    begun = time.monotonic()
    data, make = mb.data.load(options.data, size=options.size), NETWORKS[options.net]
    with tempfile.TemporaryDirectory() as folder:
        chosen = {
            "steps": options.steps,
            "batch_size": options.batch_size,
            "augment": "none",
            "teacher": "none",
        }
        fitted = mb.fit(
            make, data, options.budget, seed=seed, device=options.device, run_dir=folder, **chosen
        )
        state = dense_state(Path(folder))
    if seed == 0 and options.file is not None:
        fitted.save(options.file)
    return {
        "seed": seed, "fitted": fitted.accuracy, "dense": fitted.dense["accuracy"],
        **one_shot(make, data, state, fitted.limit, seed, chosen),
        "file_bytes": fitted.file_bytes, "limit": fitted.limit, "dense_bytes": fitted.dense["file_bytes"],
        "nonzeros": fitted.facts["nonzeros"], "latency_ms": fitted.facts["latency_ms"],
        "dense_latency_ms": fitted.dense["latency_ms"], "seconds": time.monotonic() - begun,
    }  # fmt: skip


def dense_state(folder: Path) -> dict:
    """The weights of the dense network, from the run's directory."""
    config = json.loads((folder / "config.json").read_text())["config"]
    with open_run(folder, config) as directory:
        return directory.weights("dense")


def one_shot(make, data, state, limit: int, seed: int, chosen: dict) -> dict:
    """The dense network's weights within the same bytes, without training: by magnitude, and by score."""
    choices = Choices(seed=seed, **chosen)
    problem = make_problem(make, Examples(train_data=data), choices, Target())
    found = {}
    for score in ("magnitude", "lamp"):
        model = make()
        model.load_state_dict(state)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        bound = NetworkBound(
            model, problem.weights, measure=problem.measure, limit=limit, cost=problem.cost,
            types=problem.types, score=score,
            total_steps=1, every=1, ramp=Ramp(0.0, 0.5),
        )  # fmt: skip
        bound.attach(optimizer).finish()
        stored = problem.files.stored(model.state_dict())
        assert stored.file_bytes <= limit
        found[f"one_shot_{score}"] = score_stored(stored, problem.data.test, problem).accuracy
    return found


if __name__ == "__main__":
    main()
