"""One word for one thing: options by their names of now, by the old ones, and what errors call them."""

import ast
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import typer
from deployed import images, refused, run, write_network

import membound
from membound.cli import ELSEWHERE, RENAMED, _options_of, app
from membound.cli.keywords import in_options
from membound.errors import MemboundError

PACKAGE = Path(membound.__file__).parent
COMMANDS = typer.main.get_command(app).commands


def options_of(command: str) -> set[str]:
    return {name for parameter in COMMANDS[command].params for name in parameter.opts}


@pytest.mark.parametrize("command", RENAMED)
def test_an_old_name_stands_for_an_option_that_there_is(command):
    for old, new in RENAMED[command].items():
        assert old not in options_of(command)
        assert new in options_of(command)


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = images(20)
    np.savez("own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return write_network(tmp_path / "net.safetensors")


@pytest.mark.parametrize("words", [("--batch-size", "7"), ("--batch-size=7",)])
def test_an_old_name_works_and_says_the_new_one(words, data, capsys):
    assert run("evaluate", data, "--data", "own.npz", "--batch", "7", "--json") == 0
    now = capsys.readouterr()
    assert now.err == ""
    assert run("evaluate", data, "--data", "own.npz", *words, "--json") == 0
    old = capsys.readouterr()
    assert old.out == now.out
    assert old.err == "membound: warning: --batch-size is now --batch\n"


def test_old_names_of_train_and_bench(data, capsys):
    (Path("words_nets.py")).write_text(
        "from torch import nn\ndef small():\n    return nn.Sequential(nn.Flatten(), nn.Linear(36, 2))\n"
    )
    train = ("train", "words_nets:small", "--data", "own.npz", "--device", "cpu", "--batch-size", "5")
    assert run(*train, "--iterations", "3", "--json") == 0
    said = capsys.readouterr()
    kept = "no --out and no --run-dir: the weights will not be kept\n"
    assert said.err == "membound: warning: --iterations is now --steps\n" + kept
    assert json.loads(said.out)["steps"] == json.loads(said.out)["iterations"] == 3
    assert run("bench", data, "--layers", "--runs", "1", "--json") == 0
    said = capsys.readouterr()
    assert said.err == "membound: warning: --layers is now --operators\n"
    assert json.loads(said.out)["layers"]


def test_a_value_that_looks_like_an_old_name_is_left_alone(capsys):
    assert "'--iterations'" in refused(capsys, "data", "--", "--iterations")


@pytest.mark.parametrize("command", ["fit", "train", "evaluate", "reproduce"])
def test_one_word_for_one_thing(command):
    """What a training takes at once is a batch size, what runs at once a batch; steps are steps."""
    for parameter in COMMANDS[command].params:
        text = parameter.help or ""
        assert "teration" not in text
        if "--batch-size" in parameter.opts:
            assert "step" in text
        if "--batch" in parameter.opts:
            assert "at once" in text


COMMANDS_THEMSELVES = ("cli", "report", "paper")  # what runs, shows or records commands


@cache
def strings(path: Path) -> list[tuple[int, str]]:
    """The texts in a module, but its docstrings."""
    tree = ast.parse(path.read_text())
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Export":
            alone |= {id(each) for each in ast.walk(node)}  # a record of what the command takes
        if isinstance(node, ast.List) and node.elts and getattr(node.elts[0], "value", "") == "git":
            alone |= {id(each) for each in ast.walk(node)}  # a command of its own
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
    ]


OF_OTHER_PROGRAMS = re.compile(
    r"\bcmake --build\b|\bmain --(check|counts)\b|\$\(CXX\) --version"
)  # of exported C and C++


def test_errors_of_the_library_do_not_speak_of_options():
    paths = [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in COMMANDS_THEMSELVES
        and path.name != "web_page.py"  # a style sheet has variables that look like options
    ]
    found = [
        f"{path}:{line}: {text}"
        for path in paths
        for line, text in strings(path)
        if re.search(r"(^|[ (])--[a-z]", OF_OTHER_PROGRAMS.sub("", text))
    ]
    assert found == []
    assert len(paths) > 200


def test_only_close_names_are_suggested(capsys):
    assert "--budgt (Possible options: --budget):" in refused(capsys, "fit", "lenet", "--budgt", "4KB")


def test_sequences_that_are_read_as_pictures_or_without_a_width_name_the_layout(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("sequence_nets.py").write_text(
        "from torch import nn\ndef over_time(classes=2, channels=20):\n    return nn.Sequential(nn.Conv2d(channels, 4, "
        "(5, 1)), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))\n"
    )
    x, y = np.random.default_rng(0).normal(size=(40, 20, 49)).astype(np.float32), np.arange(40) % 2
    np.savez("places.npz", x_train=x[..., None], y_train=y, x_test=x[:20, :, :, None], y_test=y[:20])
    np.savez("times.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
    fit = ("fit", "sequence_nets:over_time", "--target", "micro", "--ram", "700", "--out", "net.safetensors")
    bounds = ("--budget", "5KB", "--device", "cpu", "--steps", "2")
    said = refused(capsys, *fit, *bounds, "--data", "places.npz")
    assert "read as 1 x 20 x 49 (channels, height, width)" in said
    assert "the layout NCHW reads 20 x 49 x 1 (--layout)" in said
    said = refused(capsys, *fit, *bounds, "--data", "times.npz", "--layout", "NCL")
    assert said.endswith(
        "takes a sequence as [channels, time, 1]: save x[..., None], and give the layout NCHW (--layout)\n"
    )


def test_pixels_have_no_layout_to_say_and_a_mean_image_names_the_option(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x, y = np.random.default_rng(0).integers(0, 256, (40, 28, 28), np.uint8), np.arange(40) % 10
    np.savez("digits.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
    fit = ("fit", "lenet", "--data", "digits.npz", "--target", "micro", "--device", "cpu", "--steps", "2")
    fit += ("--out", "net.safetensors", "--no-dense")
    assert "--layout" not in refused(capsys, *fit, "--budget", "8KB", "--ram", "1KB")
    assert "--layout" not in refused(capsys, *fit, "--budget", "1KB")
    said = refused(capsys, *fit, "--budget", "40KB", "--mean", "image")
    assert "train it again with a mean for each channel (--mean channel)" in said


@pytest.mark.parametrize("layout", [(), ("--layout", "NHWC")])
def test_floats_that_may_be_sequences_are_read_with_a_word(layout, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("one_channel_nets.py").write_text(
        "from torch import nn\ndef flat():\n    return nn.Sequential(nn.Flatten(), nn.Linear(30, 2))\n"
    )
    x, y = np.random.default_rng(0).normal(size=(20, 6, 5, 1)).astype(np.float32), np.arange(20) % 2
    np.savez("places.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    given = ("one_channel_nets:flat", "--data", "places.npz", "--device", "cpu", "--steps", "2", "--out")
    said = "x is read as height x width x channels = 6 x 5 x 1; if that is wrong, give --layout NCHW\n"
    for command in (
        ("train", *given, "b.safetensors"),
        ("fit", *given, "a.safetensors", "--budget", "4KB", "--no-dense"),
    ):
        assert run(*command, *layout) == 0
        assert (said in capsys.readouterr().err) is not bool(layout)
    assert run("data", "places.npz", *layout) == 0
    assert ("if that is wrong, give --layout NCHW" in capsys.readouterr().out) is not bool(layout)


def test_a_command_names_the_options_that_an_error_is_about(data, capsys):
    fit = ("fit", "lenet", "--data", "own.npz", "--out", "out.safetensors", "--budget", "4KiB")
    assert refused(capsys, *fit, "--values", "f8").endswith("choose auto, p1 to p8, f16 or f32 (--values)\n")
    said = refused(capsys, *fit, "--nonzeros", "400")
    assert "give one bound (--budget, --ram, --nonzeros, --within, --stages, --latency)" in said
    assert said.endswith("got --budget and --nonzeros\n")
    out = ("--out", "no/net.safetensors")
    said = "no/net.safetensors: there is no folder no: create it with mkdir -p no (--out)\n"
    assert refused(capsys, *fit, *out).endswith(said)


def test_what_an_error_is_about_is_called_differently_only_where_that_is_said():
    assert set(ELSEWHERE.values()) <= {
        parameter.name for each in COMMANDS.values() for parameter in each.params
    }
    assert MemboundError("x").about == ()


FIT = ("fit", "lenet", "--data", "own.npz", "--out", "out.safetensors")
WRONG = {  # and what is said of it
    ("--budget", "4KiB", "--smoothing", "2"): "--smoothing 2: a number from 0",
    ("--budget", "4KiB", "--greedy-step", "2", "--strategy", "greedy"): "--greedy-step 2: a number between",
    ("--latency", "5"): "--latency 5 has no unit, ms, s or us: did you mean '5 ms'?",
    ("--budget", "4KiB", "--widths", "a"): "--widths a: different factors",
    ("--within", "-1"): "--within -1: write how many points",
    ("--budget", "4KiB", "--within", "1"): "got --budget and --within",
    (
        "--within",
        "1",
        "--prefer",
        "speed",
    ): "--within looks for the smallest file, and formats for speed are not the smallest: leave --prefer out",
    ("--budget", "4KiB", "--ram", "2K"): "--ram: '2K' is not a size",
    ("--budget", "4KiB", "--target", "micro", "--clock", "80"): "--clock 80 has no unit",
}


@pytest.mark.parametrize("options", WRONG, ids=" ".join)
def test_an_error_of_a_command_has_options_and_no_keywords(options, data, capsys):
    said = refused(capsys, *FIT, *options)
    assert WRONG[options] in said
    assert not re.search(r"\b[a-z_]+=", said)
    for name in COMMANDS["fit"].params:
        assert "_" not in name.name or name.name not in said


def keywords_of_a_command(text: str, options: dict[str, str]) -> set[str]:
    """What in a text looks like a keyword that the command has an option for, outside of code."""
    plain = re.sub(r"[\w.]*\w\(.*", "", text)
    return {name for name in re.findall(r"(?<![\w.=-])([a-z_]+)=", plain) if name in options}


@pytest.mark.parametrize("command", ["fit", "train", "export"])
def test_every_keyword_in_the_texts_of_the_library_becomes_an_option(command):
    options = {name: option for name, option in _options_of(command).items() if option.startswith("--")}
    found = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] in COMMANDS_THEMSELVES:
            continue
        for _, text in strings(path):
            if keywords_of_a_command(text, options):
                found += 1
                assert not keywords_of_a_command(in_options(text, options), options), text
    assert found > 1


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_every_default_once_and_no_type_of_pythons(command, capsys):
    assert run(command, "--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert not re.search(r"<[a-z]", said), "membound fit NET, not NET <str>"
    assert "{" not in said
    for option in re.split(r" (?=--[a-z])", said):
        assert len(re.findall(r"[(\[]default\b|\(default\)", option)) <= 1, option


def test_help_tells_the_two_kinds_of_int8_apart(capsys):
    assert run("export", "--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Phones and servers need none: their --engine int8 runs any model FILE" in said
    assert "--int8 is for microcontrollers only" in said
    assert run("run", "--help") == 0
    assert "fit --target micro or export --int8" in " ".join(capsys.readouterr().out.split())
