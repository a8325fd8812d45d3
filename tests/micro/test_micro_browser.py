"""The exported page in a real browser, without a window: the engine's bits, and what a person who draws sees."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from micro_networks import NETWORKS, micro, some_images
from test_micro_web import WASM

from membound.export.web import write_page

BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not (BROWSER and WASM), reason="no Chromium, or no WebAssembly compiler"),
]
SCRIPT = """<script>
function moved(kind, x, y) {
  const box = canvas.getBoundingClientRect();
  const place = { clientX: box.left + 1 + x, clientY: box.top + 1 + y, bubbles: true };
  canvas.dispatchEvent(new PointerEvent(kind, place));
}
loadNetwork(about, module).then(classify => setTimeout(() => {
  const images = @IMAGES@;
  const found = { numbers: images.map(image => classify(toPixels(image, about.channels)).numbers) };
  found.before = shown.innerText;
  moved("pointerdown", 140, 40);
  for (let y = 50; y <= 240; y += 10) moved("pointermove", 140, y);
  moved("pointerup", 140, 240);
  found.after = shown.innerText;
  found.rows = shown.rows.length;
  found.white = context.getImageData(140, 140, 1, 1).data[0];
  document.title = JSON.stringify(found);
}, 100));
</script>"""


def opened(page: Path, *more: str) -> str:
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", *more]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def test_a_browser_gives_the_bits_of_the_engine_and_answers_to_strokes(tmp_path):
    net = micro(NETWORKS["lenet"]())
    images = some_images(net.model, 2)
    write_page(tmp_path / "web", net)
    page = tmp_path / "web" / "index.html"
    rgba = np.full((len(images), *images.shape[2:], 4), 255)
    rgba[..., :3] = images.transpose(0, 2, 3, 1)
    script = SCRIPT.replace("@IMAGES@", json.dumps(rgba.reshape(len(images), -1).tolist()))
    page.write_text(page.read_text().replace("</html>", f"{script}</html>"))
    seen = opened(page, "--dump-dom")
    found = json.loads(re.search(r"<title>(.*?)</title>", seen, re.DOTALL).group(1).replace("&amp;", "&"))
    assert np.array_equal(found["numbers"], net.integers(images).reshape(len(images), -1))
    assert found["rows"] == 10
    assert found["white"] == 255
    assert found["after"] != found["before"]
    assert f"Constants {net.memory().constants:,} bytes" in seen


def test_the_page_is_drawn(tmp_path):
    write_page(tmp_path / "web", micro(NETWORKS["lenet"]()))
    opened(tmp_path / "web" / "index.html", f"--screenshot={tmp_path / 'page.png'}", "--window-size=900,700")
    assert (tmp_path / "page.png").stat().st_size > 5_000
