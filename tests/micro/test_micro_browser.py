"""The exported page in a real browser, without a window: the engine's bits, and what a person who draws sees."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from micro_networks import NETWORKS, micro, some_images
from PIL import Image
from test_micro_web import WASM

import membound as mb
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
  const found = { numbers: images.map(image => classify(toPixels(image, about.width, about.height, about)).numbers) };
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


DROP = """<script>
loadNetwork(about, module).then(() => setTimeout(() => {
  const bytes = Uint8Array.from(atob("@PICTURE@"), c => c.charCodeAt(0)), data = new DataTransfer();
  data.items.add(new File([bytes], "picture.png", { type: "image/png" }));
  dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
  setTimeout(() => {
    document.title = JSON.stringify({ rows: [...shown.rows].map(row => row.cells[2].innerText),
      board: [canvas.width, canvas.height], left: context.getImageData(2, 140, 1, 1).data[0] });
  }, 1000);
}, 100));
</script>"""


def test_a_picture_that_is_dropped_is_resized_and_cropped_as_in_python(tmp_path):
    net = micro(NETWORKS["lenet"]())
    digit = mb.data.load("mnist").test.read([0])[0, 0]
    wide = np.pad(np.kron(digit, np.ones((5, 5), np.uint8)), ((0, 0), (110, 110)), constant_values=255)
    Image.fromarray(wide).convert("RGB").save(tmp_path / "picture.png")
    write_page(tmp_path / "web", net)
    page = tmp_path / "web" / "index.html"
    script = DROP.replace("@PICTURE@", base64.b64encode((tmp_path / "picture.png").read_bytes()).decode())
    page.write_text(page.read_text().replace("</html>", f"{script}</html>"))
    seen = opened(page, "--dump-dom")
    found = json.loads(re.search(r"<title>(.*?)</title>", seen, re.DOTALL).group(1))
    scores = net(net.read(tmp_path / "picture.png"))[0]
    shares = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    assert found["rows"] == [f"{100 * share:.1f} %" for share in shares]
    assert found["board"] == [280, 280]
    assert found["left"] == 0, "the white beside the center is not shown"


def test_the_page_is_drawn(tmp_path):
    write_page(tmp_path / "web", micro(NETWORKS["lenet"]()))
    opened(tmp_path / "web" / "index.html", f"--screenshot={tmp_path / 'page.png'}", "--window-size=900,700")
    assert (tmp_path / "page.png").stat().st_size > 5_000
