"""Whether a function can be called as it will be."""

import inspect
from collections.abc import Callable, Sequence


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
