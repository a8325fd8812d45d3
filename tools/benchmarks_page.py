"""docs/BENCHMARKS.md from the numbers in results/: nothing on that page is written by hand but this.

python tools/benchmarks_page.py
"""

import json
import re
from pathlib import Path
from typing import Any

from membound.machine import name_arm
from membound.report.paired import Comparison, show_difference, student
from membound.store.whole import replace_file

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "BENCHMARKS.md"
OURS = "membound"

HEAD = """# Benchmarks

`make bench` repeats all of these measurements and writes this page:

- deployed networks, against torch, ONNX Runtime, OpenVINO and, where it exists for the machine, DeepSparse;
- training, against `torch.nn.utils.prune` and torchao's proximal pruning;
- the best networks for given bytes, the default recipe, and how time and memory grow with size.

Contenders take turns, each in a process of its own. Times are the fastest of many runs. Every number is in a JSON
file under [`results/`](../results), with the command, the hardware, the versions, the date and the seed. The ± of an
accuracy is its standard deviation (SD) over seeds; the ± of a difference is half its 95 % confidence interval
([terms](MEASURED.md#how-to-read-the-numbers)).
"""

DEPLOYMENT = """## Deployed networks

Peers run the network in float32; all but DeepSparse compute it as dense. *times* is the time of the fastest peer
divided by ours: above 1, membound is faster. Files are stored for the fewest *bytes* or for *speed*. A percentage
behind a name is the fraction of weights that the network keeps. Resident memory is what the process grew by after its
runtime was imported.
"""

PLACES = {"deployment": "### On Arm\n", "race-f32-x86": "### On x86 with AVX-512\n"}

WHY = {  # a peer that is ahead
    "openvino": "OpenVINO has algorithms for dense convolutions with fewer multiplications than weights, and takes a "
    "batch through them at once: a sparse 3x3 convolution with a weight in five left is about as much work.",
    "deepsparse": "DeepSparse, as its makers describe it, compiles code for the nonzeros of each layer when it loads a "
    "network, and takes pieces of an image through several layers; membound reads the file as it is, which is why it "
    "loads in milliseconds and takes less memory.",
}

LAYERS = """### Where the time goes

Batch 1, one thread. The floor of an operator is the larger of two times: its multiplications at the peak of numpy's
matrix product, and its weights' bytes at the bandwidth of a copy. Weights that stay in a cache can be faster than the
floor. `membound bench FILE --operators` shows this for any file.
"""

TRAINING = """## Ways to train a sparse network

All methods have the same network, images, optimizer, learning rates and steps. The file of each result has at most
the given bytes, except for those in bold: their sparsity is fixed before training, and a few attempts did not find
one that fits. `benchmarks/training_peers.py` says what each method does.

Three things to know before comparing. membound's time of a step includes fit's own evaluations, twenty during
training and one at the end; the plain loop of the others has none. On a GPU, fit records its step as a graph, which
the plain loop does not. And where the weights of layers differ in scale, as in CIFAR-10-quick, keeping the largest
weights of the whole network leaves some layers without any.

Methods differ in two ways at once, which these tables do not separate: how they make zeros, and how layers share
them. The others compare magnitudes, of the whole network or of each layer (`uniform`); membound compares LAMP scores.
Two methods cannot be told apart where the 95 % confidence interval of their difference, paired by seed, includes 0
([the rule](RESEARCH.md#several-seeds)).
"""

BEST = """## The best network for the bytes

CIFAR-10 with `resnet8`, and MNIST, both augmented. Accuracy is mean ± SD of three seeds, on test images, through the
runtime. Every file was trained as `fit` trains its final network; the rows of the results file have the commands.
(Where a command names no teacher, add `--teacher none` with today's version.) The teacher is a dense `resnet8` four
times as wide, trained once for all. *kept* is the fraction of weights that are not zero. For scale, MLPerf Tiny's own
int8 ResNet-8 has 87.02 % in 98,496 bytes.

The files of 12 and 16 KB have version 3 of the format, and were trained for longer. Those of 24 and 40 KB, MNIST's,
and all in the tables below but the last have version 2, which takes 1 to 2 KB more for the same weights.
"""

PARTS = """This is what each part contributes in 20 KB, with 30 passes through the images. *narrow dense* is the
widest network whose weights all fit in 4 bits, trained in the same way: what a user would do instead.
"""

EXPLORED = """On 5,000 validation images, one seed, 30 passes: the teacher's part of the loss and its temperature (0.9
and 4 where a row names none), widths, and how long the bound tightens (60 % of the training where a row names
nothing).
"""

RECIPES = """## The default recipe

`fit` with its defaults, beside the dense network of the same seed that it trains. *gain* is fitted minus dense, in
points, paired by seed. The first table is on held-out training images, on which the dense network was chosen as the
default teacher. *none* has no teacher. *hard* follows it more closely (0.9 of the loss, temperature 4). *unsteady*
lets it pull harder than labels do (temperature 2). *averaged* has no teacher and ends with an average of the weights
of the last quarter; that gained nothing and is not part of the recipe.
"""

RECIPES_TEST = """The second table is on test images, with the defaults. Nothing was tuned on Fashion-MNIST (28x28
pixels). That the dense network should teach was also found on training images of Imagenette.
"""

SCALING = """## Size

A network of three equal layers that keeps a tenth of its weights, by the number of weights. Memory is how much the
peak of the process grew. *fit* is one step of training under a bound, including all other work of fit.
"""


def main() -> None:
    replace_file(PAGE, [make_page().encode()])


def make_page() -> str:
    """What was measured; what was not is left out."""
    parts = [HEAD]
    deployed = {name: found for name in PLACES if (found := read(name)) is not None}
    if deployed:
        parts.append(DEPLOYMENT)
    for name, found in deployed.items():
        parts += [PLACES[name], made(found, name), *deployment(found)]
    if "deployment" in deployed:
        parts += [LAYERS, *layers(deployed["deployment"])]
    trained = {
        name: found
        for name in ("lenet", "lenet-bits", "quick")
        if (found := read(f"training-peers-{name}")) is not None
    }
    if trained:
        parts.append(TRAINING)
    for name, found in trained.items():
        parts += [made(found, f"training-peers-{name}"), *training(found)]
    parts += best() + recipes()
    if (found := read("scaling")) is not None:
        parts += [SCALING, made(found, "scaling"), *scaling(found)]
    return "\n".join(parts)


def best() -> list[str]:
    """The best network for given bytes, and what led to it."""
    parts: list[str] = []
    names = {
        "": BEST,
        "-mnist": "",
        "-parts": PARTS,
        "-explored": EXPLORED,
    }
    for name, about in names.items():
        if (found := read(f"best-for-bytes{name}")) is None:
            continue
        rows = []
        for each in found["summary"]:
            key = each["data"], each["name"]
            row = next(row for row in found["rows"] if (row["data"], row["name"]) == key)
            label = each["name"] if len({row["data"] for row in found["rows"]}) == 1 else ", ".join(key)
            accuracy = each["accuracy"]
            spread = "" if each["seeds"] == 1 else f" ± {accuracy['std']:.2f}"
            steps, weights = f"{row['steps']:,}", f"{row['weights']:,}"
            shown = f"{accuracy['mean']:.2f}{spread} %"
            rows.append([label, shown, f"{each['most_bytes']:,}", weights, f"{row['nonzeros']:,}", steps])
        head = ["", "accuracy", "bytes", "weights", "kept (first seed)", "steps"]
        source = found.get("made_by", [found])[0]
        parts += [about, *table(head, sorted(rows)), made(source, f"best-for-bytes{name}")]
    return parts


def recipes() -> list[str]:
    """What parts of the default recipe give, and what it gives whole."""
    parts: list[str] = []
    for name, about in {"recipes": RECIPES, "recipes-test": RECIPES_TEST}.items():
        if (found := read(name)) is None:
            continue
        rows = [
            [
                each["case"],
                each["way"],
                *(f"{each[key]['mean']:.2f} ± {each[key]['std']:.2f} %" for key in ("dense", "fitted")),
                show_gain(each["gain"]),
                f"{each['dense_bytes']:,}",
                f"{each['most_bytes']:,}",
                f"{each['steps']:,}",
                str(each["fitted"]["n"]),
            ]
            for each in found["summary"]
        ]
        head = ["", "teacher", "dense", "fitted", "gain", "bytes of dense", "bytes", "steps", "seeds"]
        parts += [about, *table(head, rows), made(found.get("made_by", [found])[0], name)]
    return parts


def show_gain(gain: dict[str, float]) -> str:
    """A mean difference with half its 95 % confidence interval, which is what ± means of differences.

    >>> show_gain({"mean": 0.65, "std": 0.29, "n": 3})
    '+0.65 ± 0.72'
    """
    count = int(gain["n"])
    return show_difference(gain["mean"], student(count) * gain["std"] / count**0.5, "+")


def read(name: str) -> Any:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def made(found: dict[str, Any], name: str) -> str:
    hardware, versions = found["hardware"], found["versions"]
    said = ", ".join(f"{package} {version}" for package, version in versions.items() if package != "python")
    where = f"{hardware.get('gpu') or named(hardware['cpu'])}, {hardware['cores']} cores"
    note = f" {found['note']}" if "note" in found else ""
    numbers = f"[numbers](../results/{name}.json)"
    return f"`{found['command']}` ({where}, {found['date'][:10]}; {said}; {numbers}).{note}\n"


def named(cpu: str) -> str:
    """Older results have Arm cores in numbers.

    >>> named("aarch64 implementer 0x41 part 0xd0c")
    'Arm Neoverse-N1'
    """
    found = re.fullmatch(r"(\w+) implementer (\w+) part (\w+)", cpu)
    return name_arm(*found.groups()) if found else cpu


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)] + [""]


def deployment(found: dict[str, Any]) -> list[str]:
    rows = []
    for entry in found["results"]:
        times = {row["name"]: row for row in entry["rows"] if row.get("min_ms") is not None}
        ours, peer = times[OURS], times[entry["fastest_peer"]]
        lower = [row for name, row in times.items() if "default" in name]
        rows.append(
            [
                entry["network"], entry["formats_for"], str(entry["batch"]), str(entry["threads"]),
                f"{ours['min_ms']:.3g}",
                f"{peer['min_ms']:.3g} ({entry['fastest_peer']})", f"**{entry['times_faster']:.2f}**"
                if entry["times_faster"] < 1 else f"{entry['times_faster']:.2f}",
                f"{lower[0]['min_ms']:.3g} ({lower[0]['precision']})" if lower else "",
                mebibytes(ours["file_bytes"]), mebibytes(peer["file_bytes"]), mebibytes(ours["resident_bytes"]),
                mebibytes(peer["resident_bytes"]), f"{ours['load_ms']:.3g}", f"{peer['load_ms']:.3g}",
            ]
        )  # fmt: skip
    head = [
        "network", "stored for", "batch", "threads", "ms", "fastest f32 peer, ms", "times", "OpenVINO's default, ms",
        "file, MiB", "peer's", "resident, MiB", "peer's", "load, ms", "peer's",
    ]  # fmt: skip
    behind = [entry for entry in found["results"] if entry["times_faster"] < 1]
    words = f"{len(found['results']) - len(behind)} of {len(found['results'])} rows are faster than every float32 peer."
    if any(row["name"] == "deepsparse" for entry in found["results"] for row in entry["rows"]):
        dense = sum(times_faster_than_dense(entry) > 1 for entry in found["results"])
        words += f" {dense} are faster than every one that takes the network as dense."
    if behind:
        words += " Behind, in bold: " + "; ".join(
            f"{each['network']}, batch {each['batch']}, {each['threads']} threads ({each['times_faster']:.2f})"
            for each in behind
        )
        peers = dict.fromkeys(each["fastest_peer"] for each in behind)
        words += ". " + " ".join(WHY[peer] for peer in peers if peer in WHY)
    missing = sorted({name for entry in found["results"] for name in entry["missing"]})
    if missing:
        words += f" Not installed, or not made for this machine: {', '.join(missing)}."
    return [*table(head, rows), words, ""]


def times_faster_than_dense(entry: dict[str, Any]) -> float:
    times = {row["name"]: row["min_ms"] for row in entry["rows"] if row.get("min_ms") is not None}
    others = ("default", "int8", "deepsparse", OURS)
    return min(ms for name, ms in times.items() if not any(each in name for each in others)) / times[OURS]


def short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def mebibytes(count: float | None) -> str:
    return "" if count is None else short(count / 2**20)


def layers(found: dict[str, Any]) -> list[str]:
    parts = []
    for entry in found["results"]:
        if "layers" in entry and ("alexnet" in entry["network"] or "10%" in entry["network"]):
            rows = [
                [
                    row["name"], row["format"] or "", f"{row['nonzeros']:,}", f"{row['ms']:.3f}",
                    f"{row['floor_ms']:.3f}", f"{row['ms'] / row['floor_ms']:.1f}",
                ]
                for row in entry["layers"]
                if row["floor_ms"]
            ]  # fmt: skip
            rest = sum(row["ms"] for row in entry["layers"] if not row["floor_ms"])
            head = ["layer", "format", "nonzeros", "ms", "floor, ms", "times the floor"]
            parts += [
                f"<details><summary>{entry['network']} (operators without weights: {rest:.3f} ms)</summary>", "",
                *table(head, rows), "</details>", "",
            ]  # fmt: skip
    return parts


def training(found: dict[str, Any]) -> list[str]:
    title = f"{found['net']} on {found['data']}, {found['bytes']:,} bytes, {found['steps']:,} steps"
    title += f", {found['seeds']} seeds"
    rows = []
    for method, summary in found["summary"].items():
        mine = [row for row in found["rows"] if row["method"] == method]
        rows.append(
            [
                method, show_accuracy(summary), bytes_at_most(mine, found["bytes"]),
                f"{sum(row['nonzeros'] for row in mine) / len(mine):,.0f}",
                "–" if summary["ms_a_step"] is None else f"{summary['ms_a_step']:.2f}",
            ]
        )  # fmt: skip
    head = ["method", "test accuracy, %", "bytes at most", "nonzero weights", "ms a step"]
    return [f"{title}:\n", *table(head, rows), *say_ties(found["rows"])]


def show_accuracy(summary: dict[str, Any]) -> str:
    """
    >>> show_accuracy({"accuracy": 98.5, "std": 0.1}), show_accuracy({"accuracy": 98.5, "std": None})
    ('98.50 ± 0.10', '98.50')
    """
    spread = "" if summary["std"] is None else f" ± {summary['std']:.2f}"
    return f"{summary['accuracy']:.2f}{spread}"


def say_ties(rows: list[dict[str, Any]]) -> list[str]:
    """Which methods are as good as the best, as far as these seeds say: paired by seed, as `Comparison` judges.

    >>> a = [{"method": "a", "seed": seed, "accuracy": 98.5 + seed / 10} for seed in range(3)]
    >>> b = [{**row, "method": "b", "accuracy": row["accuracy"] - 0.1 * row["seed"]} for row in a]
    >>> c = [{**row, "method": "c", "accuracy": row["accuracy"] - 1} for row in a]
    >>> say_ties(a + b + c), say_ties(a + c)
    (['3 seeds cannot tell a and b apart.\\n'], ['a is better than all others.\\n'])
    """
    scores: dict[str, dict[int, float]] = {}
    for row in rows:
        scores.setdefault(row["method"], {})[row["seed"]] = row["accuracy"]
    best = max(scores, key=lambda method: sum(scores[method].values()) / len(scores[method]))
    ties = [name for name, theirs in scores.items() if name == best or not beats(scores[best], theirs)]
    if ties == [best]:
        return [f"{best} is better than all others.\n"]
    return [f"{len(scores[best])} seeds cannot tell {' and '.join(ties)} apart.\n"]


def beats(ours: dict[int, float], theirs: dict[int, float]) -> bool:
    """Whether a method is better than another over the seeds that both have."""
    seeds = sorted(ours.keys() & theirs.keys())
    found = Comparison.of([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds], seeds)
    return found.verdict == "better"


def bytes_at_most(rows: list[dict[str, Any]], limit: int) -> str:
    most = max(row["bytes"] for row in rows)
    return f"**{most:,}**" if most > limit else f"{most:,}"


def scaling(found: dict[str, Any]) -> list[str]:
    times = {
        "project_ms": "projection",
        "save_ms": "save",
        "load_ms": "load",
        "run_ms": "run",
        "fit_ms_a_step": "fit",
    }
    sizes = {"file_bytes": "file", "save_bytes": "save", "load_bytes": "load", "fit_bytes": "fit"}
    head = [
        "weights",
        *(f"{name}, ms" for name in times.values()),
        *(f"{name}, MiB" for name in sizes.values()),
    ]
    rows = [
        [
            f"{row['weights']:,}",
            *(short(row[key]) for key in times),
            *(mebibytes(row[key]) for key in sizes),
        ]
        for row in found["rows"]
    ]
    return table(head, rows)


if __name__ == "__main__":
    main()
