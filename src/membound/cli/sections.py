"""What --help shows: a command's arguments and options, in sections where it has many of them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand

Sections = Mapping[str, Sequence[str]]
DATA = ("data", "size", "layout", "mean", "cache", "skip_corrupt")
WEIGHTS = ("init", "name")
FIT: Sections = {
    "Budget": (
        "budget", "ram", "latency", "nonzeros", "within", "stages", "target", "clock", "compiled", "threads", "batch",
        "isa",
    ),
    "Data": DATA,
    "Weights to start from": WEIGHTS,
    "Output": ("out", "report", "no_report", "hub", "as_json", "verbose"),
    "What is stored": ("values", "prefer", "members", "average", "activations"),
    "Training": (
        "effort", "steps", "batch_size", "lr", "weight_decay", "solver", "augment", "smoothing", "precision",
        "dense", "seed", "seeds",
    ),
    "Teacher and width": ("teacher", "teacher_init", "temperature", "teacher_part", "widths"),
    "Which layers keep how much": (
        "strategy", "layers", "protect", "depthwise", "every", "validation", "greedy_step", "candidate_steps",
    ),
    "Where it runs": ("device", "run_dir", "tensorboard", "ray"),
}  # fmt: skip
TRAIN: Sections = {
    "Rules": ("keep", "ramp", "every", "levels", "shrink", "l1", "decay"),
    "Data": (*DATA, "augment", "validation", "subsample", "bag"),
    "Weights to start from": WEIGHTS,
    "Output": ("out", "as_json", "evaluate_every"),
    "Training": (
        "steps", "batch_size", "lr", "weight_decay", "warmup", "solver", "precision", "accumulate", "seed",
    ),
    "Where it runs": ("device", "run_dir", "checkpoint_seconds", "tensorboard", "shard"),
}  # fmt: skip
EXPORT: Sections = {
    "A model file": ("out", *WEIGHTS, "values", "prefer", "shape"),
    "For a microcontroller": ("c", "prefix", "clock", "compiled", "input_unit", "int8"),
    "For an app": ("cpp", "cpp_file", "engine"),
    "For other runtimes": ("onnx", "sparse", "web", "hub"),
    "Data": ("data", "mean", "layout", "size"),
    "Output": ("as_json",),
}
REST = "Other options"  # --help, and what no section names
_TYPE = re.compile(r" <[^<>]+>$")  # what typer says of an argument behind its name, as in NET <str>


def in_sections(sections: Sections) -> type[TyperCommand]:
    """The class of a command whose help has these sections, in this order."""

    class Sectioned(TyperCommand):
        def collect_usage_pieces(self, ctx: Any) -> list[str]:
            return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

        def format_options(self, ctx: Any, formatter: Any) -> None:
            place = {name: title for title, names in sections.items() for name in names}
            found: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{title: [] for title in sections}}
            given = self.get_params(ctx)
            order = {name: number for number, name in enumerate(place)}
            for each in sorted(given, key=lambda each: order.get(str(each.name), len(order))):
                record = each.get_help_record(ctx)
                if record is not None:
                    is_option = each.param_type_name == "option"
                    title = (
                        place.get(str(each.name), REST if sections else "Options")
                        if is_option
                        else "Arguments"
                    )
                    found.setdefault(title, []).append((_TYPE.sub("", record[0]), record[1]))
            for title, records in found.items():
                if records:
                    with formatter.section(title):
                        formatter.write_dl(records, col_max=26)

    return Sectioned
