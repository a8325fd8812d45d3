"""What a record of the catalogue of operators is made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from membound.store.graph import Shape
from membound.store.kinds import Kind
from membound.store.rules import RULE_SHAPES, refuse

REQUIRED = object()
Given = dict[str, Any]  # the attributes of a node, all of them
Shapes = Mapping[str, Shape]  # of its tensors, by role


@dataclass(frozen=True)
class Attribute:
    """What an attribute may be, and what it is if a node does not say; one whose default is None may be nothing."""

    kind: Kind
    default: Any = REQUIRED
    note: str = ""  # for the table


@dataclass(frozen=True)
class Role:
    """A tensor of an operator: kernels compute on it `as_stored`, in any layout, or on a dense table made at load."""

    shape: str  # for the table
    required: bool = False
    as_stored: bool = False


@dataclass(frozen=True)
class Operator:
    """Everything that a node of this operator must keep to; `shape` gives its output's, or refuses."""

    name: str
    shape: Callable[[list[Shape], Given, Shapes], Shape]
    table: str  # inputs -> output, for docs/FORMAT.md
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    inputs: tuple[int, int] = (1, 1)  # at least, at most


def wrong(message: str) -> NoReturn:
    refuse(RULE_SHAPES, message)  # rule 25


def image_sizes(shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        wrong(f"its input has the shape {list(shape)}: it must be [channels, height, width]")
    return shape[0], shape[1], shape[2]


def checked_axis(shape: Shape, axis: int) -> int:
    if axis >= len(shape):
        wrong(f"axis {axis} is not there in an input of shape {list(shape)}")
    return axis


def reduced(inputs: list[Shape], a: Given, tensors: Shapes) -> Shape:
    shape, axes = inputs[0], a["axes"]
    if not axes or len(set(axes)) != len(axes) or max(axes) >= len(shape):
        wrong(f"axes {list(axes)} are not distinct axes of an input of shape {list(shape)}")
    kept = [(1 if i in axes else size) for i, size in enumerate(shape) if a["keep"] or i not in axes]
    return tuple(kept)
