"""inspect, run and evaluate FILE: what they say, what they write, and what they refuse in one line."""

import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from deployed import BROKEN, CLASSES, broken_files, images, network, refused, run, write_network
from PIL import Image

import membound as mb
from membound.data.pictures import decode_mask
from membound.errors import install
from membound.store.file import write
from membound.store.graph import Graph, Node
from membound.store.model import Model


@pytest.fixture
def file(tmp_path):
    return write_network(tmp_path / "net.safetensors")


@pytest.fixture
def data(tmp_path):
    x, y = images(40)
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
    return tmp_path / "data.npz"


def saved(path, array, **options):
    np.save(path, array, **options)
    return path


def loads(text):
    return json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("command", ["inspect", "run", "evaluate", "export", "bench"])
def test_what_is_no_model_file_is_refused_in_one_line(command, kind, tmp_path, capsys, data):
    path, words = broken_files(tmp_path)[kind]
    x = saved(tmp_path / "x.npy", images()[0])
    rest = {
        "run": (x, "--out", tmp_path / "y.npy"),
        "evaluate": ("--data", data),
        "export": ("--onnx", tmp_path / "net.onnx"),
    }
    before = sorted(tmp_path.iterdir())
    said = refused(capsys, command, path, *rest.get(command, ()))
    if command == "evaluate" and kind in ("weights", "folder"):
        words = "NET --init" if kind == "weights" else "no weights"
    assert words in said
    assert path.name in said or kind == "folder"
    assert sorted(tmp_path.iterdir()) == before


# inspect


def test_inspect_as_json(file, capsys):
    assert run("inspect", file, "--json") == 0
    facts = loads(capsys.readouterr().out)
    assert facts["file_bytes"] == os.path.getsize(file)
    assert facts["sha256"] == hashlib.sha256(Path(file).read_bytes()).hexdigest()
    assert facts["weight_bytes"] == sum(layer["bytes"] for layer in facts["layers"])
    assert facts["file_bytes"] == facts["header_bytes"] + facts["weight_bytes"] + facts["mean_image_bytes"]
    assert facts["dense_bytes"] == 4 * (36 + 4 + 160) == facts["paper"]["dense_bytes"]
    assert facts["dense_file_bytes"] - facts["dense_bytes"] - facts["mean_image_bytes"] in range(
        300, 1000
    )  # header
    assert facts["ratio"] == facts["dense_file_bytes"] / facts["file_bytes"]
    assert facts["paper"]["indexed_bytes"] == 8 * facts["nonzeros"] == 8 * (3 + 32)
    assert facts["paper"]["best_bytes"] == min(144, 5 + 12, 24) + min(16, 1, 0) + min(640, 20 + 128, 256)
    assert facts["arena_bytes"] == mb.load(file, threads=1).memory().arena
    layers = {layer["name"]: layer for layer in facts["layers"]}
    assert layers["fc.weight"]["shape"] == [2, 64]
    assert layers["fc.weight"]["original_shape"] == [2, 80]
    assert layers["conv.weight"]["original_shape"] == [4, 1, 3, 3]
    assert {"name", "shape", "nonzeros", "format", "values", "bytes"} <= layers["fc.weight"].keys()
    assert facts["weight_nonzeros"] == 35
    assert facts["classes"] == CLASSES


def test_files_of_few_bits_are_model_files(tmp_path, data, capsys):
    """Their description is not where that of others is."""
    write(tmp_path / "few.safetensors", network(), "p4")
    x = saved(tmp_path / "x.npy", images()[0])
    for command in (("inspect",), ("run", x), ("evaluate", "--data", data)):
        assert run(command[0], tmp_path / "few.safetensors", *command[1:]) == 0
        assert capsys.readouterr().out


def test_inspect_as_a_table(file, capsys):
    assert run("inspect", file) == 0
    said = capsys.readouterr().out
    assert "2x64 of 2x80" in said
    assert f"sha256    {hashlib.sha256(Path(file).read_bytes()).hexdigest()}\n" in said
    assert f"{os.path.getsize(file):,} bytes: weights" in said
    assert "nonzeros  35 of 200 parameters" in said
    assert f"dense     {mb.inspect(file)['dense_file_bytes']:,} bytes in float32: " in said
    assert "input     1x6x6 of uint8, pixels" in said


def test_inspect_says_what_few_bits_are_made_of(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # room for every column, whatever the terminal is
    write(tmp_path / "net.safetensors", network(), "p2")
    assert run("inspect", tmp_path / "net.safetensors", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert run("inspect", tmp_path / "net.safetensors") == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(line for line in lines if "layer" in line).split()
    assert head[5:] == ["values", "distinct", "numbers", "positions", "scales", "palette", "bytes"]
    layer = facts["layers"][-1]
    row = next(line for line in lines if line.strip().startswith(layer["name"])).split()
    parts = [layer[key] for key in ("value_bytes", "position_bytes", "scale_bytes", "palette_bytes", "bytes")]
    assert row[-7:] == [layer["values"], str(layer["distinct"]), *map(str, parts)]
    assert layer["distinct"] == 1
    total = next(line for line in lines if line.startswith("file"))
    assert f"header {facts['header_bytes']:,}" in total
    assert "scales and biases" in total


@pytest.mark.parametrize(
    ("said", "words"), [(None, "prepared: the file does not say"), ({}, "as the training data")]
)
def test_inspect_says_what_the_input_is(said, words, tmp_path, capsys):
    assert run("inspect", write_network(tmp_path / "net.safetensors", preprocess=said)) == 0
    assert f"input     1x6x6 of float32, {words}" in capsys.readouterr().out


def test_a_network_of_zeros_and_a_mean_image_are_counted(tmp_path, capsys):
    image = np.ones((1, 6, 6), np.float32)
    path = write_network(tmp_path / "net.safetensors", preprocess={"mean": "image"}, mean_image=image)
    assert run("inspect", path, "--json") == 0
    facts = loads(capsys.readouterr().out)
    assert facts["mean_image_bytes"] == 144
    assert facts["file_bytes"] == facts["header_bytes"] + facts["weight_bytes"] + 144


# run


def test_run_prepares_images_and_takes_prepared_arrays(file, tmp_path, capsys):
    x, labels = images()
    assert run("run", file, saved(tmp_path / "x.npy", x), "--out", tmp_path / "y.npy", "--json") == 0
    facts = loads(capsys.readouterr().out)
    y = np.load(tmp_path / "y.npy")
    net = mb.load(file)
    np.testing.assert_array_equal(y, net(net.preprocess(x)))
    assert facts["shape"] == [6, 2]
    assert [row[0]["class"] for row in facts["top"]] == [CLASSES[label] for label in labels]
    assert facts["kind"] == "classes"
    for row, scores in zip(facts["top"], y, strict=True):
        likely = np.exp(scores) / np.exp(scores).sum()
        assert [each["probability"] for each in row] == pytest.approx(sorted(likely, reverse=True), abs=1e-6)
        assert [each["score"] for each in row] == sorted(scores.tolist(), reverse=True)
    prepared = saved(tmp_path / "prepared.npy", net.preprocess(x))
    assert run("run", file, prepared) == 0
    assert "prepared.out.npy: float32 6 x 2" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(tmp_path / "prepared.out.npy"), y)


def test_run_prints_the_best_classes(file, tmp_path, capsys):
    assert run("run", file, saved(tmp_path / "x.npy", images(13)[0])) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["example", "class", "and", "probability"]
    assert lines[1].split()[:2] == ["0", "dark"]
    assert lines[2].split()[:2] == ["1", "bright"]
    assert lines[1].endswith(" %")
    assert lines[11] == "      and 3 more"


def test_run_takes_pictures(file, tmp_path, capsys):
    """At the size of the network, and gray, as it takes them."""
    dark, bright = tmp_path / "dark.png", tmp_path / "night.JPG"
    Image.new("RGB", (9, 30), (220, 210, 200)).save(dark)
    Image.new("L", (40, 12), 10).save(bright)
    before = set(tmp_path.iterdir())
    assert run("run", file, dark, bright) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["picture", "class"]
    assert [line.split()[:2] for line in lines[1:]] == [[str(dark), "bright"], [str(bright), "dark"]]
    assert set(tmp_path.iterdir()) == before  # nothing is written unless it is asked for
    assert run("run", file, dark, "--out", tmp_path / "y.npy", "--json") == 0
    facts = loads(capsys.readouterr().out)
    assert facts["top"][0][0]["class"] == "bright"
    net, gray = mb.load(file), round(0.299 * 220 + 0.587 * 210 + 0.114 * 200)
    expected = net(net.preprocess(np.full((1, 1, 6, 6), gray, np.uint8)))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


def test_pictures_that_cannot_be_run(file, tmp_path, capsys):
    (tmp_path / "broken.png").write_bytes(b"not a picture")
    good = tmp_path / "good.png"
    Image.new("L", (6, 6)).save(good)
    said = refused(capsys, "run", file, tmp_path / "broken.png")
    assert "broken.png cannot be decoded as an image" in said
    assert "--skip-corrupt" not in said
    assert "there is no picture at" in refused(capsys, "run", file, tmp_path / "gone.png")
    x = saved(tmp_path / "x.npy", images()[0])
    assert f"{x} is not a picture (.jpg, .png, ...): several inputs must all be pictures" in refused(
        capsys, "run", file, good, x
    )
    (tmp_path / "folder.png").mkdir()
    assert "is a folder without pictures" in refused(capsys, "run", file, tmp_path / "folder.png")


def run_without(modules, *arguments):
    """A command in a process that cannot import these."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({modules!r}))\n"
        "from membound.cli import main; main(sys.argv[1:])"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, cwd="/"
    )


def test_pictures_need_pillow_and_no_torch(file, tmp_path):
    """Whether they are given to `run` or are a folder to `evaluate` on."""
    for label, (name, gray) in enumerate((("dark", 10), ("bright", 220))):
        for half in ("train", "test"):
            (tmp_path / half / name).mkdir(parents=True)
            Image.new("L", (6, 6), gray).save(tmp_path / half / name / f"{label}.webp")
    picture = tmp_path / "test" / "bright" / "1.webp"
    done = run_without(["torch", "safetensors"], "run", file, picture)
    assert done.stdout.splitlines()[1].split()[:2] == [str(picture), "bright"], done.stderr
    for command in (("run", file, picture), ("evaluate", file, "--data", tmp_path)):
        done = run_without(["torch", "PIL"], *command)
        said = f"membound: error: reading pictures needs Pillow: {install('images')}\n"
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_a_folder_without_halves_is_judged_in_part_or_whole(tmp_path, capsys):
    file = write_network(tmp_path / "net.safetensors", channels=3, classes=["bright", "dark"])
    for name, gray in (("bright", 220), ("dark", 10)):
        (tmp_path / "held" / name).mkdir(parents=True)
        for number in range(10):
            Image.new("L", (6, 6), gray).save(tmp_path / "held" / name / f"{number}.png")
    assert run("evaluate", file, "--data", tmp_path / "held") == 0
    said = capsys.readouterr()
    assert "in 4 images" in said.out
    assert "a fraction of 0.2, seed 0; to take them all: --split all" in said.err
    assert run("evaluate", file, "--data", tmp_path / "held", "--split", "all") == 0
    said = capsys.readouterr()
    assert "in 20 images" in said.out
    assert "fraction" not in said.err
    assert "choose test, train or all" in refused(
        capsys, "evaluate", file, "--data", tmp_path, "--split", "val"
    )
    assert "goes with a model FILE" in refused(
        capsys, "evaluate", "lenet", "--init", file, "--data", "mnist", "--split", "all"
    )


@pytest.mark.parametrize("said", [{}, {"mean": [0.5], "takes": "float32"}])
def test_pixels_are_refused_where_floats_were_trained_on(said, tmp_path, capsys):
    file = write_network(tmp_path / "net.safetensors", preprocess=said)
    Image.new("L", (6, 6)).save(tmp_path / "photo.webp")
    x, labels = images()
    saved(tmp_path / "x.npy", x)
    np.savez(tmp_path / "set.npz", x_train=x, y_train=labels, x_test=x, y_test=labels)
    nameless = write_network(tmp_path / "nameless.safetensors", preprocess=said, classes=None)
    before = set(tmp_path.iterdir())
    photo = tmp_path / "photo.webp"
    for command in (("run", file, photo), ("run", nameless, photo), ("run", file, tmp_path / "x.npy")):
        assert "trained on floating-point data" in refused(capsys, *command)
    assert "trained on floating-point data" in refused(
        capsys, "evaluate", file, "--data", tmp_path / "set.npz"
    )
    assert set(tmp_path.iterdir()) == before


def test_floats_are_prepared_where_floats_were_trained_on(tmp_path, capsys):
    said = {"mean": [0.5], "takes": "float32"}
    file = write_network(tmp_path / "net.safetensors", preprocess=said)
    x = (images()[0] / 255).astype(np.float32)
    assert run("run", file, saved(tmp_path / "x.npy", x), "--out", tmp_path / "y.npy") == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), mb.load(file)(x - np.float32(0.5)))


def test_a_file_that_prepares_pixels_is_evaluated_on_pixels(file, tmp_path, capsys):
    x, labels = images()
    floats = (x / 255).astype(np.float32)
    np.savez(tmp_path / "set.npz", x_train=floats, y_train=labels, x_test=floats, y_test=labels)
    said = refused(capsys, "evaluate", file, "--data", tmp_path / "set.npz")
    assert "images of set are float32" in said


def test_a_damaged_picture_is_said_in_one_line(file, tmp_path):
    """Pillow warns of some before it gives up."""
    path = tmp_path / "cut.tif"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-4000])
    code = "import sys; from membound.cli import main; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", str(file), str(path)], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_thin_picture_takes_little_memory(file, tmp_path, capsys):
    """Its middle counts, not all of it enlarged."""
    thin = np.zeros((1, 60_000), np.uint8)
    thin[0, 29_000:31_000] = 250
    Image.fromarray(thin).save(tmp_path / "thin.png")
    assert run("run", file, tmp_path / "thin.png") == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == [str(tmp_path / "thin.png"), "bright"]


def segmenter(path, size=(6, 6), **about):
    """Three classes of each pixel: below 60, up to 150, above."""
    conv = np.array([-1.0, 0.0, 1.0], np.float32).reshape(3, 1, 1, 1)
    nodes = (Node("conv", (0,), {}, {"w": "conv.weight", "b": "conv.bias"}),)
    tensors = {"conv.weight": conv, "conv.bias": np.array([-0.4, 0, -0.5], np.float32)}
    prepare = {"scale": 0.01, "mean": [100.0]}
    write(path, Model(Graph((1, *size), nodes, 1), tensors, preprocess=prepare, **about))
    return path


def test_masks_of_pictures(tmp_path, capsys, monkeypatch):
    """Class numbers with a palette, for one picture or a folder of them, which evaluate could read as its masks."""
    monkeypatch.chdir(tmp_path)
    net = segmenter("seg.safetensors", classes=["dark", "gray", "light"])
    pixels = np.full((6, 6), 100, np.uint8)
    pixels[:3], pixels[5] = 10, 240
    Image.fromarray(pixels).save("a.png")
    wanted = mb.load(net)(mb.load(net).preprocess(pixels[None, None]))[0].argmax(0)
    assert set(wanted.ravel()) == {0, 1, 2}
    assert run("run", net, "a.png", "--out", "mask.png") == 0
    said = capsys.readouterr().out
    assert said.startswith(
        "picture  class and its share of the pixels\na.png    dark 50 %, gray 33.3 %, light 16.7 %\n"
        "output  mask.png: class numbers, 6 x 6"
    )
    with Image.open("mask.png") as mask:
        assert mask.mode == "P"
        assert len(set(mask.convert("RGB").get_flattened_data())) == 3
    np.testing.assert_array_equal(decode_mask("mask.png"), wanted)
    Path("photos/in").mkdir(parents=True)
    Image.fromarray(pixels).save("photos/in/b.jpg", quality=95)
    Image.fromarray(255 - pixels).save("photos/c.png")
    assert run("run", net, "photos", "--out", "masks", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["inputs"] == ["photos/c.png", "photos/in/b.jpg"]
    assert facts["masks"][0][0] == {"class": "light", "share": pytest.approx(5 / 6)}
    assert sorted(map(str, Path("masks").rglob("*.png"))) == ["masks/c.png", "masks/in/b.png"]
    assert decode_mask("masks/c.png")[0].tolist() == [2] * 6
    assert run("run", net, "a.png", "photos") == 0  # which prints, and writes nothing
    said = capsys.readouterr().out
    assert said.count(" %") == 8
    assert said.endswith("output  none written: --out NEW_FOLDER writes the masks\n")
    np.save("a.npy", pixels[None, None])
    assert run("run", net, "a.npy", "--out", "scores.npy") == 0
    said = capsys.readouterr().out
    assert said.startswith(
        "example  class and its share of the pixels\n   0     dark 50 %, gray 33.3 %, light 16.7 %\n"
    )
    assert "\noutput  scores.npy: float32 1 x 3 x 6 x 6" in said
    assert run("run", net, "a.npy", "--out", "scores.npy", "--json") == 0
    assert json.loads(capsys.readouterr().out)["masks"][0][0] == {"class": "dark", "share": 0.5}
    for file in ("a.npy", "scores.npy"):
        Path(file).unlink()
    for words, says in (
        (("photos", "--out", "masks"), "exists and is not an empty folder"),
        (("photos", "--out", "one.png"), "2 pictures give as many masks: name a new folder"),
        (("a.png", "photos/in", "photos/c.png", "a.png", "--out", "new"), "would both be a.png"),
        (("a.png", "--out", "a.png"), "is the input"),
        (("a.png", "--out", "m.jpg"), "--out m.jpg: a mask needs a lossless format: use .png"),
        (("a.png", "--out", "no/mask.png"), "there is no folder no: create it with mkdir -p no"),
    ):
        assert says in refused(capsys, "run", net, *words)
    assert sorted(path.name for path in Path().iterdir()) == [
        "a.png",
        "mask.png",
        "masks",
        "photos",
        "seg.safetensors",
    ]


def test_pictures_for_a_network_that_is_not_square(tmp_path, capsys):
    net = segmenter(tmp_path / "seg.safetensors", size=(4, 6), classes=["dark", "gray", "light"])
    pixels = np.full((8, 24), 240, np.uint8)
    pixels[:4] = 10
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert mb.load(net).read(tmp_path / "a.png").shape == (1, 1, 4, 6)
    assert run("run", net, tmp_path / "a.png", "--out", tmp_path / "mask.png") == 0
    assert "dark 50 %, light 50 %" in capsys.readouterr().out
    assert decode_mask(tmp_path / "mask.png").shape == (4, 6)


def test_a_network_without_masks_says_so(file, tmp_path, capsys):
    Image.fromarray(images()[0][0, 0]).save(tmp_path / "a.png")
    for out in ("mask.png", "masks"):
        said = refused(capsys, "run", file, tmp_path / "a.png", "--out", tmp_path / out)
        assert "this network gives [2] for an image, which is not a mask" in said
        assert not (tmp_path / out).exists()


@pytest.mark.parametrize("channels", [1, 3])
def test_read_gives_what_run_reads_a_picture_as(channels, tmp_path):
    about = {"preprocess": {"scale": 0.01, "mean": [100.0] * channels}}
    net = mb.load(write_network(tmp_path / "net.safetensors", channels=channels, **about))
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (9, 14, 3), np.uint8)).save(tmp_path / "a.png")
    assert run("run", tmp_path / "net.safetensors", tmp_path / "a.png", "--out", tmp_path / "y.npy") == 0
    read = net.read(tmp_path / "a.png", str(tmp_path / "a.png"))
    assert (read.shape, read.dtype) == ((2, channels, 6, 6), np.uint8)
    np.testing.assert_array_equal(net(net.preprocess(read[:1])), np.load(tmp_path / "y.npy"))
    for given, said in (((tmp_path / "b.png",), "there is no picture at"), ((), "name one or more files")):
        with pytest.raises(mb.MemboundError, match=said):
            net.read(*given)
    with pytest.raises(mb.MemboundError, match=r"this is NHWC: call x.transpose\(0, 3, 1, 2\)"):
        net(net.preprocess(read).transpose(0, 2, 3, 1))


def test_images_are_read_larger_than_the_crop_that_the_network_takes():
    from membound.run.evaluation import image_size
    from membound.run.pictures import picture_size

    for crop, side in ((227, 256), (28, 32)):
        model = SimpleNamespace(mean_image=None, preprocess={"crop": crop})
        net = SimpleNamespace(model=model, input_shape=(3, crop, crop))
        assert picture_size(net.model, net.input_shape) == image_size(net, "folder") == side


BAD_INPUTS = {
    "wrong shape": (np.zeros((2, 1, 5, 6), np.float32), "this network takes (batch, 1, 6, 6)"),
    "no batch": (np.zeros((1, 6, 6), np.float32), "this network takes (batch, 1, 6, 6)"),
    "wrong images": (np.zeros((2, 3, 6, 6), np.uint8), "the input has 3 channels, and this network takes 1"),
    "no channels": (np.zeros((2, 6, 6), np.uint8), "add the axis of the one channel, x[:, None]"),
    "float16": (np.zeros((2, 1, 6, 6), np.float16), "float16: allowed are uint8"),
    "complex": (np.zeros((2, 1, 6, 6), complex), "complex128"),
    "text": (np.array(["a"]), "allowed are uint8"),
    "nothing": (np.zeros((0, 1, 6, 6), np.float32), "it is empty"),
    "a number": (np.float32(1), "it is empty"),
    "nan": (np.full((1, 1, 6, 6), np.nan, np.float32), "not finite"),
    "infinity": (np.full((1, 1, 6, 6), np.inf, np.float32), "not finite"),
}


@pytest.mark.parametrize("kind", BAD_INPUTS)
def test_inputs_that_do_not_fit(kind, file, tmp_path, capsys):
    array, words = BAD_INPUTS[kind]
    assert words in refused(
        capsys, "run", file, saved(tmp_path / "x.npy", array), "--out", tmp_path / "y.npy"
    )
    assert not (tmp_path / "y.npy").exists()


def test_run_on_a_folder_without_pictures_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = refused(capsys, "run", write_network(tmp_path / "n.safetensors"), ".")
    assert "is a folder without pictures, such as .jpg or .png: name a .npy file or pictures" in said


def test_images_without_preprocessing_are_refused(tmp_path, capsys, data):
    path = write_network(tmp_path / "bare.safetensors", preprocess=None)
    said = refused(capsys, "run", path, saved(tmp_path / "x.npy", images()[0]))
    assert "does not say how images are prepared" in said
    said = refused(capsys, "evaluate", path, "--data", data)
    assert "does not say how images are prepared, and those of data are uint8" in said


def bad_array_files(folder):
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 1, 6, 6), np.float32))
    whole = buffer.getvalue()
    contents = {
        "empty": b"",
        "truncated": whole[:-7],
        "header": whole[:40],
        "garbage": b"no array",
        "huge": whole[:128].replace(b"(2, 1, 6, 6)", b"(2**40,6,6) "),
    }
    for name, content in contents.items():
        (folder / f"{name}.npy").write_bytes(content)
    saved(folder / "pickled.npy", np.array([{"a": 1}], object), allow_pickle=True)
    np.savez(folder / "many.npz", a=np.zeros(3))
    (folder / "many.npz").rename(folder / "many.npy")
    return [*contents, "pickled", "many", "missing"]


@pytest.mark.parametrize(
    "kind", ["empty", "truncated", "header", "garbage", "huge", "pickled", "many", "missing"]
)
def test_files_that_are_no_arrays(kind, file, tmp_path, capsys):
    assert kind in bad_array_files(tmp_path)
    said = refused(capsys, "run", file, tmp_path / f"{kind}.npy", "--out", tmp_path / "y.npy")
    assert f"{kind}.npy" in said
    assert not (tmp_path / "y.npy").exists()


def test_outputs_that_cannot_be_written(file, tmp_path, capsys):
    x = saved(tmp_path / "x.npy", images()[0])
    (tmp_path / "folder.npy").mkdir()
    os.mkfifo(tmp_path / "pipe.npy")
    before = sorted(tmp_path.iterdir())
    assert "Is a directory" in refused(capsys, "run", file, x, "--out", tmp_path / "folder.npy")
    assert "there is no folder" in refused(capsys, "run", file, x, "--out", tmp_path / "no" / "y.npy")
    assert "not a regular file" in refused(capsys, "run", file, x, "--out", tmp_path / "pipe.npy")
    assert "let its name end in .npy, or .npz for several outputs or integers" in refused(
        capsys, "run", file, x, "--out", tmp_path / "y.txt"
    )
    assert "is the input" in refused(capsys, "run", file, x, "--out", x)
    assert "name a .npy file" in refused(capsys, "run", file, tmp_path / "folder.npy")
    assert "name a .npy file" in refused(capsys, "run", file, tmp_path / "pipe.npy")
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk_leaves_the_old_output(file, tmp_path, capsys, monkeypatch):
    x = saved(tmp_path / "x.npy", images()[0])
    (tmp_path / "y.npy").write_bytes(b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left" in refused(capsys, "run", file, x, "--out", tmp_path / "y.npy")
    assert (tmp_path / "y.npy").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.safetensors", "x.npy", "y.npy"]


# evaluate


def test_evaluate_through_the_runtime(file, data, capsys):
    assert run("evaluate", file, "--data", data, "--json") == 0
    facts = loads(capsys.readouterr().out)
    assert facts == {
        "accuracy": 100.0, "top5_accuracy": None, "errors": 0, "images": 20, "nonzeros": 35, "weight_nonzeros": 35,
        "file_bytes": os.path.getsize(file), "confusion": [[10, 0], [0, 10]],
        "collapsed": None,
        "classes": [{"name": name, "images": 10, "errors": 0, "accuracy": 100.0} for name in "01"],
    }  # fmt: skip
    assert run("evaluate", file, "--data", data, "--split", "train", "--batch", "7") == 0
    said = capsys.readouterr().out
    assert "accuracy  100.00 %   (0 errors in 40 images)" in said
    assert "worst" not in said


def test_evaluate_counts_errors(file, tmp_path, capsys):
    x, y = images(20)
    y[:3] = 1 - y[:3]
    np.savez(tmp_path / "wrong.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert run("evaluate", file, "--data", tmp_path / "wrong.npz", "--json") == 0
    facts = loads(capsys.readouterr().out)
    assert (facts["errors"], facts["accuracy"]) == (3, 85.0)
    assert sum(map(sum, facts["confusion"])) == 20
    for place, (found, row) in enumerate(zip(facts["classes"], facts["confusion"], strict=True)):
        assert (found["images"], found["errors"]) == (sum(row), sum(row) - row[place])
        assert found["images"] == int((y == place).sum())
    worst = min(facts["classes"], key=lambda each: each["accuracy"])
    assert run("evaluate", file, "--data", tmp_path / "wrong.npz") == 0
    assert f"worst     {worst['name']} {worst['accuracy']:.2f} %, " in capsys.readouterr().out


def test_one_class_of_every_image_is_warned_of(tmp_path, capsys):
    file = write_network(tmp_path / "net.safetensors")
    x = np.zeros((20, 1, 6, 6), np.uint8)
    np.savez(tmp_path / "all.npz", x_train=x, y_train=np.arange(20) % 2, x_test=x, y_test=np.arange(20) % 2)
    assert run("evaluate", file, "--data", tmp_path / "all.npz") == 0
    captured = capsys.readouterr()
    assert captured.err == "warning: it predicts class 0 for every image: train longer, or in more bytes\n"
    assert "accuracy  50.00 %" in captured.out
    assert run("evaluate", file, "--data", tmp_path / "all.npz", "--json") == 0
    assert loads(capsys.readouterr().out)["collapsed"] == 0


def test_evaluate_a_folder_reads_it_at_the_size_of_the_network(tmp_path, capsys):
    image = pytest.importorskip("PIL.Image")
    file = write_network(tmp_path / "net.safetensors", channels=3, classes=["a dark", "bright"])
    x, y = images(20)
    for number, (pixels, label) in enumerate(zip(x, y, strict=True)):
        folder = tmp_path / "photos" / ("a dark", "bright")[label]
        folder.mkdir(parents=True, exist_ok=True)
        image.fromarray(np.kron(pixels[0], np.ones((2, 2), np.uint8))).save(folder / f"{number}.png")
    assert run("evaluate", file, "--data", tmp_path / "photos", "--json") == 0
    assert loads(capsys.readouterr().out)["accuracy"] == 100.0
    other = write_network(tmp_path / "other.safetensors", channels=3)
    assert "are not those of" in refused(capsys, "evaluate", other, "--data", tmp_path / "photos")


def test_data_that_does_not_fit(file, tmp_path, capsys):
    x = np.zeros((4, 1, 7, 7), np.uint8)
    np.savez(tmp_path / "large.npz", x_train=x, y_train=[0, 1, 0, 1], x_test=x, y_test=[0, 1, 0, 1])
    said = refused(capsys, "evaluate", file, "--data", tmp_path / "large.npz")
    assert "images of large are [1, 7, 7] once prepared: this network takes [1, 6, 6]" in said
    x = np.zeros((4, 1, 6, 6), np.uint8)
    np.savez(tmp_path / "three.npz", x_train=x, y_train=[0, 1, 2, 1], x_test=x, y_test=[0, 1, 0, 1])
    assert "has 3 classes" in refused(capsys, "evaluate", file, "--data", tmp_path / "three.npz")
    assert "choose test, train or all" in refused(
        capsys, "evaluate", file, "--data", "mnist", "--split", "dev"
    )
    os.mkfifo(tmp_path / "pipe.safetensors")
    assert "is a device" in refused(capsys, "evaluate", tmp_path / "pipe.safetensors", "--data", "mnist")
    assert "--mean goes with NET" in refused(capsys, "evaluate", file, "--data", "mnist", "--mean", "none")
    assert "--device goes with NET" in refused(
        capsys, "evaluate", file, "--data", "mnist", "--device", "cuda"
    )


def test_no_command_for_files_needs_torch(file, data, tmp_path):
    x = saved(tmp_path / "x.npy", images()[0])
    commands = [
        ["inspect", file], ["run", file, x], ["evaluate", file, "--data", data],
        ["export", file, "--onnx", tmp_path / "net.onnx"], ["bench", file, "--runs", "2", "--peers", "none"],
    ]  # fmt: skip
    code = (
        "import sys; sys.modules['torch'] = None; from membound.cli import main\n"
        f"for command in {[[*map(str, command)] for command in commands]}:\n"
        "    try: main(command)\n"
        "    except SystemExit as stopped: assert stopped.code == 0, command\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_evaluate_leaves_out_what_cannot_be_decoded(tmp_path, capsys):
    file = write_network(tmp_path / "rgb.safetensors", channels=3, classes=["bright", "dark"])
    for name, value in (("dark", 30), ("bright", 200)):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        for number in range(8):
            Image.fromarray(np.full((6, 6, 3), value, np.uint8)).save(folder / f"{number}.png")
    broken = tmp_path / "photos" / "dark" / "9.png"
    broken.write_bytes(b"no image")
    command = ("evaluate", file, "--data", tmp_path / "photos", "--size", "6", "--split", "train", "--json")
    assert run(*command, "--skip-corrupt") == 0
    said = capsys.readouterr()
    assert "cannot be decoded: 1" in said.err
    assert loads(said.out)["images"] >= 8


def test_checkpoints_and_missing_arrays_are_called_what_they_are(file, tmp_path, capsys):
    (tmp_path / "net.pth").write_bytes(b"PK")
    assert "is a torch checkpoint, not a model file" in refused(capsys, "inspect", tmp_path / "net.pth")
    (tmp_path / "gesture.safetensors").write_bytes(b"")
    for slip in ("gesture.c", "gestures.safetensors"):
        meant = f"there is no file {tmp_path / slip}: did you mean {tmp_path / 'gesture.safetensors'}?"
        assert meant in refused(capsys, "inspect", tmp_path / slip)
    missing = tmp_path / "none.npz"
    assert f"there is no file {missing}" in refused(capsys, "evaluate", file, "--data", missing)


def test_outputs_without_a_name_are_called_by_their_number(tmp_path, capsys):
    """As where a network has more outputs than the data has classes: something is printed all the same."""
    write_network(tmp_path / "net.safetensors", classes=["dark"])
    np.save(tmp_path / "x.npy", images(2)[0])
    assert run("run", tmp_path / "net.safetensors", tmp_path / "x.npy") == 0
    assert "output 1" in capsys.readouterr().out


def test_what_stands_for_a_network_elsewhere_is_no_model_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "make.py").write_text("def make(): ...\n")
    for name in ("pkg:net", "lenet"):
        assert "a model file is needed, not the name of a network" in refused(capsys, "bench", name)
    assert "make.py is Python source, not a model file" in refused(capsys, "run", "make.py", "x.npy")


def test_an_export_that_there_is_not_says_which_there_is(file, tmp_path, capsys):
    assert "for an app with --cpp" in refused(capsys, "export", file, "--tflite", tmp_path / "net.tflite")
    assert "No such option: --other" in refused(capsys, "export", file, "--other", "x")
    assert "bench has no --engine: it runs the file in floats" in refused(
        capsys, "bench", file, "--engine", "int8"
    )
    said = refused(capsys, "run", file, tmp_path / "x.npy", "--engine", "micro")
    assert "--int8 NEW.safetensors --data DATA" in said


def test_flash_is_the_budget_of_a_microcontroller(tmp_path, capsys):
    for option in ("--flash", "--sram=2KB"):
        said = refused(
            capsys, "fit", "lenet", "--data", "mnist", option, "8KB", "--out", tmp_path / "n.safetensors"
        )
        assert "with --target micro, --budget bounds the flash of a microcontroller and --ram its RAM" in said
