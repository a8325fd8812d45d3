"""What is compared: facts of fits in memory, or JSON that other processes saved, by their seeds."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from membound.errors import MemboundError, a_kind
from membound.report.alike import say_other_tests
from membound.report.text import find_number, find_part

Facts = Mapping[str, Any]
WANTED = "give what fitted.to_dict() gives, or membound fit --json prints: the dict, or the path of its file"


def read_records(side: Any) -> list[Facts]:
    given = list(side) if isinstance(side, Sequence) and not isinstance(side, str | bytes) else [side]
    if not given:
        raise MemboundError(f"there is no record to compare, the list is empty: {WANTED}")
    return [facts for each in given for facts in _read(each)]


def _read(record: Any) -> list[Facts]:
    """The facts of a record's networks; a file may hold a list."""
    if isinstance(record, str | os.PathLike):
        try:
            return [facts for each in _load(Path(record)) for facts in _read(each)]
        except MemboundError as error:
            raise MemboundError(f"{record}: {error}") from None
    if hasattr(record, "to_dict"):  # a Fitted
        record = record.to_dict()
    if not isinstance(record, Mapping):
        raise MemboundError(f"a comparison is of what fit gives, not of {a_kind(record)}: {WANTED}")
    if "facts" in record:
        judged = {name: record.get(name) for name in ("limit", "accuracy", "accuracy_on", "errors", "images")}
        return [_checked({**find_part(record, "facts"), **judged})]
    if "finals" in record:
        finals = list(record["finals"])
        if len(finals) != 1:
            raise MemboundError(
                f"this record has {len(finals)} networks: give the one of its 'finals' to compare, "
                "json.load(file)['finals'][0]"
            )
        return _read(finals[0])
    if "accuracy" not in record or "asked" not in record:
        raise MemboundError(f"this dict is not the record of a fit: {WANTED}")
    return [_checked(record)]


def _checked(facts: Facts) -> Facts:
    """Facts whose scores can be paired by seed. A file that was edited or cut would else lose a seed without a word."""
    if facts.get("seeds") is None:
        return facts
    seeds = find_part(facts, "seeds")
    numbers, scores = (seeds.get(name) for name in ("seeds", "accuracies"))
    if (
        not isinstance(numbers, list)
        or not isinstance(scores, list)
        or len(numbers) != len(scores)
        or not all(isinstance(each, int) for each in numbers)
        or not all(each is None or isinstance(each, int | float) for each in scores)
    ):
        raise MemboundError(
            "this record is damaged: its facts['seeds'] has not a number in 'accuracies' for each of its 'seeds'; run "
            "the fit again, or save its record anew"
        )
    return facts


def _load(path: Path) -> list[Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MemboundError(f"it cannot be read ({error.strerror}): {WANTED}") from None
    except ValueError:
        raise MemboundError(f"it is not JSON: {WANTED}") from None
    if not isinstance(found, dict | list):
        raise MemboundError(f"it holds {a_kind(found)}, not the record of a fit: {WANTED}")
    return found if isinstance(found, list) else [found]


def records_by_seed(records: Sequence[Facts]) -> dict[int, Facts]:
    """Which record says how good each seed is; all must be of one method, judged alike."""
    found: dict[int, Facts] = {}
    for record in records:
        if shown := say_other_tests(records[0], record):
            raise MemboundError(
                f"the records of one side were judged on {shown}: compare those of one test_data"
            )
        names = [_strategy(each) for each in (records[0], record)]
        sources = [find_part(each, "asked").get("strategy_source") for each in (records[0], record)]
        same_source = (
            sources[0] is not None and sources[0] == sources[1]
        )  # a lambda's name is its line, which moves
        if names[0] != names[1] and not same_source:
            raise MemboundError(
                f"the records of one side are of the strategies {' and '.join(names)}: give a list for each"
            )
        for seed in score_by_seed(record):
            if seed in found:
                raise MemboundError(f"seed {seed} is in two records of one side: give each seed once")
            found[seed] = record
    if not found:
        raise MemboundError("no seed of these records was judged: give the fits test_data")
    return found


def _strategy(record: Facts) -> str:
    asked = find_part(record, "asked")
    source = asked.get("strategy_source")
    return f"{asked.get('strategy')}{'' if source is None else f' ({source})'}"


def join_records(side: Mapping[int, Facts]) -> Facts:
    """The records of one method as one, of several seeds."""
    first = next(iter(side.values()))
    if all(record is first for record in side.values()):
        return first
    judged = [judged_with(record, seed) for seed, record in side.items()]
    seeds = {
        "seeds": list(side),
        "accuracies": [score_by_seed(record)[seed] for seed, record in side.items()],
        **{name: [each.get(name) for each in judged] for name in ("errors", "wrong")},
    }
    return {**first, "seeds": seeds}


def score_by_seed(net: Facts) -> dict[int, float]:
    """The score of each seed; of a network that was trained once, that of its own."""
    seeds = find_part(net, "seeds")
    if not seeds:
        value = find_number(net, "accuracy")
        return {} if value is None else {_first_seed(net): value}
    pairs = zip(seeds.get("seeds") or (), seeds.get("accuracies") or (), strict=False)
    return {int(seed): value for seed, each in pairs if (value := find_number({"": each}, "")) is not None}


def judged_with(net: Facts, seed: int) -> Facts:
    """How many images the network of one seed gets wrong, and which; of seeds but the first, older records say none."""
    seeds = find_part(net, "seeds")
    if not seeds or "errors" not in seeds:
        return net if _first_seed(net) == seed else {}
    index = list(seeds["seeds"]).index(seed)
    return {"images": net.get("images")} | {name: seeds[name][index] for name in ("errors", "wrong")}


def _first_seed(net: Facts) -> int:
    """That of the network itself, whose errors are counted."""
    seeds = find_part(net, "seeds").get("seeds")
    if seeds:
        return int(seeds[0])
    return int(find_number(find_part(net, "asked"), "seed") or 0)
