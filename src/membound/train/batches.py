"""Batches on the device: small sets live there whole, image folders stream through worker threads."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from membound.data import Preprocess, Split
from membound.data.preprocess import beside
from membound.errors import DataError

Indices = npt.NDArray[np.int64]
RESIDENT_BYTES = 4 * 1024**3  # a larger set streams from the host
WORKERS = 8
AHEAD = 8  # batches that are read before they are wanted
UPLOAD = 256  # batches whose indices go to the device together

TOGETHER = 500  # images that are evaluated at once

_ORDER, _AUGMENT, _READ = range(3)  # each use of the seed has a stream of its own


@dataclass(frozen=True, eq=False)
class Order:
    """How a training goes through its examples: shuffled in every pass, as they are, or drawn by their `weights`.

    With `drop_last` a pass ends with its last whole batch; else what is left of it begins the next batch.

    >>> Order(shuffled=False).of_pass(4, seed=0, number=0).tolist()
    [0, 1, 2, 3]
    """

    shuffled: bool = True
    weights: npt.NDArray[Any] | None = None  # drawn with replacement
    drop_last: bool = False

    def of_pass(self, size: int, seed: int, number: int) -> Indices:
        """The examples of one pass through `size` of them, a pure function of the seed."""
        random = np.random.default_rng([_ORDER, seed, number])
        if self.weights is not None:
            total = self.weights.sum()
            if not total > 0:
                raise DataError("the weights of all these examples are 0: none of them can be drawn")
            return random.choice(size, size, p=self.weights / total)
        return random.permutation(size) if self.shuffled else np.arange(size)

    def describe(self) -> list[Any] | None:
        """As JSON, its weights as numbers; None for the default."""
        if self.shuffled and self.weights is None and not self.drop_last:
            return None
        return [self.shuffled, self.drop_last, None if self.weights is None else self.weights.tolist()]


SHUFFLED = Order()


def index_stream(
    size: int, batch_size: int, seed: int, start: int = 0, order: Order = SHUFFLED
) -> Iterator[Indices]:
    """The images of batch `start`, `start + 1`, ... : one pass after another, without a gap between them.

    A pure function of the seed and the step, so that a resumed run sees the same images.

    >>> first = list(islice(index_stream(10, 4, seed=0), 5))
    >>> sorted(np.concatenate(first)[:10].tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    >>> np.array_equal(next(index_stream(10, 4, seed=0, start=3)), first[3])
    True
    """
    used = size - size % batch_size if order.drop_last else size  # of a pass
    if used == 0:
        raise DataError(f"drop_last leaves nothing: {size:,} examples do not fill a batch of {batch_size:,}")
    number, offset = divmod(start * batch_size, used)
    left = order.of_pass(size, seed, number)[offset:used]
    while True:
        while len(left) < batch_size:
            number += 1
            left = np.concatenate([left, order.of_pass(size, seed, number)[:used]])
        yield left[:batch_size]
        left = left[batch_size:]


def order_of(split: Split) -> Order:
    """The order that training goes through this split: its own, where a DataLoader gave it one."""
    found = getattr(split, "order", SHUFFLED)
    return found if isinstance(found, Order) else SHUFFLED


def size_together(split: Split) -> int:
    """How many examples of a split are evaluated at once: a DataLoader's batch size, or TOGETHER."""
    found = getattr(split, "batch_size", TOGETHER)
    return found if isinstance(found, int) else TOGETHER


class Feeder:
    """Reads chosen images of one split, preprocessed, onto a device."""

    def __init__(
        self, split: Split, preprocess: Preprocess, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.split, self.preprocess, self.device, self.dtype = split, preprocess, device, dtype
        self.labels = torch.from_numpy(_writable(split.labels)).to(device)
        if self.labels.is_floating_point():  # of another task than classification
            self.labels = self.labels.to(dtype)
        self.images: Tensor | None = None
        held = getattr(split, "images", None)  # of a split in memory
        if isinstance(held, np.ndarray) and held.nbytes <= RESIDENT_BYTES:
            self.images = torch.from_numpy(_writable(held)).to(device)
        self._mean, self._std = self._constant(preprocess.mean), self._constant(preprocess.std)

    def _constant(self, values: npt.NDArray[np.float32] | None) -> Tensor | None:
        if values is None:
            return None
        tensor: Tensor = beside(torch.from_numpy(values), len(self.split.shape) + 1)
        return tensor.to(self.device, self.dtype)

    def batches(self, indices: Iterable[Indices]) -> Iterator[tuple[Tensor, Tensor]]:
        """The images and labels for each array of indices, as the network is tested: center crop, no mirror."""
        for chosen, images in self._read(indices):
            yield self._finish(images), self.labels[torch.from_numpy(chosen).to(self.device)]

    @property
    def chooses_on_device(self) -> bool:
        """Whether a batch follows from its indices alone, without the host: the images are there, and not augmented."""
        return self.images is not None and self.preprocess.crop is None and not self.preprocess.mirror

    def at(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The images and labels at indices on the device, where `chooses_on_device`."""
        assert self.images is not None
        return self._finish(self.images[indices]), self.labels[indices]

    def augmented(
        self, indices: Iterable[Indices], seed: int, start: int = 0, part: slice = slice(None)
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The same as the network is trained: random crops and mirrors, fixed by the seed and the step.

        `part` selects this process's share of every batch; its crops are those of the whole batch.
        """
        sizes: deque[int] = deque()  # of the whole batches that are on their way

        def shares() -> Iterator[Indices]:
            for array in indices:
                sizes.append(len(array))
                yield array[part]

        read_seed = int(np.random.default_rng([_READ, seed, start]).integers(2**62))
        for step, (chosen, images) in enumerate(self._read(shares(), read_seed), start):
            windows = self._windows(sizes.popleft(), np.random.default_rng([_AUGMENT, seed, step]), part)
            yield self._finish(images, windows), self.labels[torch.from_numpy(chosen).to(self.device)]

    def _read(self, indices: Iterable[Indices], seed: int = 0) -> Iterator[tuple[Indices, Tensor]]:
        if self.images is not None:
            for chosen in indices:
                yield chosen, self.images[torch.from_numpy(np.ascontiguousarray(chosen)).to(self.device)]
            return
        stream = getattr(
            self.split, "stream", self._stream
        )  # a DataLoader's examples are read as it reads them
        for chosen, images in stream(indices, seed):
            tensor = torch.from_numpy(images)
            if self.device.type == "cuda":
                tensor = tensor.pin_memory()
            yield chosen, tensor.to(self.device, non_blocking=True)

    def _stream(self, indices: Iterable[Indices], seed: int) -> Iterator[tuple[Indices, npt.NDArray[Any]]]:
        """Each batch and its images, read by threads."""
        waiting: deque[tuple[Indices, list[object]]] = deque()
        source = iter(indices)
        pool = ThreadPoolExecutor(WORKERS)
        try:
            while True:
                for chosen in islice(source, AHEAD - len(waiting)):
                    shares = [share for share in np.array_split(chosen, WORKERS) if len(share)]
                    waiting.append((chosen, [pool.submit(self.split.read, share) for share in shares]))
                if not waiting:
                    return
                chosen, futures = waiting.popleft()
                yield chosen, np.concatenate([future.result() for future in futures])  # type: ignore[attr-defined]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _finish(self, images: Tensor, windows: "_Windows | None" = None) -> Tensor:
        x = images.to(self.dtype)
        if self._mean is not None:
            x = x - self._mean  # before the crop: a mean image is subtracted at the crop's position
        x = self._centre(x) if windows is None else windows.of(x)
        if self.preprocess.scale != 1:
            x = x * self.preprocess.scale
        if self._std is not None:
            x = x / self._std
        # On a CPU convolutions and pooling run about twice as fast with the channels last; weights stay as they are.
        return x.to(memory_format=torch.channels_last) if self.device.type == "cpu" and x.dim() == 4 else x

    def _centre(self, x: Tensor) -> Tensor:
        crop = self.preprocess.crop
        if crop is None:
            return x
        top, left = ((side - crop) // 2 for side in x.shape[2:])
        return x[:, :, top : top + crop, left : left + crop]

    def _windows(self, size: int, rng: np.random.Generator, part: slice) -> "_Windows | None":
        """A random window, and whether it is mirrored, for every image of this process's share of a batch."""
        crop, mirror = self.preprocess.crop, self.preprocess.mirror
        if crop is None and not mirror:
            return None
        _, height, width = self.split.shape
        rows, columns = crop or height, crop or width
        tops, lefts = rng.integers(0, height - rows + 1, size), rng.integers(0, width - columns + 1, size)
        flips = (rng.random(size) < 0.5) & mirror
        return _Windows(tops[part], lefts[part], flips[part], rows, columns)


# By what they read and how: runs that share data share its memory.
Feeders = dict[tuple[int, int, torch.dtype], Feeder]


class Rows:
    """Arrays on a device, such as indices, many of which are sent at once; which is the next is known there, too."""

    def __init__(self, arrays: Iterable[npt.NDArray[Any]], device: torch.device) -> None:
        self.source = iter(arrays)
        self.block = self._next_block().to(device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.taken = 0  # of this block, as the host counts

    def _next_block(self) -> Tensor:
        return torch.from_numpy(np.stack(list(islice(self.source, UPLOAD))))

    def expect(self) -> None:
        """Make sure that the next one is there: the device is about to take it."""
        if self.taken == len(self.block):
            block = self._next_block()
            if self.block.is_cuda:
                block = block.pin_memory()
            self.block.copy_(block, non_blocking=True)
            self.at.zero_()
            self.taken = 0
        self.taken += 1

    def take(self) -> Tensor:
        """The next one, as work for the device alone, which can be recorded: `expect` it first, every time."""
        row = self.block.index_select(0, self.at)[0]
        self.at += 1
        return row


@dataclass(frozen=True)
class _Windows:
    tops: Indices
    lefts: Indices
    flips: npt.NDArray[np.bool_]
    height: int
    width: int

    def of(self, x: Tensor) -> Tensor:
        """The window of each image."""
        rows = self.tops[:, None] + np.arange(self.height)
        columns = np.arange(self.width)[None, :]
        columns = self.lefts[:, None] + np.where(self.flips[:, None], self.width - 1 - columns, columns)
        image = torch.arange(len(x), device=x.device)[:, None, None]
        at_rows = torch.from_numpy(rows).to(x.device)[:, :, None]
        at_columns = torch.from_numpy(columns).to(x.device)[:, None, :]
        return x[image, :, at_rows, at_columns].permute(0, 3, 1, 2).contiguous()


def _writable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array, contiguous; copied if it is read-only, as what other processes share is: torch warns of those."""
    found = np.ascontiguousarray(array)
    return found if found.flags.writeable else found.copy()


def whole(split: Split, batch_size: int, part: slice = slice(None)) -> Iterator[Indices]:
    """Every image once, in order, in batches; `part` selects a process's share."""
    chosen = np.arange(len(split))[part]
    for start in range(0, len(chosen), batch_size):
        yield chosen[start : start + batch_size]
