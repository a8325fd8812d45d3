"""Hostile inputs: every reader is fuzzed for a while, and what fuzzing has found stays mended."""

import gzip
import io
import json
import re
import resource
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file

from membound.data import Preprocess, named, packed
from membound.data.npz import load_npz
from membound.errors import DataError, MemboundError, WeightsError
from membound.search.ledger import _read_json
from membound.search.stages import Stages
from membound.train.weights import load_weights_, saved_facts
from membound.zoo import lenet

FUZZER = Path(__file__).parents[1] / "fuzz" / "readers.py"
NESTED = "[" * 100_000
LONG = "9" * 5000  # more digits than Python turns into a number


def fuzz(folder, *options):
    """How many inputs each reader had, and what became of them."""
    done = subprocess.run(
        [sys.executable, FUZZER, *options], cwd=folder, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(re.findall(r"^(\w+) +[\d,]+ inputs: (.*)$", done.stdout, re.MULTILINE))


def check(found):
    assert len(found) == 12
    for name, outcomes in found.items():
        assert "Error" in outcomes, name  # damage is noticed
        assert "accepted" in outcomes or name == "cifar10", name  # and not all of it is at the first byte


@pytest.mark.full
def test_every_reader_for_a_moment(tmp_path):
    check(fuzz(tmp_path, "--count", "60", "--seconds", "0.4"))


@pytest.mark.full
def test_every_reader_for_ten_seconds(tmp_path):
    check(fuzz(tmp_path, "--seconds", "10", "--seed", "1"))


@pytest.mark.full
def test_the_fuzzer_fails_where_a_reader_does(tmp_path):
    """A reader that lets any other error out is found, and its input is kept."""
    script = tmp_path / "broken.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(FUZZER.parent)!r})\n"
        "import readers, corpus\n"
        "broken = lambda path: path.read_bytes().decode('ascii')\n"
        "corpus.READERS['broken'] = lambda: corpus.Reader(lambda rng: rng.randbytes(9), broken, (b'sound',))\n"
        "readers.main()\n"
    )
    done = subprocess.run(
        [sys.executable, script, "--readers", "broken", "--seconds", "5"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "UnicodeDecodeError" in done.stderr
    (kept,) = tmp_path.glob("fuzz-failure-broken-*")
    assert len(kept.read_bytes()) == 9


# --- what was found ---


def one_line(error):
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1500


@pytest.mark.parametrize("text", [NESTED, LONG, f'{{"preprocess": {{"scale": 1{"0" * 400}}}}}'])
def test_metadata_beyond_all_bounds(tmp_path, text):
    """It is nobody's, so the weights load without it; a scale that is too large for a number is refused."""
    path = tmp_path / "net.safetensors"
    save_file(lenet().state_dict(), path, {"membound": text})
    assert saved_facts(path) == {}
    if "preprocess" not in text:
        assert load_weights_(lenet(), path) is None
        return
    with pytest.raises(WeightsError, match="malformed scale") as caught:
        load_weights_(lenet(), path)
    one_line(caught)


@pytest.mark.parametrize(
    "fields", [{"mean": [1e300]}, {"std": [10**400]}, {"mean": [[0] * 9] * 999}, {"nonsense": "x" * 10**6}]
)
def test_preprocessing_beyond_all_bounds(fields):
    with pytest.raises(DataError) as caught:
        Preprocess.from_json(fields)
    one_line(caught)


def header(text):
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text.encode()


def npz(path, content, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as file:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            file.writestr(f"{name}.npy", content)
    return path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (header("{'descr':'<f4','fortran_order':False,'shape':(1,"), "cannot be read"),  # a TokenError
        (
            header("{'descr':'<f4','fortran_order':False,'shape':(10**23,)}".replace("10**23", "1" * 23)),
            "large",
        ),
        (header("{'descr':'<f4','fortran_order':False,'shape':(1000000000000000,)}"), "cannot be read"),
        (b"no array at all", "x_train is not an array"),
    ],
    ids=["open bracket", "too many", "too much memory", "no array"],
)
def test_arrays_that_are_none(tmp_path, content, said):
    with pytest.raises(DataError, match=said) as caught:
        load_npz(npz(tmp_path / "set.npz", content))
    one_line(caught)


@pytest.mark.parametrize(("offset", "value"), [(8, 1), (10, 99)], ids=["encrypted", "compressed somehow"])
def test_zips_that_cannot_be_unpacked(tmp_path, offset, value):
    path = npz(tmp_path / "set.npz", b"")
    content = bytearray(path.read_bytes())
    for found in re.finditer(b"PK\x01\x02", bytes(content)):
        content[found.start() + offset] = value
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read") as caught:
        load_npz(path)
    one_line(caught)


@pytest.mark.parametrize(
    "content",
    [
        b"\0\0\x08\x64" + b"\0\0\0\1" * 100 + b"\0",
        b"\0\0\x08\x04" + b"\xff\xff\xff\xff" * 3 + b"\0\0\0\0",
    ],
    ids=["more axes than arrays have", "nothing, of sizes beyond all bounds"],
)
def test_idx_files_of_impossible_shapes(tmp_path, content):
    path = tmp_path / "digits.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match="malformed idx header"):
        named.read_idx(path)


def test_a_small_idx_file_that_unpacks_to_much_more(tmp_path):
    path = tmp_path / "digits.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(300):
            file.write(bytes(1 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match="more than 67,108,864 bytes"):
        named.read_idx(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # KiB


def test_a_batch_of_the_wrong_size_is_not_read(tmp_path):
    path = tmp_path / "data_batch_1.bin"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # a file with a hole: it takes no room
    with pytest.raises(DataError, match="has 1,099,511,627,776 bytes, not 30,730,000"):
        named._read_batch(path, "")
    with pytest.raises(DataError, match=r"missing\.bin cannot be read \(No such file"):
        named._read_batch(tmp_path / "missing.bin", "")


def test_archives_get_one_line_whatever_tarfile_says(tmp_path):
    (tmp_path / "cifar.tar.gz").write_bytes(gzip.compress(b"")[:10] + b"\xff" * 20)
    with pytest.raises(DataError, match="cannot be unpacked") as caught:
        named.unpack(tmp_path / "cifar.tar.gz", "folder", ("a.bin",), tmp_path)
    one_line(caught)


@pytest.mark.parametrize("name", ["../out.bin", "/tmp/out.bin", "folder/../../out.bin"])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_nothing_is_unpacked_outside_its_folder(tmp_path, name, kind):
    """A member of a hostile name is left out; one of a wanted name that is a link is not taken for the file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for member in (tarfile.TarInfo(name), tarfile.TarInfo("folder/a.bin")):
            member.type, member.linkname = kind, name
            tar.addfile(member)
    (tmp_path / "a.tar.gz").write_bytes(out.getvalue())
    (tmp_path / "target").mkdir()
    if kind == tarfile.REGTYPE:
        named.unpack(tmp_path / "a.tar.gz", "folder", ("a.bin",), tmp_path / "target")
    else:
        with pytest.raises(DataError, match=r"lacks folder/a\.bin"):
            named.unpack(tmp_path / "a.tar.gz", "folder", ("a.bin",), tmp_path / "target")
    there = {path.name for path in tmp_path.rglob("*")}
    assert there <= {"a.tar.gz", "target", "folder", "a.bin"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"tolerance = {NESTED}", r"stages\.toml is not TOML"),
        (f"[[stage]]\nfc1 = {LONG}", r"stages\.toml is not TOML"),
        (f"stag{LONG} = 1", r"stages\.toml has 'stag999"),
        (f"tolerance = '{LONG}'", "tolerance must lie between 0 and 100, got '999"),
    ],
)
def test_stages_beyond_all_bounds(tmp_path, text, said):
    (tmp_path / "stages.toml").write_text(text)
    with pytest.raises(MemboundError, match=said) as caught:
        Stages.read(tmp_path / "stages.toml")
    one_line(caught)


def test_a_config_nested_beyond_all_bounds(tmp_path):
    (tmp_path / "config.json").write_text(NESTED)
    with pytest.raises(MemboundError, match="cannot be read"):
        _read_json(tmp_path / "config.json", "choose another")


@pytest.mark.parametrize("bad", [None, "x", [1.5], [-1], [3], [True]])
def test_a_damaged_index_of_decoded_images_is_made_anew(tmp_path, bad):
    base = tmp_path / "digest"
    np.save(f"{base}.images.npy", np.zeros((3, 3, 2, 2), np.uint8))
    about = {"format": packed.FORMAT, "shape": [3, 3, 2, 2], "bad": [2]}
    Path(f"{base}.json").write_text(json.dumps(about))
    assert packed._read_about(base) == about
    Path(f"{base}.json").write_text(json.dumps({**about, "bad": bad}))
    assert packed._read_about(base) is None
    Path(f"{base}.json").write_text(json.dumps(about))
    Path(f"{base}.images.npy").write_bytes(header("{'descr':'|u1','shape':(1,"))
    assert packed._read_about(base) is None
