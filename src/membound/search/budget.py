"""What a person allows: bytes, a part of the dense file, memory, nonzeros; as numbers that can be held."""

import math
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from membound.errors import MemboundError
from membound.micro.cost import estimate
from membound.micro.tables import TABLE_BYTES, tables_of
from membound.micro.used import code_of, constants_of
from membound.report.device import NEARLY, Faster, find_faster, with_room
from membound.search.bits import WIDE
from membound.search.bounds import WHOLE, Amount, Average
from membound.search.checks import PART
from membound.search.ensemble import Ensemble
from membound.search.micro import MicroBytes, check_ram, flash_of, plan_whole
from membound.search.problem import AUTO, Problem, Target
from membound.store.values import value_type
from membound.train.evaluation import Score
from membound.units import CLOCK, LEVELS, parse_bytes, say_free, say_tables, show_clock, show_ms

FAST, NO_BOUND = LEVELS[-1], 10**12


@dataclass(frozen=True)
class Limit:
    """One budget: as it was written, and the number that it means."""

    text: str
    number: int
    key: str | None = None  # instead of the text in names of files, where a time is bounded and not a size

    @property
    def label(self) -> str:
        """The text, or its key, as a part of file names.

        >>> Limit("40 KiB", 40960).label, Limit("12.5%", 100).label
        ('40KiB', '12.5pct')
        """
        return re.sub(r"[^A-Za-z0-9._-]", "", (self.key or self.text).replace("%", "pct"))

    def show(self, unit: str = "bytes") -> str:
        """As it was written, and what that means where it is not the same.

        >>> Limit("100", 100).show(), Limit("2KB", 2000).show(), Limit("10%", 400).show("nonzeros")
        ('100 bytes', '2KB (2,000 bytes)', '10% (400 nonzeros)')
        """
        number = f"{self.number:,} {unit}"
        return number if self.text.replace(",", "") == str(self.number) else f"{self.text} ({number})"


def resolve_limits(problem: Problem, amounts: Sequence[Amount]) -> list[Limit]:
    """The limits that `amounts` mean for this problem."""
    if not amounts:
        raise MemboundError("there is no budget: say how large the network may be, such as '40 KiB' or '10%'")
    limits = [Limit(str(amount), _number(problem, amount)) for amount in amounts]
    if len({limit.number for limit in limits}) < len(limits):
        raise MemboundError(
            f"the budgets {', '.join(map(str, amounts))} are not all different: leave one out"
        )
    return limits


def with_memory(problem: Problem, limit: Limit, memory: Amount) -> Problem:
    """The problem under a second bound, on memory; what cannot be met is said as a pair."""
    if problem.target.micro:
        if "%" in str(memory):
            raise MemboundError(
                f"{memory} of RAM: a microcontroller's is bounded in bytes, such as 14KB", about="ram"
            )
        allowed = Limit(str(memory), _number(problem, memory))
        return problem.changed(target=replace(problem.target, memory=allowed.number, file_bytes=limit.number))
    ram = problem.changed(target=replace(problem.target, kind="ram"))
    allowed = resolve_limits(ram, [memory])[0]
    least = problem.least(), ram.least()
    if limit.number < least[0] or allowed.number < least[1]:
        raise MemboundError(
            f"a budget of {limit.show()} and a bound on memory of {allowed.show()} cannot be met: with one weight in "
            f"each layer, this network takes a file of {least[0]:,} bytes and {least[1]:,} bytes of memory; allow at "
            "least these two",
            about=("budget", "ram"),
        )
    return problem.changed(target=replace(problem.target, memory=allowed.number, file_bytes=limit.number))


def with_time(problem: Problem, limit: Limit, ms: float) -> Problem:
    """The problem under a bound on the time of one example on a microcontroller, as it is estimated."""
    target = problem.target
    cycles = int(ms / 1e3 * (CLOCK if target.clock is None else target.clock))
    return problem.changed(target=replace(target, cycles=cycles, file_bytes=limit.number))


def named_by_time(limit: Limit, ms: float) -> Limit:
    """Of a microcontroller: what is allowed where time alone is bounded, all weights' flash, says nothing to a person.

    >>> named_by_time(Limit("100%", 8876), 3.0), named_by_time(Limit("8KB", 8000), 3.0).text
    (Limit(text='in 3 ms', number=8876, key=None), '8KB')
    """
    return Limit(f"in {ms:g} ms", limit.number) if limit.text == WHOLE else limit


@dataclass
class Plan:
    """How one limit is met."""

    limit: Limit
    share: int  # of one member
    counts: dict[str, int] | None = None  # the proportions that were searched
    exact: bool = False  # these counts and no others, whatever the size
    start: str | None = None  # the job that the search ended with: the final network goes on from it
    found: str | None = None  # the job that trained such a network without the validation images
    estimate: Score | None = None  # on validation images, where no others can judge
    cut: float = 0.0  # the part of the weights that went after training, to meet the limit


def make_plans(
    problem: Problem, limits: Sequence[Limit], members: int, average: Average, seed: int
) -> list[Plan]:
    """What one member may take under each limit, so that all, in one file with one header, are within it.

    What cannot be met is refused, before anything is trained.
    """
    if problem.target.memory is not None and isinstance(problem.measure, MicroBytes):
        check_ram(problem.measure, problem.target.memory)
    least, overhead = problem.least(), 0
    if members > 1:
        ensemble = Ensemble([problem.make(seed + number) for number in range(members)], average)
        joint = problem.measure_of(ensemble, problem.files_of(ensemble)).dense()
        overhead = joint - members * problem.measure.dense()
    plans = [Plan(limit, (limit.number - overhead) // members) for limit in limits]
    for limit, share in ((plan.limit, plan.share) for plan in plans):
        if share < least:
            _check_time(problem, limit, least)
            each = "this network takes" if members == 1 else f"{members} such networks take"
            what = {"ram": "a bound on memory", "nonzeros": "a bound on nonzeros"}.get(
                problem.target.kind, "a budget"
            )
            asked = f"{what} of {limit.show(problem.target.unit)}"
            if limit.key is not None:
                asked = f"a latency {limit.show(problem.target.unit)}"
            slim = " or leave prefer out," if problem.target.prefer == "speed" else ""
            measure = problem.measure
            micro = isinstance(measure, MicroBytes)
            if micro and "%" in limit.text:
                asked += " of the flash that the dense network takes in 8 bits, code included"
            smaller = (
                ", or compile with Os, which takes less flash" if problem.target.level != LEVELS[0] else ""
            )
            allow, beside = "allow at least that", ""
            if isinstance(measure, MicroBytes):
                dense = flash_of(plan_whole(measure, problem.weights))
                if dense > least:  # or that of time, where flash and time are both beyond their bounds
                    beside = f", and dense in 8 bits {dense:,}: a usable one lies in between"
                    allow = "allow more"
            unit = (
                f"; did you mean {limit.text}KB{'' if micro else f' or {limit.text}%'}?"
                if _lacks_unit(limit, what)
                else ""
            )
            raise MemboundError(
                f"{asked} cannot be met: with one weight in each layer, {each} "
                f"{members * least + overhead:,}{_say_parts(problem, least)}{beside};{slim} "
                f"{allow}{smaller}{unit}",
                about=("budget", *(["compiled"] if smaller else [])) if micro else (),
            )
    return plans


def _say_parts(problem: Problem, least: int) -> str:
    """What a microcontroller's flash holds where nearly no weights are left: what else could be made smaller."""
    plan = problem.least_plan()
    if plan is None:
        return ""
    code, tables = code_of(plan, plan.level).nbytes, tables_of(plan.net.ops)
    if code + constants_of(plan, plan.level) != least:  # RAM or time binds
        return ""
    if not tables:
        return f" ({code:,} of them code)"
    taken = TABLE_BYTES * sum(tables.values())
    return f" ({code:,} of them code, {taken:,} {say_tables(tables)}: {say_free(tables)})"


def _lacks_unit(limit: Limit, what: str) -> bool:
    """Whether somebody who wrote 20 may have meant 20 KB: nobody asks for so few bytes."""
    return what == "a budget" and limit.text.isdecimal() and 0 < limit.number < 100


def _check_time(problem: Problem, limit: Limit, least: int) -> None:
    """Refuse a bound on time that a network cannot meet, where flash and RAM have room for it."""
    target = problem.target
    if target.timed is None or problem.changed(target=replace(target, cycles=None)).least() > limit.number:
        return
    budget, cycles = target.timed
    clock, fastest = (CLOCK if target.clock is None else target.clock), least * cycles / budget
    compiled = target if target.level == FAST else replace(target, compiled=FAST)
    faster = _least_cycles(problem, compiled)
    helps = compiled is not target and with_room(problem.changed(target=compiled).least()) <= limit.number
    other = f", or compile with O2, where the least is {show_ms(1e3 * faster / clock)}" if helps else ""
    measure = problem.measure
    assert isinstance(measure, MicroBytes)
    dense = estimate(plan_whole(measure, problem.weights), target.level).ms(clock)
    raise MemboundError(
        f"a latency of {show_ms(1e3 * cycles / clock)} at {show_clock(clock)} cannot be met: with one weight in each "
        f"layer this network takes {show_ms(1e3 * fastest / clock)}, and dense in 8 bits {show_ms(dense)}, as "
        f"estimated at {target.level}: a usable one lies in between; allow more, raise the clock (beyond "
        f"{show_clock(_round_up(clock * fastest / cycles))}), or take a narrower network{other}",
        about=("latency", "clock", "compiled") if helps else ("latency", "clock"),
    )


def _round_up(clock: float) -> float:
    """To whole MHz."""
    return math.ceil(clock / 1e6) * 1e6


def _least_cycles(problem: Problem, target: Target) -> float:
    """Of one weight in each layer: what is left where flash is no bound."""
    assert target.cycles is not None
    free = replace(target, memory=None, file_bytes=NO_BOUND)
    return problem.changed(target=free).least() * target.cycles / NO_BOUND


def describe_device(
    micro: Mapping[str, Any], limit: int, target: Target, time_alone: bool = False, no_errors: bool = False
) -> list[str]:
    """Said of a microcontroller: the time that is estimated, where it is bounded; else what is not used up.

    With `time_alone` nothing bounds flash: `limit` is that of all weights. With `no_errors` left nothing is better.

    >>> micro = {"ms": 49.875, "clock_hz": 80_000_000, "flash_bytes": 5000, "ram_bytes": 900}
    >>> describe_device(micro, 8000, Target(cycles=4_000_000))
    ['time: an estimated 49.9 ms of the 50 ms allowed for an example, at 80 MHz; flash takes 5,000 of 8,000 bytes']
    >>> print(*describe_device(micro, 8000, Target(cycles=4_000_000, compiled="-O2")))
    time: an estimated 49.9 ms of the 50 ms allowed for an example, at 80 MHz, compiled with -O2; flash takes 5,000 of \
8,000 bytes
    >>> micro |= {"at_O2": {"flash_bytes": 6700, "ms": 28.0}}
    >>> describe_device(micro, 8000, Target(cycles=4_000_000))[1]
    'time is the limiting bound, not flash: compiled with -O2 this network would take 28 ms and 6,700 of 8,000 bytes \
of flash, which leaves time and flash for more weights (compiled="O2")'
    >>> describe_device(micro, 6824, Target(cycles=4_000_000))[1]
    'time is the limiting bound, not flash: compiled with -O2 this network would take 28 ms and 6,700 bytes of flash, \
which leaves time for more weights if there is flash for them (compiled="O2", with a budget of 7.5KB or more)'
    >>> len(describe_device(micro, 5100, Target(cycles=4_000_000)))  # flash binds as well
    1
    """
    if target.cycles is None:
        sizes = micro["flash_bytes"], limit, micro["ram_bytes"], target.memory
        spare = [] if no_errors else describe_spare(*sizes)
        return [*spare, *_describe_smaller(micro, limit, target)]
    clock = micro["clock_hz"]
    allowed = 1e3 * target.cycles / clock
    said = [
        f"time: an estimated {show_ms(micro['ms'])} of the {show_ms(allowed)} allowed for an example, at "
        f"{show_clock(clock)}{'' if target.level == LEVELS[0] else f', compiled with {target.level}'}; "
        f"flash takes {micro['flash_bytes']:,}"
        f"{' bytes' if time_alone else f' of {limit:,} bytes'}"
    ]
    faster = find_faster(micro, None if time_alone else limit) if target.level == LEVELS[0] else None
    if faster and time_alone:
        said.append(
            f"compiled with -O2 this network would take {show_ms(faster.ms)} in {faster.flash_bytes:,} bytes of "
            f"flash, which leaves time for more weights ({faster.words})"
        )
    elif (
        faster
        and micro["ms"] >= NEARLY * allowed
        and (faster.budget is None or micro["flash_bytes"] < NEARLY * limit)
    ):
        said.append(_describe_faster(faster, limit))  # where flash does not bind as well
    return said if time_alone else [*said, *_describe_smaller(micro, limit, target)]


def _describe_faster(faster: Faster, limit: int) -> str:
    """What -O2 would give where time alone binds."""
    within, leaves = f" of {limit:,}", "time and flash for more weights"
    if faster.budget is not None:
        within, leaves = "", "time for more weights if there is flash for them"
    return (
        f"time is the limiting bound, not flash: compiled with -O2 this network would take {show_ms(faster.ms)} and "
        f"{faster.flash_bytes:,}{within} bytes of flash, which leaves {leaves} ({faster.words})"
    )


def _describe_smaller(micro: Mapping[str, Any], limit: int, target: Target) -> list[str]:
    """Where flash is the bound, and C is compiled for speed: what the other way would free.

    >>> micro = {"clock_hz": 80_000_000, "flash_bytes": 7900, "at_Os": {"flash_bytes": 6200, "ms": 49.0}}
    >>> print(*_describe_smaller(micro, 8000, Target(compiled="-O2")))
    flash is the limiting bound: compiled with -Os this network would take 6,200 of 8,000 bytes of flash, 1,700 less, \
and 49 ms, which leaves flash for more weights (compiled="Os")
    >>> _describe_smaller(micro, 8000, Target(compiled="-O2", cycles=3_000_000))
    []
    """
    small = micro.get("at_Os")
    if not small or target.level == LEVELS[0] or micro["flash_bytes"] < NEARLY * limit:
        return []
    if target.cycles is not None and small["ms"] > 1e3 * target.cycles / micro["clock_hz"]:
        return []
    saved = micro["flash_bytes"] - small["flash_bytes"]
    return [
        f"flash is the limiting bound: compiled with -Os this network would take {small['flash_bytes']:,} of {limit:,} "
        f"bytes of flash, {saved:,} less, and {show_ms(small['ms'])}, which leaves flash for more weights "
        '(compiled="Os")'
    ]


def describe_left_over(
    problem: Problem, plan: Plan, types: AbstractSet[str], about: Mapping[str, Any]
) -> list[str]:
    """Said of a budget that is not used up: what allows the whole network takes nothing away.

    `about` has bytes, parameters and layers of the network as it is stored.
    """
    file_bytes, memory_bytes = about["file_bytes"], about["memory_bytes"]
    target, allowed = problem.target, plan.limit.number
    whole = problem.plain_bytes if target.kind != "nonzeros" else problem.dense()
    binds = plan.share < whole
    if target.values not in (AUTO, target.base):  # few bits that were asked for
        whole = file_bytes
        codes = about["parameters"] * value_type(target.values).bits / 8  # of all weights
        binds = target.kind != "file" or plan.share < codes or NEARLY * plan.share < whole
    if target.micro:
        assert isinstance(problem.measure, MicroBytes)
        state, given = problem.measure.dense_state(), None if target.chooses else problem.types
        whole = replace(problem.measure, spare=None, timed=None)(state, given)
        binds = plan.share < problem.measure(state, given)  # with RAM and time, where these are bounded
    if not binds:
        return [
            f"the budget is larger than the whole network ({whole:,} {target.unit}), so no weights were removed"
        ]
    if target.kind != "file" or target.micro or file_bytes >= NEARLY * allowed:
        return []
    used = f"the file takes {file_bytes:,} of {allowed:,} bytes"
    if target.memory is not None:
        return [f"{used}: {_memory_binds(memory_bytes, target.memory)}"]
    if types == {WIDE}:
        return [f"{used}: it has all weights in 8 bits, and more bits seldom help (values f16 have 16)"]
    if types:
        why = "weights that training rounded to zero take less than was planned for them"
    elif any(layer["size"] < layer["original_size"] for layer in about["layers"]):
        return [
            f"{used}: channels that died in training are left out, with all weights around them; a lower learning rate "
            "may keep more of them"
        ]
    else:
        why = "the weights that are left take less than was planned for them"
    more = allowed * allowed // file_bytes
    return [f"{used}: {why}; a budget of {more:,} bytes would give a file of about {allowed:,}"]


def _memory_binds(used: int, allowed: int) -> str:
    """Why a file is smaller than its budget, where memory is bounded, too.

    >>> _memory_binds(98_000, 100_000)
    'the bound on memory allows no more (98,000 of 100,000 bytes)'
    >>> _memory_binds(73_000, 100_000)
    'memory grows in steps, and the next one is beyond its bound (73,000 of 100,000 bytes are used)'
    """
    if used >= NEARLY * allowed:
        return f"the bound on memory allows no more ({used:,} of {allowed:,} bytes)"
    return f"memory grows in steps, and the next one is beyond its bound ({used:,} of {allowed:,} bytes are used)"


def describe_spare(size: int, limit: int, ram: int | None, memory: int | None) -> list[str]:
    """Said where less than half of what is allowed is used: a larger network might be better.

    >>> describe_spare(4000, 10000, 900, 1000)
    ['4,000 of 10,000 bytes are used, less than half: a wider network may be more accurate \
(widths=[1, 1.5, 2], if its function takes a width)']
    >>> describe_spare(9000, 10000, 900, 1000), describe_spare(9000, 10000, 400, None)
    ([], [])
    """
    more = "less than half: a wider network may be more accurate (widths=[1, 1.5, 2], if its function takes a width)"
    found = [f"{size:,} of {limit:,} bytes are used, {more}"] if 2 * size < limit else []
    if ram is not None and memory is not None and 2 * ram < memory:
        found.append(f"{ram:,} of {memory:,} bytes of RAM are used, {more}")
    return found


def _number(problem: Problem, amount: Amount) -> int:
    """What an amount means for this problem; a request has checked how it is written."""
    part = re.fullmatch(PART, str(amount).strip())
    if part is None:
        return parse_bytes(amount)
    return int(float(part[1]) / 100 * problem.dense())
