"""The run directory of a fit: it outlives kills, full disks and damage, and never restarts in silence."""

import errno
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import recorder
import torch
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples, full

from membound.errors import TrainingError
from membound.search.ledger import Entry, open_run

CONFIG = {"network": "0123", "data": [60000, [1, 28, 28]], "options": {"steps": 100, "keep": 1.0}}
SIX = {"weight": torch.arange(6.0)}


@pytest.fixture
def folder(tmp_path):
    """A run with three finished jobs; the last one has no weights."""
    path = tmp_path / "run"
    with open_run(path, CONFIG) as run:
        run.record("a", {"accuracy": 98.5}, SIX)
        run.record("b", {"accuracy": 1 / 3}, {"weight": torch.ones(2, 3, dtype=torch.float16)})
        run.record("c", {"why": "diverged"}, None)
    return path


def reopened(path: Path) -> list[Entry]:
    with open_run(path, CONFIG) as run:
        return run.entries()


def edit(path: Path, change) -> None:
    """Change the list of the ledger's lines, each with its end."""
    ledger = path / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    change(lines)
    ledger.write_bytes(b"".join(lines))


def test_what_is_recorded_is_there_again(folder):
    with open_run(folder, CONFIG) as run:
        assert run.entries() == [
            Entry("a", {"accuracy": 98.5}, True),
            Entry("b", {"accuracy": 1 / 3}, True),
            Entry("c", {"why": "diverged"}, False),
        ]
        assert run.finished("b") == run.entries()[1]
        assert run.finished("d") is None
        assert torch.equal(run.weights("a")["weight"], SIX["weight"])
        assert run.weights("b")["weight"].dtype == torch.float16
        run.record("d", {}, SIX)
    assert [entry.key for entry in reopened(folder)] == ["a", "b", "c", "d"]


def test_the_layout_is_plain_files(folder):
    reopened(folder)
    names = {place.name for place in folder.iterdir()}
    assert names == {"config.json", "environment.json", "ledger.jsonl", "weights", "log.txt", "lock"}
    assert json.loads((folder / "config.json").read_text())["config"] == CONFIG
    starts = json.loads((folder / "environment.json").read_text())
    assert len(starts) == 2
    assert starts[0].keys() >= {"command", "date", "hardware", "versions", "torch_threads"}
    assert all(json.loads(line)["key"] for line in (folder / "ledger.jsonl").read_text().splitlines())
    log = (folder / "log.txt").read_text().splitlines()
    assert log[0].endswith(" begins")
    assert log[-1].endswith(" resumes after 3 finished jobs")


def test_a_start_may_say_more_about_itself(tmp_path):
    with open_run(tmp_path / "run", CONFIG, {"device": "a GPU"}):
        pass
    assert json.loads((tmp_path / "run" / "environment.json").read_text())[0]["device"] == "a GPU"


def test_without_a_path_the_folder_vanishes():
    with open_run(None, CONFIG) as run:
        run.record("a", {"loss": 0.1}, SIX)
        assert torch.equal(run.weights("a")["weight"], SIX["weight"])
        assert run.path.is_dir()
    assert not run.path.exists()


def test_a_job_has_a_folder_until_it_is_recorded(folder):
    with open_run(folder, CONFIG) as run:
        place = run.job_folder("d")
        (place / "checkpoint.safetensors").write_bytes(b"half way")
    with open_run(folder, CONFIG) as run:
        assert (run.job_folder("d") / "checkpoint.safetensors").read_bytes() == b"half way"
        run.record("d", {}, None)
        assert not place.exists()
        with pytest.raises(TrainingError, match="'d' is recorded already"):
            run.job_folder("d")
    place.mkdir()  # as if killed before it could be removed
    reopened(folder)
    assert not place.exists()


def test_the_log_is_one_line_a_text(folder):
    with open_run(folder, CONFIG) as run:
        run.log("two\nlines, ümläut")
    assert (folder / "log.txt").read_text(encoding="utf-8").splitlines()[-1].endswith(" two lines, ümläut")


def test_recording_twice_is_refused(folder):
    before = (folder / "weights" / "a.safetensors").read_bytes()
    with open_run(folder, CONFIG) as run, pytest.raises(TrainingError, match="'a' is recorded already"):
        run.record("a", {}, {"weight": torch.zeros(1)})
    assert (folder / "weights" / "a.safetensors").read_bytes() == before


@pytest.mark.parametrize("key", ["", ".", "..", ".hidden", "a/b", "../a", "a b", "ä", "a\n", "a" * 201])
def test_keys_that_are_not_names_of_files_are_refused(key):
    with open_run(None, CONFIG) as run:
        for call in (run.finished, run.weights, run.forget_weights, run.job_folder):
            with pytest.raises(TrainingError, match="cannot be a job's key"):
                call(key)
        with pytest.raises(TrainingError, match="cannot be a job's key"):
            run.record(key, {}, None)


@examples(50)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text()
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_facts_round_trip_exactly(value):
    with open_run(None, CONFIG) as run:
        assert run.record("a", {"value": value}, None).facts == {"value": value}
        again = type(run)(run.path).entries()[0].facts
        assert json.dumps(again) == json.dumps({"value": value})  # also -0.0, and 1 apart from 1.0 and True


def test_what_is_returned_is_what_a_resumed_run_reads(tmp_path):
    with open_run(tmp_path / "run", CONFIG) as run:
        facts = {"loss": float("nan"), "best": [float("inf")], "shape": (1, 28), "x\n\u2028": "\ud800"}
        entry = run.record("a", facts, None)
    assert entry.facts == {"loss": None, "best": [None], "shape": [1, 28], "x\n\u2028": "\ud800"}
    assert reopened(tmp_path / "run") == [entry]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"scores": [1.0, torch.ones(1)]}, r"facts\.scores\[1\] is a Tensor"),
        ({"by layer": {3: 0.1}}, r"facts\.by layer: the key 3 is not a text"),
        ({"keys": {1, 2}}, r"facts\.keys is a set"),
    ],
)
def test_facts_that_are_not_json_are_refused_before_anything_is_written(folder, facts, message):
    with open_run(folder, CONFIG) as run, pytest.raises(TrainingError, match=message):
        run.record("d", facts, SIX)
    assert not (folder / "weights" / "d.safetensors").exists()
    assert len(reopened(folder)) == 3


# weights


def test_weights_that_were_dropped_are_promised_no_more(folder):
    with open_run(folder, CONFIG) as run:
        for _ in range(2):  # a resumed search drops them again
            run.forget_weights("a")
        run.forget_weights("c")  # it never had any
        assert run.finished("a") == Entry("a", {"accuracy": 98.5}, False)
        assert not (folder / "weights" / "a.safetensors").exists()
        with pytest.raises(TrainingError, match="'a' keeps no weights"):
            run.weights("a")
        with pytest.raises(TrainingError, match="'nothing' is not finished"):
            run.forget_weights("nothing")
        with pytest.raises(TrainingError, match="'nothing' is not finished"):
            run.weights("nothing")
    assert len((folder / "ledger.jsonl").read_text().splitlines()) == 4
    (folder / "weights" / "a.safetensors").write_bytes(b"as if killed before it could be removed")
    assert [entry.has_weights for entry in reopened(folder)] == [False, True, False]
    assert not (folder / "weights" / "a.safetensors").exists()


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def swap(path: Path) -> None:
    shutil.copy(path.with_name("a.safetensors"), path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (Path.unlink, "is gone, which the ledger records"),
        (flip, r"is not the file that the ledger records \(its checksum is another\)"),
        (swap, "is not the file that the ledger records"),
        (
            lambda path: os.truncate(path, 20),
            r"is not the file that the ledger records \(it has 20 bytes, not \d+\)",
        ),
    ],
    ids=["gone", "flipped", "swapped", "cut"],
)
def test_damaged_weights_are_said_and_can_be_trained_again(folder, damage, message):
    damage(folder / "weights" / "b.safetensors")
    with open_run(folder, CONFIG) as run:
        assert torch.equal(run.weights("a")["weight"], SIX["weight"])
        with pytest.raises(
            TrainingError, match=rf"b\.safetensors {message}.*delete line 2 of .*ledger\.jsonl"
        ):
            run.weights("b")
    edit(folder, lambda lines: lines.pop(1))
    with open_run(folder, CONFIG) as run:
        assert run.finished("b") is None
        run.record("b", {"accuracy": 1 / 3}, SIX)
        assert torch.equal(run.weights("b")["weight"], SIX["weight"])


def test_the_line_to_delete_is_named_also_in_the_process_that_wrote_it(folder):
    with open_run(folder, CONFIG) as run:
        run.forget_weights("a")
        run.record("d", {}, SIX)
        (folder / "weights" / "d.safetensors").unlink()
        with pytest.raises(TrainingError, match="delete line 5 of"):
            run.weights("d")
    assert json.loads((folder / "ledger.jsonl").read_text().splitlines()[4])["key"] == "d"


# the ledger


@pytest.mark.parametrize("cut", [1, 2, 30, -1])
def test_a_torn_last_line_is_cut_off_and_logged(folder, cut):
    def tear(lines):
        lines[-1] = lines[-1][: cut if cut > 0 else -3]

    edit(folder, tear)
    assert [entry.key for entry in reopened(folder)] == ["a", "b"]
    assert "that job is not finished" in (folder / "log.txt").read_text()
    assert (folder / "ledger.jsonl").read_bytes().endswith(b"}\n")
    with open_run(folder, CONFIG) as run:
        run.record("c", {}, None)
    assert len(reopened(folder)) == 3


def test_a_last_line_that_lacks_only_its_end_counts(folder):
    whole = (folder / "ledger.jsonl").read_bytes()
    (folder / "ledger.jsonl").write_bytes(whole[:-1])
    assert len(reopened(folder)) == 3
    assert (folder / "ledger.jsonl").read_bytes() == whole


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace(b"acc", b"acd").replace(b"why", b"who"),
        lambda line: line[:20] + b"\n",
        lambda line: b"{}\n",
        lambda line: b"\0" * 40 + b"\n",
        lambda line: line[:-4] + (b"0" if line[-4:-3] != b"0" else b"1") + line[-3:],
        lambda line: json.dumps(json.loads(line), separators=(",", ":")).encode() + b"\n",
    ],
    ids=["letter", "cut", "empty", "zeros", "checksum", "rewritten"],
)
def test_a_damaged_line_is_named_and_nothing_is_lost(folder, number, damage):
    def harm(lines):
        lines[number - 1] = damage(lines[number - 1])

    edit(folder, harm)
    before = (folder / "ledger.jsonl").read_bytes()
    with pytest.raises(TrainingError, match=rf"ledger\.jsonl, line {number} is damaged.*delete that line"):
        reopened(folder)
    assert (folder / "ledger.jsonl").read_bytes() == before
    edit(folder, lambda lines: lines.pop(number - 1))  # what the message says
    assert len(reopened(folder)) == 2


def test_a_line_twice_is_named(folder):
    edit(folder, lambda lines: lines.append(lines[1]))
    with pytest.raises(TrainingError, match=r"line 4: the job 'b' is recorded in line 2 already: delete one"):
        reopened(folder)


def test_a_deleted_line_may_leave_an_empty_one_and_an_amendment(folder):
    with open_run(folder, CONFIG) as run:
        run.forget_weights("a")

    def blank(lines):
        lines[0] = b"\n"

    edit(folder, blank)
    with open_run(folder, CONFIG) as run:
        assert [entry.key for entry in run.entries()] == ["b", "c"]
        run.record("a", {}, SIX)
    assert reopened(folder)[-1] == Entry("a", {}, True)


# the directory


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": "4567"}, 'network was "0123", and is "4567" now'),
        ({"data": [60000, [3, 28, 28]]}, r"data\[1\]\[0\] was 1, and is 3 now"),
        ({"data": [60000]}, r"data was \[60000, \[1, 28, 28\]\], and is \[60000\] now"),
        ({"options": {"steps": 100, "keep": 1}}, r"options\.keep was 1\.0, and is 1 now"),
        ({"options": {"steps": 100}}, r"options\.keep was 1\.0, and is not given now"),
        ({"seed": 1}, "seed was not given, and is 1 now"),
        (
            {"seed": 1, "network": "4567"},
            'network was "0123", and is "4567" now; seed was not given, and is 1 now',
        ),
        ({"network": "long" * 99}, r'network was "0123", and is "long.*\.\.\. now'),
    ],
)
def test_another_config_is_refused(folder, change, message):
    before = {place: place.read_bytes() for place in folder.rglob("*") if place.is_file()}
    with pytest.raises(TrainingError, match=message) as caught, open_run(folder, CONFIG | change):
        pass
    assert "choose another run directory, or give the options as they were" in str(caught.value)
    assert len(str(caught.value)) < len(str(folder)) + 300
    assert {place: place.read_bytes() for place in folder.rglob("*") if place.is_file()} == before


def test_the_order_of_a_config_does_not_matter(folder):
    with open_run(folder, dict(reversed(CONFIG.items()))) as run:
        assert len(run.entries()) == 3


@pytest.mark.parametrize("name", ["photo.jpg", ".unfinished.part", "weights", "config.json"])
def test_a_folder_that_is_not_ours_stays_as_it_is(tmp_path, name):
    (tmp_path / name).write_text('{"architectures": ["BertModel"]}')
    with pytest.raises(TrainingError, match="choose another run directory"):
        reopened(tmp_path)
    assert [place.name for place in tmp_path.iterdir()] == [name]


def test_a_file_cannot_be_a_run_directory(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingError, match="file cannot be a run directory: Not a directory"):
        reopened(tmp_path / "file")


@pytest.mark.parametrize("left", [[], ["lock"], ["lock", "ledger.jsonl"], ["lock", ".membound-0.part"]])
def test_a_run_killed_while_it_was_made_is_begun(tmp_path, left):
    for name in left:
        (tmp_path / name).touch()
    assert reopened(tmp_path) == []
    assert not (tmp_path / ".membound-0.part").exists()


@pytest.mark.parametrize("with_weights", [True, False])
@pytest.mark.parametrize("name", ["ledger.jsonl", "config.json"])
def test_a_missing_file_is_no_silent_restart(folder, name, with_weights):
    (folder / name).unlink()
    if not with_weights:
        shutil.rmtree(folder / "weights")
    with pytest.raises(TrainingError, match=rf"{name} is gone.*restore it, or choose another run directory"):
        reopened(folder)
    assert not (folder / name).exists()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[]", b'{"format": "membound run 2", "config": {}}']
)
def test_a_damaged_config_is_refused(folder, content):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(TrainingError, match=r"config\.json .*restore it, or choose another run directory"):
        reopened(folder)


@pytest.mark.parametrize("content", [b"", b"{}"])
def test_a_damaged_environment_may_be_deleted(folder, content):
    (folder / "environment.json").write_bytes(content)
    with pytest.raises(TrainingError, match=r"environment\.json .*delete it, since no result depends on it"):
        reopened(folder)
    (folder / "environment.json").unlink()
    assert len(reopened(folder)) == 3


def test_a_directory_taken_away_is_not_made_again(folder):
    with open_run(folder, CONFIG) as run:
        folder.rename(folder.with_name("elsewhere"))
        with pytest.raises(TrainingError, match=r"ledger\.jsonl cannot be written: No such file"):
            run.record("d", {}, None)
        assert run.finished("d") is None


# full disks


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("tensors", [None, SIX], ids=["line", "weights"])
def test_a_full_disk_is_said_and_the_ledger_ends_as_before(folder, monkeypatch, call, tensors):
    before = (folder / "ledger.jsonl").read_bytes()
    write = os.write

    def full(descriptor, data=None):
        if data is not None and len(data) > 10:
            return write(descriptor, data[: len(data) // 2])  # a part fits
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with open_run(folder, CONFIG) as run:
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(
                TrainingError, match=r"cannot be written: No space left.*run the same command"
            ):
                run.record("d", {"accuracy": 1.0}, tensors)
            assert run.finished("d") is None
        assert (folder / "ledger.jsonl").read_bytes() == before
        run.record("d", {"accuracy": 2.0}, tensors)  # there is room again
    assert reopened(folder)[3:] == [Entry("d", {"accuracy": 2.0}, tensors is not None)]


def test_weights_stay_until_the_ledger_says_that_they_go(folder, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with open_run(folder, CONFIG) as run:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(TrainingError, match=r"ledger\.jsonl cannot be written: No space left"):
            run.forget_weights("a")
        assert run.finished("a") == Entry("a", {"accuracy": 98.5}, True)
        assert torch.equal(run.weights("a")["weight"], SIX["weight"])


def test_ctrl_c_while_appending_leaves_no_half_line(folder, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    before = (folder / "ledger.jsonl").read_bytes()
    with open_run(folder, CONFIG) as run:
        monkeypatch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run.record("d", {}, None)
    assert (folder / "ledger.jsonl").read_bytes() == before


def test_a_file_at_its_limit_is_cut_back(folder):
    """The system's own limit on the size of a file: it takes a part of the line, then no more."""
    size = (folder / "ledger.jsonl").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_run(folder, CONFIG) as run:
        for limit, tensors in ((size + 20, None), (size + 2000, {"weight": torch.zeros(4000)})):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
            try:
                with pytest.raises(TrainingError, match="cannot be written: File too large"):
                    run.record("d", {"text": "x" * 50}, tensors)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            assert (folder / "ledger.jsonl").stat().st_size == size
    assert [place.name for place in (folder / "weights").glob("*")].count("d.safetensors") == 0
    assert len(reopened(folder)) == 3


FILL = """
import sys, torch
from pathlib import Path
from membound.errors import TrainingError
from membound.search.ledger import open_run

disk = Path(sys.argv[1])
(disk / "filler").write_bytes(bytes(100_000))
for attempt in range(2):
    with open_run(disk / "run", {}) as run:
        assert bool(run.entries()) == bool(attempt)
        try:
            for index in range(int(sys.argv[2])):
                if run.finished(str(index)) is None:
                    tensors = {"w": torch.full((500,), float(index))} if index % 2 else None
                    run.record(str(index), {"text": "x" * 3000}, tensors)
        except TrainingError as error:
            assert attempt == 0 and "No space left on device" in str(error), error
            (disk / "filler").unlink()
        else:
            assert attempt == 1, "the disk was never full"
        for index, entry in enumerate(run.entries()):
            assert entry.key == str(index)
            assert not entry.has_weights or run.weights(entry.key)["w"][0] == index
print(len(run.entries()))
"""


@pytest.mark.full  # one that says it is full is in make test
def test_a_disk_that_is_really_full(tmp_path):
    script = tmp_path / "fill.py"
    script.write_text(textwrap.dedent(FILL))
    disk = tmp_path / "disk"
    disk.mkdir()
    own = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size=256k tmpfs {disk}"
    try:
        possible = subprocess.run([*own, mount], capture_output=True).returncode == 0
    except FileNotFoundError:
        possible = False
    if not possible:
        pytest.skip("no small file system can be mounted here")
    command = f"{mount} && exec {sys.executable} {script} {disk} 45"
    done = subprocess.run([*own, command], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "45"), done.stderr


# kills


class Recorder:
    """The script beside this file, which records in processes that can be killed."""

    def __init__(self, process):
        self.process = process

    def start(self, path: Path) -> None:
        assert self._ask(path) == "recording"

    def kill(self) -> None:
        assert self._ask("kill") == "killed"

    def _ask(self, text) -> str:
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture(scope="module")
def recording():
    with subprocess.Popen(
        [sys.executable, recorder.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Recorder(process)


@pytest.mark.parametrize("kills", [5, full(20)])
def test_a_run_survives_kills_at_random_moments(tmp_path, recording, kills):
    """So many kills, and as many more as it takes until much is finished and a line was torn."""
    rng = random.Random(20)
    path, reached, torn = tmp_path / "run", [0], False
    while len(reached) <= kills or reached[-1] <= 20 or not torn:
        assert len(reached) < 400
        recording.start(path)
        time.sleep(rng.uniform(0, 0.15))
        recording.kill()
        with open_run(path, recorder.CONFIG) as run:
            entries = run.entries()
            for index, entry in enumerate(entries):
                assert (entry.key, entry.facts) == (recorder.key(index), recorder.facts(index))
                if index < len(entries) - 2:
                    assert entry.has_weights != recorder.loses(index)
                if entry.has_weights:
                    loaded = run.weights(entry.key)
                    assert all(torch.equal(loaded[k], v) for k, v in recorder.tensors(index).items())
                assert not (path / "jobs" / entry.key).exists()
        assert not list(path.rglob("*.part"))
        reached.append(len(entries))
        torn = "that job is not finished" in (path / "log.txt").read_text()
    assert reached == sorted(reached)  # what is finished stays finished


def test_two_processes_cannot_share_a_run(tmp_path, recording):
    recording.start(tmp_path / "run")
    try:
        with pytest.raises(TrainingError, match="another process is training in"):
            reopened(tmp_path / "run")
    finally:
        recording.kill()
    with open_run(tmp_path / "run", recorder.CONFIG) as run:  # a killed process leaves no lock behind
        run.log("mine")
