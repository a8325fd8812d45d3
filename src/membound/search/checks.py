"""What numbers of a request must be."""

import re
from collections.abc import Callable, Iterable, Sequence

from membound.errors import MemboundError
from membound.signatures import misfit
from membound.units import parse_bytes, plain_number

PART = r"(\d+(?:\.\d*)?|\.\d+)\s*%"


def check_whole(name: str, value: object, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise MemboundError(f"{name}={value!r}: a whole number from {least} is needed", about=name)


def check_called(name: str, function: Callable[..., object], arguments: Sequence[str]) -> None:
    """Refuse now a function that could not be called later with these arguments.

    >>> check_called("strategy", lambda w: w, ("name", "weight"))
    Traceback (most recent call last):
    membound.errors.MemboundError: strategy takes (w), and is called with (name, weight): write strategy(name, weight)
    """
    wrong = misfit(name, function, arguments)
    if wrong is not None:
        raise MemboundError(wrong, about=name)


def take_plain_(record: object, names: Iterable[str]) -> None:
    """Make numpy's numbers in these fields of a frozen record Python's, and floats that are whole ints."""
    for name in names:
        object.__setattr__(record, name, plain_number(getattr(record, name)))


def read_widths(given: str | Sequence[float]) -> tuple[float, ...]:
    """Factors, each once.

    >>> read_widths("1, 1.5,2")
    (1.0, 1.5, 2.0)
    """
    try:
        found = tuple(float(each) for each in (given.split(",") if isinstance(given, str) else given))
    except (TypeError, ValueError):
        found = ()
    if not found or len(set(found)) < len(found) or not all(0.01 <= each <= 100 for each in found):
        raise MemboundError(
            f"widths={given!r}: different factors from 0.01 to 100 are needed, such as 1,1.5,2",
            about="widths",
        )
    return found


def check_amounts(name: str, given: object) -> None:
    """Refuse a size that cannot be understood, before data is read.

    >>> check_amounts("budget", ["40 KiB", "10%", 4096])
    """
    if given is None:
        return
    for amount in given if isinstance(given, Sequence) and not isinstance(given, str) else [given]:
        if isinstance(amount, bool) or not isinstance(amount, str | int):
            raise MemboundError(
                f"{name}: {amount!r} is not understood: write '40 KiB', 40960 or '10%'", about=name
            )
        text = str(amount).strip()
        if (part := re.fullmatch(PART, text)) is not None:
            if not 0 < float(part[1]) <= 100:
                raise MemboundError(
                    f"{name}: {text} of the dense network: write more than 0% and at most 100%", about=name
                )
        elif name == "nonzeros":
            if not text.isdecimal():
                raise MemboundError(
                    f"{text!r} nonzeros: write a whole number, or a part of all such as '10%'", about=name
                )
        else:
            try:
                parse_bytes(text, "or a part of the dense network, as in '10%'")
            except MemboundError as error:
                raise MemboundError(f"{name}: {error}", about=name) from None


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
