"""Weights that Caffe trained: read a .caffemodel or a mean .binaryproto, load one into a network.

The three encodings that Caffe has written are understood: `layer` (2014 on), `layers` (V1) and the V0 layer
within a `layers`. Parsing needs numpy only; nothing depends on the protobuf library.
"""

import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from math import prod

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from membound.errors import WeightsError, check_path_like
from membound.zoo.placement import place
from membound.zoo.wire import FIXED32, FIXED64, LENGTH, VARINT, Field, Malformed, fields, varint

Array = npt.NDArray[np.float32]
Bytes = memoryview | bytearray
Path = str | os.PathLike[str]

# Numbers of the fields that matter, from caffe.proto.
NET_LAYERS, NET_LAYER = 2, 100
V1_LAYER = 1  # a V0 layer, wrapped
NAME_AND_BLOBS = {"layer": (1, 7), "V1": (4, 6), "V0": (1, 50)}
LEGACY_DIMS, DATA, SHAPE, DOUBLE_DATA = (1, 2, 3, 4), 5, 7, 8
MAX_AXES, MAX_DIM = 32, 2**31 - 1  # as in Caffe


def read_caffemodel(path: Path) -> dict[str, list[Array]]:
    """The blobs of every layer that has any, by Caffe's layer name, in the shapes that the file declares.

    A convolution or a fully-connected layer has a weight and a bias; a file of version 1 or 0 stores the
    matrix of a fully-connected layer as [1, 1, out, in]. A layer pruned by Dynamic Network Surgery may have
    its masks behind them.

    >>> mb.zoo.read_caffemodel("lenet.caffemodel")
    Traceback (most recent call last):
    membound.errors.WeightsError: lenet.caffemodel: No such file or directory; give the path of a file
    """
    with _named(path):
        layers = _parse(_map(path))
        return {name: [np.array(blob) for blob in blobs] for name, blobs in layers.items()}


def read_binaryproto(path: Path) -> Array:
    """The mean image [C, H, W] of a file that Caffe's compute_image_mean wrote.

    >>> mb.zoo.read_binaryproto("mean.binaryproto")
    Traceback (most recent call last):
    membound.errors.WeightsError: mean.binaryproto: No such file or directory; give the path of a file
    """
    with _named(path):
        mean = np.array(_blob(_map(path)))
        _require_finite(mean, "the mean image")
        image = mean[0] if mean.ndim == 4 and mean.shape[0] == 1 else mean
        if image.ndim != 3:
            raise WeightsError(
                f"a blob of {list(mean.shape)} where a mean image is [1, C, H, W]; give that file"
            )
        return image


def load_caffemodel(net: nn.Module, path: Path, names: Mapping[str, str] | None = None) -> None:
    """Copy a Caffe model's weights into `net`, all of them or, on any error, none.

    A layer goes to the module of the same name, or where `names` (Caffe's name -> the module's) says; the
    networks of the zoo know their own names in Caffe (`ip1` is `fc1`). Every layer of the file and every
    layer of the network must find its partner. 0/1 masks behind the weights are applied. The order of the
    channels (Caffe's images are BGR where OpenCV read them) stays as it is.

    >>> mb.zoo.load_caffemodel(mb.zoo.lenet(), ".")
    Traceback (most recent call last):
    membound.errors.WeightsError: .: not a regular file; give the path of a file
    """
    with _named(path):
        pairs = place(net, _parse(_map(path)), names or {})
    with torch.no_grad():
        for parameter, value in pairs:
            parameter.copy_(torch.from_numpy(np.array(value)))


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors within name the file."""
    if not isinstance(path, str | os.PathLike):
        check_path_like(path, "path", WeightsError)
    try:
        yield
    except Malformed as fact:
        advice = "the file is cut short, damaged or not Caffe's binary format: fetch it again"
        raise WeightsError(f"{os.fspath(path)}: {fact}; {advice}") from None
    except WeightsError as fact:
        raise WeightsError(f"{os.fspath(path)}: {fact}") from None


def _map(path: Path) -> memoryview:
    """The bytes of a file, mapped: pages come when read and can go again."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise IsADirectoryError
            if status.st_size == 0:
                raise WeightsError("the file is empty; fetch it again")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except IsADirectoryError:
        raise WeightsError("not a regular file; give the path of a file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise WeightsError(f"{reason}; give the path of a file") from None


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe that nobody writes to would hang


def _parse(buffer: memoryview) -> dict[str, list[Array]]:
    """The blobs of a NetParameter, as views into the buffer wherever that is possible."""
    layers: dict[str, list[Array]] = {}
    for name, messages in _layers(buffer):
        if name in layers:
            raise Malformed(f"two layers with weights are called {name[:80]!r}")
        layers[name] = [_blob_of(name, i, message) for i, message in enumerate(messages)]
    if not layers:
        raise WeightsError(
            "no layer with weights in it; weights are read from .safetensors, .pt and .pth files, and from models that "
            "Caffe trained (.caffemodel)"
        )
    for name, blobs in layers.items():
        for i, blob in enumerate(blobs):
            _require_finite(blob, f"layer {name[:80]!r}, blob {i}")
    return layers


def _layers(buffer: memoryview) -> Iterator[tuple[str, list[memoryview]]]:
    """Name and blob messages of each layer that has blobs."""
    for field in fields(buffer):
        if field.number not in (NET_LAYERS, NET_LAYER):
            continue
        message, version = field.content(), "layer"
        if field.number == NET_LAYERS:
            inner = [f for f in fields(message) if f.number == V1_LAYER]
            version = "V0" if inner else "V1"
            message = inner[-1].content() if inner else message
        name_number, blobs_number = NAME_AND_BLOBS[version]
        name = ""
        blobs = []
        for part in fields(message):
            if part.number == name_number:
                name = _text(part)
            elif part.number == blobs_number:
                blobs.append(part.content())
        if blobs:
            yield name, blobs


def _text(field: Field) -> str:
    try:
        return str(field.content(), "utf-8")
    except UnicodeDecodeError:
        raise Malformed("a layer's name is not text") from None


def _blob_of(layer: str, index: int, message: memoryview) -> Array:
    try:
        return _blob(message)
    except Malformed as fact:
        raise Malformed(f"layer {layer[:80]!r}, blob {index}: {fact}") from None


def _blob(message: memoryview) -> Array:
    """The array of a BlobProto: as many values as its shape says."""
    legacy: dict[int, int] = {}
    dims: list[int] = []
    singles: Bytes = bytearray()
    doubles: Bytes = bytearray()
    for field in fields(message):
        if field.number in LEGACY_DIMS:
            legacy[field.number] = field.integer()
        elif field.number == SHAPE:
            dims += islice(_dims(field.content()), MAX_AXES + 1 - len(dims))
        elif field.number == DATA:
            singles = _joined(singles, field.content(LENGTH, FIXED32))
        elif field.number == DOUBLE_DATA:
            doubles = _joined(doubles, field.content(LENGTH, FIXED64))
    shape = [legacy.get(number, 0) for number in LEGACY_DIMS] if legacy else dims
    if len(shape) > MAX_AXES or any(not 1 <= dim <= MAX_DIM for dim in shape):
        raise Malformed(f"a shape of {shape} where at most {MAX_AXES} sizes from 1 to {MAX_DIM} are allowed")
    values = _values(doubles, "<f8") if doubles else _values(singles, "<f4")
    if prod(shape) != values.size:
        raise Malformed(f"{values.size} values for a shape of {shape}")
    return values.reshape(shape)


def _joined(before: Bytes, chunk: memoryview) -> Bytes:
    """Two pieces of a repeated field as one; the first piece alone stays a view of the file."""
    if not before:
        return chunk
    grown = before if isinstance(before, bytearray) else bytearray(before)
    grown += chunk
    return grown


def _dims(message: memoryview) -> Iterator[int]:
    for field in fields(message):
        if field.number == 1 and field.wire == VARINT:
            yield field.integer()
        elif field.number == 1:
            packed, at = field.content(), 0
            while at < len(packed):
                value, at = varint(packed, at)
                yield Field(1, VARINT, value).integer()


def _values(content: Bytes, dtype: str) -> Array:
    if len(content) % np.dtype(dtype).itemsize:
        raise Malformed(f"{len(content)} bytes of values, not a multiple of {np.dtype(dtype).itemsize}")
    with np.errstate(all="ignore"):  # a double beyond float32 becomes infinite, and is refused as such
        return np.frombuffer(content, dtype).astype(np.float32, copy=False)


def _require_finite(values: Array, where: str) -> None:
    """The least and the greatest value carry any NaN or infinity; finding them takes no memory."""
    with np.errstate(all="ignore"):
        least, greatest = values.min(), values.max()
    if not (np.isfinite(least) and np.isfinite(greatest)):
        raise WeightsError(f"{where} has values that are not finite; take a snapshot from before it diverged")
