"""How the command line offers a field of a request: a record beside the field's type."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

AUGMENT_WORDS = ("none", "standard", "mirror", "shift", "cutout", "turn", "zoom")
AUGMENT_HELP = (
    "Vary training images: none, standard, or mirror, shift=N, cutout=N, turn=N, zoom=X joined by commas (default: "
    "standard for CIFAR-10 and for folders of classes with names of more than a letter)."
)


@dataclass(frozen=True)
class Option:
    """How the command line offers a field: what its help says, and what it reads."""

    help: str
    metavar: str | None = None
    reads: Any = str
    word: str | None = None  # for it, where that is not the field's name
    least: int | None = None
    most: int | None = None
    words: Sequence[str] = ()  # that a shell completes


def options_of(record: Any) -> dict[str, Option]:
    """The fields of a record that the command line offers, in order."""
    return {
        each.name: found
        for each in fields(record)
        for found in getattr(each.type, "__metadata__", ())
        if isinstance(found, Option)
    }
