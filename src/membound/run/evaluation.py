"""How accurate a model file is, through the runtime that is deployed: no torch."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from membound.data import Dataset, Split
from membound.data import load as load_data
from membound.data.examples import CLASSES, REGRESSION, SEGMENTATION
from membound.data.npz import FEATURES, LAYOUTS
from membound.data.pictures import Size
from membound.data.preprocess import taken_by
from membound.data.several import inputs_of
from membound.data.source import has_own_size, sample
from membound.errors import DataError
from membound.run.files import find_model_file, prepare
from membound.run.layers import count_nonzeros
from membound.run.micro_net import MicroNet
from membound.run.net import Net, load
from membound.run.pictures import picture_size
from membound.run.scores import only_class, score_for
from membound.units import name_examples, standard_error

BATCH = 64
COMPARED = 500  # examples that floats run on beside integers
FAR, CERTAIN = 5.0, 5  # points that rounding to int8 may cost, and standard errors of the difference
CONFUSED = 100  # classes at most whose confusion is told, a number for each two


def evaluate_file(
    net: Net | MicroNet, dataset: Dataset, split: str = "test", batch: int = BATCH
) -> dict[str, Any]:
    """Accuracy and size of a network that `open_for_evaluation` has loaded."""
    halves = {"test": [dataset.test], "train": [dataset.train], "all": [dataset.train, dataset.test]}[split]
    images = sum(map(len, halves))
    check_fits(net, dataset)
    if dataset.task != CLASSES:
        return _evaluate_beyond(net, dataset, halves, batch)
    among_five, count = 0, len(dataset.classes)
    table = np.zeros((count, net.output_shape[0]), np.int64)  # what images are, and what they are said to be
    for half, rows in _batches(halves, batch):
        scores = first_output(_run(net, half, rows))
        labels = half.labels[rows]
        np.add.at(table, (labels, scores.argmax(1)), 1)
        if scores.shape[1] > 5:
            best = np.argpartition(-scores, 5, axis=1)[:, :5]
            among_five += int((best == labels[:, None]).sum())
    correct = int(np.trace(table))
    return {
        "accuracy": 100.0 * correct / images,
        "top5_accuracy": 100.0 * among_five / images if net.output_shape[0] > 5 else None,
        "errors": images - correct,
        "images": images,
        "classes": _by_class(table, dataset.classes),
        "confusion": table.tolist() if count <= CONFUSED else None,
        "collapsed": only_class(table),
        **count_nonzeros(net.model),
        "file_bytes": net.model.file_bytes,
    }


def lost_in_integers(net: MicroNet, dataset: Dataset, split: str = "test") -> dict[str, float] | None:
    """What rounding to int8 costs, in points, on some examples, where that is far and no chance; else None.

    `float_accuracy` and `accuracy` are those of the same examples and the same file.
    """
    half = dataset.train if split == "train" else dataset.test
    if dataset.task != CLASSES:
        return None
    rows = np.linspace(0, len(half) - 1, min(COMPARED, len(half)), dtype=np.int64)
    labels = half.labels[rows]
    right = [first_output(_run(each, half, rows)).argmax(1) == labels for each in (Net(net.model), net)]
    floats, integers = (100.0 * float(each.mean()) for each in right)
    gaps = 100.0 * (right[0].astype(np.float64) - right[1])
    error = standard_error(gaps.tolist())
    if error is None or floats - integers <= max(FAR, CERTAIN * error):
        return None
    return {"float_accuracy": floats, "accuracy": integers, "images": len(rows)}


def _by_class(table: npt.NDArray[np.int64], names: Sequence[str]) -> list[dict[str, Any]]:
    """
    >>> _by_class(np.array([[3, 1], [0, 0]]), ["cat", "dog"])[0]
    {'name': 'cat', 'images': 4, 'errors': 1, 'accuracy': 75.0}
    """
    found = []
    for name, row, right in zip(names, table, np.diag(table), strict=True):
        images, errors = int(row.sum()), int(row.sum() - right)
        accuracy = 100.0 * (images - errors) / images if images else None
        found.append({"name": name, "images": images, "errors": errors, "accuracy": accuracy})
    return found


def _batches(halves: list[Split], batch: int) -> Iterator[tuple[Split, npt.NDArray[np.int64]]]:
    for half in halves:
        for begin in range(0, len(half), batch):
            yield half, np.arange(begin, min(begin + batch, len(half)))


def _evaluate_beyond(
    net: Net | MicroNet, dataset: Dataset, halves: list[Split], batch: int
) -> dict[str, Any]:
    """The score of segmentation or regression."""
    score = score_for(dataset.task, len(dataset.classes), dataset.train.labels)
    for half, rows in _batches(halves, batch):
        score.add(first_output(_run(net, half, rows)), half.labels[rows])
    return {
        "task": dataset.task,
        "score_name": score.name,
        **score.facts(),
        "images": sum(map(len, halves)),
        **count_nonzeros(net.model),
        "file_bytes": net.model.file_bytes,
    }


def _run(net: Net | MicroNet, half: Split, rows: npt.NDArray[np.int64]) -> Any:
    """What the network gives for some examples."""
    inputs, x = inputs_of(half), half.read(rows)
    return net(prepare(net, x)) if inputs is None else inputs.call(net, x)


def _check_inputs(net: Net | MicroNet, dataset: Dataset) -> None:
    """Several inputs: those of the data, by their names."""
    inputs = inputs_of(dataset.test)
    wanted = net.inputs if isinstance(net, Net) else ()
    if inputs is None and (len(wanted) > 1 or any(port.whole for port in wanted)):
        keys = ", ".join(f"x_test.{port.name}" for port in wanted)
        raise DataError(
            f"the network takes {'; '.join(map(str, wanted))}: give an .npz with an array for each of them, {keys}, "
            f"and the same of x_train"
        )
    if inputs is None:
        return
    found = {(part.name, part.shape, part.whole) for part in inputs.parts}
    if found != {(port.name, tuple(port.shape), port.whole) for port in wanted}:
        takes = "; ".join(map(str, wanted)) or "one input, in integers"
        raise DataError(f"{dataset.name} has {'; '.join(map(str, inputs.parts))}: this network takes {takes}")


def _check_outputs(net: Net | MicroNet, dataset: Dataset) -> None:
    """What the network gives for an example must go with a target."""
    shape, target = tuple(net.output_shape), dataset.test.labels.shape[1:]
    if dataset.task == REGRESSION and np.prod(shape) != np.prod(target, dtype=int):
        numbers, outputs = int(np.prod(target, dtype=int)), int(np.prod(shape))
        classes = " (classes)" if net.classes and len(net.classes) == outputs > 1 else ""
        raise DataError(
            f"{dataset.name} has {numbers:,} number{'s' if numbers > 1 else ''} to predict per example, but the "
            f"network has {outputs:,} output{'s' if outputs > 1 else ''}{classes}: give data of the kind that it was "
            "trained on"
        )
    if dataset.task == SEGMENTATION and (shape[1:] != target or shape[0] < len(dataset.classes)):
        raise DataError(
            f"the network gives {list(shape)} for an image, {dataset.name} has masks of {list(target)} and "
            f"{len(dataset.classes)} classes: a score for each class at each pixel is needed"
        )


def first_output(found: Any) -> npt.NDArray[np.float32]:
    """The scores, where a network gives more than them: the first that it returns."""
    several = found.values() if isinstance(found, dict) else found if isinstance(found, tuple) else (found,)
    scores: npt.NDArray[np.float32] = next(iter(several))
    return scores


def open_for_evaluation(path: Path, batch: int = BATCH, engine: Literal["float", "int8"] = "float") -> Net:
    """The network in a model file, with room for a batch, or for a slice of a large one."""
    return load(find_model_file(path), max_batch=min(batch, BATCH), engine=engine)


def open_in_integers(path: Path) -> MicroNet:
    """The network in a calibrated model file, as a microcontroller computes it."""
    return load(find_model_file(path), engine="micro")


def image_size(net: Net | MicroNet, data: str) -> Size | None:
    """The size to read a folder's images at, where the file says it; other data have a size of their own."""
    return None if has_own_size(data) else picture_size(net.model, net.input_shape)


def load_like(shape: Sequence[int], data: str, *, layout: str | None = None, **options: Any) -> Dataset:
    """Data as a network of this input shape takes them: an .npz in the layout that fits, where none is said.

    A file does not remember the layout that its network was fitted with, but it knows its input.
    """
    if layout is not None or not data.endswith(".npz"):
        return load_data(data, layout=layout, **options)
    try:
        guessed = load_data(data, **options)
    except DataError as error:
        if "layout" not in error.about:
            raise
        if (found := _in_other_layout(shape, data, options)) is None:
            raise
        return found
    if tuple(guessed.shape) == tuple(shape):
        return guessed
    return _in_other_layout(shape, data, options) or guessed


def _in_other_layout(shape: Sequence[int], data: str, options: Mapping[str, Any]) -> Dataset | None:
    for layout in (*LAYOUTS, *FEATURES):
        try:
            found = load_data(data, layout=layout, **options)
        except DataError:
            continue
        if tuple(found.shape) == tuple(shape):
            return found
    return None


def check_fits(net: Net | MicroNet, dataset: Dataset) -> None:
    """One image through the network, and the names of the classes, so that what does not fit is said at once."""
    _check_inputs(net, dataset)
    if inputs_of(dataset.test) is None:
        _check_images(net, dataset)
    if dataset.task != CLASSES:
        _check_outputs(net, dataset)
        return
    _check_classes(net, dataset)


def check_sample(net: Net | MicroNet, data: str) -> None:
    """The same before anything is downloaded, where that is to come."""
    found = sample(data)
    if found is not None:
        check_fits(net, found)


def _check_images(net: Net | MicroNet, dataset: Dataset) -> None:
    images = dataset.test.read(np.zeros(1, np.int64))
    named = name_examples(net.input_shape)
    if net.model.preprocess is None and images.dtype != np.float32:
        raise DataError(
            f"the file does not say how {named} are prepared, and those of {dataset.name} are {images.dtype}: "
            f"save the network again with preprocess=mb.data.Preprocess(...), or prepare the {named} as float32 "
            "in an .npz"
        )
    if net.model.preprocess is not None and taken_by(net.model.preprocess) == "uint8" != images.dtype:
        raise DataError(
            f"{named} of {dataset.name} are {images.dtype}: this file prepares pixels; give it uint8 from 0 to 255"
        )
    cropped = (net.model.preprocess or {}).get("crop") is not None
    if not cropped and images.shape[1:] != tuple(net.input_shape):
        raise DataError(_say_shape(dataset.name, named, images.shape[1:], net.input_shape))
    pixels = isinstance(net, MicroNet) and images.dtype == np.uint8
    prepared = net.preprocess(images) if pixels else prepare(net, images)
    if prepared.shape[1:] != net.input_shape:
        raise DataError(_say_shape(dataset.name, named, prepared.shape[1:], net.input_shape))


def _say_shape(name: str, named: str, found: Sequence[int], wanted: Sequence[int]) -> str:
    """Examples that do not fit; a sequence [time, channels] that was read as a picture lacks a size of 1.

    >>> _say_shape("words", "examples", (1, 20, 49), (20, 49, 1))
    'examples of words are [1, 20, 49] once prepared: this network takes [20, 49, 1]; save x[..., None] in its place'
    """
    text = f"{named} of {name} are {list(found)} once prepared: this network takes {list(wanted)}"
    if wanted[-1] == 1 and [1, *wanted[:-1]] == list(found):
        text += "; save x[..., None] in its place"
    return text


def _check_classes(net: Net | MicroNet, dataset: Dataset) -> None:
    classes = len(dataset.classes)
    if len(net.output_shape) != 1 or net.output_shape[0] < classes:
        one = name_examples(net.input_shape)[:-1]
        raise DataError(
            f"the network gives {list(net.output_shape)} for an {one}, {dataset.name} has {classes} classes: a score "
            "for each is needed"
        )
    numbered = dataset.classes == tuple(map(str, range(classes)))  # as an .npz has them, which knows no names
    if net.classes is not None and not numbered and tuple(net.classes) != tuple(dataset.classes):
        raise DataError(
            f"the classes of the file ({_some(net.classes)}) are not those of {dataset.name} "
            f"({_some(dataset.classes)}): evaluate on data of the same classes in the same order"
        )


def _some(names: Any) -> str:
    return ", ".join(map(str, names[:3])) + (", ..." if len(names) > 3 else "")
