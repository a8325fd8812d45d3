"""Names of networks, such as 'lenet' or 'nets:net': what is wrong with one, as far as that takes no torch to say."""

import ast
import importlib.util
import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path

from membound.errors import WeightsError

TFLITE = (".tflite", ".litert")
FILES = (*TFLITE, ".pt", ".pth", ".ckpt", ".safetensors")  # that no network is called


def nearest(found: str, allowed: Iterable[str]) -> str | None:
    """The name that may have been meant."""
    return next(iter(get_close_matches(found, list(allowed), n=1, cutoff=0.6)), None)


def choices(found: str, allowed: Iterable[str], limit: int = 12) -> str:
    """What may stand in place of `found`: the closest name as a question, then a list.

    >>> choices("lenett", ["lenet", "alexnet"])
    "did you mean 'lenet'? there are: lenet, alexnet"
    """
    names = list(allowed)
    close = nearest(found, names)
    question = "" if close is None else f"did you mean {close!r}? "
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{question}there are: {', '.join(names[:limit]) or 'none'}{rest}"


def split_spec(spec: str, names: Iterable[str]) -> tuple[str, str]:
    """The module and the attribute of 'package.module:callable', where `spec` is none of the `names`.

    >>> split_spec("nets:make.small", ["lenet"])
    ('nets', 'make.small')
    """
    module, colon, attribute = spec.partition(":")
    if not colon:
        own = spec.removesuffix(".py")
        if own.isidentifier() and Path(f"{own}.py").is_file():
            raise WeightsError(
                f"{own}.py is here: write {own}:NAME, where NAME is the function or class that makes the network"
            )
        dotted, dot, last = spec.rpartition(".")
        if dot and spec.replace(".", "").isidentifier() and Path(f"{dotted.replace('.', '/')}.py").is_file():
            raise WeightsError(f"no network called {spec!r}: did you mean {dotted}:{last}?")
        suffix = Path(spec).suffix.lower()
        if suffix in FILES and not Path(spec).exists():
            nor = "; membound does not read TensorFlow Lite models: start from PyTorch or ONNX"
            raise WeightsError(f"{spec}: there is no such file{nor if suffix in TFLITE else ''}")
        raise WeightsError(
            f"no network called {spec!r}; {choices(spec, names)}; "
            "or give your own as package.module:callable, or an .onnx file"
        )
    if module.endswith(".py") or "/" in module or os.sep in module:
        dotted = module.removesuffix(".py").strip("./").replace(os.sep, "/").replace("/", ".")
        raise WeightsError(f"{spec!r} names a file; name the module, as in {dotted}:{attribute}")
    if not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        raise WeightsError(f"{spec!r} is not understood; write package.module:callable")
    return module, attribute


def check_early(spec: str, names: Iterable[str]) -> None:
    """Refuse a name that nothing is called: of a module in the working directory, only its text is read."""
    module, attribute = split_spec(spec, names)
    path = Path.cwd().joinpath(*module.split(".")).with_suffix(".py")
    if path.is_file():
        there = defined_names(path)
        part = attribute.partition(".")[0]
        if there is not None and part not in there:
            own = (name for name, is_import in there.items() if not is_import and name[0] != "_")
            raise no_attribute(spec, module, part, own)
        return
    top = module.partition(".")[0]
    if not (Path.cwd() / top).exists() and importlib.util.find_spec(top) is None:
        raise no_module(spec, attribute, top)


def defined_names(path: Path) -> dict[str, bool] | None:
    """What a module's text defines at its top, and whether it imports it; None where only running it can tell."""
    try:
        text = path.read_bytes()
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return None
    if any(word in text for word in (b"globals", b"setattr", b"exec(", b"__getattr__")):
        return None
    found = {
        name: isinstance(node, ast.Import | ast.ImportFrom)
        for node in tree.body
        for name in _defined_by(node)
    }
    return None if "*" in found else found


def _defined_by(node: ast.stmt) -> Iterator[str]:
    """The names that a statement defines; '*' where that cannot be told."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (each.asname or each.name.partition(".")[0] for each in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
    elif not isinstance(node, ast.Expr):  # a loop or a condition may define anything
        yield "*"


def no_module(spec: str, attribute: str, missing: str) -> WeightsError:
    """The error of a module that cannot be found."""
    close = nearest(missing, (path.stem for path in Path.cwd().glob("*.py")))
    instead = "run" if close is None else f"did you mean {close}:{attribute}? Otherwise run"
    return WeightsError(
        f"{spec!r}: no module {missing!r} in {os.getcwd()} or installed; {instead} from the directory that "
        "holds it, or install it"
    )


def no_attribute(spec: str, module: str, part: str, there: Iterable[str]) -> WeightsError:
    """The error of a module that has no such name."""
    return WeightsError(f"{spec!r}: {module!r} has no {part!r}; {choices(part, there)}")
