"""Every figure, from trainings of a few steps on made-up images: all of it runs, is cached, and can be drawn again."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from profiles import chiefly

from membound import data
from membound.cli import main
from membound.data import ArraySplit, Dataset, subsample
from membound.errors import DataError, MemboundError
from membound.paper import FIGURES, figure, lab, progress, thresholding
from membound.paper.lab import Lab, Size
from membound.paper.reproduce import choose, nets_of, read, reproduce
from membound.search.workshop import this_process
from membound.train.updates import l0_project

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("missing", "said"),
    [("membound.paper", "run from a clone of the repository"), ("matplotlib", "draws with matplotlib")],
)
def test_what_is_not_installed_is_said_in_one_line(missing, said):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\nimport membound.cli.reproduce as it\n"
        f"it.find_spec = lambda name: None if name == {missing!r} else name\n"
        "from membound.cli import main\nmain(['reproduce', 'memory'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert said in line
    assert "pip install -e '.[train,paper]'" in line


def made_up(name: str) -> Dataset:
    """Noise where CIFAR-10 is asked for; of MNIST, which is in the repository, a part."""
    if name == "mnist":
        mnist = data.load("mnist")
        return replace(mnist, train=subsample(mnist.train, 300), test=subsample(mnist.test, 50))
    random = np.random.default_rng(0)
    train, test = (
        ArraySplit(random.integers(0, 256, (count, 3, 32, 32), np.uint8), np.arange(count) % 10)
        for count in (300, 50)
    )
    return Dataset("cifar10", train, test, tuple(f"class{number}" for number in range(10)))


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(lab, "load", made_up)
    monkeypatch.setattr(Size, "steps", lambda self, full: 3)
    monkeypatch.setattr(Size, "seeds", lambda self, full=3: range(1))


def make_lab(folder, trained=None):
    def count(job, facts):
        if trained is not None:
            trained.append(job.key)

    return Lab(folder, this_process(CPU), CPU, Size(quick=True), done=count)


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """One cache for all figures: they share greedy searches."""
    return tmp_path_factory.mktemp("networks")


@pytest.mark.parametrize("name", chiefly(["kernels"], FIGURES))
def test_a_figure_is_made_and_cached_and_drawn_again(name, tiny, networks, tmp_path):
    trained = []
    document = reproduce(name, make_lab(networks, trained), tmp_path)
    assert document["trained"] == len(trained)
    assert document["quick"]
    assert document["claims"] == []  # a smoke test has no verdict
    assert document["not_claimed"].startswith("nothing is claimed")
    claims = figure(name).claims(document["numbers"])
    assert claims
    for each in claims:
        assert each["holds"] in (True, False, None)
        assert each["detail"]
    rows = figure(name).table(document["numbers"])
    assert len({len(row) for row in rows}) == 1
    assert read(tmp_path, name) == json.loads(json.dumps(document))
    assert (tmp_path / f"{name}.svg").stat().st_size > 1000
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    trained.clear()
    again = reproduce(name, make_lab(networks, trained), tmp_path)
    assert trained == []  # nothing is trained twice
    assert again["numbers"] == document["numbers"]


def test_only_what_changed_is_trained_again(tiny, tmp_path):
    trained = []
    study = make_lab(tmp_path, trained).study("lenet", "paper")
    study.do([study.dense(0), study.ruled({"fc1": l0_project(0.1, 2)}, 0)])
    assert len(trained) == 2
    study.do([study.dense(0), study.ruled({"fc1": l0_project(0.2, 2)}, 0), study.dense(1)])
    assert len(trained) == 4


def test_what_is_cached_says_what_it_is_asked_for_now(tiny, tmp_path):
    study = make_lab(tmp_path).study("lenet", "paper")
    study.do([study.dense(0, about={"method": "one"})])
    (facts,) = study.do([study.dense(0, about={"method": "other"})])
    assert facts["job"]["about"] == {"method": "other"}


def test_tracks_are_what_they_say(monkeypatch):
    monkeypatch.setattr(lab, "load", made_up)
    full = Lab(None, this_process(CPU), CPU)
    paper, ours, longer = (full.study("quick", track) for track in lab.TRACKS)
    assert (paper.steps, ours.steps, longer.steps) == (5_000, 5_000, 20_000)
    assert [paper.recipe.lr(step) for step in (0, 3_999, 4_000)] == [0.001, 0.001, 0.0001]
    assert paper.recipe.optimizer == "caffe"
    assert paper.problem.data.preprocess.mean is not None
    assert paper.problem.data.preprocess.mean.shape == (3, 32, 32)
    assert paper.counted({"fc1.weight": 10}, 0).rules == {"fc1.weight": l0_project(10, 100)}
    assert ours.counted({"fc1.weight": 10}, 0).counts == {"fc1.weight": 10}
    assert paper.bytes({}) == 4 * 145_578


def test_a_figure_that_there_is_not_is_named(capsys):
    with pytest.raises(MemboundError, match="choose all, memory"):
        choose("nonsense")
    with pytest.raises(MemboundError, match=r"no figure 'treshold': did you mean thresholding\?"):
        choose("treshold")
    with pytest.raises(SystemExit) as exit:
        main(["reproduce", "nonsense"])
    assert exit.value.code == 1
    assert "there is no figure 'nonsense'" in capsys.readouterr().err


def test_the_command_draws_again_without_training(tiny, tmp_path, capsys):
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as exit:
        main(["reproduce", "frontier", "--quick", "--out", str(out), "--device", "cpu"])
    assert exit.value.code == 0
    told = capsys.readouterr().out.replace("\n", " ")
    assert "nonzero weights" in told
    assert "nothing is claimed" in told  # by networks as small as these
    assert "hold" not in told
    shutil.rmtree(out / "networks")
    (out / "frontier.svg").unlink()
    with pytest.raises(SystemExit) as exit:
        main(["reproduce", "frontier", "--out", str(out), "--draw", "--json"])
    assert exit.value.code == 0
    drawn = json.loads(capsys.readouterr().out)
    assert drawn["figure"] == "frontier"
    assert drawn["claims"] == []
    assert "verdict" not in json.dumps(drawn)
    assert (out / "frontier.svg").exists()
    assert not (out / "networks").exists()
    (out / "frontier.json").write_text("{}")
    with pytest.raises(SystemExit) as exit:
        main(["reproduce", "frontier", "--out", str(out), "--draw"])
    assert exit.value.code == 1
    assert "is not what `membound reproduce frontier` writes" in capsys.readouterr().err


def test_verdicts_that_an_earlier_version_wrote_of_a_smoke_test_are_dropped(tmp_path):
    path = Path(__file__).parents[2] / "results" / "reproduce" / "frontier.json"
    document = json.loads(path.read_text())
    assert document["claims"]
    (tmp_path / "frontier.json").write_text(json.dumps(document | {"quick": True}))
    assert read(tmp_path, "frontier")["claims"] == []
    (tmp_path / "frontier.json").write_text(json.dumps(document))
    assert read(tmp_path, "frontier")["claims"] == document["claims"]


@pytest.mark.full
def test_any_figure_takes_a_number_of_seeds(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(lab, "load", made_up)
    monkeypatch.setattr(Size, "steps", lambda self, full: 3)
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    with pytest.raises(SystemExit) as exit:
        main(["reproduce", "frontier", "--quick", "--seeds", "2", "--out", str(tmp_path), "--device", "cpu"])
    assert exit.value.code == 0
    said = capsys.readouterr()
    document = read(tmp_path, "frontier")
    assert document["command"] == "membound reproduce frontier --quick --seeds 2"
    assert [row["error"]["n"] for row in document["numbers"]["rows"]] == [2, 2, 2]
    assert " ± " in said.out
    assert re.search(r"  1 of 2 networks trained, about [\d.]+ s left", said.err)
    assert "  2 of 2 networks trained" in said.err
    with pytest.raises(SystemExit) as exit:
        main(["reproduce", "frontier", "--draw", "--seeds", "3", "--out", str(tmp_path)])
    assert exit.value.code == 1
    assert "leave --net, --seeds, --steps and --data out" in capsys.readouterr().err


def test_thresholding_has_both_tracks():
    path = Path(__file__).parents[2] / "results" / "reproduce" / "thresholding.json"
    document = json.loads(path.read_text())
    claims = thresholding.claims(document["numbers"])
    assert [each["verdict"] for each in claims] == [each["verdict"] for each in document["claims"]]
    assert len(claims) == 4
    head = thresholding.table(document["numbers"])[0]
    assert head[3:5] == ["projection, paper track", "projection, our track"]


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_trains_the_networks_whose_data_are_looked_for(name):
    module = figure(name)
    named = set(
        re.findall(r'\bstudy\((?:lab, )?"(\w+)"|\bStudy\(lab, "(\w+)"', Path(module.__file__).read_text())
    )
    found = {net for both in named for net in both if net} or {"lenet", "quick"}  # of panels, all there are
    assert set(nets_of(name, make_lab(None))) == found


@pytest.mark.parametrize(("name", "instead"), [("layers", True), ("kernels", False)])
def test_data_that_are_not_there_are_said_before_anything_is_trained(
    name, instead, tmp_path, monkeypatch, capsys
):
    def load(data_name):
        if data_name == "cifar10":
            raise DataError("cifar10 is in none of these folders")
        return made_up(data_name)

    monkeypatch.setattr(lab, "load", load)
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", name, "--quick", "--out", str(tmp_path / "out")])
    said = capsys.readouterr().err
    assert stopped.value.code == 1
    what = f"{name} --net quick" if instead else name
    assert f"{what}: cifar10 is in none of these folders" in " ".join(said.split())
    assert (", or take LeNet alone: --net lenet" in " ".join(said.split())) == instead
    assert list(tmp_path.iterdir()) == []  # nothing was trained, nor a folder made


def test_a_folder_in_a_folder_that_is_not_there_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "frontier", "--quick", "--out", str(tmp_path / "nope" / "x")])
    assert stopped.value.code == 1
    assert "create it with mkdir -p" in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        main(["reproduce", "frontier", "--quick", "--out", str(tmp_path / "file")])
    assert "file is a file, not a folder" in " ".join(capsys.readouterr().err.split())


def test_one_seed_has_no_spread(tiny, networks, tmp_path):
    """Of every number in a table; the fixture trains one seed."""
    for name in ("frontier", "kernels"):
        numbers = reproduce(name, make_lab(networks), tmp_path)["numbers"]
        assert not [cell for row in figure(name).table(numbers) for cell in row if "±" in cell]


def test_a_shortened_figure_says_so_and_claims_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(lab, "load", made_up)
    monkeypatch.setattr(Size, "seeds", lambda self, full=3: range(1))
    monkeypatch.setattr("membound.paper.frontier.WEIGHTS", {6_580: 0.94})
    with pytest.raises(SystemExit) as exit:
        main(["reproduce", "frontier", "--steps", "3", "--out", str(tmp_path), "--device", "cpu"])
    assert exit.value.code == 0
    said = capsys.readouterr()
    assert "SHORTENED: at most 3 steps a training" in " ".join(said.out.split())
    assert "1 network of 3 steps" in said.err
    document = read(tmp_path, "frontier")
    assert document["command"].endswith(" --steps 3")
    assert (document["quick"], document["most_steps"], document["claims"]) == (False, 3, [])


def test_what_a_figure_costs_is_said_before_it_is_trained(monkeypatch, tmp_path):
    said = []
    monkeypatch.setattr(figure("partial"), "run", lambda lab: said.append("trains") or {"panels": []})
    monkeypatch.setattr("membound.paper.reproduce.draw", lambda *given: None)
    for size in (Size(), Size(quick=True), Size(most_steps=9)):
        reproduce("partial", Lab(None, this_process(CPU), CPU, size, ("lenet",), say=said.append), tmp_path)
    assert said[1:] == ["trains"] * 3
    assert re.fullmatch(
        r"partial: in full, 276 networks, which took .* on NVIDIA H200, and take far longer on a CPU; "
        r"--quick, --seeds or --steps make it less",
        said[0],
    )
