"""Pictures: how one is decoded, from a file or memory, and a split of many files, decoded on demand at one size."""

import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from membound.data.splits import Labels, Rows, as_indices, as_labels
from membound.errors import DataError, a_kind, install

if TYPE_CHECKING:
    from PIL.Image import Image

Size = int | tuple[int, int]  # of pictures as they are read: the side of squares, or height and width
LARGEST_DEFAULT = 256  # side that pictures are read at where nobody says another
SAMPLED = 1000  # pictures whose headers decide it
THIN = 16  # times as long as wide: of longer pictures only the middle is looked at
REMEDY = "repair or remove it, or leave out all such files with skip_corrupt=True"
IN_MEMORY = "give a path, a PIL image, or a uint8 array [H, W], [H, W, 1], [H, W, 3] (RGB) or [H, W, 4]"
# What Pillow lists but cannot decode by itself.
_NOT_PICTURES = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"}
_LOSSY = {"JPEG", "MPO"}  # which change pixels a little


class CorruptImageError(DataError):
    """An image that cannot be decoded."""


@dataclass(frozen=True, eq=False)
class FolderSplit:
    """Images in files, decoded when read: RGB uint8, resized to cover `size`, then center-cropped.

    `size` is the side of squares, or height and width. Grayscale, palette, CMYK and 16-bit images (the high byte)
    become RGB; transparency is dropped, the EXIF orientation is applied, and an animation gives its first frame.
    Threads may read at the same time.
    """

    paths: tuple[str, ...]
    labels: Labels
    size: Size

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", as_labels(np.asarray(self.labels), len(self.paths)))
        object.__setattr__(self, "size", checked_size(self.size))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image as it is read."""
        return 3, *sides(self.size)

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"FolderSplit({len(self):,} images, {' x '.join(map(str, self.shape))})"

    def read(self, indices: Rows) -> npt.NDArray[np.uint8]:
        """The chosen images, [n, 3, height, width]; one that cannot be decoded is a DataError with its name."""
        chosen = as_indices(indices, len(self))
        images = np.empty((len(chosen), *self.shape), np.uint8)
        for image, index in zip(images, chosen, strict=True):
            image[:] = decode(self.paths[index], self.size).transpose(2, 0, 1)
        return images

    def take(self, indices: Rows) -> "FolderSplit":
        """The split of the chosen files; nothing is decoded."""
        chosen = as_indices(indices, len(self))
        return FolderSplit(tuple(self.paths[index] for index in chosen), self.labels[chosen], self.size)

    def decodable(self) -> "FolderSplit":
        """The images that can be decoded, found by decoding all of them."""
        good = map_files(_can_decode, self.paths)
        return self.take(np.flatnonzero(good))


def checked_size(size: object) -> Size:
    """
    >>> checked_size(224), checked_size([192, 320]), checked_size((64, 64))
    (224, (192, 320), 64)
    """
    given = tuple(size) if isinstance(size, tuple | list) else (size,)
    whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n > 0 for n in given)
    if not whole or len(given) not in (1, 2):
        raise DataError(
            f"size {size!r} is not allowed: take a number of pixels from 1 up, or (height, width)",
            about="size",
        )
    height, width = int(given[0]), int(given[-1])
    return height if height == width else (height, width)


def describe_size(shape: Sequence[int]) -> int | list[int] | None:
    """At which size images of a shape, [channels, height, width], were read, as JSON; of others the shortest side.

    >>> describe_size((3, 64, 64)), describe_size((3, 192, 320)), describe_size((5,))
    (64, [192, 320], None)
    """
    is_oblong = len(shape) == 3 and shape[1] != shape[2]
    return [shape[1], shape[2]] if is_oblong else min(shape[1:], default=None)


def sides(size: Size) -> tuple[int, int]:
    """Height and width."""
    return (size, size) if isinstance(size, int) else size


def decode(path: str | Path, size: Size | None = None) -> npt.NDArray[np.uint8]:
    """One image as RGB uint8 [H, W, 3], resized and cropped to `size` where it is given."""
    return decode_sized(path, size)[0]


def decode_sized(path: str | Path, size: Size | None = None) -> tuple[npt.NDArray[np.uint8], tuple[int, int]]:
    """The same, and how high and wide the image is in its file, held upright."""
    pillow, ops = _pillow()
    try:
        with pillow.open(path) as image:
            ops.exif_transpose(image, in_place=True)
            return _pixels(image, size, pillow), (image.height, image.width)
    except Exception as error:  # a corrupt file makes Pillow raise almost anything
        reason = str(error) or type(error).__name__
        raise CorruptImageError(
            f"{path} cannot be decoded as an image ({reason}): {REMEDY}", about="skip_corrupt"
        ) from error


def convert(picture: object, size: Size) -> npt.NDArray[np.uint8]:
    """A picture in memory, a PIL image or an array, as `decode` gives the same picture in a file; it stays as it is.

    >>> convert(np.full((4, 6), 7, np.uint8), 2)[0].tolist()
    [[7, 7, 7], [7, 7, 7]]
    """
    pillow, ops = _pillow()
    if isinstance(picture, np.ndarray):
        return _pixels(pillow.fromarray(_checked(picture)), size, pillow)
    if not isinstance(picture, pillow.Image):
        many = isinstance(picture, list | tuple)
        remedy = "give each as an argument of its own, as in net.read(*pictures)" if many else IN_MEMORY
        if hasattr(picture, "__array__"):  # such as a torch tensor, whose channels often come first
            remedy = "call np.asarray(...) on it first, and give uint8 [H, W] or [H, W, 3]"
        raise DataError(f"{a_kind(picture)} is not a picture: {remedy}")
    try:
        return _pixels(ops.exif_transpose(picture), size, pillow)
    except Exception as error:  # an image that is read from its file only now
        reason = str(error) or type(error).__name__
        raise DataError(f"this {type(picture).__name__} cannot be read ({reason})") from error


def _checked(frame: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array that is a picture, [H, W] if it is gray."""
    shape = list(frame.shape)
    if frame.dtype != np.uint8:
        raise DataError(f"an array of {frame.dtype} is not a picture: give pixels from 0 to 255 as uint8")
    if len(shape) == 3 and shape[0] in (1, 3, 4) and shape[2] not in (1, 3, 4):
        raise DataError(f"an array {shape} has its channels first: call frame.transpose(1, 2, 0)")
    if len(shape) == 4:
        raise DataError(
            f"an array {shape} is a batch: give each picture by itself, [H, W, 3], as in net.read(*frames)"
        )
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3, 4)) or not frame.size:
        raise DataError(f"an array {shape} is not a picture: {IN_MEMORY}")
    return frame[:, :, 0] if shape[2:] == [1] else frame


def decode_mask(
    path: str | Path, size: Size | None = None, image_sides: tuple[int, int] | None = None
) -> npt.NDArray[np.uint8]:
    """A mask of class numbers, gray or by a palette, as uint8 [H, W]; resized as its image is, but no classes mix.

    `image_sides` are the height and width of its image, which it must have, too.
    """
    pillow, _ = _pillow()
    try:
        with pillow.open(path) as image:
            _check_mask(path, image, image_sides)
            if image.mode not in ("1", "L", "P"):
                raise ValueError(f"its mode is {image.mode}: a mask is gray (L) or has a palette (P)")
            plain = image if image.mode == "P" else image.convert("L")
            numbers = pillow.fromarray(np.asarray(plain, np.uint8))
            fitted = numbers if size is None else _fit(numbers, size, pillow, pillow.Resampling.NEAREST)
            found = np.asarray(fitted, np.uint8)
            return (found > 0).astype(np.uint8) if image.mode == "1" else found
    except DataError:
        raise
    except Exception as error:  # a corrupt file makes Pillow raise almost anything
        reason = str(error) or type(error).__name__
        raise CorruptImageError(f"{path} cannot be decoded as a mask ({reason})") from error


def _check_mask(path: str | Path, mask: "Image", image_sides: tuple[int, int] | None) -> None:
    """Refuse what would be read as other classes than were drawn."""
    if mask.format in _LOSSY:
        raise DataError(f"{path} is a JPEG, which does not keep class numbers: save masks as PNG")
    if image_sides not in (None, (mask.height, mask.width)):
        high, wide = image_sides
        raise DataError(
            f"{path} is {mask.height} x {mask.width} (height x width) and its image {high} x {wide}: a mask must have "
            "the size of its image"
        )


def encode_mask(mask: npt.NDArray[np.uint8]) -> bytes:
    """A PNG of class numbers, uint8 [H, W], with a palette that shows them; `decode_mask` reads it back.

    >>> encode_mask(np.eye(3, dtype=np.uint8))[:4]
    b'\\x89PNG'
    """
    pillow, _ = _pillow()
    image, file = pillow.fromarray(mask), io.BytesIO()
    image.putpalette(MASK_COLORS)  # which makes its mode P
    image.save(file, "PNG")
    return file.getvalue()


def _mask_colors() -> bytes:
    """A color for each class number, as PASCAL VOC has them: bits of the number become high bits of R, G and B."""
    colors = bytearray()
    for number in range(256):
        for channel in range(3):
            bits = [number >> (3 * place + channel) & 1 for place in range(3)]
            colors.append(sum(bit << (7 - place) for place, bit in enumerate(bits)))
    return bytes(colors)


MASK_COLORS = _mask_colors()


def image_extensions() -> set[str]:
    """How the names of pictures end, with the dot: those that Pillow reads."""
    pillow, _ = _pillow()
    readable = pillow.registered_extensions()
    return {ext for ext, kind in readable.items() if kind in pillow.OPEN and kind not in _NOT_PICTURES}


def shorter_side(path: str) -> int:
    """Of a picture, by its header; 0 where it cannot be told."""
    pillow, _ = _pillow()
    try:
        with pillow.open(path) as image:
            return int(min(image.size))
    except Exception:  # said with the file's name when it is decoded
        return 0


def default_size(paths: Sequence[str]) -> int:
    """The longest shorter side of a sample of pictures, at most LARGEST_DEFAULT: a larger size would add no detail."""
    sides = set(map_files(shorter_side, paths[:: -(-len(paths) // SAMPLED)])) - {0}
    return min(LARGEST_DEFAULT, max(sides, default=LARGEST_DEFAULT))


def _can_decode(path: str) -> bool:
    try:
        decode(path)
    except DataError:
        return False
    return True


def map_files(function: Callable[[Any], Any], paths: Sequence[Any]) -> list[Any]:
    """What a function gives for each of many files, or pairs of files, found by several threads."""
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, paths))


def _pixels(image: "Image", size: Size | None, pillow: Any) -> npt.NDArray[np.uint8]:
    """RGB, resized and cropped: the one way that every picture takes."""
    rgb = _to_rgb(image, pillow)
    return np.asarray(rgb if size is None else _fit(rgb, size, pillow), np.uint8)


def _to_rgb(image: "Image", pillow: Any) -> "Image":
    if image.mode == "F":
        raise ValueError("floating-point pixels: save it with 8 or 16 bits")
    if image.mode.startswith("I"):  # 16-bit gray, which Pillow may hold in 32 bits
        high = np.clip(np.asarray(image, np.int64) >> 8, 0, 255).astype(np.uint8)
        image = pillow.fromarray(high)
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")


def _fit(image: "Image", size: Size, pillow: Any, how: Any = None) -> "Image":
    """As small as still covers `size` (bilinear, antialiased, unless `how` says otherwise), then its center.

    Of squares that is the shorter side made `size`.
    """
    high, wide = sides(size)
    width, height = image.size
    if (width, height) == (wide, high):
        return image
    # Resized whole, a thin one could take any amount of memory.
    left = max(width - max(THIN * height * wide // high, 1), 0) // 2
    top = max(height - max(THIN * width * high // wide, 1), 0) // 2
    if left or top:
        image = image.crop((left, top, width - left, height - top))
        width, height = image.size
    if width * high >= height * wide:
        width, height = max(round(width * high / height), wide), high
    else:
        width, height = wide, max(round(height * wide / width), high)
    left, top = (width - wide) // 2, (height - high) // 2
    resized = image.resize((width, height), pillow.Resampling.BILINEAR if how is None else how)
    return resized.crop((left, top, left + wide, top + high))


def _pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise DataError(f"reading pictures needs Pillow: {install('images')}") from None
    return Image, ImageOps
