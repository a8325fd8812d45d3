"""Data as people have it (arrays, a torch Dataset, a DataLoader) as a split that can be trained on."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils import data as torch_data

from membound.data import ArraySplit, Dataset, Preprocess, Split, subsample, validation_split
from membound.data.examples import ExampleSplit
from membound.errors import DataError, shown
from membound.train.arrays import Array, as_array, as_inputs, as_targets
from membound.train.batches import RESIDENT_BYTES, Order
from membound.train.items import ItemSplit, from_items
from membound.train.iterables import is_iterable_loader, read_all
from membound.train.loaders import LoaderSplit, Reading, follow
from membound.train.preprocessing import features_as_they_are, standardized
from membound.train.several import as_pair, from_several, has_several

MOMENTS_OF = 10_000  # items of a torch Dataset that are read for their mean and deviation
_WANTED = "(x, y) arrays, a torch Dataset, a DataLoader or a set of mb.data"


def as_split(data: Any) -> Split:
    """What a person calls training data, as a split; anything malformed is said in one line.

    - A split of membound as it is; of a membound Dataset its training half.
    - (x, y), numpy arrays or tensors: x uint8 or floating point [n, ...] of any shape, y class numbers [n], or
      for other tasks floats [n, ...] (or integers of two or more dimensions, such as masks).
    - Several inputs: x is a tuple of arrays, for a network that is called with them in order, or a dict of them, for
      one that takes them by name; or all is a dict, with targets under 'labels'. A dict with one input called 'image',
      'img', 'pixel_values' or the like is a pair (x, y), for a network of one input. Floating point is taken as
      prepared, integers as whole numbers. Items and batches of a Dataset or DataLoader may be so, too.
    - A torch Dataset, or a list, of items (x, y). Only a plain TensorDataset is held in memory; other items are read
      on demand, each time anew and from several threads. Their targets are needed first: they come from `targets`
      where there is such an attribute (and no target_transform), or else from reading every item once.
    - A DataLoader: a LoaderSplit, which keeps its batch size, order, workers and collate_fn. A sampler that is not one
      of torch's, and a batch_sampler, are refused.
    - An IterableDataset, or a DataLoader of one, whose batch size is kept: it is read once, to its end, and held in
      memory; each pass is in a random order.

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
    if isinstance(data, torch_data.IterableDataset) or is_iterable_loader(data):
        split = _from_pair(read_all(data))
        batch_size = getattr(
            data, "batch_size", None
        )  # of a loader; what drop_last leaves out was never read
        return split if batch_size is None else LoaderSplit(split, batch_size, Order(), Reading())
    if isinstance(data, torch_data.DataLoader):
        return _from_loader(data)
    if _is_whole_dict(data):
        pair = as_pair(data)
        return from_several(data) if pair is data else _from_pair(pair)
    if isinstance(data, tuple) and has_several(data):
        return from_several(data)
    if isinstance(data, tuple) or (isinstance(data, list) and len(data) == 2 and all(map(_is_array, data))):
        return _from_pair(data)
    _refuse_unusable(data)
    return _from_dataset(data)


def preprocess_of(data: Any, split: Split) -> Preprocess:
    """How the examples of `split`, which is made from `data`, become inputs.

    uint8 images [C, H, W] are normalised per channel (by at most 10,000 items of a torch Dataset, drawn with
    seed 0), other uint8 data is divided by 255; floating-point data is taken as prepared already, except that of a
    membound Dataset, whose examples are as they were read: they are standardized.

    >>> x = np.array([[0, 255], [255, 0]], np.uint8)
    >>> preprocess_of(None, as_split((x, [0, 1]))).to_json()
    {'scale': 0.00392156862745098}
    >>> preprocess_of(None, as_split((x / 255, [0, 1]))) == Preprocess(takes="float32")
    True
    """
    takes = str(split.dtype if isinstance(split, ItemSplit) else split.read(np.zeros(1, np.intp)).dtype)
    if len(split.shape) != 3 if takes == "uint8" else not isinstance(data, Dataset):
        return features_as_they_are(takes)
    split = split.inner if isinstance(split, LoaderSplit) else split
    if isinstance(split, ItemSplit) and len(split) > MOMENTS_OF:
        split = subsample(split, MOMENTS_OF)
    return standardized(split, takes)


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


def _is_whole_dict(data: Any) -> bool:
    return isinstance(data, dict) and len(data) > 1 and all(map(_is_array, data.values()))


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | Tensor) or hasattr(value, "__array__")


def _refuse_unusable(data: Any) -> None:
    kind = type(data).__name__
    if data is None:
        raise DataError(f"there is no data (None): pass {_WANTED}")
    if isinstance(data, bytes | bytearray):
        raise DataError(f"the data is {shown(data)}: pass {_WANTED}")
    if isinstance(data, str | Path):
        raise DataError(f"the data is a string, {shown(str(data))}: pass mb.data.load({shown(str(data))})")
    if _is_array(data):
        raise DataError(f"the data is one {kind} without targets: pass both, (x, y)")
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
    arrays = as_array(x, "x"), as_array(y, "y")
    if arrays[0].ndim == 1 and arrays[1].ndim > 1:
        shown = (
            f"{name} is {each.dtype} {list(each.shape)}" for name, each in zip("xy", arrays, strict=True)
        )
        raise DataError(f"{' and '.join(shown)}: x must be [n, ...]; or are x and y exchanged?")
    inputs = as_inputs(arrays[0], "x")
    if inputs.ndim < 2:
        raise DataError(
            f"x has shape {list(inputs.shape)}: it must be [n, ...], such as [n, 1] for one number an example"
        )
    targets = as_targets(arrays[1])
    if len(inputs) != len(targets):
        raise DataError(
            f"x has {len(inputs)} examples and y {len(targets)}: give one target for each example"
        )
    if inputs.size == 0:
        raise DataError(f"x has shape {list(inputs.shape)}: it is empty")
    inputs, targets = _writable(inputs), _writable(targets)
    if inputs.ndim == 4 and targets.ndim == 1 and targets.dtype == np.int64:
        return ArraySplit(inputs, targets)
    return ExampleSplit(inputs, targets)


def _writable(array: Array) -> Array:
    """Torch warns when it shares read-only memory; a set too large for the device is never shared."""
    return array if array.flags.writeable or array.nbytes > RESIDENT_BYTES else array.copy()


# Datasets


def _from_loader(loader: "torch_data.DataLoader[Any]") -> Split:
    dataset, order, reading = follow(loader)
    _refuse_unusable(dataset)
    if loader.collate_fn is torch_data.default_collate:
        split = _from_dataset(dataset, reading)
    else:
        split = from_items(dataset, reading, loader.collate_fn)
    batches: Any = loader.batch_sampler
    return LoaderSplit(split, batches.batch_size, order, reading)


def _from_dataset(dataset: Any, reading: Reading | None = None) -> Split:
    if type(dataset) is torch_data.TensorDataset:
        return _from_pair(dataset.tensors)
    if type(dataset) is torch_data.Subset and type(dataset.dataset) is torch_data.TensorDataset:
        return as_split(dataset.dataset).take(np.asarray(dataset.indices, np.intp))
    return from_items(dataset, reading)
