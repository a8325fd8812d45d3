"""Names of options, whichever version of typer reads them."""

import inspect
import re
from typing import get_args

import pytest
from typer.models import OptionInfo

from membound.cli import app, main, sections


@pytest.mark.parametrize("command", app.registered_commands, ids=lambda command: command.name)
def test_no_option_takes_its_name_from_its_metavar(command):
    """Some versions (0.27) call an option `--DEVICE` whose metavar is its name in capitals, unless it is named."""
    for name, parameter in inspect.signature(command.callback).parameters.items():
        for info in get_args(parameter.annotation)[1:]:
            # Within Annotated a first name stands where a default would.
            if isinstance(info, OptionInfo) and not (info.param_decls or isinstance(info.default, str)):
                assert (info.metavar or "").lower().replace("_", "-") != name.replace("_", "-"), name


@pytest.mark.parametrize(
    ("command", "parts"), [("fit", sections.FIT), ("train", sections.TRAIN), ("export", sections.EXPORT)]
)
def test_every_option_is_in_one_section_of_the_help(command, parts, capsys, monkeypatch):
    (there,) = (each for each in app.registered_commands if each.name == command)
    options = {
        name
        for name in inspect.signature(there.callback).parameters
        if name not in ("net", "context", "source")
    }
    named = [name for names in parts.values() for name in names]
    assert sorted(named) == sorted(options)
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = capsys.readouterr().out
    assert [line[:-1] for line in text.splitlines() if line in {f"{title}:" for title in parts}] == list(
        parts
    )
    assert text.split("Other options:")[1].split() == ["--help", "Show", "this", "message", "and", "exit."]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "fit lenet --data mnist --out n.safetensors --steps abc",
            "--steps abc: a whole number from 1 up is needed",
        ),
        (
            "fit lenet --data mnist --out n.safetensors --steps=0",
            "--steps 0: a whole number from 1 up is needed",
        ),
        ("fit lenet --data mnist --out n.safetensors --lr x", "--lr x: a number is needed"),
        (
            "fit lenet --data mnist --out n.safetensors --members 99",
            "--members 99: a whole number from 1 to 64",
        ),
        (
            "fit lenet --data photos --budget 8KB --out n.safetensors --size 64x48x3",
            "--size 64x48x3: give the side of squares, such as 224, or height x width, such as 192x320",
        ),
        ("run a.safetensors b.npy --threads -1", "--threads -1: a whole number from 0 to 256 is needed"),
    ],
)
def test_a_number_that_is_none_is_said_in_our_words(words, said, capsys):
    """Not in those of typer, or of the library that reads numbers for it."""
    with pytest.raises(SystemExit) as stopped:
        main(words.split())
    assert stopped.value.code == 1
    found = capsys.readouterr().err
    assert found.startswith(f"membound: error: {said}")
    assert found.count("\n") == 1


def test_the_list_of_commands_cuts_no_sentence(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "..." not in capsys.readouterr().out.split("Commands:")[1]


@pytest.mark.parametrize("command", [each.name for each in app.registered_commands])
def test_the_help_of_every_command_has_an_example_and_no_wide_line(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    said = capsys.readouterr().out
    assert f"\n  membound {command} " in said
    assert max(map(len, said.splitlines())) <= 60
    breaks = re.findall(r"\w,\w+\n +\w+,", said)
    assert not breaks, "a list without spaces is broken within a word"
