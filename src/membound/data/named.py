"""MNIST and CIFAR-10, from their official files: found on the search path or downloaded, and verified."""

import gzip
import hashlib
import math
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from membound.data import fetch
from membound.data.splits import Array, ArraySplit, Dataset
from membound.errors import DataError

MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST_SHA256 = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
MNIST_CLASSES = tuple("0123456789")
CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_ARCHIVE_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
CIFAR10_FOLDER = "cifar-10-batches-bin"
CIFAR10_SHA256 = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_MOST_IDX_BYTES = 1 << 26  # the largest has 47,040,016
_MOST_IDX_AXES = 8
_CIFAR10_BATCH = (10_000, 1 + 3 * 32 * 32)  # records, bytes of a record: a label, then red, green, blue


@dataclass(frozen=True)
class NamedSet:
    """A data set that a name is enough for."""

    folder: str  # on the search path
    files: tuple[str, ...]  # in it
    load: Callable[[], Dataset]
    download: Callable[[Path], None]  # into a cache folder
    hub: str  # what the Hugging Face Hub calls it
    shape: tuple[int, int, int]  # of its images
    classes: tuple[str, ...]

    def sample(self, name: str) -> Dataset:
        """A black image of each half, to see what fits before anything is downloaded."""
        one = ArraySplit(np.zeros((1, *self.shape), np.uint8), np.zeros(1, np.int64))
        return Dataset(name, one, one, self.classes)

    def find(self) -> Path | None:
        """Its folder, if it is on the search path with all of its files."""
        return fetch.find(self.folder, self.files)


def load_mnist() -> Dataset:
    """MNIST (Yann LeCun and Corinna Cortes): 60,000 + 10,000 handwritten digits, 1 x 28 x 28."""
    folder = _find_or_download("mnist")
    train, test = (
        _read_digits(folder / f"{half}-images-idx3-ubyte.gz", folder / f"{half}-labels-idx1-ubyte.gz")
        for half in ("train", "t10k")
    )
    for name, sha256 in MNIST_SHA256.items():
        _verify(folder / name, (folder / name).read_bytes(), sha256)
    return Dataset("mnist", train, test, MNIST_CLASSES)


def load_cifar10() -> Dataset:
    """CIFAR-10 (Alex Krizhevsky, 2009), the official binary version: 50,000 + 10,000 images, 3 x 32 x 32."""
    folder = _find_or_download("cifar10")
    batches = [_read_batch(folder / name, sha256) for name, sha256 in CIFAR10_SHA256.items()]
    return Dataset("cifar10", _join(batches[:-1]), _join(batches[-1:]), CIFAR10_CLASSES, photos=True)


def read_idx(path: Path) -> Array:
    """The unsigned bytes of one gzipped idx file, in the shape that its header says."""
    try:
        with gzip.open(path) as file:
            content = file.read(_MOST_IDX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read as gzip ({error}): {_FETCH_AGAIN}") from error
    if len(content) > _MOST_IDX_BYTES:
        raise DataError(
            f"{path} unpacks to more than {_MOST_IDX_BYTES:,} bytes, which no MNIST file has: {_FETCH_AGAIN}"
        )
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise DataError(
            f"{path} begins with {content[:4].hex(' ') or 'nothing'}: an idx file of bytes begins with "
            f"00 00 08 and its number of dimensions; {_FETCH_AGAIN}"
        )
    start = 4 + 4 * content[3]
    if not 1 <= content[3] <= _MOST_IDX_AXES or len(content) < start:
        raise DataError(f"{path} has a malformed idx header ({content[3]} dimensions): {_FETCH_AGAIN}")
    shape = [int(size) for size in np.frombuffer(content, ">u4", content[3], 4)]
    if len(content) - start != math.prod(shape):
        raise DataError(
            f"{path} holds {len(content) - start:,} bytes of data, but its header says {shape}, that is "
            f"{math.prod(shape):,}: {_FETCH_AGAIN}"
        )
    if math.prod(size or 1 for size in shape) > _MOST_IDX_BYTES:  # a size of 0 hides what numpy refuses
        raise DataError(f"{path} has a malformed idx header (sizes {shape}): {_FETCH_AGAIN}")
    return np.frombuffer(bytearray(content), np.uint8, offset=start).reshape(shape)


_FETCH_AGAIN = "remove it to fetch it again, or point MEMBOUND_DATA at a good copy"


def _read_digits(images_path: Path, labels_path: Path) -> ArraySplit:
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim != 3 or images.shape[1:] != (28, 28):
        raise DataError(f"{images_path} holds {list(images.shape)}: MNIST images are [n, 28, 28]")
    if labels.ndim != 1 or len(labels) != len(images):
        raise DataError(f"{labels_path} holds {list(labels.shape)} labels for {len(images)} images")
    return ArraySplit(images[:, None], labels.astype(np.int64))


def _read_batch(path: Path, sha256: str) -> Array:
    size = math.prod(_CIFAR10_BATCH)
    try:
        if path.stat().st_size != size:  # before any of it is read
            raise DataError(f"{path} has {path.stat().st_size:,} bytes, not {size:,}: {_FETCH_AGAIN}")
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}): {_FETCH_AGAIN}") from error
    _verify(path, content, sha256)
    return np.frombuffer(content, np.uint8).reshape(_CIFAR10_BATCH)


def _join(batches: list[Array]) -> ArraySplit:
    images = np.concatenate([batch[:, 1:] for batch in batches]).reshape(-1, 3, 32, 32)
    return ArraySplit(images, np.concatenate([batch[:, 0] for batch in batches]).astype(np.int64))


def _verify(path: Path, content: bytes, sha256: str) -> None:
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise DataError(f"{path} is not the official file (sha256 {found}, not {sha256}): {_FETCH_AGAIN}")


def _find_or_download(name: str) -> Path:
    """The folder of a named set: on the search path, or in the cache after a download has put it there."""
    wanted = NAMED[name]
    if found := wanted.find():
        return found
    try:
        wanted.download(fetch.cache_folder())
    except fetch.Unreachable as error:
        raise DataError(
            f"{name} is not here and cannot be downloaded ({error.reason}): set MEMBOUND_DATA to a folder with "
            f"{wanted.folder}/ ({len(wanted.files)} files)"
        ) from None
    return fetch.cache_folder() / wanted.folder


def _download_mnist(cache: Path) -> None:
    for name, sha256 in MNIST_SHA256.items():
        fetch.download(MNIST_URL + name, sha256, cache / "mnist" / name)


def _download_cifar10(cache: Path) -> None:
    """Download the archive, unpack what is needed of it, and remove it."""
    archive = fetch.download(CIFAR10_URL, CIFAR10_ARCHIVE_SHA256, cache / "cifar-10-binary.tar.gz")
    unpack(archive, CIFAR10_FOLDER, tuple(CIFAR10_SHA256), cache)
    archive.unlink()


def unpack(archive: Path, folder: str, names: tuple[str, ...], target: Path) -> None:
    """Put `folder`/`names` of a tar archive into `target`/`folder`, and nothing else of it anywhere."""
    wanted = {f"{folder}/{name}" for name in names}
    try:
        with tempfile.TemporaryDirectory(dir=target, prefix=".unpack-") as temporary:
            with tarfile.open(archive) as tar:
                members = [member for member in tar if member.name in wanted and member.isreg()]
                if missing := wanted - {member.name for member in members}:
                    raise DataError(f"{archive} lacks {', '.join(sorted(missing))}: {_FETCH_AGAIN}")
                if outside := [
                    name for name in wanted if Path(name).is_absolute() or ".." in Path(name).parts
                ]:
                    raise ValueError(f"{outside[0]} leads out of it")
                for (
                    member
                ) in members:  # by their bytes alone: Python 3.11.2, Debian's, has no filters of archives
                    packed = tar.extractfile(member)
                    assert packed is not None  # as it is a regular file
                    with open(Path(temporary, Path(member.name).name), "wb") as file:
                        shutil.copyfileobj(packed, file)
            (target / folder).mkdir(exist_ok=True)
            for name in names:
                os.replace(Path(temporary, name), target / folder / name)
    except DataError:
        raise
    except Exception as error:  # a damaged archive makes tarfile raise almost anything
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise DataError(f"{archive} cannot be unpacked ({reason}): {_FETCH_AGAIN}") from error


NAMED = {
    "mnist": NamedSet(
        "mnist", tuple(MNIST_SHA256), load_mnist, _download_mnist, "ylecun/mnist", (1, 28, 28), MNIST_CLASSES
    ),
    "cifar10": NamedSet(
        CIFAR10_FOLDER,
        tuple(CIFAR10_SHA256),
        load_cifar10,
        _download_cifar10,
        "uoft-cs/cifar10",
        (3, 32, 32),
        CIFAR10_CLASSES,
    ),
}
