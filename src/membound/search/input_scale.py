"""What is said of sensors: channels that do not vary, and channels that one int8 scale cannot hold together."""

import numpy as np

from membound.data.varied import constant_channels
from membound.run.calibration import INPUTS
from membound.search.problem import Problem

LISTED = 5  # numbers of channels that a note shows
UNLIKE = 4  # times as wide: then a channel has a quarter of the steps of int8


def note_scales(problem: Problem) -> list[str]:
    """Said of floats for a microcontroller whose channels differ much, as nothing standardizes them."""
    data = problem.data
    if not problem.target.micro or data.preprocess.takes != "float32":
        return []
    rows = np.unique(np.linspace(0, len(data.train) - 1, min(INPUTS, len(data.train))).astype(np.int64))
    inputs = np.asarray(data.preprocess(data.train.read(rows)), np.float64)
    spreads = inputs.std(axis=(0, *range(2, inputs.ndim)))
    spreads = spreads[spreads > 0]
    if len(spreads) < 2 or spreads.max() < UNLIKE * spreads.min():
        return []
    whose = "features'" if inputs.ndim == 2 else "channels'"
    axes = 0 if inputs.ndim == 2 else (0, *range(2, inputs.ndim))
    remedy = (
        "standardize x, as mb.data.load of an .npz does, by "
        f"preprocess=mb.data.Preprocess(mean=x.mean({axes}), std=x.std({axes}))"
    )
    return [
        f"the {whose} standard deviations differ ({spreads.min():.3g} to {spreads.max():.3g}), and one int8 scale "
        f"holds all: {remedy}"
    ]


def note_constant(problem: Problem) -> list[str]:
    """Said of channels that have one value only in training, as a sensor that is dead or not connected."""
    found = constant_channels(problem.data.train)
    if not found:
        return []
    kind, shown = "feature" if len(problem.data.train.shape) == 1 else "channel", found[:LISTED]
    more = "" if found == shown else f" and {len(found) - len(shown)} more"
    have, it = ("has", "it") if len(found) == 1 else ("have", "them")
    return [
        f"{kind}{'s' if len(found) > 1 else ''} {', '.join(map(str, shown))}{more} (from 0) {have} a single value in "
        f"all training examples, so the network cannot learn what a change there means: leave {it} out, or check "
        "the sensor"
    ]
