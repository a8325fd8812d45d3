"""Whether a function can be called as it is, or as it will be."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

from membound.errors import CLOSE, MemboundError

Given = ParamSpec("Given")
Result = TypeVar("Result")
MORE = "more, which Python's help() lists"
MOST_LISTED, LISTED = 7, 5  # names, all of them or the first


def meant(name: str, known: Sequence[str], otherwise: str | None = None, more: str = "more") -> str:
    """The name that was meant; where none is close `otherwise`, or the first of those there are, and `more`.

    >>> meant("stpes", ["steps", "seed"]), meant("depth", ["steps", "seed"])
    ('did you mean steps?', 'there are steps, seed')
    >>> meant("num_steps", ["steps", "seed"])
    'did you mean steps?'
    >>> meant("depth", list("abcdefgh"), more="more: help(membound.fit)")
    'there are a, b, c, d, e and 3 more: help(membound.fit)'
    """
    near = get_close_matches(name.lower(), known, 1, cutoff=CLOSE)
    near = near or [each for each in known if each in name.lower().split("_")]
    if near:
        return f"did you mean {near[0]}?"
    if otherwise or len(known) <= MOST_LISTED:
        return otherwise or f"there are {', '.join(known)}"
    return f"there are {', '.join(known[:LISTED])} and {len(known) - LISTED} {more}"


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
        _refuse_unknown(function.__name__, named, known)
        return function(*given, **named)

    return checked


def known_fields(kind: type[Result]) -> type[Result]:
    """The same of a dataclass.

    >>> from dataclasses import dataclass
    >>> @known_fields
    ... @dataclass
    ... class Move:
    ...     shift: int = 0
    >>> Move(shfit=2)
    Traceback (most recent call last):
    membound.errors.MemboundError: Move has no keyword 'shfit': did you mean shift?
    """
    make = kind.__init__
    known = list(inspect.signature(kind).parameters)

    @wraps(make)
    def checked(self: Result, *given: object, **named: object) -> None:
        _refuse_unknown(kind.__name__, named, known)
        make(self, *given, **named)

    kind.__init__ = checked  # type: ignore[method-assign, assignment]
    return kind


def show_fields_(function: Callable[..., object], records: Sequence[type]) -> None:
    """Let help(), notebooks and shells show the fields of records, with defaults, in the place of **keywords.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Move:
    ...     shift: int = 0
    >>> def go(net, **more): ...
    >>> show_fields_(go, [Move])
    >>> print(inspect.signature(go))
    (net, *, shift=0)
    """
    told = inspect.signature(function)
    own = [
        each.replace(annotation=each.empty)
        for each in told.parameters.values()
        if each.kind != each.VAR_KEYWORD
    ]
    names = {each.name for each in own}
    more = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default)
        for record in records
        for each in fields(record)
        if each.name not in names
    ]
    function.__signature__ = told.replace(parameters=[*own, *more])  # type: ignore[attr-defined]


def _refuse_unknown(what: str, named: Iterable[str], known: Sequence[str]) -> None:
    for name in named:
        if name not in known:
            raise MemboundError(f"{what} has no keyword {name!r}: {meant(name, known, more=MORE)}")


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
