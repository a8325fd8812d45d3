"""What a network returns: a tensor, a tuple, a dict, or any of these within each other."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch.utils._pytree as pytree
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from membound.errors import ModelError


def read_outputs(
    program: ExportedProgram, nodes: Mapping[str, fx.Node]
) -> tuple[tuple[fx.Node, ...], tuple[str, ...] | None]:
    """The nodes that come out, and their names: of a tuple empty ones, of a single tensor None.

    What is no tensor, such as None, is left out.
    """
    returned: list[str] = []
    for spec in program.graph_signature.output_specs:
        if spec.kind == OutputKind.USER_OUTPUT:
            returned.append(str(getattr(spec.arg, "name", "")))
        elif spec.kind not in (OutputKind.USER_INPUT_MUTATION, OutputKind.TOKEN):
            raise ModelError(
                f"the network changes {spec.target!r} when it runs; only networks without state are supported: return "
                "the new value, and take the old one as an input"
            )
    spec = program.call_spec.out_spec
    tree = pytree.tree_unflatten(list(range(len(returned))), spec) if spec is not None else 0
    found: dict[str, fx.Node] = {}
    for name, number in _leaves(tree):
        node = nodes.get(returned[number])
        if node is not None and isinstance(node.meta.get("val"), Tensor):
            found[name] = node
    if not found:
        raise ModelError(
            f"the network returns {len(returned)} values, none of them a tensor that it computes"
        )
    if isinstance(tree, int):
        return tuple(found.values()), None
    plain = isinstance(tree, tuple | list) and not hasattr(tree, "_fields") and all(map(str.isdigit, found))
    return tuple(found.values()), tuple("" if plain else name for name in found)


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """The numbers in a structure, by their paths: keys of dicts, fields of named tuples, places in lists."""
    if isinstance(tree, int) and not isinstance(tree, bool):
        yield path or "output", tree
        return
    if isinstance(tree, Mapping):
        parts = [(str(key), part) for key, part in tree.items()]
    elif isinstance(tree, tuple | list):
        names = getattr(tree, "_fields", range(len(tree)))
        parts = [(str(name), part) for name, part in zip(names, tree, strict=True)]
    elif hasattr(tree, "__dict__"):
        parts = [(name, part) for name, part in vars(tree).items() if part is not None]
    else:
        return
    for name, part in parts:
        yield from _leaves(part, f"{path}.{name}" if path else name)


def flat_tensors(found: Any) -> list[Tensor]:
    """The tensors of what a network returned, in order."""
    return [each for each in pytree.tree_leaves(found) if isinstance(each, Tensor)]
