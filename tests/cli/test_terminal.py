"""What a terminal shows: readable at 60 columns, the verdict last, progress in a pipe, and where a run went on."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from deployed import images, refused, run, write_network
from rich.console import Console
from test_fit_command import FIT as USUAL
from test_fit_command import NETS, OUT

import membound as mb
from membound.cli.live import Board
from membound.cli.options import tell_size
from membound.cli.tables import Column, fit_table, print_grouped
from membound.report.text import show_count
from membound.search.jobs import Job
from membound.search.progress import by_lines
from membound.train.run import Progress

DEEP = """
from torch import nn
def deep(classes=2):
    inner = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
    return nn.ModuleDict({}) or nn.Sequential(
        nn.Sequential(nn.Sequential(nn.Sequential(nn.Sequential(inner)))), nn.Flatten(), nn.Linear(16, classes)
    )
"""


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("terminal_nets.py").write_text(NETS + DEEP)
    x, y = images(120)
    np.savez("own.npz", x_train=x[:80], y_train=y[:80], x_test=x[80:], y_test=y[80:])


FIT = ("fit", "terminal_nets:deep", *USUAL[2:], "--steps", "40")


def test_a_fit_is_readable_at_60_columns_and_ends_with_its_verdict(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert run(*FIT, *OUT, "--budget", "50%") == 0
    said = capsys.readouterr()
    lines = said.out.rstrip().splitlines()
    assert max(map(len, lines)) <= 60
    assert not any(re.search(r"\w…( |$)", line) for line in lines), "nothing is cut at its end"
    weights = [line.split()[0] for line in lines if re.match(r"\S*(weight|bias) ", line)]
    assert [name.endswith("weight") for name in weights] == [True] * 3 + [False] * 3
    verdict = " ".join(lines[lines.index("", lines.index("file      net.safetensors")) + 1 :])
    assert re.match(r"[\d.]+( ± [\d.]+)? % in [\d,]+ bytes: .* of the dense file", verdict)
    assert re.search(r"Dense in 8 bits: [\d.]+( ± [\d.]+)? % in [\d,]+ bytes", verdict)
    assert re.search(
        r"(In 8-bit integers \(engine int8\): .* an image, .* dense (int8|floats) in ONNX Runtime \([\d.]+ ms\)"
        r", [\d.]+ %\. )?"
        r"In floats: [\d.]+ ms an image, .* dense \([\d.]+ ms\)\.( Dense (int8|floats) in ONNX Runtime: [\d.]+ ms\.)?$",
        verdict,
    )
    assert "training under the bound, on all training images" in said.err, "one network"
    assert re.search(r"^dense: trained, accuracy [\d.]+ % in torch on \d+ examples, \d", said.err, re.M), (
        "progress when piped"
    )


def test_columns_go_before_names_are_cut_and_names_are_cut_in_the_middle():
    columns = [Column("layer", right=False), Column("format", 2), Column("bytes")]
    names = [f"encoder.blocks.{block}.attention.weight" for block in (1, 2)]
    rows = [[name, "bitmask", "1,000"] for name in names]
    assert fit_table(columns, rows, None) == (columns, rows)
    chosen, cells = fit_table(columns, rows, 30)
    assert [column.head for column in chosen] == ["layer", "bytes"]
    assert all(len(row[0]) + 2 + 5 <= 30 and "…" in row[0][1:-1] for row in cells)
    assert len({row[0] for row in cells}) == 2, "they stay different"


ROWS = [
    ["network", "track", "nonzeros", "bytes (paper's formats)", "times smaller", "test accuracy"],
    ["LeNet on MNIST", "paper, greedy, seed 0", "301,352", "1,258,533", "1.4", "84.20 (dense 82.00)"],
    [
        "LeNet on MNIST",
        "paper, greedy, all seeds",
        "",
        "",
        "1.37 ± 0.00",
        "86.10 ± 2.69 (dense 77.70 ± 6.08)",
    ],
    ["LeNet on MNIST", "ours", "2,151", "13,224", "130.4", "50.30 ± 5.80"],
]


def test_a_table_of_the_paper_takes_two_lines_a_row_at_most_at_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    print_grouped(ROWS, "memory")
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert max(map(len, lines)) <= 80
    below = lines[next(number for number, line in enumerate(lines) if set(line) == {"─"}) + 1 :]
    assert below[0] == "LeNet on MNIST"
    assert len(below) <= 1 + 2 * 3
    assert any(line.endswith("50.30 ± 5.80") and "130.4" in line and "13,224" in line for line in below)
    monkeypatch.setenv("COLUMNS", "40")
    print_grouped(ROWS, "memory")
    narrow = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 40
    assert "…" not in narrow
    monkeypatch.setenv("COLUMNS", "")
    print_grouped(ROWS, "memory")
    assert "LeNet on MNIST  paper, greedy, all seeds" in capsys.readouterr().out


def test_the_live_table_fits_60_columns():
    board = Board(lambda: 0.0)
    job = Job("final", 0, limit=1, about={"budget": "a budget with quite a long name", "member": 3})
    board.show(job, Progress(12_345, 100_000, 0.25))
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(board)
    text = console.export_text()
    assert "12,345/100,000" in text
    assert max(map(len, text.splitlines())) <= 60


def test_a_fit_from_python_says_how_far_it_is_unless_it_shall_not(capsys):
    data = mb.data.load("own.npz")
    model = mb.zoo.build("terminal_nets:small")
    small = {"budget": "4KiB", "steps": 5, "batch_size": 20, "device": "cpu", "dense": False}
    mb.fit(model, data, **small)
    assert "training under the bound, on all training images" in capsys.readouterr().err
    mb.fit(model, data, **small, progress=False)
    assert capsys.readouterr() == ("", "")


def test_lines_come_now_and_then_and_say_what_is_left():
    said, now = [], [0.0]
    watch = by_lines(said.append, lambda: now[0])
    for step in range(0, 101, 10):
        now[0] = step / 2
        watch.show(Job("dense", 0), Progress(step, 100, 0.5))
    assert said == [
        f"dense: step {step} of 100, loss 0.5000, about {left} s left"
        for step, left in ((20, "40.0"), (40, "30.0"), (60, "20.0"), (80, "10.0"))
    ]


def test_a_resumed_run_says_where(capsys):
    assert run(*FIT, *OUT, "--budget", "50%", "--run-dir", "kept") == 0
    assert "resumed" not in capsys.readouterr().err
    ledger = Path("kept/ledger.jsonl")
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:1]))  # as if it had been killed
    assert run(*FIT, *OUT, "--budget", "50%", "--run-dir", "kept") == 0
    assert "resumed kept: 1 network is finished\n" in capsys.readouterr().err
    words = refused(capsys, *FIT, *OUT, "--budget", "40%", "--run-dir", "kept")
    assert 'budget was "50%", and is "40%" now' in words
    assert words.startswith("membound: error: kept belongs to another run: --budget was ")
    words = refused(capsys, *FIT, *OUT, "--budget", "50%", "--run-dir", "kept", "--lr", "0.01")
    assert "another run: --lr was 0.02, and is 0.01 now: choose" in words


def test_a_checkpoint_says_its_step(capsys):
    assert run("train", *FIT[1:], "--run-dir", "kept", "--checkpoint-seconds", "0") == 0
    from membound.train.resume import saved_step

    assert saved_step(Path("kept")) == 40
    assert saved_step(Path("elsewhere")) is None
    capsys.readouterr()


def test_a_budget_that_does_not_bind_is_said(capsys):
    assert run(*FIT, *OUT, "--budget", "1MB", "--no-dense", "--no-report") == 0
    assert "the budget is larger than the whole network (" in capsys.readouterr().out
    assert run(*FIT, *OUT, "--budget", "50%", "--no-dense", "--no-report") == 0
    assert "larger than the whole" not in capsys.readouterr().out


@pytest.mark.parametrize("size", ["12 parsecs", "KiB", "10%%"])
def test_a_size_that_is_none_lists_what_sizes_there_are(size, capsys):
    words = refused(capsys, *FIT, *OUT, "--budget", size)
    for part in (size, "plain bytes (40960)", "KiB", "KB", "'10%'"):
        assert part in words


def test_run_takes_folders(capsys):
    from PIL import Image

    file = write_network(Path("net.safetensors"))
    pictures, labels = images(4)
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        folder = Path("photos", "dark" if label == 0 else "bright")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture[0]).save(folder / f"{number // 2}.png")
    Path("photos/notes.txt").write_text("no picture")
    assert run("run", file, "photos") == 0
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [f"photos/{name}/{number}.png", name] for name in ("bright", "dark") for number in (0, 1)
    ]
    Path("empty").mkdir()
    assert "empty is a folder without pictures" in refused(capsys, "run", file, "empty")


@pytest.mark.parametrize("length", [4, 100, 1000])
def test_a_truncated_file_is_said_to_be_cut_short(length, capsys):
    whole = write_network(Path("net.safetensors")).read_bytes()
    Path("cut.safetensors").write_bytes(whole[: min(length, len(whole) - 1)])
    assert "cut short" in refused(capsys, "inspect", "cut.safetensors")


def test_counts_are_shown_with_commas():
    assert show_count(1234567) == "1,234,567"


def test_the_size_that_pictures_are_read_at_is_said_with_what_becomes_of_others(capsys):
    pixels = mb.data.ArraySplit(np.zeros((2, 3, 80, 80), np.uint8), [0, 1])
    tell_size(mb.data.Dataset("photos", pixels, pixels, ("a", "b")))
    said = capsys.readouterr().err
    assert "resized to 80 pixels on their shorter side and cropped to the center square of 80 x 80" in said
    assert "which the network then takes in an app, too" in said
