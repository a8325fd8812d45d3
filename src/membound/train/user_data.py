"""Data as people have it (arrays, a torch Dataset, a DataLoader) as a split that can be trained on."""

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils import data as torch_data

from membound.data import ArraySplit, Dataset, Preprocess, Split, channel_moments, subsample, validation_split
from membound.data.splits import as_indices, as_labels
from membound.errors import DataError, MemboundError
from membound.train.batches import RESIDENT_BYTES

Array = npt.NDArray[Any]

MOMENTS_OF = 10_000  # items of a torch Dataset that are read for their mean and deviation
_PROBES = 8  # items that are read to see whether `targets` says what the items say
_WANTED = "(x, y) arrays, a torch Dataset, a DataLoader or a set of mb.data"


@dataclass(frozen=True, eq=False)
class ExampleSplit:
    """Examples of any shape held in memory, with a target each: class numbers, or numbers of any shape.

    >>> split = ExampleSplit(np.zeros((3, 5), np.float32), np.ones((3, 2), np.float32))
    >>> split.shape, split.read([0, 0]).shape, split.take([2]).labels.shape
    ((5,), (2, 5), (1, 2))
    """

    images: Array
    labels: Any  # int64 or float32 [n, ...]

    @property
    def shape(self) -> Any:
        """Of one example."""
        return self.images.shape[1:]

    def __len__(self) -> int:
        return len(self.images)

    def read(self, indices: Array) -> Array:
        """The chosen examples, copied."""
        chosen: Array = self.images[as_indices(indices, len(self))]
        return chosen

    def take(self, indices: Array) -> "ExampleSplit":
        """The split of the chosen examples, copied."""
        chosen = as_indices(indices, len(self))
        return ExampleSplit(self.images[chosen], self.labels[chosen])


@dataclass(frozen=True, eq=False)
class ItemSplit:
    """Items of a dataset that are read when they are wanted, from several threads at a time.

    Inputs may differ from one reading to the next (random augmentation), targets may not: they are known up front.
    """

    dataset: Any
    positions: npt.NDArray[np.intp]  # in the dataset
    labels: Any
    shape: Any
    dtype: Any

    def __len__(self) -> int:
        return len(self.positions)

    def read(self, indices: Array) -> Array:
        """The chosen items, read now."""
        chosen = as_indices(indices, len(self))
        out = np.empty((len(chosen), *self.shape), self.dtype)
        for place, index in enumerate(chosen):
            position = int(self.positions[index])
            x, y = _read_item(self.dataset, position)
            _check_alike(x, self.shape, self.dtype, position)
            if not _same_target(y, self.labels[index]):
                raise DataError(
                    f"item {position} of the data has another target than before ({_short(y)}, and "
                    f"{_short(self.labels[index])} before): targets must stay the same, only inputs may vary"
                )
            out[place] = x
        return out

    def take(self, indices: Array) -> "ItemSplit":
        """The split of the chosen items; nothing is read."""
        chosen = as_indices(indices, len(self))
        return ItemSplit(self.dataset, self.positions[chosen], self.labels[chosen], self.shape, self.dtype)


def as_split(data: Any) -> Split:
    """What a person calls training data, as a split; anything malformed is said in one line.

    - A split of membound as it is; of a membound Dataset its training half.
    - (x, y), numpy arrays or tensors: x uint8 or floating point [n, ...] of any shape, y class numbers [n], or
      for other tasks floats [n, ...] (or integers of two or more dimensions, such as masks).
    - A torch Dataset, or a list, of items (x, y). Only a plain TensorDataset is held in memory; other items are read
      on demand, each time anew and from several threads. Their targets are needed first: they come from `targets`
      where there is such an attribute (and no target_transform), or else from reading every item once.
    - A DataLoader: its dataset is used. Batch size, order and workers are chosen by the training, not by the loader.

    >>> split = as_split((np.zeros((4, 10)), [0, 1, 2, 1]))
    >>> len(split), split.shape, split.read([0]).dtype
    (4, (10,), dtype('float32'))
    """
    if isinstance(data, Dataset):
        data = data.train
    if _is_split(data):
        if len(data) == 0:
            raise DataError("the data has no examples")
        split: Split = data
        return split
    if isinstance(data, torch_data.DataLoader):
        return _from_loader(data)
    if isinstance(data, tuple) or (isinstance(data, list) and len(data) == 2 and all(map(_is_array, data))):
        return _from_pair(data)
    _refuse_unusable(data)
    return _from_dataset(data)


def preprocess_of(data: Any, split: Split) -> Preprocess:
    """How the examples of `split`, which is made from `data`, become inputs.

    uint8 images [C, H, W] are normalised per channel (by at most 10,000 items of a torch Dataset, drawn with
    seed 0), other uint8 data is divided by 255; floating-point data is taken as prepared already, except that of a
    membound Dataset, whose images are as they were read.

    >>> x = np.array([[0, 255], [255, 0]], np.uint8)
    >>> preprocess_of(None, as_split((x, [0, 1]))).to_json()
    {'scale': 0.00392156862745098}
    >>> preprocess_of(None, as_split((x / 255, [0, 1]))) == Preprocess(takes="float32")
    True
    """
    takes = str(split.dtype if isinstance(split, ItemSplit) else split.read(np.zeros(1, np.intp)).dtype)
    if takes != "uint8" and not isinstance(data, Dataset):
        return Preprocess(takes=takes)
    if len(split.shape) != 3:
        return Preprocess(scale=1 / 255)
    if isinstance(split, ItemSplit) and len(split) > MOMENTS_OF:
        split = subsample(split, MOMENTS_OF)
    mean, std = channel_moments(split)
    return Preprocess(mean=mean, std=std.clip(min=1e-6), takes=takes)


def hold_out(
    split: Split, count_or_fraction: int | float, seed: int = 0, stratified: bool = True
) -> tuple[Split, Split]:
    """(train, validation), as `mb.data.validation_split`; targets that are not class numbers cannot be stratified.

    >>> train, validation = hold_out(as_split((np.zeros((10, 3)), np.zeros((10, 1)))), 0.3)
    >>> len(train), len(validation)
    (7, 3)
    """
    labels: Any = split.labels
    classes = labels.ndim == 1 and labels.dtype.kind in "iu"
    return validation_split(split, count_or_fraction, seed, stratified and classes)


# What it is


def _is_split(data: Any) -> bool:
    return all(hasattr(data, name) for name in ("labels", "shape", "read", "take", "__len__"))


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | Tensor) or hasattr(value, "__array__")


def _refuse_unusable(data: Any) -> None:
    kind = type(data).__name__
    if data is None:
        raise DataError(f"there is no data (None): pass {_WANTED}")
    if isinstance(data, str | bytes | Path):
        raise DataError(f"the data is a name, {str(data)!r}: pass mb.data.load({str(data)!r})")
    if _is_array(data):
        raise DataError(f"the data is one {kind} without targets: pass both, (x, y)")
    if isinstance(data, torch_data.IterableDataset):
        raise DataError(
            f"{kind} is an IterableDataset, which has no index: pass arrays (x, y) or a Dataset with __getitem__"
        )
    if isinstance(data, Iterator):
        raise DataError(f"a {kind} can be read only once, and in its own order: pass {_WANTED}")
    if isinstance(data, dict | set) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise DataError(f"data of type {kind} is not understood: pass {_WANTED}")


# Arrays


def _from_pair(pair: Sequence[Any]) -> Split:
    if len(pair) != 2:
        raise DataError(f"the data is a tuple of {len(pair)}: it must be two arrays, (x, y)")
    x, y = pair
    if not (_is_array(x) and (_is_array(y) or isinstance(y, list | tuple))):
        raise DataError(
            f"the data is a pair of {type(x).__name__} and {type(y).__name__}: it must be two arrays, (x, y)"
        )
    inputs = _as_inputs(_as_array(x, "x"), "x")
    if inputs.ndim < 2:
        raise DataError(
            f"x has shape {list(inputs.shape)}: it must be [n, ...], such as [n, 1] for one number an example"
        )
    targets = _as_targets(_as_array(y, "y"))
    if len(inputs) != len(targets):
        raise DataError(
            f"x has {len(inputs)} examples and y {len(targets)}: there must be one target an example"
        )
    if inputs.size == 0:
        raise DataError(f"x has shape {list(inputs.shape)}: there is nothing in it")
    inputs, targets = _writable(inputs), _writable(targets)
    if inputs.ndim == 4 and targets.ndim == 1 and targets.dtype == np.int64:
        return ArraySplit(inputs, targets)
    return ExampleSplit(inputs, targets)


def _writable(array: Array) -> Array:
    """Torch warns when it shares read-only memory; a set too large for the device is never shared."""
    return array if array.flags.writeable or array.nbytes > RESIDENT_BYTES else array.copy()


def _as_array(value: Any, name: str) -> Array:
    """A tensor, picture or anything like an array as an array; floating point of every kind is float32."""
    try:
        if isinstance(value, Tensor):
            value = value.detach().cpu().resolve_conj().resolve_neg()
            array: Array = (value.float() if value.is_floating_point() else value).numpy()
        else:
            array = np.asarray(_pixels(value, name) if _is_picture(value) else value)
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):
                array = array.astype(np.float32, copy=False)
    except MemboundError:
        raise
    except Exception as error:
        raise DataError(f"{name} is a {type(value).__name__} that is no array ({_reason(error)})") from error
    return array


def _as_inputs(array: Array, name: str) -> Array:
    if array.dtype not in (np.uint8, np.float32):
        advice = {
            "O": "; rows of different lengths make no array",
            "c": "; give real and imaginary parts as channels",
            "i": f'; convert it, as {name}.astype("float32") does',
        }.get(array.dtype.kind, "")
        raise DataError(f"{name} is {array.dtype}: it must be uint8 or floating point{advice}")
    if not _is_finite(array):
        raise DataError(f"{name} holds values that are not finite in float32 (NaN or infinite)")
    return array


def _is_finite(array: Array) -> bool:
    # Both ends of the range carry NaN and infinities along, and need no memory for a mask.
    return array.dtype.kind != "f" or array.size == 0 or bool(np.isfinite([array.min(), array.max()]).all())


def _as_targets(y: Array) -> Array:
    """Class numbers as int64 [n], other targets as float32 or int64 [n, ...]."""
    if y.ndim == 0:
        raise DataError("y is a single number: there must be one target an example")
    if y.dtype.kind in "USO":
        raise DataError(
            f"labels are {y.dtype}: number the classes from 0, as np.unique(y, return_inverse=True)[1] does"
        )
    if y.dtype.kind not in "iuf":
        raise DataError(f"y is {y.dtype}: it must be class numbers (integers), or floats for another task")
    if y.dtype.kind == "f":
        if not _is_finite(y):
            raise DataError("y holds values that are not finite in float32 (NaN or infinite)")
        return y.astype(np.float32, copy=False)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 1:
        return as_labels(y, len(y))
    if y.ndim == 2 and ((y == 0) | (y == 1)).all() and (y.sum(1) == 1).all():
        raise DataError(
            f"y is {y.dtype} {list(y.shape)}, one-hot labels: give class numbers, y.argmax(1) (or floats, to a loss "
            "of your own)"
        )
    return y.astype(np.int64, copy=False)


# Items


def _from_loader(loader: "torch_data.DataLoader[Any]") -> Split:
    advice = "pass its dataset, or arrays (x, y), instead"
    dataset: Any = loader.dataset
    if isinstance(dataset, torch_data.IterableDataset):
        raise DataError(f"the DataLoader reads an IterableDataset, which has no index: {advice}")
    if loader.batch_sampler is None:
        raise DataError(f"the DataLoader has batch_size=None, so its items may be whole batches: {advice}")
    if loader.collate_fn is not torch_data.default_collate:
        raise DataError(f"the DataLoader has a collate_fn of its own, which would not be called: {advice}")
    sampler = getattr(loader.batch_sampler, "sampler", None)
    if type(loader.batch_sampler) is not torch_data.BatchSampler:
        raise DataError(f"the DataLoader has a batch_sampler of its own, which would not be asked: {advice}")
    if type(sampler) is torch_data.SubsetRandomSampler:  # it may be what keeps a validation set apart
        return as_split(torch_data.Subset(dataset, [int(index) for index in sampler.indices]))
    orders = (torch_data.SequentialSampler, torch_data.RandomSampler, torch_data.DistributedSampler)
    if type(sampler) not in orders:
        raise DataError(
            f"the DataLoader has a {type(sampler).__name__}, whose choice would not be followed: {advice}"
        )
    return as_split(dataset)


def _from_dataset(dataset: Any) -> Split:
    if type(dataset) is torch_data.TensorDataset:
        return _from_pair(dataset.tensors)
    if type(dataset) is torch_data.Subset and type(dataset.dataset) is torch_data.TensorDataset:
        return as_split(dataset.dataset).take(np.asarray(dataset.indices, np.intp))
    try:
        count = len(dataset)
    except Exception as error:
        raise DataError(
            f"{type(dataset).__name__} has no length ({_reason(error)}): define __len__"
        ) from error
    if count == 0:
        raise DataError("the data has no examples")
    first, _ = _read_item(dataset, 0)
    if first.size == 0:
        raise DataError(f"item 0 of the data has shape {list(first.shape)}: there is nothing in it")
    labels = _known_targets(dataset, count)
    if labels is None:
        labels = _read_targets(dataset, count, first)
    return ItemSplit(dataset, np.arange(count), labels, first.shape, first.dtype)


def _read_item(dataset: Any, index: int) -> tuple[Array, Array]:
    """One item as arrays, its input checked."""
    name = f"item {index} of the data"
    try:
        item = dataset[index]
    except MemboundError:
        raise
    except Exception as error:
        raise DataError(f"{name} cannot be read: {_reason(error)}") from error
    if not isinstance(item, tuple | list) or len(item) != 2:
        size = f" of {len(item)}" if isinstance(item, tuple | list) else ""
        raise DataError(f"{name} is a {type(item).__name__}{size}: it must be a pair (x, y)")
    x = _as_inputs(_as_array(item[0], f"x in {name}"), f"x in {name}")
    if x.ndim == 0:
        raise DataError(f"x in {name} is a single number: it must have a shape, such as [1]")
    return x, _as_array(item[1], f"y in {name}")


def _check_alike(x: Array, shape: Any, dtype: Any, index: int) -> None:
    if x.shape != shape or x.dtype != dtype:
        raise DataError(
            f"item {index} of the data is {x.dtype} {list(x.shape)}, the first is {dtype} {list(shape)}: "
            "all must be alike (resize or pad them in the dataset)"
        )


def _known_targets(dataset: Any, count: int) -> Array | None:
    """The class numbers that a dataset holds apart from its items, if it does and some items agree with them."""
    labels = _own_targets(dataset)
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != count:
        return None
    for index in np.linspace(0, count - 1, min(count, _PROBES)).astype(int):
        if not _same_target(_read_item(dataset, int(index))[1], labels[index]):
            return None
    return _as_targets(labels)


def _own_targets(dataset: Any) -> Array | None:
    try:
        if type(dataset) is torch_data.Subset:
            whole = _own_targets(dataset.dataset)
            return None if whole is None else whole[as_indices(np.asarray(dataset.indices), len(whole))]
        targets = getattr(dataset, "targets", None)
        if not isinstance(targets, list | np.ndarray | Tensor) or getattr(dataset, "target_transform", None):
            return None
        return _as_array(targets, "targets")
    except DataError:
        return None


def _read_targets(dataset: Any, count: int, first: Array) -> Array:
    """The targets of all items, by reading each once."""

    def read(index: int) -> Array:
        x, y = _read_item(dataset, index)
        _check_alike(x, first.shape, first.dtype, index)
        return y

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        found = list(pool.map(read, range(count)))
    if len(shapes := {y.shape for y in found}) > 1:
        one, other = sorted(map(list, shapes))[:2]
        raise DataError(f"the targets of some items have shape {one}, of others {other}: all must be alike")
    return _as_targets(np.stack(found))


def _same_target(found: Array, known: Any) -> bool:
    return found.dtype.kind in "iuf" and np.array_equal(np.ravel(found), np.ravel(known))


# Pictures


def _is_picture(value: Any) -> bool:
    pillow = sys.modules.get("PIL.Image")  # a picture is there only where Pillow was imported
    return pillow is not None and isinstance(value, pillow.Image)


def _pixels(picture: Any, name: str) -> Array:
    """A picture as uint8 [C, H, W]: one channel for gray, three for everything else; transparency is dropped."""
    if picture.mode in ("1", "L", "LA"):
        return np.asarray(picture.convert("L"))[None]
    if picture.mode == "P":
        picture = picture.convert("RGBA")  # a palette may hold transparency
    if picture.mode not in ("RGB", "RGBA", "CMYK", "YCbCr", "HSV"):
        raise DataError(f"{name} is a picture of mode {picture.mode}: convert it to L or RGB, or to an array")
    return np.asarray(picture.convert("RGB")).transpose(2, 0, 1)


def _reason(error: Exception) -> str:
    message = str(error).strip()
    return f"{type(error).__name__}: {message.splitlines()[0]}" if message else type(error).__name__


def _short(target: Array) -> str:
    return str(target) if np.size(target) == 1 else f"{target.dtype} {list(target.shape)}"
