"""What strangers who ship to phones give by mistake: one line says what it is and what to do."""

import inspect
import pickle
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import membound as mb
from membound.cli import main
from membound.cli.options import Source
from membound.errors import MemboundError, ModelError, WeightsError
from membound.run.evaluation import load_like
from membound.run.files import read_array
from membound.search.bounds import Bound
from membound.search.request import split_keywords
from membound.train.weights import load_weights_
from membound.zoo import build

APP = Path(__file__).parents[1] / "examples" / "app"


def test_a_tflite_file_is_neither_a_network_nor_weights(tmp_path):
    file = tmp_path / "model.tflite"
    file.write_bytes(b"\x1c\0\0\0TFL3")
    for refused in (
        lambda: Source().load(str(file), "mnist", 0),
        lambda: load_weights_(nn.Linear(1, 1), file),
    ):
        with pytest.raises(ModelError, match="is a TensorFlow Lite model, which membound does not read"):
            refused()


@pytest.mark.parametrize("target", ["--out", "--onnx"])
def test_a_tflite_file_is_no_source_of_an_export(target, tmp_path, capsys):
    file = tmp_path / "model.tflite"
    file.write_bytes(b"\x1c\0\0\0TFL3")
    with pytest.raises(SystemExit) as stopped:
        main(["export", str(file), target, str(tmp_path / "x")])
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    assert "is a TensorFlow Lite model, which membound does not read" in said
    assert "--init" not in said
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mb.load("net", thread=1), "load has no keyword 'thread': did you mean threads?"),
        (lambda: mb.load("net", gpu=1), "load has no keyword 'gpu': there are path, threads, max_batch"),
        (lambda: mb.save(None, "net", None, value="p4"), "save has no keyword 'value': did you mean values?"),
        (lambda: mb.export_c("net", "c", image=1), "export_c has no keyword 'image': did you mean images?"),
        (lambda: mb.inspect("net", clok=1), "inspect has no keyword 'clok': did you mean clock?"),
        (lambda: mb.data.load("mnist", sized=1), "load has no keyword 'sized': did you mean size?"),
    ],
)
def test_a_misspelled_keyword_is_answered_with_the_right_one(call, says):
    with pytest.raises(MemboundError) as refused:
        call()
    assert str(refused.value).startswith(says)


def test_functions_that_know_their_keywords_are_still_pickled_and_described():
    assert pickle.loads(pickle.dumps(mb.load)) is mb.load
    assert "threads" in inspect.signature(mb.load).parameters
    with pytest.raises(TypeError, match="path"):
        mb.load()


def test_a_whole_module_is_refused_in_our_own_words(tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "whole.pt")
    with pytest.raises(WeightsError, match="such as a whole pickled module") as refused:
        load_weights_(nn.Linear(2, 2), tmp_path / "whole.pt")
    assert "\x1b" not in str(refused.value)
    assert "torch.save(model.state_dict(), ...)" in str(refused.value)


def test_a_module_in_the_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mynet.py").touch()
    for spec in ("mynet", "mynet.py"):
        with pytest.raises(WeightsError, match=r"mynet\.py is here: write mynet:NAME"):
            build(spec)


def test_other_words_for_what_there_is(tmp_path):
    with pytest.raises(MemboundError, match=r"8 bits are p8"):
        Bound(budget=1000, values="int8")
    with pytest.raises(MemboundError, match=r"'epochs': did you mean steps\?"):
        split_keywords({"epochs": 3})
    (tmp_path / "README.md").write_text("# Read me\n")
    with pytest.raises(MemboundError, match=r"neither a picture nor a \.npy file"):
        read_array(tmp_path / "README.md")


def test_no_preprocessing_is_said_by_the_export_and_by_the_example(tmp_path, capsys):
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3)).eval()
    mb.save(net, tmp_path / "net.safetensors", torch.zeros(1, 1, 8, 8))
    with pytest.raises(SystemExit):
        main(["export", str(tmp_path / "net.safetensors"), "--cpp", str(tmp_path / "cpp")])
    said = "no preprocessing in this file: net_prepare is left out; save with preprocess=..."
    assert said in capsys.readouterr().err
    if compiler := shutil.which("c++"):
        words = [
            compiler,
            "-std=c++17",
            "-fsyntax-only",
            f"-I{tmp_path / 'cpp'}",
            str(APP / "classifier.cpp"),
        ]
        found = subprocess.run(words, capture_output=True, text=True, check=False)
        assert found.returncode
        assert said in found.stderr


def test_a_picture_without_preprocessing_names_the_argument_that_says_it(tmp_path, capsys):
    Image.new("L", (8, 8)).save(tmp_path / "photo.png")
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3)).eval()
    mb.save(net, tmp_path / "net.safetensors", torch.zeros(1, 1, 8, 8), classes=["a", "b", "c"])
    with pytest.raises(SystemExit) as stopped:
        main(["run", str(tmp_path / "net.safetensors"), str(tmp_path / "photo.png")])
    assert stopped.value.code == 1
    assert "save it with preprocess=..., or prepare them yourself" in capsys.readouterr().err


WRONG = {"bytes": b"\x89PNG" * 5000, "list": list(range(5000)), "array": np.zeros(5000)}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_is_no_path_is_told_without_its_content(wrong, tmp_path):
    net = mb.Net(mb.save(nn.Linear(4, 3), tmp_path / "net.safetensors", torch.zeros(1, 4)))
    for call in (
        lambda: mb.load(wrong),
        lambda: mb.save(nn.Linear(4, 3), wrong, torch.zeros(1, 4)),
        lambda: mb.inspect(wrong),
        lambda: mb.export_c(wrong, tmp_path / "c"),
        lambda: mb.export_cpp(wrong, tmp_path / "c"),
        lambda: mb.export_cpp(net, wrong),
        lambda: mb.export_cpp(net, tmp_path / "c", prefix=wrong),
        lambda: mb.export_cpp_file(net, wrong),
        lambda: mb.data.load(wrong),
        lambda: mb.zoo.load_caffemodel(mb.zoo.lenet(), wrong),
        lambda: mb.fit(nn.Linear(4, 3), wrong, "1KB"),
        lambda: mb.fit(nn.Linear(4, 3), (torch.zeros(8, 4), torch.zeros(8).long()), "1KB", run_dir=wrong),
    ):
        with pytest.raises(MemboundError) as raised:
            call()
        said = str(raised.value)
        assert len(said) < 200, said[:300]
        assert "\n" not in said
    if isinstance(wrong, bytes):
        with pytest.raises(ModelError, match=r"^path is bytes \(20,000 of them\): a path is needed"):
            mb.load(wrong)


def test_an_export_over_another_network_says_what_changed(tmp_path, capsys):
    def export(inputs: int, names: list[str] | None) -> str:
        net = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 3)).eval()
        mb.save(net, tmp_path / "net.safetensors", torch.zeros(1, inputs), classes=names)
        with pytest.raises(SystemExit):
            main(["export", str(tmp_path / "net.safetensors"), "--cpp", str(tmp_path / "cpp")])
        return "".join(line for line in capsys.readouterr().out.splitlines() if line.startswith("changed"))

    assert export(4, ["owl", "née", "fox"]) == ""
    assert export(4, ["owl", "née", "fox"]) == ""
    must = ": an app that relies on it must change, too"
    assert export(5, ["owl", "née", "fox"]) == f"changed   was inputs 4; is inputs 5{must}"
    assert export(5, ["owl", "cat", "fox"]) == f"changed   was class 1 'née'; is class 1 'cat'{must}"
    assert export(5, None) == f"changed   was 3 classes; is no names of classes{must}"


def test_tflite_is_no_export_but_cpp_is(capsys):
    with pytest.raises(SystemExit):
        main(["export", "net.safetensors", "--tflite", "net.tflite"])
    assert "C++ for an app with --cpp" in capsys.readouterr().err


@pytest.mark.parametrize("threads", ["two", "-1", "257", "1x"])
def test_the_example_refuses_a_bad_count_of_threads(threads, classify):
    found = subprocess.run([classify, "none.ppm", threads], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "THREADS is a whole number from 0" in found.stderr


@pytest.fixture(scope="module")
def classify(tmp_path_factory):
    """The program with a classifier that is never reached."""
    if (compiler := shutil.which("c++")) is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("classify")
    names = {
        "uint32_t classifier_input_bytes(void)", "uint32_t classifier_outputs(void)",
        "uint32_t classifier_mask_side(void)", "int classifier_prepare(const classifier_picture *, uint8_t *)",
        "int classifier_open_update(const char *, int, char *, size_t)",
        "int32_t classifier_run(const uint8_t *, float *)",
        "int classifier_mask(const classifier_picture *, uint8_t *)", "const char *classifier_class(int32_t)",
    }  # fmt: skip
    bodies = "\n".join(f"{name} {{ return 0; }}" for name in sorted(names))
    (folder / "never.cpp").write_text(f'#include "classifier.h"\n{bodies}\n')
    words = [compiler, "-std=c++17", f"-I{APP}", str(APP / "main.cpp"), str(folder / "never.cpp")]
    subprocess.run([*words, "-o", str(folder / "classify")], check=True)
    return folder / "classify"


@pytest.mark.parametrize(
    ("option", "value"),
    [("batch", "4"), ("isa", "avx2"), ("threads", "2"), ("members", "2"), ("prefer", "speed")],
)
def test_a_microcontroller_is_not_offered_what_it_refuses(option, value, tmp_path, capsys):
    """Not first another option that would be refused with it."""
    words = ["fit", "lenet", "--data", "mnist", "--target", "micro", "--budget", "8KB", f"--{option}", value]
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--out", str(tmp_path / "x.safetensors")])
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("membound: error: the target micro ")
    assert said.endswith(f": leave --{option} out\n")


def test_an_npz_is_read_in_the_layout_that_a_network_takes(tmp_path):
    x, y = np.zeros((6, 10, 9, 1), np.float32), np.arange(6) % 2
    file = str(tmp_path / "words.npz")
    np.savez(file, x_train=x, y_train=y, x_test=x, y_test=y)
    assert load_like((1, 10, 9), file).shape == (1, 10, 9)  # as it is read without a word
    assert load_like((10, 9, 1), file).shape == (10, 9, 1)
    assert load_like((3, 3, 3), file).shape == (1, 10, 9)  # which is then refused by its shape
    assert load_like((10, 9, 1), file, layout="NHWC").shape == (1, 10, 9)


def test_samples_of_sound_are_told_how_to_be_saved(tmp_path):
    x, y = np.zeros((6, 10), np.int16), np.arange(6) % 2
    np.savez(tmp_path / "sound.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.raises(
        MemboundError, match=r"x_train is int16: .*such as samples of sound, as x.astype\('float32'\)"
    ):
        mb.data.load(str(tmp_path / "sound.npz"))
