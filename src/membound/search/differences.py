"""Where two descriptions of a run part, and the refusal to take one for the other."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from membound.errors import TrainingError

Difference = tuple[str, str, str]  # its name, and short texts of what it was and what it is
Differing = Callable[[Any, Any], Iterable[Difference]]


def refuse_another(there: dict[str, Any], wanted: dict[str, Any], path: Path, differing: Differing) -> None:
    """Refuse to go on with the run in `path` where its config is not the wanted one."""
    if next(find_differences(there, wanted), None) is None:
        return
    said: dict[str, str] = {}
    for name, *both in list(differing(there, wanted)) or find_differences(there, wanted):
        was, now = ("not given" if each in ("null", "absent") else each for each in both)
        said.setdefault(name, f"{name} was {was}, and is {now} now")
    raise TrainingError(
        f"{path} belongs to another run: {'; '.join(said.values())}: "
        "choose another run directory, or give the options as they were",
        about=list(said),
    )


def find_differences(old: Any, new: Any, name: str = "") -> Iterator[tuple[str, str, str]]:
    """Where two JSON values part, with short texts of both; 1 and 1.0 are two: a count and a fraction.

    Texts are alike where they differ in spaces alone, as sizes may.

    >>> list(find_differences({"a": [1, 2], "b": "4 KB", "c": 3}, {"a": [1, 2.0], "b": "4KB"}))
    [('a[1]', '2', '2.0'), ('c', '3', 'absent')]
    """
    if isinstance(old, dict) and isinstance(new, dict):
        pairs: Iterator[tuple[str, Any, Any]] = (
            (f"{name}.{key}" if name else key, old.get(key, _ABSENT), new.get(key, _ABSENT))
            for key in {**old, **new}
        )
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = ((f"{name}[{index}]", *both) for index, both in enumerate(zip(old, new, strict=True)))
    else:
        if _text(old).replace(" ", "") != _text(new).replace(" ", ""):
            yield name, _text(old, 60), _text(new, 60)
        return
    for place, one, other in pairs:
        yield from find_differences(one, other, place)


_ABSENT = object()


def _text(value: Any, length: int | None = None) -> str:
    text = "absent" if value is _ABSENT else json.dumps(value, sort_keys=True)
    return text if length is None or len(text) <= length else f"{text[:length]}..."
