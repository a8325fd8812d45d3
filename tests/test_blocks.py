"""Every block of the pages that show fragments: each command is read by the command line, and all of them run.

The tests of this module stage what a page takes for granted (a network, data, pictures, a folder of photos), and train
for two steps on a few images; `make test` only lets the command line read every command, `make test-full` runs them.
Pages that run as they stand are in test_pages.py. What is not run says why.
"""

import re
import runpy
import shlex
import shutil
import subprocess
import textwrap
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path

import lightning
import numpy as np
import pytest
import torch
import typer
from micro_networks import Builder, micro
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

import membound as mb
from membound.cli import app, main
from membound.data import ArraySplit, Dataset
from membound.data.named import NAMED
from membound.errors import ModelError
from membound.export.c_project import write_project
from membound.export.web import compiler
from membound.search.timing import Latency
from membound.search.workshop import this_process

ROOT = Path(__file__).parents[1]
PAGES = (
    "README",
    "FITTING",
    "RESEARCH",
    "TRAINING",
    "DEPLOYING",
    "CLUSTER",
    "GALLERY",
    "MICRO",
    "MICRO_REFERENCE",
    "REPRODUCTION",
    "YOUR_OWN_MODEL",
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$|((?:^ {4}(?:membound|pip) [^\n]*\n)+)", re.MULTILINE | re.DOTALL)
# Beginnings of lines that are not run, and why.
OTHERS = {
    "make demo": "what CI runs",
    "pip install": "installs",
    "python3.11 -m venv": "installs",
    "gcc": "compiles what an export wrote, as tests/micro and the walkthrough's test do",
    "python motion.py": "of the walkthrough, which has a test of its own",
    "./recognize": "the same",
    "hf upload": "writes to the network",
    "membound bench": "measures time; HOWTO.md's is run",
    "membound reproduce": "takes minutes; tests/paper runs the experiments",
    "membound data cifar10": "reads a data set that is not in a checkout",
    "membound fit alexnet": "takes gigabytes",
    "membound fit lenet --data mnist --budget 10KiB --budget 20KiB --budget 40KiB": "minutes; tools/gallery.py runs it",
    "membound train alexnet": "takes gigabytes, and several processes",
}
FEW = {
    "fit": ["--steps", "2", "--batch-size", "8", "--device", "cpu"],
    "train": ["--steps", "2", "--batch-size", "8", "--device", "cpu"],
}


def page_of(name: str) -> str:
    return (ROOT / ("README.md" if name == "README" else f"docs/{name}.md")).read_text()


def blocks(name: str) -> list[tuple[str, str]]:
    """Language and text of the blocks; four spaces in front of a command make one, too."""
    found = [(each[1] or "", each[2] or textwrap.dedent(each[3])) for each in BLOCK.finditer(page_of(name))]
    if name == "YOUR_OWN_MODEL":  # its other blocks are run by test_pages.py
        return [("", text) for language, text in found if language == "sh"]
    return [(language, text.replace("\\\n", " ")) for language, text in found]


def commands(text: str) -> list[list[str]]:
    """The commands of a block, without comments; torchrun's are what each of its processes runs."""
    lines = [re.sub(r"^torchrun .*?-m membound", "membound", line) for line in text.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def in_blocks() -> list[tuple[str, list[str]]]:
    shell = [(name, text) for name in PAGES for language, text in blocks(name) if language in ("", "sh")]
    return [(name, words) for name, text in shell for words in commands(text)]


def can_compile_for_a_browser() -> bool:
    try:
        return bool(compiler())
    except ModelError:
        return False


def redirected(words: list[str]) -> tuple[list[str], str | None]:
    """The command, and the file that a shell would write its output to."""
    return (words[: words.index(">")], words[-1]) if ">" in words else (words, None)


def is_left_out(words: list[str]) -> bool:
    return any(" ".join(words).startswith(beginning) for beginning in OTHERS)


def test_the_command_line_reads_every_command_in_the_documents():
    """Options, their values and the arguments; nothing is run."""
    group = typer.main.get_command(app)
    assert len(in_blocks()) > 40
    for name, words in in_blocks():
        assert words[0] == "membound" or is_left_out(words), (name, words)
        if words[0] == "membound":
            command = group.commands[words[1]]
            with command.make_context(words[1], list(redirected(words)[0][2:])):
                pass


class TwoInputs(nn.Module):
    """An image, and the numbers of some words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.fc = nn.Embedding(9, 4), nn.Linear(64 + 4, 2)

    def forward(self, image: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.cat([image.flatten(1), self.words(ids).mean(1)], 1))


class WordsAndFeatures(nn.Module):
    """The numbers of some words, and features."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.fc = nn.Embedding(9, 4), nn.Linear(6 + 4, 3)

    def forward(self, ids: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.cat([features, self.words(ids).mean(1)], 1))


def words_and_features() -> dict[str, object]:
    rng = np.random.default_rng(0)
    ids, features = rng.integers(0, 9, (40, 5)), rng.normal(size=(40, 6)).astype(np.float32)
    y = rng.integers(0, 3, 40)
    items = [((a, b), c) for a, b, c in zip(ids, features, y, strict=True)]
    loader = DataLoader(items, batch_size=8)
    return {"model": WordsAndFeatures(), "ids": ids, "features": features, "y": y, "loader": loader}


def few_images(shape: tuple[int, ...], count: int = 40) -> Dataset:
    """Noise, of ten classes."""
    rng = np.random.default_rng(0)
    halves = [
        ArraySplit(rng.integers(0, 256, (size, *shape), np.uint8), np.arange(size) % 10)
        for size in (count, 20)
    ]
    return Dataset("noise", *halves, tuple(map(str, range(10))))


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """An empty folder with what pages take for granted, and small data sets under the names of large ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT))
    whole = NAMED["mnist"].load()
    digits = replace(whole, train=whole.train.take(np.arange(1200)), test=whole.test.take(np.arange(50)))
    photos = few_images((3, 32, 32))
    for name, few in (("mnist", digits), ("cifar10", replace(photos, photos=True))):
        monkeypatch.setitem(NAMED, name, replace(NAMED[name], load=lambda few=few: few))
    rng = np.random.default_rng(0)
    for kind in ("photos/cat", "photos/dog", "scans/images"):
        Path(kind).mkdir(parents=True)
        for number in range(20):
            Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(f"{kind}/{number}.png")
    Path("scans/masks").mkdir()
    for number in range(20):
        Image.fromarray(rng.integers(0, 2, (64, 64), np.uint8)).save(f"scans/masks/{number}.png")
    for name in ("cat", "dog"):
        Image.fromarray(whole.test.read([0])[0, 0]).save(f"{name}.jpg")
    np.save("images.npy", whole.test.read(range(3)))
    words = rng.normal(size=(60, 40, 49)).astype(np.float32)
    np.savez(
        "words.npz",
        x_train=words[:40],
        y_train=np.arange(40) % 10,
        x_test=words[40:],
        y_test=np.arange(20) % 10,
    )
    Path("mypackage").mkdir()
    Path("mypackage/nets.py").write_text("from examples.residual import small_resnet as small\n")
    Path("mine.py").write_text(
        "from membound.zoo import resnet8\n\n\ndef large():\n    return resnet8(width=24)\n"
    )
    torch.save(mb.zoo.resnet8(width=24).state_dict(), "large.pt")
    mb.save(mb.zoo.resnet8(width=24), "large.safetensors", torch.zeros(1, 3, 32, 32))
    quick(monkeypatch)
    before = written_at_root()
    yield given(digits)
    assert written_at_root() == before  # blocks write into their own folder, not into the checkout


def written_at_root() -> set[str]:
    kinds = (".safetensors", ".html", ".json", ".npy", ".npz", ".onnx", ".pt", ".c")
    return {path.name for path in ROOT.iterdir() if path.suffix in kinds}


def quick(monkeypatch) -> None:
    """Two steps from Python, too; a cluster, a network's time and the Hub are all here."""
    fit = mb.fit

    def fit_shortly(*arguments, **keywords):
        return fit(*arguments, **{"steps": 2, "batch_size": 8, "device": "cpu", **keywords})

    @contextmanager
    def cluster(address, **options):
        yield this_process(torch.device("cpu"))

    monkeypatch.setattr(mb, "fit", fit_shortly)
    for place in ("membound.ray_cluster", "membound.search.cluster.ray_cluster"):
        monkeypatch.setattr(place, cluster)
    monkeypatch.setattr("membound.search.timing.measure", lambda nets: [Latency(0.01)] * len(nets))
    for place in ("membound.run.net.fetch", "membound.run.files.fetch"):
        monkeypatch.setattr(place, lambda text: Path("net.safetensors"))


def given(digits: Dataset) -> dict[str, object]:
    """Names that blocks of Python use without saying where they come from."""
    model = mb.zoo.lenet()
    images = digits.test.read(range(4))
    pair = (digits.train.images[:100], digits.train.labels[:100])
    return {
        "mb": mb,
        "torch": torch,
        "lightning": lightning,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "train_data": pair,
        "test_data": (digits.test.images, digits.test.labels),
        "data": digits,
        "scores": np.zeros((len(digits.train), 10), np.float32),
        "example_input": torch.zeros(1, 1, 28, 28),
        "x": np.zeros((1, 1, 28, 28), np.float32),
        "images": images,
        "frame": np.zeros((48, 64, 3), np.uint8),
        "__name__": "page",
    }


SPECIAL = {  # blocks that begin with other things than the page before them
    "((ids, features), y)": words_and_features,
    "mb.attach(": lambda: fresh(),
    "mb.save(model": lambda: fresh(),
    "(image, torch.tensor": lambda: {
        "model": TwoInputs(),
        "image": torch.zeros(1, 1, 8, 8),
        "images": np.zeros((1, 1, 8, 8), np.float32),
        "ids": np.array([[1, 2, 3]]),
    },
    'values="p8", calibrate=images': lambda: {"images": torch.rand(8, 1, 28, 28)},
    'engine="micro"': lambda: (
        shutil.rmtree("firmware") or {"images": mb.data.load("mnist").test.read(range(4))}
    ),
}


def fresh() -> dict[str, object]:
    """A network that no block before has attached to."""
    model = mb.zoo.lenet()
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}


LESS = {  # of a loop that a page shows
    "...  # the loop, unchanged\n": "for _ in range(2):\n    optimizer.zero_grad()\n"
    "    model(torch.zeros(1, 1, 28, 28)).sum().backward()\n    optimizer.step()\n",
    "total_steps=5000": "total_steps=2",
    "every=100)": "every=1)",
    "mb.l0_project(0.1), mb.palette(levels=16)": "mb.l0_project(0.1, every=1), mb.palette(levels=16)",
    "seeds=3, steps=150,": "seeds=2, steps=2,",
    "steps, seeds = 1500, 3 ": "steps, seeds = 4, 2 ",
    "until=0.5), every=12": "until=0.5), every=2",
    "batch_size, peak_lr, warmup = 64, 0.06, min(200, steps // 10)": "batch_size, peak_lr, warmup = 8, 0.06, 2",
}


def run_python(text: str, names: dict[str, object], number: int) -> None:
    for long, short in LESS.items():
        text = text.replace(long, short)
    own = {key: value for part, make in SPECIAL.items() if part in text for key, value in make().items()}
    Path(f"block{number}.py").write_text(text)
    found = runpy.run_path(f"block{number}.py", init_globals={**names, **own}, run_name="page")
    names.update({key: value for key, value in found.items() if key not in own})


def run_command(words: list[str]) -> None:
    if is_left_out(words) or ("--web" in words and not can_compile_for_a_browser()):
        return
    words, out = redirected(words)
    with ExitStack() as stack:
        if out is not None:
            stack.enter_context(redirect_stdout(stack.enter_context(open(out, "w"))))
        with pytest.raises(SystemExit) as stopped:
            main([*words[1:], *FEW.get(words[1], [])])
    assert stopped.value.code == 0, words


def compile_fragment(text: str) -> None:
    """C, as the body of a program that has a camera, or numbers for a network that takes these."""
    head = '#include <stdio.h>\n#include "net.h"\nconst uint8_t *next_row(void);\n'
    folder, used = "firmware", ""
    if "net_input" in text:
        folder = "of_numbers"
        build = Builder((3, 4, 5), 0)
        build.conv(0, 2)
        said = {"mean": [1.0, -2.0, 30.0], "std": [0.5, 4.0, 25.0], "takes": "float32"}
        write_project(folder, micro(build.store("p8", preprocess=said)), units=(0.01,))
        size = "[NET_WIDTH * NET_CHANNELS]"
        head += f"static float numbers{size};\nstatic uint8_t row{size};\n"
        used = "(void)numbers;\n"
    if "net_context" not in text:
        head += "static net_context context;\n"
    for line in re.findall(r"^#include .*\n", text, re.MULTILINE):
        head, text = head + line, text.replace(line, "")
    Path("fragment.c").write_text(f"{head}int main(void) {{\n{used}{text}return 0;\n}}\n")
    command = ["cc", "-std=c99", "-Wall", "-Werror", f"-I{folder}", "-c", "fragment.c"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


BEFORE = {  # what the commands of a page find in their folder
    "MICRO_REFERENCE": ["fit lenet --data mnist --budget 20KiB --no-dense --out net.safetensors",
                        "export net.safetensors --int8 calibrated.safetensors --data mnist",
                        "export net.safetensors --c firmware --data mnist"],
    "DEPLOYING": ["fit lenet --data mnist --budget 20KiB --no-dense --out net.safetensors"],
    "README": ["fit lenet --data mnist --budget 20KiB --no-dense --out net.safetensors"],
}  # fmt: skip


@pytest.mark.full
def test_the_fair_comparison_runs_as_pasted(stage, capsys):
    """Without a name that the page does not define."""
    page = page_of("RESEARCH").split("\n## Compare your method fairly\n")[1].split("\n## ")[0]
    first, second, *_ = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    assert "steps, seeds = 1500, 3 " in first
    assert "1500" not in second
    run_python(first, names, 0)
    run_python(second, names, 1)
    assert "Taylor against LAMP" in capsys.readouterr().out
    assert {path.name for path in Path("runs").iterdir()} == {"methods.html", "mine.safetensors"}


@pytest.mark.full
def test_the_walkthrough_of_microcontrollers_runs_as_pasted(tmp_path, monkeypatch, capsys):
    """From readings to C: the program, the integers in Python, and the loop of firmware say the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    script, program, check, loop = (text for _, text in walkthrough())
    Path("motion.py").write_text(script)
    said = []
    for words in commands(program):
        capsys.readouterr()
        if words[0] == "membound":
            run_command(words)
        elif words[0] == "python":
            runpy.run_path(words[1], run_name="__main__")
        else:
            line = " ".join(words)
            said.append(subprocess.run(line, shell=True, check=True, capture_output=True, text=True).stdout)
    _, recognized = said
    assert f"  integers {recognized.split(' ->')[0]}\n" in capsys.readouterr().out
    runpy.run_path(str(write("check.py", check)))
    assert capsys.readouterr().out.replace("[", "").replace("]", "").split() == recognized.split()
    head = '#include <stdio.h>\n#include "net.h"\nstatic const int32_t *next_reading(void) {\n'
    counts = ", ".join(str(round(100 * number)) for number in np.load("window.npy")[0].T.ravel().tolist())
    head += (
        f"  static const int32_t given[] = {{{counts}}};\n  static int at;\n  return given + 3 * at++;\n}}\n"
    )
    write("loop.c", f"{head}int main(void) {{\n{loop}return 0;\n}}\n")
    sources = ("loop.c", "motion/net.c", "motion/membound_micro.c", "motion/membound_micro_conv.c")
    subprocess.run(
        ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-Imotion", *sources, "-o", "loop"], check=True
    )
    done = subprocess.run("./loop", check=True, capture_output=True, text=True)
    assert done.stdout == f"class {recognized.split()[-1]}\n"


def write(name: str, text: str) -> Path:
    Path(name).write_text(text)
    return Path(name)


def walkthrough() -> list[tuple[str, str]]:
    """The blocks of MICRO.md that go on from each other, and need nothing else of the page."""
    section = page_of("MICRO").split("\n## Step by step: ")[1].split("\n## ")[0]
    return [(each[1], each[2].replace("\\\n", " ")) for each in BLOCK.finditer(section)]


@pytest.mark.full
@pytest.mark.parametrize("name", PAGES)
def test_every_block_of_a_page_runs(name, stage, capsys):
    torch.manual_seed(0)
    for line in BEFORE.get(name, ()):
        run_command(["membound", *line.split()])
    apart = walkthrough() if name == "MICRO" else []
    for number, (language, text) in enumerate(blocks(name)):
        if (language, text) in apart:
            continue
        if language == "python":
            run_python(text, stage, number)
        elif language == "c":
            compile_fragment(text)
        elif language != "text":  # what a program prints
            assert language == ""
            if name in ("README", "MICRO_REFERENCE"):  # a block before has written another network there
                run_command(["membound", *BEFORE[name][0].split()])
            for words in commands(text):
                run_command(words)
