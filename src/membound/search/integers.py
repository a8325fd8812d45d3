"""Convolutions in 8-bit integers: how good files are with them, and whether they meet a bound with every weight."""

from collections.abc import Sequence
from dataclasses import replace

from membound.errors import ModelError
from membound.report.engines import gains_by_integers
from membound.run.net import Net, in_integers
from membound.search import timing
from membound.search.bits import WIDE
from membound.search.bounds import WHOLE, Bound
from membound.search.budget import Limit
from membound.search.deployed import Fitted
from membound.search.measure import deployed_bytes
from membound.search.problem import Problem
from membound.search.scoring import score_stored
from membound.store.model import StoredModel
from membound.train.parallel import World


def with_integers_judged(results: Sequence[Fitted], problem: Problem, world: World) -> list[Fitted]:
    """The same with the accuracy of the engine int8 beside its latency, where it gains, by the images that judged."""
    data = problem.data
    split = data.given if data.test is None else data.test
    if split is None:
        return list(results)

    def judge(found: Fitted) -> Fitted:
        if not gains_by_integers(found.facts):
            return found
        stored = found.files.stored(found.model.state_dict())
        score = world.from_leader(lambda: score_stored(stored, split, problem, "int8"))
        judged = {**found.facts["engine_int8"], "accuracy": score.known, "errors": score.errors}
        return replace(found, facts={**found.facts, "engine_int8": judged})

    return [judge(found) for found in results]


def whole_in_8_bits(problem: Problem) -> StoredModel | None:
    """The network with every weight, in 8 bits, before it is trained; None where 8 bits cannot hold it."""
    files = replace(problem.files, values=WIDE, types={})
    try:
        return files.stored(files.dense_state())
    except ModelError:
        return None


def time_whole(problem: Problem, threads: int) -> dict[str, float] | None:
    """The milliseconds of the whole network in the engine int8, and its bytes; None where that computes no layer."""
    stored = whole_in_8_bits(problem)
    net = None if stored is None else in_integers(Net(stored, threads=1), threads)
    if stored is None or net is None:
        return None
    return {"ms": timing.measure([net])[0].ms, "bytes": stored.file_bytes}


def note_time(whole: dict[str, float] | None, ms: float, limit: Limit) -> list[str]:
    """Said where a bound on latency takes weights away that the engine int8 has time for; `limit` is of the file.

    >>> print(*note_time({"ms": 0.01634, "bytes": 34_012}, 0.02, Limit("100%", 130_000)))
    in 8-bit integers the whole network takes 0.0163 ms, within the bound: with a budget of 35KB instead of the bound \
on latency, and the engine int8, no weight has to go
    >>> note_time({"ms": 0.03, "bytes": 34_012}, 0.02, Limit("100%", 130_000)), note_time(None, 1, Limit("1", 1))
    ([], [])
    """
    if whole is None or whole["ms"] > ms or whole["bytes"] > limit.number:
        return []
    instead = (
        _instead(int(whole["bytes"]), "latency") if limit.text == WHOLE else "without the bound on latency"
    )
    return [_note(f"{whole['ms']:.3g} ms", instead)]


def note_memory(problem: Problem, bound: Bound, limits: Sequence[Limit]) -> list[str]:
    """Said before training where a bound on memory takes weights away that the engine int8 has memory for."""
    target = problem.target
    memory = target.memory if target.spare is not None else None
    if target.micro or bound.members > 1 or (target.kind != "ram" and memory is None):
        return []
    stored = whole_in_8_bits(problem)
    if stored is None:
        return []
    floats, integers = (
        deployed_bytes(stored, target.batch, target.isa, engine=engine) for engine in ("float", "int8")
    )
    allowed = [limit.number for limit in limits] if memory is None else [memory]
    if not any(integers <= number < floats for number in allowed):
        return []
    if memory is None:
        return [_note(f"{integers:,} bytes of memory", _instead(stored.file_bytes, "memory"))]
    if stored.file_bytes > limits[0].number:
        return []
    return [_note(f"{integers:,} bytes of memory", "without the bound on memory")]


def _instead(file_bytes: int, of: str) -> str:
    """What to ask for where no budget is given: one that surely has room for the trained file as well."""
    return f"with a budget of {file_bytes // 1000 + 1}KB instead of the bound on {of}"


def _note(taken: str, instead: str) -> str:
    return (
        f"in 8-bit integers the whole network takes {taken}, within the bound: {instead}, and the engine int8, no "
        "weight has to go"
    )
