"""Dense in 8 bits, where it fits the budget too: taken by validation or training images, never by test images."""

import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from profiles import full
from small import Small, digits

import membound as mb
from membound.cli import main
from membound.report.eight_bits import TAKEN, write_instead
from membound.search.eight_bits import fits
from membound.search.place import Watch
from membound.search.request import Bound

SHORT = {"steps": 60, "batch_size": 20, "lr": 0.05, "device": "cpu"}
TRAIN, OTHERS, LAST = digits(), digits(300, 700), digits(700, 1100)
LOOSE = "20 KB"  # the dense network in 8 bits takes about 10 KB


def pair(split):
    return split.images, split.labels


def errors_of(net) -> int:
    return int((net(net.preprocess(LAST.images)).argmax(1) != LAST.labels).sum())


def run(words) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    return stopped.value.code


def fit(budget=LOOSE, **options):
    # Few epochs and a strong teacher: what is fitted is far behind.
    return mb.fit(Small, pair(TRAIN), budget, **SHORT, teacher="dense", teacher_part=0.98, **options)


@pytest.fixture(scope="module")
def asked_for():
    return fit(test_data=pair(LAST), values="p6")


@pytest.fixture(scope="module")
def said():
    return []


@pytest.fixture(scope="module")
def by_validation(said):
    return fit(val_data=pair(OTHERS), test_data=pair(LAST), watch=Watch(note=said.append))


def test_bits_that_were_asked_for_stay(asked_for):
    int8 = asked_for.dense["int8"]
    assert asked_for.facts["fits_in_8_bits"]
    assert asked_for.accuracy + 2 < int8["accuracy"]
    assert not any("dense in 8 bits" in note for note in asked_for.facts["tried"])


def test_test_images_choose_nothing():
    """With labels that are all wrong, dense in 8 bits is worse; the training images take it all the same."""
    right = fit(test_data=pair(LAST))
    wrong = fit(test_data=(LAST.images, (LAST.labels + 1) % 10))
    for result in (right, wrong):
        assert result.values == "p8"
        assert result.accuracy == result.dense["int8"]["accuracy"]
        assert any("better on 300 training images" in note for note in result.facts["tried"])
    assert right.accuracy > wrong.accuracy + 20


def test_validation_images_choose(asked_for, by_validation, said, tmp_path):
    int8 = by_validation.dense["int8"]
    assert (by_validation.accuracy, by_validation.errors) == (int8["accuracy"], int8["errors"])
    assert by_validation.accuracy > asked_for.accuracy
    assert by_validation.file_bytes == by_validation.size == int8["file_bytes"] <= by_validation.limit
    assert by_validation.values == "p8"
    assert any("better on 400 validation images" in note for note in by_validation.facts["tried"])
    by_validation.report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert f"T{TAKEN[1:]}" in page
    assert "teacher" not in page.split("How it was made")[0]
    assert page.count('class="line ') == page.count('class="line densely"') > 0
    assert "fitted.save(&quot;net.safetensors&quot;)" in page.replace('"', "&quot;")
    assert TAKEN in repr(by_validation)
    assert f"{LOOSE}: {TAKEN}" in said
    facts = by_validation.facts
    assert (
        facts["asked"]["seconds"] > facts["seconds"]
    )  # the whole call, not only the dense network's training
    by_validation.save(tmp_path / "net.safetensors")
    assert (tmp_path / "net.safetensors").stat().st_size == int8["file_bytes"]
    assert errors_of(mb.load(tmp_path / "net.safetensors")) == int8["errors"]


@pytest.mark.full  # validation images are the same to it
def test_images_held_out_of_the_training_ones_choose_as_well():
    result = fit(val_data=None, validation=0.5)
    assert result.accuracy_on == "validation"
    assert result.values == "p8"
    assert result.accuracy == result.dense["int8"]["accuracy"]
    assert any("validation images" in note for note in result.facts["tried"])


@pytest.mark.parametrize(
    "options", [{"budget": "6 KB"}, full({"values": "p4"}), {"dense": False, "teacher": "none"}]
)
def test_what_does_not_fit_or_was_not_asked_for_is_not_taken(options):
    budget = options.pop("budget", LOOSE)
    chosen = {"teacher": "dense", **options}
    result = mb.fit(Small, pair(TRAIN), budget, **SHORT, val_data=pair(OTHERS), **chosen)
    assert not any("dense in 8 bits" in note for note in result.facts["tried"])
    assert result.size <= result.limit


@pytest.mark.parametrize(
    ("bound", "limit", "memory", "expected"),
    [
        (Bound(budget=1000), 1000, None, True),
        (Bound(budget=999), 999, None, False),
        (Bound(ram=3000), 3000, None, True),
        (Bound(ram=2999), 2999, None, False),
        (Bound(nonzeros=80), 80, None, True),
        (Bound(nonzeros=79), 79, None, False),
        (Bound(budget=1000, ram=2999), 1000, 2999, False),
        (Bound(within=1.0), 1000, None, False),
        (Bound(latency="1 ms"), 1000, None, False),
    ],
)
def test_every_bound_counts(bound, limit, memory, expected):
    int8 = {"file_bytes": 1000, "memory_bytes": 3000, "nonzeros": 80}
    assert fits(int8, bound, limit, memory) is expected


def test_on_a_device_flash_and_ram_count():
    bound = Bound(budget=100, ram=50, target="micro")
    int8 = {"file_bytes": 1000, "memory_bytes": 1000, "nonzeros": 1000}
    for flash, ram, expected in ((100, 50, True), (101, 50, False), (100, 51, False)):
        found = int8 | {"micro": {"flash_bytes": flash, "ram_bytes": ram}}
        assert fits(found, bound, 100, 50) is expected


@pytest.mark.full
def test_the_command_that_is_named_writes_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x, y = pair(TRAIN)
    np.savez("own.npz", x_train=x, y_train=y, x_test=LAST.images, y_test=LAST.labels)
    Path("own_nets.py").write_text("from small import Small\n\n\ndef small():\n    return Small()\n")
    command = [
        "membound", "fit", "own_nets:small", "--data", "own.npz", "--budget", "20KB", "--steps", "60", "--batch-size",
        "20", "--lr", "0.05", "--device", "cpu", "--teacher", "dense", "--teacher-part", "0.98", "--run-dir=run",
        "--values", "p6", "--out", "net.safetensors",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", command)
    try:
        assert run(command[1:]) == 0
        lines = capsys.readouterr().out.splitlines()
        said = " ".join(lines)
        assert "The dense network in 8 bits fits this budget, too" in said
        named = next(line for line in lines if line.startswith("membound fit"))
        assert "The dense network in 8 bits fits this budget, too" in Path("net.report.html").read_text()
        words = shlex.split(named)
        monkeypatch.setattr(sys, "argv", words)
        assert run(words[1:]) == 0
    finally:
        sys.modules.pop("own_nets", None)
    assert "fits this budget, too" not in capsys.readouterr().out
    written, better = (errors_of(mb.load(name)) for name in ("net.safetensors", "net-8bit.safetensors"))
    assert better + 8 < written
    assert Path("net-8bit.safetensors").stat().st_size <= 20_000


def test_the_options_of_the_network_that_was_fitted_are_left_out():
    words = (
        "membound fit lenet --teacher big.safetensors --values=p4 --hub h --budget 9KB --out=a/b.safetensors"
    )
    expected = "membound fit lenet --budget 9KB --out a/b-8bit.safetensors --values p8 --teacher none"
    assert write_instead(words.split()) == expected
