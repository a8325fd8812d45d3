"""What a fit is asked for: what is bounded, how networks are trained, where the work runs, and by which examples.

A field is declared here, with the help of its option on the command line, and named once more in `Keywords`, for type
checkers and completion. Nothing here imports torch, so that `membound fit --help` is instant.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from membound.errors import MemboundError, shown
from membound.search.bounds import Average, Bound, Prefer
from membound.search.checks import (
    check_called,
    check_flags,
    check_part,
    check_whole,
    is_number,
    read_classes,
    read_widths,
    take_plain_,
)
from membound.search.option import AUGMENT_HELP, AUGMENT_WORDS, Option
from membound.search.place import Place, Watch
from membound.signatures import MORE, meant
from membound.units import FOR_A_DEVICE, of_python

if TYPE_CHECKING:
    from membound.data import Augment, Preprocess
    from membound.search.stages import Stages
    from membound.search.workshop import Workers
RULES = (
    "fit has no keyword 'rules': they go with a loop of your own, mb.attach(optimizer, model, rules); to compare at "
    "the same bytes, size = mb.save(model, path, example_input).file_bytes, then mb.fit(..., budget=size)"
)
_DEVICE = FOR_A_DEVICE.format(target="target='micro'", budget="budget", ram="ram").replace("with", "With", 1)
_STEPS = "steps? A pass over the data takes images / batch_size of them"
ELSEWHERE = {  # what other libraries call a keyword of fit
    **dict.fromkeys(("epochs", "num_epochs", "iterations"), _STEPS),
    "learning_rate": "lr?",
    **dict.fromkeys(("optimizer", "optim"), "solver? 'sgd', 'adamw' or 'caffe'"),
    **dict.fromkeys(("bits", "quantize", "dtype"), "values? 'p1' to 'p8', 'f16', 'f32' or 'auto'"),
    **dict.fromkeys(("data", "dataset", "train"), "train_data?"),
    **dict.fromkeys(("validation_data", "val"), "val_data?"),
    **dict.fromkeys(("test", "test_set"), "test_data?"),
    **dict.fromkeys(("loss_fn", "criterion"), "loss?"),
    "augmentation": "augment?",
    **dict.fromkeys(("sparsity", "size"), "budget? Bytes of the file, such as '40 KiB' or '10%'"),
    "flash": f"budget? {_DEVICE}",
    **dict.fromkeys(("sram", "arena"), f"ram? {_DEVICE}"),
    **dict.fromkeys(("gpu", "cuda"), "device? 'cpu', 'cuda' or 'auto'"),
    **dict.fromkeys(("verbose", "callbacks"), "progress? True or False"),
}
Scores = Callable[[str, Any], Any]  # of a weight's name and the weight: a score for each element
STRATEGIES = {
    "global": "lamp",
    "magnitude": "magnitude",
    "uniform": "uniform",
    "greedy": "lamp",
}  # and scores
WORDS_OF = (
    f"choose {', '.join(STRATEGIES)}, or a function of a weight's name and the weight that gives scores (on the "
    "command line package.module:function)"
)
SOLVERS = ("caffe", "sgd", "adamw")
TEACHERS = (
    "dense",
    "auto",
    "none",
)  # that have a name: the network to compare with, a wider one trained first
PRECISIONS = ("float32", "bf16")
EFFORTS = ("quick", "normal", "best")
MOST_SEED, MOST_SEEDS = 2**32 - 1, 100
NUMBERS = (
    "steps", "batch_size", "lr", "weight_decay", "widths", "smoothing", "temperature", "teacher_part", "every",
    "greedy_step", "candidate_steps", "seed", "seeds",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Choices:
    """How networks are trained and searched; None is the default of the network or of the length of training.

    - `strategy` says which layer keeps how much: 'global', 'greedy', 'magnitude' or 'uniform'; or a function
      `(name, weight) -> scores` that scores each element: the highest of the whole network stay.
    - `steps` of `batch_size` at the peak learning rate `lr`, with `weight_decay`, by `solver`: 'sgd', 'adamw'
      or 'caffe' (the default of cifar10_quick and alexnet). The final network of a greedy search or of stages goes on
      from a trained one, at half of `lr`. `every` is the number of steps from one projection to the next.
    - `augment` varies training images at random: 'none', 'standard' (what suits the data; the default for CIFAR-10 and
      folders), or 'mirror,shift=4,cutout=8,turn=10,zoom=0.1', any of these; or a `membound.data.Augment`.
    - `effort`: 'quick', 'normal' or 'best' chooses `steps`, `teacher` and `widths`, where these are not given.
    - `widths` are tried at the same bytes, as multiples of the default of `width`, a parameter of the function that
      makes the network; the best on validation images is taken.
    - `smoothing`: what a label leaves to the other classes.
    - `precision`: 'float32', or 'bf16' (autocast), which is faster on most GPUs.
    - `teacher` is a network whose scores are learned beside the labels: 'dense', the network that the result is
      compared with (the default where there is one, for classes); a module, a list of them (averaged), the path of a
      model file, (module, Preprocess) where it takes images prepared otherwise; 'auto', which trains a wider one first;
      or 'none'. `teacher_part` of the loss is the teacher's, both softened by `temperature`.
    - `layers` and `protect` are patterns of layer names: those that are bounded, and those that are left alone.
      `depthwise=True` bounds depthwise convolutions, too.
    - `validation`: training images held out for choices, a count or a fraction.
    - `greedy_step` and `candidate_steps`: the part of a layer that a candidate of the greedy search loses, and the
      steps that it is trained for.
    - `pretrained` says that the weights are not random: the bound tightens from the first step, at a lower rate.
    - `loss(outputs, targets)` and `score(outputs, targets)` are for tasks other than classification. Both are tried
      before anything is trained.
    - `dense=False` trains no dense network to compare with.
    - `seeds` of 2 or more repeat the fit with as many seeds, from `seed` on. The network is the first seed's; mean and
      standard deviation of all are its `mean` and `std`, and `verdict` says whether they differ from dense.
    """

    strategy: Annotated[
        str | Scores | None,
        Option(
            "How layers share the bound: global (LAMP scores, the default), greedy (the paper's "
            "search), uniform, magnitude; or package.module:function, which scores weights.",
            "NAME",
            words=tuple(STRATEGIES),
        ),
    ] = None
    steps: Annotated[
        int | None,
        Option(
            "Training steps for each network (default: the solver's, for networks that Caffe trained; for others 30 "
            "passes, at least 5,000 steps).",
            "N",
            int,
            least=1,
        ),
    ] = None
    batch_size: Annotated[int | None, Option("Images per training step.", "N", int, least=1)] = None
    lr: Annotated[
        float | None,
        Option(
            "Peak learning rate; the final network of a greedy search or of stages trains at half of it.",
            "X",
            float,
        ),
    ] = None
    weight_decay: Annotated[float | None, Option("Weight decay.", "X", float)] = None
    solver: Annotated[
        str | None,
        Option(
            "caffe, sgd or adamw (default: caffe for cifar10_quick and alexnet, else sgd).",
            "NAME",
            words=SOLVERS,
        ),
    ] = None
    augment: Annotated["str | Augment | None", Option(AUGMENT_HELP, "HOW", words=AUGMENT_WORDS)] = None
    effort: Annotated[
        str | None,
        Option(
            "quick (a quarter of the steps), normal (default) or best (five times, a teacher, several widths).",
            "NAME",
            words=EFFORTS,
        ),
    ] = None
    widths: Annotated[
        str | Sequence[float] | None,
        Option("Try these widths, as multiples of the network's own, at the same bytes: 1,1.5,2.", "LIST"),
    ] = None
    smoothing: Annotated[
        float | None,
        Option("Label smoothing: what a label leaves to other classes (default: 0).", "X", float),
    ] = None
    precision: Annotated[
        str | None,
        Option("float32 (default) or bf16, which trains faster on most GPUs.", "TYPE", words=PRECISIONS),
    ] = None
    teacher: Annotated[
        Any,
        Option(
            "Learn from this network, too: dense (the one to compare with; default), a model file, a network with "
            "weights, auto (trains a wider one first) or none.",
            "FILE|NET",
            words=TEACHERS,
        ),
    ] = None
    temperature: Annotated[
        float | None, Option("What softens the scores of teacher and network (default: 3).", "X", float)
    ] = None
    teacher_part: Annotated[
        float | None, Option("The teacher's part of the loss (default: 0.5).", "X", float)
    ] = None
    every: Annotated[int | None, Option("Steps between projections.", "N", int, least=1)] = None
    layers: Annotated[
        str | Sequence[str],
        Option("Bound only these layers, such as 'fc*'; repeatable.", "PATTERN", list[str], "layer"),
    ] = ("*",)
    protect: Annotated[
        str | Sequence[str], Option("Keep these layers dense; repeatable.", "PATTERN", list[str])
    ] = ()
    depthwise: Annotated[bool, Option("Bound depthwise convolutions, too.", reads=bool)] = False
    greedy_step: Annotated[
        float, Option("Fraction of a layer that each greedy candidate drops (default: 0.2).", "X", float)
    ] = 0.2
    candidate_steps: Annotated[
        int,
        Option(
            "Training steps per greedy candidate, or per step of a stage (default: 1000).", "N", int, least=1
        ),
    ] = 1000
    validation: Annotated[
        float,
        Option("Training images held out for choices: a count or a fraction (default: 0.1).", "N"),
    ] = 0.1
    dense: Annotated[
        bool,
        Option(
            "Skip the dense network that results are compared with, and that teaches the others.",
            reads=bool,
            word="no-dense",
        ),
    ] = True
    seed: Annotated[int, Option("Random seed (default: 0).", "N", int, least=0, most=MOST_SEED)] = 0
    seeds: Annotated[
        int,
        Option(
            "Repeat the fit with this many seeds and say mean and spread; the file is the first one's (default: 1).",
            "N",
            int,
            least=1,
            most=MOST_SEEDS,
        ),
    ] = 1
    pretrained: bool = False
    loss: Callable[..., Any] | None = None
    score: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        take_plain_(self, NUMBERS)
        object.__setattr__(self, "validation", of_python(self.validation))  # 1.0 is a fraction, 1 a count
        if hasattr(self.strategy, "scheduled"):  # an mb.Update, whose module imports torch
            raise MemboundError(
                "strategy is an update of mb.attach: that goes with a loop of your own, mb.attach(optimizer, model, "
                "{'*': update}); a strategy is a name, or a function (name, weight) that gives scores",
                about="strategy",
            )
        if not callable(self.strategy) and self.strategy not in (None, *STRATEGIES):
            known = str(self.strategy).lower()
            named = next((name for name, method in STRATEGIES.items() if method == known), None)
            raise MemboundError(
                f"there is no strategy {self.strategy!r}: "
                + (
                    f"{known.upper()} is {named!r}"
                    if named
                    else meant(str(self.strategy), list(STRATEGIES), WORDS_OF)
                ),
                about="strategy",
            )
        if callable(self.strategy):
            check_called("strategy", self.strategy, ("name", "weight"))
        for name in ("steps", "batch_size", "every", "candidate_steps"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        check_whole("seed", self.seed, 0, MOST_SEED)
        check_flags(self, ("depthwise", "dense", "pretrained"))
        check_part("validation", self.validation)
        if isinstance(self.seeds, list | tuple):
            first, count = (self.seeds[0] if self.seeds else 0), len(self.seeds)
            raise MemboundError(
                f"seeds={self.seeds!r}: seeds is how many, from seed on: write seed={first!r}, seeds={max(count, 1)}",
                about="seeds",
            )
        check_whole("seeds", self.seeds, most=MOST_SEEDS)
        if not is_number(self.greedy_step) or not 0 < self.greedy_step < 1:
            raise MemboundError(
                f"greedy_step={self.greedy_step!r}: a number between 0 and 1 is needed", about="greedy_step"
            )
        for name, least in (("lr", "above 0"), ("weight_decay", "of at least 0"), ("temperature", "above 0")):
            value = getattr(self, name)
            if value is None:
                continue
            if not is_number(value) or not 0 <= value < math.inf or (value == 0 and least == "above 0"):
                raise MemboundError(f"{name}={shown(value)}: a finite number {least} is needed", about=name)
        part = self.teacher_part
        if part is not None and not (is_number(part) and 0 <= part <= 1):
            raise MemboundError(
                f"teacher_part={shown(part)}: a number from 0 to 1 is needed", about="teacher_part"
            )
        for name in ("layers", "protect"):
            patterns = getattr(self, name)
            if isinstance(patterns, str):  # one pattern, not its letters
                object.__setattr__(self, name, (patterns,))
                continue
            few = name == "layers" and not patterns
            if not isinstance(patterns, list | tuple) or any(not isinstance(p, str) for p in patterns) or few:
                raise MemboundError(
                    f"{name}={shown(patterns)}: a list of patterns of layer names is needed, such as ['fc*']",
                    about=name,
                )
        if self.effort not in (None, *EFFORTS):
            raise MemboundError(
                f"there is no effort {self.effort!r}: choose {', '.join(EFFORTS)}", about="effort"
            )
        if self.smoothing is not None and not (is_number(self.smoothing) and 0 <= self.smoothing < 1):
            raise MemboundError(
                f"smoothing={self.smoothing!r}: a number from 0 to below 1 is needed", about="smoothing"
            )
        if self.precision not in (None, *PRECISIONS):
            raise MemboundError(
                f"there is no precision {self.precision!r}: choose {', '.join(PRECISIONS)}", about="precision"
            )
        if self.widths is not None:
            object.__setattr__(self, "widths", read_widths(self.widths))
        given = [name for name in ("temperature", "teacher_part") if getattr(self, name) is not None]
        if self.teacher == TEACHERS[-1] and given:
            raise MemboundError(
                f"{' and '.join(given)} without a teacher: name one, or leave this out", about=given
            )
        if self.solver not in (None, *SOLVERS):
            raise MemboundError(
                f"there is no solver {self.solver!r}: choose {', '.join(SOLVERS)}", about="solver"
            )

    @property
    def is_greedy(self) -> bool:
        return self.strategy == "greedy"

    @property
    def layer_score(self) -> str | Scores:
        """What the weights of all layers are compared by."""
        return self.strategy if callable(self.strategy) else STRATEGIES[self.strategy or "global"]

    @property
    def strategy_name(self) -> str:
        """The strategy in a word, for people: of a lambda its line, of a partial and a dataclass also their values.

        >>> Choices(strategy="magnitude").strategy_name, Choices(strategy=lambda name, w: w.abs()).strategy_name
        ('magnitude', 'lambda in line 1')
        """
        return _name_of(self.strategy) if callable(self.strategy) else self.strategy or "global"


def _name_of(function: Any) -> str:
    """
    >>> _name_of(len), _name_of(partial(round, ndigits=2)), _name_of(Choices.is_greedy.fget)
    ('len', 'round(ndigits=2)', 'is_greedy')
    """
    if isinstance(function, partial):
        values = [repr(value) for value in function.args]
        values += [f"{name}={value!r}" for name, value in function.keywords.items()]
        return f"{_name_of(function.func)}({', '.join(values)})"
    if is_dataclass(function):
        return repr(function)
    name = str(getattr(function, "__name__", type(function).__name__))
    code = getattr(function, "__code__", None)
    return f"lambda in line {code.co_firstlineno}" if name == "<lambda>" and code is not None else name


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The data that networks are trained on, chosen by and judged on, and how it is prepared."""

    train_data: Any
    val_data: Any = None
    test_data: Any = None
    preprocess: "Preprocess | None" = None
    pixels: "Preprocess | None" = None
    classes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.classes is not None:
            object.__setattr__(self, "classes", read_classes(self.classes))


class Keywords(TypedDict, total=False):
    """The fields of these records as keywords of fit(), but for the three that may be lists."""

    within: float | None
    latency: str | float | None
    clock: str | float | None
    compiled: str
    threads: int
    stages: "Stages | str | Path | None"
    batch: int
    isa: str
    target: str
    activations: str
    values: str
    prefer: Prefer
    members: int
    average: Average
    strategy: str | Scores | None
    steps: int | None
    batch_size: int | None
    lr: float | None
    weight_decay: float | None
    solver: str | None
    augment: "str | Augment | None"
    effort: str | None
    widths: str | Sequence[float] | None
    smoothing: float | None
    precision: str | None
    teacher: Any
    temperature: float | None
    teacher_part: float | None
    every: int | None
    layers: str | Sequence[str]
    protect: str | Sequence[str]
    depthwise: bool
    greedy_step: float
    candidate_steps: int
    validation: float
    dense: bool
    seed: int
    seeds: int
    pretrained: bool
    loss: Callable[..., Any] | None
    score: Callable[..., Any] | None
    device: str | None
    run_dir: str | Path | None
    tensorboard: bool
    workers: "Workers | None"
    watch: Watch | None
    progress: bool
    val_data: Any
    test_data: Any
    preprocess: "Preprocess | None"
    pixels: "Preprocess | None"
    classes: Sequence[str] | None


def split_keywords(given: Mapping[str, Any]) -> tuple[Bound, Choices, Place, Examples]:
    """The records that these keywords fill; one that there is not is said with those that there are.

    >>> split_keywords({"train_data": None, "budget": 4096, "steps": 100})[1].steps
    100
    """
    records = (Bound, Choices, Place, Examples)
    names = {record: [each.name for each in fields(record)] for record in records}
    known = [name for mine in names.values() for name in mine]
    if unknown := [name for name in given if name not in known]:
        name = str(unknown[0])
        if name == "rules":
            raise MemboundError(RULES)
        instead = f"did you mean {ELSEWHERE[name]}" if name in ELSEWHERE else meant(name, known, more=MORE)
        raise MemboundError(f"fit has no keyword {name!r}: {instead}")
    mine = {record: {name: given[name] for name in names[record] if name in given} for record in records}
    return Bound(**mine[Bound]), Choices(**mine[Choices]), Place(**mine[Place]), Examples(**mine[Examples])
