"""Table 'imagenet': AlexNet, dense, brought under the paper's counts in stages, against thresholding at those counts.

The paper: dense 57.28 / 80.44 % (top-1 / top-5) in 233 MB; sparse 55.60 / 80.40 % in 58 MB; thresholded without
training 38.92 / 63.44 %. Stage 1 brings fc8 to 400,000 of 4,096,000 nonzeros, stage 2 fc6 and fc7 to 3,000,000 each.
With other data than ImageNet fc8 keeps the same part of its weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from membound import zoo
from membound.data import Dataset, subsample
from membound.paper.baselines import prune_
from membound.paper.claims import above, claim, show, spread
from membound.paper.lab import Lab
from membound.search.jobs import Job
from membound.search.ledger import open_run
from membound.search.problem import Problem, Target
from membound.search.request import Choices, Examples
from membound.search.setup import make_problem
from membound.search.stages import Reached, Stages, search_stages
from membound.search.workshop import Workshop
from membound.store.sizes import total_bytes
from membound.train.batches import Feeder
from membound.train.evaluation import evaluate
from membound.train.fingerprints import describe_preprocess, describe_split, digest, network_digest
from membound.train.preprocessing import preprocess_for
from membound.train.rules import load_plain_
from membound.train.weights import load_weights_

PAPER = {"dense": (57.28, 80.44), "thresholded": (38.92, 63.44), "sparse": (55.60, 80.40)}
FC8 = 400_000 / 4_096_000  # the part of the last layer's weights that stays
COUNTS = {"fc6": 3_000_000, "fc7": 3_000_000}
EVERY = 100
NEAR, RECOVERED = 0.5, 0.8  # points from dense; and the part of thresholding's loss that training takes back


@dataclass(frozen=True)
class Task:
    """What is trained on what, and how long."""

    dataset: Dataset
    init: Path | None = None  # a dense network; trained here if there is none
    names: Mapping[str, str] | None = None  # of layers, in a caffemodel that has others
    steps: int | None = None  # of the dense network's training, and of the last one at the bound
    candidate_steps: int = 10_000  # of a step of a stage
    seeds: int = 1
    batch_size: int | None = None

    def stages(self, quick: bool) -> Stages:
        fc8 = round(FC8 * 4096 * len(self.dataset.classes))
        if quick:  # few steps, and none that is taken back
            return Stages(({"fc8": fc8}, dict(COUNTS)), tolerance=100.0, keep=0.25)
        return Stages(({"fc8": fc8}, dict(COUNTS)), tolerance=NEAR)


def run(lab: Lab) -> dict[str, Any]:
    """For every seed: dense, thresholded at the counts that the stages come to, and trained at them."""
    task = lab.imagenet
    assert task is not None
    problem = _problem(lab, task)
    stages, rows = task.stages(lab.size.quick), []
    for seed in range(task.seeds):
        with open_run(_folder(lab, task, problem, stages, seed), {"cache": 1}) as directory:
            workshop = lab.workshop(problem, directory)
            reached = search_stages(workshop, stages, seed, lab.say, lab.say)
            rows.append({"seed": seed, **_judge(lab, workshop, reached, seed)})
    return {
        "data": task.dataset.name,
        "classes": len(task.dataset.classes),
        "images": {"train": len(problem.data.part), "test": len(_test(problem))},
        "steps": {"dense": problem.training.recipe.steps, "candidate": task.candidate_steps},
        "imported": None if task.init is None else task.init.name,
        "wanted": {k: v for counts in stages.resolve(problem) for k, v in counts.items()},
        "dense_bytes": 4 * sum(map(_size, problem.shapes.values())),
        "rows": rows,
    }  # fmt: skip


def _test(problem: Problem) -> Any:
    assert problem.data.test is not None
    return problem.data.test


def _size(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())


def _problem(lab: Lab, task: Task) -> Problem:
    dataset, quick = task.dataset, lab.size.quick
    if quick:
        some = min(48, len(dataset.train)), min(16, len(dataset.test))
        dataset = replace(
            dataset, train=subsample(dataset.train, some[0]), test=subsample(dataset.test, some[1])
        )
    make = partial(zoo.alexnet, len(dataset.classes))
    model = make()
    preprocess = None
    if task.init is not None:
        preprocess = load_weights_(model, task.init, task.names)
    choices = Choices(
        steps=3 if quick else task.steps,
        candidate_steps=2 if quick else task.candidate_steps,
        batch_size=4 if quick else task.batch_size,
        every=1 if quick else EVERY,
        pretrained=task.init is not None,
        validation=8 if quick else 0.1,
        augment="none",  # but for the crops and mirrors of Caffe's solver
    )
    examples = Examples(
        train_data=dataset.train,
        test_data=dataset.test,
        preprocess=preprocess or preprocess_for(model, dataset.train, None),
        classes=dataset.classes,
    )
    start = model if task.init is not None else make
    return make_problem(start, examples, choices, Target("nonzeros"), hold_out=True)


def _folder(lab: Lab, task: Task, problem: Problem, stages: Stages, seed: int) -> Path | None:
    if lab.folder is None:
        return None
    described = [
        problem.training.recipe.describe(),
        problem.training.tuning.describe(),
        stages.describe(),
        network_digest(problem.make(seed)),
        [describe_split(split) for split in (problem.data.part, _test(problem))],
        describe_preprocess(problem.data.preprocess),
    ]
    return lab.folder / f"imagenet-s{seed}-{digest(repr(described).encode())}"


def _judge(lab: Lab, workshop: Workshop, reached: Reached, seed: int) -> dict[str, Any]:
    """The networks on the test images, and what they take."""
    problem = workshop.problem
    dense = workshop.state("dense-part")
    (last,) = workshop.do([Job("final", seed, reached.key, warm=True, counts=reached.counts)])
    sparse = workshop.state("final")
    network = problem.make(seed)
    load_plain_(network, dense)
    prune_(network, {name.removesuffix(".weight"): count for name, count in reached.counts.items()})
    thresholded = {name: value.clone() for name, value in network.state_dict().items()}
    found: dict[str, Any] = {
        way: _score(lab, problem, network, state)
        for way, state in (("dense", dense), ("thresholded", thresholded), ("sparse", sparse))
    }
    counts = {name: last["counts"][name] for name in reached.counts}
    tensors = {name: (shape, counts.get(name, _size(shape))) for name, shape in problem.shapes.items()}
    return {
        **found,
        "counts": counts,
        "steps": len(reached.candidates) - 1,
        "path": [
            {"nonzeros": each["nonzeros"], "validation": each["accuracy"], "accepted": each["won"]}
            for each in reached.candidates
        ],
        "bytes": total_bytes(tensors, "best", "paper"),
        "bytes_f16": total_bytes(tensors, "best", "ours", "f16"),
        "kept": sum(count for _, count in tensors.values()) / sum(map(_size, problem.shapes.values())),
    }


def _score(lab: Lab, problem: Problem, network: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Any]:
    load_plain_(network, state)
    feeder = Feeder(_test(problem), problem.data.preprocess, lab.device, torch.float32)
    score = evaluate(network.to(lab.device), feeder, batch_size=100)
    network.cpu()
    return {"top1": score.accuracy, "top5": score.top5}


def means(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Over seeds, of each of the three networks."""
    found: dict[str, dict[str, Any]] = {}
    for way in PAPER:
        found[way] = {"top1": spread([row[way]["top1"] for row in result["rows"]])}
        fives = [row[way]["top5"] for row in result["rows"]]
        found[way]["top5"] = None if None in fives else spread(fives)
    return found


def claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    at = {way: found["top1"] for way, found in means(result).items()}
    lost, left = (at["dense"]["mean"] - at[way]["mean"] for way in ("thresholded", "sparse"))
    reached = all(
        row["counts"][name] <= count for row in result["rows"] for name, count in result["wanted"].items()
    )
    least = ", ".join(
        f"{name.removesuffix('.weight')} {max(row['counts'][name] for row in result['rows']):,}"
        for name in result["wanted"]
    )
    found = [
        claim("the stages come to the paper's counts", reached, f"nonzeros at most: {least}"),
        claim(
            f"sparse within {NEAR} points of dense",
            left <= NEAR,
            f"{-left:+.2f} points of top-1",
            above(at["sparse"], at["dense"], by=-NEAR),
        ),
    ]
    text = (
        f"where thresholding costs more than 2 points, training takes at least {RECOVERED:.0%} of that back"
    )
    holds = None if lost <= 2 else (lost - left) / lost >= RECOVERED
    measured = f"thresholding {-lost:+.2f} points, training {-left:+.2f}"
    found.append(claim(text, holds, measured if holds is not None else f"it costs less: {measured}"))
    times = result["dense_bytes"] / max(row["bytes"] for row in result["rows"])
    found.append(
        claim(
            "at least 4 times smaller in the paper's formats (233 to 58 MB)", times >= 4, f"{times:.2f} times"
        )
    )
    return found


def table(result: dict[str, Any]) -> list[list[str]]:
    rows = [["network", "top-1", "top-5", "MiB, paper's formats", "the paper's top-1 / top-5 (ImageNet)"]]
    largest = max(row["bytes"] for row in result["rows"])
    for way, found in means(result).items():
        size = result["dense_bytes"] if way == "dense" else largest
        five = "" if found["top5"] is None else show(found["top5"])
        rows.append(
            [way, show(found["top1"]), five, f"{size / 2**20:.1f}", "{:.2f} / {:.2f}".format(*PAPER[way])]
        )
    return rows
