"""The HTML of an exported network: a canvas to draw on, a place to drop pictures, and the classes."""

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A network in your browser</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem; color: #1a1d21; }
main { display: flex; flex-wrap: wrap; gap: 2rem; }
canvas { width: 280px; height: 280px; border: 1px solid #59616b; image-rendering: pixelated; touch-action: none; }
table { border-collapse: collapse; }
td { padding: 0 .6rem 0 0; }
.bar { background: #2f7d55; height: .8rem; }
.best { font-weight: 600; }
#facts { color: #59616b; }
</style>
<h1>A network in your browser</h1>
<p id="how"></p>
<main>
<div><canvas id="canvas" aria-label="the picture"></canvas><br><button id="clear">Clear</button>
<input id="file" type="file" accept="image/*" aria-label="a picture"></div>
<table id="classes"></table>
</main>
<p id="facts"></p>
<script>
const about = @ABOUT@;
const module = "@MODULE@";
// begin network
async function loadNetwork(about, module) {
  const bytes = Uint8Array.from(atob(module), c => c.charCodeAt(0));
  const { instance } = await WebAssembly.instantiate(bytes, {});
  const { memory, image, run, output } = instance.exports;
  return function classify(pixels) {
    new Uint8Array(memory.buffer, image(), pixels.length).set(pixels);
    const begin = performance.now();
    run();
    const milliseconds = performance.now() - begin;
    const numbers = Array.from({ length: about.outputs }, (_, i) => output(i));
    return { numbers, milliseconds };
  };
}
// Gray is the usual mix of red, green and blue.
function toPixels(rgba, channels) {
  const out = new Uint8Array(rgba.length / 4 * channels);
  for (let i = 0, o = 0; i < rgba.length; i += 4)
    if (channels === 1) out[o++] = Math.round(0.299 * rgba[i] + 0.587 * rgba[i + 1] + 0.114 * rgba[i + 2]);
    else for (let c = 0; c < 3; c++) out[o++] = rgba[i + c];
  return out;
}
// end network
const canvas = document.getElementById("canvas"), context = canvas.getContext("2d", { willReadFrequently: true });
const shown = document.getElementById("classes"), facts = document.getElementById("facts");
canvas.width = canvas.height = 280;
document.getElementById("how").textContent =
  about.channels === 1 ? "Draw with the mouse or a finger, or drop a picture." : "Drop a picture, or choose one.";
loadNetwork(about, module).then(classify => {
  const small = document.createElement("canvas");
  small.width = about.width;
  small.height = about.height;
  const pen = small.getContext("2d", { willReadFrequently: true });
  function update() {
    pen.drawImage(canvas, 0, 0, small.width, small.height);
    const rgba = pen.getImageData(0, 0, small.width, small.height).data;
    const { numbers, milliseconds } = classify(toPixels(rgba, about.channels));
    const scores = numbers.map(q => about.scale * (q - about.zero)), most = Math.max(...scores);
    const total = scores.reduce((sum, score) => sum + Math.exp(score - most), 0);
    const shares = scores.map((score, i) => [Math.exp(score - most) / total, i]).sort((a, b) => b[0] - a[0]);
    shown.replaceChildren(...shares.slice(0, 10).map(([share, i], place) => {
      const row = document.createElement("tr"), bar = document.createElement("div");
      bar.className = "bar";
      bar.style.width = `${Math.round(150 * share)}px`;
      for (const part of [about.classes[i], `${(100 * share).toFixed(1)} %`, bar])
        row.appendChild(document.createElement("td")).append(part);
      if (place === 0) row.className = "best";
      return row;
    }));
    facts.textContent = `${milliseconds.toFixed(2)} ms. Constants ${about.flash.toLocaleString()} bytes, working ` +
      `memory ${about.ram.toLocaleString()} bytes, the module ${about.wasm.toLocaleString()} bytes.`;
  }
  function clear() {
    context.fillStyle = "#000";
    context.fillRect(0, 0, 280, 280);
    update();
  }
  function show(file) {
    createImageBitmap(file).then(picture => {
      context.drawImage(picture, 0, 0, 280, 280);
      update();
    });
  }
  let last = null;
  canvas.addEventListener("pointerdown", event => { last = [event.offsetX, event.offsetY]; });
  addEventListener("pointerup", () => { last = null; });
  canvas.addEventListener("pointermove", event => {
    if (last === null) return;
    context.strokeStyle = "#fff";
    context.lineWidth = 22;
    context.lineCap = "round";
    context.beginPath();
    context.moveTo(...last);
    context.lineTo(event.offsetX, event.offsetY);
    context.stroke();
    last = [event.offsetX, event.offsetY];
    update();
  });
  addEventListener("dragover", event => event.preventDefault());
  addEventListener("drop", event => {
    event.preventDefault();
    if (event.dataTransfer.files.length) show(event.dataTransfer.files[0]);
  });
  document.getElementById("file").addEventListener("change", event => show(event.target.files[0]));
  document.getElementById("clear").addEventListener("click", clear);
  clear();
});
</script>
</html>
"""


def page_text(about: str, module: str) -> str:
    """The page; `about` is JSON, in which no tag can end the script."""
    return PAGE.replace("@ABOUT@", about.replace("<", "\\u003c")).replace("@MODULE@", module)
