"""What numbers of a request must be."""

from collections.abc import Sequence

from membound.errors import MemboundError


def check_whole(name: str, value: object, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise MemboundError(f"{name}={value!r}: a whole number from {least} is needed", about=name)


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


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
