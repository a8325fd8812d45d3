"""What a budget counts, exactly, as a function of a network's weights: bytes of file, bytes of memory, nonzeros.

Every measure is called with a state dict of the module and gives a whole number. `dense()` is what the network takes
with no zero in it, `least(names)` what is left when the parameters of these names have one nonzero each, their first:
together these carry an input to the output. Without any, the network would be a constant, and layers that are not
named would vanish with those that are.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from membound.capture.capture import Tracer
from membound.capture.save import check_kinds, check_path, with_facts
from membound.data.preprocess import Preprocess
from membound.errors import ModelError
from membound.modules import plain_keys
from membound.run.net import EVERY, Net
from membound.search.bits import Types
from membound.store.choice import value_types
from membound.store.file import file_size, read_bytes, to_bytes, write
from membound.store.formats import Prefer
from membound.store.model import Model, StoredModel

State = Mapping[str, Tensor]

SMALLEST = (
    1e-3  # what zeros become in a dense network: no value that rounds to zero in f16, by itself or scaled
)


@dataclass(frozen=True, eq=False)
class FileBytes:
    """The bytes of the very file that `save` writes: header, preprocessing, mean image and names of classes included.

    Values are stored as `values`; the weights that `types` names, as it says.

    >>> size = FileBytes(Tracer(nn.Linear(300, 2), torch.zeros(1, 300)), values="f16")
    >>> empty = {"weight": torch.zeros(2, 300), "bias": torch.zeros(2)}
    >>> size.dense() - size(empty) > 1000, size.dense() - size.least(["weight"]) > 1000
    (True, True)
    """

    tracer: Tracer
    values: str = "f32"
    preprocess: Preprocess | None = None
    classes: Sequence[str] | None = None
    prefer: Prefer = "bytes"
    types: Types = field(default_factory=dict)
    activations: Mapping[int, tuple[float, int]] = field(default_factory=dict)  # how values become int8

    def __post_init__(self) -> None:
        check_kinds(self.preprocess, self.classes)
        self()  # what cannot be stored is said now, not after training

    def __call__(self, state: State | None = None, types: Types | None = None) -> int:
        model = self._model(state)
        return file_size(model, self._types(model, types), self.prefer)

    def stored(self, state: State | None = None, types: Types | None = None) -> StoredModel:
        """The network as the file has it, without a file: `membound.run.net.Net` runs it."""
        model = self._model(state)
        return read_bytes(to_bytes(model, self._types(model, types), self.prefer))

    def write(self, path: str | os.PathLike[str], state: State | None = None) -> StoredModel:
        """Write the file, whole or not at all; what was stored comes back."""
        check_path(path)
        model = self._model(state)
        return write(path, model, self._types(model), self.prefer)

    def dense(self) -> int:
        """What the network takes when no parameter is zero, whatever its weights are now."""
        return self(self.dense_state())

    def dense_state(self) -> dict[str, Tensor]:
        """The network as traced, but without a zero."""
        state = self.tracer.state()
        names = [name for tied in self.tracer.parameters for name in tied]
        return state | {name: _filled(state[name]) for name in names}

    def least(self, names: Iterable[str], state: State | None = None, types: Types | None = None) -> int:
        """What remains when the parameters of these names have one nonzero each, all else as in `state` or as traced.

        That is the header, an entry in it for every layer, biases, and all that is not named.
        """
        return self(self.emptied(names, state), types)

    def emptied(self, names: Iterable[str], state: State | None = None) -> State:
        """The state with one nonzero in each parameter of these names."""
        found = self.tracer.state() if state is None else plain_keys(state)
        emptied = _with_tied(names, self.tracer.parameters)
        return found | {name: _emptied(found[name]) for name in emptied if name in found}

    def _types(self, model: Model, types: Types | None = None) -> str | dict[str, str]:
        """One type for everything, or one for each tensor; a layer that is dead has none."""
        chosen = self.types if types is None else types
        if not chosen:
            return self.values
        named = {name: kind for name, kind in chosen.items() if name in model.tensors}
        return value_types(model, self.values) | named

    def _model(self, state: State | None) -> Model:
        model = with_facts(self.tracer.model(state), self.preprocess, self.classes)
        return replace(model, activations=self.activations) if self.activations else model


@dataclass(frozen=True, eq=False)
class RamBytes(FileBytes):
    """The bytes that the deployed network takes: its file, the tables made at load, the arena for `batch` images.

    On the instruction set `isa`, or on whichever takes most: not on the machine that happens to count.

    >>> tracer = Tracer(nn.Linear(300, 2), torch.zeros(1, 300))
    >>> RamBytes(tracer, batch=1)() > FileBytes(tracer)()
    True
    """

    batch: int = field(kw_only=True)
    threads: int = field(default=1, kw_only=True)
    isa: str = field(default=EVERY, kw_only=True)

    def __call__(self, state: State | None = None, types: Types | None = None) -> int:
        return deployed_bytes(self.stored(state, types), self.batch, self.isa, self.threads)


@dataclass(frozen=True, eq=False)
class BothBytes(RamBytes):
    """Two bounds as one: the bytes of the file, or of memory less `spare`, whichever is more.

    With `spare` = M - B that is at most B just where the file is within B bytes and the memory within M.
    """

    spare: int = field(kw_only=True)

    def __call__(self, state: State | None = None, types: Types | None = None) -> int:
        stored = self.stored(state, types)
        memory = deployed_bytes(stored, self.batch, self.isa, self.threads)
        return max(stored.file_bytes, memory - self.spare)


def deployed_bytes(
    stored: StoredModel, batch: int = 1, isa: str = EVERY, threads: int = 1, engine: str = "float"
) -> int:
    """What a stored network takes when it runs."""
    return Net(stored, max_batch=batch, threads=threads, engine=engine).memory(isa).total


class Nonzeros:
    """How many parameters are not zero, biases included and tied ones once; buffers are no parameters.

    >>> layer = nn.Linear(300, 2)
    >>> Nonzeros(layer)({"weight": torch.eye(2, 300), "bias": torch.ones(2)}), Nonzeros(layer).dense()
    (4, 602)
    """

    def __init__(self, module: nn.Module) -> None:
        tied: dict[int, list[str]] = {}
        own = plain_keys(module.state_dict(keep_vars=True))
        for name, value in own.items():
            if isinstance(value, nn.Parameter):
                tied.setdefault(id(value), []).append(name)
        self._names = tuple(map(tuple, tied.values()))
        self._sizes = tuple(own[first].numel() for first, *_ in self._names)
        self._counts = tuple(int(own[first].count_nonzero()) for first, *_ in self._names)

    def __call__(self, state: State | None = None, types: Types | None = None) -> int:
        return sum(self._count(state))

    def dense(self) -> int:
        """How many parameters there are."""
        return sum(self._sizes)

    def least(self, names: Iterable[str], state: State | None = None, types: Types | None = None) -> int:
        """What remains when the parameters of these names have one nonzero each, all else as in `state` or at first."""
        emptied = _with_tied(names, self._names)
        counts = zip(self._names, self._count(state), strict=True)
        return sum(count if emptied.isdisjoint(tied) else 1 for tied, count in counts)

    def _count(self, state: State | None) -> Sequence[int]:
        """The nonzeros of every parameter."""
        if state is None:
            return self._counts
        given = plain_keys(state)
        found = [next((given[name] for name in tied if name in given), None) for tied in self._names]
        counts = [value.count_nonzero() for value in found if value is not None]
        if len(counts) < len(found):
            missing = [tied[0] for tied, value in zip(self._names, found, strict=True) if value is None]
            raise ModelError(f"the state does not fit the network: it lacks {', '.join(missing[:8])}")
        return [int(count) for count in counts]


def _filled(weight: Tensor) -> Tensor:
    """A weight with no zero in it, and nothing so small that f16 would make it one."""
    sign = torch.where(weight < 0, -1.0, 1.0)
    return torch.where(weight.abs() < SMALLEST, sign * SMALLEST, weight)


def _emptied(weight: Tensor) -> Tensor:
    """A weight with one nonzero: the first, so that in a chain of layers each reads what the one before gives."""
    empty = torch.zeros(
        weight.shape, dtype=weight.dtype, device=weight.device
    )  # contiguous, whatever the weight is
    empty.view(-1)[:1] = 1
    return empty


def _with_tied(names: Iterable[str], parameters: Sequence[tuple[str, ...]]) -> set[str]:
    """These names and those of the same parameters, if there are such parameters."""
    wanted, there = set(names), {name: tied for tied in parameters for name in tied}
    missing = sorted(wanted.difference(there))
    if missing:
        raise ModelError(f"there is no parameter {missing[0]!r}: there are {', '.join(list(there)[:12])}")
    return {other for name in wanted for other in there[name]}
