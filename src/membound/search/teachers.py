"""From what a person calls a teacher to one: a module, several, a model file, a wider network, trained first, or the
dense network that a fit trains beside."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from membound.capture.torch_graph import step
from membound.data import Preprocess
from membound.data.several import inputs_of
from membound.errors import MemboundError, TrainingError, a_kind
from membound.run.common import preprocess_of
from membound.search.bounds import Bound
from membound.search.ensemble import Ensemble
from membound.search.jobs import Job
from membound.search.problem import Fresh, Problem, State
from membound.search.request import TEACHERS, Choices
from membound.search.workshop import Workshop
from membound.store.file import read
from membound.store.model import StoredModel
from membound.train.batches import Feeder
from membound.train.computed import copied
from membound.train.distill import PART, TEMPERATURE, check_numbers
from membound.train.evaluation import in_eval_mode
from membound.train.recipe import WarmCosine
from membound.train.rules import load_plain_
from membound.train.teaching import Teaching, input_change
from membound.zoo.networks import takes_width, widened

DENSE, AUTO, NONE = TEACHERS
WIDER = 2.0  # times as wide as its pupil is the teacher that is trained first
KEY = "teacher"  # of its job
DENSE_TEACHES = "learned from the dense network, its teacher, as well as from the labels"


class StoredNetwork(nn.Module):
    """A model file as torch runs it, with dense weights, on any device."""

    def __init__(self, stored: StoredModel) -> None:
        super().__init__()
        model = stored.decode()
        self.graph = model.graph
        self.numbers = {name: number for number, name in enumerate(model.tensors)}
        for number, array in enumerate(model.tensors.values()):
            self.register_buffer(f"tensor{number}", torch.from_numpy(array.copy()))

    def forward(self, x: Tensor) -> Tensor:
        """What the file's last value is for inputs that are prepared."""
        values = [x]
        for node in self.graph.nodes:
            weights = {
                role: getattr(self, f"tensor{self.numbers[name]}") for role, name in node.tensors.items()
            }
            values.append(step(node, weights)(*(values[number] for number in node.inputs)))
        return values[self.graph.output]


def make_teaching(
    asked: Any, problem: Problem, temperature: float, part: float, passes: float = 0.0
) -> Teaching:
    """The teacher that was asked for, checked with one image.

    `asked` is a module, a list of them (their scores are averaged), the path of a model file, or (module, Preprocess)
    where it takes images prepared in another way than its pupil does. Its pupils go through the images `passes` times.
    """
    network, prepared = _load(asked)
    change = None if prepared is None else input_change(problem.data.preprocess, prepared)
    factor, offset = change or (None, None)
    bf16 = problem.training.precision == "bf16"
    teaching = Teaching(network, temperature, part, factor, offset, passes, bf16)
    cpu = torch.device("cpu")
    teaching.to(cpu)
    check_classifies(problem)
    pupil = problem.make(0).to(cpu)
    feeder = Feeder(problem.data.train, problem.data.preprocess, cpu, torch.float32)
    x, labels = next(feeder.batches([torch.zeros(1, dtype=torch.int64).numpy()]))
    with in_eval_mode(pupil), torch.no_grad():
        outputs = pupil(x)
    teaching.check(x, outputs, labels)
    return teaching


def check_classifies(problem: Problem) -> None:
    """A teacher's scores are those of classes."""
    if not problem.task.classifies:
        raise TrainingError(
            "a teacher is for classification, and you pass a loss of your own: leave one of them out",
            about="teacher",
        )


def _load(asked: Any) -> tuple[nn.Module, Preprocess | None]:
    if isinstance(asked, tuple) and len(asked) == 2 and isinstance(asked[1], Preprocess):
        return _load(asked[0])[0], asked[1]
    if isinstance(asked, nn.Module):
        return copied(asked), None  # it is frozen here; the user's own stays as it is
    if isinstance(asked, str | os.PathLike):
        stored = read(asked, mmap=False)
        return StoredNetwork(stored), preprocess_of(stored)
    if isinstance(asked, Sequence) and asked and all(isinstance(each, nn.Module) for each in asked):
        return Ensemble([copied(each) for each in asked]), None
    raise MemboundError(
        f"the teacher is {a_kind(asked)}: give a torch.nn.Module, a list of them, the path of a model file, "
        "'dense', 'auto' or 'none'",
        about="teacher",
    )


def with_wider(problem: Problem) -> Problem:
    """The problem with the teacher that `auto` trains as a variant: wider where the network's function has a width."""
    return problem.changed(variants={**problem.variants, KEY: _wider(problem)})


def _wider(problem: Problem) -> Callable[[int], nn.Module]:
    make = problem.make
    if not isinstance(make, Fresh) or not takes_width(make.factory):
        return make
    factory: Callable[..., nn.Module] = make.factory
    return Fresh(partial(factory, width=widened(factory, WIDER)))


def train_teacher(
    workshop: Workshop, seed: int, temperature: float, part: float, passes: float = 0.0
) -> tuple[Teaching, dict[str, Any]]:
    """A dense teacher, trained at no more than its pupil's own cost in multiplications: a wider one for fewer steps.

    It sees no image that choices are made on.
    """
    problem = workshop.problem
    recipe, make = problem.training.recipe, problem.variants[KEY]
    shape = problem.data.input_shape
    cost = multiplications(make(seed), shape) / max(multiplications(problem.make(seed), shape), 1)
    steps = max(int(recipe.steps / max(cost, 1.0)), 1)
    peak = max(recipe.lr(at) for at in range(0, recipe.steps, max(recipe.steps // 200, 1)))
    shorter = replace(recipe, steps=steps, lr=WarmCosine(peak, min(200, steps // 10), steps))
    job = Job(KEY, seed, network=KEY, recipe=shorter, about={"budget": None})
    (facts,) = workshop.do([job])
    network = make(seed)
    load_plain_(network, workshop.state(KEY))
    return make_teaching(network, problem, temperature, part, passes), facts


def dense_teaches(problem: Problem, bound: Bound, choices: Choices) -> bool:
    """Whether networks under a bound learn from the dense network that they are compared with.

    They do unless another teacher, or none, is asked for; searches, which train many networks, do without.
    """
    if choices.teacher not in (None, DENSE):
        return False
    searches = bound.searches or choices.is_greedy
    possible = choices.dense and not searches and problem.task.classifies
    possible = possible and inputs_of(problem.data.train) is None
    asked = choices.teacher, choices.temperature, choices.teacher_part
    if not possible and any(each is not None for each in asked):
        check_classifies(problem)
        raise MemboundError(
            "teacher='dense' needs the dense network, trained before the others: leave out dense=False, within, stages "
            "and the greedy strategy, or the teacher",
            about="teacher",
        )
    return possible


def teaching_numbers(choices: Choices) -> tuple[float, float]:
    """The temperature and the teacher's part."""
    heat = TEMPERATURE if choices.temperature is None else choices.temperature
    part = PART if choices.teacher_part is None else choices.teacher_part
    check_numbers(heat, part)
    return heat, part


def describe_lessons(problem: Problem, bound: Bound, choices: Choices) -> dict[str, Any]:
    """Who taught networks under the bound, and how, as JSON; None where nobody did."""
    asked = DENSE if dense_teaches(problem, bound, choices) else choices.teacher
    if asked in (None, NONE):
        return {"teacher": None, "temperature": None, "teacher_part": None}
    heat, part = teaching_numbers(choices)
    asked = asked[0] if isinstance(asked, tuple | list) else asked
    name = type(asked).__name__ if isinstance(asked, nn.Module) else os.fspath(asked)
    return {"teacher": name, "temperature": heat, "teacher_part": part}


def dense_teaching(
    make: Callable[[int], nn.Module],
    numbers: tuple[float, float],
    passes: float,
    state: State,
    problem: Problem,
) -> Teaching:
    """The dense network as a teacher, which nobody had to ask for: a recipe that works without it works with it."""
    network = make(0)
    load_plain_(network, state)
    return replace(make_teaching(network, problem, *numbers, passes), steady=True)


def describe_teacher(facts: Mapping[str, Any]) -> str:
    """In a sentence, for the report."""
    score = "" if facts["accuracy"] is None else f", {facts['accuracy']:.2f} % on validation images"
    return f"a teacher of {facts['nonzeros']:,} parameters, trained for {facts['steps']:,} steps{score}"


@torch.no_grad()
def multiplications(model: nn.Module, shape: tuple[int, ...]) -> int:
    """Of convolutions and matrices, for one example.

    >>> multiplications(nn.Conv2d(2, 3, 3), (2, 5, 5))
    486
    """
    found = 0

    def count(part: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal found
        weight = getattr(part, "weight", None)
        if isinstance(weight, Tensor) and weight.dim() > 1 and isinstance(output, Tensor):
            places = output[0].numel() // weight.shape[0]
            found += weight.numel() * max(places, 1)

    hooks = [part.register_forward_hook(count) for part in model.modules()]
    try:
        with in_eval_mode(model):
            model(torch.zeros(1, *shape))
    finally:
        for hook in hooks:
            hook.remove()
    return found
