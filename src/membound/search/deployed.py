"""What came of a fit: the network as it will be deployed, measured through the runtime that deploys it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import nn

from membound.data.preprocess import Preprocess
from membound.errors import MemboundError, a_kind
from membound.modules import FITTED
from membound.notebook import html_block, html_table
from membound.report.device import NEARLY, show_flash, show_ram
from membound.report.eight_bits import TAKEN
from membound.report.guessing import is_guessing, say_guess
from membound.report.paired import Comparison, compare_records
from membound.report.spread import compare
from membound.report.text import Score, json_values, say_cut, show_milliseconds, show_own
from membound.report.verdict import show_seeds
from membound.run.layers import show_layers
from membound.search.measure import FileBytes
from membound.search.pixels import with_pixels
from membound.search.summary import Dense, environment, write_page
from membound.store.model import StoredModel


@dataclass(frozen=True, eq=False, kw_only=True)
class Fitted:
    """A network within its budget.

    - `model` is the torch module, with its zeros in place; `save` writes it as a file.
    - `accuracy` is in percent, on `accuracy_on` ('test' or 'validation' images, `errors` of `images`), through the
      deployed runtime; for a task with a score of its own it is that score. None where nothing could judge. Without
      `test_data` and `val_data` it is that of a copy, trained in the same way without the training images that
      measure it (`validation`, a tenth of them); `model` is then trained on all.
    - `file_bytes` are those of the file; `size` is what the budget counts and `limit` what it allows.
    - `dense` has the same facts about the dense network beside it, or is None; with `pretrained=True` also
      `given_accuracy`, that of the network as it was given: dense is that one, trained on.
    - Of several seeds, all fields are those of the first; `seeds`, `accuracies`, `mean` and `std` are of all of them,
      and `dense["seeds"]` has the same of dense. `verdict` and `against_dense` compare with dense, `compare` with
      another network.
    - `members` are the accuracies of an ensemble's members; `history` has every candidate that was trained on the way,
      judged on validation images.
    - `facts` has all else, as JSON:
      - bytes: `file_bytes`, `header_bytes`, `mean_image_bytes`, `memory_bytes`, for the `memory_isa` ('every': on
        any CPU); `cut_after_training`, the part of the weights that was cut then, to meet the bound; `fits_in_8_bits`,
        whether the dense network does; `is_dense_in_8_bits`, whether it was the better one, and this is it;
      - time: `latency_ms` (one image, on `threads` threads of this machine) and its `latency_spread`; `engine_int8`,
        latency and memory of the same file with `mb.load(file, engine="int8")`, where a layer keeps enough for it, and
        its accuracy, where it is faster;
      - the network: `parameters`, `nonzeros`, `weight_nonzeros`; `layers`, the records of `mb.inspect` (`Inspection`
        lists their keys); `input_shape`, of one example; `takes_pictures`, whether `net.read` reads pictures for it;
        `class_names`, those in the file, or None;
      - `training`: its `optimizer`, `peak_lr`, `search_peak_lr` (of the search whose winner it goes on from, at half of
        that; else None), `warmup` (in steps), `batch_size`, `steps`, `usual_steps`, `weight_decay`, `momentum`, `ramp`
        (`begin`, `until`, and `again`, when the size is measured once more), `every`, `seed`, `augment`, `smoothing`,
        `precision`, `teacher` (None where there was none), `temperature` and `teacher_part`; `steps` and `seconds` of
        training, with those of all that it goes on from (`steps`) and of all members (`seconds`);
      - `curves`: points with `iteration`, `loss` (the mean since the point before, on training images), `seconds`,
        `nonzeros` and, where there are test images, `accuracy` and `test_loss` on up to 1,000 of these, by which
        nothing is chosen;
      - judged: `is_estimate`, whether `accuracy` is that of a copy, as above; `classes`, with `name`, `images` and
        `errors` of each, as `accuracy` counts them; `wrong`, the numbers of the examples that `errors` counts, from 0
        on (None of another task); `class_iou`, of segmentation, in the order of the classes (None of another task, and
        of a class that is neither there nor said); `image_scores`, of segmentation and regression, the score of each
        example, in order; `collapsed`, the class of everything, where a network says no other;
      - `seeds`, where there were several: `count`, `seeds`, `accuracies`, `mean`, `std`, and `file_bytes`, `values`,
        `layers`, `errors` and `wrong` of each;
      - `asked`: the `call`, its `strategy`, `strategy_source` (a digest, of a score of your own), `kind`, `values`,
        `seed` and `seconds`; `tried`, sentences for people; `digests` of the `network` and of its `training_data` and
        `test_data`, by which `compare` notices other ones.
    - For a microcontroller, `flash` and `ram` are bytes and `ms` is the estimated time of an image (None for other
      targets), and `facts["micro"]` has their parts: `flash_bytes` are `constant_bytes` (of them `weight_bytes`, and
      `table_bytes` where activations have `tables`) and `code_bytes`, `ram_bytes` are `context_bytes` (of them
      `arena_bytes`) and `stack_bytes`; `layers` and `beside_layers` say as `row_bytes` what the arena holds, where rows
      that are not needed at the same time share their bytes; `instructions`, `cycles` and `ms` of one image, and
      `longest_call_instructions` and `longest_call_ms` of net_feed_row, are estimates for a Cortex-M4 at `clock_hz`.
      All this is as `compiled_with` -Os, or what was asked for; `at_Os` and `at_O2` have flash, code and time for both.
      What this machine takes is named so: `host_latency_ms`, `host_latency_spread`, `host_threads`; of dense networks
      in float32, `host_memory_bytes`.
    """

    model: nn.Module
    limit: int
    size: int  # of what the budget counts
    file_bytes: int
    values: str
    accuracy: float | None
    accuracy_on: str
    errors: int | None
    images: int | None
    members: Sequence[float | None]  # accuracies of an ensemble's members
    history: Sequence[Mapping[str, Any]]
    dense: Mapping[str, Any] | None
    facts: Mapping[str, Any]  # everything else, as JSON
    name: str = ""
    files: FileBytes = field(repr=False, default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.dense is not None:
            object.__setattr__(self, "dense", Dense(self.dense))
        if isinstance(self.model, nn.Module):  # for mb.save, which does not know how a fit stores its values
            self.model.__dict__[FITTED] = self.file_bytes

    @property
    def flash(self) -> int | None:
        """Bytes of flash on a microcontroller, constants and code; None for other targets."""
        return self._on_device("flash_bytes")

    @property
    def ram(self) -> int | None:
        """Bytes of RAM on a microcontroller, context and stack; None for other targets, see `facts["memory_bytes"]`."""
        return self._on_device("ram_bytes")

    @property
    def ms(self) -> float | None:
        """About how long an image takes on a microcontroller, at its clock and as compiled; None for other targets."""
        micro = self.facts.get("micro")
        return None if micro is None else float(micro["ms"])

    def _on_device(self, key: str) -> int | None:
        micro = self.facts.get("micro")
        return None if micro is None else int(micro[key])

    @property
    def seeds(self) -> list[int]:
        """The seeds that were trained; only the one of the fit where `seeds` was 1."""
        found = self.facts.get("seeds") or {"seeds": [self.facts.get("asked", {}).get("seed", 0)]}
        return list(found["seeds"])

    @property
    def accuracies(self) -> list[float | None]:
        """The accuracy of each of `seeds`."""
        found = self.facts.get("seeds") or {"accuracies": [self.accuracy]}
        return list(found["accuracies"])

    @property
    def mean(self) -> float | None:
        """The mean accuracy over seeds; None with one seed."""
        return (self.facts.get("seeds") or {}).get("mean")

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds, of a sample (n - 1); None with one seed."""
        return (self.facts.get("seeds") or {}).get("std")

    @property
    def verdict(self) -> str | None:
        """Against dense, as `compare` judges: 'better', 'worse', 'within the spread' or 'too few seeds to tell'.

        Within the spread means that the 95 % confidence interval of the difference includes 0: paired by seed, or with
        one seed by test image (see `Comparison`). With two seeds that is too few to tell. None where there is no
        dense network, or nothing says how far a score may be off.
        """
        found = self.against_dense
        return None if found is None else found.verdict

    @property
    def against_dense(self) -> Comparison | None:
        """The difference to dense, how far that may be off (95 %), and the verdict; None without a dense network."""
        return None if self.dense is None else compare(self._judged, self.dense)

    @property
    def no_better_than_guessing(self) -> bool:
        """Whether always saying the most common class of what was tested would be as accurate, within chance.

        Of regression, whether R² is at most 0: always predicting the mean would be as good.
        """
        return is_guessing({**self.facts, **self._judged})

    @property
    def _judged(self) -> dict[str, Any]:
        """What says how good it is."""
        names = ("accuracy", "accuracy_on", "errors", "images")
        return {name: getattr(self, name) for name in names} | {
            name: self.facts.get(name) for name in ("seeds", "asked", "digests", "wrong", "image_scores")
        }

    def compare(self, other: "Fitted | Mapping[str, Any] | str | os.PathLike[str]") -> Comparison:
        """This network against another that was judged on the same images, such as one of another method.

        `fits["mine"].compare(fits["LAMP"])` is paired by seed: the mean of the differences, how far that may be off,
        and 'better', 'worse', 'within the spread' or, of two seeds, 'too few seeds to tell'. Print it, or read its
        fields. `unequal` lists what else the two differ in: budgets, the network, training data, values, how they were
        trained, or that dense in 8 bits took the place of a fitted network. Networks that were judged on other images
        are refused. The other one may also be what its `to_dict` gave, or a JSON file with that;
        `Comparison.of_records` compares two of these.
        """
        if not isinstance(other, Fitted | Mapping | str | os.PathLike):
            raise MemboundError(f"compare takes what fit gives, not {a_kind(other)}: give a Fitted")
        return compare_records(self._record, other._record if isinstance(other, Fitted) else other)

    @property
    def _record(self) -> dict[str, Any]:
        """What a comparison reads of it."""
        return {"limit": self.limit, **self.facts, **self._judged}

    def save(self, path: str | os.PathLike[str], *, pixels: Preprocess | None = None) -> StoredModel:
        """Write the model file, which `mb.load` runs.

        `pixels` says how pixels became the floats that the network was trained on, as `mb.fit` takes it: the file then
        takes pixels, and pictures. It may not exceed the budget with that.
        """
        state = self.model.state_dict()
        if pixels is None:
            return self.files.write(path, state)
        limit = (
            self.limit if self.size == self.file_bytes <= self.limit else None
        )  # of the file, if that is bounded
        return with_pixels(self.files, state, pixels, self.facts, limit).write(path, state)

    def whole(self) -> StoredModel | None:
        """The network without a bound, for races of its speed; None of an ensemble, or of another width than dense."""
        if self.members or self.facts.get("width", 1.0) != 1.0:
            return None
        files = replace(self.files, values="f32", types={}, activations={})
        return files.stored(files.dense_state())

    def report(self, path: str | os.PathLike[str], *, network: str = "", data: str = "") -> None:
        """Write the page that `membound fit` writes beside its file: one HTML file that loads nothing."""
        write_page([self], path, network=network, data=data)

    def to_dict(self) -> dict[str, Any]:
        """All but the network itself, for `json.dumps`: fields and properties, and `facts["training"]` as `training`.

        `strategy` is the method, or the name of your own score; then `strategy_source` is a digest of its source, as
        far as that can be read. `environment` has the hardware and the versions of this process, in a checkout with
        membound's commit. Numbers that are not finite are None.
        """
        names = (
            "name",
            "seeds",
            "accuracies",
            "mean",
            "std",
            "verdict",
            "no_better_than_guessing",
            "accuracy",
            "accuracy_on",
            "errors",
            "images",
            "limit",
            "size",
            "file_bytes",
            "values",
        )
        asked, against = self.facts.get("asked", {}), self.against_dense
        found = {name: asked.get(name) for name in ("strategy", "strategy_source")}
        found |= {name: getattr(self, name) for name in names}
        found["against_dense"] = None if against is None else against.to_dict()
        rest = {name: getattr(self, name) for name in ("members", "dense", "history", "facts")}
        about = {"training": self.facts.get("training"), "environment": environment()}
        plain: dict[str, Any] = json_values(found | about | rest)
        return plain

    def __repr__(self) -> str:
        bound = f"{self.name!r}: " if self.name else ""
        guessing = f", {say_guess(self.facts)}" if self.no_better_than_guessing else ""
        cut = say_cut(self.facts)
        after = "" if cut is None else f"; {cut}"
        return (
            f"Fitted({bound}{self._show_size()}, {self._show_judged()}{guessing}{self._show_dense()}{after})"
        )

    def _show_judged(self) -> str:
        """The accuracy; of several seeds mean ± standard deviation."""
        if self.mean is None:
            return self._show(self.accuracy)
        what = "accuracy" if self.errors is not None else self.facts.get("score_name", "score")
        return f"{what} {self._show_number(self._judged)} on {self.accuracy_on} over {len(self.seeds)} seeds"

    def _show_number(self, net: Mapping[str, Any]) -> str:
        seeds = net.get("seeds")
        if seeds is not None:
            return show_seeds(seeds, Score(percent=self.errors is not None))
        return show_own(net["accuracy"]) if self.errors is None else f"{net['accuracy']:.2f} %"

    def _show_dense(self) -> str:
        """What the dense network reaches, and in 8 bits where that fits the same budget."""
        dense = self.dense or {}
        if dense.get("accuracy") is None:
            return ""
        shown = f", dense {self._show_number(dense)}"
        int8 = dense.get("int8") or {}
        if self.facts.get("is_dense_in_8_bits"):
            shown += f"; {TAKEN}"
        elif self.facts.get("fits_in_8_bits") and int8.get("accuracy") is not None:
            shown += f", dense in 8 bits {self._show_number(int8)}"
        return shown

    def _show_size(self) -> str:
        """Bytes of the file, or those of a microcontroller, and the budget where it was not used."""
        micro = self.facts.get("micro")
        if micro is None:
            return f"{self.file_bytes:,}{self._show_unused(self.file_bytes)} bytes"
        flash = micro["flash_bytes"]
        return f"{flash:,}{self._show_unused(flash)} bytes of flash, {micro['ram_bytes']:,} of RAM"

    def _show_unused(self, size: int) -> str:
        """What the budget allows, where a part of it is left; its notes say why."""
        return f" of {self.limit:,}" if size == self.size < NEARLY * self.limit else ""

    def _show(self, accuracy: float | None) -> str:
        if accuracy is None:
            return "accuracy not measured"
        if self.errors is None:  # a score of the user's own
            return f"{self.facts.get('score_name', 'score')} {show_own(accuracy)} on {self.accuracy_on}"
        return f"accuracy {accuracy:.2f} % on {self.accuracy_on}"

    def _repr_html_(self) -> str:
        networks = [] if self.dense is None else [("dense", self.dense)]
        if self.dense is not None and self.dense.get("int8"):
            networks.append(("dense, 8 bits", self.dense["int8"]))
        networks.append(
            (self.name or "fitted", {**self.facts, "accuracy": self.accuracy, "limit": self.limit})
        )
        sizes = (
            ["file bytes", "memory", "latency"]
            if "micro" not in self.facts
            else ["flash", "RAM", "file bytes"]
        )
        rows = [
            [
                name,
                self._show(facts["accuracy"]),
                *map(partial(_show, facts), sizes),
                f"{facts['nonzeros']:,}",
            ]
            for name, facts in networks
        ]
        head = ["network", "", *sizes, "nonzeros"]
        layers = show_layers(self.facts["layers"])
        title = f"{self._show_size()}, {self._show_judged()}"
        return html_block(
            title, html_table(head, rows, words=2), f"<details><summary>layers</summary>{layers}</details>"
        )


def _show(facts: Mapping[str, Any], size: str) -> str:
    """A cell of a table."""
    shown = {
        "file bytes": f"{facts['file_bytes']:,}",
        "memory": f"{facts.get('memory_bytes', 0):,}",
        "latency": show_milliseconds(facts.get("latency_ms")),
        "flash": show_flash(facts),
        "RAM": show_ram(facts),
    }
    return shown[size]
