"""Wording that the zoo's errors share."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(found: str, allowed: Iterable[str]) -> str | None:
    """The name that may have been meant."""
    return next(iter(get_close_matches(found, list(allowed), n=1, cutoff=0.6)), None)


def choices(found: str, allowed: Iterable[str], limit: int = 12) -> str:
    """What may stand in place of `found`: the closest name as a question, then a list.

    >>> choices("lenett", ["lenet", "alexnet"])
    "did you mean 'lenet'? there are: lenet, alexnet"
    """
    names = list(allowed)
    close = nearest(found, names)
    question = "" if close is None else f"did you mean {close!r}? "
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{question}there are: {', '.join(names[:limit]) or 'none'}{rest}"
