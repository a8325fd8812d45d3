"""What a fit for a microcontroller says of bounds that cannot be met, of its data, and of what would help."""

import re

import numpy as np
import pytest
from test_micro_fit import fit, movement_net, movements
from torch import nn

import membound as mb
from membound.errors import MemboundError
from membound.export.c_project import project_files
from membound.search.budget import describe_device
from membound.search.place import Watch
from membound.search.problem import Target
from membound.units import show_ms


def save_features(path, seed=0, **changes):
    """Features of different offsets and spreads, and two classes that follow from all of them."""
    random = np.random.default_rng(seed)
    noise = random.normal(size=(300, 6))
    x = (np.linspace(2, 500, 6) + np.logspace(-2, 2, 6) * noise).astype(np.float32)
    y = (noise.sum(1) > 0).astype(np.int64)
    np.savez(
        path, **{"x_train": x[:250], "y_train": y[:250], "x_test": x[250:], "y_test": y[250:], **changes}
    )
    return path


def features_net():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def fit_features(path, **more):
    steps = more.pop("steps", 2)
    return mb.fit(features_net, mb.data.load(path), 6_000, target="micro", dense=False, steps=steps, **more)


def test_features_are_standardized_in_training_the_file_and_the_c(tmp_path, capfd):
    fitted = fit_features(save_features(tmp_path / "d.npz"), steps=150, lr=0.05)
    fitted.save(tmp_path / "net.safetensors")
    assert fitted.accuracy > 85  # as they are, features of the smallest units tell nothing
    net, x = mb.load(tmp_path / "net.safetensors", engine="micro"), np.load(tmp_path / "d.npz")["x_test"]
    prepared = net.preprocess(x)
    assert np.abs(prepared.std(0) - 1).max() < 0.3
    files = project_files(net.plan, preprocess=net.model.preprocess)
    scales, offsets = (
        np.float32(re.search(rf"NET_INPUT_{name} {{(.*)}}", files["net.h"])[1].replace("f", "").split(", "))
        for name in ("SCALE", "OFFSET")
    )
    fed = np.floor(x / scales + offsets + np.float32(0.5)).clip(0, 255).astype(np.uint8)
    near = np.abs(net.integers(fed).astype(int) - net.integers(prepared))
    assert near.max() <= 1  # where a float lies on the edge of two bytes


def test_a_dead_sensor_is_said_and_does_not_saturate(tmp_path):
    dead = np.random.default_rng(0).normal(size=(250, 6)).astype(np.float32)
    dead[:, 4] = 9.5
    notes = []
    path = save_features(tmp_path / "d.npz", x_train=dead, x_test=dead[:50])
    fitted = fit_features(path, watch=Watch(note=notes.append))
    said = [note for note in notes if "single value" in note]
    assert len(said) == 1
    assert said[0].startswith("feature 4 (from 0) has a single value in all training examples")
    fitted.save(tmp_path / "net.safetensors")
    prepared = mb.load(tmp_path / "net.safetensors").preprocess(dead[:1] + 1)
    assert abs(prepared[0, 4] - 1) < 0.01


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.over_time = nn.LSTM(4, 8, batch_first=True)

    def forward(self, x):
        _, _, _ = x.shape
        return self.over_time(x.transpose(1, 2))[0][:, -1]


def test_an_lstm_is_named_whatever_shape_the_data_is_read_in():
    x = np.random.default_rng(0).normal(size=(30, 1, 4, 20)).astype(np.float32)
    with pytest.raises(MemboundError, match=r"^layer 'over_time' \(LSTM\) does not run on a microcontroller"):
        mb.fit(Reader, (x, np.arange(30) % 2), 6_000, target="micro", steps=2)


@pytest.mark.parametrize("target", ["micro", "cpu"])
def test_inputs_that_are_all_the_same_are_refused_before_training(target):
    same = np.ones((30, 6), np.float32)
    with pytest.raises(MemboundError, match=r"\(x_train\) are all the same, in all 30 examples") as raised:
        mb.fit(features_net, (same, np.arange(30) % 2), 6_000, target=target, steps=2)
    assert "\n" not in str(raised.value)


def padded():
    first, last = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 2, 3, stride=4, padding=1)
    return nn.Sequential(first, last, nn.Flatten(), nn.Linear(98, 10))


def mean():
    return nn.Sequential(
        nn.Conv2d(1, 64, (3, 28), stride=(3, 28)),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def fit_file(path, layout):
    data = mb.data.load(path, layout=layout)
    return mb.fit(movement_net, data, 6_000, target="micro", dense=False, steps=2)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            padded,
            "rows of 16 x 28, padding included). Allow at least that, or take fewer channels or a larger stride",
        ),
        (
            mean,
            "one row of 64 x 1, 32-bit sums included). Allow at least that, or take fewer channels there.",
        ),
    ],
)
def test_ram_is_said_with_what_is_added_and_what_helps(model, said):
    with pytest.raises(MemboundError) as raised:
        fit(model=model, ram=501, budget="64KB")
    assert said in str(raised.value)


def test_o2_is_advised_where_it_meets_a_bound_on_time_and_with_its_estimate():
    """The network takes more than 2 ms at -Os even with a weight in each layer, and less at -O2."""
    with pytest.raises(MemboundError) as raised:
        fit(latency="1us")
    slow, fast = str(raised.value), None
    least = float(re.search(r"this network takes ([\d.]+) ms", slow)[1])
    assert "O2" not in slow
    dense = float(re.search(r"dense in 8 bits ([\d.]+) ms, as estimated at -Os: a usable one", slow)[1])
    assert dense > 2 * least
    clock = int(re.search(r"raise the clock \(beyond (\d+) MHz\)", slow)[1])
    assert clock == pytest.approx(80_000 * least, rel=0.01)
    with pytest.raises(MemboundError) as raised:
        fit(latency=f"{0.99 * least:.4g}ms", budget="64KB")
    fast = re.search(r"or compile with O2, where the least is ([\d.]+) ms$", str(raised.value))
    assert 0 < float(fast[1]) < 0.99 * least
    with pytest.raises(MemboundError) as raised:
        fit(latency=f"{0.99 * least:.4g}ms", budget=4_000)  # fast enough, but its code takes more
    assert "O2" not in str(raised.value)
    with pytest.raises(MemboundError, match=rf"takes {fast[1]} ms, .* at -O2: .* network$"):
        fit(latency="1us", budget="64KB", compiled="O2")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, r"at 80 MHz, .*; 9,000 bytes of flash are enough for all of its weights in 8 bits"),
        ({"latency": "1s"}, r"at 80 MHz, .*; 1,000 ms is enough for all of its weights; .*"),
        (
            {"latency": "2ms", "compiled": "O2", "clock": "160MHz"},
            r"at 160 MHz, compiled with -O2 \(.* ms with -Os\); 2 ms leaves time for about .*",
        ),
    ],
)
def test_what_the_dense_network_takes_is_said_before_training(options, said):
    """And how many of its weights a bound on time leaves: a fit of about so many takes that long."""
    notes = []
    samples, kinds = movements(60, 0)
    found = mb.fit(movement_net, (samples, kinds), 9_000, val_data=(samples, kinds), target="micro", steps=2,
                   watch=Watch(note=notes.append), **options)  # fmt: skip
    (note,) = (note for note in notes if note.startswith("dense in 8 bits"))
    micro = found.dense["int8"]["micro"]
    assert re.fullmatch(rf".* on a Cortex-M4 {said}", note)
    assert f"about {show_ms(micro['ms'])} on" in note or abs(micro["ms"] / _ms_of(note) - 1) < 0.02
    assert f", {micro['ram_bytes']:,} of RAM" in note
    flash = int(re.search(r"takes ([\d,]+) bytes of flash", note)[1].replace(",", ""))
    assert 0 <= flash - micro["flash_bytes"] < 100  # with as many different values as there may be
    if left := re.search(r"for about (\d+) % of its weights", note):
        layers = [each for each in found.facts["layers"] if each["name"].endswith("weight")]
        kept = sum(each["nonzeros"] for each in layers) / sum(each["original_size"] for each in layers)
        assert kept == pytest.approx(int(left[1]) / 100, rel=0.5)


def test_what_flash_leaves_is_said_with_the_code_that_either_level_takes():
    """Beside what time leaves, which may be more: a fit keeps about as many weights as the tighter bound leaves."""
    notes = []
    samples, kinds = movements(60, 0)
    found = mb.fit(movement_net, (samples, kinds), 5_100, val_data=(samples, kinds), target="micro", steps=2,
                   latency="9ms", compiled="O2", dense=False, watch=Watch(note=notes.append))  # fmt: skip
    (note,) = (note for note in notes if note.startswith("dense in 8 bits"))
    time, flash = re.findall(r"leaves? (?:time|room) for about (\d+) % of its weights", note)
    assert int(flash) < int(time)
    assert "; 5,100 bytes of flash leave room for" in note
    fast, small = map(
        float, re.search(r"weights \(([\d.]+) ms, or ([\d.]+) ms with -Os\): code", note).groups()
    )
    assert 0 < fast <= small < _ms_of(note)
    code = [
        int(each.replace(",", ""))
        for each in re.search(r"([\d,]+) with -O2 and ([\d,]+) with -Os$", note).groups()
    ]
    micro = found.facts["micro"]
    assert code[0] == pytest.approx(micro["code_bytes"], rel=0.05)
    assert code[1] < code[0] - 1_000


def _ms_of(note):
    return float(re.search(r"about ([\d.]+) ms", note)[1])


def test_channels_that_one_scale_holds_badly_are_told_unless_they_are_standardized():
    samples, kinds = movements(60, 0)
    unlike = samples * np.array([1.0, 9.0, 2.0], np.float32)[:, None, None]
    said = "the channels' standard deviations differ ("
    remedy = mb.data.Preprocess(mean=unlike.mean((0, 2, 3)), std=unlike.std((0, 2, 3)))
    for x, options, told in (
        (unlike, {}, True),
        (samples, {}, False),
        (unlike, {"preprocess": remedy}, False),
        (unlike, {"target": "cpu"}, False),
    ):
        notes = []
        options = {
            "target": "micro",
            "dense": False,
            "steps": 2,
            "watch": Watch(note=notes.append),
            **options,
        }
        found = mb.fit(movement_net, (x, kinds), 9_000, val_data=(x, kinds), **options)
        assert any(note.startswith(said) for note in notes) is told
        assert any(note.startswith(said) for note in found.facts["tried"]) is told
        if told:
            (note,) = (note for note in notes if note.startswith(said))
            assert "preprocess=mb.data.Preprocess(mean=x.mean((0, 2, 3)), std=x.std((0, 2, 3)))" in note


def test_without_an_error_left_no_wider_network_is_advised():
    micro = {"flash_bytes": 2_000, "ram_bytes": 300, "clock_hz": 80_000_000, "ms": 1.0}
    assert "wider" in describe_device(micro, 6_000, Target(micro=True))[0]
    assert describe_device(micro, 6_000, Target(micro=True), no_errors=True) == []


def test_a_sequence_that_lacks_an_axis_is_told_how_to_get_it(tmp_path):
    samples, kinds = movements(40, 0)
    flat = samples[..., 0]
    np.savez(tmp_path / "flat.npz", x_train=flat, y_train=kinds, x_test=flat, y_test=kinds)
    said = []
    for layout in (None, "NCHW", "NCL"):
        with pytest.raises(MemboundError) as raised:
            fit_file(tmp_path / "flat.npz", layout)
        said.append(str(raised.value))
    assert said[0].endswith(
        "; x_train is [40, 3, 64], read as images of one channel: save x[..., None], and give the layout NCHW"
    )
    np.savez(tmp_path / "deep.npz", x_train=samples, y_train=kinds, x_test=samples, y_test=kinds)
    with pytest.raises(MemboundError) as raised:
        fit_file(tmp_path / "deep.npz", "NHWC")
    assert str(raised.value) == (
        "the network does not take images of shape (1, 3, 64): layer '0' takes 3 channels and gets 1; "
        "x_train is [40, 3, 64, 1], read as NHWC: give the layout NCHW"
    )
    assert raised.value.about == ("layout",)
    assert said[1].endswith("; of sequences [n, channels, time], save x[..., None]")
    assert said[2].endswith("as [channels, time, 1]: save x[..., None], and give the layout NCHW")
