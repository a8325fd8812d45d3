"""Whether a final network says the same class of everything: then its score says nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from membound.data import Split
from membound.data.examples import IGNORED
from membound.data.several import inputs_of
from membound.run import Net
from membound.run.evaluation import first_output
from membound.run.micro_net import MicroNet
from membound.search.deployed import Fitted
from membound.search.problem import Problem

LOOKED_AT = 200  # images


def with_collapse(results: Sequence[Fitted], problem: Problem) -> list[Fitted]:
    """The same with the one class among their facts, as `collapsed`, of those that say no other."""
    data = problem.data
    split = next((each for each in (data.test, data.given, data.validation) if each is not None), None)
    if split is None or split.labels.dtype.kind not in "iu":
        return list(results)
    found = []
    for result in results:
        stored = result.files.stored(result.model.state_dict())
        same = _only_class(
            MicroNet(stored) if problem.target.micro else Net(stored, threads=1), split, problem
        )
        found.append(result if same is None else replace(result, facts={**result.facts, "collapsed": same}))
    return found


def _only_class(net: Net | MicroNet, split: Split, problem: Problem) -> int | None:
    """The class that it says of all images, or of all their pixels; None where it says several, or there is one."""
    rows = np.linspace(0, len(split) - 1, min(LOOKED_AT, len(split)), dtype=np.int64)
    labels, inputs = split.labels[rows], inputs_of(split)
    x: Any = problem.data.preprocess(split.read(rows))
    scores = first_output(net(x) if inputs is None else inputs.call(net, x))
    if scores.ndim != labels.ndim + 1 or len(np.unique(labels[labels != IGNORED])) < 2:
        return None
    said = np.unique(scores.argmax(1))
    return int(said[0]) if len(said) == 1 else None
