"""membound run --engine micro: the device's integers, and the scores that they stand for."""

import json
from dataclasses import replace

import numpy as np
import pytest
from deployed import refused, run
from micro_networks import NETWORKS, Builder, micro, prepared, some_images

import membound as mb
from membound.cli.run import _print_integers
from membound.run.calibration import with_activations

NOTE = "may differ a little from these: --engine micro gives them\n"


def written(net, path):
    path.write_bytes(b"".join(with_activations(net.model, net._remake.keywords["activations"])))
    return path


@pytest.fixture
def given(tmp_path, monkeypatch):
    """A network, its file, and pixels in x.npy."""
    monkeypatch.chdir(tmp_path)
    net = micro(NETWORKS["lenet"]())
    images = some_images(net.model, 12)
    np.save("x.npy", images)
    return net, written(net, tmp_path / "net.safetensors"), images


def test_pixels_give_the_bits_of_the_device(given, capsys):
    net, file, images = given
    q = net.integers(images)
    assert run("run", file, "x.npy", "--engine", "micro") == 0
    said = capsys.readouterr()
    assert said.err == ""
    values = ", ".join(f"{value:.4g}" for value in net(images)[0])
    assert f"   0     {values}  ({' '.join(map(str, q[0]))})\n" in said.out
    assert said.out.splitlines()[0].endswith(
        "output 0, output 1, output 2, output 3, output 4, output 5, output 6, "
        "output 7, output 8, output 9  (integers)"
    )  # as the C: no classes
    assert "\n      and 2 more\n" in said.out
    assert "as a microcontroller computes it, bit for bit: value = " in said.out
    assert np.array_equal(np.load("x.out.npy"), mb.load(file, engine="micro")(images))
    assert run("run", file, "x.npy", "--engine", "micro", "--out", "both.npz", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["integers"] == q.tolist()
    assert np.array_equal(np.float32(facts["values"]), net(images))
    with np.load("both.npz") as both:
        assert both["integers"].dtype == np.int8
        assert np.array_equal(both["integers"], q)
        scores = facts["scale"] * (q.astype(np.float64) - facts["zero"])
        assert np.array_equal(both["output"], scores.astype(np.float32))


@pytest.mark.parametrize("engine", ["micro", "float"])
def test_data_of_another_task_is_told_in_numbers(given, engine, capsys):
    _, file, images = given
    for numbers, said in (
        ((), "r has 1 number to predict per example, but the network has 10 outputs: give data of"),
        ((3,), "r has 3 numbers to predict per example, but the network has 10 outputs: give data of"),
    ):
        y = np.random.default_rng(0).normal(size=(len(images), *numbers)).astype(np.float32)
        np.savez("r.npz", x_train=images, y_train=y, x_test=images, y_test=y)
        assert said in refused(capsys, "evaluate", file, "--data", "r.npz", "--engine", engine)


def test_values_are_those_of_the_floats_to_within_rounding(given, capsys):
    """What is printed of a network without classes, in integers and in floats."""
    net, file, images = given
    told = {}
    for engine in ("micro", "float"):
        assert run("run", file, "x.npy", "--engine", engine) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if line[:6].strip().isdigit()]
        assert len(lines) == 10
        told[engine] = [
            [float(word) for word in line[6:].strip().split("  ")[0].split(", ")] for line in lines
        ]
    micro_values, floats = np.array(told["micro"]), np.array(told["float"])
    assert np.allclose(floats, mb.load(file)(mb.load(file).preprocess(images[:10])), rtol=1e-3, atol=1e-6)
    step = net.plan.net.quantizations[net.plan.net.output].scale
    assert np.abs(micro_values - floats).mean() < 2 * step  # a few numbers saturate
    assert np.ptp(floats) > 20 * step
    y = mb.load(file)(mb.load(file).preprocess(images))
    np.savez("numbers.npz", x_train=images, y_train=y, x_test=images, y_test=y)
    assert run("evaluate", file, "--data", "numbers.npz", "--engine", "micro") == 0
    assert "\nengine    micro\n" in capsys.readouterr().out


def test_a_network_that_collapses_in_integers_is_told_beside_floats(tmp_path, monkeypatch, capsys):
    """Steps of int8 that are far too coarse, as of a calibration on inputs of another range."""
    monkeypatch.chdir(tmp_path)
    net = micro(NETWORKS["lenet"]())
    images = np.random.default_rng(1).integers(0, 256, (120, 1, 28, 28), np.uint8)
    kept = net._remake.keywords["activations"]
    y = mb.load(written(net, tmp_path / "good.safetensors"))(net.preprocess(images)).argmax(1)
    np.savez("set.npz", x_train=images, y_train=y, x_test=images, y_test=y)
    evaluate = ("--data", "set.npz", "--engine", "micro")
    assert run("evaluate", "good.safetensors", *evaluate) == 0
    assert capsys.readouterr().err == ""
    coarse = {value: (scale * (40 if value else 1), zero) for value, (scale, zero) in kept.items()}
    (tmp_path / "bad.safetensors").write_bytes(b"".join(with_activations(net.model, coarse)))
    assert run("evaluate", "bad.safetensors", *evaluate, "--json") == 0
    said = capsys.readouterr()
    facts = json.loads(said.out)
    assert facts["lost_in_integers"] == {
        "float_accuracy": 100,
        "accuracy": pytest.approx(facts["accuracy"]),
        "images": 120,
    }
    assert facts["accuracy"] < 60
    assert "% of 120 images, in floats 100.00 %: calibrate on more inputs" in said.err


def test_named_classes_keep_scores_and_integers_apart(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    net = micro(replace(NETWORKS["lenet"](), classes=[f"number {each}" for each in range(10)]))
    images = some_images(net.model, 2)
    np.save("x.npy", images)
    assert run("run", written(net, tmp_path / "net.safetensors"), "x.npy", "--engine", "micro") == 0
    said = capsys.readouterr().out
    scores = net(images)[0].astype(float)
    likely = 100 * np.exp(scores.max()) / np.exp(scores).sum()
    assert f"   0     number {scores.argmax()} {likely:.1f} %, " in said
    assert f"   0  integers {' '.join(map(str, net.integers(images)[0]))}\n" in said
    assert "bit for bit: score = " in said


def test_floats_that_are_prepared_are_rounded_as_the_device_does(given, capsys):
    net, file, images = given
    np.save("prepared.npy", np.asarray(prepared(net.model, images), np.float32))
    assert run("run", file, "prepared.npy", "--engine", "micro", "--json") == 0
    wanted = net.integers(np.load("prepared.npy"))
    assert json.loads(capsys.readouterr().out)["integers"] == wanted.tolist()


def test_raw_input_of_the_exported_program_is_told_from_an_array(given, capsys):
    _, file, images = given
    images.tofile("images.bin")
    said = refused(capsys, "run", file, "images.bin", "--engine", "micro")
    assert "images.bin: a .bin file is raw input for the main of exported C" in said
    assert "np.save" in said


def test_sequences_without_a_width_are_told_how_to_get_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    build = Builder((20, 49, 1), seed=0)
    build.flat_linear(build.conv(0, 4), 2)
    written(micro(build.store()), tmp_path / "net.safetensors")
    x, y = np.random.default_rng(0).normal(size=(40, 20, 49)).astype(np.float32), np.arange(40) % 2
    np.savez("words.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    evaluate = ("evaluate", "net.safetensors", "--engine", "micro", "--data")
    said = refused(capsys, *evaluate, "words.npz")
    assert "examples of words are [1, 20, 49] once prepared: this network takes [20, 49, 1]" in said
    assert said.endswith("save x[..., None] in its place\n")
    np.savez("wide.npz", x_train=x[..., None], y_train=y, x_test=x[..., None], y_test=y)
    assert run(*evaluate, "wide.npz") == 0


def test_without_the_option_it_is_said_that_the_device_may_differ(given, capsys):
    net, file, _ = given
    assert run("run", file, "x.npy") == 0
    assert capsys.readouterr().err.endswith(NOTE)
    plain = file.with_name("plain.safetensors")
    plain.write_bytes(b"".join(with_activations(net.model, {})))
    assert run("run", plain, "x.npy") == 0
    assert capsys.readouterr().err == ""
    said = refused(capsys, "run", plain, "x.npy", "--engine", "micro")
    assert f"membound export {plain} --int8 NEW.safetensors --data DATA" in said


def test_what_a_microcontroller_has_not_is_refused(given, capsys):
    _, file, images = given
    assert "micro has none: leave it out" in refused(
        capsys, "run", file, "x.npy", "--engine", "micro", "--threads", 2
    )
    np.savez("x.npz", image=images)
    assert "takes one array" in refused(capsys, "run", file, "x.npz", "--engine", "micro")
    np.save("wrong.npy", images[:, :, :5])
    assert "the input has the shape" in refused(capsys, "run", file, "wrong.npy", "--engine", "micro")


@pytest.fixture
def features(tmp_path, monkeypatch):
    """The file of a network that takes floats, 3 channels along the height."""
    monkeypatch.chdir(tmp_path)
    build = Builder((3, 8, 1), 0)
    value = build.conv(0, 2, kernel=1)
    said = {"mean": [1.0] * 3, "std": [2.0] * 3, "takes": "float32"}
    assert value is not None
    return written(micro(build.store("p8", preprocess=said)), tmp_path / "features.safetensors")


def test_bytes_for_a_network_of_floats_are_said_to_be_the_devices(features, capsys):
    np.save("x.npy", np.zeros((2, 3, 8, 1), np.uint8))
    assert run("run", features, "x.npy", "--engine", "micro") == 0
    assert "note: uint8 is read as the bytes that the device is fed with" in capsys.readouterr().err


def test_a_warning_is_a_note_in_a_line(features, capsys):
    np.save("x.npy", np.full((2, 3, 8, 1), 1e6, np.float32))
    assert run("run", features, "x.npy", "--engine", "micro") == 0
    said = capsys.readouterr().err
    assert said.startswith("note: 100% of the input is beyond")
    assert said.endswith("give numbers on the scale of the training data\n")
    assert len(said.splitlines()) == 1
    assert run("inspect", features) == 0
    assert "on a computer, not on the microcontroller" in capsys.readouterr().out


def test_wrong_numbers_are_said_as_numbers_not_as_images(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    build = Builder((3, 4, 1), seed=0)
    build.conv(0, 2, kernel=1)
    said = {"mean": [1.0, -2.0, 30.0], "std": [0.5, 4.0, 25.0], "takes": "float32"}
    net = micro(build.store("p8", preprocess=said))
    files = {"micro": written(net, tmp_path / "net.safetensors"), "float": tmp_path / "plain.safetensors"}
    files["float"].write_bytes(b"".join(with_activations(net.model, {})))
    numbers = np.random.default_rng(0).normal(size=(5, 3, 4, 1)).astype(np.float32)
    for wrong, words in (
        (numbers[:, :2], "the input has the shape (5, 2, 4, 1): this network takes (batch, 3, 4, 1)"),
        (numbers[..., 0], "the input has the shape (5, 3, 4): this network takes (batch, 3, 4, 1)"),
        (
            numbers.astype(np.float16),
            "the input has the type float16: save the numbers, as in training, as x.astype('float32')",
        ),
        ((100 * numbers).astype(np.int16), "the input has the type int16: save the numbers, as in training"),
    ):
        np.save("x.npy", wrong)
        for engine, file in files.items():
            told = refused(capsys, "run", file, "x.npy", "--engine", engine)
            assert words in told
            assert ("(uint8 is read as the bytes that net_input makes)" in told) is (
                engine == "micro" and "type" in words
            )


def test_numbers_beyond_the_range_are_told_it_in_their_own_unit(tmp_path):
    build = Builder((2, 4, 1), seed=0)
    build.conv(0, 2, kernel=1)
    net = micro(build.store("p8", preprocess={"mean": [10.0, 0.0], "std": [2.0, 5.0], "takes": "float32"}))
    rounding = net.plan.net.quantizations[0]
    ends = np.array([rounding.low - rounding.scale / 2, rounding.high + rounding.scale / 2])
    first, second = 2 * ends + 10, 5 * ends
    far = np.full((1, 2, 4, 1), 1e6, np.float32)
    for call in (net, net.integers):
        with pytest.warns(UserWarning, match="of the input is beyond") as told:
            call(far)
        assert [each.filename for each in told] == [__file__]
        assert (
            f"(before preparation {first[0]:.3g} to {first[1]:.3g} for channel 0, "
            f"{second[0]:.3g} to {second[1]:.3g} for channel 1)"
        ) in str(told[0].message)


def test_integers_that_are_not_shown_are_counted_as_classes_are(capsys):
    _print_integers(np.zeros((12, 2), np.int8), None)
    assert capsys.readouterr().out.splitlines()[-2:] == ["   9  integers 0 0", "      and 2 more"]
