"""The exported page: its module, run by node as a browser would, gives the engine's bits."""

import importlib.util
import itertools
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from micro_networks import NETWORKS, micro, some_images
from profiles import chiefly

import membound as mb
from membound.data.pictures import convert
from membound.errors import ModelError
from membound.export.web import write_page
from membound.export.web_page import page_text
from membound.run.pictures import LUMA

WASM = importlib.util.find_spec("ziglang") is not None or (shutil.which("clang") and shutil.which("wasm-ld"))
needs_tools = pytest.mark.skipif(
    not (WASM and shutil.which("node")), reason="no WebAssembly compiler, or no node"
)
SCRIPT = """
const fs = require("fs");
const images = JSON.parse(fs.readFileSync(process.argv[2]));
loadNetwork(about, module_).then(classify => {
  console.log(JSON.stringify(images.map(image => classify(toPixels(image, about.width, about.height, about)).numbers)));
});
"""


@needs_tools
@pytest.mark.parametrize("name", chiefly(["concat"], ["concat", "lenet", "resnet8", "mobilenet"]))
def test_the_module_gives_the_bits_of_the_engine(name, tmp_path):
    net = micro(NETWORKS[name]())
    images = some_images(net.model, 2)
    sizes = write_page(tmp_path / "web", net)
    page = (tmp_path / "web" / "index.html").read_text()
    assert sizes["page_bytes"] == len(page.encode())
    constants = (
        re.search(r"const about = .*\nconst module = .*\n", page).group().replace("module =", "module_ =")
    )
    code = page[page.index("// begin network") : page.index("// end network")]
    (tmp_path / "page.js").write_text(constants + code + SCRIPT)
    rgba = np.full((len(images), *images.shape[2:], 4), 255)
    rgba[..., :3] = images.transpose(0, 2, 3, 1)  # gray is the same in all three
    (tmp_path / "images.json").write_text(json.dumps(rgba.reshape(len(images), -1).tolist()))
    command = ["node", str(tmp_path / "page.js"), str(tmp_path / "images.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert np.array_equal(json.loads(done.stdout), net.integers(images).reshape(len(images), -1))


PREPARE = """
for (const { rgba, width, height, about } of JSON.parse(require("fs").readFileSync(process.argv[2])))
  console.log(JSON.stringify(Array.from(toPixels(rgba, width, height, about))));
"""
PICTURES = [(28, 28), (64, 48), (48, 64), (29, 28), (7, 5), (500, 9), (5, 90)]
SHAPES = [(1, (28, 28), (28, 28)), (3, (24, 24), (27, 27)), (3, (18, 30), (18, 30))]


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
def test_pictures_become_what_python_reads(tmp_path):
    """Resized until they cover the network's image, then the center, and the crop of that; not stretched."""
    cases, wanted = [], []
    digits = mb.data.load("mnist").test.read(range(3 * 20))[:, 0].reshape(3, 560, 28)
    for (channels, shape, picture), (width, height) in itertools.product(SHAPES, PICTURES):
        rows = np.resize(digits.transpose(1, 2, 0), (height, width, 3))
        about = {"channels": channels, "height": shape[0], "width": shape[1], "picture": picture}
        rgba = np.dstack([rows, np.full(rows.shape[:2], 255)]).reshape(-1).tolist()
        cases.append({"rgba": rgba, "width": width, "height": height, "about": about})
        image = convert(rows, picture)
        top, left = ((a - b) // 2 for a, b in zip(picture, shape, strict=True))
        image = image[top : top + shape[0], left : left + shape[1]]
        wanted.append(np.rint(image @ LUMA) if channels == 1 else image)
    page = page_text("{}", "")
    code = page[page.index("// Which pixels") : page.index("// end network")]
    (tmp_path / "page.js").write_text(code + PREPARE)
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    command = ["node", str(tmp_path / "page.js"), str(tmp_path / "cases.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for case, line, image in zip(cases, done.stdout.splitlines(), wanted, strict=True):
        off = np.abs(np.reshape(json.loads(line), image.shape) - image).max()
        exact = case["about"]["channels"] == 3 and case["height"] <= 2 * case["width"]
        assert off <= (0 if exact else 1), (case["width"], case["height"], case["about"])


def test_a_name_of_a_class_cannot_end_the_script():
    page = page_text(json.dumps({"classes": ["</script><b>"]}), "AAAA")
    assert page.count("</script>") == 1


def test_the_page_loads_nothing_from_elsewhere():
    assert not re.search(r"https?://|src=|@import|fetch\(", page_text("{}", ""))


def test_networks_that_take_no_pictures_and_missing_compilers_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="gray or color pictures"):
        write_page(tmp_path / "web", micro(NETWORKS["dscnn"]()))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(
        ModelError,
        match=r"no compiler for WebAssembly: .* \(in a checkout, pip install '\.\[web\]'\), or install clang",
    ):
        write_page(tmp_path / "web", micro(NETWORKS["lenet"]()))
    monkeypatch.setattr(shutil, "which", {"clang": "/usr/bin/clang"}.get)
    with pytest.raises(
        ModelError, match=r"its linker .* wasm-ld, is not: pip install ziglang .*, or install lld"
    ):
        write_page(tmp_path / "web", micro(NETWORKS["lenet"]()))
    assert not (tmp_path / "web").exists()
