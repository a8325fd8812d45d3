"""A fit over several seeds: the network of the first, and how much of its accuracy is chance."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from membound.data.augment import Augment
from membound.search.bounds import Bound
from membound.search.deployed import Fitted
from membound.search.place import Place, Watch
from membound.search.progress import watch_of
from membound.search.request import Choices, Examples
from membound.train.fingerprints import source_digest
from membound.zoo.networks import ZOO, build_for, find

Once = Callable[[Choices, Place], list[Fitted]]


def fit_seeds(once: Once, call: str, bound: Bound, choices: Choices, place: Place) -> list[Fitted]:
    """What `once` gives for the first seed, with the spread over all of them and what was asked for among its facts.

    No seed is chosen: the one with the best accuracy on test images would only be the luckiest.
    """
    begun = time.monotonic()
    runs = [once(mine, where) for mine, where in _each(choices, place)]
    asked = {
        "call": call,
        "seed": choices.seed,
        "strategy": choices.strategy_name,
        "strategy_source": source_digest(choices.strategy) if callable(choices.strategy) else None,
        "kind": bound.kind,
        "values": bound.values,
        "seconds": time.monotonic() - begun,  # of the whole call
    }
    first = [replace(found, facts={**found.facts, "asked": asked}) for found in runs[0]]
    if len(runs) < 2:
        return first
    seeds = [choices.seed + number for number in range(choices.seeds)]
    return [_told(found, [run[index] for run in runs], seeds) for index, found in enumerate(first)]


def _each(choices: Choices, place: Place) -> Iterator[tuple[Choices, Place]]:
    """What every seed is fitted by, and where; a run directory has a folder for each."""
    watch = watch_of(place, choices)
    watch = replace(watch, warn=_once(watch.warn), note=_once(watch.note))  # what holds of all seeds
    for number in range(choices.seeds):
        mine, where = replace(choices, seed=choices.seed + number, seeds=1), place
        if choices.seeds > 1:
            if place.run_dir is not None:
                where = replace(place, run_dir=Path(place.run_dir) / f"seed-{mine.seed}")
            where = replace(where, watch=_expecting(watch, choices.seeds - number))
            watch.say(f"seed {mine.seed}, {number + 1} of {choices.seeds}")
        yield mine, where


def _once(say: Callable[[str], None]) -> Callable[[str], None]:
    """The same, deaf to a text that it has said."""
    said: set[str] = set()

    def say_new(text: str) -> None:
        if text not in said:
            said.add(text)
            say(text)

    return say_new


def _expecting(watch: Watch, fits: int) -> Watch:
    """The same, told of the work of all fits that are left."""
    return replace(watch, expect=lambda work: watch.expect(work.times(fits)))


def _told(first: Fitted, all_of_them: Sequence[Fitted], seeds: Sequence[int]) -> Fitted:
    """The first, with the spread of all; also of the dense networks beside them."""
    dense = first.dense
    if dense is not None:
        found = [each.dense or {} for each in all_of_them]
        theirs = spread([each.get("accuracy") for each in found], seeds)
        dense = {**dense, "seeds": None if theirs is None else theirs | _errors(found)}
        rounded = [each.get("int8") or {} for each in found]
        if all(rounded):
            int8 = spread([each.get("accuracy") for each in rounded], seeds)
            dense["int8"] = {**dense["int8"], "seeds": int8}
    mine = spread([each.accuracy for each in all_of_them], seeds)
    if mine is None:
        return replace(first, dense=dense)
    values = [each.values for each in all_of_them]
    mine |= {"file_bytes": [each.file_bytes for each in all_of_them], "values": values}
    mine |= _errors([{"errors": each.errors, "wrong": each.facts.get("wrong")} for each in all_of_them])
    mine |= {name: [each.facts[name] for each in all_of_them] for name in ("layers", "is_dense_in_8_bits")}
    facts = {**first.facts, "seeds": mine}
    if len(set(values)) > 1:
        by_seed = ", ".join(f"{each} with seed {seed}" for each, seed in zip(values, seeds, strict=True))
        note = f"the seeds ended in different values ({by_seed}): give `values` to compare like with like"
        facts["tried"] = [*first.facts.get("tried", ()), note]
    return replace(first, dense=dense, facts=facts)


def _errors(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many examples the network of each seed gets wrong, and which: what pairs it with another of one seed."""
    return {name: [each.get(name) for each in found] for name in ("errors", "wrong")}


def spread(accuracies: Sequence[float | None], seeds: Sequence[int]) -> dict[str, Any] | None:
    """Mean and standard deviation, of a sample; None where some were not judged.

    >>> spread([99.0, 98.0], [0, 1])["mean"], round(spread([99.0, 98.0], [0, 1])["std"], 3)
    (98.5, 0.707)
    """
    known = [each for each in accuracies if each is not None]
    if len(known) < len(accuracies):
        return None
    return {
        "count": len(known),
        "seeds": list(seeds),
        "accuracies": known,
        "mean": mean(known),
        "std": stdev(known),
    }


def describe_call(model: Any, examples: Examples, bound: Bound, choices: Choices) -> str:
    """The call of fit() that was made, without what has its default.

    Data have the names of their parameters; what has no name and cannot be written is told in angle brackets.

    >>> from torch import nn
    >>> describe_call(nn.Flatten(), Examples(train_data=None), Bound(budget="8KB"), Choices(steps=300, seed=1))
    "mb.fit(<Flatten>, train_data, budget='8KB', steps=300, seed=1)"
    """
    given = {
        each.name: getattr(record, each.name)
        for record in (bound, choices)
        for each in fields(record)
        if _differs(getattr(record, each.name), each.default)
    }
    words = [f"{name}={_show(value)}" for name, value in given.items()]
    words += [
        f"{name}={name}" for name, data in vars(examples).items() if name != "train_data" and data is not None
    ]
    return f"mb.fit({', '.join([_show_model(model), 'train_data', *words])})"


def _show_model(model: Any) -> str:
    """A function by its name; what the command line was given as Python has it, if it has.

    >>> _show_model(partial(build_for, "nets:net", 10, 1)), _show_model(partial(build_for, "quick", 10))
    ('nets.net', 'mb.zoo.cifar10_quick')
    >>> _show_model(partial(describe_call, seed=1))
    'partial(describe_call, seed=1)'
    """
    if not isinstance(model, partial):
        return _show(model)
    made = model.func
    if made is not build_for:
        words = [
            *map(_show, model.args),
            *(f"{name}={_show(value)}" for name, value in model.keywords.items()),
        ]
        return f"partial({', '.join([_show_model(made), *words])})"
    spec = str(model.args[0])
    known = find(spec)
    if known is not None:
        return f"mb.zoo.{next(name for name, each in ZOO.items() if each is known)}"
    return spec.replace(":", ".") if ":" in spec else f"<{spec}>"


def _differs(value: Any, default: Any) -> bool:
    return value is not default and not (isinstance(value, str | int | float | tuple) and value == default)


def _show(value: Any) -> str:
    """Numbers, words and names as they are written; of a network or another object its type.

    >>> from torch import nn
    >>> _show([1, None]), _show(describe_call), _show(lambda name, weight: weight.abs()), _show(nn.MSELoss())
    ('[1, None]', 'describe_call', '<lambda>', '<MSELoss>')
    """
    if isinstance(value, list | tuple):
        inside = ", ".join(map(_show, value))
        return f"[{inside}]"
    if value is None or isinstance(value, str | int | float | Mapping):
        return repr(value)
    if isinstance(value, Path | Augment):  # an Augment is read from its words
        return repr(str(value))
    return getattr(value, "__name__", f"<{type(value).__name__}>")
