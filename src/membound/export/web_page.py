"""The HTML of an exported network: a canvas to draw on, a place to drop pictures, and the classes."""

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A network in your browser</title>
<style>
:root { color-scheme: light dark; --page: #fff; --ink: #1a1d21; --soft: #59616b; --faint: #eceff2; --good: #2f7d55; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171a; --ink: #e8eaed; --soft: #a3abb5; --faint: #2a3037; --good: #63d29b; }
}
body {
  font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem;
  background: var(--page); color: var(--ink);
}
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .5rem; }
main { display: flex; flex-wrap: wrap; gap: 1.5rem 2rem; }
canvas {
  display: block; width: 280px; height: 280px; border: 1px solid var(--soft); border-radius: 6px;
  image-rendering: pixelated; touch-action: none; cursor: crosshair;
}
.board { position: relative; width: 282px; }
#hint {
  position: absolute; inset: 0; display: grid; place-items: center; color: #8a929c; pointer-events: none; margin: 0;
}
.controls { display: flex; gap: .6rem; margin-top: .6rem; }
.controls button, .controls label {
  font: inherit; text-align: center; white-space: nowrap; padding: .4rem .6rem;
  border: 1px solid var(--soft); border-radius: 6px; background: var(--faint); color: var(--ink); cursor: pointer;
}
.controls label { flex: 1; }
.controls input { position: absolute; opacity: 0; width: 1px; }
.controls :focus-visible, .controls input:focus-visible + label { outline: 2px solid var(--good); outline-offset: 2px; }
table { border-collapse: collapse; align-self: start; flex: 1; font-variant-numeric: tabular-nums; }
td { padding: .1rem .7rem .1rem 0; }
td:first-child { white-space: nowrap; max-width: 9rem; overflow: hidden; text-overflow: ellipsis; }
td:nth-child(2) { width: 100%; min-width: 6rem; }
td:nth-child(3) { text-align: right; min-width: 4.5rem; padding-right: 0; color: var(--soft); white-space: nowrap; }
.track { background: var(--faint); border-radius: 3px; }
.bar { background: var(--good); border-radius: 3px; height: .8rem; }
.best { font-weight: 600; }
.best td:nth-child(3) { color: inherit; }
.blank { opacity: .45; }
#facts { color: var(--soft); }
</style>
<h1>A network in your browser</h1>
<p id="how"></p>
<main>
<div><div class="board"><canvas id="canvas" aria-label="the picture"></canvas><p id="hint"></p></div>
<div class="controls"><button id="clear">Clear</button>
<input id="file" type="file" accept="image/*"><label for="file">Choose a picture</label></div></div>
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
const draws = about.channels === 1, hint = document.getElementById("hint");
document.getElementById("how").textContent = `${about.wasm.toLocaleString()} bytes of WebAssembly, and nothing else ` +
  `to load. ${draws ? "Draw with the mouse or a finger, or drop a picture." : "Drop a picture, or choose one."}`;
hint.textContent = draws ? "Draw here" : "Drop a picture here";
loadNetwork(about, module).then(classify => {
  const small = document.createElement("canvas");
  small.width = about.width;
  small.height = about.height;
  const pen = small.getContext("2d", { willReadFrequently: true });
  let blank = true;  // nothing was drawn yet: what the network makes of that is of no interest
  function update() {
    pen.drawImage(canvas, 0, 0, small.width, small.height);
    const rgba = pen.getImageData(0, 0, small.width, small.height).data;
    const { numbers, milliseconds } = classify(toPixels(rgba, about.channels));
    const scores = numbers.map(q => about.scale * (q - about.zero)), most = Math.max(...scores);
    const total = scores.reduce((sum, score) => sum + Math.exp(score - most), 0);
    const shares = scores.map((score, i) => [Math.exp(score - most) / total, i]);
    if (shares.length > 10) shares.sort((a, b) => b[0] - a[0]);  // of few classes each has its place
    const best = Math.max(...shares.map(([share]) => share));
    shown.className = blank ? "blank" : "";
    hint.style.display = blank ? "" : "none";
    shown.replaceChildren(...shares.slice(0, 10).map(([share, i]) => {
      const row = document.createElement("tr");
      const bar = document.createElement("div"), track = document.createElement("div");
      track.className = "track";
      bar.className = "bar";
      bar.style.width = `${blank ? 0 : 100 * share}%`;
      track.append(bar);
      for (const part of [about.classes[i], track, blank ? "" : `${(100 * share).toFixed(1)} %`])
        row.appendChild(document.createElement("td")).append(part);
      if (share === best && !blank) row.className = "best";
      return row;
    }));
    facts.textContent = (blank ? "" : `Answered in ${milliseconds.toFixed(2)} ms. `) +
      `Constants ${about.constants.toLocaleString()} bytes, working memory ${about.context.toLocaleString()} bytes.`;
  }
  function clear() {
    context.fillStyle = "#000";
    context.fillRect(0, 0, 280, 280);
    blank = true;
    update();
  }
  function show(file) {
    createImageBitmap(file).then(picture => {
      context.drawImage(picture, 0, 0, 280, 280);
      blank = false;
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
    blank = false;
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
