"""Preprocessing as data: what is done to images before the network sees them, kept with the model."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from reprlib import repr as shorten
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.data.splits import Array
from membound.errors import DataError, a_kind
from membound.signatures import known_fields

Float32 = npt.NDArray[np.float32]
TYPES = ("uint8", "float32")  # of what is prepared


@known_fields
@dataclass(frozen=True, eq=False)
class Preprocess:
    """(x - mean) * scale / std, then the center crop.

    `mean` is in the units of x, so in pixels from 0 to 255 where x is uint8: 255 times what torchvision's Normalize
    takes. It is per channel [C] or a mean image [C, H, W], which is subtracted before the crop and so at the crop's
    position; `std` is per channel [C]; the crop starts at ((H - crop) // 2, (W - crop) // 2).
    Channels are the first axis after the batch: those of images [n, C, H, W] and of sequences [n, C, L], and each
    number of features [n, C].
    `mirror` says that training mirrors at random (and crops at random where `crop` is set): a call does not.
    `takes` says what x is: 'uint8', pixels from 0 to 255, or 'float32', numbers as the training data had them.
    Pixels are refused where floats were trained on: nothing says how the one becomes the other.

    >>> halve = mb.data.Preprocess(scale=0.5, mean=np.array([10.0]), crop=1)
    >>> halve(np.full((1, 1, 3, 3), 14, np.uint8)).tolist()
    [[[[2.0]]]]
    >>> halve.to_json()
    {'scale': 0.5, 'mean': [10.0], 'crop': 1}
    """

    scale: float = 1.0
    mean: Array | None = None
    std: Array | None = None
    crop: int | None = None
    mirror: bool = False
    takes: str = "uint8"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and self.scale != 0):
            raise DataError(f"scale {self.scale} is not allowed: take a finite number other than 0")
        if self.crop is not None and self.crop < 1:
            raise DataError(f"crop {self.crop} is not allowed: take a size in pixels from 1 up")
        if self.takes not in TYPES:
            raise DataError(f"takes {self.takes!r} is not allowed: choose {' or '.join(TYPES)}")
        for name in ("mean", "std"):
            object.__setattr__(self, name, _checked(name, getattr(self, name)))
        self._refuse_scaled_mean()

    def _refuse_scaled_mean(self) -> None:
        """A mean of images from 0 to 1, as torchvision's Normalize takes it, would do next to nothing to pixels."""
        if self.mean is None or self.mean.ndim != 1 or self.takes != "uint8" or abs(self.scale) >= 0.1:
            return
        if (self.mean <= 0).any() or (self.mean > 1).any():
            return
        right = [float(f"{255 * value:.6g}") for value in self.mean.astype(np.float64)]
        std = "" if self.std is None else f", std={_shortest(self.std)}"
        raise DataError(
            f"mean={_shortest(self.mean)} with scale={self.scale:.4g}: the mean is subtracted before the scale, in "
            f"pixels: multiply torchvision's by 255: mean={right}{std}"
        )

    @classmethod
    def measured(cls, mean: Array | None = None, **others: Any) -> "Preprocess":
        """The same, with a mean that was measured or stored and not typed: that of dark images may be small.

        >>> mb.data.Preprocess.measured([0.25], scale=1 / 255).mean.tolist()
        [0.25]
        """
        made = cls(**others)
        object.__setattr__(made, "mean", _checked("mean", mean))
        return made

    @property
    def mean_image(self) -> Float32 | None:
        """The mean where it is an image [C, H, W]: a tensor that is stored beside `to_json()`."""
        return self.mean if self.mean is not None and self.mean.ndim == 3 else None

    def __call__(self, images: Array) -> Float32:
        """`images` [n, C, ...] as the network takes them, float32; a crop and a mean image are for [n, C, H, W]."""
        if not isinstance(images, np.ndarray):
            raise DataError(
                f"images are {a_kind(images)}: give a numpy array, such as np.asarray(images) makes"
            )
        if images.dtype == np.uint8 and self.takes != "uint8":
            raise DataError(
                "pixels (uint8) cannot be prepared: the network was trained on floating-point data, and its file does "
                "not say how pixels become such data. Give float32 prepared in the same way; or write the file again "
                "with pixels=mb.data.Preprocess(...), which fit and the save of its result take; or train on uint8 "
                "images"
            )
        if images.dtype.kind not in "uif":
            raise DataError(f"images are {images.dtype}: give uint8, from 0 to 255, or float32")
        self._check(images.shape)
        if images.dtype.kind == "f" and self._wants_pixels() and _is_scaled(images):
            raise DataError(
                "images are floating-point numbers from 0 to 1, and pixels from 0 to 255 are prepared here: give "
                "uint8, or these times 255"
            )
        if images.dtype.kind == "f" and images.ndim == 4 and self._wants_pixels() and (images < 0).any():
            raise DataError(
                "images hold negative numbers, and pixels from 0 to 255 are prepared here: give uint8; numbers that "
                "are prepared already go to the network as they are, as in net(x)"
            )
        out: Float32 = images.astype(np.float32)
        if self.mean is not None:
            out -= beside(self.mean, out.ndim)
        if self.scale != 1:
            out *= np.float32(self.scale)
        if self.std is not None:
            out /= beside(self.std, out.ndim)
        if self.crop is not None:
            top, left = ((side - self.crop) // 2 for side in out.shape[2:])
            out = np.ascontiguousarray(out[:, :, top : top + self.crop, left : left + self.crop])
        return out

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Preprocess):
            return NotImplemented
        plain = all(
            getattr(self, name) == getattr(other, name) for name in ("scale", "crop", "mirror", "takes")
        )
        return plain and _equal(self.mean, other.mean) and _equal(self.std, other.std)

    __hash__ = None  # type: ignore[assignment]

    def to_json(self) -> dict[str, Any]:
        """The fields that differ from their defaults; a mean image is the word "image", stored elsewhere."""
        fields: dict[str, Any] = {}
        if self.scale != 1:
            fields["scale"] = float(self.scale)
        if self.mean is not None:
            fields["mean"] = "image" if self.mean.ndim == 3 else _shortest(self.mean)
        if self.std is not None:
            fields["std"] = _shortest(self.std)
        if self.crop is not None:
            fields["crop"] = int(self.crop)
        if self.mirror:
            fields["mirror"] = True
        if self.takes != taken_by(fields):
            fields["takes"] = self.takes
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any], mean_image: Array | None = None) -> "Preprocess":
        """The inverse of `to_json`; `mean_image` is needed where `fields` says "image", and only there.

        >>> whole = mb.data.Preprocess(mean=np.zeros((1, 2, 2)), mirror=True)
        >>> mb.data.Preprocess.from_json(whole.to_json(), whole.mean_image) == whole
        True
        """
        if not isinstance(fields, dict) or not fields.keys() <= _CHECKS.keys():
            raise DataError(
                f"preprocessing {shorten(fields)} is not understood: allowed are {', '.join(_CHECKS)}"
            )
        for name, value in fields.items():
            if not _CHECKS[name](value):
                raise DataError(f"preprocessing has a malformed {name}: {shorten(value)}")
        fields = {**fields, "takes": taken_by(fields)}
        if (fields.get("mean") == "image") != (mean_image is not None):
            found = "none was given" if mean_image is None else "one was given"
            raise DataError(
                f"preprocessing says mean {shorten(fields.get('mean'))}, but of mean images {found}"
            )
        if mean_image is not None:
            fields["mean"] = mean_image
        return cls.measured(**fields)

    def _wants_pixels(self) -> bool:
        """Whether numbers from 0 to 1 would all become nearly the same one."""
        if self.takes != "uint8":
            return False
        large = self.mean is not None and float(np.abs(self.mean).max()) > 1
        spread = 1.0 if self.std is None else float(self.std.min())
        return large or abs(self.scale) / spread < 1 / 16

    def _check(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 4 and (self.mean_image is not None or self.crop is not None):
            raise DataError(
                f"images have shape {list(shape)}: they must be [n, C, H, W], as net.read(frame) gives"
            )
        if self.mean_image is not None and self.mean_image.shape != shape[1:]:
            refuse_last(shape, len(self.mean_image))
            raise DataError(
                f"images are {list(shape[1:])} but the mean image is {list(self.mean_image.shape)} (C, H, W): "
                "resize them first, as net.read does"
            )
        for name, value in (("mean", self.mean), ("std", self.std)):
            if value is None or value.ndim == 3:
                continue
            if len(shape) != 4 and shape[1:2] != (len(value),):
                raise DataError(
                    f"examples have shape {list(shape)}: they must be images [n, C, H, W], sequences [n, C, L] or "
                    f"features [n, C], and C {len(value)}, as {name} has"
                )
            if len(value) != shape[1]:
                refuse_last(shape, len(value))
                examples = "images" if self.takes == "uint8" else "examples"
                raise DataError(
                    f"{examples} have {shape[1]} channels but {name} has {len(value)}: {examples} of as many "
                    "channels as those of the training are needed"
                )
        if self.crop is not None and self.crop > min(shape[2:]):
            raise DataError(
                f"a crop of {self.crop} does not fit images of {shape[2]} x {shape[3]}: resize them first, as "
                "net.read does"
            )


def beside(values: Any, axes: int) -> Any:
    """A number for each channel, of numpy or torch, in the shape that goes with examples [n, C, ...] of so many axes.

    >>> beside(np.ones(3), 4).shape, beside(np.ones(3), 2).shape
    ((3, 1, 1), (3,))
    """
    return values if values.ndim == 3 else values.reshape(-1, *[1] * (axes - 2))


def _checked(name: str, value: Array | None) -> Float32 | None:
    """A mean or a deviation in float32, of a shape and of values that are allowed."""
    if value is None:
        return None
    with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused as such
        array = np.asarray(value, np.float32)
    if array.ndim not in ((1, 3) if name == "mean" else (1,)) or array.size == 0:
        kinds = "[C] or [C, H, W]" if name == "mean" else "[C]"
        raise DataError(f"{name} has shape {list(array.shape)}: it must be {kinds}")
    if not np.isfinite(array).all() or (name == "std" and (array <= 0).any()):
        raise DataError(f"{name} must be finite{', and above 0' if name == 'std' else ''}")
    return array


def check_pixels(pixels: Any, shape: tuple[int, ...] | None) -> None:
    """Refuse what cannot say how pixels became float examples of a shape; that is None of several inputs."""
    if not isinstance(pixels, Preprocess):
        raise DataError(
            f"pixels is {a_kind(pixels)}: give mb.data.Preprocess(scale=1 / 255, mean=..., std=...)",
            about="pixels",
        )
    if pixels.takes != "uint8" or pixels.crop is not None or shape is None or len(shape) != 3:
        examples = "several inputs" if shape is None else list(shape)
        raise DataError(
            f"pixels is for one input of [C, H, W], from uint8 and without a crop: examples have {examples}, pixels "
            f"takes={pixels.takes!r}, crop={pixels.crop}",
            about="pixels",
        )
    for name, value in (("mean", pixels.mean), ("std", pixels.std)):
        right = (shape[0],) if value is None or value.ndim == 1 else shape
        if value is not None and value.shape != right:
            raise DataError(
                f"pixels has a {name} of shape {list(value.shape)}, examples have {list(shape)}: give {list(right)}",
                about="pixels",
            )


def _is_scaled(images: Array) -> bool:
    """Whether these are pixels divided by 255, and not all black."""
    return bool(images.size) and float(images.min()) >= 0 and 0 < float(images.max()) <= 1


def refuse_last(shape: tuple[int, ...], channels: int) -> None:
    """Say so where the channels come last."""
    if shape[-1] == channels and shape[1] > max(channels, 4):  # more than any image has channels
        raise DataError(
            f"images have shape {list(shape)}, which is NHWC, and NCHW is needed: call images.transpose(0, 3, 1, 2)"
        )


def taken_by(fields: dict[str, Any]) -> str:
    """What preprocessing with these fields takes; by default pixels, or floating point where nothing is done to them.

    >>> taken_by({"scale": 0.5}), taken_by({})
    ('uint8', 'float32')
    """
    return str(fields.get("takes", "uint8" if fields else "float32"))


def _equal(a: Array | None, b: Array | None) -> bool:
    return a is b if a is None or b is None else np.array_equal(a, b)


def _shortest(values: Array) -> list[float]:
    """The shortest decimals that are these float32 numbers."""
    return [float(str(value)) for value in values]


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond float64
        return False


def _is_numbers(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "scale": _is_number,
    "mean": lambda value: value == "image" or _is_numbers(value),
    "std": _is_numbers,
    "crop": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "mirror": lambda value: isinstance(value, bool),
    "takes": lambda value: value in TYPES,
}
