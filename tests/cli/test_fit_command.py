"""fit as a user meets it: a budget in, files out, told what came of it; and one line for whatever is wrong."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from deployed import images, refused, run
from profiles import full

import membound as mb
from membound.cli.live import Board, describe_job
from membound.cli.options import check_there
from membound.search.jobs import Job
from membound.search.work import Work
from membound.store.file import read
from membound.train.run import Progress

NETS = """
from torch import nn
def small(classes=2):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 32), nn.ReLU(),
        nn.Linear(32, classes),
    )
def other(classes=2):
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, classes))
"""
NET = "fit_nets:small"
FIT = ("fit", NET, "--data", "own.npz", "--device", "cpu", "--batch-size", "20", "--lr", "0.02")
SHORT = (*FIT, "--values", "f16", "--steps", "40")
# The default. Choosing takes most of the time of so short a fit, so few tests here do it.
CHOSEN = ("--values", "auto")
OUT = ("--out", "net.safetensors")


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    """In a folder with networks in fit_nets.py and images in own.npz."""
    monkeypatch.chdir(tmp_path)
    Path("fit_nets.py").write_text(NETS)
    x, y = images(120)
    np.savez("own.npz", x_train=x[:80], y_train=y[:80], x_test=x[80:], y_test=y[80:])
    yield
    sys.modules.pop("fit_nets", None)


def fitted(capsys, *arguments) -> dict:
    """What --json says of a fit that succeeds; stdout has nothing else."""
    assert run(*SHORT, *OUT, *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def evaluated(capsys, file) -> dict:
    assert run("evaluate", file, "--data", "own.npz", "--json") == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.full
def test_a_score_of_ones_own(tmp_path, capsys):
    """The same weights as by the built-in strategy of that score."""
    (tmp_path / "own_scores.py").write_text("def large(name, weight):\n    return weight.abs()\n")
    asked = ("--budget", "4KiB", "--values", "f16", "--no-dense", "--strategy")
    layers = [
        fitted(capsys, *asked, strategy)["finals"][0]["layers"]
        for strategy in ("own_scores:large", "magnitude")
    ]
    assert layers[0] == layers[1]
    assert fitted(capsys, *asked, "uniform")["finals"][0]["layers"] != layers[0]


def test_a_budget_becomes_a_file_within_it_and_a_report(capsys):
    facts = fitted(capsys, *CHOSEN, "--budget", "4KiB", "--hub", "tiny")
    (final,) = facts["finals"]
    assert os.path.getsize("net.safetensors") == final["file_bytes"] <= 4096
    assert final["file_bytes"] > 3700, "the budget is used"
    assert final["limit"] == 4096
    assert facts["dense"]["file_bytes"] > 4 * final["file_bytes"]
    assert final["nonzeros"] < facts["dense"]["nonzeros"]
    assert facts["budget"] == {"kind": "file", "limit": 4096, "text": "4KiB"}
    assert "curves" not in final
    assert "curves" not in facts["dense"]
    assert facts["report"] == "net.report.html"
    assert facts["hub"] == "tiny"
    assert Path("tiny/model.safetensors").read_bytes() == Path("net.safetensors").read_bytes()
    card, dense = Path("tiny/README.md").read_text(), facts["dense"]
    assert f"| bytes of the file | {final['file_bytes']:,} | {dense['file_bytes']:,} |" in card
    assert f"| nonzeros | {final['nonzeros']:,} | {dense['nonzeros']:,} |" in card
    assert f"of own.npz | {final['accuracy']:.2f} % | {dense['accuracy']:.2f} % |" in card
    assert f"{final['file_bytes']:,} bytes" in Path("net.report.html").read_text()
    again = evaluated(capsys, "net.safetensors")
    assert (again["errors"], again["images"]) == (final["errors"], 40)
    assert final["accuracy"] > 90, "dark and bright are easily told apart"


def test_json_goes_to_stdout_and_progress_to_stderr(capsys):
    """As when a person redirects stdout alone: minutes without a word look like a hang."""
    assert run(*SHORT, *OUT, "--budget", "4KiB", "--no-report", "--json") == 0
    captured = capsys.readouterr()
    (final,) = json.loads(captured.out)["finals"]
    assert re.search(r"^dense: trained, accuracy .*\n(.*\n)*4KiB: trained, accuracy ", captured.err, re.M)
    assert final["verdict"] in ("better", "worse", "within the spread")
    assert (final["mean"], final["std"], final["members"]) == (None, None, [])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--budget", "4KiB", "--seeds", "2"),
        full(("--budget", "8KiB", "--ram", "90KiB", "--members", "2")),
        full(("--budget", "30KiB", "--target", "micro", "--latency", "900ms")),
        full(("--within", "5")),
    ],
)
def test_every_key_of_json_is_documented(arguments, capsys):
    found = fitted(capsys, *CHOSEN, *arguments, "--no-report")
    page = (Path(__file__).parents[2] / "docs" / "RESEARCH.md").read_text()
    section = page.split("\n## The JSON record\n")[1].split("\n## ")[0]
    top, final = (
        "\n".join(re.findall(r"^\| (.*?) \|", part, re.M)) for part in section.split("Each of `finals`")
    )
    assert [key for key in found if f"`{key}`" not in top] == []
    assert [key for each in found["finals"] for key in each if f"`{key}`" not in final] == []
    for each in found["finals"]:
        assert each["sha256"] == hashlib.sha256(Path(each["file"]).read_bytes()).hexdigest()
        seeds = each.get("seeds") or {"mean": None, "std": None}
        assert (each["mean"], each["std"]) == (seeds["mean"], seeds["std"])


def test_people_get_tables_and_are_told_where_things_are(capsys):
    asked = (*SHORT, *OUT, "--budget", "4KiB", "--run-dir", "kept", "--verbose", "--tensorboard")
    assert run(*asked) == 0
    assert {path.name for path in Path("kept/tensorboard").iterdir()} == {"dense", "final-4KiB-0"}
    captured = capsys.readouterr()
    for words in ("dense", "4KiB", "accuracy", "of 40", "latency", "4.weight", "32x128"):
        assert words in captured.out
    assert re.search(r"^file +net\.safetensors\nreport +net\.report\.html\nrun +kept$", captured.out, re.M)
    done = [
        line
        for line in captured.err.splitlines()
        if re.match(r"(dense|4KiB): trained, accuracy .* % in torch on [\d,]+ examples, \d", line)
    ]
    assert [line.split(":")[0] for line in done] == ["dense", "4KiB"]
    assert run(*SHORT, *OUT, "--budget", "4KiB", "--run-dir", "kept", "--verbose") == 0
    assert ": trained" not in capsys.readouterr().err, "what is finished is not trained again"


def test_several_budgets_are_several_files(capsys):
    facts = fitted(capsys, "--budget", "3 KiB", "--budget", "30%", "--no-dense", "--no-report")
    assert [final["file"] for final in facts["finals"]] == ["net-3KiB.safetensors", "net-30pct.safetensors"]
    for final in facts["finals"]:
        assert os.path.getsize(final["file"]) == final["file_bytes"] <= final["limit"]
    assert facts["dense"] is None
    assert facts["report"] is None
    assert sorted(map(str, Path().glob("*.*"))) == [
        "fit_nets.py", "net-30pct.safetensors", "net-3KiB.safetensors", "own.npz"
    ]  # fmt: skip


@pytest.mark.full
def test_an_ensemble_is_one_file(capsys):
    more = ("--budget", "8KiB", "--members", "2", "--average", "probabilities")
    (final,) = fitted(capsys, *more)["finals"]
    assert len(final["members"]) == 2
    assert os.path.getsize("net.safetensors") <= 8192
    names = {layer["name"].split(".")[0] for layer in final["layers"]}
    assert names == {"0", "1"}
    scores = mb.load("net.safetensors")(np.zeros((1, 1, 6, 6), np.float32))
    assert scores.sum() == pytest.approx(1, abs=1e-5), "probabilities"
    assert evaluated(capsys, "net.safetensors")["errors"] == final["errors"]
    assert run(*SHORT, *OUT, *more) == 0
    assert re.search(r"^members +[\d.]+ %, [\d.]+ %$", capsys.readouterr().out, re.M)


@pytest.mark.full
def test_members_start_from_random_weights_of_their_own_or_from_those_given(capsys):
    more = ("--budget", "60KiB", "--members", "2", "--steps", "1", "--no-dense", "--no-report")
    fitted(capsys, *more)
    assert abs(likeness_of_members()) < 0.5
    assert run("train", NET, "--data", "own.npz", "--steps", "1", "--out", "w.safetensors") == 0
    capsys.readouterr()
    fitted(capsys, *more, "--init", "w.safetensors")
    assert likeness_of_members() > 0.9


def likeness_of_members() -> float:
    """How alike the first layers of both members are."""
    tensors = read("net.safetensors").decode().tensors
    return float(np.corrcoef(tensors["0.0.weight"].ravel(), tensors["1.0.weight"].ravel())[0, 1])


@pytest.mark.parametrize(
    ("bound", "kind", "limit", "used"),
    [
        (("--nonzeros", "900"), "nonzeros", 900, 0.9),
        # Working memory jumps where a layer is dense enough to be multiplied as one.
        (("--ram", "12 KB", "--batch", "4"), "ram", 12000, 0.7),
    ],
    ids=["nonzeros", "ram"],
)
@pytest.mark.one_in(2)
def test_a_budget_counts_what_it_says(bound, kind, limit, used, capsys):
    facts = fitted(capsys, *bound, "--no-dense", "--strategy", "uniform")
    (final,) = facts["finals"]
    assert final["limit"] == limit
    assert used * limit < final["size"] <= limit
    assert final["memory_bytes" if kind == "ram" else "nonzeros"] <= final["size"]
    assert facts["budget"]["kind"] == kind
    assert facts["strategy"] == "uniform"


@pytest.mark.full
def test_the_smallest_within_some_points_of_dense(capsys):
    facts = fitted(capsys, "--within", "5", "--validation", "30")
    (final,) = facts["finals"]
    assert final["file_bytes"] < facts["dense"]["file_bytes"] / 2
    assert facts["candidates"][0]["key"] == "dense-part"
    assert len(facts["candidates"]) > 2
    assert "within 5 points of dense" in Path("net.report.html").read_text()


@pytest.mark.full
def test_a_greedy_search_of_some_rounds(capsys):
    greedy = (
        "--strategy",
        "greedy",
        "--greedy-step",
        "0.5",
        "--candidate-steps",
        "10",
        "--validation",
        "0.25",
    )
    facts = fitted(capsys, "--budget", "2KiB", *greedy)
    rounds = {candidate["round"] for candidate in facts["candidates"]}
    assert rounds >= {0, 1, 2}
    first = [candidate for candidate in facts["candidates"] if candidate["round"] == 1]
    assert {candidate["layer"] for candidate in first} == {"0", "4", "6"}
    assert sum(candidate["won"] for candidate in first) == 1
    assert facts["finals"][0]["file_bytes"] <= 2048


def test_a_fit_goes_on_from_weights_and_their_preprocessing(capsys):
    train = ("train", NET, "--data", "own.npz", "--steps", "60", "--batch-size", "20", "--mean", "image")
    assert run(*train, "--out", "w.safetensors") == 0
    capsys.readouterr()
    (final,) = fitted(capsys, "--budget", "4KiB", "--init", "w.safetensors", "--steps", "5")["finals"]
    assert final["accuracy"] > 90, "five steps from scratch are not enough"
    stored = read("net.safetensors")
    assert stored.preprocess["scale"] == pytest.approx(1 / 255), "as with --mean image"
    assert evaluated(capsys, "net.safetensors")["errors"] == final["errors"]
    assert (
        run(*SHORT, *OUT, "--budget", "4KiB", "--init", "w.safetensors", "--no-dense", "--mean", "0.5/0.25")
        == 0
    )
    said = capsys.readouterr().err
    assert "% on the test images, prepared by mean 127.5, std 63.75 of pixels from 0 to 255" in said
    assert "is the file of weights" in refused(
        capsys, *SHORT, "--out", "w.safetensors", "--budget", "4KiB", "--init", "w.safetensors"
    )


def test_what_is_left_dense_stays_dense(capsys):
    facts = fitted(capsys, "--budget", "30%", "--protect", "0", "--protect", "6", "--mean", "channel")
    kept = {
        layer["name"]: layer["nonzeros"] / layer["original_size"] for layer in facts["finals"][0]["layers"]
    }
    assert kept["0.weight"] == kept["6.weight"] == 1 > kept["4.weight"]


def test_a_budget_above_dense_cuts_nothing(capsys):
    (final,) = fitted(capsys, "--budget", "1MiB", "--no-dense")["finals"]
    assert final["nonzeros"] == final["parameters"]


LONG = (*SHORT, "--steps", "150", "--budget", "4KiB", "--budget", "6KiB", "--no-dense", "--no-report")


@pytest.mark.parametrize(
    "signals", [(signal.SIGTERM,), full((signal.SIGINT, signal.SIGTERM))], ids=["once", "twice"]
)
def test_interrupted_it_goes_on_to_the_same_files_byte_for_byte(capsys, signals):
    again = (*LONG, *OUT, "--run-dir", "kept")
    command = [sys.executable, "-m", "membound", *again]
    for number in signals:
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            before = _ledger_lines()
            while _ledger_lines() == before and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(number)
            said = process.stderr.read()
        assert process.returncode == 130, said
        assert said.endswith("membound: interrupted: run the same command again to go on\n")
        assert not list(Path().glob("net*"))
    assert run(*again) == 0
    assert run(*LONG, "--out", "whole.safetensors") == 0
    for budget in ("4KiB", "6KiB"):
        resumed, whole = Path(f"net-{budget}.safetensors"), Path(f"whole-{budget}.safetensors")
        assert resumed.read_bytes() == whole.read_bytes()


def _ledger_lines() -> int:
    path = Path("kept/ledger.jsonl")
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_interrupted_without_a_run_directory_nothing_was_saved(capsys, monkeypatch):
    monkeypatch.setattr(
        "membound.search.finals._describe_stored", lambda *_: signal.raise_signal(signal.SIGTERM)
    )
    assert run(*SHORT, *OUT, "--budget", "4KiB") == 130
    said = "nothing was saved, as there is no --run-dir: run the command again, with one if it may be stopped"
    assert capsys.readouterr().err.endswith(f"membound: interrupted: {said}\n")
    assert not list(Path().glob("net*"))


def test_interrupted_before_anything_is_saved_it_says_so(capsys, monkeypatch):
    monkeypatch.setattr("membound.data.load", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    assert run(*SHORT, *OUT, "--budget", "4KiB", "--run-dir", "kept") == 130
    assert capsys.readouterr().err.endswith(
        "membound: interrupted: nothing was saved yet: run the same command to start again\n"
    )
    assert not Path("kept").exists()


def test_a_bad_name_of_a_file_is_refused_before_torch_is_loaded():
    command = (sys.executable, "-m", "membound", *SHORT, "--budget", "4KiB", "--out", "net.pt")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("membound: error: net.pt: weights are written as safetensors")


def test_a_misspelt_network_module_or_data_set_is_refused_before_torch_is_loaded(capsys, monkeypatch):
    Path("early_nets.py").write_text("from torch import nn\n\ndef net():\n    return nn.Linear(2, 2)\n")
    Path("later_nets.py").write_text("for name in ():\n    pass\n")
    monkeypatch.setattr("membound.cli.options.reading", lambda: pytest.fail("torch would be loaded"))
    for net, data, said in (
        ("lenett", "mnist", "did you mean 'lenet'?"),
        ("lenet", "mnit", "did you mean mnist?"),
        ("lenet", "nothere.npz", "there is no file nothere.npz: check the path; allowed are mnist"),
        ("early_nets:nett", "mnist", "'early_nets' has no 'nett'; did you mean 'net'? there are: net\n"),
        ("eerly_nets:net", "mnist", "did you mean early_nets:net?"),
    ):
        assert run("fit", net, "--data", data, "--budget", "4KiB", *OUT) == 1
        assert said in capsys.readouterr().err
    check_there("early_nets:net", "mnist")
    check_there("early_nets:nn.Linear", "mnist")
    check_there("later_nets:net", "mnist")  # only running it can tell


BAD = {
    "net": (("fit", "lenett", "--data", "mnist", "--budget", "4KiB", *OUT), "did you mean"),
    "data": (("fit", NET, "--data", "minst", "--budget", "4KiB", *OUT), "did you mean mnist?"),
    "no bound": (
        (*SHORT, *OUT),
        "(--budget, --ram, --nonzeros, --within, --stages, --latency), such as a budget of 20KiB: got none",
    ),
    "two bounds": (
        (*SHORT, *OUT, "--budget", "4KiB", "--within", "1"),
        "got --budget and --within",
    ),
    "zero": ((*SHORT, *OUT, "--budget", "0"), "cannot be met"),
    "parsecs": ((*SHORT, *OUT, "--budget", "12 parsecs"), "'12 parsecs' is not a size"),
    "before data": (
        ("fit", NET, "--data", "nowhere", *OUT, "--budget", "50XB"),
        "budget: '50XB' is not a size",
    ),
    "two words": ((*SHORT, *OUT, "--budget", "6", "KB"), "--budget 6 KB is two words: did you mean 6KB?"),
    "nowhere to write": (
        (*SHORT, "--budget", "4KiB", "--out", "/proc/net.safetensors"),
        "nothing can be written",
    ),
    "too small": ((*SHORT, *OUT, "--budget", "200"), "cannot be met"),
    "for any": (
        (*SHORT, *OUT, "--budget", "100"),
        "no network takes less than 128 bytes; did you mean 100KB?",
    ),
    "before torch": (("fit", NET, "--data", "nowhere", *OUT, "--ram", "90"), "did you mean 90KB or 90%?"),
    "percent": ((*SHORT, *OUT, "--budget", "120%"), "at most 100%"),
    "same": ((*SHORT, *OUT, "--budget", "4KiB", "--budget", "4096"), "not all different"),
    "within": ((*SHORT, *OUT, "--within", "-1"), "--within -1"),
    "no members": ((*SHORT, *OUT, "--budget", "4KiB", "--members", "0"), "--members"),
    "too many": ((*SHORT, *OUT, "--budget", "900", "--members", "8"), "8 such networks take"),
    "no out": ((*SHORT, "--budget", "4KiB"), "--out"),
    "folder": ((*SHORT, "--budget", "4KiB", "--out", "no/net.safetensors"), "there is no folder no"),
    "suffix": ((*SHORT, "--budget", "4KiB", "--out", "net.pt"), "net.safetensors"),
    "report folder": ((*SHORT, *OUT, "--budget", "4KiB", "--report", "no/r.html"), "there is no folder no"),
    "report suffix": ((*SHORT, *OUT, "--budget", "4KiB", "--report", "own.npz"), "own.html"),
    "report twice": (
        (*SHORT, *OUT, "--budget", "4KiB", "--report", "r.html", "--no-report"),
        "leave one out",
    ),
    "init": ((*SHORT, *OUT, "--budget", "4KiB", "--init", "nowhere.pt"), "nowhere.pt"),
    "layer": ((*SHORT, *OUT, "--budget", "4KiB", "--layer", "conv*"), "'conv*'"),
    "protect": ((*SHORT, *OUT, "--budget", "4KiB", "--protect", "*"), "no weight is left"),
    "steps": ((*FIT, *OUT, "--budget", "4KiB", "--steps", "0"), "--steps"),
    "ray": ((*SHORT, *OUT, "--budget", "4KiB", "--ray", "localhost:1"), "localhost:1"),
    "strategy": ((*SHORT, *OUT, "--budget", "4KiB", "--strategy", "lucky"), "no strategy 'lucky'"),
    "own strategy": (
        (*SHORT, *OUT, "--budget", "4KiB", "--strategy", "math:pi"),
        "math:pi is a float: name a function",
    ),
    "no strategy": (
        (*SHORT, *OUT, "--budget", "4KiB", "--strategy", "math:taylor"),
        "'math' has no 'taylor'",
    ),
    "values": ((*SHORT, *OUT, "--budget", "4KiB", "--values", "f8"), "no values 'f8'"),
    "means": ((*SHORT, *OUT, "--budget", "4KiB", "--mean", "imagenet"), "is for 3 channels, images have 1"),
    "mean": ((*SHORT, *OUT, "--budget", "4KiB", "--mean", "median"), "no mean 'median'"),
    "run file": ((*SHORT, *OUT, "--budget", "4KiB", "--run-dir", "own.npz"), "own.npz"),
    "average": ((*SHORT, *OUT, "--budget", "4KiB", "--average", "scores"), "--average needs --members"),
    "no average": (
        (*SHORT, *OUT, "--budget", "9KiB", "--members", "2", "--average", "x"),
        "no average of 'x'",
    ),
    "no dense": ((*SHORT, *OUT, "--within", "1", "--no-dense"), "leave --no-dense out"),
    "batch": ((*SHORT, *OUT, "--budget", "4KiB", "--batch", "4"), "--batch needs --ram"),
    "greedy": ((*SHORT, *OUT, "--budget", "4KiB", "--greedy-step", "0.1"), "needs --strategy greedy"),
    "candidates": (
        (*SHORT, *OUT, "--budget", "4KiB", "--candidate-steps", "9"),
        "needs --strategy greedy",
    ),
    "validation": (
        (*SHORT, *OUT, "--budget", "4KiB", "--validation", "9"),
        "--strategy greedy, --within, --stages or --widths",
    ),
    "some": ((*SHORT, *OUT, "--within", "1", "--validation", "some"), "'some' is not a count"),
    "name": ((*SHORT, *OUT, "--budget", "4KiB", "--name", "a=b"), "--name needs --init"),
    "hub": ((*SHORT, *OUT, "--budget", "4KiB", "--hub", "own.npz"), "own.npz is a file: give a folder"),
    "hubs": (
        (*SHORT, *OUT, "--budget", "4KiB", "--budget", "5KiB", "--hub", "new"),
        "--hub is a folder for one network",
    ),
    "curves": ((*SHORT, *OUT, "--budget", "4KiB", "--tensorboard"), "--tensorboard needs --run-dir"),
    "far curves": (
        (*SHORT, *OUT, "--budget", "4KiB", "--tensorboard", "--run-dir", "r", "--ray", "auto"),
        "the workers of a cluster write no curves",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_leaves_nothing_behind(case, capsys):
    if case == "ray":
        pytest.importorskip("ray")
    arguments, words = BAD[case]
    before = sorted(Path().iterdir())
    assert words in refused(capsys, *arguments)
    assert [path for path in sorted(Path().iterdir()) if path.name != "__pycache__"] == before


def test_weights_of_another_network_are_refused(capsys):
    assert run("train", "fit_nets:other", "--data", "own.npz", "--steps", "1", "--out", "w.safetensors") == 0
    capsys.readouterr()
    assert "does not fit the network" in refused(
        capsys, *SHORT, *OUT, "--budget", "4KiB", "--init", "w.safetensors"
    )


def test_a_run_directory_of_other_options_is_refused(capsys):
    fitted(capsys, "--budget", "4KiB", "--run-dir", "kept", "--no-dense")
    words = refused(capsys, *SHORT, *OUT, "--budget", "5KiB", "--run-dir", "kept", "--no-dense")
    assert "kept" in words
    assert "4KiB" in words


def test_a_report_that_cannot_be_written_loses_nothing(capsys, monkeypatch):
    def fail(path, result):
        raise mb.MemboundError(f"{path}: the report cannot be written: No space left on device")

    monkeypatch.setattr("membound.report.write_report", fail)
    assert run(*SHORT, *OUT, "--budget", "4KiB", "--json") == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["report"] is None
    assert captured.err.endswith(
        "\nmembound: error: net.report.html: the report cannot be written: No space left on device; "
        "the network is in net.safetensors\n"
    )
    assert mb.load("net.safetensors") is not None


def test_what_was_typed_is_what_another_command_is_made_of(monkeypatch):
    told = []
    monkeypatch.setattr("membound.cli.fit.tell", lambda *given: told.append(given))
    assert run(*SHORT, *OUT, "--budget", "4KiB", "--no-dense", "--no-report") == 0
    assert told[0][-1][:2] == ("membound", "fit")
    assert told[0][-1][-2:] == ("--no-dense", "--no-report")


# The table of who watches


def facts_of(job, **changes):
    return {"steps": 100, "accuracy": 98.0, "size": 2000, "seconds": 1.0} | changes


def test_the_time_left_is_that_of_all_trainings_of_the_stage():
    now = [0.0]
    board = Board(clock=lambda: now[0])
    board.say("training")
    jobs = [Job(f"final-{number}", 0, limit=1, about={"budget": f"{number}KiB"}) for number in range(3)]
    board._forecast.begin({job.key: 100 for job in jobs})
    board.show(jobs[0], Progress(10, 100, 1.0))
    assert board.headline() == "training", "one look says nothing about the pace"
    now[0] = 4.0
    board.show(jobs[0], Progress(30, 100, 1.0))
    assert board.headline() == "training", "less than a tenth of the stage was seen"
    now[0] = 6.0
    board.show(jobs[0], Progress(40, 100, 1.0))
    assert board.headline() == "training: about 52.0 s left"
    now[0] = 8.0
    assert board.headline() == "training: about 50.0 s left"


@pytest.mark.parametrize(("seconds", "times"), [(5.0, 0), (50.0, 1)])
def test_a_run_dir_is_named_once_where_minutes_are_left(seconds, times, capsys):
    now = [0.0]
    board = Board(lambda: now[0], "give --run-dir")
    for step in (0, 20, 40):
        now[0] = step / 20 * seconds
        board.show(Job("dense", 0), Progress(step, 100, 1.0))
    assert capsys.readouterr().err == times * "give --run-dir\n"


def test_the_time_of_the_whole_fit_is_beside_that_of_the_stage():
    now = [0.0]
    board = Board(clock=lambda: now[0])
    board.say("training the dense network")
    board.expect(Work(100.0, 100, ruled=200.0, bounded=2.0))
    board._forecast.begin({"dense": 100})
    board.show(Job("dense", 0), Progress(0, 100, 1.0))
    now[0] = 5.0
    board.show(Job("dense", 0), Progress(50, 100, 1.0))
    assert board.headline() == "training the dense network: about 5.0 s left, at least 15.0 s left in all"
    board.done(Job("dense", 0), facts_of(None))
    small = Job("final-2KB-0", 0, limit=2000)
    board._forecast.begin({small.key: 100})
    for step, when in ((0, 10.0), (50, 20.0)):
        now[0] = when
        board.show(small, Progress(step, 100, 1.0))
    assert board.headline() == "training the dense network: about 10.0 s left", "nothing else is to come"


def test_steps_of_an_earlier_start_say_nothing_about_the_pace():
    now = [0.0]
    board = Board(clock=lambda: now[0])
    job = Job(
        "r002-conv1", 0, tuning=True, counts={"conv1.weight": 3}, about={"round": 2, "layer": "conv1.weight"}
    )
    board.show(job, Progress(800, 1000, 1.0))
    now[0] = 10.0
    board.show(job, Progress(900, 1000, 1.0))
    assert board.headline() == "checking the bound: about 10.0 s left in round 2"


def test_the_table_stays_small_and_keeps_what_is_under_way():
    board = Board(clock=lambda: 0.0)
    for number in range(40):
        job = Job(f"r{number}", 0, counts={}, about={"round": number, "layer": "fc.weight"})
        board.show(job, Progress(1, 100, 1.0))
        if number != 3:
            board.done(job, facts_of(job))
    shown = [describe_job(row.job) for row in board.rows()]
    assert len(shown) == 12
    assert shown[-1] == "round 3: fc"
    assert shown[-2] == "round 39: fc"
    assert len(board._rows) <= 14


def test_a_person_sees_a_table_and_only_json_is_on_stdout(capsys, monkeypatch):
    class Terminal:
        """stderr as a terminal that keeps what is written."""

        def __init__(self):
            self.written = ""

        def isatty(self):
            return True

        def write(self, text):
            self.written += text
            return len(text)

        def flush(self):
            pass

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert run(*FIT, *OUT, "--steps", "90", "--budget", "4KiB", "--no-dense", "--no-report", "--json") == 0
    assert json.loads(capsys.readouterr().out)["finals"]
    assert "/90" in terminal.written or "done" in terminal.written
    assert "network" in terminal.written
    assert "reading the network and the data" in terminal.written
