"""What an export is asked for, what came of it, and what describes one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # which needs numpy
    from membound.data.pictures import Size


@dataclass(frozen=True)
class Request:
    """What is to be written from what, and all options. An export reads those that it `takes`."""

    source: str
    target: Path | None  # None: nothing is written, only measured
    sparse: bool = False
    init: Path | None = None
    name: Mapping[str, str] = field(default_factory=dict)
    values: str | None = None  # None: auto, and of a model file what it has
    prefer: str = "bytes"
    shape: tuple[int, ...] | None = None
    data: str | None = None
    mean: str | None = None
    layout: str | None = None
    size: "Size | None" = None
    prefix: str = "net"
    engine: str = "float"
    clock: str | None = None
    compiled: str | None = None  # None: Os, or as the last export into a folder
    input_unit: str | None = None


@dataclass(frozen=True)
class Written:
    """What came out: facts for a program, lines for a person, and a note that both should see."""

    facts: dict[str, Any]
    lines: list[str]
    note: str | None = None


@dataclass(frozen=True)
class Export:
    """One thing that a network can become."""

    option: str
    metavar: str
    help: str
    purpose: str  # in a few words
    takes: frozenset[str]  # fields of a request that mean something to it
    write: Callable[[Request], Written]
