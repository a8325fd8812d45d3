"""What is fitted: a network, its data, its task, and what the budget counts. The same for every job of a fit."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from membound.capture.capture import Tracer
from membound.data import Preprocess, Split
from membound.data.augment import NONE, Augment
from membound.errors import MemboundError, ModelError, RuleError, a_kind
from membound.micro.plan import MicroPlan
from membound.modules import plain_keys
from membound.run.net import EVERY, check_isa
from membound.search.allocation import ByteCost, NonzeroCost, TypedCost
from membound.search.bits import START, WIDE, palette_bits
from membound.search.bound import Ramp
from membound.search.measure import BothBytes, FileBytes, Nonzeros, RamBytes
from membound.search.micro import MicroBytes, refuse_layers, refuse_unrolled
from membound.search.micro_points import find_points
from membound.store.choice import layer_weights, value_types
from membound.store.formats import Prefer
from membound.store.values import value_type
from membound.train.activations import Points
from membound.train.checkpoint import seed_random
from membound.train.computed import copied
from membound.train.promises import forget_
from membound.train.recipe import Recipe, WarmCosine
from membound.train.rules import select
from membound.train.several import Several
from membound.train.task import Task
from membound.train.teaching import Teaching
from membound.train.updates import l0_project
from membound.units import LEVELS

KINDS = ("file", "ram", "nonzeros")
AUTO, PLAIN = "auto", "f16"
WARM_RATE = 0.5  # of the peak learning rate, for a training that goes on from a trained network
AT_ONCE = Ramp(0.0, 0.01)  # for one that is about at its bound already
State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Data:
    """The images: all for training, those that choices are trained on and made on, and those for the last word."""

    train: Split
    part: Split  # `train` without `validation`
    validation: Split | None
    test: Split | None
    preprocess: Preprocess
    classes: tuple[str, ...] | None = None
    given: Split | None = None  # validation images that are not part of `train`
    pixels: Preprocess | None = None  # how pixels become what `train` has, which is prepared: for the file

    @property
    def input_shape(self) -> tuple[int, ...]:
        """What the network takes, without the batch."""
        shape, crop = tuple(self.train.shape), self.preprocess.crop
        return shape if crop is None else (shape[0], crop, crop)


@dataclass(frozen=True)
class Target:
    """What the budget counts: bytes of the file, bytes of memory when it runs, or nonzero parameters."""

    kind: str = "file"
    values: str = "f16"  # how they are stored; "auto": in few bits, how many is chosen for each layer
    batch: int = 1  # images at once, for memory,
    isa: str = EVERY  # and the instruction set
    memory: int | None = None  # bytes of memory that are allowed beside so many of the file
    file_bytes: int | None = None
    micro: bool | None = None  # a microcontroller: the budget bounds flash, `memory` its RAM
    activations: str | None = None  # of a microcontroller: "trained" in int8, or only "calibrated"
    clock: float | None = None  # of a microcontroller, in Hz, where it was given
    cycles: int | None = None  # for one image, that are allowed there
    compiled: str | None = None  # how, for a microcontroller, where that was given: at -Os otherwise
    prefer: Prefer = "bytes"  # what formats are chosen for

    def __post_init__(self) -> None:
        check_isa(self.isa)
        if self.kind not in KINDS:
            raise MemboundError(f"a budget counts {', '.join(KINDS)}, not {self.kind!r}")

    @property
    def chooses(self) -> bool:
        """Whether the types of values are chosen while networks train."""
        return self.values == AUTO

    @property
    def base(self) -> str:
        """The type of what is not bounded, and so not trained for few bits."""
        return WIDE if self.chooses or palette_bits(self.values) is not None else self.values

    @property
    def rounds(self) -> bool:
        """Whether values inside the network are rounded in training."""
        return self.activations == "trained"

    @property
    def spare(self) -> int | None:
        """How much more memory than file is allowed, where both are bounded."""
        both = self.memory is not None and self.file_bytes is not None
        return (self.memory or 0) - (self.file_bytes or 0) if both else None

    @property
    def timed(self) -> tuple[int, int] | None:
        """The bytes and the cycles that are allowed, where both are bounded."""
        return (self.file_bytes, self.cycles) if self.cycles and self.file_bytes else None

    @property
    def level(self) -> str:
        """How C is compiled for a microcontroller."""
        return self.compiled or LEVELS[0]

    @property
    def counted_in(self) -> str | None:
        """The unit of one bound; None where several are counted together, so that the number is of none of them."""
        if self.spare is not None or self.timed is not None:
            return None
        return "bytes of memory" if self.kind == "ram" else self.unit

    @property
    def unit(self) -> str:
        return "nonzeros" if self.kind == "nonzeros" else "bytes of flash" if self.micro else "bytes"


@dataclass(frozen=True)
class Training:
    """How long and how fast networks are trained; `recipe` is for the whole way, `tuning` for a candidate's."""

    recipe: Recipe
    tuning: Recipe
    every: int
    ramp: Ramp = field(default_factory=Ramp)
    usual_steps: int = 0  # if nobody says how many
    fresh: bool = True  # networks start from nothing, not from trained weights
    augment: Augment = NONE
    smoothing: float = 0.0  # of labels
    precision: str = "float32"

    @property
    def warm(self) -> Recipe:
        """For the whole way from trained weights."""
        return fine_tuned(self.recipe, self.recipe.steps, WARM_RATE)


@dataclass(frozen=True, eq=False)
class Problem:
    """All that jobs have in common. It can be pickled: workers elsewhere get a copy."""

    make: Callable[[int], nn.Module]  # the network as it starts, by seed
    data: Data
    training: Training
    target: Target
    weights: tuple[str, ...]  # the names of the parameters under the bound
    task: Task = field(default_factory=Task)
    teaching: Teaching | None = None  # for networks under a bound
    variants: Mapping[str, Callable[[int], nn.Module]] = field(
        default_factory=dict
    )  # of the network, by name

    def __getstate__(self) -> dict[str, Any]:
        made = ("files", "measure", "types", "rounded", "plain_bytes", "points", "_model", "_tracer")
        return {name: value for name, value in vars(self).items() if name not in made}

    def changed(self, **fields: Any) -> "Problem":
        """With other fields. The network, if it is the same, is not traced again: that takes long."""
        other = replace(self, **fields)
        if "_tracer" in vars(self) and not {"make", "data"} & fields.keys():
            vars(other)["_tracer"] = self._tracer
        return other

    @cached_property
    def _model(self) -> nn.Module:
        return self.make(0)

    @cached_property
    def _tracer(self) -> Tracer:
        return self._trace(self._model)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every parameter."""
        return {name: tuple(p.shape) for name, p in plain_keys(dict(self._model.named_parameters())).items()}

    @property
    def sizes(self) -> dict[str, int]:
        return {name: int(np.prod(self.shapes[name])) for name in self.weights}

    @cached_property
    def files(self) -> FileBytes:
        """The bytes of model files, and the files themselves."""
        return self._files(self._model, self._tracer)

    def files_of(self, model: nn.Module) -> FileBytes:
        """The same for another network on the same data, such as an ensemble."""
        return self._files(model, self._trace(model))

    def _trace(self, model: nn.Module) -> Tracer:
        if self.target.micro:
            refuse_unrolled(model)
        if isinstance(model, Several):
            return Tracer(model.module, model.example())
        tracer = Tracer(model, torch.zeros(1, *self.data.input_shape))
        if self.target.micro:
            files = self._files(model, tracer)
            state = files.dense_state()
            refuse_layers(model, files.stored(state), lambda: tracer.origins(state))
        return tracer

    def _files(self, model: nn.Module, tracer: Tracer) -> FileBytes:
        preprocess = None if isinstance(model, Several) else self.data.pixels or self.data.preprocess
        return FileBytes(tracer, self.target.base, preprocess, self.data.classes, self.target.prefer)

    @cached_property
    def types(self) -> dict[str, str]:
        """The types of the bounded weights' values, as a training starts; those that are given stay."""
        if self.target.base == self.target.values:
            return dict.fromkeys(self.weights, self.target.values)
        start = START if self.target.chooses else self.target.values
        known = value_types(self.files.tracer.model(simplify=False), start)
        return {name: known.get(name, start) for name in self.weights}

    @cached_property
    def rounded(self) -> dict[str, str]:
        """The types of weights that are not bounded, but stored in few bits, such as depthwise ones."""
        model = self.files.tracer.model(simplify=False)
        types = value_types(model, self.target.base)
        trained = {
            name for name, p in plain_keys(dict(self._model.named_parameters())).items() if p.requires_grad
        }
        return {
            name: types[name]
            for name in layer_weights(model.graph)
            if name in trained and name not in self.weights and value_type(types[name]).coded
        }

    @cached_property
    def points(self) -> Points | None:
        """The values that are rounded to int8 in training, where a microcontroller will."""
        return find_points(self.files, self._model) if self.target.rounds else None

    @property
    def plain_types(self) -> dict[str, str]:
        """16 bits for the weights of every layer, for budgets that have room for them."""
        return dict.fromkeys(
            [*layer_weights(self.files.tracer.model(simplify=False).graph), *self.weights], PLAIN
        )

    @cached_property
    def plain_bytes(self) -> int:
        """What the budget counts of the whole network in these types."""
        if self.target.micro:  # which computes on 8 bits at most
            return sys.maxsize
        try:
            return self.measure_of(self._model, replace(self.files, values=PLAIN)).dense()
        except ModelError:  # a value that 16 bits cannot hold
            return sys.maxsize

    @cached_property
    def measure(self) -> FileBytes | Nonzeros:
        """What the budget counts, of a state of the network."""
        return self.measure_of(self._model, self.files)

    def measure_of(self, model: nn.Module, files: FileBytes) -> FileBytes | Nonzeros:
        """The same for another network on the same data."""
        if self.target.kind == "nonzeros":
            return Nonzeros(model)
        kind: Callable[..., FileBytes]
        if self.target.micro:
            kind = partial(
                MicroBytes, spare=self.target.spare, timed=self.target.timed, level=self.target.level
            )
        elif self.target.spare is not None:
            kind = partial(BothBytes, spare=self.target.spare, batch=self.target.batch, isa=self.target.isa)
        elif self.target.kind == "ram":
            kind = partial(RamBytes, batch=self.target.batch, isa=self.target.isa)
        else:
            return files
        return kind(
            files.tracer, files.values, files.preprocess, files.classes, files.prefer, types=files.types
        )

    @property
    def cost(self) -> TypedCost:
        """What the budget counts, estimated from the counts of the bounded weights."""
        if self.target.kind == "nonzeros":
            return NonzeroCost()
        return ByteCost({name: self.shapes[name] for name in self.weights}, self.target.prefer)

    def dense(self) -> int:
        """What the budget counts, of the network without a zero in float32."""
        if self.target.kind == "nonzeros":
            return self.measure.dense()
        plain = FileBytes(self.files.tracer, "f32", self.files.preprocess, self.data.classes)
        return self.measure_of(self._model, plain).dense()

    def least(self) -> int:
        """The smallest budget that can be met: one weight a layer, and all that is not bounded."""
        return self.measure.least(self.weights, self._with_biases(), self.types)

    def least_plan(self) -> MicroPlan | None:
        """The same as a microcontroller has it; None of another target."""
        if not isinstance(self.measure, MicroBytes):
            return None
        return self.measure.plan(self.measure.emptied(self.weights, self._with_biases()), self.types)

    def _with_biases(self) -> State:
        state = plain_keys(self._model.state_dict())
        for name in self.shapes.keys() - set(self.weights):  # biases may start at zero, but do not stay there
            state[name] = torch.where(state[name] == 0, 1e-3, state[name])
        return state


def bounded_weights(
    model: nn.Module, layers: Sequence[str] = ("*",), protect: Sequence[str] = (), depthwise: bool = False
) -> tuple[str, ...]:
    """The parameters that a budget is taken from: those that `layers` select and `protect` does not.

    Depthwise convolutions have few weights, and each matters: they are left alone unless `depthwise`.

    >>> bounded_weights(nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 8, 1), nn.BatchNorm2d(8)))
    ('1.weight',)
    """
    chosen = {
        name: found for each in layers for name, found in select(model, {each: l0_project(1.0)}).items()
    }
    left = (
        {id(weight) for weight, _ in select(model, dict.fromkeys(protect, l0_project(1.0))).values()}
        if protect
        else set()
    )
    if not depthwise:
        left |= {id(part.weight) for part in model.modules() if is_depthwise(part)}
    names = []
    for name, (weight, _) in chosen.items():
        if id(weight) not in left and weight.requires_grad:
            names.append(name)
            left.add(id(weight))  # a tied weight is bounded once
    if not names:
        raise RuleError("no weight is left to bound: all are protected, frozen or not selected")
    return tuple(names)


def is_depthwise(part: nn.Module) -> bool:
    return isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d) and 1 < part.groups == part.in_channels


@dataclass(frozen=True)
class Copies:
    """Makes networks by copying one: all start from the same weights."""

    model: nn.Module

    def __call__(self, seed: int) -> nn.Module:
        found = copied(self.model)
        forget_(found)  # bounds of a training before are not this one's
        return found


@dataclass(frozen=True)
class Fresh:
    """Makes networks by calling a factory, each with random numbers of its own seed."""

    factory: Callable[[], nn.Module]

    def __call__(self, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            seed_random(seed)
            model = self.factory()
        if not isinstance(model, nn.Module):
            raise MemboundError(f"the factory gives {a_kind(model)}: it must give a torch.nn.Module")
        return model


def fine_tuned(recipe: Recipe, steps: int, part: float = 1.0) -> Recipe:
    """The recipe for a short training that goes on from trained weights: no warm-up, from `part` of its peak down."""
    peak = max(recipe.lr(step) for step in range(0, recipe.steps, max(recipe.steps // 200, 1)))
    return replace(recipe, steps=steps, lr=WarmCosine(peak * part, 0, steps))
