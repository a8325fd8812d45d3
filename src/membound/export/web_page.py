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
  display: block; border: 1px solid var(--soft); border-radius: 6px;
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
// Which pixels one of a resized line is made of, and their weights: a bilinear filter, antialiased as Pillow has it.
function findTaps(from, to, begin, count) {
  const scale = from / to, reach = Math.max(scale, 1);
  return Array.from({ length: count }, (_, i) => {
    const center = (begin + i + 0.5) * scale;
    const first = Math.trunc(Math.max(center - reach + 0.5, 0)), end = Math.min(Math.trunc(center + reach + 0.5), from);
    const heights = [];
    for (let x = first; x < end; x++) heights.push(Math.max(1 - Math.abs((x - center + 0.5) / reach), 0));
    const sum = heights.reduce((all, height) => all + height, 0);
    return { first, weights: heights.map(height => Math.trunc(0.5 + height / sum * 4194304)) };
  });
}
function apply({ first, weights }, line, at, step) {
  let sum = 2097152;
  for (let i = 0; i < weights.length; i++) sum += weights[i] * line[at + (first + i) * step];
  return Math.min(Math.trunc(sum / 4194304), 255);
}
function roundEven(x) {
  const low = Math.floor(x);
  return x - low > 0.5 || (x - low === 0.5 && low % 2) ? low + 1 : low;
}
// What of a picture the network sees: the middle of a long one, and the size that it is resized to before its center is
// taken. As net.read of membound does it.
function findFit(width, height, [high, wide]) {
  const left = Math.max(Math.trunc((width - Math.max(Math.trunc(16 * height * wide / high), 1)) / 2), 0);
  const top = Math.max(Math.trunc((height - Math.max(Math.trunc(16 * width * high / wide), 1)) / 2), 0);
  const across = width - 2 * left, down = height - 2 * top;
  const [resizedWide, resizedHigh] = across * high >= down * wide
    ? [Math.max(roundEven(across * high / down), wide), high]
    : [wide, Math.max(roundEven(down * wide / across), high)];
  return { left, top, across, down, resizedWide, resizedHigh };
}
// The network's image of a picture. Gray is the usual mix of red, green and blue.
function toPixels(rgba, width, height, about) {
  const { left, top, across, down, resizedWide, resizedHigh } = findFit(width, height, about.picture);
  const columns = findTaps(across, resizedWide, Math.floor((resizedWide - about.picture[1]) / 2) +
    Math.floor((about.picture[1] - about.width) / 2), about.width);
  const rows = findTaps(down, resizedHigh, Math.floor((resizedHigh - about.picture[0]) / 2) +
    Math.floor((about.picture[0] - about.height) / 2), about.height);
  const end = Math.max(...rows.map(taps => taps.first + taps.weights.length)), step = 3 * about.width;
  const lines = new Uint8Array(end * step), out = new Uint8Array(about.height * about.width * about.channels);
  for (let y = rows[0].first; y < end; y++)
    for (let x = 0, o = y * step; x < about.width; x++)
      for (let c = 0; c < 3; c++) lines[o++] = apply(columns[x], rgba, 4 * ((top + y) * width + left) + c, 4);
  let o = 0;
  for (const taps of rows)
    for (let x = 0; x < step; x += 3) {
      const [r, g, b] = [0, 1, 2].map(c => apply(taps, lines, x + c, step));
      if (about.channels === 3) for (const value of [r, g, b]) out[o++] = value;
      else out[o++] = roundEven(Math.fround(Math.fround(Math.fround(0.299) * r) + Math.fround(Math.fround(0.587) * g)) +
        Math.fround(Math.fround(0.114) * b));
    }
  return out;
}
// end network
const canvas = document.getElementById("canvas"), context = canvas.getContext("2d", { willReadFrequently: true });
const shown = document.getElementById("classes"), facts = document.getElementById("facts");
const [high, wide] = about.picture;  // the board has their shape, and 280 pixels on its longer side
canvas.width = Math.max(Math.round(280 * wide / Math.max(high, wide)), 1);
canvas.height = Math.max(Math.round(280 * high / Math.max(high, wide)), 1);
canvas.style.width = `${canvas.width}px`;
canvas.style.height = `${canvas.height}px`;
const draws = about.channels === 1, hint = document.getElementById("hint");
document.getElementById("how").textContent = `${about.wasm.toLocaleString()} bytes of WebAssembly, and nothing else ` +
  `to load. ${draws ? "Draw with the mouse or a finger, or drop a picture." : "Drop a picture, or choose one."}`;
hint.textContent = draws ? "Draw here" : "Drop a picture here";
loadNetwork(about, module).then(classify => {
  let blank = true;  // nothing was drawn yet: what the network makes of that is of no interest
  function update(picture = context.getImageData(0, 0, canvas.width, canvas.height)) {
    const { numbers, milliseconds } = classify(toPixels(picture.data, picture.width, picture.height, about));
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
    context.fillRect(0, 0, canvas.width, canvas.height);
    blank = true;
    update();
  }
  function show(file) {
    createImageBitmap(file, { colorSpaceConversion: "none" }).then(picture => {  // upright, as its EXIF data says
      const whole = document.createElement("canvas"), { width, height } = picture;
      whole.width = width;
      whole.height = height;
      const pen = whole.getContext("2d", { willReadFrequently: true });
      pen.drawImage(picture, 0, 0);
      const { left, top, across, down, resizedWide, resizedHigh } = findFit(width, height, about.picture);
      const seenWide = across * wide / resizedWide, seenHigh = down * high / resizedHigh;  // the center that is taken
      context.drawImage(picture, left + (across - seenWide) / 2, top + (down - seenHigh) / 2, seenWide, seenHigh,
        0, 0, canvas.width, canvas.height);
      blank = false;
      update(pen.getImageData(0, 0, width, height));
    }, () => { facts.textContent = `${file.name} is not a picture that this browser can read.`; });
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
