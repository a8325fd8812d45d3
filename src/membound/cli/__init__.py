"""The command line: one module a command, and one place where an error becomes a line and an exit code."""

import io
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import typer

from membound.cli import sections
from membound.cli.bench import bench_command
from membound.cli.data import data_command
from membound.cli.evaluate import evaluate_command
from membound.cli.export import export_command
from membound.cli.fit import fit_command
from membound.cli.inspect import inspect_command
from membound.cli.keywords import in_options
from membound.cli.notes import as_notes
from membound.cli.options import Stopped
from membound.cli.reproduce import reproduce_command
from membound.cli.run import run_command
from membound.cli.sections import in_sections
from membound.cli.train import train_command
from membound.cli.usage import explain_space, explain_value, suggest_close
from membound.errors import MemboundError, install
from membound.units import FOR_A_DEVICE

app = typer.Typer(
    name="membound",
    help="Give it a network and a byte budget; get back the most accurate network that fits.",
    epilog="To begin: membound fit lenet --data mnist --budget 20KiB --steps 300 --out lenet.safetensors",
    context_settings={"max_content_width": 110},
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
SHORT = {  # at most 45 letters, so that 60 columns show all of them
    "fit": "Fit a network into a budget of bytes.",
    "train": "Train a network by rules for its layers.",
    "evaluate": "Measure the accuracy of a file or weights.",
    "inspect": "List the layers of a model file.",
    "run": "Run a model file on pictures or an array.",
    "bench": "Compare a model file with other runtimes.",
    "export": "Write ONNX, C++, C, or a web page.",
    "reproduce": "Make a figure or table of the paper.",
    "data": "Fetch, check and describe a data set.",
}
app.command("fit", cls=in_sections(sections.FIT), short_help=SHORT["fit"])(fit_command)
app.command("train", cls=in_sections(sections.TRAIN), short_help=SHORT["train"])(train_command)
app.command("evaluate", cls=in_sections({}), short_help=SHORT["evaluate"])(evaluate_command)
app.command("inspect", cls=in_sections({}), short_help=SHORT["inspect"])(inspect_command)
app.command("run", cls=in_sections({}), short_help=SHORT["run"])(run_command)
app.command("bench", cls=in_sections({}), short_help=SHORT["bench"])(bench_command)
app.command("export", cls=in_sections(sections.EXPORT), short_help=SHORT["export"])(export_command)
app.command("reproduce", cls=in_sections({}), short_help=SHORT["reproduce"])(reproduce_command)
app.command("data", cls=in_sections({}), short_help=SHORT["data"])(data_command)

INTERRUPTED = 130  # the exit code after Ctrl-C

RENAMED = {  # old names of options, which still work
    "train": {"--iterations": "--steps"},
    "evaluate": {"--batch-size": "--batch"},
    "bench": {"--layers": "--operators"},
}
NO_TFLITE = (
    "there is no export to TFLite: write C++ for an app with --cpp, C for a microcontroller with --c, or ONNX, which "
    "other converters take, with --onnx"
)
IN_OPTIONS = FOR_A_DEVICE.format(target="--target micro", budget="--budget", ram="--ram")
RACES_BOTH = "bench has no --engine: it runs the file in floats, and with --int8 in 8-bit integers, too"
ABSENT = {  # options that other tools or commands have
    "export": {"--tflite": NO_TFLITE, "--litert": NO_TFLITE},
    "fit": {name: f"there is no {name}: {IN_OPTIONS}" for name in ("--flash", "--sram", "--arena")},
    "bench": {"--engine": RACES_BOTH},
}
ELSEWHERE = {
    "workers": "ray",
    "pythons": "python",
    "dataset": "data",
    "train_data": "data",
    "model": "net",
    "images": "data",
    "calibrate": "data",
    "max_batch": "batch",
}  # parameters that a command has by another name


@app.callback(invoke_without_command=True)
def membound(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    """Give it a network and a byte budget; get back the most accurate network that fits."""
    if version:
        import membound as package

        typer.echo(package.__version__)
        raise typer.Exit


@cache
def _commands() -> Callable[..., Any]:
    """What typer makes of `app`: once in a process, since it takes longer than many a command."""
    return typer.main.get_command(app)


def main(arguments: list[str] | None = None) -> None:
    """Run a command. Exit code 0; 1 for bad input, said in one line; 130 when interrupted."""
    given = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):  # a name that the terminal cannot show is written with escapes
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    given = _rename_options(given)
    try:
        with as_notes():
            code = _commands()(
                given or ["--help"], prog_name="membound", standalone_mode=False, obj=("membound", *given)
            )
        if code == INTERRUPTED:  # what typer makes of Ctrl-C
            _interrupted()
        sys.stdout.flush()  # here, where its failure is answered, and not at exit
    except MemboundError as error:
        code = _refuse(_say_in_options(given, error))
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors", "PIL", "pooch"):
            raise
        needed, extra = ("Pillow", "images") if error.name == "PIL" else (error.name, "train")
        code = _refuse(f"this command needs {needed}: {install(extra)}")
    except (BrokenPipeError, SystemExit) as error:
        # The reader of our output has gone, as in `membound ... | head`; typer makes an exit with code 1 of it.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Stopped as stopped:
        sys.stderr.write(f"membound: {stopped}\n")
        code = INTERRUPTED
    except KeyboardInterrupt:
        code = _interrupted()
    except OSError as error:
        code = _refuse(f"{error.filename or 'the output'}: {error.strerror or error}")
    except Exception as error:
        # typer's own errors of usage, whose class depends on its version: they all can say themselves in a line.
        if type(error).__name__ == "Abort":
            code = _interrupted()
        elif not hasattr(error, "format_message"):
            raise
        else:
            suggest_close(error)
            words = error.format_message().rstrip(".")
            spaced = explain_space(given) if "extra argument" in words else None
            words = explain_value(error, given, _function_of(given)) or words
            absent = ABSENT.get(next(iter(given), ""), {})
            instead = [said for word in given if (said := absent.get(word.split("=", 1)[0]))]
            code = _refuse(instead[0] if instead else spaced or f"{words}: see {_help_of(given)}")
    sys.exit(code or 0)


def _rename_options(given: list[str]) -> list[str]:
    """Options by the names that they have now; who uses an old one is told.

    >>> _rename_options(["train", "lenet", "--steps=5"])
    ['train', 'lenet', '--steps=5']
    """
    names = RENAMED.get(next(iter(given), ""), {})
    found = []
    for word in given:
        option, *value = word.split("=", 1)
        if option in names and "--" not in found:
            sys.stderr.write(f"membound: warning: {option} is now {names[option]}\n")
            word = "=".join([names[option], *value])
        found.append(word)
    return found


def _say_in_options(given: list[str], error: MemboundError) -> str:
    """What an error says, with the command's options in the place of Python's keywords; all that it is about is named.

    >>> _say_in_options(["fit"], MemboundError("steps=0: a whole number from 1 is needed", about="steps"))
    '--steps 0: a whole number from 1 is needed'
    >>> _say_in_options(["fit"], MemboundError("there are no values 'f8'", about="values"))
    "there are no values 'f8' (--values)"
    """
    options = _options_of(next(iter(given), ""))
    text = in_options(str(error), options, error.about)
    found = [options[name] for name in error.about if name in options]
    missing = [each for each in found if each.startswith("--") and not re.search(rf"{each}(?![\w-])", text)]
    return f"{text} ({', '.join(dict.fromkeys(missing))})" if missing else text


def _options_of(command: str) -> dict[str, str]:
    """The options of a command by the keywords that they stand for."""
    there = getattr(_commands(), "commands", {}).get(command)
    options = {each.name: each.opts[0] for each in getattr(there, "params", ())}
    return options | {
        old: options[new] for old, new in ELSEWHERE.items() if new in options and old not in options
    }


def _help_of(given: list[str]) -> str:
    """The command that shows what there is.

    >>> _help_of(["fit", "lenet"]), _help_of(["fitt"])
    ('membound fit --help', 'membound --help')
    """
    named = next(iter(given), "")
    known = getattr(_commands(), "commands", {})
    return f"membound {named} --help" if named in known else "membound --help"


def _function_of(given: list[str]) -> Callable[..., Any]:
    """What the command calls, whose parameters are its options."""
    named = next(iter(given), "")
    found = (each.callback for each in app.registered_commands if each.name == named)
    return next(found, None) or membound


def _interrupted() -> int:
    sys.stderr.write("membound: interrupted\n")
    return INTERRUPTED


def _refuse(message: str) -> int:
    sys.stderr.write(f"membound: error: {' '.join(message.split())}\n")
    return 1
