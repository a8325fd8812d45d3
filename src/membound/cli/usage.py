"""What is wrong with a command line, in our words: those of typer depend on its version and on what it reads by."""

import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, get_args

import typer

from membound.units import HERTZ, UNITS


def explain_value(error: Any, given: Sequence[str], function: Callable[..., None]) -> str | None:
    """What an option takes, where one was given something else; None of other errors.

    >>> from types import SimpleNamespace as Some
    >>> from typing import Annotated
    >>> def command(steps: Annotated[int, typer.Option(min=1)]): ...
    >>> error = Some(param=Some(name="steps", opts=["--steps"]))
    >>> explain_value(error, ["fit", "--steps", "0"], command)
    '--steps 0: a whole number from 1 up is needed'
    """
    parameter = getattr(error, "param", None)
    asked = inspect.signature(function).parameters.get(getattr(parameter, "name", None) or "")
    if parameter is None or asked is None:
        return None
    kind, *about = get_args(asked.annotation) or (asked.annotation,)
    option = next((each for each in about if isinstance(each, typer.models.OptionInfo)), None)
    value = _find_value(parameter.opts, given)
    words = _name_kind(kind, option)
    return None if value is None or words is None else f"{parameter.opts[0]} {value}: {words} is needed"


def explain_space(given: Sequence[str]) -> str | None:
    """A number and its unit that were given as two words.

    >>> explain_space(["fit", "lenet", "--budget", "6", "KB"])
    '--budget 6 KB is two words: did you mean 6KB?'
    """
    units = {*UNITS, *HERTZ, "%", "s", "ms", "us"} - {""}
    for option, number, unit in zip(given, given[1:], given[2:], strict=False):
        if option.startswith("--") and number.replace(".", "", 1).isdigit() and unit.lower() in units:
            return f"{option} {number} {unit} is two words: did you mean {number}{unit}?"
    return None


def suggest_close(error: Any) -> None:
    """Leave of the options that an error suggests only those that are nearly the one given.

    >>> from types import SimpleNamespace as Some
    >>> error = Some(option_name="--budgt", possibilities=["--augment", "--budget", "--out"])
    >>> suggest_close(error)
    >>> error.possibilities
    ['--budget']
    """
    if getattr(error, "possibilities", None):
        error.possibilities = get_close_matches(error.option_name, error.possibilities, cutoff=0.75)


def _find_value(names: Sequence[str], given: Sequence[str]) -> str | None:
    """What was given for an option, as --steps 5 or --steps=5; the last one counts."""
    found = None
    for word, after in zip(given, [*given[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in names:
            found = value if equals else after
    return found


def _name_kind(kind: Any, option: Any) -> str | None:
    """
    >>> _name_kind(int | None, typer.Option(min=1, max=64)), _name_kind(float, None), _name_kind(str, None)
    ('a whole number from 1 to 64', 'a number', None)
    """
    kinds = {kind, *get_args(kind)}
    word = "a whole number" if int in kinds else "a number" if float in kinds else None
    if word is None:
        return None
    least, most = getattr(option, "min", None), getattr(option, "max", None)
    if least is None:
        return word if most is None else f"{word} up to {most}"
    return f"{word} from {least} up" if most is None else f"{word} from {least} to {most}"
