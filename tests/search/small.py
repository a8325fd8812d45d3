"""A small problem: a network of four layers, a few hundred digits, trainings of a second."""

from functools import cache
from typing import Any

import torch
from torch import nn

import membound as mb
from membound.data import ArraySplit, Preprocess
from membound.search.bound import Ramp
from membound.search.problem import Data, Fresh, Problem, Target, Training, bounded_weights, fine_tuned
from membound.train.recipe import modern

STEPS, EVERY = 30, 5
SCALE = Preprocess(scale=1 / 256)


class Small(nn.Module):
    """8,414 weights and 60 biases."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, stride=2)
        self.conv2 = nn.Conv2d(6, 12, 5, stride=2)
        self.fc1 = nn.Linear(12 * 16, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


@cache
def all_digits() -> ArraySplit:
    return mb.data.load("mnist").train


@cache
def digits(begin: int = 0, end: int = 300) -> ArraySplit:
    split = all_digits()
    return ArraySplit(split.images[begin:end], split.labels[begin:end])


def small_problem(
    factory: Any = Small, kind: str = "file", values: str = "f16", steps: int = STEPS, **changed: Any
) -> Problem:
    """Trained on 300 digits, judged on 100 others, with 50 more for the last word."""
    recipe = modern("sgd", steps, 20, lr=0.05, warmup=5)
    training = Training(recipe, fine_tuned(recipe, max(steps // 3, 1), 0.5), EVERY, Ramp(0.1, 0.6, 0.85))
    data = Data(digits(0, 400), digits(0, 300), digits(300, 400), digits(400, 450), SCALE)
    weights = bounded_weights(Fresh(factory)(0))
    fields = {"training": training, "data": data, "weights": weights, **changed}
    return Problem(make=Fresh(factory), target=Target(kind, values), **fields)
