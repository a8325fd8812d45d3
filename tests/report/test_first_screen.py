"""The first screen of the report: four numbers beside dense and 8 bits; what is worse is as large as what is better."""

import html
import re
from statistics import mean, stdev

import numpy as np
import pytest
from torch import nn

import membound as mb
from membound.report.page import make_page

NET = {"errors": 103, "images": 10_000, "accuracy": 98.97, "accuracy_on": "test"}
DENSE = {"accuracy": 99.12, "errors": 88, "images": 10_000, "file_bytes": 1_724_320, "memory_bytes": 1_900_000,
         "latency_ms": 0.1}  # fmt: skip
INT8 = {"accuracy": 99.11, "errors": 89, "images": 10_000, "file_bytes": 433_456, "memory_bytes": 559_724}


def page(latency=0.22, dense=DENSE | {"int8": INT8}, **more) -> str:
    final = (
        NET
        | {"file_bytes": 20_412, "memory_bytes": 65_536, "latency_ms": latency, "file": "n.safetensors"}
        | more
    )
    return make_page({"finals": [final], "dense": dense, "network": "lenet", "data": "mnist"})


def told(text: str) -> list[tuple[str, str]]:
    return re.findall(r'<strong class="(\w+)">(.*?)</strong>', text)


def test_every_number_is_beside_dense_and_8_bits():
    assert told(page()) == [
        ("better", "84 times smaller"), ("better", "21 times smaller"),
        ("even", "within the spread (0.15 points below)"), ("even", "within the spread (0.14 points below)"),
        ("worse", "2.2 times as slow"), ("better", "29 times smaller"), ("better", "8.5 times smaller"),
    ]  # fmt: skip
    assert "98.97 ± 0.10 %" in page()
    assert '<strong class="better">84 times smaller</strong> dense file: ' in page()
    assert ("worse", "worse by 0.32 points") in told(page(accuracy=98.8, errors=120))
    assert ("better", "better by 0.28 points") in told(page(accuracy=99.4, errors=60))
    assert ("better", "2.0 times as fast") in told(page(latency=0.05))
    assert ("even", "about the same") in told(page(latency=0.101))


def test_a_network_for_a_microcontroller_leads_with_flash_and_ram():
    device = {"flash_bytes": 7_690, "ram_bytes": 1_988}
    dense = DENSE | {"int8": INT8 | {"micro": {"flash_bytes": 76_900, "ram_bytes": 1_988}}}
    text = page(dense=dense, micro=device, limit=8_000, memory_limit=2_000)
    body = text.split("<body>")[1]
    assert re.findall(r"<h2>(.*?)</h2>", body)[:4] == ["flash", "accuracy on test", "RAM", "file"]
    assert told(text)[0] == ("better", "10 times smaller")
    assert ("even", "the same") in told(text)
    near = DENSE | {"int8": INT8 | {"micro": {"flash_bytes": 76_900, "ram_bytes": 2_000}}}
    assert ("even", "about the same") in told(page(dense=near, micro=device))
    assert "of 8,000 bytes allowed, at" in body, "not the bytes of the head again"
    assert "of 2,000 bytes allowed" in body
    assert "96.1 % of 8,000" in body
    assert "99.4 % of 2,000" in body
    assert "membound export n.safetensors --c firmware" in re.sub(r"<.*?>", "", body)
    assert "latency" not in body, "that of this machine"
    assert "of the dense file" not in body


def test_flash_and_ram_are_told_part_by_part_beside_dense_in_8_bits():
    device = {
        "flash_bytes": 7_690, "constant_bytes": 5_074, "weight_bytes": 4_400, "code_bytes": 2_616, "ram_bytes": 1_988,
        "context_bytes": 1_488, "arena_bytes": 1_468, "stack_bytes": 500, "instructions": 1_800_000,
        "ms": 31.27, "clock_hz": 64_000_000,
        "code_from": "recorded sizes", "table_bytes": 256, "tables": {"Hardswish": 1},
    }  # fmt: skip
    rounded = {**device, "flash_bytes": 36_400, "constant_bytes": 33_784, "weight_bytes": 33_000, "ms": 62.0}
    dense = DENSE | {"int8": INT8 | {"micro": rounded}}
    text = page(dense=dense, micro=device, limit=8_000, memory_limit=2_000)
    table = text.split("<h2>Flash and RAM</h2>")[1].split("</section>")[0]
    rows = [re.findall(r">([^<>]+)<", row) for row in re.findall(r"<tr>(.*?)</tr>", table)]
    assert rows[0][-1] == "dense, 8 bits"
    assert {head: cells for head, *cells in rows[1:]} == {
        "flash, bytes": ["7,690", "of 8,000", "36,400"], "weights": ["4,400", "33,000"],
        "biases, scales, layers": ["418", "528"], "tables of activations": ["256", "256"], "code": ["2,616", "2,616"],
        "RAM, bytes": ["1,988", "of 2,000", "1,988"], "arena (activations)": ["1,468", "1,468"],
        "counters of rows": ["20", "20"], "stack, at most": ["500", "500"],
        "instructions, estimated": ["1,800,000", "1,800,000"], "milliseconds, estimated": ["31.3", "62"],
    }  # fmt: skip
    assert "on a Cortex-M4 at 64 MHz, at \N{NON-BREAKING HYPHEN}Os, " in table
    assert "on an emulated Cortex-M4, they were off by at most 7.6 %" in table
    assert " -O" not in table, "a line would break after the hyphen"
    body = text.split("<body>")[1]
    assert re.findall(r"<h2>(.*?)</h2>", body)[3] == "time of one image, estimated"
    assert ("better", "2.0 times as fast") in told(text)
    assert "Cortex-M4 (recorded sizes)" in table
    assert "Flash and RAM" not in page()


def test_int8s_speed_is_beside_ours_where_it_was_measured():
    assert "8 bits: not timed here; run membound bench --int8" in plain(page())
    timed = page(dense=DENSE | {"int8": INT8 | {"latency_ms": 0.11, "latency_by": "ONNX Runtime"}})
    assert ("worse", "2.0 times as slow") in told(timed)
    assert "dense int8, ONNX Runtime: 0.110 ms" in plain(timed)
    assert "not timed here" not in plain(timed)
    assert "Dense also runs in membound; dense int8 runs in ONNX Runtime." in timed
    assert "Dense also runs in membound." in page()


def test_the_faster_of_int8_and_floats_is_compared_and_named():
    by = {"latency_by": "ONNX Runtime"}
    int8, slow, fast = (by | {"latency_ms": ms} for ms in (0.15, 0.3, 0.05))
    ours = {"engine_int8": {"latency_ms": 0.1, "accuracy": 98.9}}
    for floats, says in (
        (slow, "1.5 times as fast dense int8, ONNX Runtime: 0.150 ms"),
        (fast, "2.0 times as slow dense floats, ONNX Runtime: 0.050 ms"),
    ):
        found = plain(page(dense=DENSE | {"int8": INT8 | int8, "floats_elsewhere": floats}, **ours))
        assert says in found.split("latency of one image")[1].split("memory to run")[0]


def test_int8_is_compared_with_int8_where_that_is_the_engine_to_use():
    dense = DENSE | {"int8": INT8 | {"latency_ms": 0.15, "latency_by": "ONNX Runtime"}}
    found = page(dense=dense, engine_int8={"latency_ms": 0.1, "accuracy": 98.9})
    tile = plain(found).split("latency of one image")[1].split("memory to run")[0]
    assert tile == (
        "0.220 msin floats (the default), on 1 thread2.2 times as slow dense in floats: 0.100 ms"
        "in int8: 0.100 ms1.5 times as fast dense int8, ONNX Runtime: 0.150 ms"
    ), "floats beside floats, as on all cards, and int8 beside int8 under a line of its own"


def test_cards_say_their_engine_threads_and_uncertainty():
    integers = {"latency_ms": 0.1, "accuracy": 98.91, "errors": 109, "memory_bytes": 54_332}
    found = plain(page(threads=2, memory_isa="every", engine_int8=integers))
    cards = re.split("accuracy on test|latency of one image|memory to run", found.split("All numbers")[0])
    assert "98.97 ± 0.10 %in floats (the default)" in cards[1]
    assert cards[1].endswith("in int8: 98.91 ± 0.10 %")
    assert cards[2].startswith("0.220 msin floats (the default), on 2 threads")
    assert cards[3].startswith("65,536 bytesin floats (the default), on 1 thread, file included, on any CPU")
    assert "in int8: 54,332 bytes" in cards[3]
    assert "65,536 byteson 1 thread" in plain(page())


def test_without_dense_the_table_is_open():
    assert "tiles" not in page(dense=None).split("<body>")[1]
    assert "<details open" in page(dense=None)


def test_a_bar_of_a_layer_that_has_only_a_number_says_its_operator():
    layer = {
        "name": "2.weight",
        "operator": "conv",
        "shape": [4, 2, 5, 1],
        "nonzeros": 5,
        "size": 40,
        "bytes": 20,
    }
    assert ">2 conv</title>" in page(layers=[layer])


def test_a_training_that_was_far_too_short_is_said_beside_the_verdict():
    for steps, look in ((60, "verdict"), (2_000, "note")):
        text = page(accuracy=50.0, errors=5_000, training={"steps": steps, "usual_steps": 5_000})
        assert re.search(rf'<p class="{look}">It was trained for [^<]*Train longer', text), steps


def test_biases_have_no_bars():
    layers = [
        {"name": "fc.weight", "shape": [4, 2], "nonzeros": 5, "size": 8, "bytes": 20},
        {"name": "fc.bias", "shape": [4], "nonzeros": 4, "size": 4, "bytes": 8},
    ]
    text = page(layers=layers)
    bars = text[text.index("bars-nonzeros") : text.index("bars-kept")]
    assert ">fc</title>" in bars, "a layer is called by its own name"
    assert "fc.bias" not in bars
    assert "fc.bias" in text, "the table has it"
    assert "fc.weight" not in text


def test_all_numbers_are_beside_dense_and_8_bits():
    for several in (1, 2, 5):
        finals = [
            NET | {"name": f"{n}KB", "file_bytes": 1000 * n, "limit": 1000 * n} for n in range(1, several + 1)
        ]
        text = make_page({"finals": finals, "dense": DENSE | {"int8": INT8}})
        summary = text[text.index('class="summary"') : text.index("</table>")]
        assert "dense, 8 bits" in summary
        assert "433,456" in summary
        assert summary.count("100 %<small>of") == several, "only networks with a budget have used it"


def test_a_narrow_screen_shows_what_was_decided_first():
    layers = [
        {"name": "a.bias", "shape": [4], "nonzeros": 4, "size": 4, "bytes": 8},
        {"name": "a.weight", "shape": [4, 2], "nonzeros": 5, "size": 8, "bytes": 20},
    ]
    text = page(layers=layers)
    table = text[text.index('aria-label="layers of') :]
    assert re.findall(r'<th scope="col"[^>]*>(\w+)', table)[:4] == ["layer", "kept", "nonzeros", "bytes"]
    assert re.findall(r'<th scope="row"[^>]*>([\w.]+)<', table)[:2] == ["a", "a.bias"]


def test_rows_of_layers_add_up_to_the_file():
    layers = [
        {"name": "a.weight", "operator": "conv", "shape": [4, 2], "nonzeros": 5, "size": 8, "bytes": 20},
        {"name": "a.bias", "operator": "conv", "shape": [4], "nonzeros": 4, "size": 4, "bytes": 8},
    ]
    text = page(layers=layers, file_bytes=500, header_bytes=360, mean_image_bytes=100)
    table = text[text.index('aria-label="layers of') :].split("</table>")[0]
    rows = [re.findall(r">([^<>]+)<", row) for row in re.findall(r"<tr.*?</tr>", table)]
    assert rows[0][4] == "type"
    assert [(row[0], row[1]) for row in rows[3:6]] == [
        ("header", "360"), ("mean image", "100"), ("packing", "12")
    ]  # fmt: skip
    assert rows[6][:4] == ["all", "75.0 %", "9", "500"]
    assert rows[1][4] == "conv"


def test_a_training_as_long_as_that_of_dense_explains_nothing():
    final = {"steps": 100, "training": {"steps": 100, "usual_steps": 5000}, "accuracy": 98.0, "errors": 200}
    assert "for 100 steps, as dense was, and 5,000 are usual. Train" in plain(
        page(**final, dense=DENSE | {"steps": 100})
    )
    assert "usual: that may be why it is below dense" in plain(page(**final, dense=DENSE | {"steps": 5000}))


def test_a_note_of_some_networks_is_said_once():
    finals = [
        NET | {"name": name, "tried": ["seen by all", *more]}
        for name, more in (("A", ["seen by two"]), ("B", ["seen by two"]), ("C", ["alone"]))
    ]
    text = plain(make_page({"finals": finals}))
    assert "Seen by allA, BSeen by twoCAlone" in text


def test_runtimes_that_were_not_timed_are_a_line_with_what_times_them():
    line = '<p class="note">LiteRT was not timed: pip install ai-edge-litert, then membound bench FILE'
    raced = INT8 | {"latency_ms": 0.11, "latency_by": "ONNX Runtime"}
    assert line in page(dense=DENSE | {"int8": raced})
    both = "ONNX Runtime and LiteRT were not timed: pip install onnxruntime onnx ai-edge-litert, then"
    assert both in page()
    assert "not timed: pip" not in page(micro=DEVICE)


def test_the_snippet_prepares_images():
    assert "x = net.preprocess(images)" in page()
    assert "net.classes" not in page()


def test_the_snippet_reads_a_picture_and_names_its_class():
    text = plain(
        page(takes_pictures=True, class_names=["cat", "dog"], classes=[{"name": "cat", "images": 1}])
    )
    assert 'x = net.preprocess(net.read("photo.jpg"))' in html.unescape(text)
    assert "print(net.classes[y[0].argmax()])" in text


def test_the_page_says_the_digest_of_the_file():
    assert "n.safetensors: SHA-256 12ab" in plain(page(sha256="12ab"))
    assert "SHA-256" not in page()


def test_a_report_from_python(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 12)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)
    net = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))
    fitted = mb.fit(net, (x, y), test_data=(x, y), budget="70%", steps=30, device="cpu", progress=False)
    fitted.report(tmp_path / "r.html", network="tiny", data="points")
    text = (tmp_path / "r.html").read_text()
    assert "tiny on points" in text
    assert f"{fitted.file_bytes:,} bytes" in text
    assert fitted.dense["int8"]["file_bytes"] < fitted.dense["file_bytes"]
    with pytest.raises(mb.MemboundError, match=r"there is no folder .*missing: create it with mkdir"):
        fitted.report(tmp_path / "missing" / "r.html")


def over_seeds(*scores: float, first: int = 0) -> dict[str, object]:
    return {"count": len(scores), "seeds": [*range(first, first + len(scores))], "accuracies": [*scores],
            "mean": mean(scores), "std": stdev(scores)}  # fmt: skip


def test_several_seeds_lead_with_their_mean():
    seeds = over_seeds(98.84, 98.9, 98.96)
    dense = DENSE | {
        "seeds": over_seeds(98.98, 99.03, 99.08), "int8": INT8 | {"seeds": over_seeds(98.88, 98.86, 99.02)}
    }  # fmt: skip
    text = page(dense=dense, seeds=seeds)
    assert '<h2>accuracy on test, 3 seeds</h2><p class="number">98.90 ± 0.06 %</p>' in text
    assert told(text)[2:4] == [
        ("worse", "worse by 0.13 points"), ("even", "within the spread (0.02 points below)")
    ]  # fmt: skip
    assert text.count("After a difference, ± is half its 95 % confidence interval.") == 1
    assert text.count("excludes 0") == 1
    assert (
        '<tr><th scope="row" class="text">against dense</th><td>worse<small>\N{MINUS SIGN}0.130 ± 0.025</small></td>'
        in text
    )
    assert "Seed 0 (the saved file; standard error over 10,000 test images: 0.10 points): " in text
    assert "After a score" not in text


def test_two_seeds_are_too_few_to_tell():
    text = page(dense=DENSE | {"seeds": over_seeds(96.6, 96.3)}, seeds=over_seeds(94.0, 94.4))
    assert "too few seeds to tell (\N{MINUS SIGN}2.25 ± 4.45 points against dense)." in text
    assert ("even", "too few seeds to tell (2.25 points below)") in told(text)
    assert '<span class="words">too few seeds to tell</span>' in text
    more = page(dense=DENSE | {"seeds": over_seeds(96.6, 96.3, 96.5)}, seeds=over_seeds(94.0, 94.4, 94.3))
    assert "worse than dense by 2.23 ± 0.87 points." in more


def test_the_headline_of_several_seeds_is_their_mean_and_each_is_listed():
    seeds = over_seeds(98.97, 98.86, 98.87, first=4)
    text = page(dense=DENSE | {"seeds": over_seeds(99.0, 99.06, 98.94, first=4)}, seeds=seeds)
    verdict = re.search(r'<p class="verdict">(.*?)</p>', text)[1]
    assert verdict.startswith("98.90 ± 0.06 % over 3 seeds in 20,412 bytes: ")
    assert verdict.endswith("within the spread of dense (\N{MINUS SIGN}0.10 ± 0.22 points).")
    better = page(dense=DENSE | {"seeds": over_seeds(98.76, 98.66, 98.68, first=4)}, seeds=seeds)
    assert "1.2 % of the dense file, better than dense by 0.200 ± 0.025 points." in better
    assert ": 98.97 %; seed 5: 98.86 %; seed 6: 98.87 %." in text
    own = {"finals": [NET | {"seeds": seeds}], "dense": DENSE, "score_name": "mean IoU"}
    assert "Mean IoU 98.9 ± 0.061 over 3 seeds" in make_page(own)


def test_the_figure_has_error_bars_and_a_faint_dot_for_each_seed():
    seeds = {"count": 3, "seeds": [4, 5, 6], "mean": 98.9, "std": 0.06, "accuracies": [98.97, 98.86, 98.87]}
    dense = DENSE | {"seeds": seeds | {"mean": 99.0}, "int8": INT8 | {"seeds": seeds}}
    text = page(dense=dense, seeds=seeds, name="20KB")
    wide = text[text.index('<div class="wide">') : text.index('<div class="narrow">')]
    assert len(re.findall(r'class="spread (?:final|dense|int8)"', wide)) == 3
    dots = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="2.2" class="mark seed"><title>(.*?)<', wide)
    assert [tip for _, _, tip in dots[:3]] == [
        "20KB, seed 4: 98.97 %", "20KB, seed 5: 98.86 %", "20KB, seed 6: 98.87 %"
    ]  # fmt: skip
    assert len(dots) == 9
    (_, top), (_, bottom) = ((float(x), float(y)) for x, y, _ in dots[:2])
    path = re.search(r'<path d="M[\d.]+ ([\d.]+)V([\d.]+)M\S+ [^"]*" class="spread final"', wide)
    low, high = float(path[1]), float(path[2])
    per_point = (bottom - top) / 0.11  # pixels
    assert low - high == pytest.approx(0.12 * per_point, abs=0.2), "two standard deviations"
    assert (low + high) / 2 == pytest.approx(top + 0.07 * per_point, abs=0.2), "around the mean"
    assert "mean ± standard deviation, and each seed" in text
    assert "These curves are" not in text
    alone = page()
    assert 'class="mark seed"' not in alone
    assert 'class="spread' not in alone


DEVICE = {
    "flash_bytes": 5_643, "ram_bytes": 1_476, "ms": 19.9, "clock_hz": 64_000_000, "compiled_with": "-Os",
    "at_Os": {"flash_bytes": 5_643, "ms": 19.9}, "at_O2": {"flash_bytes": 8_461, "ms": 11.2},
}  # fmt: skip


def plain(text: str) -> str:
    return re.sub(r"<.*?>", "", text.split("<body>")[1]).replace("\N{NON-BREAKING HYPHEN}", "-")


def test_seeds_of_one_score_have_dots_beside_each_other():
    seeds = {"count": 3, "seeds": [0, 1, 2], "mean": 98.17, "std": 0.29, "accuracies": [98.0, 98.5, 98.0]}
    text = page(seeds=seeds)
    wide = text[text.index('<div class="wide">') : text.index('<div class="narrow">')]
    dots = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="2.2" class="mark seed"><title>', wide)
    assert len(set(dots)) == 3
    assert dots[0][1] == dots[2][1], "they tie"


def test_a_fit_for_a_microcontroller_has_its_cards_without_dense():
    text = page(dense=None, micro=DEVICE, limit=6_000, latency_bound={"bound_ms": 20.0})
    heads = re.findall(r"<h2>(.*?)</h2>", text.split("<body>")[1])
    assert heads[:4] == ["flash", "accuracy on test", "RAM", "time of one image, estimated"]
    assert "of 6,000 bytes allowed, at -Os; at -O2 it takes 8,461" in plain(text)
    assert "of 20 ms allowed, on a Cortex-M4 at 64 MHz, at -Os" in plain(text)
    assert "11.2 ms at -O2" in plain(text)


def test_what_o2_takes_is_beside_what_os_takes():
    table = plain(page(micro=DEVICE, limit=6_000)).split("Flash and RAM")[1]
    assert "flash if exported for -O28,461" in table
    assert "milliseconds with -O211.2" in table
    fast = DEVICE | {"compiled_with": "-O2", "flash_bytes": 8_461, "ms": 11.2}
    table = plain(page(micro=fast, limit=9_000)).split("Flash and RAM")[1]
    assert "flash if exported for -Os5,643" in table
    assert "Code is at -O2 for a Cortex-M4" in table
    assert "--c firmware --clock 64MHz --compiled O2" in table


def test_each_network_of_several_has_a_folder_of_its_own():
    finals = [{"name": name, "file": f"net-{name}.safetensors", "micro": DEVICE} for name in ("6KB", "4KB")]
    usage = plain(make_page({"finals": finals})).split("How to use it")[1]
    for name in ("6KB", "4KB"):
        assert f"membound export net-{name}.safetensors --c firmware-{name} " in usage
    assert "with firmware-6KB/ on the include path" in usage


def test_the_engine_that_is_faster_is_the_one_to_use():
    """Commands, and the numbers beside those of floats; only the numbers where floats are as fast."""
    text = plain(page(engine_int8={"latency_ms": 0.1, "accuracy": 98.91}))
    usage = text.split("How to use it")[1]
    assert 'mb.load("n.safetensors", engine="int8")' in html.unescape(usage)
    assert "membound evaluate n.safetensors --data mnist --engine int8" in usage
    assert "membound export n.safetensors --cpp app --engine int8" in usage
    tile = text.split("latency of one image")[1].split("memory to run")[0]
    assert "2.2 times as slow dense in floats: 0.100 msin int8: 0.100 ms" in tile
    assert "Engine int8 is 2.2 times as fast as floats here: 0.100 ms an image, floats 0.220 ms." in usage
    table = text.split("All numbers")[1]
    assert "latency, engine int80.100 ms" in table
    assert "accuracy on test, engine int898.91 %" in table
    text = plain(page(engine_int8={"latency_ms": 0.22, "accuracy": 98.91}))
    usage = html.unescape(text.split("How to use it")[1])
    assert 'mb.load("n.safetensors")' in usage
    assert "--engine" not in usage
    assert "Engine int8 is about as fast as floats here (0.220 ms)." in usage
    assert "latency, engine int80.220 ms" in text.split("All numbers")[1]


def test_how_to_use_it_has_a_loop_in_c():
    usage = plain(page(micro=DEVICE)).split("How to use it")[1]
    assert "while (!net_feed_row(&amp;context, next_row(), 1, NET_CHANNELS)) {}" in usage
    assert "net_input" not in usage
    assert (
        "net_input"
        in plain(page(micro=DEVICE | {"flash_not_included": "net_input"})).split("How to use it")[1]
    )
    assert "net_feed_row" not in page()
    assert "next_row() is yours: a row of the image */" in usage
    features = page(micro=DEVICE, input_shape=[10, 49, 1])
    assert "next_row() is yours: a row of the example */" in features


def test_borders_are_those_of_cells():
    """Collapsed ones belong to the table, and a cell that sticks hides some of them at narrow widths."""
    style = page()
    assert "position: sticky" in style
    assert "border-collapse: separate" in style


def test_no_error_is_not_no_doubt():
    perfect = {"accuracy": 100.0, "errors": 0, "images": 400}
    text = plain(page(dense=DENSE | perfect | {"int8": INT8 | perfect}, **perfect))
    assert "± 0.00" not in text
    assert "100.00 %" in text
    assert (
        "With no errors in 400 test images, accuracy is at least 99.25 % (95 % confidence); for the comparison, its "
        "standard error counts as 0.25." in text
    )
    one = {"accuracy": 99.75, "errors": 1, "images": 400}
    text = plain(page(dense=DENSE | one, **perfect))
    assert "within the spread (0.25 points above)" in text
    assert "After a score, ± is its standard error over 400 test images. With no errors in 400 " in text
    assert text.count("Another seed may give another result.") == 1
    many = {"accuracy": 98.0, "errors": 8, "images": 400}
    assert ("better", "better by 2.00 points") in told(page(dense=DENSE | many, **perfect))


def test_a_long_name_breaks_after_a_colon():
    found = make_page({"finals": [NET], "network": "examples.digits:digits", "data": "mnist"})
    assert "<h1>examples.<wbr>digits:<wbr>digits on mnist" in found
    assert "<title>examples.digits:digits on mnist" in found
