"""What readers.py reads: small sound inputs, made here, and damage to them, drawn from a seed."""

import functools
import gzip
import hashlib
import io
import json
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import caffe_writer
import mutations
import numpy as np
import torch
from safetensors.torch import save
from torch import nn

from membound.data import named
from membound.data.npz import load_npz
from membound.run.files import holds_plain_weights, read_array
from membound.search.ledger import RunDirectory, _read_config, open_run
from membound.search.stages import Stages
from membound.store.file import read_bytes
from membound.train.weights import load_weights_, saved_facts
from membound.zoo import load_caffemodel, read_binaryproto, read_caffemodel

ROOT = Path(__file__).resolve().parents[1]
INTEGERS = [
    0,
    1,
    2,
    63,
    127,
    128,
    255,
    256,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
]
TEXTS = [
    b"nan",
    b"inf",
    b"-1",
    b"1e999",
    b"9" * 5000,
    b"[" * 100_000,
    b'{"a":' * 2000,
    b"null",
    b"true",
    b'""',
    b"\0",
]
TEXTS += [
    b"[]",
    b"{}",
    b"(1,",
    b"'",
    b'"',
    b"\n",
    b"\xff",
    "\ud800".encode("utf-8", "surrogatepass"),
    b"\xe2\x80\xa8",
]
IMAGES, RECORD = 4, 3073  # a CIFAR-10 batch has 10,000 records; the reader is told of a smaller one


@dataclass(frozen=True)
class Reader:
    """How a damaged input is made, and what reads it from a path (in a folder of its own)."""

    damaged: Callable[[random.Random], bytes]
    read: Callable[[Path], None]
    sound: tuple[bytes, ...] = ()
    suffix: str = ""


# --- damage ---


def damage(content: bytes, rng: random.Random) -> bytes:
    """A copy with one to three wounds."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = rng.choice((_flip, _set_integer, _insert, _cut, _repeat, _truncate, _replace_number))(
            content, rng
        )
    return content


def _at(content: bytes, rng: random.Random) -> int:
    """A place, more often near the beginning, where headers are."""
    return rng.randrange(len(content) + 1) if rng.random() < 0.5 else rng.randrange(min(len(content), 64) + 1)


def _flip(content: bytes, rng: random.Random) -> bytes:
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8)) if out else 0):
        out[min(_at(content, rng), len(out) - 1)] ^= 1 << rng.randrange(8)
    return bytes(out)


def _set_integer(content: bytes, rng: random.Random) -> bytes:
    at, kind = _at(content, rng), rng.choice("BHIQ")
    size = struct.calcsize(kind)
    value = rng.choice(INTEGERS) % (1 << 8 * size)
    return content[:at] + struct.pack(rng.choice("<>") + kind, value) + content[at + size :]


def _insert(content: bytes, rng: random.Random) -> bytes:
    at = _at(content, rng)
    return (
        content[:at]
        + (rng.choice(TEXTS) if rng.random() < 0.3 else rng.randbytes(rng.randint(1, 9)))
        + content[at:]
    )


def _cut(content: bytes, rng: random.Random) -> bytes:
    at = _at(content, rng)
    return content[:at] + content[at + rng.randint(1, 40) :]


def _repeat(content: bytes, rng: random.Random) -> bytes:
    at = _at(content, rng)
    return content[: at + rng.randint(1, 200)] + content[at:]


def _truncate(content: bytes, rng: random.Random) -> bytes:
    return content[: _at(content, rng)]


def _replace_number(content: bytes, rng: random.Random) -> bytes:
    """In text, a run of digits becomes something else."""
    at = _at(content, rng)
    end = at
    while end < len(content) and content[end : end + 1].isdigit():
        end += 1
    return (
        content[:at]
        + (rng.choice(TEXTS) if rng.random() < 0.5 else str(rng.choice(INTEGERS)).encode())
        + content[end:]
    )


def inside_or_out(content: bytes, wrap: Callable[[bytes], bytes], rng: random.Random) -> bytes:
    """Mostly the content is damaged and wrapped well; else the wrapping is damaged."""
    return wrap(damage(content, rng)) if rng.random() < 0.7 else damage(wrap(content), rng)


# --- readers ---


class Small(nn.Module):
    """What weights are read into."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 2)
        self.ip = nn.Linear(2, 3)


def caffemodels() -> Reader:
    state = np.random.default_rng(2)
    arrays = {
        "conv": [state.standard_normal(s).astype(np.float32) for s in ((2, 1, 2, 2), (2,))],
        "ip": [state.standard_normal(s).astype(np.float32) for s in ((3, 2), (3,))],
    }
    sound = tuple(caffe_writer.model(arrays, version) for version in ("layer", "V1", "V0"))

    def read(path: Path) -> None:
        size = path.stat().st_size
        for blobs in read_caffemodel(path).values():
            assert all(np.isfinite(blob).all() for blob in blobs)
            assert sum(blob.nbytes for blob in blobs) <= size
        load_caffemodel(Small(), path)

    return Reader(lambda rng: damage(rng.choice(sound), rng), read, sound, ".caffemodel")


def mean_images() -> Reader:
    sound = (caffe_writer.old_blob(np.random.default_rng(3).standard_normal((3, 4, 4)).astype(np.float32)),)

    def read(path: Path) -> None:
        assert np.isfinite(read_binaryproto(path)).all()

    return Reader(lambda rng: damage(sound[0], rng), read, sound, ".binaryproto")


def idx_files() -> Reader:
    zipped = functools.partial(gzip.compress, compresslevel=1, mtime=0)
    plain = [
        b"\0\0\x08"
        + bytes([len(shape)])
        + struct.pack(f">{len(shape)}I", *shape)
        + bytes(range(int(np.prod(shape))))
        for shape in ((2, 3, 4), (7,), (1,) * 5)
    ]

    def read(path: Path) -> None:
        array = named.read_idx(path)
        assert array.dtype == np.uint8
        assert array.size <= 1 << 26

    return Reader(
        lambda rng: inside_or_out(rng.choice(plain), zipped, rng), read, tuple(map(zipped, plain)), ".gz"
    )


def cifar_batches() -> Reader:
    named._CIFAR10_BATCH = (IMAGES, RECORD)
    sound = np.random.default_rng(4).integers(0, 256, IMAGES * RECORD, np.uint8).tobytes()
    sha256 = hashlib.sha256(sound).hexdigest()

    def read(path: Path) -> None:
        assert named._read_batch(path, sha256).tobytes() == sound

    return Reader(lambda rng: damage(sound, rng), read, (sound,), ".bin")


def archives() -> Reader:
    """The tar of CIFAR-10: members that lie about their names, kinds and sizes, and damage of the bytes."""
    names = ("a.bin", "b.bin")
    zipped = functools.partial(gzip.compress, compresslevel=1, mtime=0)

    def tar(rng: random.Random | None = None) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as file:
            for name in names:
                member = tarfile.TarInfo(f"folder/{name}")
                member.size = 700
                if rng is not None and rng.random() < 0.5:
                    _lie(member, rng)
                file.fileobj.write(member.tobuf(tarfile.PAX_FORMAT))
                file.fileobj.write(bytes(1024))
        return out.getvalue()

    def read(path: Path) -> None:
        target = path.parent / "target"
        target.mkdir()
        try:
            named.unpack(path, "folder", names, target)
        finally:
            there = {place.relative_to(path.parent).as_posix() for place in path.parent.rglob("*")}
            allowed = {path.name, "target", "target/folder", *(f"target/folder/{name}" for name in names)}
            assert there <= allowed, f"unpacking left {sorted(there - allowed)}"

    def damaged(rng: random.Random) -> bytes:
        return zipped(tar(rng)) if rng.random() < 0.5 else inside_or_out(tar(), zipped, rng)

    return Reader(damaged, read, (zipped(tar()),), ".tar.gz")


def _lie(member: tarfile.TarInfo, rng: random.Random) -> None:
    kinds = b"\x00" + b"01234567LKSxgX"
    change = rng.randrange(5)
    if change == 0:
        member.name = rng.choice(
            ("../out", "/tmp/out", "folder/../../out", "folder", "", "folder/" + "n" * 300)
        )
    elif change == 1:
        member.type = bytes([rng.choice(kinds)])
        member.linkname = rng.choice(("", "../out", "/etc/passwd", "folder/a.bin"))
    elif change == 2:
        member.size = rng.choice((0, 1, 1023, 1025, 2**31, 2**40, 8**11 - 1))
    elif change == 3:
        keys = (
            "path",
            "size",
            "mtime",
            "GNU.sparse.major",
            "GNU.sparse.map",
            "GNU.sparse.size",
            "hdrcharset",
            "uid",
        )
        member.pax_headers = {
            rng.choice(keys): rng.choice(("1", "-1", "x", "9" * 5000, "1,2,3", "../out", "", "nan"))
        }
    else:
        member.mode, member.mtime = rng.choice((0, 0o7777, 0o000)), rng.choice((0, 2**33, 2**60, 1e18))


def arrays_in_zips() -> Reader:
    images, labels = np.arange(4 * 6 * 6, dtype=np.uint8).reshape(4, 6, 6), np.array([0, 1, 0, 1])
    parts = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}

    def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as file:
            for name, content in members.items():
                file.writestr(zipfile.ZipInfo(f"{name}.npy"), content, method)
        return out.getvalue()

    sound = {name: _npy(array) for name, array in parts.items()}

    def damaged(rng: random.Random) -> bytes:
        method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        name = rng.choice(list(sound))
        return inside_or_out(sound[name], lambda content: zipped({**sound, name: content}, method), rng)

    def read(path: Path) -> None:
        dataset = load_npz(path)
        assert len(dataset.train.images) == len(dataset.train.labels)

    return Reader(damaged, read, (zipped(sound),), ".npz")


def arrays() -> Reader:
    sound = tuple(map(_npy, (np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(3, dtype=np.uint8))))
    return Reader(
        lambda rng: damage(rng.choice(sound), rng), lambda path: void(read_array(path)), sound, ".npy"
    )


def _npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def models() -> Reader:
    sound = tuple(mutations.originals())

    def read(path: Path) -> None:
        holds_plain_weights(path)
        read_bytes(path.read_bytes())

    return Reader(
        lambda rng: mutations.mutate(rng.choice(sound), rng),
        read,
        tuple(dict.fromkeys(sound)),
        ".safetensors",
    )


def weights() -> Reader:
    """Plain safetensors of `train --out`: the library reads the container, membound what is in its metadata."""
    state = {name: value.detach() for name, value in Small().state_dict().items()}
    facts = {
        "preprocess": {"scale": 0.5, "mean": [1.0], "crop": 2},
        "seed": 7,
        "classes": ["a", "b"],
        "shape": [1, 2, 2],
    }
    text = json.dumps(facts).encode()

    def wrapped(content: bytes) -> bytes:
        return save(state, {"membound": content.decode("utf-8", "replace")})

    def read(path: Path) -> None:
        saved_facts(path)
        load_weights_(Small(), path)

    return Reader(lambda rng: inside_or_out(text, wrapped, rng), read, (wrapped(text),), ".safetensors")


def torch_weights() -> Reader:
    out = io.BytesIO()
    torch.save(Small().state_dict(), out)
    sound = out.getvalue()
    return Reader(
        lambda rng: damage(sound, rng), lambda path: void(load_weights_(Small(), path)), (sound,), ".pt"
    )


def stages() -> Reader:
    sound = (ROOT / "examples" / "alexnet_stages.toml").read_bytes()
    return Reader(lambda rng: damage(sound, rng), lambda path: void(Stages.read(path)), (sound,), ".toml")


def ledgers() -> Reader:
    """One file of a run directory is damaged; the others are sound."""
    with open_run(None, {"budget": 40960}) as run:
        for key in ("dense", "round-1.keep-10"):
            run.record(key, {"accuracy": 98.5}, None)
        run.forget_weights("dense")
        files = {name: (run.path / name).read_bytes() for name in ("config.json", "ledger.jsonl")}
    packed = {name: name.encode() + b"\0" + content for name, content in files.items()}

    def read(path: Path) -> None:
        name, content = path.read_bytes().split(b"\0", 1)
        for other, sound in files.items():
            (path.parent / other).write_bytes(content if other == name.decode() else sound)
        _read_config(path.parent)
        RunDirectory(path.parent)

    def damaged(rng: random.Random) -> bytes:
        name = rng.choice(list(files))
        return name.encode() + b"\0" + damage(files[name], rng)

    return Reader(damaged, read, tuple(packed.values()))


def void(_: object) -> None:
    """What was read is of no further interest."""


READERS: dict[str, Callable[[], Reader]] = {
    "caffemodel": caffemodels, "binaryproto": mean_images, "idx": idx_files, "cifar10": cifar_batches,
    "archive": archives, "npz": arrays_in_zips, "npy": arrays, "model": models, "weights": weights,
    "torch": torch_weights, "stages": stages, "ledger": ledgers,
}  # fmt: skip
