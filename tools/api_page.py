"""docs/API.md, the Python reference, made of the docstrings, so that it reads the same in a checkout and on the site.

python tools/api_page.py            writes it

Signatures and fields are read from the source, not from running objects: so the page is the same on every version of
Python.
"""

import ast
import inspect
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

import membound
from membound.search.option import options_of

PAGE = Path(__file__).parents[1] / "docs" / "API.md"
WIDTH = 100
EXAMPLE = re.compile(r"(?:^ *>>> .*\n?)(?:^.+\n?)*", re.MULTILINE)  # up to the next empty line
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Entry:
    """A name of the reference: which of its members are shown (all that are public), and whether it is called."""

    name: str
    members: tuple[str, ...] | None = None
    called: bool = True


@dataclass(frozen=True)
class Section:
    """A heading, the text below it, the docstring of a module, and names."""

    title: str
    level: int
    entries: tuple[Entry, ...] = ()
    text: str = ""
    module: str | None = None


def _entries(prefix: str, names: str) -> tuple[Entry, ...]:
    return tuple(Entry(f"{prefix}.{name}") for name in names.split())


HANDLE = ("progress", "report", "projected", "project_", "finish", "detach", "state_dict", "load_state_dict")
SECTIONS = (
    Section(
        "Train",
        2,
        (
            Entry("membound.attach"),
            Entry("membound.Regularizer", HANDLE, called=False),
            Entry("membound.train.reports.Report"),
            Entry("membound.train.reports.LayerReport"),
        ),
    ),
    Section(
        "Updates",
        2,
        (
            Entry("membound.Update", ("scheduled", "describe")),
            Entry("membound.train.updates.Moment"),
            *_entries("membound", "l2_decay l1_subgradient l1_shrink l0_project hold palette chain"),
        ),
        module="membound.train.updates",
    ),
    Section(
        "Schedules", 2, _entries("membound", "ramp cosine steps constant"), module="membound.train.schedules"
    ),
    Section(
        "Fit",
        2,
        (
            Entry("membound.fit"),
            Entry("membound.Fitted", called=False),
            Entry("membound.Comparison", ("of", "of_records")),
            Entry("membound.Stages", ("read",)),
            Entry("membound.write_report"),
            Entry("membound.ray_cluster"),
        ),
    ),
    Section(
        "What a fit is asked for",
        2,
        (
            *(
                Entry(f"membound.search.request.{name}", ())
                for name in ("Bound", "Choices", "Place", "Examples")
            ),
            Entry("membound.search.request.Watch"),
        ),
        "The keywords of `fit` are the fields of these records, and `membound fit` has an option for each that a\n"
        "command line can say.",
    ),
    Section(
        "Deploy",
        2,
        (
            *_entries("membound", "save load"),
            Entry("membound.Net", called=False),
            Entry("membound.run.net.Memory"),
            Entry("membound.inspect"),
            Entry("membound.Inspection", (), called=False),
            Entry("membound.export_onnx"),
            Entry("membound.export.onnx_file.OnnxFile"),
            *_entries("membound", "export_cpp export_cpp_file export_c"),
            Entry("membound.MicroNet", called=False),
            Entry("membound.run.micro_net.MicroMemory"),
            Entry("membound.micro.cost.Estimate"),
        ),
    ),
    Section(
        "Data",
        2,
        _entries(
            "membound.data",
            "load Dataset Split ArraySplit FolderSplit Preprocess validation_split subsample bag describe Augment "
            "mean_channels std_channels channel_moments mean_image available",
        ),
    ),
    Section(
        "Zoo",
        2,
        _entries(
            "membound.zoo",
            "lenet cifar10_quick alexnet efficientnet_lite0 resnet8 mobilenet_v1 ds_cnn names build build_for "
            "load_caffemodel read_caffemodel read_binaryproto Solver",
        ),
    ),
    Section(
        "Errors",
        2,
        _entries(
            "membound", "MemboundError DataError ModelError RuleError TrainingError Diverged WeightsError"
        ),
    ),
)


def make_page() -> str:
    parts = [
        "# Python reference\n",
        "Everything is in `import membound as mb`, unless another import is shown. Examples also have\n"
        "`import numpy as np`, `import torch`, and `from torch import Tensor, nn`.\n"
        "[Supported operators](OPERATORS.md) lists what a network may contain.\n"
        "This page is made of the docstrings, by `python tools/api_page.py`.\n",
        "\n".join(_contents(section) for section in SECTIONS) + "\n",
    ]
    for section in SECTIONS:
        parts.append(f"{'#' * section.level} {section.title}\n")
        if section.module is not None:
            parts.append(_document(import_module(section.module).__doc__))
        if section.text:
            parts.append(section.text + "\n")
        for entry in section.entries:
            parts.append(_describe(entry))
            if entry.name == "membound.fit":
                parts.append(_keywords())
    return "\n".join(parts)


def _contents(section: Section) -> str:
    links = [f"[{shown.rpartition('.')[2]}](#{_anchor(shown)})" for shown in map(_shown, section.entries)]
    return f"- [{section.title}](#{section.title.lower().replace(' ', '-')}): {', '.join(links)}"


def _anchor(heading: str) -> str:
    """As GitHub and the site make it of a heading.

    >>> _anchor("mb.data.ArraySplit")
    'mbdataarraysplit'
    """
    return heading.lower().replace(".", "")


def _shown(entry: Entry) -> str:
    """The name as a user writes it."""
    module, _, name = entry.name.rpartition(".")
    if module in ("membound", "membound.data", "membound.zoo"):
        return f"mb{module.removeprefix('membound')}.{name}"
    return name


def find(name: str) -> tuple[ModuleType, Function | ast.ClassDef]:
    """The module that defines a public name, and the definition there."""
    module, _, last = name.rpartition(".")
    home = membound._HOME.get(last, module) if module == "membound" else module
    found = getattr(import_module(home), last)
    place = import_module(found.__module__)
    assert place.__file__ is not None
    tree = ast.parse(Path(place.__file__).read_text())
    # Of overloads the last one is what runs.
    (*_, node) = (
        each for each in tree.body if isinstance(each, Function | ast.ClassDef) and each.name == last
    )
    return place, node


def _describe(entry: Entry) -> str:
    place, node = find(entry.name)
    shown = _shown(entry)
    parts = [f"### {shown}\n"]
    if not shown.startswith("mb."):
        parts.append(f"`from {entry.name.rpartition('.')[0]} import {shown}`\n")
    if isinstance(node, ast.ClassDef):
        parts += _describe_class(entry, place, node, shown)
    else:
        parts += [_code(_signature(shown, node)), _document(ast.get_docstring(node))]
    return "\n".join(parts)


def _describe_class(entry: Entry, place: ModuleType, node: ast.ClassDef, shown: str) -> list[str]:
    parts = []
    methods = {each.name: each for each in node.body if isinstance(each, Function)}
    fields = [
        each for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
    is_record = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
    if not is_record and entry.called and "__init__" in methods:
        parts.append(_code(_signature(shown, methods["__init__"], skip=1)))
    parts.append(_document(ast.get_docstring(node)))
    if is_record and fields:
        parts.append(_table(fields, place, getattr(place, node.name)))
    wanted = (
        [name for name in methods if not name.startswith("_")] if entry.members is None else entry.members
    )
    parts += [_describe_member(shown, methods[name]) for name in wanted]
    return parts


def _describe_member(owner: str, node: Function) -> str:
    kinds = {ast.unparse(each) for each in node.decorator_list}
    if kinds & {"property", "cached_property"}:
        returns = "" if node.returns is None else f": {_type(node.returns)}"
        head = f"{node.name}{returns}"
    elif kinds & {"classmethod", "staticmethod"}:
        head = _signature(f"{owner}.{node.name}", node, skip=int("classmethod" in kinds))
    else:
        head = _signature(node.name, node, skip=1)
    title = f"#### {owner.rpartition('.')[2]}.{node.name}\n\n{_code(head)}"
    text = ast.get_docstring(node)
    return title if text is None else f"{title}\n{_document(text)}"


def _table(fields: list[ast.AnnAssign], place: ModuleType, record: type) -> str:
    """The fields of a record: what the command line's help says of each, or the comment behind it."""
    helps = _helps(record)
    rows = ["| field | type | default | |", "|---|---|---|---|"]
    for each in fields:
        assert isinstance(each.target, ast.Name)
        if each.target.id.startswith("_"):
            continue
        said = helps.get(each.target.id) or _comment(place, each)
        default = "" if each.value is None else f"`{_default(each.value)}`"
        rows.append(_row(f"`{each.target.id}`", f"`{_type(each.annotation)}`", default, said))
    return "\n".join(rows) + "\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _helps(record: type) -> dict[str, str]:
    """What the command line says of fields, in Python's words; --no-dense says what leaving it out does not."""
    return {
        name: f"`False`: {option.help[0].lower()}{option.help[1:]}"
        if (option.word or "").startswith("no-")
        else _in_python(option.help)
        for name, option in options_of(record).items()
    }


def _in_python(text: str) -> str:
    """What is repeated on the command line is a list, and what is typed there a string."""
    for typed, written in PYTHONS.items():
        text = text.replace(typed, written)
    return text


def _comment(place: ModuleType, field: ast.AnnAssign) -> str:
    """What stands behind a field."""
    assert place.__file__ is not None
    line = Path(place.__file__).read_text().splitlines()[(field.end_lineno or 1) - 1]
    comment = re.search(r"  # (?!type:)(.*)$", line)
    return comment[1] if comment else ""


PYTHONS = {
    "; repeatable.": ", or a list of them.",
    "such as 20KiB or 10% of dense": "such as '20 KiB', or '10%' of dense",
    "such as 4000 or 10%": "such as 4000 or '10%'",
    "such as 5ms": "such as '5 ms'",
    "own, at the same bytes: 1,1.5,2.": "own, at the same bytes: [1, 1.5, 2].",
    "or package.module:function, which scores weights": "or a function that scores weights",
    "run the same command again": "make the same call again",
    "default: 80MHz": "default: '80 MHz'",
}
RECORDS = ("Bound", "Choices", "Place", "Examples")  # whose fields are the keywords of fit
GIVEN = {  # what neither a command's help nor a comment says, because it is data or code
    "train_data": "What networks are trained on; see above",
    "val_data": "What choices are made on; without it, images held out of `train_data`",
    "test_data": "What judges at the end, and chooses nothing",
    "preprocess": "How examples are prepared; goes into the file (default: as the data needs it)",
    "pixels": "How pixels became the float examples that are given: then the file takes pixels",
    "classes": "The names of the classes, in the order of their numbers",
    "stages": "Counts of layers, tightened as long as accuracy allows: a `Stages`, or its file",
    "loss": "A function of outputs and targets; default: what the targets call for",
    "score": "A function of outputs and targets, higher is better; default: accuracy, or as `loss`",
    "pretrained": "Whether the network comes with trained weights: its rates and its ramp are those of a fine-tuning",
    "workers": "Who trains: `ray_cluster(...)`, for one; default: the process that calls `fit`",
    "watch": "Who is told how far it is; a `Watch`",
    "progress": "`False`: no lines on stderr",
}


def _keywords() -> str:
    """All keywords of fit in one table, from the records that they fill."""
    found: dict[str, tuple[ast.AnnAssign, str]] = {}
    for name in RECORDS:
        place, node = find(f"membound.search.request.{name}")
        assert isinstance(node, ast.ClassDef)
        helps = _helps(getattr(place, name))
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                key = each.target.id
                found[key] = each, GIVEN.get(key) or helps.get(key) or _comment(place, each)
    if missing := [name for name, (_, said) in found.items() if not said]:
        raise ValueError(f"say in GIVEN what these keywords of fit are: {', '.join(missing)}")
    rows = ["All keywords:\n", "| keyword | type | default | |", "|---|---|---|---|"]
    for name, (each, said) in found.items():
        default = "" if each.value is None else f"`{_default(each.value)}`"
        rows.append(_row(f"`{name}`", f"`{_type(each.annotation)}`", default, said))
    return "\n".join(rows) + "\n"


def _default(value: ast.expr) -> str:
    """`field(default_factory=dict)` is what it makes."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        given = {each.arg: each.value for each in value.keywords}
        if "default" in given:
            return ast.unparse(given["default"])
        made = given["default_factory"]
        return "..." if isinstance(made, ast.Lambda) else f"{ast.unparse(made)}()"
    return ast.unparse(value)


def _type(annotation: ast.expr) -> str:
    """Without what is for the command line, and without quotation marks."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)
        annotation = annotation.slice.elts[0]
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return ast.unparse(annotation)


def _signature(name: str, node: Function, skip: int = 0) -> str:
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    words = [_parameter(each, default) for each, default in zip(plain, defaults, strict=True)][skip:]
    if given.vararg is not None:
        words.append("*" + _parameter(given.vararg, None))
    elif given.kwonlyargs:
        words.append("*")
    words += [
        _parameter(each, default) for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg is not None:
        words.append("**" + _parameter(given.kwarg, None))
    returns = "" if node.returns is None or node.name == "__init__" else f" -> {_type(node.returns)}"
    line = f"{name}({', '.join(words)}){returns}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){returns}"


def _parameter(given: ast.arg, default: ast.expr | None) -> str:
    kind = "" if given.annotation is None else f": {_type(given.annotation)}"
    if default is None:
        return given.arg + kind
    return f"{given.arg}{kind} = {ast.unparse(default)}" if kind else f"{given.arg}={ast.unparse(default)}"


def _code(text: str) -> str:
    return f"```python\n{text}\n```\n"


def _document(text: str | None) -> str:
    """A docstring as Markdown: its examples as code, which Markdown would take for quotations."""
    plain = inspect.cleandoc(text or "")
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", plain).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(make_page())
