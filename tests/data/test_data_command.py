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


def test_layout_and_errors_pass_through(tmp_path):
    x = np.zeros((4, 3, 5, 3), np.uint8)
    np.savez(tmp_path / "s.npz", x_train=x, y_train=np.arange(4), x_test=x, y_test=np.arange(4))
    assert isinstance(run(tmp_path / "s.npz").exception, DataError)
    facts = json.loads(run(tmp_path / "s.npz", "--layout", "NHWC", "--json").stdout)
    assert facts["shape"] == [3, 3, 5]
