"""What SECURITY.md promises of the code: every module's syntax tree is walked, and every rule is shown to bite."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import import_diagram
import pytest

from membound.data import named

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "membound"
FILES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}

EXECUTED_WHEN_READ = {
    "pickle",
    "_pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "yaml",
}
NETWORK = {
    "aiohttp", "asyncio", "ftplib", "http", "httpx", "huggingface_hub", "imaplib", "poplib", "requests", "smtplib",
    "socket", "socketserver", "ssl", "telnetlib", "urllib", "urllib3", "websockets", "xmlrpc",
}  # fmt: skip
DOWNLOADS, CLUSTER, ARCHIVES, USERS_CODE, HUB = (
    "data/fetch.py",
    "search/cluster.py",
    "data/named.py",
    "zoo/networks.py",
    "run/hub.py",
)
MAY = {(CLUSTER, "socket"), (HUB, "huggingface_hub")}  # the module that may, and what
RUNS_TEXT = {"eval", "exec", "compile", "__import__", "breakpoint"}
RUNS_A_SHELL = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
FOUND_BY_NAME = {"importlib.import_module", "importlib.__import__"}
# Calls that are safe only with this argument.
ONLY_WITH = {
    "torch.load": ("weights_only", True),
    "numpy.load": ("allow_pickle", False),
    "numpy.save": ("allow_pickle", False),
}
NEVER = {"torch.save", "torch.hub.load", "torch.hub.load_state_dict_from_url", "shutil.unpack_archive"}


def findings(tree: ast.Module, file: str) -> list[str]:
    """What this source, as the module `file` of the package, must not do."""
    full = _full_names(tree)
    found = [word for name in full.values() for word in _about_import(name, file)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found += _about_call(node, _dotted(node.func, full), file)
    return found


def _full_names(tree: ast.AST) -> dict[str, str]:
    """What each imported name stands for: {"np": "numpy", "load": "torch.load"}."""
    full = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            # `import a.b` binds a, but is kept under its own name so that a.b is seen as imported, too.
            full |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            full |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return full


def _dotted(node: ast.expr, full: dict[str, str]) -> str:
    """The name of what is called, in full: np.load is numpy.load; an unknown object is "?"."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, full)}.{node.attr}"
    return full.get(node.id, node.id) if isinstance(node, ast.Name) else "?"


def _about_import(name: str, file: str) -> Iterator[str]:
    top = name.split(".")[0]
    if top in EXECUTED_WHEN_READ:
        yield f"imports {name}: reading it can execute what was read"
    if top in NETWORK and file != DOWNLOADS and (file, top) not in MAY:
        yield f"imports {name}: only {DOWNLOADS} reaches the network"
    if top == "pooch" and file != DOWNLOADS:
        yield f"imports {name}: only {DOWNLOADS} downloads"
    if top == "tarfile" and file != ARCHIVES:
        yield f"imports {name}: only {ARCHIVES} unpacks archives"
    if top == "zipfile" and name != "zipfile.BadZipFile":
        yield f"imports {name}: only the name of its error is needed"


def _about_call(node: ast.Call, name: str, file: str) -> Iterator[str]:
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    last = name.split(".")[-1]
    if name.removeprefix("builtins.") in RUNS_TEXT:
        yield f"line {node.lineno}: {name} runs text as code"
    if name in RUNS_A_SHELL or re.fullmatch(r"os\.(exec|spawn|posix_spawn)\w*", name):
        yield f"line {node.lineno}: {name} runs a command"
    if "shell" in given and not _is(given["shell"], False):
        yield f"line {node.lineno}: {name} runs a shell"
    if name in NEVER:
        yield f"line {node.lineno}: {name} is not for this package"
    if name in ONLY_WITH and not _is(given.get(ONLY_WITH[name][0]), ONLY_WITH[name][1]):
        yield f"line {node.lineno}: {name} without {'{}={}'.format(*ONLY_WITH[name])}"
    if name in FOUND_BY_NAME:
        yield from _about_module(node, file)
    if last in ("extract", "extractall") and not _is(given.get("filter"), "data"):
        yield f"line {node.lineno}: {name} without filter='data' may write outside its folder"
    if name in ("pooch.retrieve", "membound.data.fetch.download") and not _has_hash(node, given):
        yield f"line {node.lineno}: {name} without a hash"
    if name in ("pooch.create", "pooch.Pooch", "urllib.request.urlretrieve"):
        yield f"line {node.lineno}: {name} downloads without a hash of this package"


def _about_module(node: ast.Call, file: str) -> Iterator[str]:
    """Modules imported by name: this package's own, Ray, and in one place the user's own network."""
    name = node.args[0]
    start = name.values[0] if isinstance(name, ast.JoinedStr) else name
    text = start.value if isinstance(start, ast.Constant) else ""
    allowed = text.startswith("membound.") or (file == CLUSTER and text.split(".")[0] == "ray")
    if not allowed and file not in (USERS_CODE, "__init__.py"):
        yield f"line {node.lineno}: imports a module by a name that is made when it runs"
    if text:
        yield from _about_import(text, file)


def _has_hash(node: ast.Call, given: dict[str | None, ast.expr]) -> bool:
    """The second argument, or the one of that name, is there and not None."""
    value = node.args[1] if len(node.args) > 1 else given.get("known_hash", given.get("sha256"))
    return value is not None and not _is(value, None)


def _is(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value


def test_the_code_keeps_its_promises():
    found = {file: findings(import_diagram.syntax(path), file) for file, path in FILES.items()}
    assert len(found) > 300
    assert {file: words for file, words in found.items() if words} == {}


OFFENCES = {
    "import pickle": "can execute",
    "import marshal as m": "can execute",
    "from shelve import open": "can execute",
    "def f():\n    import dill": "can execute",
    "import importlib\nimportlib.import_module('membound.x')\nimportlib.import_module('pickle')": "can execute",
    "import torch\ntorch.load(p)": "torch.load without weights_only=True",
    "import torch\ntorch.load(p, weights_only=False)": "torch.load without weights_only=True",
    "from torch import load as get\nget(p)": "torch.load without weights_only=True",
    "import torch\ntorch.hub.load('a', 'b')": "torch.hub.load is not",
    "import numpy as np\nnp.load(p)": "numpy.load without allow_pickle=False",
    "import numpy as np\nnp.load(p, allow_pickle=True)": "numpy.load without allow_pickle=False",
    "import numpy as np\nnp.load(p, allow_pickle=maybe)": "numpy.load without allow_pickle=False",
    "import numpy as np\nnp.save(p, x)": "numpy.save without allow_pickle=False",
    "eval('1')": "runs text",
    "exec(text)": "runs text",
    "compile(text, 'x', 'exec')": "runs text",
    "import builtins\nbuiltins.eval('1')": "runs text",
    "__import__(name)": "runs text",
    "import os\nos.system('ls')": "runs a command",
    "from os import popen\npopen('ls')": "runs a command",
    "import os\nos.execvp('ls', [])": "runs a command",
    "import subprocess\nsubprocess.run('ls', shell=True)": "runs a shell",
    "import subprocess\nsubprocess.Popen('ls', shell=maybe)": "runs a shell",
    "import subprocess\nsubprocess.getoutput('ls')": "runs a command",
    "import socket": "reaches the network",
    "import urllib.request": "reaches the network",
    "from http import client": "reaches the network",
    "import requests": "reaches the network",
    "import huggingface_hub": "reaches the network",
    "import pooch": "downloads",
    "import tarfile": "unpacks",
    "import zipfile": "only the name of its error",
    "import shutil\nshutil.unpack_archive(p)": "is not for this package",
    "import importlib\nimportlib.import_module(name)": "by a name that is made when it runs",
}


@pytest.mark.parametrize("source", OFFENCES)
def test_an_offence_is_found(source):
    assert any(OFFENCES[source] in word for word in findings(ast.parse(source), "store/file.py"))


IN_ITS_PLACE = {
    (DOWNLOADS, "import pooch\npooch.retrieve(url, None)"): "without a hash",
    (DOWNLOADS, "import pooch\npooch.retrieve(url, known_hash=None)"): "without a hash",
    (DOWNLOADS, "import pooch\npooch.create(path, url)"): "without a hash",
    (DOWNLOADS, "import urllib.request\nurllib.request.urlretrieve(url)"): "without a hash",
    (ARCHIVES, "from membound.data import fetch\nfetch.download(url, None, target)"): "without a hash",
    (ARCHIVES, "from membound.data.fetch import download\ndownload(url)"): "without a hash",
    (ARCHIVES, "tar.extractall(folder)"): "without filter",
    (ARCHIVES, "tar.extract(member, folder, filter='fully_trusted')"): "without filter",
    (CLUSTER, "import urllib"): "reaches the network",
    (CLUSTER, "import importlib\nimportlib.import_module('os')"): "by a name",
}


@pytest.mark.parametrize(("file", "source"), IN_ITS_PLACE)
def test_an_offence_is_found_where_more_is_allowed(file, source):
    assert any(IN_ITS_PLACE[file, source] in word for word in findings(ast.parse(source), file))


@pytest.mark.parametrize(
    ("file", "source"),
    [
        (
            "store/file.py",
            "import re, torch\nre.compile('a')\ntorch.compile(model)\nmodel.eval()\nself.load(p)",
        ),
        ("store/file.py", "import numpy as np\nnp.load(p, allow_pickle=False)"),
        ("store/file.py", "import subprocess\nsubprocess.run(['ls'], shell=False)"),
        ("store/file.py", "from zipfile import BadZipFile"),
        (
            ARCHIVES,
            "import tarfile\ntar.extractall(folder, filter='data')\nfetch.download(url, sha256, target)",
        ),
        (CLUSTER, "import socket"),
        (HUB, "import huggingface_hub as hub\nfrom huggingface_hub import errors"),
        (DOWNLOADS, "import pooch, urllib.request\npooch.retrieve(url, f'sha256:{digest}')"),
    ],
)
def test_what_is_harmless_is_not_found(file, source):
    assert findings(ast.parse(source), file) == []


def test_the_places_of_exceptions_are_there():
    assert {DOWNLOADS, CLUSTER, ARCHIVES, USERS_CODE} <= FILES.keys()


def test_downloads_are_encrypted_and_have_full_hashes():
    urls = [value for name, value in vars(named).items() if name.endswith("_URL")]
    assert len(urls) == 2
    assert all(url.startswith("https://") for url in urls)
    hashes = [named.CIFAR10_ARCHIVE_SHA256, *named.MNIST_SHA256.values(), *named.CIFAR10_SHA256.values()]
    assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in hashes)


def test_the_policy_names_what_is_read():
    policy = (ROOT / "SECURITY.md").read_text()
    for kind in (
        "safetensors",
        ".caffemodel",
        ".binaryproto",
        ".npz",
        ".npy",
        ".pt",
        "MNIST",
        "CIFAR-10",
        "TOML",
    ):
        assert kind in policy, kind
