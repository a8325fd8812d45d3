"""The final networks: what was trained becomes what is deployed, judged through the runtime that deploys it."""

from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from torch import Tensor, nn

from membound.data import Split
from membound.report.eight_bits import TAKEN
from membound.report.text import say_cut
from membound.run.inspection import inspect
from membound.run.pictures import takes_pictures
from membound.search import greedy
from membound.search.bits import describe_types, joined
from membound.search.bounds import Bound
from membound.search.budget import Plan, describe_device, describe_left_over
from membound.search.deployed import Fitted
from membound.search.effort import describe_recipe
from membound.search.eight_bits import EightBits, better_in_8_bits, describe_choice, fits, in_8_bits
from membound.search.ensemble import Ensemble, join_states
from membound.search.latencies import describe_speed
from membound.search.measure import FileBytes, deployed_bytes
from membound.search.micro import MicroBytes, calibrated, describe_micro, exported_bytes
from membound.search.place import Watch
from membound.search.problem import Problem, State, Target
from membound.search.request import Choices
from membound.search.scoring import score_stored
from membound.search.teachers import describe_lessons
from membound.search.trim import trim_
from membound.search.workshop import Workshop
from membound.store.model import StoredModel
from membound.train.evaluation import Score
from membound.train.fingerprints import architecture_digest, data_digest, network_digest
from membound.train.rules import load_plain_
from membound.train.several import plain
from membound.units import name_budget, name_examples, parse_latency

SHORT = 8  # digits of a digest that people read


class Finals:
    """Makes the networks that a fit gives back from the states that its jobs left in the workshop."""

    def __init__(self, workshop: Workshop, bound: Bound, choices: Choices, watch: Watch) -> None:
        self.workshop, self.bound, self.choices, self.watch = workshop, bound, choices, watch
        self.asked = workshop.problem  # before widths are tried
        self.candidates: list[dict[str, Any]] = []  # that the search has tried
        self.tried: list[str] = []  # what a person should know of it
        self.dense_file: StoredModel | None = None  # for races against it
        self.told_not_finite = False
        self.eight_bits: EightBits | None = None  # the same weights in 8 bits, where they can be

    @property
    def problem(self) -> Problem:
        return self.workshop.problem

    @property
    def ram_limit(self) -> int | None:
        """The second bound, where there are two."""
        return self.problem.target.memory

    @property
    def estimates(self) -> bool:
        """Whether only images held out of the training ones can judge."""
        data = self.problem.data
        return data.test is None and data.given is None and data.validation is not None

    @cached_property
    def digests(self) -> dict[str, str]:
        """What tells apart networks, training data and what judges: fits are compared where these are the same."""
        data, model = self.asked.data, self.asked.make(self.choices.seed)
        judges = data.test or data.given or data.train  # of which a part judges copies
        start = network_digest if self.choices.pretrained else architecture_digest
        return {
            "network": f"{type(plain(model)).__name__} {start(model)[:SHORT]}",
            "training_data": data_digest(data.train)[:SHORT],
            "test_data": data_digest(judges)[:SHORT],
        }

    def remember(self, candidates: list[dict[str, Any]]) -> None:
        """Those that are not known yet: a search may go over the same ones twice."""
        known = {found["key"] for found in self.candidates}
        self.candidates += [found for found in candidates if found["key"] not in known]

    # The dense network

    def describe_dense(self, facts: dict[str, Any]) -> dict[str, Any]:
        plain, data = replace(self.problem.files, values="f32", types={}), self.problem.data
        stored = plain.stored(self.workshop.state("dense"))
        estimate = None
        if self.estimates and data.validation is not None:
            part = plain.stored(self.workshop.state(greedy.DENSE))
            estimate = score_stored(part, data.validation, self.problem)
        self.dense_file = stored
        about = _describe_stored(stored, self.problem.target) | self._judge(stored, estimate)
        if self.choices.pretrained:  # dense is what was given, trained on
            given = plain.stored(self.problem.make(self.choices.seed).state_dict())
            about["given_accuracy"] = self._judge(given, None)["accuracy"]
        return about | {
            "curves": facts["history"],
            "steps": self._steps(facts),
            "seconds": facts["seconds"],
            "is_estimate": self.estimates,
            "int8": self._describe_int8(),
        }

    def _describe_int8(self) -> dict[str, Any] | None:
        held_out = self.workshop.state(greedy.DENSE) if self.estimates else None
        dense, data = in_8_bits(self.problem, self.workshop.state("dense"), held_out), self.problem.data
        self.eight_bits = dense
        if dense is None or (data.test is None and data.given is None and dense.estimate is None):
            return None  # nothing but the training images could judge it
        return dense.describe(self.problem) | self._judge(dense.stored, dense.estimate)

    def dense_if_better(self, plan: Plan, result: Fitted, facts: dict[str, Any]) -> Fitted:
        """Dense in 8 bits instead, where it fits and images other than those for the last word say so."""
        dense = self.eight_bits
        if dense is None or not result.facts["fits_in_8_bits"]:
            return result
        ours = result.files.stored(result.model.state_dict())
        scores = better_in_8_bits(self.problem, ours, plan.estimate, dense)
        if scores is None:
            return result
        model = self.problem.make(self.choices.seed)
        load_plain_(model, dense.state)
        plan = replace(plan, estimate=dense.estimate, cut=0.0)
        found = self.deploy(plan, [facts], dict(result.dense or {}), model.eval(), dense.files)
        self.watch.note(f"{name_budget(plan.limit.text)}: {TAKEN}")
        own = [note for note in found.facts["tried"] if "teacher" not in note]  # dense has none
        tried = [*own, describe_choice(*scores)]
        training = found.facts["training"] | dict.fromkeys(("teacher", "temperature", "teacher_part"))
        facts = {**found.facts, "tried": tried, "training": training, "is_dense_in_8_bits": True}
        return replace(found, facts=facts)

    # Networks under a bound

    def network(self, plan: Plan, keys: list[str]) -> tuple[nn.Module, FileBytes]:
        """The final network in torch and its file: one, or an ensemble within the limit."""
        states = [self.workshop.state(key) for key in keys]
        networks = [self.problem.make(self.choices.seed + number) for number in range(len(keys))]
        types = [self._types(key) for key in keys]
        if len(keys) == 1:
            model: nn.Module = networks[0]
            files = replace(self.problem.files, types=types[0])
        else:
            model = Ensemble(networks, self.bound.average)
            files = replace(self.problem.files_of(model), types=joined(types))
        if not plan.exact:
            measure = self.problem.measure_of(model, files)
            size = partial(self._exported_bytes, files) if isinstance(measure, MicroBytes) else measure
            before = self._nonzeros(states)
            trim_(states, self.problem, lambda: size(_joined(states)), plan.limit.number)
            plan.cut = 1 - self._nonzeros(states) / max(before, 1)
        for network, state in zip(networks, states, strict=True):
            load_plain_(network, state)
        return model.eval(), files

    def _nonzeros(self, states: list[dict[str, Tensor]]) -> int:
        return sum(int(state[name].count_nonzero()) for state in states for name in self.problem.weights)

    def estimate(self, plan: Plan, keys: list[str], validation: Split) -> Score:
        """How good networks are that were trained without the validation images, on those."""
        model, files = self.network(plan, keys)
        files = self._for_device(files, model.state_dict())
        return score_stored(files.stored(model.state_dict()), validation, self.problem)

    def deploy(
        self,
        plan: Plan,
        facts: list[dict[str, Any]],
        dense: dict[str, Any] | None,
        model: nn.Module,
        files: FileBytes,
    ) -> Fitted:
        files, state = self._for_device(files, model.state_dict()), model.state_dict()
        stored = files.stored(state)
        about = _describe_stored(stored, self.problem.target)
        if self.problem.target.micro:
            size = about["micro"]["flash_bytes"]
        elif self.ram_limit is None:
            size = self.problem.measure_of(model, files)(state)
        else:
            size = stored.file_bytes
        seconds = sum(found["seconds"] for found in facts)
        int8 = (dense or {}).get("int8")
        judged = self._judge(stored, plan.estimate)
        more = {name: judged.pop(name) for name in ("classes", "class_iou", "image_scores", "wrong")}
        return Fitted(
            name=plan.limit.text,
            model=plain(model),
            files=files,
            limit=size if plan.exact else plan.limit.number,
            size=size,
            file_bytes=stored.file_bytes,
            values=describe_types(files.types) if files.types else files.values,
            **judged,
            members=self._judge_members(model, facts),
            history=list(self.candidates),
            dense=dense,
            facts=about
            | {
                "curves": facts[0]["history"],
                "steps": self._steps(facts[0]),
                "training": describe_recipe(self.problem, self.choices.seed, plan.start is not None)
                | describe_lessons(self.problem, self.bound, self.choices),
                "seconds": seconds,
                "is_estimate": self.estimates,
                **more,
                "digests": self.digests,
                "is_dense_in_8_bits": False,
                "cut_after_training": round(plan.cut, 4),
                "fits_in_8_bits": fits(int8, self.bound, plan.limit.number, self.ram_limit),
                "tried": [*self.tried, *self._notes(plan, files, state, about, judged["errors"] == 0)],
            }
            | ({} if self.ram_limit is None else {"memory_limit": self.ram_limit})
            | self._bound_on_time()
            | ({} if self.problem.task.counts else {"score_name": self.problem.task.name or "score"}),
        )

    def _bound_on_time(self) -> dict[str, Any]:
        """Of a microcontroller: what is allowed, of the time that is estimated."""
        if not self.problem.target.micro or self.bound.latency is None:
            return {}
        alone = {"alone": True} if self.bound.is_time_alone else {}
        return {"latency_bound": {"bound_ms": parse_latency(self.bound.latency), **alone}}

    def _steps(self, facts: dict[str, Any]) -> int:
        """Those of a network and of all that it goes on from: a search trains its winners on."""
        steps, start = int(facts["steps"]), facts["job"].get("start")
        return steps if start is None else steps + self._steps(self.workshop.facts(start))

    def _notes(
        self, plan: Plan, files: FileBytes, state: State, about: dict[str, Any], no_errors: bool
    ) -> list[str]:
        """What a person should know of its bytes."""
        notes = [describe_speed(files, state, about)] if files.prefer == "speed" else []
        if (cut := say_cut({"cut_after_training": plan.cut})) is not None:
            notes.append(f"{cut}, to meet the bytes: train longer to win back what that costs in accuracy")
        if self.problem.data.pixels is not None:
            notes.append(
                "picture files are resized to cover the network's size and center-cropped to it; if your transforms do "
                "something else, check the file on real pictures with membound evaluate"
            )
        if plan.exact or self.bound.within is not None or plan.limit.key is not None:
            return notes
        if micro := about.get("micro"):
            alone = self.bound.is_time_alone
            notes += describe_device(micro, plan.limit.number, self.problem.target, alone, no_errors)
            if alone:
                return notes
        types = set(files.types.values())
        return notes + describe_left_over(self.problem, plan, types, about)

    def _for_device(self, files: FileBytes, state: State) -> FileBytes:
        """What a microcontroller runs says how its values become int8."""
        data = self.problem.data
        return calibrated(files, state, data.train, data.preprocess) if self.problem.target.micro else files

    def _exported_bytes(self, files: FileBytes, state: State) -> int:
        """What the budget counts of a network as it is exported for a microcontroller."""
        target = self.problem.target
        stored = self._for_device(files, state).stored(state)
        return exported_bytes(stored, target.spare, target.timed, target.level)

    def _types(self, key: str) -> dict[str, str]:
        """The types of the values of a job's weights."""
        return self.workshop.facts(key).get("types") or {}

    # The last word

    def _judge(self, stored: StoredModel, estimate: Score | None) -> dict[str, Any]:
        """The last word, by images that it was not trained on; where there are none, the estimate of before."""
        data = self.problem.data
        split = data.given if data.test is None else data.test
        score = estimate if split is None else score_stored(stored, split, self.problem)
        if score is not None and score.known is None and not self.told_not_finite:
            self.told_not_finite = True
            self.watch.warn(
                f"the score of a network is {score.accuracy} on {'validation' if data.test is None else 'test'} "
                f"{name_examples(data.train.shape)}: it counts as not measured; fix the score function"
            )
        return {
            "accuracy": None if score is None else score.known,
            "errors": None if score is None else score.errors,
            "images": None if score is None else score.images,
            "accuracy_on": "validation" if data.test is None else "test",
            "classes": None if score is None else self._by_class(score),
            "class_iou": None if score is None or score.class_iou is None else list(score.class_iou),
            "image_scores": None
            if score is None or score.image_scores is None
            else [round(each, 6) for each in score.image_scores],
            "wrong": None if score is None or score.wrong is None else list(score.wrong),
        }

    def _by_class(self, score: Score) -> list[dict[str, Any]] | None:
        """Images and errors of each class, those without an image left out; None of another task."""
        if score.by_class is None:
            return None
        names = self.problem.data.classes or tuple(map(str, range(len(score.by_class))))
        return [
            {"name": name, "images": images, "errors": errors}
            for name, (images, errors) in zip(names, score.by_class, strict=False)
            if images
        ]

    def _judge_members(self, model: nn.Module, facts: list[dict[str, Any]]) -> list[float | None]:
        if not isinstance(model, Ensemble):
            return []
        files = [replace(self.problem.files, types=each.get("types") or {}) for each in facts]
        found = [mine.stored(each.state_dict()) for mine, each in zip(files, model.members, strict=True)]
        return [self._judge(stored, None)["accuracy"] for stored in found]


def _joined(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return states[0] if len(states) == 1 else join_states(states)


def _describe_stored(stored: StoredModel, target: Target) -> dict[str, Any]:
    """Bytes, memory and layers of a stored network."""
    facts = inspect(stored)
    on_device = (
        describe_micro(stored, target.clock, target.level) if target.micro and stored.activations else None
    )
    if on_device is not None:
        memory: dict[str, Any] = {"micro": on_device, "memory_bytes": on_device["ram_bytes"]}
    else:
        here = deployed_bytes(stored, target.batch, target.isa)  # what a bound counts
        memory = {"host_memory_bytes" if target.micro else "memory_bytes": here, "memory_isa": target.isa}
    return {
        "input_shape": None if len(facts.get("inputs", ())) > 1 else facts["input_shape"],
        "takes_pictures": takes_pictures(stored),
        "class_names": stored.classes,
        "file_bytes": stored.file_bytes,
        **{name: facts[name] for name in ("header_bytes", "mean_image_bytes")},
        **memory,
        "parameters": facts["parameters"],
        "nonzeros": facts["nonzeros"],
        "weight_nonzeros": facts["weight_nonzeros"],
        "layers": facts["layers"],
    }
