"""What a person allows: bytes, a part of the dense file, memory, nonzeros; as numbers that can be held."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from membound.errors import MemboundError
from membound.search.problem import Problem
from membound.units import parse_bytes

Amount = str | int


@dataclass(frozen=True)
class Limit:
    """One budget: as it was written, and the number that it means."""

    text: str
    number: int

    @property
    def label(self) -> str:
        """The text as a part of file names.

        >>> Limit("40 KiB", 40960).label, Limit("12.5%", 100).label
        ('40KiB', '12.5pct')
        """
        return re.sub(r"[^A-Za-z0-9._-]", "", self.text.replace("%", "pct"))


def resolve_limits(problem: Problem, amounts: Sequence[Amount]) -> list[Limit]:
    """The limits that `amounts` mean for this problem; what cannot be met is refused before anything is trained."""
    if not amounts:
        raise MemboundError("there is no budget: say how large the network may be, such as '40 KiB' or '10%'")
    limits = [Limit(str(amount), _number(problem, amount)) for amount in amounts]
    if len({limit.number for limit in limits}) < len(limits):
        raise MemboundError(
            f"the budgets {', '.join(map(str, amounts))} are not all different: leave one out"
        )
    least = problem.least()
    for limit in limits:
        if limit.number < least:
            raise MemboundError(
                f"a budget of {limit.text} ({limit.number:,} {problem.target.unit}) cannot be met: with one weight in "
                f"each layer this network takes {least:,}; allow at least that"
            )
    return limits


def _number(problem: Problem, amount: Amount) -> int:
    if isinstance(amount, bool) or not isinstance(amount, str | int):
        raise MemboundError(f"a budget of {amount!r} is not understood: write '40 KiB', 40960 or '10%'")
    text = str(amount).strip()
    part = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*%", text)
    if part is None:
        if problem.target.kind == "nonzeros" and not text.isdecimal():
            raise MemboundError(f"{text!r} nonzeros: write a whole number, or a part of all such as '10%'")
        return parse_bytes(text)
    if not 0 < float(part[1]) <= 100:
        raise MemboundError(f"a budget of {text} of the dense network: write more than 0% and at most 100%")
    return int(float(part[1]) / 100 * problem.dense())
