"""Methods of one budget: a column each, and each against each, paired by seed."""

import html
import re
import shutil
import subprocess
from itertools import pairwise
from statistics import mean, stdev

import pytest

from membound.report import make_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SCORES = {
    "LAMP": [86.9, 87.6, 86.9],
    "Taylor": [85.1, 84.0, 84.5],
    "magnitude": [86.8, 87.5, 87.1],
    "uniform": [87.1, 86.7, 85.1],
}


def spread(scores):
    seeds = list(range(len(scores)))
    return {"count": len(scores), "seeds": seeds, "accuracies": scores} | (
        {"mean": mean(scores), "std": stdev(scores)} if len(scores) > 1 else {}
    )


def network(name, scores, **changes):
    layers = [
        {"name": "fc.weight", "shape": [64, 784], "size": 50_176, "nonzeros": 2400, "bytes": 7100},
    ]
    facts = {"name": name, "limit": 8000, "file_bytes": 7980 + len(name), "accuracy": scores[0]}
    facts |= {"accuracy_on": "test", "errors": round(10 * (100 - scores[0])), "images": 1000, "values": "f16"}
    facts |= {"nonzeros": 2400, "parameters": 50_890, "latency_ms": 0.01, "memory_bytes": 12_000}
    return facts | ({"seeds": spread(scores)} if len(scores) > 1 else {}) | {"layers": layers} | changes


def page(scores=SCORES, dense=(89.2, 89.4, 89.0), **changes):
    finals = [network(name, each, **changes) for name, each in scores.items()]
    facts = network("", list(dense), file_bytes=204_000, limit=None)
    int8 = network("", list(dense), file_bytes=52_000, limit=None)
    result = {"finals": finals, "dense": facts | {"int8": int8}, "budget": {"kind": "file", "text": "8 KB"}}
    return make_page(result)


def section(text, title):
    return text.partition(f"<h2>{title}</h2>")[2].partition("</section>")[0]


def figure(text, title="Accuracy of each method"):
    return section(text, title).partition('<div class="narrow">')[0]


def test_each_method_has_a_column_and_a_color_that_is_its_bars():
    drawn = figure(page())
    found = re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="6" class="mark mean (s\d)"><title>(\w+)', drawn)
    assert [(color, name) for _, _, color, name in found] == [
        ("s0", "LAMP"), ("s1", "Taylor"), ("s2", "magnitude"), ("s3", "uniform")
    ]  # fmt: skip
    across = [float(x) for x, *_ in found]
    assert all(80 < after - before < 200 for before, after in pairwise(across))
    heights = {name: float(y) for _, y, _, name in found}
    assert heights["LAMP"] == heights["magnitude"] < heights["uniform"] < heights["Taylor"]
    bars = section(page(), "What each layer keeps")
    assert re.search(r'class="bar mark s3"[^>]*><title>fc [^<]* in uniform', bars)


def test_each_seed_is_a_dot_that_hides_no_other():
    drawn = figure(page())
    for color, scores in enumerate(SCORES.values()):
        dots = re.findall(rf'cx="([\d.]+)" cy="([\d.]+)" r="2.2" class="mark seed s{color}"', drawn)
        assert len(set(dots)) == len(scores)
    assert drawn.count('class="spread final s') == len(SCORES)


def test_the_figure_against_size_is_for_several_budgets():
    text = page()
    assert "<h2>Accuracy against size</h2>" not in text
    assert "best at or below each size" not in text
    sizes = [network(f"{size}", [90.0, 91.0], limit=size, file_bytes=size) for size in (4000, 8000)]
    other = make_page({"finals": sizes, "budget": {"kind": "file"}})
    assert "<h2>Accuracy against size</h2>" in other
    assert "<h2>Method against method</h2>" not in other
    close = [
        network(f"{size}", [score] * 2, limit=size, file_bytes=size)
        for size, score in ((8000, 90.0), (8100, 91.0))
    ]
    assert "best at or below each size" not in make_page({"finals": close, "budget": {"kind": "file"}})


def test_each_method_is_judged_against_each():
    table = section(page(), "Method against method")
    rows = {
        row[0]: row[1:]
        for row in (
            re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", each)
            for each in re.findall(r"<tr[^>]*>(.*?)</tr>", table)
        )
    }
    assert rows["row \u2212 column"] == list(SCORES)
    assert rows["LAMP"][1] == '+2.60 ± 2.28<small class="better">better</small>'
    assert rows["Taylor"][0] == '\u22122.60 ± 2.28<small class="worse">worse</small>'
    assert rows["LAMP"][2] == "+0.00 ± 0.43<small>within the spread</small>"
    assert rows["uniform"][3] == "–"
    assert "the mean over 3 seeds of the differences seed by seed" in table


def test_the_headline_says_whom_the_best_beats():
    verdict = re.search(r'<p class="verdict">(.*?)</p>', page())[1]
    assert verdict.endswith(
        "Paired by seed, LAMP is better than Taylor; magnitude and uniform are within the spread of it."
    )
    same = {"a": [90.0, 91.0, 92.0], "b": [90.1, 90.8, 92.0]}
    assert "Paired by seed, these seeds cannot tell a and b apart (+0.03 ± 0.38 points)." in page(same)


def test_the_mean_comes_first_and_then_the_seed_of_the_file():
    head = re.findall(
        r"<th [^>]*>(.*?)</th>", page().partition('class="summary"')[2].partition("</thead>")[0]
    )
    assert head[:4] == [
        "network",
        "accuracy on test, mean",
        "against dense",
        "accuracy, seed 0 (the saved file)",
    ]
    assert head[-1] == "errors, seed 0"


def test_with_one_seed_the_images_say_how_far_it_may_be_off():
    text = page({name: scores[:1] for name, scores in SCORES.items()})
    table = section(text, "Method against method")
    assert "+1.80 ± 3.04" in table
    assert "of one seed: another seed may say otherwise" in table
    assert "Paired by seed" not in text


def test_a_dense_network_far_away_does_not_flatten_the_methods():
    text = page(dense=(99.0, 99.1, 99.2))
    assert "Too far away to draw: dense: 99.10 ± 0.10 % (mean ± SD) in 204,000 bytes" in text
    assert 'class="mark dense"' not in figure(text)
    assert 'class="mark dense"' in figure(page())


def test_long_names_are_turned_and_said_in_full():
    scores = {f"a method with a long name {n}": [90.0 + n, 91.0, 92.0] for n in range(7)}
    drawn = section(page(scores), "Accuracy of each method")
    assert drawn.count("rotate(-40") == 2 * 9
    assert drawn.partition("<ul")[2].count("a method with a long name") == 7


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on PATH")
def test_at_every_width_nothing_sticks_out_and_on_a_desk_no_table_is_cut(tmp_path):
    """In frames as wide as a phone, a tablet and a desk; method against method and all numbers fit the last one."""
    names = {"LAMP": "LAMP", "Taylor": "Taylor", "magnitude": "magnitude, rewound", "uniform": "uniform"}
    inner = html.escape(page({names[name]: scores for name, scores in SCORES.items()}))
    measure = (
        "const page = this.contentDocument, root = page.documentElement;"
        "const cut = [...page.querySelectorAll('.summary .scroll, .duels .scroll')]"
        ".filter((each) => each.scrollWidth > each.clientWidth).length;"
        "document.body.dataset['w' + this.width] = root.scrollWidth + ' ' + cut;"
    )
    frames = [
        f'<iframe width="{width}" height="800" style="border:0" srcdoc="{inner}" onload="{measure}"></iframe>'
        for width in (360, 768, 1280)
    ]
    outer = tmp_path / "outer.html"
    outer.write_text(f"<!DOCTYPE html><body>{''.join(frames)}</body>", encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    done = subprocess.run(
        [CHROMIUM, *options, "--virtual-time-budget=3000", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
         outer.as_uri()],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    found = {
        int(width): list(map(int, each.split()))
        for width, each in re.findall(r'data-w(\d+)="([\d ]+)"', done.stdout)
    }
    assert sorted(found) == [360, 768, 1280], done.stderr[-2000:]
    assert all(needed <= width for width, (needed, _) in found.items())
    assert found[1280][1] == 0
