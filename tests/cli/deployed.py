"""A small network in a file, data that it knows, and the command line as a user meets it."""

import numpy as np
import pytest

from membound.cli import main
from membound.store.file import write
from membound.store.graph import Graph, Node
from membound.store.model import Model

CLASSES = ["dark", "bright"]


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return stopped.value.code


def refused(capsys, *arguments: object) -> str:
    """The one line that a command refuses with."""
    assert run(*arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("membound: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def network(channels=1, **about) -> Model:
    """Two classes of images of 6 x 6: dark below the mean of 100, bright above it."""
    nodes = (
        Node("conv", (0,), {"act": ("relu",)}, {"w": "conv.weight", "b": "conv.bias"}),
        Node("reshape", (1,), {"shape": (64,)}),
        Node("linear", (2,), {}, {"w": "fc.weight"}),
    )
    conv = np.zeros((4, channels, 3, 3), np.float32)
    conv[0, 0, 1, 1], conv[1, 0, 1, 1], conv[2, 0, 0, 0] = -1, 1, 0.5
    fc = np.zeros((2, 64), np.float32)
    fc[0, :16], fc[1, 16:32] = 1, 1
    tensors = {"conv.weight": conv, "conv.bias": np.zeros(4, np.float32), "fc.weight": fc}
    about = {"preprocess": {"scale": 0.01, "mean": [100.0] * channels}, "classes": CLASSES, **about}
    return Model(Graph((channels, 6, 6), nodes, 3), tensors, {"fc.weight": (2, 80)}, **about)


def write_network(path, **about):
    write(path, network(**about))
    return path


def images(count=6):
    """Dark and bright images in turn, uint8, and their labels."""
    labels = np.arange(count) % 2
    noise = np.random.default_rng(0).integers(0, 50, (count, 1, 6, 6))
    return (noise + 150 * labels[:, None, None, None]).astype(np.uint8), labels


def broken_files(folder):
    """Files that are no model, by what is wrong with them, and words that their errors have."""
    write_network(folder / "whole.safetensors")
    content = (folder / "whole.safetensors").read_bytes()
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    contents = {
        "empty": (b"", "not a model file"),
        "truncated": (content[:-5], "rule"),
        "short": (content[:100], "rule"),
        "garbage": (b"garbage" * 50, "not a model file"),
        "flipped": (content[:-1] + b"\xff", "rule 30"),
        "weights": (len(header).to_bytes(8, "little") + header + b"\0\0\0\0", "membound export"),
    }
    found = {}
    for name, (data, words) in contents.items():
        path = folder / f"{name}.safetensors"
        path.write_bytes(data)
        found[name] = (path, words)
    found["missing"] = (folder / "missing.safetensors", "there is no file")
    found["folder"] = (folder, "is a folder")
    return found


BROKEN = ["empty", "truncated", "short", "garbage", "flipped", "weights", "missing", "folder"]
