"""Augmentation as data: how training images are varied at random, so that a network sees each of them only once.

>>> Augment.parse("mirror,shift=4", (3, 32, 32))
Augment(mirror=True, shift=4, cutout=0, turn=0.0, zoom=0.0)
>>> str(standard((1, 28, 28), photos=False))
'shift=2,turn=10,zoom=0.1'
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.errors import DataError
from membound.signatures import known_fields, meant

NUMBERS = 7  # random numbers for each image: mirror, two of the shift, turn, zoom, two of the cutout
BLOCK = 256  # batches whose numbers are drawn together
TURN, ZOOM = 10.0, 0.1  # of `standard`, where images are not mirrored
_STREAM = 3  # of the seed: order, crops and reading have others
_WORDS = "none, standard, mirror, shift=PIXELS, cutout=PIXELS, turn=DEGREES or zoom=PART, joined by commas"


@known_fields
@dataclass(frozen=True)
class Augment:
    """What is done to each training image at random; each number is the most, nothing by default.

    - `mirror`: left and right are swapped, in half of the images.
    - `shift`: moved by up to so many pixels each way; what comes in at the edges is the image, reflected.
    - `cutout`: a square of so many pixels is set to zero (the mean, where one is subtracted).
    - `turn` and `zoom`: rotated by up to so many degrees, enlarged or shrunk by up to such a part.
    """

    mirror: bool = False
    shift: int = 0
    cutout: int = 0
    turn: float = 0.0
    zoom: float = 0.0

    def __post_init__(self) -> None:
        for name in ("shift", "cutout"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise DataError(f"{name}={value!r}: a number of pixels from 0 is needed", about="augment")
        for name, most in (("turn", 180.0), ("zoom", 0.9)):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value <= most:
                raise DataError(f"{name}={value!r}: a number from 0 to {most:g} is needed", about="augment")

    def __bool__(self) -> bool:
        return self != NONE

    @property
    def variants(self) -> int | None:
        """How many images one can become; None where there is no end to them.

        >>> mb.data.Augment(mirror=True, shift=4).variants
        162
        """
        if self.cutout or self.turn or self.zoom:
            return None
        return (2 * self.shift + 1) ** 2 * (2 if self.mirror else 1)

    def __str__(self) -> str:
        given = [each.name for each in fields(self) if getattr(self, each.name)]
        shown = [name if name == "mirror" else f"{name}={getattr(self, name):g}" for name in given]
        return ",".join(shown) or "none"

    def check(self, shape: tuple[int, ...]) -> "Augment":
        """The same, if images of this shape allow it."""
        if not self:
            return self
        if len(shape) != 3:
            raise DataError(
                f"examples of shape {list(shape)} are not images [C, H, W]: only images can be augmented",
                about="augment",
            )
        height, width = shape[1:]
        for name in ("shift", "cutout"):
            if (amount := getattr(self, name)) >= min(height, width):
                less = f"write less than {min(height, width)}" if min(height, width) > 1 else "leave it out"
                raise DataError(
                    f"{name}={amount} is too much for images of {height} x {width} pixels: {less}",
                    about="augment",
                )
        return self

    @classmethod
    def parse(cls, text: str, shape: tuple[int, ...], photos: bool = True) -> "Augment":
        """From words, for images of a shape: `standard` is what suits the data, a word without a number a usual amount.

        >>> str(mb.data.Augment.parse("standard,cutout", (3, 32, 32)))
        'mirror,shift=4,cutout=8'
        """
        words = [word.strip() for word in text.split(",")]
        if "none" in words and len(words) > 1:
            raise DataError(f"augment={text!r}: none goes alone", about="augment")
        if words == ["none"]:
            return NONE
        NONE_BUT_CHECKED.check(shape)
        found = standard(shape, photos) if "standard" in words else NONE
        side = min(shape[1:])
        usual: dict[str, Any] = {"shift": side // 8, "cutout": side // 4, "turn": TURN, "zoom": ZOOM}
        for word in words:
            name, equals, number = word.partition("=")
            if word == "mirror":
                found = replace(found, mirror=True)
            elif name in usual:
                change: dict[str, Any] = {name: _number(word, name, number) if equals else usual[name]}
                found = replace(found, **change)
            elif word != "standard":
                instead = meant(name, ["none", "standard", "mirror", *usual], f"write {_WORDS}")
                raise DataError(f"augment={text!r}: there is no {word!r}; {instead}", about="augment")
        return found.check(shape)

    def numbers(self, images: int, seed: int, start: int = 0) -> Iterator[npt.NDArray[np.float32]]:
        """Random numbers from 0 to 1 for batch `start`, `start + 1`, ...: [images, NUMBERS] each.

        A pure function of the seed and the step, so that a resumed run sees the same images.

        >>> first, second = (next(NONE.numbers(2, seed=0, start=at)) for at in (300, 300))
        >>> bool((first == second).all())
        True
        """
        block, offset = divmod(start, BLOCK)
        while True:
            random = np.random.default_rng([_STREAM, seed, block])
            yield from random.random((BLOCK, images, NUMBERS), np.float32)[offset:]
            block, offset = block + 1, 0


NONE = Augment()
NONE_BUT_CHECKED = Augment(mirror=True)  # what any image allows


def standard(shape: tuple[int, ...], photos: bool) -> Augment:
    """What suits images of this shape: photos are mirrored and shifted, digits and the like turned, never mirrored."""
    side = min(shape[1:])
    if photos:
        return Augment(mirror=True, shift=side // 8)
    return Augment(shift=side // 14, turn=TURN, zoom=ZOOM)


def choose(
    asked: "str | Augment | None", shape: tuple[int, ...], photos: bool = False, has_own: bool = False
) -> Augment:
    """What was asked for; else `standard` for photos, unless the network brings its own (`has_own`), else nothing."""
    if isinstance(asked, Augment):
        return asked.check(shape)
    if isinstance(asked, str):
        return Augment.parse(asked, shape, photos)
    if asked is not None:
        raise DataError(f"augment={asked!r}: write {_WORDS}; or give an Augment", about="augment")
    return standard(shape, photos) if photos and not has_own and len(shape) == 3 else NONE


def are_photos(classes: tuple[str, ...]) -> bool:
    """Whether classes with these names may be mirrored: not digits and letters.

    >>> are_photos(("cat", "dog")), are_photos(("0", "1", "10")), are_photos(("a", "b"))
    (True, False, False)
    """
    return not all(len(name) == 1 or name.isdigit() for name in classes)


def _number(word: str, name: str, text: str) -> int | float:
    try:
        value = int(text) if name in ("shift", "cutout") else float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise DataError(f"augment: {word!r} has no number; write {_WORDS}", about="augment")
    return value
