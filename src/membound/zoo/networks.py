"""A network by name: one of the zoo's, the user's own `package.module:callable`, or an ONNX file."""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from torch import nn

from membound.errors import WeightsError, a_kind
from membound.specs import no_attribute, no_module, split_spec
from membound.zoo.alexnet import AlexNet, alexnet
from membound.zoo.cifar10_quick import Cifar10Quick, cifar10_quick
from membound.zoo.efficientnet_lite0 import efficientnet_lite0
from membound.zoo.lenet import LeNet, lenet
from membound.zoo.onnx_file import is_onnx, read_onnx
from membound.zoo.solver import Solver
from membound.zoo.tiny import ds_cnn, mobilenet_v1, resnet8


@dataclass(frozen=True)
class Network:
    """A network of the zoo, and what is known of it before it is made."""

    make: Callable[..., nn.Module]
    solver: Solver | None = None
    reads: int | None = None  # the side that images of a folder are read at, to be cropped
    alias: str | None = None


ZOO = {
    "lenet": Network(lenet, LeNet.caffe_solver),
    "cifar10_quick": Network(cifar10_quick, Cifar10Quick.caffe_solver, alias="quick"),
    "alexnet": Network(alexnet, AlexNet.caffe_solver, reads=256),
    "efficientnet_lite0": Network(efficientnet_lite0),
    "resnet8": Network(resnet8),
    "mobilenet_v1": Network(mobilenet_v1),
    "ds_cnn": Network(ds_cnn),
}


CLASSES = ("classes", "num_classes", "n_classes")  # what functions call the number of classes


def names() -> list[str]:
    """The networks of the zoo.

    >>> mb.zoo.names()
    ['lenet', 'cifar10_quick', 'alexnet', 'efficientnet_lite0', 'resnet8', 'mobilenet_v1', 'ds_cnn']
    """
    return list(ZOO)


def find(name: str) -> Network | None:
    """What is known of a network of the zoo; None for one's own.

    >>> find("alexnet").reads, find("quick").solver.steps, find("mine:net")
    (256, 5000, None)
    """
    for own, network in ZOO.items():
        if name in (own, network.alias):
            return network
    return None


def build(name_or_spec: str, **options: object) -> nn.Module:
    """A fresh network: a zoo name, or 'package.module:callable' with the current directory on the path.

    Options such as `classes` go to the function that makes the network.

    >>> type(mb.zoo.build("quick", classes=100)).__name__
    'Cifar10Quick'
    """
    with _current_directory_on_path():
        return _made(name_or_spec, _found(name_or_spec), options)


def find_callable(spec: str) -> object:
    """What 'package.module:callable' names, with the current directory on the path.

    >>> find_callable("math:hypot").__name__
    'hypot'
    """
    with _current_directory_on_path():
        return _found(spec)


def build_for(
    name_or_spec: str, classes: int, channels: int | None = None, width: float | None = None
) -> nn.Module:
    """A fresh network for data of so many classes, and images of so many channels.

    One's own is told them where it has parameters `classes` (or `num_classes`, `n_classes`) and `channels`. `width` is
    for a network that has such a parameter, with a default: so many times that.

    >>> net = mb.zoo.build_for("resnet8", 7, channels=1, width=1.5)
    >>> net.fc.out_features, net.stem[0].in_channels, net.stem[0].out_channels
    (7, 1, 24)
    """
    with _current_directory_on_path():
        maker = _found(name_or_spec)
        options = known_options(maker, classes, channels)
        if width is not None:
            options["width"] = widened(maker, width, name_or_spec)
        return _made(name_or_spec, maker, options)


def known_options(maker: object, classes: int | None, channels: int | None) -> dict[str, object]:
    """What a function is told of the data: what it has a parameter for, and nobody has filled.

    >>> known_options(resnet8, 7, 1), known_options(partial(resnet8, classes=9), 7, 1)
    ({'classes': 7, 'channels': 1}, {'channels': 1})
    """
    given: dict[str, object] = {**dict.fromkeys(CLASSES, classes), "channels": channels}
    filled = maker.keywords if isinstance(maker, partial) else {}
    return {
        name: value
        for name, value in given.items()
        if value is not None and name not in filled and _takes(maker, name)
    }


def widened(maker: object, factor: float, name: str | None = None) -> int | float:
    """What to pass as `width` to a function, so that its network is so many times as wide as by default.

    >>> from membound.zoo.tiny import mobilenet_v1, resnet8
    >>> widened(resnet8, 1.5), widened(mobilenet_v1, 2)
    (24, 0.5)
    """
    default = _parameter(maker, "width")
    usual = None if default is None else default.default
    if not isinstance(usual, int | float) or isinstance(usual, bool):
        made = maker.func if isinstance(maker, partial) else maker
        if isinstance(maker, partial) and made is build_for:  # what the command line gives
            name = maker.args[0]
        found = name or getattr(made, "__name__", type(made).__name__)
        raise WeightsError(
            f"{found} has no width to vary: give the function that makes the network a parameter `width` with a "
            "number as its default",
            about="widths",
        )
    return max(round(factor * usual), 1) if isinstance(usual, int) else factor * usual


def takes_width(maker: object) -> bool:
    """Whether a function has a parameter `width` that can be varied."""
    try:
        widened(maker, 1.0)
    except WeightsError:
        return False
    return True


def spec_takes_width(name_or_spec: str) -> bool:
    """The same of what a name stands for."""
    with _current_directory_on_path():
        return takes_width(_found(name_or_spec))


def _takes(maker: object, name: str) -> bool:
    return _parameter(maker, name) is not None


def _needed(maker: object, given: dict[str, object]) -> str | None:
    """A parameter without a default that is not given."""
    try:
        parameters = inspect.signature(maker).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    various = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = (
        each.name
        for each in parameters
        if each.default is inspect.Parameter.empty and each.kind not in various and each.name not in given
    )
    return next(needed, None)


def _parameter(maker: object, name: str) -> inspect.Parameter | None:
    try:
        parameter = inspect.signature(maker).parameters.get(name)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # not callable, or written in C: what is wrong is said when it is called
        return None
    passable = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return parameter if parameter is not None and parameter.kind in passable else None


def _found(spec: str) -> object:
    """What a spec names: of the zoo, or the module imported and the attribute's dots followed."""
    if (known := find(spec)) is not None:
        return known.make
    if is_onnx(spec):
        return partial(read_onnx, spec)
    aliases = [network.alias for network in ZOO.values() if network.alias is not None]
    module, attribute = split_spec(spec, [*ZOO, *aliases])
    try:
        target: object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _wrapped(f"importing {module!r} for {spec!r}", error) from error
        raise no_module(spec, attribute, error.name) from None
    except (Exception, SystemExit) as error:
        raise _wrapped(f"importing {module!r} for {spec!r}", error) from error
    for part in attribute.split("."):
        if not hasattr(target, part):
            there = [n for n in dir(target) if n[0] != "_" and callable(getattr(target, n, None))]
            raise no_attribute(spec, module, part, there)
        target = getattr(target, part)
    return target


def _made(spec: str, target: object, options: dict[str, object]) -> nn.Module:
    """Call what a spec names, and insist on a network."""
    if isinstance(target, nn.Module):
        raise WeightsError(f"{spec!r} is one network already made; name the function or class that makes it")
    if not callable(target):
        raise WeightsError(f"{spec!r} is {a_kind(target)}; name a function or class to call")
    if (needed := _needed(target, options)) is not None:
        raise WeightsError(
            f"{spec!r} needs its parameter {needed!r}, which nothing fills: give it a default; filled are "
            f"{', '.join(CLASSES)} and channels"
        )
    try:
        net = target(**options)
    except WeightsError:  # it says what is wrong, and of which file
        raise
    except (Exception, SystemExit) as error:
        raise _wrapped(f"calling {spec!r}", error) from error
    if not isinstance(net, nn.Module):
        raise WeightsError(f"{spec!r} returned {a_kind(net)}; it must return a torch.nn.Module")
    return net


def _wrapped(doing: str, error: BaseException) -> WeightsError:
    message = " ".join(str(error).split())
    return WeightsError(f"{doing} failed with {type(error).__name__}: {message}")


@contextmanager
def _current_directory_on_path() -> Iterator[None]:
    here = os.getcwd()
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)
