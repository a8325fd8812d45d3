"""Whether a function can be called as it is, or as it will be."""

import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

from membound.errors import MemboundError

Given = ParamSpec("Given")
Result = TypeVar("Result")


def known_keywords(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """A function that answers a misspelled keyword with the right one, where Python would only refuse it.

    >>> @known_keywords
    ... def load(path, *, threads=0):
    ...     return path
    >>> load("net", thread=1)
    Traceback (most recent call last):
    membound.errors.MemboundError: load has no keyword 'thread': did you mean threads?
    """
    known = list(inspect.signature(function).parameters)

    @wraps(function)
    def checked(*given: Given.args, **named: Given.kwargs) -> Result:
        for name in named:
            if name not in known:
                near = get_close_matches(name, known, 1, cutoff=0.8)
                meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise MemboundError(f"{function.__name__} has no keyword {name!r}: {meant}")
        return function(*given, **named)

    return checked


def misfit(name: str, function: Callable[..., object], arguments: Sequence[str]) -> str | None:
    """What is wrong with a function that cannot be called with these arguments; None if nothing is, as far as one sees.

    >>> misfit("score", lambda w: w, ("name", "weight"))
    'score takes (w), and is called with (name, weight): write score(name, weight)'
    >>> misfit("score", lambda name, weight, power=1: weight, ("name", "weight"))
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a function that is not Python's
        return None
    try:
        signature.bind(*arguments)
    except TypeError:
        wanted = ", ".join(arguments)
        return f"{name} takes {signature}, and is called with ({wanted}): write {name}({wanted})"
    return None
