"""What people who ship to phones give by mistake: one line says what it is and what to do."""

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
from membound.errors import DataError, MemboundError, ModelError, WeightsError
from membound.run.evaluation import load_like
from membound.run.files import read_array, read_arrays
from membound.search.bounds import Bound
from membound.search.request import split_keywords
from membound.train.weights import load_weights_
from membound.zoo import build

APP = Path(__file__).parents[1] / "examples" / "app"


def test_a_tflite_file_is_neither_a_network_nor_weights(tmp_path):
    file = tmp_path / "model.tflite"
    file.write_bytes(b"\x1c\0\0\0TFL3")
    with pytest.raises(ModelError, match="is a TensorFlow Lite model, which membound does not read"):
        load_weights_(nn.Linear(1, 1), file)


@pytest.mark.parametrize("command", ["fit", "train"])
def test_a_file_that_is_no_network_is_refused_before_data_are_read(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("membound.data.load", None)
    (tmp_path / "model.tflite").write_bytes(b"\x1c\0\0\0TFL3")
    bound = ["--budget", "4KB"] if command == "fit" else []
    for name, says in (
        ("model.tflite", "is a TensorFlow Lite model, which membound does not read"),
        ("absent.tflite", "there is no such file; membound does not read TensorFlow Lite models"),
        ("absent.pt", "absent.pt: there is no such file"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(
                [
                    command,
                    str(tmp_path / name),
                    "--data",
                    "mnist",
                    *bound,
                    "--out",
                    str(tmp_path / "x.safetensors"),
                ]
            )
        assert stopped.value.code == 1
        said = capsys.readouterr().err
        assert says in said
        assert said.count("\n") == 1, "nothing is said before"


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
        (
            lambda: mb.load("net", gpu=1),
            "load has no keyword 'gpu': there are path, threads, max_batch, concurrency,",
        ),
        (
            lambda: mb.fit(None, None, flash="4 KB"),
            "fit has no keyword 'flash': did you mean budget? With target='micro', budget bounds the flash of a "
            "microcontroller and ram its RAM",
        ),
        (lambda: mb.fit(None, None, gpu=1), "fit has no keyword 'gpu': did you mean device?"),
        (lambda: mb.fit(None, None, leyers=1), "fit has no keyword 'leyers': did you mean layers?"),
        (
            lambda: mb.fit(None, None, xyz=1),
            "fit has no keyword 'xyz': there are budget, ram, nonzeros, within, stages and",
        ),
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
    assert len(str(refused.value)) < 140  # not every keyword that there is


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
    with pytest.raises(WeightsError, match=r"no network called 'mynet\.net': did you mean mynet:net\?"):
        build("mynet.net")


def test_other_words_for_what_there_is(tmp_path):
    with pytest.raises(MemboundError, match=r"8 bits are p8"):
        Bound(budget=1000, values="int8")
    with pytest.raises(MemboundError, match=r"'epochs': did you mean steps\?"):
        split_keywords({"epochs": 3})
    (tmp_path / "README.md").write_text("# Read me\n")
    with pytest.raises(
        MemboundError, match=r"README\.md is neither a picture nor a \.npy file of numbers: give pictures \("
    ):
        read_array(tmp_path / "README.md")


def test_an_input_that_is_not_there_is_all_that_is_said(tmp_path):
    np.save(tmp_path / "pixels.npy", np.zeros(1))
    for name, meant in (("model.tflite", ""), ("pixel.npy", f": did you mean {tmp_path / 'pixels.npy'}?")):
        with pytest.raises(DataError) as refused:
            read_array(tmp_path / name)
        assert str(refused.value) == f"there is no file {tmp_path / name}{meant}"
    with pytest.raises(DataError, match=r"there is no file \S+none\.npz$"):
        read_arrays(tmp_path / "none.npz")


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
    old = "changed   the old export"
    assert export(5, ["owl", "née", "fox"]) == (
        f"{old} had inputs 4, this one has inputs 5; update any code that relies on the sizes in net.h"
    )
    assert export(5, ["owl", "cat", "fox"]) == (
        f"{old} named class 1 'née', this one names it 'cat'; update any code that uses net_class or expects that class"
    )
    assert export(5, None) == (
        f"{old} named 3 classes, this one names none; update any code that uses net_class"
    )
    assert export(5, ["owl", "cat", "fox"]) == (
        f"{old} named no classes, this one names 3; update any code that uses net_class"
    )


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
        "uint32_t classifier_mask_width(void)", "uint32_t classifier_mask_height(void)",
        "int classifier_prepare(const classifier_picture *, uint8_t *)",
        "int classifier_open_update(const char *, int, char *, size_t)",
        "int32_t classifier_run(const uint8_t *, float *)",
        "int classifier_mask(const classifier_picture *, uint8_t *)", "const char *classifier_class(int32_t)",
        "const char *classifier_kernels(void)",
        "const char *classifier_engine(void)",
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


RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 256, (30, 1, 8, 8)).astype(np.uint8)
LABELS = np.arange(30) % 3


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))


def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 3))


def quick_fit(data, model=linear, **more):
    return mb.fit(model, data, "1 KB", steps=2, dense=False, device="cpu", progress=False, **more)


def items(**names):
    """Items as those of the Hugging Face Hub: dicts."""
    return [
        {name: {"image": GRAY[i], "label": int(LABELS[i]), "id": i}[kind] for name, kind in names.items()}
        for i in range(len(GRAY))
    ]


@pytest.mark.parametrize("names", [("image", "label"), ("img", "labels"), ("pixel_values", "labels")])
def test_items_that_are_dicts_are_pairs(names):
    data = items(**{names[0]: "image", names[1]: "label"})
    loader = torch.utils.data.DataLoader(data, batch_size=10)
    pictures = [
        {names[0]: Image.fromarray(x[0]), names[1]: int(y)} for x, y in zip(GRAY, LABELS, strict=True)
    ]
    for given in (data, loader, pictures):
        fitted = quick_fit(given, test_data=(GRAY, LABELS))
        assert fitted.facts["input_shape"] == [1, 8, 8]
        assert fitted.files.preprocess.takes == "uint8"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: quick_fit(items(image="image", id="id", label="label")), "(item['image'], item['label']) for item in"),
        (lambda: quick_fit(items(img="image", fine_label="label")), "[(item['img'], item['fine_label']) for item in"),
        (lambda: quick_fit((GRAY[:, 0], LABELS), convolution), "gray images are [n, 1, 8, 8]: give x[:, None]"),
        (lambda: quick_fit((GRAY, LABELS.astype(float))), "for classes, give integers, y.astype('int64')"),
        (lambda: quick_fit((GRAY, LABELS.astype(float))), "for regression, a network with one output for each"),
        (lambda: quick_fit((GRAY[:1], LABELS[:1])), "there is 1 image, and some are held out for validation"),
        (lambda: quick_fit((GRAY, LABELS[:9])), "x has 30 examples and y 9: give one target for each example"),
        (lambda: quick_fit((GRAY, LABELS), preprocess=3), "preprocess=3: give mb.data.Preprocess("),
        (lambda: quick_fit((GRAY, LABELS), workers=-1), "workers=-1: give mb.ray_cluster(...)"),
        (lambda: quick_fit((GRAY, LABELS), watch=3), "watch=3: give a membound.search.place.Watch"),
        (lambda: mb.fit(linear, (GRAY, LABELS), 100, steps=2), "a budget of 100 bytes cannot be met"),
        (lambda: mb.fit(linear, (GRAY, LABELS), latency=-5), "as in '5 ms', or a number of milliseconds"),
    ],
)  # fmt: skip
def test_a_fit_says_what_to_give_instead(call, says):
    with pytest.raises(MemboundError) as refused:
        call()
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_two_images_are_enough_to_hold_one_out():
    assert quick_fit((GRAY[:2], LABELS[:2])).images == 1


class Warped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(64, 3)

    def forward(self, x):
        turn = torch.eye(2, 3)[None].expand(x.shape[0], 2, 3)
        grid = nn.functional.affine_grid(turn, x.shape, align_corners=False)
        return self.last(nn.functional.grid_sample(x, grid, align_corners=False).flatten(1))


def test_sampling_at_computed_places_is_named_with_its_layer(tmp_path):
    with pytest.raises(
        ModelError, match=r"warp \(Warped\): the operator affine_grid_generator .*crop or turn images"
    ):
        mb.save(Outer(), tmp_path / "net.safetensors", torch.zeros(1, 1, 8, 8))


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.warp = Warped()

    def forward(self, x):
        return self.warp(x)


def test_a_fitted_module_that_is_saved_by_itself_names_the_save_of_the_fit(tmp_path):
    model = lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 3))  # noqa: E731
    fitted = quick_fit((GRAY, LABELS), model)
    with pytest.warns(UserWarning, match=r"write it with fitted\.save\(path\)"):
        mb.save(fitted.model, tmp_path / "net.safetensors", torch.zeros(1, 1, 8, 8))
    fitted.save(tmp_path / "net.safetensors")
    mb.save(model(), tmp_path / "own.safetensors", torch.zeros(1, 1, 8, 8))  # without a warning


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (
            (8, 8),
            "the input has the shape [8, 8], and this network takes [n, 1, 8, 8]: add two axes in front, x[None, None]",
        ),
        ((5, 8, 8), "takes [n, 1, 8, 8]: add the axis of the one channel, x[:, None]"),
        ((1, 8, 8), "takes [n, 1, 8, 8]: add an axis in front, x[None]"),
        (
            (5, 1, 9, 9),
            "this network takes [n, 1, 8, 8]: give that; for a picture, use net.preprocess(net.read(frame))",
        ),
        ((5, 3, 8, 8), "the input has 3 channels, and this network takes 1: give [n, 1, 8, 8]"),
        ((5, 8, 8, 1), "call images.transpose(0, 3, 1, 2)"),
        (
            (5, 64),
            "this network takes [n, 1, 8, 8]: give that; for a picture, use net.preprocess(net.read(frame))",
        ),
    ],
)
def test_images_of_another_shape_are_not_prepared(shape, says, tmp_path):
    how = mb.data.Preprocess(scale=1 / 255, mean=[30.0])
    net = mb.Net(mb.save(linear(), tmp_path / "n.safetensors", torch.zeros(1, 1, 8, 8), preprocess=how))
    with pytest.raises(MemboundError) as refused:
        net.preprocess(np.zeros(shape, np.uint8))
    assert says in str(refused.value)
    if len(shape) == 3 and shape[0] > 1:
        with pytest.raises(MemboundError, match=r"add the axis of the one channel, as x\[:, None\] does"):
            net(np.zeros(shape, np.float32))
    assert net.preprocess(np.zeros((0, 1, 8, 8), np.uint8)).shape == (0, 1, 8, 8)
    assert net.preprocess == how


def test_outputs_without_names_of_classes_are_values_in_their_order(tmp_path, capsys):
    Image.new("L", (8, 8)).save(tmp_path / "photo.png")
    how = mb.data.Preprocess(scale=1 / 255)
    mb.save(linear(), tmp_path / "net.safetensors", torch.zeros(1, 1, 8, 8), preprocess=how)
    with pytest.raises(SystemExit) as stopped:
        main(["run", str(tmp_path / "net.safetensors"), str(tmp_path / "photo.png")])
    assert stopped.value.code == 0
    said = capsys.readouterr()
    net = mb.load(tmp_path / "net.safetensors")
    values = net(net.preprocess(net.read(tmp_path / "photo.png")))[0]
    head, line = said.out.splitlines()
    assert "values of outputs 0 to 2 (of a classifier: scores, and the largest is the class)" in head
    assert line == f"{tmp_path / 'photo.png'}  {', '.join(f'{value:.4g}' for value in values)}"


def test_nothing_is_downloaded_for_what_cannot_be_evaluated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("membound.data.fetch.search_path", list)
    monkeypatch.setattr("membound.data.fetch.download", lambda *given: pytest.fail("downloaded"))
    how = mb.data.Preprocess(scale=1 / 255)
    mb.save(linear(), tmp_path / "net.safetensors", torch.zeros(1, 1, 8, 8), preprocess=how)
    for words, says in (
        ("evaluate net.safetensors --data cifar10", "[1, 8, 8]"),
        ("evaluate net.safetensors --data mnist", "[1, 8, 8]"),
        ("evaluate lenet --init none.pt --data cifar10", "there is no file of weights at none.pt"),
        ("evaluate nosuch --init none.pt --data cifar10", "no network called 'nosuch'"),
        ("fit nosuch --data cifar10 --budget 4KB --out n.safetensors", "no network called 'nosuch'"),
        ("fit lenet --data cifar10 --init none.pt --budget 4KB --out n.safetensors", "no file of weights"),
        (
            "fit lenet --data cifar10 --budget 4KB --out n.safetensors",
            "layer 'conv1' takes 1 channel and gets 3",
        ),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(words.split())
        assert stopped.value.code == 1
        assert says in capsys.readouterr().err, words


def test_every_name_of_a_network_is_listed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit):
        main(["fit", "--help"])
    assert "cifar10_quick (or quick)" in capsys.readouterr().out
