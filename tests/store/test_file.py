"""The model file: what is written is read back bit for bit, by us and by the safetensors library."""

import errno
import json
import multiprocessing
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
import stored
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from safetensors import safe_open

from membound.data import Preprocess
from membound.errors import ModelError
from membound.store import file
from membound.store.file import file_size, read, read_bytes, to_bytes, write
from membound.store.formats import decode
from membound.store.graph import Graph, Node
from membound.store.header import parse_header
from membound.store.model import Model


def same_model(found: Model, expected: Model):
    assert found.graph == expected.graph
    assert found.original_shapes == expected.original_shapes
    assert found.preprocess == expected.preprocess
    assert found.classes == expected.classes
    assert found.tensors.keys() == expected.tensors.keys()
    for name, array in expected.tensors.items():
        assert found.tensors[name].tobytes() == array.tobytes(), name
    if expected.mean_image is None:
        assert found.mean_image is None
    else:
        assert np.array_equal(found.mean_image, expected.mean_image)


@pytest.mark.parametrize("mmap", [None, True, False])
@pytest.mark.parametrize("prefer", ["bytes", "speed"])
def test_a_file_comes_back(tmp_path, mmap, prefer):
    path, model = tmp_path / "net.safetensors", stored.network()
    written = write(path, model, prefer=prefer)
    found = read(path, mmap)
    same_model(found.decode(), model)
    same_model(written.decode(), model)
    assert found.mapped == bool(mmap)
    assert found.file_bytes == written.file_bytes == path.stat().st_size == file_size(model, prefer=prefer)
    assert found.shapes[-1] == (3,)
    assert path.read_bytes() == to_bytes(model, prefer=prefer)
    assert os.listdir(tmp_path) == ["net.safetensors"]


@pytest.mark.parametrize("values", ["f32", "f16"])
def test_every_format_comes_back(values):
    model = stored.network()
    found = read_bytes(stored.file_bytes(values))
    assert {name: tensor.format for name, tensor in found.tensors.items()} == stored.FORMATS
    kind = np.float32 if values == "f32" else np.float16
    for name, tensor in found.tensors.items():
        assert tensor.values.dtype == kind
        assert np.array_equal(decode(tensor), model.tensors[name].astype(kind).astype(np.float32))


def test_preprocessing_comes_back_whole():
    image = np.random.default_rng(0).uniform(0, 255, (2, 8, 8)).astype(np.float32)
    whole = Preprocess(scale=1 / 256, mean=image, std=np.array([2.0, 3.0]), crop=6, mirror=True)
    model = stored.network()
    model = Model(model.graph, model.tensors, preprocess=whole.to_json(), mean_image=whole.mean_image)
    found = read_bytes(to_bytes(model)).decode()
    assert Preprocess.from_json(found.preprocess, found.mean_image) == whole
    assert len(to_bytes(model)) - len(to_bytes(Model(model.graph, model.tensors))) >= image.nbytes


def test_the_safetensors_library_opens_it(tmp_path):
    path = tmp_path / "net.safetensors"
    path.write_bytes(stored.file_bytes())
    model = stored.network()
    with safe_open(path, "np") as opened:
        assert list(opened.metadata()) == ["membound"]
        about = json.loads(opened.metadata()["membound"])
        assert about["in"] == [2, 6, 6]
        assert np.array_equal(opened.get_tensor("conv.bias"), model.tensors["conv.bias"])
        values = model.tensors["fc1.weight"][model.tensors["fc1.weight"] != 0]
        assert np.array_equal(opened.get_tensor("fc1.weight"), values)
        assert opened.get_tensor("fc1.weight:csr").dtype == np.uint16
        assert opened.get_tensor("fc3.weight:indexed").dtype == np.uint32
        assert opened.get_tensor("fc2.weight:delta").tolist() == [0, 0, 255, 141]
    dense = Model(model.graph, {name: np.ones_like(array) for name, array in model.tensors.items()})
    write(path, dense)
    with safe_open(path, "np") as opened:
        assert {name: opened.get_tensor(name).shape for name in opened.keys()} == {  # noqa: SIM118
            name: array.shape for name, array in model.tensors.items()
        }


def test_arrays_are_aligned_without_padding():
    for values in ("f32", "f16"):
        content = stored.file_bytes(values)
        draft = stored.Draft(content)
        length = int.from_bytes(content[:8], "little")
        assert (8 + length) % 64 == 0
        assert len(content) == 8 + length + sum(tensor_bytes(fields) for fields in draft.header.values())
        assert len(json.dumps(content[8 : 8 + length].decode())) > length - 64


def tensor_bytes(fields):
    begin, end = fields["data_offsets"]
    return end - begin


def lenet(values="f32"):
    """LeNet with as many channels and nonzeros as dynamic network surgery leaves."""
    shapes = {"conv1": (8, 1, 5, 5), "conv2": (19, 8, 5, 5), "fc1": (57, 304), "fc2": (10, 57)}
    kept = {"conv1": (72, 2), "conv2": (770, 9), "fc1": (2920, 3), "fc2": (215, 2)}
    tensors = {}
    for name, shape in shapes.items():
        tensors[f"{name}.weight"] = stored.sparse(shape, kept[name][0])
        tensors[f"{name}.bias"] = stored.sparse(shape[:1], kept[name][1])
    layer = {name: {"w": f"{name}.weight", "b": f"{name}.bias"} for name in shapes}
    nodes = (
        Node("conv", (0,), {"stride": (1, 1)}, layer["conv1"]),
        Node("maxpool", (1,), {"kernel": (2, 2), "stride": (2, 2)}),
        Node("conv", (2,), {}, layer["conv2"]),
        Node("maxpool", (3,), {"kernel": (2, 2), "stride": (2, 2)}),
        Node("reshape", (4,), {"shape": (304,)}),
        Node("linear", (5,), {"act": ("relu",)}, layer["fc1"]),
        Node("linear", (6,), {}, layer["fc2"]),
    )
    original = {
        "conv1.weight": (20, 1, 5, 5), "conv1.bias": (20,), "conv2.weight": (50, 20, 5, 5), "conv2.bias": (50,),
        "fc1.weight": (500, 800), "fc1.bias": (500,), "fc2.weight": (10, 500),
    }  # fmt: skip
    return Model(Graph((1, 28, 28), nodes, 7), tensors, original, {"scale": 1 / 256}, list("0123456789"))


def test_a_pruned_lenet_is_small():
    model = lenet()
    f32, f16 = (read_bytes(to_bytes(model, values)) for values in ("f32", "f16"))
    assert sum(np.count_nonzero(a) for name, a in model.tensors.items() if name.endswith("weight")) == 3977
    assert f32.header_bytes <= 1408
    assert f32.file_bytes <= 20_300
    assert f16.file_bytes <= 12_300
    assert f32.original_shapes == model.original_shapes
    assert f32.classes == model.classes


def test_what_follows_from_the_rest_is_left_out():
    model = lenet()
    about = stored.Draft(to_bytes(model)).about
    assert about["n"][:3] == [["conv", "conv1"], ["maxpool", {"kernel": [2, 2]}], ["conv", "conv2"]]
    assert about["c"] == 10
    assert about["t"].keys() == {"conv1", "conv2", "fc1", "fc2"}
    assert "out" not in about


def test_names_that_could_be_mistaken_are_written_out():
    """A layer's bias that another node uses, a tensor with the name of a layer, a weight under another name."""
    nodes = (
        Node("linear", (0,), {}, {"w": "a.weight"}),
        Node("linear", (1,), {}, {"w": "b.weight", "b": "a.bias"}),
        Node("linear", (2,), {}, {"w": "a", "b": "other"}),
        Node("linear", (1,), {}, {"w": "b.weight", "b": "a.bias"}),
        Node("add", (4, 3)),
    )
    square = stored.sparse((40, 40), 60)
    tensors = {"a.weight": square, "b.weight": square.T.copy(), "a": square * 2}
    tensors |= {"a.bias": stored.sparse((40,), 2), "other": stored.sparse((40,), 40)}
    original = {"other": (50,), "a.weight": (41, 40), "a": (40, 41)}
    model = Model(Graph((40,), nodes, 3), tensors, original)
    same_model(read_bytes(to_bytes(model)).decode(), model)


@given(data=st.data())
@examples(60)
def test_any_tensors_come_back(data):
    rows, columns = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 300))
    keep = data.draw(st.integers(0, rows * columns))
    weight = stored.sparse((rows, columns), keep, data.draw(st.integers(0, 9)))
    bias = stored.sparse((rows,), data.draw(st.integers(0, rows)), 1)
    model = Model(
        Graph((columns,), (Node("linear", (0,), {}, {"w": "é.weight", "b": "é.bias"}),), 1),
        {"é.weight": weight, "é.bias": bias},
        {"é.weight": (rows + data.draw(st.integers(0, 1)) or rows, columns + 1)},
        classes=data.draw(
            st.none() | st.lists(st.sampled_from(["0", "1", "猫", 'a"b\\', "x y"]), max_size=3)
        ),
    )
    same_model(
        read_bytes(to_bytes(model, prefer=data.draw(st.sampled_from(["bytes", "speed"])))).decode(), model
    )


def test_small_files_are_read_and_large_ones_mapped(tmp_path):
    path = tmp_path / "net.safetensors"
    layer = Node("linear", (0,), {}, {"w": "w"})
    for size, mapped in ((100, False), (1000, True)):
        write(path, Model(Graph((size,), (layer,), 1), {"w": np.ones((size, size), np.float32)}))
        found = read(path)
        assert found.mapped == mapped
        values = found.tensors["w"].values
        assert not values.flags.writeable
        assert not values.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 0


def test_a_map_is_used_by_many_and_outlives_its_name(tmp_path):
    path = tmp_path / "net.safetensors"
    write(path, stored.network())
    found = read(path, mmap=True)
    path.unlink()
    same_model(found.decode(), stored.network())
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(np.sum, (found.tensors["shift"].values,)) == np.sum(found.tensors["shift"].values)


def test_bytes_at_any_address_are_read():
    content = stored.file_bytes()
    for shift in range(5):
        moved = memoryview(bytearray(b"\0" * shift + content))[shift:]
        same_model(read_bytes(moved).decode(), stored.network())


def test_nothing_big_is_allocated_by_reading(tmp_path):
    """A mapped file of 16 MB in every format is checked within 8 MB more."""
    path = tmp_path / "net.safetensors"
    code = f"""
import tracemalloc, sys
sys.path.insert(0, {str(os.path.dirname(stored.__file__))!r})
import numpy as np, stored
from membound.store.file import assemble, read
from membound.store.formats import encode
from membound.store.graph import Graph, Node
from membound.store.model import Model
names = ["bitmask", "csr", "delta", "indexed"]
nodes = tuple(Node("linear", (i,), {{}}, {{"w": name}}) for i, name in enumerate(names))
weight = stored.sparse((2000, 2000), 1_000_000)
tensors = {{name: encode(weight, name) for name in names}}
with open({str(path)!r}, "wb") as file:
    for part in assemble(Model(Graph((2000,), nodes, 4), {{}}), tensors)[0]:
        file.write(part)
tracemalloc.start()
found = read({str(path)!r})
assert found.mapped and found.file_bytes > 16e6
peak = tracemalloc.get_traced_memory()[1]
assert peak < 8e6, peak
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_chunk_boundary_changes_nothing(monkeypatch):
    """With chunks of three elements every check crosses many of them, and finds the same."""
    from membound.store import validate

    monkeypatch.setattr(validate, "CHUNK", 3)
    draft = stored.Draft(stored.file_bytes())
    same_model(read_bytes(draft.pack()).decode(), stored.network())
    starts = set(draft.array("fc1.weight:rows", np.uint16).tolist())
    for name, kind, rule in (("fc1.weight:csr", np.uint16, 33), ("fc3.weight:indexed", np.uint32, 31)):
        for place in range(1, len(draft.array(name, kind))):
            if rule == 33 and place in starts:
                continue
            bad = draft.copy()
            array = bad.array(name, kind)
            array[place] = array[place - 1]
            with pytest.raises(ModelError) as caught:
                read_bytes(bad.pack())
            assert caught.value.rule == rule


# What cannot be read or written


@pytest.mark.parametrize("mmap", [None, True, False])
def test_what_is_no_file_is_refused(tmp_path, mmap):
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    cases = {
        tmp_path: "this is a folder: give a .safetensors file",
        tmp_path / "pipe": "this is not a file",
        tmp_path / "empty": "not a model file: 0 bytes",
        "a\0b": "cannot be read: embedded null",
    }
    for path, words in cases.items():
        with pytest.raises(ModelError, match=words) as caught:
            read(path, mmap)
        assert str(caught.value).startswith(f"{path}: ")
    with pytest.raises(ModelError, match=r"there is no file .*/emptyy: did you mean .*/empty\?$"):
        read(tmp_path / "emptyy", mmap)


def test_too_little_memory_is_said(tmp_path, monkeypatch):
    def fail(buffer):
        raise MemoryError

    write(tmp_path / "net", stored.network())
    monkeypatch.setattr(file, "parse", fail)
    with pytest.raises(ModelError, match="net: cannot be read: there is not enough memory"):
        read(tmp_path / "net")


def test_what_cannot_be_written_is_refused(tmp_path):
    model = stored.network()
    (tmp_path / "folder").mkdir()
    for path, words in (
        (tmp_path / "none" / "net", "there is no folder .*none: create it with mkdir -p"),
        (tmp_path / "folder", "cannot be written: Is a directory"),
        (tmp_path / "n\0t", "cannot be written: embedded null"),
    ):
        with pytest.raises(ModelError, match=words):
            write(path, model)
    assert os.listdir(tmp_path) == ["folder"]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "net"
    write(path, stored.network())
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    content = lenet()
    with pytest.raises(ModelError, match="net: cannot be written: No space left on device"):
        write(path, content)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["net"]


def test_links_are_followed_and_long_names_allowed(tmp_path):
    real, link = tmp_path / ("n" * 255), tmp_path / "link"
    link.symlink_to(real)
    write(link, stored.network())
    assert link.is_symlink()
    same_model(read(real).decode(), stored.network())


def test_a_new_file_has_the_usual_permissions(tmp_path):
    write(tmp_path / "net", stored.network())
    (tmp_path / "other").touch()
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("net", "other")}
    assert len(modes) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda m: m.tensors.update({"shift": np.full(20, np.nan, np.float32)}),
            "'shift' has a value that is not",
        ),
        (
            lambda m: m.tensors.update({"spare": np.ones(3, np.float32)}),
            "'spare' is there, but no node uses it",
        ),
        (lambda m: m.tensors.pop("shift"), r"node 7 \(add\): names the tensor 'shift', which is not there"),
        (lambda m: m.tensors.update({"shift": np.ones(21, np.float32)}), r"node 7 \(add\): its operands"),
        (lambda m: m.preprocess.update({"hue": 1}), "'hue' 1, which is not understood"),
        (lambda m: m.preprocess.pop("mean"), "has no mean image"),
        (
            lambda m: m.classes.append("a\nb"),
            r"class \d+ is named 'a\\nb': 1 to 300 printable characters are allowed",
        ),
    ],
)
def test_a_model_that_no_one_could_read_is_not_written(tmp_path, change, words):
    model = stored.network()
    change(model)
    with pytest.raises(ModelError, match=words):
        write(tmp_path / "net", model)
    assert os.listdir(tmp_path) == []


def test_f16_that_overflows_names_the_tensor():
    model = stored.network()
    model.tensors["fc3.weight"][0, 0] = 1e6
    with pytest.raises(ModelError, match=r"tensor 'fc3\.weight': the value 1e\+06 does not fit f16"):
        to_bytes(model, "f16")


def test_colons_in_names_are_refused():
    model = Model(Graph((3,), (Node("add", (0,), {}, {"c": "a:b"}),), 1), {"a:b": np.ones(3, np.float32)})
    with pytest.raises(ModelError, match="'a:b' has no allowed name"):
        to_bytes(model)


def test_lists_in_a_graph_become_tuples():
    header = parse_header('{"v":1,"in":[2],"n":[["pad",{"pad":[[0,1]]}]]}', [])
    assert header.graph.nodes[0].attributes == {"pad": ((0, 1),)}
