"""A network brought under bounds in stages, as the paper brought AlexNet, but by itself.

A stage names layers and how many nonzeros each shall end with; layers of earlier stages stay at what they got to.
Bounds are tightened in steps: each keeps a part of every layer's nonzeros and trains on from the last network that was
accepted. A step is accepted when validation accuracy is within a tolerance of the dense network's. One that is not is
trained on; if that does not help, it is taken back and smaller steps are made, until they are too small to matter: then
the stage ends where it got to.

    tolerance = 0.5      # points of validation accuracy below dense
    keep = 0.6           # of a layer's nonzeros, at each step
    tries = 2            # trainings of a step before it is taken back

    [[stage]]
    fc8 = 400_000

    [[stage]]
    fc6 = 3_000_000      # a count, or a fraction such as 0.08
    fc7 = 3_000_000
"""

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from reprlib import repr as shorten
from typing import Any

from membound.errors import MemboundError, RuleError, say_absent
from membound.modules import plain_keys
from membound.search.greedy import DENSE
from membound.search.jobs import Job
from membound.search.problem import Problem
from membound.search.scoring import check_scored
from membound.search.workshop import Workshop, as_candidate
from membound.train.rules import select
from membound.train.schedules import Number
from membound.train.updates import keep_count, l0_project

SMALLEST = 0.95  # a step that keeps more than this part is too small to be tried
NUMBERS = {"tolerance": (0.0, 100.0), "keep": (0.0, 1.0), "tries": (1, 100)}


@dataclass(frozen=True)
class Stages:
    """Layers, by name or pattern, and the nonzeros that each ends with, stage after stage; and how steps are made."""

    stages: Sequence[Mapping[str, Number]]
    tolerance: float = 0.5
    keep: float = 0.6
    tries: int = 2

    def __post_init__(self) -> None:
        for name, (least, most) in NUMBERS.items():
            value = getattr(self, name)
            whole = not isinstance(value, bool) and isinstance(value, int if name == "tries" else int | float)
            if not whole or not least <= value <= most or (name == "keep" and not 0 < value < SMALLEST):
                most = SMALLEST if name == "keep" else most
                raise MemboundError(
                    f"stages: {name} must lie between {least:g} and {most:g}, got {shorten(value)}"
                )
        if not self.stages or any(not isinstance(stage, Mapping) or not stage for stage in self.stages):
            raise MemboundError(
                "stages: there is none, or one without layers: write a [[stage]] with lines such as fc6 = 3_000_000"
            )

    @classmethod
    def read(cls, path: str | Path) -> "Stages":
        """From a TOML file."""
        try:
            found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise MemboundError(say_absent(Path(path))) from error
        except OSError as error:
            raise MemboundError(f"{path}: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:  # also not UTF-8, or a number beyond all bounds
            raise MemboundError(f"{path} is not TOML: {str(error)[:200]}") from error
        stages = found.pop("stage", [])
        if unknown := [name for name in found if name not in NUMBERS]:
            raise MemboundError(
                f"{path} has {shorten(unknown[0])}: there are {', '.join(NUMBERS)} and [[stage]] tables"
            )
        if not isinstance(stages, list):
            raise MemboundError(
                f"{path}: write [[stage]], in double brackets, above the layers of each stage"
            )
        return cls(tuple(stages), **found)

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {**vars(self), "stages": [dict(stage) for stage in self.stages]}

    def resolve(self, problem: Problem) -> list[dict[str, int]]:
        """The weights of each stage by name, and their counts."""
        model, taken = problem.make(0), set[str]()
        resolved = []
        for number, stage in enumerate(self.stages, 1):
            try:
                rules = {pattern: l0_project(keep) for pattern, keep in stage.items()}
                chosen = plain_keys(select(model, rules))
                counts = {
                    name: keep_count(stage[pattern], weight.numel())
                    for name, (weight, pattern) in chosen.items()
                }
            except RuleError as error:
                raise RuleError(f"stage {number}: {error}") from None
            if twice := taken & counts.keys():
                raise RuleError(f"stage {number}: '{min(twice)}' has a stage already: name it once")
            if free := counts.keys() - set(problem.weights):
                raise RuleError(f"stage {number}: '{min(free)}' is protected or frozen: leave it out")
            if none := [name for name, count in counts.items() if count < 1]:
                raise RuleError(f"stage {number}: '{none[0]}' would keep nothing: keep at least one weight")
            taken |= counts.keys()
            resolved.append(counts)
        return resolved


@dataclass
class Reached:
    """What a search through stages ends with: counts of the bounded weights, and the job that has them."""

    key: str
    counts: dict[str, int]
    candidates: list[dict[str, Any]] = field(default_factory=list)


def search_stages(
    workshop: Workshop, stages: Stages, seed: int, say: Callable[[str], None], warn: Callable[[str], None]
) -> Reached:
    """Through all stages, each step from the last network that was accepted; `warn` of counts that were not reached."""
    targets = stages.resolve(workshop.problem)
    (dense,) = workshop.do([Job(DENSE, seed, about={"round": 0})])
    check_scored([dense], "the dense network")
    walk = _Walk(workshop, stages, seed, dense["accuracy"] - stages.tolerance, Reached(DENSE, {}))
    walk.reached.candidates.append(as_candidate(dense, True))
    for number, wanted in enumerate(targets, 1):
        got = walk.through(number, wanted)
        for name, count in wanted.items():
            text = f"stage {number}: {name.removesuffix('.weight')} keeps {got[name]:,}"
            missed = got[name] > count
            if missed:
                text += f", not {count:,}: fewer would cost more than {stages.tolerance:g} points"
            workshop.directory.log(text)
            (warn if missed else say)(text)
    return walk.reached


def _fewer(now: int, wanted: int, keep: float) -> int:
    """One step from `now` towards `wanted`: at least one fewer, never fewer than wanted."""
    return min(now, max(wanted, min(round(keep * now), now - 1)))


@dataclass
class _Walk:
    workshop: Workshop
    stages: Stages
    seed: int
    least: float  # validation accuracy that is accepted
    reached: Reached
    steps: int = 0

    def through(self, number: int, wanted: Mapping[str, int]) -> dict[str, int]:
        """Tighten the layers of a stage; the counts that they got to."""
        sizes = self.workshop.problem.sizes
        now, keep = {name: sizes[name] for name in wanted}, self.stages.keep
        while any(now[name] > wanted[name] for name in wanted) and keep < SMALLEST:
            tried = {name: _fewer(now[name], wanted[name], keep) for name in wanted}
            if self._step(number, tried):
                now = tried
            else:
                keep = math.sqrt(keep)
        return now

    def _step(self, stage: int, tried: Mapping[str, int]) -> bool:
        """Train at these counts, more than once if need be; whether the network is accepted."""
        self.steps += 1
        counts, start = {**self.reached.counts, **tried}, self.reached.key
        keys: list[str] = []
        for attempt in range(1, self.stages.tries + 1):
            key = f"stage{stage}-{self.steps:03d}-{attempt}"
            about = {"round": self.steps, "stage": stage, "layer": ", ".join(tried)}
            job = Job(
                key,
                self.seed + 100 * self.steps + attempt,
                start,
                tuning=True,
                counts=counts,
                may_fail=True,
                about=about,
            )
            (facts,) = self.workshop.do([job])
            if "failure" in facts:
                break
            good = facts["accuracy"] is not None and facts["accuracy"] >= self.least
            self.reached.candidates.append(as_candidate(facts, good))
            if good:
                self.workshop.forget([*keys, *([] if self.reached.key == DENSE else [self.reached.key])])
                self.reached.key, self.reached.counts = key, counts
                return True
            keys.append(key)
            start = key
        self.workshop.forget(keys)
        return False
