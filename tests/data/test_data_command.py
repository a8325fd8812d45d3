"""membound data NAME."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from membound.cli.data import data_command
from membound.errors import DataError

app = typer.Typer()
app.command()(data_command)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_json_describes_mnist():
    result = run("mnist", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["images"] == {"train": 60000, "test": 10000}
    assert list(facts) == [
        *("name", "images", "shape", "dtype", "classes", "labels", "mean", "std", "mean_of", "notes")
    ]


def test_a_table_for_people():
    result = run("mnist")
    assert "60,000 training and 10,000 test images, 1 x 28 x 28 uint8, 10 classes" in result.stdout
    assert "mean per channel 33.32; standard deviation 78.57" in result.stdout
    assert "6,742" in result.stdout
    assert "training images" in result.stdout


def test_options_reach_the_loader(tmp_path):
    image_module = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for number in range(10):
        folder = tmp_path / ("[a]" if number < 5 else "b")
        folder.mkdir(exist_ok=True)
        image_module.new("RGB", (9, 9)).save(folder / f"{number}.png")
    (tmp_path / "b" / "x.png").write_text("corrupt")
    refused = run(tmp_path).exception
    assert isinstance(refused, DataError)
    assert str(refused).endswith("repair or remove it, or leave out all such files with skip_corrupt=True")
    result = run(tmp_path, "--size", 6, "--test-fraction", 0.4, "--seed", 3, "--skip-corrupt")
    assert result.exit_code == 0, result.output
    assert "6 training and 4 test images, 3 x 6 x 6" in result.stdout.replace("\n", " ")
    assert "[a]" in result.stdout
    assert "note: images left out because they cannot be decoded: 1" in result.stdout


def test_labels_that_count_from_1_and_windows_of_a_sensor_are_named(tmp_path):
    x, y = np.zeros((8, 4, 16, 1), np.float32), np.arange(8) % 2 + 1
    np.savez(tmp_path / "w.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    shown = run(tmp_path / "w.npz", "--layout", "NCHW").stdout
    assert "w: 8 training and 8 test examples, 4 x 16 x 1" in shown
    assert "note: labels begin at 1 and go to 2, so class 0 has no examples: subtract 1" in shown
    assert "┃" not in shown  # tables as all others are


def test_layout_and_errors_pass_through(tmp_path):
    x = np.zeros((4, 3, 5, 3), np.uint8)
    np.savez(tmp_path / "s.npz", x_train=x, y_train=np.arange(4), x_test=x, y_test=np.arange(4))
    assert isinstance(run(tmp_path / "s.npz").exception, DataError)
    facts = json.loads(run(tmp_path / "s.npz", "--layout", "NHWC", "--json").stdout)
    assert facts["shape"] == [3, 3, 5]


X = np.random.default_rng(0).normal(3, 2, (40, 2, 6, 5)).astype(np.float32)
CLASSES = np.arange(40) % 4
LAYOUTS = {
    "NF": (X[:, :, 0, 0], [2], (0,)),
    "NCL": (X[:, :, 0], [2, 5], (0, 2)),
    "NHW": (X[:, 0], [1, 6, 5], (0, 1, 2)),
    "NCHW": (X, [2, 6, 5], (0, 2, 3)),
    "NHWC": (np.moveaxis(X, 1, -1), [2, 6, 5], (0, 1, 2)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_described(layout, tmp_path):
    x, shape, axes = LAYOUTS[layout]
    np.savez(tmp_path / "s.npz", x_train=x, y_train=CLASSES, x_test=x[:8], y_test=CLASSES[:8])
    facts = json.loads(run(tmp_path / "s.npz", "--layout", layout, "--json").stdout)
    assert facts["shape"] == shape
    assert facts["mean"] == pytest.approx(np.atleast_1d(x.mean(axis=axes)), abs=1e-3)
    assert facts["std"] == pytest.approx(np.atleast_1d(x.std(axis=axes)), abs=1e-3)
    told = run(tmp_path / "s.npz", "--layout", layout)
    assert told.exit_code == 0, told.output
    name = "images" if len(shape) == 3 else "examples"
    assert f"40 training and 8 test {name}, {' x '.join(map(str, shape))} float32, 4 classes" in told.stdout


@pytest.mark.parametrize(
    ("arrays", "labels", "said"),
    [
        ({"x": X, "y": np.linspace(0, 1, 40).astype(np.float32)}, None, ", 1 output\n"),
        ({"x": X, "y": np.arange(1200).reshape(40, 6, 5) % 2}, [600, 600], "2 classes"),
        ({"x.a": X[:, 0, 0], "x.b": X[:, 1, 0], "y": CLASSES}, [10, 10, 10, 10], "4 classes"),
    ],
)
def test_numbers_masks_and_several_inputs_are_described(arrays, labels, said, tmp_path):
    halves = {
        f"{name[0]}_{half}{name[1:]}": array for half in ("train", "test") for name, array in arrays.items()
    }
    np.savez(tmp_path / "s.npz", **halves)
    layout = ["--layout", "NCHW"] if "x" in arrays else []
    result = run(tmp_path / "s.npz", *layout, "--json")
    assert result.exit_code == 0, result.exception
    facts = json.loads(result.stdout)
    assert (facts["labels"] or {"train": None})["train"] == labels
    told = run(tmp_path / "s.npz", *layout)
    assert told.exit_code == 0, told.exception
    assert said in told.stdout
