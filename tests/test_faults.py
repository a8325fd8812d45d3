"""Full disks, folders that cannot be written, run directories that are taken: one line, and nothing half-written."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from profiles import chiefly
from torch import nn

import membound as mb
from membound.data import ArraySplit, Preprocess
from membound.train.checkpoint import locked
from membound.train.loop import train
from membound.train.recipe import modern
from membound.train.run import Settings
from membound.train.weights import save_weights

OWN = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
REASONS = {"full": "No space left on device", "readonly": "Read-only file system", "limit": "File too large"}


def can_mount(folder) -> bool:
    try:
        return subprocess.run([*OWN, f"mount -t tmpfs tmpfs {folder}"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("how", chiefly(["limit"], REASONS))
def test_a_place_that_takes_nothing_more(tmp_path, how):
    work, place = tmp_path / "work", tmp_path / "place"
    work.mkdir()
    place.mkdir()
    script = Path(__file__).with_name("fault_commands.py")
    command = f"exec {sys.executable} {script} {work} {place} {how}"
    if can_mount(place) == (how == "limit"):
        pytest.skip("a real file system is tried where one can be mounted, else a limit on the size of files")
    if how != "limit":
        command = f"mount -t tmpfs -o size=4m tmpfs {place} && {command}"
    shell = ["sh", "-c"] if how == "limit" else OWN
    done = subprocess.run([*shell, command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    for name, found in outcome["found"].items():
        assert found["code"] == 1, (name, found)
        *progress, last = found["said"].splitlines()  # a fit may get as far as the file
        assert last.startswith("membound: error: ") or name == "save", (name, found)
        assert not any("error" in line or "Traceback" in line for line in progress), (name, found)
        assert re.search(rf"(cannot|can) be .*{REASONS[how]}|the folder .* cannot be written", last), (
            name,
            found,
        )
        assert not [file for file in found["there"] if file.endswith((".part", ".onnx", ".npy"))], (
            name,
            found,
        )
    whole = {"save.safetensors", "filler"}  # and what a run directory writes before its first weights
    small = {"lock", "config.json", "environment.json", "ledger.jsonl", "log.txt"}
    assert {file for file in outcome["found"]["save"]["there"] if Path(file).name not in small} <= whole
    assert outcome["kept"]
    assert {code for code, _ in outcome["again"].values()} == {0}, outcome["again"]


def images(count=60) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(count) % 2
    return torch.rand(count, 1, 6, 6, generator=generator) + y[:, None, None, None], y


def test_two_fits_in_one_run_directory(tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
    with (
        locked(tmp_path / "run"),  # as another process holds it
        pytest.raises(
            mb.MemboundError, match=r"another process is training in .*run: wait for it, or choose"
        ),
    ):
        mb.fit(net, images(), "90%", steps=2, run_dir=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["lock"]
    mb.fit(net, images(), "90%", steps=2, run_dir=tmp_path / "run")


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    """Trained twice and saved twice: weights, and the model file of them; another seed gives others."""
    x, y = images()
    split = ArraySplit((100 * x).byte().numpy(), y.numpy())
    found = []
    for number, seed in enumerate((3, 3, 4)):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(64, 2))
        rules = {"*": mb.l0_project(mb.ramp(1.0, 0.2), every=5)}
        train(
            net, split, modern("adamw", 30, 20, lr=0.01), rules,
            preprocess=Preprocess(scale=0.01), settings=Settings(seed=seed, device="cpu"),
        )  # fmt: skip
        net.eval()
        save_weights(tmp_path / f"weights-{number}.safetensors", net, Preprocess(scale=0.01), {})
        mb.save(net, tmp_path / f"model-{number}.safetensors", x[:1])
        found.append(
            [(tmp_path / f"{kind}-{number}.safetensors").read_bytes() for kind in ("weights", "model")]
        )
    assert found[0] == found[1]
    assert found[0][0] != found[2][0]
    assert found[0][1] != found[2][1]


FLAT = """
import sys
import numpy as np
from membound.errors import ModelError
from membound.run import load

def resident():  # its own small pages: files are mapped, and small pages joined into huge ones, as the system likes
    lines = [*open("/proc/self/status"), *open("/proc/self/smaps_rollup")]
    found = dict(line.split(":", 1) for line in lines if ": " in line or ":\\t" in line)
    own, huge = (1024 * int(found[name].split()[0]) for name in ("RssAnon", "AnonHugePages"))
    return own - huge

net = load(sys.argv[1], threads=2)
x, wrong = np.linspace(-1, 1, 784, dtype=np.float32).reshape(1, 1, 28, 28), np.zeros((1, 1, 28, 27), np.float32)
answer = net(x).tobytes()
for count in (5_000, int(sys.argv[2])):
    for number in range(count):
        assert net(x).tobytes() == answer
        if number % 10 == 0:
            try:
                net(wrong)
            except ModelError:
                pass
    print(resident())
"""


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="this system has no /proc/self/smaps_rollup"
)
@pytest.mark.parametrize("calls", [20_000, pytest.param(200_000, marks=pytest.mark.full)])
def test_memory_and_answers_stay_the_same_over_many_calls(tmp_path, calls):
    net = mb.zoo.lenet()
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(torch.rand(weight.shape) < 0.02)  # some 8,600 are left
    mb.save(net, tmp_path / "lenet.safetensors", torch.zeros(1, 1, 28, 28))
    command = [sys.executable, "-c", FLAT, str(tmp_path / "lenet.safetensors"), str(calls)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    before, after = map(int, done.stdout.split())
    assert after - before < 1 << 20
