"""A user's DataLoader: what of it is followed, and what cannot be.

A fit trains several networks, each on examples of its own choice (without those for validation, or a resample), and a
run that was killed goes on with the batch that is next. So examples are chosen by their index, in the order that the
loader's sampler stands for, and read as the loader reads them.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils import data as torch_data

from membound.data import Split
from membound.data.several import Inputs, inputs_of
from membound.data.splits import Array, Rows, as_indices
from membound.errors import DataError, MemboundError
from membound.train.arrays import reason_of
from membound.train.batches import Indices, Order

_ADVICE = "pass its dataset, or arrays (x, y), instead"
_OPTIONS = ("num_workers", "prefetch_factor", "timeout", "worker_init_fn", "multiprocessing_context")


@dataclass(frozen=True)
class Reading:
    """How a DataLoader reads: in this thread, or by worker processes of its own."""

    options: dict[str, Any] = field(default_factory=dict)

    def map(self, function: Callable[[Any], Any], keys: Iterable[Any], seed: int = 0) -> Iterator[Any]:
        """`function(key)` of each key, in this order; `seed` is that of the random numbers of workers.

        >>> list(Reading().map(str, [1, 2]))
        ['1', '2']
        """
        if not self.options.get("num_workers"):
            yield from map(function, keys)
            return
        # A generator of its own: torch would draw the seed of workers from the numbers that dropout uses.
        generator = torch.Generator().manual_seed(seed)
        sampler: Any = keys
        loader = torch_data.DataLoader(
            _Calls(function), batch_size=None, sampler=sampler, generator=generator, **self.options
        )
        answers: Iterator[Any] | None = None
        while True:
            try:
                answers = iter(loader) if answers is None else answers
                answer = next(answers)
            except StopIteration:
                return
            except MemboundError:
                raise
            except Exception as error:  # a worker was killed, or cannot be started
                raise DataError(f"a worker of the DataLoader failed: {reason_of(error)}") from error
            if isinstance(answer, MemboundError):
                raise answer
            yield answer


@dataclass(frozen=True)
class _Calls(torch_data.Dataset[Any]):
    """A function as a Dataset; an error of ours is handed back, since torch would put a traceback into its text."""

    function: Callable[[Any], Any]

    def __getitem__(self, key: Any) -> Any:
        try:
            return self.function(key)
        except MemboundError as error:
            return error


@dataclass(frozen=True, eq=False)
class LoaderSplit:
    """The examples of a DataLoader, with its batch size, its order and how it reads them."""

    inner: Split
    batch_size: int
    order: Order
    reading: Reading

    @property
    def labels(self) -> Any:
        return self.inner.labels

    @property
    def shape(self) -> Any:
        return self.inner.shape

    @property
    def inputs(self) -> Inputs | None:
        """What rows are made of, where examples are of several inputs."""
        return inputs_of(self.inner)

    @property
    def images(self) -> Any:
        """All of them, where they are held in memory: then there is nothing to read."""
        return getattr(self.inner, "images", None)

    def __len__(self) -> int:
        return len(self.inner)

    def read(self, indices: Rows) -> Array:
        """The chosen examples."""
        return self.inner.read(indices)

    def take(self, indices: Rows) -> "LoaderSplit":
        """The split of the chosen examples, each with its weight."""
        chosen, weights = as_indices(indices, len(self)), self.order.weights
        order = self.order if weights is None else replace(self.order, weights=weights[chosen])
        return replace(self, inner=self.inner.take(chosen), order=order)

    def stream(self, batches: Iterable[Indices], seed: int) -> Iterator[tuple[Indices, Array]]:
        """Each batch and its examples; workers read some batches ahead."""
        waiting: deque[Indices] = deque()

        def keys() -> Iterator[Indices]:
            for chosen in batches:
                waiting.append(chosen)
                yield chosen

        for images in self.reading.map(self.inner.read, keys(), seed):
            yield waiting.popleft(), np.asarray(images)


def check_followed(loader: "torch_data.DataLoader[Any]") -> None:
    """Refuse what cannot be followed, and say why."""
    if loader.batch_sampler is None:
        raise DataError(f"the DataLoader has batch_size=None, so its items may be whole batches: {_ADVICE}")
    if type(loader.batch_sampler) is not torch_data.BatchSampler:
        raise DataError(
            "the DataLoader has a batch_sampler of its own, which cannot be asked for a part of the data or for the "
            f"batch that is next: {_ADVICE}"
        )


def follow(loader: "torch_data.DataLoader[Any]") -> tuple[Any, Order, Reading]:
    """The examples that a loader's sampler chooses from, in which order, and how they are read."""
    check_followed(loader)
    batches: Any = loader.batch_sampler
    dataset, sampler = loader.dataset, batches.sampler
    order = Order(drop_last=batches.drop_last)
    kind = type(sampler)
    if kind is torch_data.SubsetRandomSampler:  # it may be what keeps a validation set apart
        dataset = torch_data.Subset(dataset, [int(index) for index in sampler.indices])
    elif kind is torch_data.SequentialSampler:
        order = replace(order, shuffled=False)
    elif kind is torch_data.RandomSampler:
        count = len(dataset)  # type: ignore[arg-type]
        if sampler.replacement:
            order = replace(order, weights=np.ones(count))
        elif sampler.num_samples != count:
            raise DataError(
                f"the DataLoader draws {sampler.num_samples:,} of {count:,} examples a pass (num_samples), but a "
                f"training counts steps, not passes: leave num_samples out, or {_ADVICE}"
            )
    elif kind is torch_data.WeightedRandomSampler:
        order = replace(order, weights=_weights(sampler, len(dataset)))  # type: ignore[arg-type]
    elif kind is torch_data.DistributedSampler and sampler.num_replicas == 1:
        order = replace(order, shuffled=sampler.shuffle)
    elif kind is torch_data.DistributedSampler:
        raise DataError(
            f"the DataLoader has the share of one of {sampler.num_replicas} processes (DistributedSampler), but a "
            "training here is one process: leave the sampler out"
        )
    else:
        raise DataError(
            f"the DataLoader has a {kind.__name__}, which cannot be asked for a part of the data or for the batch "
            f"that is next: take shuffle=True or a WeightedRandomSampler, or {_ADVICE}"
        )
    return dataset, order, Reading({name: getattr(loader, name) for name in _OPTIONS})


def _weights(sampler: "torch_data.WeightedRandomSampler", count: int) -> Array:
    weights = np.asarray(sampler.weights, np.float64)
    if not sampler.replacement:
        raise DataError(
            "the DataLoader has a WeightedRandomSampler without replacement, whose passes end before rare examples "
            "are rare: let it draw with replacement, its default"
        )
    if (
        weights.shape != (count,)
        or not np.isfinite(weights).all()
        or (weights < 0).any()
        or not weights.any()
    ):
        raise DataError(
            f"the WeightedRandomSampler has weights of shape {list(weights.shape)} for {count:,} examples: each "
            "needs one, finite and at least 0, and not all may be 0"
        )
    return weights
