"""What numbers of a request must be."""

import re
from collections.abc import Callable, Iterable, Sequence

from membound.errors import MemboundError, shown
from membound.signatures import misfit
from membound.store.rules import is_name
from membound.units import of_python, parse_bytes, plain_number

LEAST_FILE = 128  # bytes: the shortest header of a network; it ends at a multiple of 64
PART = r"(\d+(?:\.\d*)?|\.\d+)\s*%"


def check_whole(name: str, value: object, least: int = 1, most: int | None = None) -> None:
    """
    >>> check_whole("seeds", 101, most=100)
    Traceback (most recent call last):
    membound.errors.MemboundError: seeds=101: a whole number from 1 to 100 is needed
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
    if not is_whole or (most is not None and value > most):  # type: ignore[operator]
        to = "" if most is None else f" to {most:,}"
        raise MemboundError(f"{name}={shown(value)}: a whole number from {least}{to} is needed", about=name)


def check_flags(record: object, names: Iterable[str]) -> None:
    """Of fields that are either: another value would count as true, even 'no'."""
    for name in names:
        if not isinstance(value := getattr(record, name), bool):
            raise MemboundError(f"{name}={shown(value)}: True or False is needed", about=name)


def check_part(name: str, value: object) -> None:
    """Of some images: a count, or a fraction of them.

    >>> check_part("validation", 0.1), check_part("validation", 500)
    (None, None)
    >>> check_part("validation", 2.0)
    Traceback (most recent call last):
    membound.errors.MemboundError: validation=2.0: a fraction between 0 and 1, or a whole number from 1, is needed
    """
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not is_count and not (isinstance(value, float) and 0 < value < 1):
        raise MemboundError(
            f"{name}={shown(value)}: a fraction between 0 and 1, or a whole number from 1, is needed",
            about=name,
        )


def read_classes(given: object) -> tuple[str, ...]:
    """The names of classes, in the order of their numbers.

    >>> read_classes(["cat", "dog"])
    ('cat', 'dog')
    >>> read_classes("ab")
    Traceback (most recent call last):
    membound.errors.MemboundError: classes='ab': a list of different names is needed, one for each class, such as \
['cat', 'dog']
    """
    plain = of_python(given)
    names = tuple(plain) if isinstance(plain, Sequence) and not isinstance(plain, str | bytes) else ()
    if not names or not all(map(is_name, names)) or len(set(names)) < len(names):
        raise MemboundError(
            f"classes={shown(given)}: a list of different names is needed, one for each class, such as ['cat', 'dog']",
            about="classes",
        )
    return names


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


def check_amounts(name: str, given: object, micro: bool = False) -> None:
    """Refuse a size that cannot be understood, before data is read. A microcontroller's RAM is no part of dense's.

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
                parts = "" if micro and name == "ram" else "or a part of the dense network, as in '10%'"
                number = parse_bytes(text, parts, small=micro)
            except MemboundError as error:
                raise MemboundError(f"{name}: {error}", about=name) from None
            if not micro:
                _check_room(name, text, number)


def _check_room(name: str, text: str, number: int) -> None:
    """What no file fits into is refused here, before torch loads and a network is counted.

    >>> _check_room("budget", "0.1 KB", 100)
    Traceback (most recent call last):
    membound.errors.MemboundError: budget 0.1 KB cannot be met: no network takes less than 128 bytes; allow more
    """
    if number >= LEAST_FILE:
        return
    plain = text.isdecimal() and number > 0
    do = f"did you mean {text}KB{f' or {text}%' if number < 100 else ''}?" if plain else "allow more"
    shown = f"a budget of {text} bytes" if name == "budget" else f"a bound on memory of {text} bytes"
    raise MemboundError(
        f"{shown if text.isdecimal() else f'{name} {text}'} cannot be met: no network takes less than {LEAST_FILE} "
        f"bytes; {do}",
        about=name,
    )


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
