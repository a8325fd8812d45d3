"""The page of a fit: whole, escaped, right, and readable where half of the data is absent."""

import copy
import html
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from profiles import at_once, chiefly

from membound.errors import MemboundError
from membound.report import make_page, write_report
from membound.report.axes import find_byte_ticks, find_log_ticks, find_low, find_ticks
from membound.report.curves import thin
from membound.report.marks import LETTER, LINE
from membound.report.markup import tag
from membound.report.page import make_title
from membound.report.scatter import find_frontier
from membound.report.tiles import _latency_tile

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NAN = float("nan")


def curve(bound=None):
    return [
        {"iteration": step, "loss": 2.3 / step, "accuracy": 99 - 80 / step, "nonzeros": bound}
        for step in range(1, 3000, 10)
    ]


def candidate(index, **changes):
    facts = {"key": f"r{index // 8:02d}-conv{index % 8}", "round": index // 8, "layer": f"conv{index % 8}"}
    facts |= {
        "accuracy": 99 - 40 / (10 + 7 * index % 300),
        "bytes": 600_000 - 1900 * index + 700 * (index % 8),
    }
    return facts | {"nonzeros": 5000 + index, "seconds": 12.5, "won": index % 8 == 3} | changes


def final(name="20KiB", **changes):
    layers = [
        {
            "name": "conv1",
            "shape": [20, 1, 5, 5],
            "size": 500,
            "nonzeros": 300,
            "format": "bitmask",
            "bytes": 700,
        },
        {
            "name": "ip1",
            "shape": [500, 800],
            "size": 400_000,
            "nonzeros": 4000,
            "format": "delta",
            "bytes": 12_345,
        },
    ]
    facts = {"name": name, "limit": 20480, "accuracy": 98.97, "accuracy_on": "test", "errors": 103}
    facts |= {
        "images": 10_000,
        "file_bytes": 20412,
        "nonzeros": 4300,
        "weight_nonzeros": 4300,
        "values": "f16",
    }
    facts |= {"parameters": 431_080, "latency_ms": 0.0712, "memory_bytes": 65536, "file": "net.safetensors"}
    return facts | {"members": [], "curves": curve(4300), "layers": layers} | changes


def full(**changes):
    """A result in which nothing is absent."""
    dense = {
        "accuracy": 99.12,
        "errors": 88,
        "images": 10_000,
        "file_bytes": 1_724_320,
        "parameters": 431_080,
    }
    dense |= {"latency_ms": 0.129, "memory_bytes": 1_900_000, "curves": curve()}
    facts = {"network": "lenet", "data": "mnist", "command": "membound fit lenet --budget 20KiB", "seed": 0}
    facts |= {"date": "2026-01-02T03:04:05+00:00", "seconds": 751.0, "strategy": "greedy", "dense": dense}
    facts |= {"budget": {"kind": "file", "limit": 20480, "text": "20KiB"}, "finals": [final()]}
    facts |= {"candidates": [candidate(index) for index in range(40)], "score_name": None}
    facts["environment"] = {"hardware": {"cpu": "a CPU", "cores": 2}, "versions": {"python": "3.11"}}
    return copy.deepcopy(facts | changes)


ENSEMBLE = full(finals=[final("5 members", members=[98.1, NAN, 98.5, None, 98.3])])
SEVERAL = full(
    finals=[final(f"{size}KiB", limit=size * 1024, file_bytes=size * 1000) for size in (5, 10, 20, 40, 80)]
)
MINIMAL = {"finals": [{"name": "final", "accuracy": 98.5, "file_bytes": 20_000}]}
LARGE = full(candidates=[candidate(index) for index in range(300)])
PAGES = {
    "full": LARGE,
    "ensemble": ENSEMBLE,
    "several": SEVERAL,
    "minimal": MINIMAL,
    "bare": {"finals": [{}]},
}


class Balance(HTMLParser):
    """Every element that is opened is closed, in order; ids are unique; all that is loaded is noted."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.loads, self.text = [], [], [], []

    def handle_starttag(self, name, attributes):
        if name not in ("meta", "link", "br", "wbr"):
            self.open.append(name)
        self.note(attributes)

    def handle_startendtag(self, name, attributes):
        self.note(attributes)

    def note(self, attributes):
        self.ids += [value for key, value in attributes if key == "id"]
        self.loads += [value for key, value in attributes if key in ("src", "href", "xlink:href", "srcset")]

    def handle_endtag(self, name):
        assert self.open.pop() == name, f"</{name}> closes something else"

    def handle_data(self, data):
        self.text.append(data)


def parse(page):
    parser = Balance()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert len(set(parser.ids)) == len(parser.ids)
    return parser


def read_text(page):
    return " ".join("".join(parse(re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.S)).text).split())


def find_variant(page, name):
    return page[page.index(f'<div class="{name}">') :].split("</div>")[0]


@pytest.mark.parametrize("result", PAGES.values(), ids=PAGES)
def test_page_is_well_formed_and_loads_nothing(result):
    page = make_page(result)
    parser = parse(page)
    assert set(parser.loads) == {"data:,"}
    assert not re.search(r"url\(|@import|https?://|nan\b|None|\binf\b", page)
    for needed in (
        'name="viewport"',
        "prefers-color-scheme: dark",
        "@media print",
        "default-src &#x27;none&#x27;",
        'lang="en"',
    ):
        assert needed in page


def test_every_part_is_there():
    text = read_text(make_page(full()))
    verdict = "98.97 ± 0.10 % in 20,412 bytes: 1.2 % of the dense file, within the spread of dense"
    for words in (
        "lenet on mnist in 20KiB", verdict, "99.7 %of 20,480 bytes", "0.071 ms1.81 times as fast",
        "65,5363.4 % of dense",
        "Accuracy against size", "What each layer keeps", "Training", "Layers", "5 rounds", "All 40 candidates",
        'mb.load("net.safetensors")', "membound evaluate net.safetensors --data mnist",
        "membound bench net.safetensors", "membound export net.safetensors --cpp app",
        "membound inspect net.safetensors", "membound fit lenet --budget 20KiB", "12 min 31 s", "cpu a CPU, cores 2",
        "20×1×5×5", "60.0 %", "12,345", "400,500",
    ):  # fmt: skip
        assert words in text, words


def test_every_candidate_has_a_point():
    page = make_page(LARGE)
    keys = sorted(one["key"] for one in LARGE["candidates"])
    assert len(set(keys)) == 300
    for variant in ("wide", "narrow"):
        figure = find_variant(page, variant)
        assert sorted(re.findall(r'data-key="([^"]+)"', figure)) == keys
        assert figure.count('class="mark winner"') == 38
        assert figure.count('class="mark final"') == figure.count('class="mark dense"') == 1


def test_points_are_where_the_numbers_say():
    """On a logarithmic axis equal ratios are equal distances; a better network is higher."""
    tried = [candidate(0, key=key, bytes=size, accuracy=score, won=False) for key, size, score in
             (("a", 1000, 97.0), ("b", 10_000, 98.0), ("c", 100_000, 99.0))]  # fmt: skip
    figure = find_variant(make_page({"finals": [{}], "candidates": tried}), "wide")
    found = {
        key: (float(x), float(y))
        for x, y, key in re.findall(r'cx="(.*?)" cy="(.*?)".*?data-key="(.)"', figure)
    }
    (ax, ay), (bx, by), (cx, cy) = found["a"], found["b"], found["c"]
    assert bx - ax == pytest.approx(cx - bx, abs=0.2)
    assert ax < bx < cx
    assert ay > by > cy
    assert ay - by == pytest.approx(by - cy, abs=0.2)


def test_frontier_is_the_best_at_or_below_each_size():
    points = [(one["bytes"], one["accuracy"]) for one in LARGE["candidates"]]
    frontier = find_frontier(points)
    for size, _ in points:
        best = max(score for other, score in points if other <= size)
        assert max(score for other, score in frontier if other <= size) == best
    assert [score for _, score in frontier] == sorted({score for _, score in frontier})
    assert find_frontier([]) == []
    assert find_frontier([(5, 1), (5, 3), (5, 2)]) == [(5, 3)]


def test_text_of_users_is_escaped():
    bad = "<script>alert('1')</script>&\"\x00\ud800"
    layer = {"name": bad, "shape": [bad], "size": 4, "nonzeros": 2, "format": bad, "bytes": 8}
    result = full(network=bad, data=bad, command=bad, strategy=bad, date=bad, score_name=bad)
    result["finals"] = [
        final(bad, layers=[layer], file=bad, accuracy_on=bad, values=bad),
        final(bad, layers=[layer]),
    ]
    result["candidates"] = [candidate(1, key=bad, layer=bad)]
    result["environment"] = {"hardware": {bad: {bad: bad}}, "versions": {bad: bad}}
    page = make_page(result)
    parse(page)
    assert page.count("<script") == 1
    assert "alert('" not in page
    assert "\x00" not in page
    assert page.encode()
    assert html.escape("<script>alert('1')</script>") in page
    assert tag("p", bad, title=bad).count("<") == 2


def test_own_title_stands_for_the_made_one():
    assert "<title>Mine</title>" in make_page(full(title="Mine"))


@pytest.mark.parametrize("kind", ["ram", "nonzeros"])
def test_budget_of_another_kind_is_measured_in_its_own_unit(kind):
    budget = {"kind": kind, "limit": 80_000, "text": "80000"}
    text = read_text(make_page(full(budget=budget, finals=[final(limit=80_000, nonzeros=40_000)])))
    assert {"ram": "81.9 %of 80,000 bytes", "nonzeros": "50.0 %of 80,000"}[kind] in text
    assert {"ram": "in 80000 of memory", "nonzeros": "in 80000 nonzeros"}[kind] in text
    assert "budget" not in find_variant(make_page(full(budget=budget)), "wide")


def test_exceeded_budget_is_said():
    assert "exceeded" in read_text(make_page(full(finals=[final(file_bytes=20_481)])))
    assert "exceeded" not in read_text(make_page(full(finals=[final(file_bytes=20_480)])))


def test_ensemble_says_its_members():
    text = read_text(make_page(ENSEMBLE))
    assert "98.97 ± 0.10 % in 20,412 bytes, 5 networks together: 1.2 %" in text
    assert "5alone 98.10 % to 98.50 %" in text


def test_the_headline_of_several_of_one_budget_names_each_the_best_first():
    sizes = {"first": (87.9, 2_000), "best": (92.4, 2_500), "last": (88.3, 3_000)}
    finals = [
        {"name": name, "accuracy": score, "file_bytes": size, "limit": 3_000}
        for name, (score, size) in sizes.items()
    ]
    text = read_text(make_page({"finals": finals}))
    assert "3 networks: best 92.40 %, last 88.30 %, first 87.90 %." in text


def test_a_wide_table_of_several_scrolls_in_its_box_and_keeps_its_names_in_sight():
    page = make_page(SEVERAL)
    assert re.search(r'<div class="summary"><div class="scroll stacks"[^>]*><table role="table">', page)
    assert "\n.scroll th.text:first-child { position: sticky;" in page
    assert ".summary thead th { white-space: normal; }" in page


def test_several_networks_are_rows_and_bars():
    page = make_page(SEVERAL)
    text = read_text(page)
    assert text.count("Dense: the same network with all of its weights") == 1
    assert (
        "5 networks, from 98.97 ± 0.10 % in 5,000 bytes to 98.97 ± 0.10 % in 80,000 bytes; "
        "dense: 99.12 ± 0.09 % in 1,724,320" in text
    )
    assert re.search(r'<th scope="row"[^>]*>40KiB</th>', page)
    bars = page[page.index("bars-kept-title") : page.index("</svg>", page.index("bars-kept-title"))]
    assert bars.count('class="bar mark') == 10
    assert find_variant(page, "wide").count('class="limit"') == 5


def test_own_score_has_no_percent_sign():
    result = full(score_name="mean F1", finals=[final(accuracy=0.8873)], dense={"accuracy": 0.912})
    result["candidates"] = [candidate(index, accuracy=0.5 + index / 1000) for index in range(9)]
    text = read_text(make_page(result))
    assert "Mean F1 0.8873 in 20,412 bytes: 0.0247 below dense." in text
    assert "Mean F1 against size" in text
    assert not re.search(r"0\.(8873|912|50\d) %|accuracy|points", text)


ABSENT = {
    "candidates": ("Accuracy against size", "The search"),
    "dense": ("dense",),
    "command": ("membound fit",),
    "environment": ("hardware", "versions"),
    "strategy": ("strategy",),
    "budget": ("in 20KiB",),
}


@pytest.mark.parametrize("key", ABSENT)
@pytest.mark.parametrize("how", ["missing", pytest.param("none", marks=pytest.mark.full)])
def test_absent_part_is_left_out(key, how):
    result = full(**{key: None})
    if how == "missing":
        del result[key]
    text = read_text(make_page(result))
    for words in ABSENT[key]:
        assert words in read_text(make_page(full()))
        assert words not in text


@pytest.mark.parametrize(
    ("key", "words"),
    [("curves", "step"), ("layers", "bitmask"), ("latency_ms", "latency"), ("memory_bytes", "memory bytes"),
     ("file", "How to use it"), ("errors", "errors")],
)  # fmt: skip
def test_absent_fact_of_the_networks_is_left_out(key, words):
    result = full()
    assert words in read_text(make_page(result))
    for net in (result["finals"][0], result["dense"]):
        net[key] = None
    assert words not in read_text(make_page(result))


@pytest.mark.parametrize("value", [None, NAN, float("inf"), "many"])
def test_numbers_that_are_none(value):
    """They are dashes in the tables and no points in the figure, which says how many it lacks."""
    tried = [candidate(0), candidate(1), candidate(2, accuracy=value), candidate(3, bytes=value, won=True)]
    result = full(candidates=tried, seconds=value)
    result["finals"].append(
        final("broken", accuracy=value, file_bytes=value, nonzeros=value, latency_ms=value)
    )
    result["finals"][0]["curves"][5] |= {"loss": value, "accuracy": value, "nonzeros": value}
    result["dense"]["curves"] = [{"iteration": value, "loss": 1.0}, {"iteration": 2, "loss": value}]
    page = make_page(result)
    figure = find_variant(page, "wide")
    assert len(re.findall("data-key", figure)) == 2
    assert not re.search(r"\bnan\b|\binf\b|None", page)
    assert "Not drawn: 2 of the candidates" in read_text(page)


def test_unknown_accuracy_is_said():
    assert "Accuracy unknown in 7 bytes." in read_text(
        make_page({"finals": [{"accuracy": NAN, "file_bytes": 7}]})
    )


def test_sizes_of_zero():
    layer = {"name": "empty", "shape": [0, 3], "size": 0, "nonzeros": 0, "format": "dense", "bytes": 0}
    result = full(
        finals=[final(layers=[layer], limit=0, file_bytes=0, parameters=0, latency_ms=0.0, nonzeros=0)]
    )
    result["budget"]["limit"] = 0
    result["dense"] |= {"file_bytes": 0, "latency_ms": 0, "memory_bytes": 0}
    result["candidates"] = [candidate(0, bytes=0), candidate(1, bytes=0, won=True), candidate(2)]
    page = make_page(result)
    parse(page)
    assert len(re.findall("data-key", find_variant(page, "wide"))) == 1
    assert "Not drawn: 2 of the candidates" in read_text(page)


@pytest.mark.parametrize("score", [0.0, 100.0, -3.5, 1e-12, 1e12])
def test_candidates_that_are_all_the_same(score):
    tried = [candidate(index, accuracy=score, bytes=100) for index in range(3)]
    page = make_page({"finals": [{"accuracy": score, "file_bytes": 100}], "candidates": tried})
    parse(page)
    assert find_variant(page, "wide").count("data-key") == 3


def test_far_failures_do_not_flatten_the_figure():
    tried = [candidate(index, accuracy=98 + index / 100, won=False) for index in range(40)]
    tried.append(candidate(40, accuracy=9.8, won=False))
    figure = find_variant(make_page(full(candidates=tried)), "wide")
    assert figure.count('class="mark candidate low"') == 1
    assert "Triangles on the axis: 1 of the candidates" in read_text(make_page(full(candidates=tried)))
    assert find_low([1.0]) == 1.0


def test_round_without_a_winner():
    tried = [candidate(0, round=1, won=True, layer="ip1"), candidate(1, round=2, won=False, seconds=None)]
    text = read_text(make_page(full(candidates=tried)))
    assert re.search(r"1ip195\.00 %600,0005,000112\.5", text)
    assert "2none––" in text


def test_many_layers_are_all_in_the_table():
    layers = [
        {"name": f"block.{n}.weight", "shape": [n, 1], "size": n, "nonzeros": 1, "bytes": 4}
        for n in range(1, 161)
    ]
    page = make_page(full(finals=[final(layers=layers)]))
    assert "The 30 largest of 160 layers" in read_text(page)
    assert all(f">block.{n}</th>" in page for n in range(1, 161))
    assert (
        'class="note swipe">Scroll the table sideways' in page
    )  # which a script hides where all of it is seen
    figure = page[page.index('class="bars"') :].split("</svg>")[0]
    assert figure.count('class="bar mark') == 30
    assert "block.160" in figure


def test_options_in_notes_are_in_one_piece():
    tried = ["a wider network may be better (widths=[1, 1.5, 2])", "give layout NCHW"]
    page = make_page(full(finals=[final(tried=tried)], command="membound fit lenet"))
    assert "<li>A wider network may be better <span>(--widths</span> 1,1.5,2)</li>" in page
    assert "<li>Give <span>--layout</span> NCHW</li>" in page
    assert ".notes span { white-space: nowrap; }" in page


def test_the_curve_of_nonzeros_says_that_biases_are_not_counted():
    assert "<figcaption>weights that may be nonzero" in make_page(full())


def test_the_note_says_why_the_curve_of_nonzeros_may_rise():
    assert "It can rise for a while: the size of the file is measured anew" in make_page(full())


def test_a_strategy_that_is_not_the_default_is_in_the_title():
    asked = [final(name, asked={"strategy": name}) for name in ("global", "taylor")]
    titles = [make_title(full(finals=finals)) for finals in (asked[:1], asked[1:], asked)]
    assert titles == [f"lenet on mnist in 20KiB{more}" for more in ("", ", strategy taylor", "")]


def test_long_curves_stay_small_and_keep_their_ends():
    line = [(step, step % 7) for step in range(100_000)]
    line[5000] = (5000, 999)
    thinned = thin(line)
    assert len(thinned) <= 402
    assert thinned[0] == line[0]
    assert thinned[-1] == line[-1]
    assert (5000, 999) in thinned
    assert thinned == sorted(thinned)


@at_once("text, unit", [("20KiB", "iB"), ("1.5MiB", "iB"), ("20 KB", "B"), ("10%", "B"), ("20480", "B")])
def test_sizes_have_the_unit_of_the_budget(text, unit):
    page = make_page(full(budget={"kind": "file", "limit": 20480, "text": text}))
    ticks = set(re.findall(r'<text[^>]*class="tick"[^>]*>[\d.]+ [KM](iB|B)</text>', page))
    assert ticks == {unit}


@at_once("low", [1e-9, 0.3, 700.0, 20_000.0, 3e9])
@at_once("ratio", [1.3, 2.5, 40.0, 1e4, 1e9])
@at_once("find", [find_ticks, find_log_ticks, find_byte_ticks])
def test_ticks_lie_inside_and_are_few(find, low, ratio):
    ticks = find(low, low * ratio, 5)
    assert 1 <= len(ticks) <= 6
    assert ticks == sorted(set(ticks))
    assert all(low * 0.999 <= tick <= low * ratio * 1.001 for tick in ticks)


@pytest.mark.parametrize("result", [{}, {"finals": []}, {"finals": None}])
def test_result_without_a_network_is_refused(result):
    with pytest.raises(MemboundError, match="at least one final network"):
        make_page(result)


def test_report_is_written_whole(tmp_path):
    path = tmp_path / "report.html"
    write_report(path, full())
    assert path.read_text(encoding="utf-8") == make_page(full())
    with pytest.raises(MemboundError):
        write_report(path, {})
    write_report(str(path), MINIMAL)
    assert path.read_text(encoding="utf-8") == make_page(MINIMAL)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("missing/report.html", r"there is no folder .*missing: create it"),
        (".", "the report cannot be written"),
    ],
)
def test_report_that_cannot_be_written(tmp_path, where, says):
    with pytest.raises(MemboundError, match=says):
        write_report(tmp_path / where, MINIMAL)
    assert list(tmp_path.iterdir()) == []


def test_report_needs_nothing_else():
    code = (
        "import sys, membound.report; loaded = {name.split('.')[0] for name in sys.modules}; "
        "assert not loaded & {'torch', 'numpy', 'matplotlib', 'rich'}, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on PATH")
@pytest.mark.parametrize("name", chiefly(["several"], ["full", "several", "ensemble"]))
def test_page_fits_a_phone_in_a_browser(tmp_path, name):
    """In a frame as wide as a phone nothing sticks out, no column waits behind a scroll, and no script fails.

    Nor does anything stick out of a tile.
    """
    inner = make_page(PAGES[name]).replace(
        "<body>", "<body><script>onerror = (m) => { parent.failed = m; }</script>", 1
    )
    with_command = _latency_tile({"latency_ms": 1.0}, {}, {"file_bytes": 1})
    inner = inner.replace("<h1>", f'<div class="tiles">{with_command}</div><h1>', 1)
    assert "not timed here" in inner
    measure = (
        "const page = frames[0].document, root = page.documentElement;"
        "page.querySelectorAll('details').forEach((each) => { each.open = true; });"
        "const cut = [...page.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth);"
        "const right = (each) => each.getBoundingClientRect().right;"
        "const tiles = [...page.querySelectorAll('.tile *')];"
        "const out = tiles.filter((each) => right(each) > right(each.closest('.tile')));"
        "document.body.dataset.found = [root.scrollWidth, frames[0].innerWidth, window.failed,"
        " page.querySelector('.wide').offsetWidth, page.querySelector('.narrow').offsetWidth > 300,"
        " page.querySelectorAll('[data-tip]').length > 40, cut.length, out.length].join(' ');"
    )
    look = 'width="360" height="800" style="border:0"'
    frame = f'<iframe {look} srcdoc="{html.escape(inner)}" onload="{measure}"></iframe>'
    outer = tmp_path / "outer.html"
    outer.write_text(f"<!DOCTYPE html><body>{frame}</body>", encoding="utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--virtual-time-budget=3000",
    ]
    done = subprocess.run(
        [CHROMIUM, *options, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", outer.as_uri()],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    found = re.search(r'<body data-found="(.*?)"', done.stdout)
    assert found, done.stderr[-2000:]
    width, room, failed, wide, narrow, tips, cut, out = found[1].split(" ")
    assert int(width) <= int(room) <= 360
    assert (failed, wide, narrow, tips, cut, out) == ("", "0", "true", "true", "0", "0")


def test_what_holds_for_all_networks_is_said_once():
    finals = [
        {"name": name, "accuracy": 90.0, "tried": ["200 steps", *own]}
        for name, own in (("a", []), ("b", ["width 2"]))
    ]
    notes = make_page({"finals": finals}).partition("How it was trained")[2]
    assert notes.count("200 steps") == notes.count("<h3>b</h3>") == notes.count("Width 2") == 1
    assert "<h3>a</h3>" not in notes


def test_no_label_is_struck_by_the_line_of_the_frontier():
    nets = [(8_000, 97.9), (12_000, 98.5), (20_000, 98.8), (40_000, 99.0)]
    finals = [
        {"name": f"{size // 1000}KB", "accuracy": score, "file_bytes": size, "limit": size}
        for size, score in nets
    ]
    page = make_page({"finals": finals, "dense": {"accuracy": 99.1, "file_bytes": 1_700_000}})
    figures = [each for each in re.findall(r"<svg.*?</svg>", page, re.DOTALL) if 'class="frontier"' in each]
    drawings = [each for each in figures if 'class="label"' in each]
    assert drawings
    for drawing in drawings:
        (path,) = re.findall(r'<path d="(M[^"]+)" class="frontier"', drawing)
        x, y = map(float, re.match(r"M([\d.]+) ([\d.]+)", path).groups())
        lines = []
        for along, up in re.findall(r"H([\d.]+)V([\d.]+)", path):
            lines += [(x, y, float(along), y), (float(along), float(up), float(along), y)]
            x, y = float(along), float(up)
        labels = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*class="label"[^>]*>([^<]+)<', drawing)
        assert len(labels) >= 4
        for middle, bottom, words in labels:
            half, low = LETTER * len(words) / 2, float(bottom) + 3
            for left, top, right, end in lines:
                beside = right < float(middle) - half or left > float(middle) + half
                assert beside or end < low - LINE or top > low, words
