"""What came of a fit as one mapping of plain values: what its report draws and what JSON says; and that report."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from membound.machine import describe
from membound.report import page
from membound.report.text import Score
from membound.report.verdict import show_seeds
from membound.store.whole import digest_file
from membound.units import name_budget

Fitted = Any  # a search.deployed.Fitted, whose own report imports this module
PACKAGES = ("membound", "torch", "numpy", "ray")
UNITS = {"file": "", "flash": "", "ram": " of memory", "nonzeros": " nonzeros"}


class Dense(dict[str, Any]):
    """The facts of the dense network that a fit is compared with, which print as its size and accuracy.

    >>> Dense(file_bytes=1724320, accuracy=99.12, errors=88, accuracy_on="test", layers=[...])
    Dense(1,724,320 bytes, accuracy 99.12 % on test; keys: file_bytes, accuracy, errors, accuracy_on, layers)
    >>> in_8_bits = {"file_bytes": 434_000, "accuracy": 99.1, "errors": 90, "accuracy_on": "test"}
    >>> print(Dense(file_bytes=1724320, accuracy=99.12, errors=88, accuracy_on="test", int8=in_8_bits))
    dense network: 1,724,320 bytes, accuracy 99.12 % on test; in 8 bits: 434,000 bytes, accuracy 99.10 % on test
    """

    def __str__(self) -> str:
        shown = f"dense network: {self._show_size()}, {self._show_judged()}"
        if int8 := self.get("int8"):
            shown += f"; in 8 bits: {Dense(int8)._show_size()}, {Dense(int8)._show_judged()}"
        return shown

    def _show_size(self) -> str:
        """Of a microcontroller's network in 8 bits, what it takes there."""
        if micro := self.get("micro"):
            return f"{micro['flash_bytes']:,} bytes of flash, {micro['ram_bytes']:,} of RAM"
        return f"{self.get('file_bytes', 0):,} bytes"

    def __repr__(self) -> str:
        return f"Dense({self.get('file_bytes', 0):,} bytes, {self._show_judged()}; keys: {', '.join(self)})"

    def _show_judged(self) -> str:
        score = Score() if self.get("errors") is not None else Score("score", percent=False)
        if seeds := self.get("seeds"):
            shown = f"{show_seeds(seeds, score)} over {len(seeds['seeds'])} seeds"
        elif self.get("accuracy") is None:
            return "accuracy not measured"
        else:
            shown = score.show(self["accuracy"])
        return f"{score.name} {shown} on {self.get('accuracy_on')}"


def summarise(
    results: Sequence[Fitted],
    *,
    network: str,
    data: str,
    strategy: str,
    seed: int,
    seconds: float,
    budget_kind: str = "file",
    within: float | None = None,
    files: Sequence[object] = (),
    written: bool = True,
    command: str | None = None,
    device: str = "cpu",
    score_name: str | None = None,
    names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """All that `membound.report` shows of a fit, as JSON.

    `budget_kind` is what the budgets count: file, ram or nonzeros; `files` are those of `results`, in their order, or
    only names for them if they are not `written`; `score_name` is for a task with a score of its own, whose numbers are
    no percentages; `names` are the networks', where they are not called by their budgets.
    """
    about = describe(PACKAGES)
    paths = [str(file) for file in files] + [None] * (len(results) - len(files))
    finals = [
        describe_final(result, path, budget_kind, within)
        | {"sha256": digest_file(path) if written and path is not None else None}
        for result, path in zip(results, paths, strict=True)
    ]
    if names is not None:
        finals = [{**final, "name": name} for final, name in zip(finals, names, strict=True)]
    dense = results[0].dense if results else None
    history = results[0].history if results else ()
    summary = {
        "network": network,
        "data": data,
        "command": command or about["command"],
        "date": about["date"],
        "seconds": round(seconds, 2),
        "strategy": strategy,
        "seed": seed,
        "environment": environment(device),
        "budget": _budget(results, budget_kind),
        "dense": None if dense is None else dict(dense),
        "finals": finals,
        "candidates": [_candidate(facts, budget_kind) for facts in history],
        "score_name": score_name or (results[0].facts.get("score_name") if results else None),
    }
    if within is not None:
        goal = f"the smallest within {within:g} points of dense on validation images"
        summary["title"] = f"{network}{f' on {data}' if data else ''}: {goal}"
    return summary


def write_page(
    results: Sequence[Fitted],
    path: str | os.PathLike[str],
    *,
    network: str,
    data: str,
    names: Sequence[str] | None = None,
) -> None:
    """The page of networks that no command saved, of one call or of several."""
    asked = [each.facts["asked"] for each in results]
    named = names or names_apart(results)
    summary = summarise(
        results,
        network=network or type(results[0].model).__name__,
        data=data,
        strategy=_say_strategies(results, named),
        seed=asked[0]["seed"],
        command="\n".join(dict.fromkeys(each["call"] for each in asked)),
        seconds=sum(
            {id(each): float(each.get("seconds", 0.0)) for each in asked}.values()
        ),  # calls, not networks
        budget_kind=asked[0].get("kind", "file"),
        files=["net.safetensors"],  # a name to copy: only who saves it knows its own
        written=False,
        names=named,
    )
    page.write_report(path, summary | {"unsaved": True})


def _say_strategies(results: Sequence[Fitted], names: Sequence[str] | None) -> str:
    """The strategies of some networks, each with the network's name where there are several."""
    said = []
    for each in results:
        asked = each.facts["asked"]
        name, source = asked["strategy"], asked.get("strategy_source")
        said.append(name if source is None else f"your function `{name}`, source {source}")
    if len(set(said)) == 1:
        return str(said[0])
    pairs = zip(names or [each.name for each in results], said, strict=True)
    return "; ".join(f"{name}: {strategy}" for name, strategy in pairs)


def names_apart(results: Sequence[Fitted]) -> list[str] | None:
    """None where budgets tell them apart; those of one budget have the names of their strategies, or numbers."""
    budgets = [name_budget(each.name) for each in results]
    if len(set(budgets)) == len(results):
        return None
    strategies = [str(each.facts["asked"]["strategy"]) for each in results]
    both = [f"{budget}, {strategy}" for budget, strategy in zip(budgets, strategies, strict=True)]
    if len(set(both)) < len(results):
        return [f"{budget} ({number})" for number, budget in enumerate(budgets, 1)]
    return strategies if len(set(budgets)) == 1 else both


def environment(device: str = "cpu") -> dict[str, Any]:
    """The hardware, the versions (in a checkout with the commit) and torch's threads of this process."""
    about = describe(PACKAGES)
    if device.startswith("cuda"):
        about["hardware"] = {**about["hardware"], "gpu": torch.cuda.get_device_name(device)}
    return {
        "hardware": about["hardware"],
        "versions": about["versions"],
        "torch_threads": torch.get_num_threads(),
    }


def describe_final(
    result: Fitted, file: str | None = None, budget_kind: str = "file", within: float | None = None
) -> dict[str, Any]:
    """One final network."""
    name = "smallest" if within is not None else name_budget(f"{result.name}{UNITS[budget_kind]}")
    return {
        **result.facts,
        "name": name,
        "file": file,
        "limit": result.limit,
        "size": result.size,
        "file_bytes": result.file_bytes,
        "values": result.values,
        "accuracy": result.accuracy,
        "accuracy_on": result.accuracy_on,
        "errors": result.errors,
        "images": result.images,
        "no_better_than_guessing": result.no_better_than_guessing,
        "verdict": result.verdict,
        "against_dense": None if result.against_dense is None else result.against_dense.to_dict(),
        "mean": result.mean,
        "std": result.std,
        "members": list(result.members),
    }


def without_curves(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary without the curves of its trainings, which are long.

    >>> without_curves({"seed": 0, "dense": {"accuracy": 99.0, "curves": [1]}, "finals": [{"curves": [1]}]})
    {'seed': 0, 'dense': {'accuracy': 99.0}, 'finals': [{}]}
    """

    def short(facts: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in facts.items() if key != "curves"}

    dense = summary["dense"]
    finals = [short(final) for final in summary["finals"]]
    return {**summary, "dense": None if dense is None else short(dense), "finals": finals}


def _budget(results: Sequence[Fitted], kind: str) -> dict[str, Any]:
    """The common limit, where there is one; the networks have their own."""
    limit = results[0].limit if len(results) == 1 else None
    if kind == "file" and any("micro" in result.facts for result in results):
        kind = "flash"
    return {"kind": kind, "limit": limit, "text": ", ".join(dict.fromkeys(result.name for result in results))}


def _candidate(facts: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """A candidate; its `bytes` are those of a file, and no other size is drawn beside files."""
    layer = facts.get("layer")
    named = {} if layer is None else {"layer": str(layer).removesuffix(".weight")}
    return {**facts, **named, "bytes": facts["size"] if kind == "file" else None}
