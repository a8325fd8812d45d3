"""Options that several commands share, and how their values are read."""

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from membound.errors import MemboundError

# Named here again, because the zoo's own list is where torch is imported, and the data's where numpy is.
NETS = ("lenet", "cifar10_quick", "alexnet", "efficientnet_lite0", "resnet8", "mobilenet_v1", "ds_cnn")
NETS_HELP = ", ".join(NETS).replace("cifar10_quick", "cifar10_quick (or quick)")
DATA = ("mnist", "cifar10")
FEW_BITS = ("p8", "p7", "p6", "p5", "p4", "p3", "p2", "p1")
VALUES = ("f32", "f16", *FEW_BITS)


def completed(*names: str) -> Callable[[str], list[str]]:
    """What a shell completes a word to; where nothing fits, it goes on to names of files.

    >>> completed("mnist", "cifar10")("m")
    ['mnist']
    """
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]  # typer wants this name


Net = Annotated[
    str,
    typer.Argument(
        metavar="NET",
        help=f"{NETS_HELP}, an .onnx file, or your own package.module:callable.",
        autocompletion=completed(*NETS, "quick"),
    ),
]
DATA_HELP = f"{', '.join(DATA)}, a folder (of class folders, or images/ and masks/), or an .npz file."
Data = Annotated[str, typer.Option("--data", metavar="DATA", help=DATA_HELP, autocompletion=completed(*DATA))]
Layout = Annotated[
    str | None,
    typer.Option(
        metavar="AXES",
        help="Layout of an .npz, where it cannot be told: NHW, NCHW, NHWC, or NF and NCL for features.",
        autocompletion=completed("NHW", "NCHW", "NHWC", "NF", "NCL"),
    ),
]


def _size(text: str) -> Any:
    """
    >>> _size("224"), _size("192x320")
    (224, (192, 320))
    """
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdecimal() and 1 <= int(part) <= 4096 for part in parts):
        raise MemboundError(
            f"--size {text}: give the side of squares, such as 224, or height x width, such as 192x320; 4096 at most"
        )
    return int(text) if len(parts) == 1 else tuple(map(int, parts))


Size = Annotated[
    Any,
    typer.Option(
        parser=_size,
        metavar="PIXELS|HxW",
        help="Read the images of a folder at this size: squares, or height x width.",
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Keep the images of a folder here, decoded, to read them fast."),
]
SkipCorrupt = Annotated[
    bool, typer.Option("--skip-corrupt", help="Leave out images of a folder that cannot be decoded.")
]
Mean = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Mean to subtract: image, channel, none, imagenet, or R,G,B/R,G,B (mean/std of pixels from 0 to 1, or to "
        "255); default: what the weights or the network want.",
        autocompletion=completed("image", "channel", "none", "imagenet"),
    ),
]
Init = Annotated[
    Path | None,
    typer.Option(
        metavar="WEIGHTS", help="Weights to load: .safetensors, .caffemodel, .pt, or a run directory."
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name", metavar="CAFFE=MODULE", help="Which module a Caffe layer's weights go to; repeatable."
    ),
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, metavar="N", help="Random seed.")]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="auto, cpu, cuda, or cuda:N.",
        autocompletion=completed("auto", "cpu", "cuda"),
    ),
]
Solver = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="caffe, sgd or adamw (default: caffe for cifar10_quick and alexnet, else sgd).",
        autocompletion=completed("caffe", "sgd", "adamw"),
    ),
]
Clock = Annotated[
    str | None,
    typer.Option(
        "--clock",
        metavar="FREQUENCY",
        help="For a microcontroller: the clock that times are estimated for (default: 80MHz).",
    ),
]
Compiled = Annotated[
    str,
    typer.Option(
        "--compiled",
        metavar="HOW",
        show_default=False,  # the text says it
        help="For a microcontroller: the level that the C is compiled at, Os (default) or O2 (faster, more flash).",
        autocompletion=completed("Os", "O2"),
    ),
]
CompiledAs = Annotated[
    str | None,
    typer.Option(
        "--compiled",
        metavar="HOW",
        help="For a microcontroller: the level that the C is compiled at, Os (less flash) or O2 (faster); default: as "
        "the last export into the folder, or Os.",
        autocompletion=completed("Os", "O2"),
    ),
]


def _engine(help: str, *names: str) -> Any:
    return typer.Option("--engine", metavar="ENGINE", help=help, autocompletion=completed(*names))


Engine = Annotated[
    str,
    _engine(
        "How the app computes: float, or int8 (convolutions in 8-bit integers; faster for files that keep many "
        "weights). Takes any model FILE: --int8 is for microcontrollers only.",
        "float",
        "int8",
    ),
]
AnyEngine = Annotated[
    str,
    _engine(
        "How a model file is run: float; int8 (convolutions in 8-bit integers; takes any file); or micro (as a "
        "microcontroller does; takes a file of fit --target micro or export --int8).",
        "float",
        "int8",
        "micro",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def engine(name: str) -> Literal["float", "int8"]:
    """An engine that runs on CPUs."""
    if name == "micro":
        raise MemboundError(
            "the engine micro, a microcontroller's integers, is for membound evaluate and membound run: choose float "
            "or int8"
        )
    if name not in ("float", "int8"):
        raise MemboundError(f"there is no engine {name!r}: choose float or int8")
    return "int8" if name == "int8" else "float"


def check_engine(name: str) -> None:
    """Whether there is an engine of this name."""
    if name not in ("float", "int8", "micro"):
        raise MemboundError(f"there is no engine {name!r}: choose float, int8 or micro")


def open_in_integers(file: Path) -> Any:
    """The network in a model file, as a microcontroller computes it; of one that is not calibrated, how to do that."""
    from membound.errors import Uncalibrated
    from membound.run.evaluation import open_in_integers

    try:
        return open_in_integers(file)
    except Uncalibrated:
        raise MemboundError(
            f"{file} is not calibrated for a microcontroller, it does not say how its values are rounded to int8: "
            f"write a file that does, membound export {shlex.quote(str(file))} --int8 NEW.safetensors --data DATA"
        ) from None


@dataclass(frozen=True)
class Source:
    """What a network starts from, and how images are read."""

    init: Init = None
    name: Names = None
    mean: Mean = None
    layout: Layout = None
    size: Size = None
    cache: Cache = None
    skip_corrupt: SkipCorrupt = False

    def load(self, net: str, data: str, seed: int) -> tuple[Any, Any, Any]:
        """The network or what makes it, the data, and how images are prepared where that is known."""
        from functools import partial

        from membound import data as sets
        from membound import zoo
        from membound.data.source import has_own_size
        from membound.train.job import image_size
        from membound.train.preprocessing import preprocess_for
        from membound.train.weights import load_weights_, saved_facts
        from membound.zoo.networks import spec_takes_width

        names = pairs("--name", self.name, str)
        check_sample(net, data, self.init, names)
        # A folder is split and read as it was for training, so that no image trained on is tested on.
        saved = {} if self.init is None else saved_facts(self.init)
        side = self.size or image_size(net, data, saved.get("image_size"))
        dataset = sets.load(
            data, layout=self.layout, size=side, seed=saved.get("seed", seed),
            skip_corrupt=self.skip_corrupt, cache=self.cache,
        )  # fmt: skip
        tell_left_out(dataset)
        if side is None and not has_own_size(data):
            tell_size(dataset)
        model = network(net, dataset, seed)
        found = None if self.init is None else load_weights_(model, self.init, names)
        if self.mean is not None:
            found = preprocess_for(model, dataset.train, self.mean)
        if self.has_weights(net):
            return model, dataset, found
        make = partial(zoo.build_for, net, len(dataset.classes), dataset.shape[0])
        if spec_takes_width(net):
            make = partial(make, width=1.0)  # a width that can be searched
        return make, dataset, found

    def has_weights(self, net: str) -> bool:
        """Whether the network starts from weights that are trained."""
        from membound.zoo.onnx_file import is_onnx

        return self.init is not None or is_onnx(net)


def check_there(net: str, data: str) -> None:
    """Refuse a misspelt network, module or data set before torch is loaded."""
    from membound.data import source
    from membound.specs import check_early

    source.check_there(data)
    if net not in (*NETS, "quick") and not net.lower().endswith((".onnx", ".tflite", ".litert")):
        check_early(net, [*NETS, "quick"])


@contextmanager
def reading() -> Iterator[bool]:
    """Says that a network and data are read, which may take long; a log has a line where torch comes before them.

    Gives whether it has such lines.
    """
    if not sys.stderr.isatty():
        # One process of torchrun tells for all.
        tells = "torch" not in sys.modules and os.environ.get("RANK", "0") == "0"
        if tells:
            typer.echo("loading torch, the network and the data", err=True)
        yield tells
        return
    from rich.console import Console

    with Console(stderr=True).status("reading the network and the data"):
        yield False


NOTHING_SAVED = (
    "nothing was saved, as there is no --run-dir: run the command again, with one if it may be stopped"
)


class Stopped(Exception):
    """A person has interrupted the command; the message says what was saved. (typer swallows KeyboardInterrupt.)"""


def pairs(option: str, values: Sequence[str] | None, convert: Callable[[str], Any]) -> dict[str, Any]:
    """Repeated NAME=VALUE options as a dictionary, in the order given.

    >>> pairs("--keep", ["fc1=0.05", "conv*=200"], number)
    {'fc1': 0.05, 'conv*': 200}
    """
    found: dict[str, Any] = {}
    for text in values or ():
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise MemboundError(
                f"{option} {text!r} is not NAME=VALUE, as in {option} fc1={16 if option == '--levels' else 0.05}"
            )
        if name in found:
            raise MemboundError(
                f"{option} is given twice for {name!r}: the first match wins, so leave one out"
            )
        try:
            found[name] = convert(value)
        except ValueError:
            raise MemboundError(f"{option} {text!r}: {value!r} is not a number") from None
    return found


def number(text: str) -> int | float:
    """A count where it is written as a whole number, else a fraction.

    >>> number("200"), number("0.05"), number("1.0"), number("5%")
    (200, 0.05, 1.0, 0.05)
    """
    if text.endswith("%"):
        return float(text[:-1]) / 100
    return int(text) if text.lstrip("+-").isdecimal() else float(text)


def levels(text: str) -> int:
    """How many values a palette has.

    >>> levels("16")
    16
    """
    if not text.isdecimal() or not 1 <= int(text) <= 256:
        raise MemboundError(
            f"--levels takes a whole number from 1 to 256, as in --levels fc1=16: got {text!r}"
        )
    return int(text)


def check_sample(net: str, data: str, init: Path | None, names: dict[str, str]) -> None:
    """What cannot be right about a network and its weights, before a data set is downloaded for it."""
    from membound.data.source import sample
    from membound.train.job import check_takes
    from membound.train.weights import load_weights_

    dataset = sample(data)
    if dataset is None:
        return
    model = network(net, dataset, 0)
    check_takes(model, dataset, None if init is None else load_weights_(model, init, names))


def network(net: str, dataset: Any, seed: int) -> Any:
    """A fresh network, told how many classes and channels the data has where it can be."""
    import torch

    from membound import zoo

    torch.manual_seed(seed)
    return zoo.build_for(net, len(dataset.classes), dataset.shape[0])


def tell_left_out(dataset: Any) -> None:
    """How many images could not be decoded, where they are left out."""
    for note in dataset.notes:
        if note.startswith("images left out"):
            typer.echo(note, err=True)


def tell_layout(dataset: Any) -> None:
    """What the shape of floats was taken for, where it could be something else."""
    from membound.data.npz import reading_notes
    from membound.report.advice import in_options

    for note in reading_notes(dataset):
        typer.echo(in_options(note), err=True)


def tell_drawn(dataset: Any) -> None:
    """That a folder without train and test was split, and so only a part of it counts."""
    for note in dataset.notes:
        if note.startswith("the test split was drawn"):
            typer.echo(f"{note}; to take them all: --split all", err=True)


def tell_size(dataset: Any) -> None:
    """At which size a folder's images are read where nobody said it: it decides how long training takes."""
    if len(dataset.shape) == 3:
        side = dataset.shape[1]
        typer.echo(
            f"images are resized to {side} pixels on their shorter side and cropped to the center square of {side} x "
            f"{side}, which the network then takes in an app, too; --size gives another: smaller ones train faster, "
            "and HEIGHTxWIDTH keeps all of pictures that are not square",
            err=True,
        )


def print_json(facts: Any) -> None:
    """JSON has no NaN and no infinity, and most readers refuse them: they are null."""
    from membound.report.text import json_values

    typer.echo(json.dumps(json_values(facts), allow_nan=False))


def top5(facts: dict[str, Any]) -> str:
    """The part of images whose class is among the five best, where there are more than five classes."""
    value = facts.get("top5_accuracy")
    return "" if value is None else f", top-5 {value:.2f} %"
