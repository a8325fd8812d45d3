"""What is bounded: bytes of a file, memory, time, nonzeros, or the flash and RAM of a microcontroller."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from membound.errors import MemboundError, check_path_like
from membound.search.checks import check_amounts, check_whole, is_number, take_plain_
from membound.search.option import Option
from membound.units import LEVELS, parse_clock, parse_latency, parse_level

if TYPE_CHECKING:
    from membound.search.stages import Stages

Amount = str | int
Several = Sequence[Amount]
Average = Literal["scores", "probabilities"]
KINDS = {"budget": "file", "ram": "ram", "nonzeros": "nonzeros", "within": "file", "stages": "file"}
VALUES = ("auto", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "f16", "f32")
ISAS = ("avx512", "avx2", "neon", "scalar", "every")
TARGETS = ("cpu", "micro")
ACTIVATIONS = ("trained", "calibrated")
WHOLE = "100%"  # the budget of a bound on latency alone
MICRO_BOUNDS = (
    "the target micro takes a budget (of flash, such as 20KB), a latency (such as 50ms), or both, and ram (such as "
    "4KB) beside them"
)
Prefer = Literal["bytes", "speed"]
PREFER = get_args(Prefer)


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What is bounded, and how it is counted: one bound, or `budget` together with `ram` or `latency`.

    >>> Bound(budget=["40 KiB", 20480]).kind, Bound(budget=["40 KiB", 20480]).amounts
    ('file', ('40 KiB', 20480))
    """

    budget: Annotated[
        Amount | Several | None,
        Option(
            "Maximum size of the file, such as 20KiB or 10% of dense (for the target micro: of flash); repeatable.",
            "SIZE",
            list[str],
        ),
    ] = None
    ram: Annotated[
        Amount | Several | None,
        Option(
            "Maximum memory at run time, alone or with a budget (for the target micro: RAM, with a budget or latency); "
            "repeatable.",
            "SIZE",
            list[str],
        ),
    ] = None
    nonzeros: Annotated[
        Amount | Several | None,
        Option("Most parameters that are not zero, such as 4000 or 10%; repeatable.", "N", list[str]),
    ] = None
    within: Annotated[
        float | None, Option("Find the smallest file within this many points of dense.", "POINTS", float)
    ] = None
    stages: Annotated[
        "Stages | str | Path | None",
        Option("Tighten layers stage by stage, as this TOML file says.", "FILE", Path),
    ] = None
    latency: Annotated[
        str | float | None,
        Option(
            "Maximum time per input, such as 5ms, alone or with a budget: measured here (for the target micro: "
            "estimated).",
            "TIME",
        ),
    ] = None
    clock: Annotated[
        str | float | None,
        Option("For the target micro: the clock that times are estimated at (default: 80MHz).", "FREQUENCY"),
    ] = None
    compiled: Annotated[
        str,
        Option(
            "For the target micro: the level that C is compiled at, Os (default) or O2 (faster, more flash); flash and "
            "time are counted at this level.",
            "HOW",
            words=("Os", "O2"),
        ),
    ] = "Os"
    threads: Annotated[int, Option("Threads for a bound on latency (default: 1).", "N", int, least=1)] = 1
    batch: Annotated[
        int, Option("Images run at once, for a memory bound (default: 1).", "N", int, least=1)
    ] = 1
    isa: Annotated[
        str,
        Option(
            "Make a memory bound hold for this instruction set only: avx512, avx2, neon or scalar.",
            "NAME",
            words=ISAS,
        ),
    ] = "every"
    values: Annotated[
        str,
        Option(
            "How values are stored: p1 to p8 (bits), f16, f32, or auto (default: bits chosen per layer).",
            "TYPE",
            words=VALUES,
        ),
    ] = "auto"
    prefer: Annotated[
        Prefer,
        Option(
            "What formats are chosen for: bytes (default), or speed, which leaves room for fewer weights.",
            "WHAT",
            words=PREFER,
        ),
    ] = "bytes"
    members: Annotated[
        int,
        Option("Networks in an ensemble that share the bound (default: 1).", "N", int, least=1, most=64),
    ] = 1
    average: Annotated[
        Average,
        Option(
            "What an ensemble averages: scores (default) or probabilities.",
            "WHAT",
            words=get_args(Average),
        ),
    ] = "scores"
    target: Annotated[
        str,
        Option(
            "Where it will run: cpu (default), or micro, a microcontroller, whose flash the budget bounds.",
            "NAME",
            words=TARGETS,
        ),
    ] = "cpu"
    activations: Annotated[
        str,
        Option(
            "For the target micro: int8 activations are trained (default), or only calibrated afterwards.",
            "HOW",
            words=ACTIVATIONS,
        ),
    ] = "trained"

    def __post_init__(self) -> None:
        take_plain_(
            self, ("budget", "ram", "nonzeros", "within", "latency", "clock", "threads", "batch", "members")
        )
        if self.is_micro:
            self._refuse_other_bounds()
        if self.latency is not None:
            parse_latency(self.latency)  # what cannot be read is said here
            self._check_latency()
        check_whole("threads", self.threads)
        for name in ("budget", "ram", "nonzeros"):
            check_amounts(name, getattr(self, name), self.is_micro)
        self.clock_hz, self.level  # noqa: B018 (what cannot be read is said here)
        given = [name for name in KINDS if getattr(self, name) is not None]
        if given == ["budget", "ram"]:
            self._check_pair()
        elif len(given) != 1:
            found = f"got {' and '.join(given)}" if given else "got none"
            if self.is_micro and not given:
                raise MemboundError(f"{MICRO_BOUNDS}: got none", about=("budget", "latency", "ram"))
            kinds = (*KINDS, "latency")
            raise MemboundError(
                f"give one bound ({', '.join(kinds)}), such as a budget of 20KiB: {found}",
                about=given or kinds,
            )
        check_whole("batch", self.batch)
        points = self.within
        if points is not None and not (is_number(points) and 0 <= points < 100):
            raise MemboundError(
                f"within={points!r}: write how many points below dense are allowed, such as 0.5",
                about="within",
            )
        if self.values not in VALUES:
            few = re.fullmatch(r"u?i(?:nt)?([1-8])", str(self.values).lower())
            bits = f" ({few[1]} bits are p{few[1]})" if few else ""
            raise MemboundError(
                f"there are no values {self.values!r}: choose auto, p1 to p8, f16 or f32{bits}",
                about="values",
            )
        self._check_prefer()
        if self.stages is not None and not hasattr(
            self.stages, "resolve"
        ):  # a Stages, whose module imports torch
            check_path_like(self.stages, "stages")
        count = self.members
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 64:
            raise MemboundError(f"members={count!r}: an ensemble has 1 to 64 networks", about="members")
        if self.average not in get_args(Average):
            raise MemboundError(
                f"there is no average of {self.average!r}: take 'scores' or 'probabilities'", about="average"
            )
        if self.target not in TARGETS:
            raise MemboundError(
                f"there is no target {self.target!r}: choose cpu, or micro for any microcontroller",
                about="target",
            )
        if self.activations not in ACTIVATIONS:
            raise MemboundError(
                f"there are no activations {self.activations!r}: choose {' or '.join(ACTIVATIONS)}",
                about="activations",
            )
        if self.is_micro:
            self._check_micro()
        elif self.clock is not None:
            raise MemboundError(
                "a clock is for the target micro: on this machine, latency is measured; leave it out",
                about="clock",
            )
        elif self.level != LEVELS[0]:
            raise MemboundError(
                "compiled says how C is compiled for the target micro: leave it out, or choose that",
                about="compiled",
            )
        elif self.activations != "trained":
            raise MemboundError(
                "activations are int8 on the target micro only: leave this out, or choose that",
                about="activations",
            )

    def _refuse_other_bounds(self) -> None:
        """First of all: what is said of bounds elsewhere would lead to others that a microcontroller does not have."""
        others = [name for name in ("nonzeros", "within", "stages") if getattr(self, name) is not None]
        if others:
            raise MemboundError(
                f"{MICRO_BOUNDS}: leave {' and '.join(others)} out",
                about=("budget", "latency", "ram", *others),
            )

    def _check_latency(self) -> None:
        """It goes with one budget; alone, any file that is fast enough will do."""
        beside = ("budget", "ram") if self.is_micro else ("budget",)
        if others := [name for name in KINDS if name not in beside and getattr(self, name) is not None]:
            named = " and ".join(others)
            do = "leave one out; a budget may stay" if others == ["ram"] else f"leave {named} out"
            raise MemboundError(f"latency cannot be combined with {named}: {do}", about=("latency", *others))
        if self.members > 1:
            raise MemboundError(
                "latency and members do not go together, since the time of one network is bounded: leave one out",
                about=("latency", "members"),
            )
        if self.budget is None:
            object.__setattr__(self, "budget", WHOLE)
        elif self._has_several:
            raise MemboundError(
                f"latency goes with one budget, and there are {len(self.amounts)}: give budget once, and run fit once "
                "for each",
                about=("latency", "budget"),
            )

    def _check_prefer(self) -> None:
        """Formats for speed take more bytes, which must be somebody's wish."""
        if self.prefer not in PREFER:
            raise MemboundError(
                f"there is no preference {self.prefer!r}: choose {' or '.join(PREFER)}", about="prefer"
            )
        if self.prefer == "bytes":
            return
        if self.within is not None:
            raise MemboundError(
                "within looks for the smallest file, and formats for speed are not the smallest: leave prefer out, "
                "or give a budget",
                about=("prefer", "within"),
            )
        if self.is_micro:
            raise MemboundError(
                "the target micro has formats of its own, in exported C: leave prefer out", about="prefer"
            )

    def _check_pair(self) -> None:
        for name in ("budget", "ram"):
            amounts = getattr(self, name)
            if isinstance(amounts, Sequence) and not isinstance(amounts, str):
                if len(amounts) != 1:
                    raise MemboundError(
                        "several bounds do not pair up: give budget and ram once each, and run fit once for each "
                        "pair",
                        about=("budget", "ram"),
                    )
                if name == "ram":
                    object.__setattr__(self, name, amounts[0])

    def _check_micro(self) -> None:
        """On a microcontroller one network of integers runs on one input."""
        if self.budget is None:
            raise MemboundError(
                f"{MICRO_BOUNDS}: got {self.name} alone", about=("budget", "latency", self.name)
            )
        if not self.values.startswith(("auto", "p")):
            raise MemboundError(
                f"a microcontroller computes in integers, not in {self.values}: choose auto or p1 to p8",
                about="values",
            )
        for name, usual in (("members", 1), ("batch", 1), ("threads", 1), ("isa", "every")):
            if getattr(self, name) != usual:
                raise MemboundError(
                    f"the target micro runs one network on one input: leave {name} out", about=name
                )

    @property
    def _has_several(self) -> bool:
        return self.is_list and len(self.amounts) != 1

    @property
    def is_time_alone(self) -> bool:
        """Whether a time is bounded and no size: the budget is that of all weights."""
        return self.latency is not None and self.budget == WHOLE

    @property
    def clock_hz(self) -> float | None:
        """The clock of a microcontroller, where one was given."""
        return None if self.clock is None else parse_clock(self.clock)

    @property
    def level(self) -> str:
        """How C is compiled for a microcontroller: -Os or -O2."""
        return parse_level(self.compiled)

    @property
    def is_micro(self) -> bool:
        return self.target == "micro"

    @property
    def memory(self) -> Amount | None:
        """The bound on memory, where there is one beside that of the file."""
        return self.ram if self.budget is not None and isinstance(self.ram, str | int) else None

    @property
    def name(self) -> str:
        """Which of the ways to bound is taken."""
        return next(name for name in KINDS if getattr(self, name) is not None)

    @property
    def kind(self) -> str:
        """What is counted: the bytes of the file, those of memory, or nonzeros."""
        return KINDS[self.name]

    @property
    def searches(self) -> bool:
        """Whether the size itself is searched."""
        return self.name in ("within", "stages")

    @property
    def amounts(self) -> tuple[Amount, ...]:
        """How much is allowed, once or several times; `within` and `stages` allow what they find."""
        if self.searches:
            return ()
        given = getattr(self, self.name)
        return tuple(given) if self.is_list else (given,)

    @property
    def is_list(self) -> bool:
        """Whether a list of results is wanted."""
        given = getattr(self, self.name)
        return isinstance(given, Sequence) and not isinstance(given, str)

    @property
    def may_widen(self) -> bool:
        """Whether values may become f32 where f16 is not enough."""
        return self.values == "auto" and not self.is_micro
