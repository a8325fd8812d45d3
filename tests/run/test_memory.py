"""The memory that a network takes is the memory that it says: measured in fresh processes, on AlexNet."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from profiles import full

from membound.store.file import write
from membound.store.graph import Graph, Node
from membound.store.model import Model

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="this system has no /proc/self/smaps_rollup"
)
MOST = 1.15  # of what memory() says
LEAST = 1 / 1.3

# What every measured process begins with: everything is loaded and a first network has run, in baseline memory.
PROLOGUE = """
import json, sys
import numpy as np
from membound.run import Net, load
from membound.store.file import to_bytes, read_bytes
from membound.store.graph import Graph, Node
from membound.store.model import Model

def kilobytes(path, *names):
    found = dict(line.split(":") for line in open(path) if ":" in line)
    return 1024 * sum(int(found[name].split()[0]) for name in names)

def resident():
    return kilobytes("/proc/self/status", "RssAnon", "RssFile", "RssShmem")

path, options = sys.argv[1], json.loads(sys.argv[2])
warm = Model(Graph((3, 64, 64), (Node("conv", (0,), {"act": ("relu",)}, {"w": "w"}),), 1),
             {"w": np.ones((64, 3, 3, 3), np.float32)})
x = np.random.default_rng(0).standard_normal((options["max_batch"], 3, 227, 227), np.float32)
net = Net(read_bytes(to_bytes(warm)), threads=options["threads"])
net(x[:1, :, :64, :64].copy())
del net
assert "torch" not in sys.modules
"""

ALONE = """
before = resident()
open("/proc/self/clear_refs", "w").write("5")  # the peak starts again from here
net = load(path, **options)
loaded = resident() - before
loading = kilobytes("/proc/self/status", "VmHWM") - before
for _ in range(options_runs):
    y = net(x)
memory = net.memory()
print(json.dumps({
    "loaded": loaded, "loading": loading, "after": resident() - before,
    "peak": kilobytes("/proc/self/status", "VmHWM") - before,
    "weights": memory.weights, "tables": memory.tables, "arena": memory.arena, "total": memory.total,
}))
"""

TOGETHER = """
def shared():
    return kilobytes("/proc/self/smaps_rollup", "Pss")

def answer(value):
    print(json.dumps(value), flush=True)

for line in sys.stdin:
    if line.strip() == "run":
        net = load(path, **options)
        for _ in range(3):
            y = net(x)
        memory = net.memory()
        answer([memory.weights, memory.working])
    else:
        answer(shared())
"""


def alexnet(seed=0) -> Model:
    """AlexNet as the paper stores it: three linear layers sparse, the convolutions dense; random weights."""
    rng = np.random.default_rng(seed)
    nodes, tensors = [], {}

    def add(op, **attributes):
        roles = {}
        if "w" in attributes:
            name, shape, kept = attributes.pop("w")
            size = int(np.prod(shape))
            count = kept or size
            apart = np.arange(count) * size // count + rng.integers(0, size // count, count)  # all different
            weight = np.zeros(size, np.float32)
            weight[apart] = rng.standard_normal(count, np.float32)
            weight *= np.float32((2 / np.prod(shape[1:])) ** 0.5)
            tensors[f"{name}.weight"] = weight.reshape(shape)
            tensors[f"{name}.bias"] = rng.standard_normal(shape[0], np.float32)
            roles = {"w": f"{name}.weight", "b": f"{name}.bias"}
        nodes.append(Node(op, (len(nodes),), attributes, roles))

    relu = ("relu",)
    norm = {"size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1.0}
    pool = {"kernel": (3, 3), "stride": (2, 2)}
    add("conv", w=("conv1", (96, 3, 11, 11), None), stride=(4, 4), act=relu)
    add("lrn", **norm)
    add("maxpool", **pool)
    add("conv", w=("conv2", (256, 48, 5, 5), None), pad=(2, 2, 2, 2), groups=2, act=relu)
    add("lrn", **norm)
    add("maxpool", **pool)
    add("conv", w=("conv3", (384, 256, 3, 3), None), pad=(1, 1, 1, 1), act=relu)
    add("conv", w=("conv4", (384, 192, 3, 3), None), pad=(1, 1, 1, 1), groups=2, act=relu)
    add("conv", w=("conv5", (256, 192, 3, 3), None), pad=(1, 1, 1, 1), groups=2, act=relu)
    add("maxpool", **pool)
    add("reshape", shape=(9216,))
    add("linear", w=("fc6", (4096, 9216), 3_000_000), act=relu)
    add("linear", w=("fc7", (4096, 4096), 3_000_000), act=relu)
    add("linear", w=("fc8", (1000, 4096), 400_000))
    return Model(Graph((3, 227, 227), tuple(nodes), len(nodes)), tensors)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """AlexNet by fewest bytes, for speed, or in halves: each is written when it is first asked for."""
    folder = tmp_path_factory.mktemp("alexnet")
    model = functools.cache(alexnet)
    options = {"bytes": {}, "speed": {"prefer": "speed"}, "halves": {"values": "f16"}}

    def find(name):
        if not (folder / name).exists():
            write(folder / name, model(), **options[name])
        return folder / name

    return find


def measured(path, runs=100, mmap=None, **options):
    options = {"threads": 1, "max_batch": 1, "mmap": mmap, **options}
    program = PROLOGUE + ALONE.replace("options_runs", str(runs))
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), json.dumps(options)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["weights"] == path.stat().st_size
    return found


@pytest.mark.parametrize(
    ("name", "runs", "options"),
    [
        full("bytes", 100, {}),
        full("speed", 10, {"threads": 2}),
        full("bytes", 10, {}),
        full("halves", 10, {}),
        full("bytes", 5, {"max_batch": 4, "threads": 2}),
        ("bytes", 5, {"mmap": False}),
    ],
)
def test_resident_memory_is_what_memory_says(stored, name, runs, options):
    found = measured(stored(name), runs, **options)
    assert found["after"] <= MOST * found["total"], found
    assert found["peak"] <= MOST * found["total"], found
    assert found["after"] >= LEAST * found["total"], found


@pytest.mark.parametrize("mmap", [True, False])
def test_loading_takes_no_more_than_what_stays(stored, mmap):
    """Every byte is checked while loading, in pieces: the check leaves nothing behind and has no peak of its own."""
    found = measured(stored("bytes"), 0, mmap)
    assert found["loading"] <= 1.05 * (found["weights"] + found["tables"]) + (1 << 22), found
    assert found["loaded"] <= 1.02 * (found["weights"] + found["tables"]) + (1 << 21), found


@pytest.mark.parametrize(("name", "most"), [full("bytes", 40), full("halves", 110)])
def test_memory_does_not_grow(stored, name, most):
    """From the tenth run on."""
    few, many = (measured(stored(name), runs) for runs in (10, most))
    assert many["after"] <= few["after"] + (1 << 20)


def test_four_processes_share_one_file(stored):
    path = stored("bytes")
    options = json.dumps({"threads": 1, "max_batch": 1})
    command = [sys.executable, "-c", PROLOGUE + TOGETHER, str(path), options]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]

    def ask(what):
        for process in processes:
            process.stdin.write(f"{what}\n")
            process.stdin.flush()
        return [json.loads(process.stdout.readline()) for process in processes]

    try:
        ask("memory")
        before = sum(ask("memory"))
        (weights, working), *_ = ask("run")
        grown = sum(ask("memory")) - before
    finally:
        for process in processes:
            process.stdin.close()
            process.wait(60)
            process.stdout.close()
    said = weights + 4 * working
    assert LEAST * said <= grown <= MOST * said, (grown, said)
