"""The exported page: its module, run by node as a browser would, gives the engine's bits."""

import importlib.util
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from micro_networks import NETWORKS, micro, some_images
from profiles import chiefly

from membound.errors import ModelError
from membound.export.web import write_page
from membound.export.web_page import page_text

WASM = importlib.util.find_spec("ziglang") is not None or (shutil.which("clang") and shutil.which("wasm-ld"))
needs_tools = pytest.mark.skipif(
    not (WASM and shutil.which("node")), reason="no WebAssembly compiler, or no node"
)
SCRIPT = """
const fs = require("fs");
const images = JSON.parse(fs.readFileSync(process.argv[2]));
loadNetwork(about, module_).then(classify => {
  console.log(JSON.stringify(images.map(image => classify(toPixels(image, about.channels)).numbers)));
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
        ModelError, match="no compiler for WebAssembly: pip install ziglang, or install clang and lld"
    ):
        write_page(tmp_path / "web", micro(NETWORKS["lenet"]()))
    monkeypatch.setattr(shutil, "which", {"clang": "/usr/bin/clang"}.get)
    with pytest.raises(
        ModelError, match=r"its linker .* wasm-ld, is not: pip install ziglang, or install lld"
    ):
        write_page(tmp_path / "web", micro(NETWORKS["lenet"]()))
    assert not (tmp_path / "web").exists()
