"""How the page looks, on a screen of any width, in the dark and on paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fff; --ink: #1a1d21; --soft: #59616b; --line: #d8dde3; --faint: #f3f5f7; --frame: #8a929c;
  --s0: #0b63b6; --s1: #b3470a; --s2: #1b7a4b; --s3: #8b3fa8; --s4: #7d6200; --s5: #b0224f;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #14171a; --ink: #e8eaed; --soft: #a3abb5; --line: #353b42; --faint: #1f2429; --frame: #7d8691;
    --s0: #6db3ff; --s1: #ffab70; --s2: #63d29b; --s3: #d7a1f0; --s4: #e5c84b; --s5: #ff8fab;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 1020px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 8px; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 40px 0 10px; }
p { margin: 0 0 12px; max-width: 72ch; overflow-wrap: anywhere; }
.verdict { font-size: 1.15rem; margin-bottom: 20px; }
.tiles { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 12px; margin: 0 0 20px; }
@media (min-width: 900px) { .tiles { grid-template-columns: repeat(4, minmax(0, 1fr)); } }
.tile { border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; background: var(--faint); }
@media (min-width: 900px) and (max-width: 1040px) { .tile .number.number { font-size: 1.3rem; } }
.tile h2 { font-size: .875rem; font-weight: 400; color: var(--soft); margin: 0; }
.tile .number { font-size: 1.6rem; line-height: 1.3; margin: 0 0 4px; white-space: nowrap; }
.tile .number { font-variant-numeric: tabular-nums; }
@media (min-width: 641px) { .tile .number.long { font-size: 1.35rem; } }
.tile .against { font-size: .875rem; margin: 0; color: var(--soft); line-height: 1.4; }
.tile .against + .against { margin-top: 8px; }
.tile .part { border-top: 1px solid var(--line); padding-top: 8px; }
.against code span, .against .whole { white-space: nowrap; }
.against strong { display: block; font-size: 1rem; color: var(--ink); }
.against .better { color: var(--s2); }
.against .worse { color: var(--s1); }
.note, figcaption, .legend { color: var(--soft); font-size: .875rem; }
/* A shadow at the right says that there is more; at the end of the table what scrolls with it covers the shadow. */
.scroll {
  overflow-x: auto; max-width: 100%; background:
    linear-gradient(to left, var(--page) 50%, transparent) right / 36px 100% no-repeat local,
    linear-gradient(to left, var(--line), transparent) right / 18px 100% no-repeat scroll;
}
.scroll th.text:first-child { position: sticky; left: 0; background: var(--page); }
.scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--s0); outline-offset: 2px; }
/* Not collapsed: such borders belong to the table, and are lost under a cell that sticks. */
table { border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; font-size: .9375rem; }
th, td { padding: 6px 14px 6px 0; text-align: right; white-space: nowrap; vertical-align: top; }
th:last-child, td:last-child { padding-right: 2px; }
th.text, td.text { text-align: left; }
td.text:last-child { white-space: normal; min-width: 9em; }
thead th { font-weight: 600; border-bottom: 1px solid var(--frame); vertical-align: bottom; }
tbody th { font-weight: 400; }
tbody th, tbody td { border-bottom: 1px solid var(--line); }
td small { display: block; white-space: normal; color: var(--soft); font-size: .8125rem; line-height: 1.35; }
td small.better { color: var(--s2); }
td small.worse { color: var(--s1); }
.facts th { color: var(--soft); padding-right: 20px; }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.summary tbody th { color: var(--soft); white-space: normal; }
.summary thead th { white-space: normal; }
.summary .words { display: inline-block; white-space: normal; max-width: 6em; }
pre {
  background: var(--faint); border: 1px solid var(--line); border-radius: 6px; padding: 10px 12px; margin: 0 0 12px;
  white-space: pre-wrap; overflow-wrap: anywhere; overflow-x: auto;
  font: .875rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
pre span, .note span, .notes span { white-space: nowrap; }
details { margin: 0 0 10px; }
summary { cursor: pointer; padding: 4px 0; font-weight: 600; overflow-wrap: anywhere; }
figure { margin: 0; min-width: 0; }
figcaption { margin: 0 0 4px; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); gap: 20px 28px; }
.panels svg { max-width: 500px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg svg { overflow: hidden; }
svg text { fill: var(--ink); font-size: 11.5px; font-family: inherit; font-variant-numeric: tabular-nums; }
svg .tick, svg .name, svg .aside { fill: var(--soft); }
svg .value, svg .layer { font-size: 11px; }
svg .aside { font-size: 10px; }
svg .label { font-weight: 600; paint-order: stroke; stroke: var(--page); stroke-width: 4px; stroke-linejoin: round; }
.narrow { display: none; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 8px 0 12px; padding: 0; }
.legend li { display: flex; align-items: center; gap: 6px; overflow-wrap: anywhere; min-width: 0; }
.legend .key { width: 28px; height: 20px; flex: none; }
.axis { stroke: var(--frame); }
.grid { stroke: var(--line); }
.limit { stroke: var(--soft); stroke-dasharray: 1 4; stroke-width: 1.6; stroke-linecap: round; }
.reference { stroke: var(--soft); stroke-dasharray: 7 4; }
.frontier { fill: none; stroke: var(--s2); stroke-width: 2; }
.candidate { fill: var(--page); fill-opacity: .6; stroke: var(--frame); stroke-width: 1.3; }
.winner { fill: var(--s0); stroke: var(--page); }
.final { fill: var(--s1); stroke: var(--page); }
.dense { fill: var(--ink); stroke: var(--page); }
.int8 { fill: var(--page); stroke: var(--ink); stroke-width: 1.6; }
.seed { fill: var(--ink); fill-opacity: .3; }
.mean { stroke: var(--page); stroke-width: 1.5; }
.duels th { white-space: normal; }
.scroll + .note, .summary + .note, .duels + .note, .panels + .note { margin-top: 10px; }
.duels .better, .duels .worse { font-weight: 600; }
.duels .better { color: var(--s2); }
.duels .worse { color: var(--s1); }
.spread { fill: none; stroke-width: 1.6; }
.spread.final { stroke: var(--s1); }
.spread.dense, .spread.int8 { stroke: var(--soft); }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.densely { stroke: var(--soft); stroke-width: 1.3; stroke-dasharray: 4 4; }
.track { fill: var(--faint); stroke: var(--line); stroke-width: .6; }
.d1 { stroke-dasharray: 7 3; }
.d2 { stroke-dasharray: 2 3; }
.d3 { stroke-dasharray: 9 3 2 3; }
COLOURS
#tip {
  position: fixed; z-index: 2; pointer-events: none; max-width: 260px; padding: 5px 9px; border-radius: 5px;
  background: var(--ink); color: var(--page); font-size: .8125rem; overflow-wrap: anywhere;
}
#tip[hidden] { display: none; }
@media (max-width: 640px) {
  main { padding-top: 16px; }
  table { font-size: .875rem; }
  th, td { padding-right: 10px; }
  .tiles { gap: 8px; }
  .against strong { font-size: .9rem; }
  .tile { padding: 8px 10px; }
  .tile .number { font-size: 1.05rem; }
  .wide { display: none; }
  .narrow { display: block; }
  /* A table of many columns: a block for each row, and beside each number its column's name. */
  .stacks table, .stacks tbody { display: block; }
  .stacks thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .stacks tbody tr { display: flex; flex-wrap: wrap; gap: 2px 18px; padding: 8px 0; }
  .stacks tbody tr { border-bottom: 1px solid var(--line); }
  .stacks tbody th, .stacks tbody td { border: 0; padding: 0; text-align: left; white-space: normal; }
  .scroll.stacks { background: none; }
  .scroll.stacks tbody th.text { flex-basis: 100%; font-weight: 600; overflow-wrap: anywhere; position: static; }
  .stacks td:empty { display: none; }
  .summary .stacks tbody td { flex-basis: 100%; }
  .summary .words { display: inline; max-width: none; }
  .stacks td[data-of]::before { content: attr(data-of) " "; color: var(--soft); font-weight: 400; }
  .stacks td small { display: inline; margin-left: 6px; }
  .stacks + .note { margin-top: 10px; }
}
@media screen and (max-width: 640px) { .swipe:has(+ .stacks) { display: none; } }
@media print {
  main { max-width: none; padding: 0; }
  h2, .legend, summary { break-after: avoid; }
  .panels { grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); }
  figure, tr, svg, pre { break-inside: avoid; }
  .scroll { overflow: visible; background: none; }
  .swipe { display: none; }
}
""".replace(
    "COLOURS",
    "\n".join(f".s{index} {{ stroke: var(--s{index}); }} .bar.s{index} {{ fill: var(--s{index}); stroke: none; }} "
              f".mean.s{index} {{ fill: var(--s{index}); stroke: var(--page); }} "
              f".seed.s{index} {{ fill: var(--s{index}); fill-opacity: .65; stroke: none; }} "
              f".spread.s{index} {{ stroke: var(--s{index}); }}"
              for index in range(6)),
)  # fmt: skip

# Only a faster tooltip, and no hint where nothing is hidden: without it the browser shows titles after a moment.
SCRIPT = """
(() => {
  const hint = () => document.querySelectorAll(".swipe").forEach((each) => {
    each.hidden = each.nextElementSibling.scrollWidth <= each.nextElementSibling.clientWidth;
  });
  addEventListener("resize", hint);
  document.addEventListener("toggle", hint, true);
  hint();
  const tip = document.getElementById("tip");
  document.querySelectorAll(".mark > title").forEach((title) => {
    title.parentNode.dataset.tip = title.textContent;
    title.remove();
  });
  document.addEventListener("pointerover", (event) => {
    const mark = event.target.closest && event.target.closest("[data-tip]");
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.dataset.tip;
    const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18;
    const y = below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 12 : below;
    tip.style.left = Math.max(x, 4) + "px";
    tip.style.top = y + "px";
  });
})();
"""
