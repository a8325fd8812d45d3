"""torch.export of a private copy: the user's module is never touched, and the size of the batch stays free."""

import copy
import logging
import os
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import starmap
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._export.utils import _get_decomp_for_cia, _is_cia_op
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.export.graph_signature import InputKind

from membound.capture import advice
from membound.capture.examples import (
    NO_AXIS,
    Example,
    Examples,
    example_batch,
    random_like,
    shapes_of,
    with_axis,
)
from membound.capture.gelu import join_gelu_
from membound.capture.operators import CONVERSIONS
from membound.capture.outputs import flat_tensors, read_outputs
from membound.errors import ModelError, a_kind
from membound.modules import explain_refusal

SPECIAL = (
    "sym_size",
    "expand",
    "expand_as",
    "zeros_like",
    "ones_like",
    "full_like",
    "fill",
    "zero",
    "zeros",
    "ones",
    "full",
    "new_zeros",
    "new_ones",
    "new_full",
)  # converted, but not by the table
FRESH = (
    "conv1d",
    "conv2d",
    "conv_transpose2d",
    "group_norm",
    "layer_norm",
    "linear",
    "batch_norm",
    "add",
    "sub",
    "mul",
    "div",
    "cat",
    "relu",
)
STANDARD = f"{os.sep}contextlib.py"  # of Python's own modules, the one through which torch calls a network
BATCH, OTHER_BATCH = 3, 5  # torch takes a batch of 1 for a constant
Batch = int | frozenset[str]


@dataclass(frozen=True)
class Exported:
    """What torch.export made of a network: its operations, and its weights by the names of their nodes.

    `batch` are the symbols for the size of the batch, or the size itself where tracing fixed it: `len(x)` does.
    `named` are the names of outputs, of a tuple empty ones, or None of a single one.
    """

    batch: Batch
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    named: tuple[str, ...] | None
    weights: Mapping[str, Tensor]
    names: Mapping[str, str]


def export(private: nn.Module, example_input: Example, batch: int = BATCH) -> Exported:
    """Export a module that `private_copy` has made."""
    examples = example_batch(example_input, batch)
    shapes: Any = ShapesCollection()  # type: ignore[no-untyped-call]
    for each in examples:
        shapes[each] = {0: Dim.AUTO}
    with _silence(), torch.no_grad():
        try:
            program = torch.export.export(
                private, examples.given, dict(examples.named), dynamic_shapes=shapes, strict=False
            )
            if not all(map(_is_plain, program.graph.nodes)):
                program = program.run_decompositions(_made_of_others(program))
        except Exception as error:
            raise _failure(private, examples, error) from error
    return _read(program)


def _made_of_others(program: ExportedProgram) -> dict[Any, Any]:
    """How torch takes apart what no conversion knows, such as einsum."""
    table = {}
    for node in program.graph.nodes:
        target = node.target
        if isinstance(target, torch._ops.OpOverload) and not _is_plain(node) and _is_cia_op(target):
            table[target] = _get_decomp_for_cia(target)
    return table


def check_batches(private: nn.Module, example_input: Example) -> None:
    """Refuse a network that treats an image differently when it comes alone: tracing follows one of its branches.

    torch computes batches of other sizes in another order, and some networks amplify the rounding of that beyond any
    tolerance: it is compared in float64, or, where the network does not run so, in float32.
    """
    images = random_like(example_batch(example_input, BATCH))
    with _silence(), torch.no_grad():
        try:
            precise = private_copy(private, torch.float64)
            doubled = images.map(lambda x: x.double() if x.is_floating_point() else x)
            together = doubled.call(precise)
            private, images = precise, doubled
        except Exception:
            try:
                together = images.call(private)
            except Exception as ran:
                shape = ", ".join(str(tuple(each.shape)) for each in images)
                raise ModelError(
                    f"the network does not run on an input of shape {shape}: {explain_refusal(ran, private)}"
                ) from None
        for count in (1, 2):
            try:
                some = images.map(lambda x, count=count: x[:count]).call(private)  # type: ignore[misc]
            except Exception:  # it cannot run so few at all: the file can, as it does more
                continue
            if any(starmap(_differ, zip(flat_tensors(some), flat_tensors(together), strict=False))):
                raise ModelError(
                    f"the network gives another answer to a batch of {count} than to one of {BATCH}: a branch on the "
                    "size of the batch cannot be captured"
                )


def _differ(some: Tensor, together: Tensor) -> bool:
    """Whether images alone give something else than among others."""
    expected = together[: len(some)] if some.dim() and together.dim() else together
    if some.shape != expected.shape or not expected.numel() or not bool(expected.isfinite().all()):
        return False
    some, expected = some.double(), expected.double()
    return float((some - expected).abs().max()) > 1e-3 * float(expected.abs().max()) + 1e-6


def _is_plain(node: fx.Node) -> bool:
    """Whether a conversion can take the operation as it is; else torch has to rewrite them all, which is slow.

    It rewrites what is made of other operators and what works in place: the latter is plain only where it is the one
    reader of a result that no other tensor shares.
    """
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return True
    name = str(node.target._opname)
    if not node.target._schema.is_mutable:
        return name in CONVERSIONS or name in SPECIAL
    name = name.removesuffix("_")
    if name.endswith("dropout"):
        return True  # nothing is done in eval mode
    source = node.args[0] if node.args else None
    if not isinstance(source, fx.Node) or len(source.users) != 1 or name not in CONVERSIONS:
        return False
    target = source.target
    return isinstance(target, torch._ops.OpOverload) and (
        target._opname in FRESH or target._schema.is_mutable
    )


@contextmanager
def _silence() -> Iterator[None]:
    """Without torch's warnings, logs and prints: what matters of them is in our errors."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def private_copy(module: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A copy that shares nothing with the module: in eval mode, on the CPU, in float32, without wrappers.

    >>> layer = nn.Linear(2, 2, dtype=torch.bfloat16)
    >>> private_copy(nn.DataParallel(layer)).weight.dtype, layer.weight.dtype, layer.training
    (torch.float32, torch.bfloat16, True)
    """
    if not isinstance(module, nn.Module):
        raise ModelError(f"{a_kind(module)} cannot be captured; give a torch.nn.Module")
    module = _unwrapped(module)
    memo: dict[int, Any] = {}
    same: dict[tuple[Any, ...], Tensor] = {}
    for name, tensor in _tensors(module):
        if nn.parameter.is_lazy(tensor):
            raise ModelError(f"{name} is not initialised: run the network once before it is captured")
        memo[id(tensor)] = _tensor_copy(tensor, same, dtype)
    try:
        private = copy.deepcopy(module, memo)
    except Exception as error:
        raise ModelError(f"the network cannot be copied: {_one_line(error)}") from error
    for part in private.modules():
        part._compiled_call_impl = None
        for name, child in part.named_children():
            setattr(part, name, _unwrapped(child))
    return private.eval()


def _unwrapped(module: nn.Module) -> nn.Module:
    while True:
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        elif isinstance(getattr(module, "_orig_mod", None), nn.Module):  # torch.compile's
            module = module._orig_mod  # type: ignore[assignment]
        else:
            return module


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, Tensor):
                yield f"{path}.{name}".lstrip("."), value


def _tensor_copy(tensor: Tensor, same: dict[tuple[Any, ...], Tensor], dtype: torch.dtype) -> Tensor:
    """A copy on the CPU, floating point as `dtype`; views of the same memory have the same copy."""
    key: tuple[Any, ...] = (id(tensor),)
    if tensor.layout is torch.strided and tensor.numel():
        key = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, type(tensor))
    if key not in same:
        plain = tensor.detach()
        if plain.is_meta:
            raise ModelError("the network's weights are on the meta device: they have no values to capture")
        plain = plain.to("cpu", dtype if plain.is_floating_point() else plain.dtype, copy=True)
        parameter = isinstance(tensor, nn.Parameter)
        same[key] = nn.Parameter(plain, requires_grad=False) if parameter else plain
    return same[key]


def _read(program: ExportedProgram) -> Exported:
    signature = program.graph_signature
    weights, names = {}, {}
    first: dict[tuple[Any, ...], str] = {}
    inputs = []
    for spec in signature.input_specs:
        node = spec.arg.name
        if spec.kind == InputKind.USER_INPUT:
            inputs.append(node)
            continue
        target = str(spec.target)
        found = program.state_dict.get(target, program.constants.get(target))
        if isinstance(found, Tensor):
            weights[node] = found
            key = (found.data_ptr(), found.shape, found.stride()) if found.numel() else (node,)
            names[node] = first.setdefault(key, target)
    nodes = {node.name: node for node in program.graph.nodes}
    used = [nodes[name] for name in inputs if isinstance(nodes[name].meta.get("val"), Tensor)]
    outputs, named = read_outputs(program, nodes)
    outputs = join_gelu_(outputs, weights)
    return Exported(_batch(used), tuple(used), outputs, named, weights, names)


def _batch(inputs: Sequence[fx.Node]) -> Batch:
    """The symbols that stand for the size of the batch, one for each input unless they are known to be equal."""
    first = [sizes(node.meta["val"])[0] for node in inputs]
    fixed = {size for size in first if isinstance(size, int)}
    if not fixed:
        return frozenset(map(str, first))
    if len(fixed) < len(set(first)):
        raise ModelError(FIXED)
    return min(fixed)


def sizes(tensor: Tensor) -> list[int | str]:
    """The shape of a traced tensor: numbers, and text where a size depends on the batch."""
    return [int(text) if (text := str(size)).isdigit() else text for size in tensor.shape]


FIXED = (
    "the network fixes the size of its batch, for example by x.view(1, -1); keep the first axis free, "
    f"for example by x.flatten(1); where there is no batch at all, {advice.NO_BATCH}"
)


def without_batch(module: nn.Module, example_input: Example) -> ModelError | None:
    """What to say of examples that lack the axis of the batch: the network runs only once they have one."""
    try:
        examples = example_batch(example_input, OTHER_BATCH)
        batches = example_batch(with_axis(example_input), OTHER_BATCH)
    except ModelError:
        return None
    with _silence(), torch.no_grad():
        if not _runs(module, examples) and _runs(module, batches):
            return ModelError(NO_AXIS.format(shapes_of(example_input)))
    return None


def _runs(module: nn.Module, examples: Examples) -> bool:
    try:
        examples.call(module)
    except Exception:  # of another's code
        return False
    return True


def _failure(module: nn.Module, examples: Examples, error: Exception) -> ModelError:
    """Why a network cannot be exported: it does not run, it fixes its batch, or torch cannot trace it."""
    for batch in (examples, examples.map(lambda x: x[:1])):
        try:
            batch.call(module)
        except Exception as ran:
            if batch is examples:
                full = ran
                continue
            shape = ", ".join(str(tuple(each.shape)) for each in batch)
            return ModelError(
                f"the network does not run on an input of shape {shape}: {explain_refusal(ran, module)}"
            )
        if batch is not examples:
            return ModelError(f"{FIXED} ({_one_line(full)})")
        break
    if "DataDependent" in type(error).__name__ or "data-dependent" in str(error):
        return ModelError(
            f"a branch or a size of the network depends on the numbers that it computes{_own_line(error)}: tracing "
            "follows one path for all inputs; use torch.where, or decide before the network"
        )
    where = "".join(traceback.format_tb(error.__traceback__))
    return ModelError(
        f"torch.export cannot trace the network{_own_line(error)}: {_one_line(error)[:200].rstrip('.')}: "
        f"{advice.for_trace(str(error) + where)}"
    )


def _own_line(error: Exception) -> str:
    """Where in the network's own code an error came up."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.line and not any(part in frame.filename for part in ("/torch/", "/membound/", STANDARD))
    ]
    if not frames:
        return ""
    return f", at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno} `{str(frames[-1].line)[:100]}`"


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
