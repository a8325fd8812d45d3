"""What the README says: its numbers are in `results/`, its names and options exist."""

import ast
import json
import math
import re
from pathlib import Path

import api_page
import benchmarks_page
import int8_page
import pytest
import readme_table
import reproduction_page
from paired_results import comparisons
from profiles import at_once

import membound as mb
from membound.cli import main
from membound.export.cpp_project import CODE
from membound.paper import figure
from membound.units import CLOCK, LEVELS, OFF_PERCENT

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
FITTING, INT8, LIMITS, MICRO = (
    (ROOT / "docs" / f"{name}.md").read_text() for name in ("FITTING", "INT8", "LIMITS", "MICRO")
)
OTHERS = (
    "MEASURED",
    "INT8",
    "HOWTO",
    "APP",
    "RESEARCH",
    "TRAINING",
    "DEPLOYING",
    "CLUSTER",
    "REPRODUCTION",
    "TUTORIAL",
    "YOUR_OWN_MODEL",
    "GALLERY",
    "INSTALL",
    "LIMITS",
)
MEASURED = README + (ROOT / "docs" / "MEASURED.md").read_text()  # where the README's numbers are in full
PAGES = [README, FITTING, *((ROOT / "docs" / f"{name}.md").read_text() for name in OTHERS)]


def results(name: str) -> dict:
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def quoted() -> list[str]:
    cpu, gpu = (results(f"projection-{device}")["cases"][0] for device in ("cpu", "cuda"))
    numbers = []
    for case, ours, digits in ((cpu, "core avx512", (0, 1, 0)), (gpu, "triton", (2, 2, 1))):
        numbers.append(f"{case['min_ms']['topk']:.{digits[0]}f} ms")
        numbers.append(
            f"**{case['min_ms'][ours]:.{digits[1]}f} ms**, {case['topk_over'][ours]:.{digits[2]}f} times"
        )
    numbers += [f"{results(f'train-overhead-{d}')['overhead_percent']:+.1f} %" for d in ("cpu", "cuda")]
    for network in results("caffe-baselines")["networks"].values():
        numbers.append(f"{network['mean']:.2f} ± {network['std']:.2f} %")
    return numbers + deployed() + fitted() + [frontier(3_977)]


def frontier(weights: int) -> str:
    """What the README says of the smallest LeNets."""
    rows = results("reproduce/frontier")["numbers"]["rows"]
    (row,) = (row for row in rows if row["weights"] == weights)
    return f"LeNet of {row['weight_nonzeros']:,} weights with {row['error']['mean']:.2f} % errors"


def flat(page: str) -> str:
    """However its lines are broken."""
    return " ".join(page.split())


def spread(row: dict) -> str:
    return f"{row.get('mean', row.get('accuracy')):.2f} ± {row['std']:.2f} %"


def fitted() -> list[str]:
    """What the README says of fit."""
    quick = {row["group"]: row for row in results("frontier-quick-deployed")["summary"]}
    joint = {row["group"]: row for row in results("ensembles-deployed")["summary"]}
    rows = [*quick.values(), joint["n1"], joint["n5"], *results("demo")["summary"].values()]
    own, lenet = results("own-network")["summary"], deployed_lenet()
    rows += [own["dense"], own["fitted"], own["one_shot_magnitude"], lenet["dense"], lenet["lamp-20KiB"]]
    alexnet, mobilenet = (
        results("pretrained-alexnet-smaller")["summary"][0],
        results("own-mobilenet")["summary"],
    )
    rows += [alexnet["dense"], alexnet["sparse"], mobilenet["dense"], mobilenet["fitted"], *lite0()]
    return [spread(row) for row in rows]


def lite0() -> list[dict]:
    quarter, tenth = results("efficientnet-lite0")["summary"]
    return [quarter["dense"], quarter["sparse"], tenth["sparse"]]


def deployed_lenet() -> dict[str, dict]:
    return {row["group"]: row for row in results("frontier-lenet-deployed")["summary"]}


def compared() -> list[str]:
    """What docs/MEASURED.md says of strategies, ensembles and populations."""
    rows = results("frontier-quick-others")["summary"]
    joint = results("ensembles-deployed")["summary"]
    own, lenet = results("own-network")["summary"], deployed_lenet()
    own_too = results("own-mobilenet")["summary"].values()
    numbers = [spread(row) for row in [*rows, *joint, *own.values(), *own_too, *lenet.values(), *lite0()]]
    ways = {(row["way"], row["networks"], row["tf32"]): row for row in results("population-ways")["rows"]}
    for way in (("eager, one network", 1), ("streams", 20), ("grouped", 20), ("vmap", 20), ("im2col", 20)):
        numbers.append(f"{ways[*way, True]['ms_a_network']:.2f} ms")
    numbers += [f"{rate:,.0f}" for rate in results("data-path")["summary"]["images_a_second"].values()]
    taught = {(row["way"], row["nonzeros"]): row for row in results("distillation")["rows"]}
    for way in ("T 3, 0.5", "labels alone"):
        row = taught[way, 3160]
        numbers.append(f"{row['error']:.2f} ± {row['std']:.2f}")
    for row in results("pretrained-alexnet-smaller")["summary"]:
        ahead = row["points"]["mean"]
        numbers.append(f"{'+' if ahead > 0 else '−'}{abs(ahead):.2f} ± ")
        numbers.append(f"1/{row['times_smaller']:.1f}")
    search = results("greedy-quick")["summary"]
    return [*numbers, f"{search['seconds']:.0f} s", f"{search['times_faster']:.1f} times"]


def deployed() -> list[str]:
    numbers = alexnet_on_arm()
    for network in (
        "alexnet, the paper's",
        "alexnet, sparse convolutions",
        "alexnet, a tenth",
        "lenet",
        "quick",
    ):
        raced = {prefer: raced_on_arm(network, prefer) for prefer in ("bytes", "speed")}
        numbers.append(milliseconds(min(peer["min_ms"] for _, peer in raced.values())))
        for ours, peer in raced.values():
            size = ours["file_bytes"]
            weight = f"{size / 2**20:.1f} MiB" if size > 2**20 else f"{size / 1024:.0f} KiB"
            times = peer["min_ms"] / ours["min_ms"]
            numbers.append(f"**{milliseconds(ours['min_ms'])}**, {times:.2f} times, {weight}")
    convolutions = results("sparse-conv")
    numbers.append(f"{convolutions['times_faster_than_torch_dense']:.1f} times as fast")
    least = min(layer["times_faster_than_torch_dense"] for layer in convolutions["layers"])
    lite0 = {
        row["name"]: row["min_ms"] for row in results("deployed-lite0")["results"] if row["threads"] == 2
    }
    ours, peers = lite0.pop("membound"), [ms for name, ms in lite0.items() if "default" not in name]
    numbers += [f"{least:.2f}", f"{ours:.1f} ms an image", f"float32 {min(peers):.1f} ("]
    dense, every = (ahead_on_x86(("onnxruntime", "openvino", *more)) for more in ((), ("deepsparse",)))
    return [
        *numbers,
        f"on {sum(dense)} of {len(dense)} rows, and on {sum(every)} of these also faster than DeepSparse",
    ]


def raced_on_arm(network: str, prefer: str) -> tuple[dict, dict]:
    """Our row and that of the fastest peer in float32, one image, the better of one and two threads."""
    entries = [
        entry
        for entry in results("deployment")["results"]
        if (entry["network"], entry["formats_for"], entry["batch"]) == (network, prefer, 1)
    ]
    rows = sorted((row for entry in entries for row in entry["rows"]), key=lambda row: row["min_ms"])
    peers = (row for row in rows if row["name"] != "membound" and "default" not in row["name"])
    return next(row for row in rows if row["name"] == "membound"), next(peers)


def alexnet_on_arm() -> list[str]:
    """The memory of both layouts."""
    ours, fast = (raced_on_arm("alexnet, the paper's", prefer)[0] for prefer in ("bytes", "speed"))
    return [f"| {mebibytes(ours)} | {mebibytes(fast)} |"]


NAMES = {
    "lenet": "LeNet",
    "cifar10_quick": "CIFAR-10-quick",
    "resnet8": "ResNet-8",
    "efficientnet_lite0": "EfficientNet-Lite0",
}


def test_the_page_on_int8_races_what_fit_writes():
    shown, ahead = INT8.replace("**", ""), []
    for entry in results("few-bits-latency-x86")["results"]:
        ms = {row["name"]: f"{row['min_ms']:#.3g}" for row in entry["rows"]}
        peers = " | ".join(f"{ms[name]} / {ms[f'{name} int8']}" for name in ("onnxruntime", "openvino"))
        half = [f"membound {entry['network'].removesuffix('auto')}f16{kind}" for kind in ("", " int8")]
        plain = " / ".join(ms[name] for name in half if name in ms)
        ours = f"{ms['membound']} / {ms['membound int8']}"
        name = f"{NAMES[entry['network'].removesuffix('-auto')]}, {entry['threads']}"
        assert f"| {name} | {peers} | {ms['deepsparse']} | {plain} | {ours} |" in shown
        if entry["threads"] != 1:
            continue
        least = {row["name"]: row["min_ms"] for row in entry["rows"]}
        int8 = min(least["onnxruntime int8"], least["openvino int8"])
        ahead.append(f"{int8 / least['membound int8']:.2f}")
    said = f"{min(ahead)} to {max(ahead)} times as fast as the dense networks in whichever int8 is faster"
    assert said in flat(README)


def milliseconds(ms: float) -> str:
    return f"{ms:.1f} ms" if ms > 1 else f"{ms:.3f} ms"


def mebibytes(row: dict) -> str:
    return f"{row['resident_bytes'] / 2**20:.1f} MiB"


def ahead_on_x86(peers: tuple[str, ...]) -> list[bool]:
    entries = [
        {row["name"]: row["min_ms"] for row in entry["rows"]} for entry in results("race-f32-x86")["results"]
    ]
    return [entry["membound"] < min(entry[name] for name in peers) for entry in entries]


@at_once("number", quoted())
def test_every_number_in_the_readme_was_measured(number):
    assert number in flat(MEASURED)


@at_once("number", compared())
def test_every_number_about_fitting_was_measured(number):
    assert number in flat(FITTING + MEASURED)


def test_the_numbers_of_the_tutorial_were_measured():
    page, fit = (ROOT / "docs" / "TUTORIAL.md").read_text(), results("gallery")["fits"]["fit"]
    assert fit["command"] in page
    for net in fit["networks"].values():
        numbers = (
            f"{net['accuracy']:.2f} %",
            f"{net['errors']:,} of {net['images']:,}",
            f"{net['file_bytes']:,}",
            f"{net['nonzeros']:,}",
        )
        assert re.search(r" +".join(map(re.escape, numbers)), page)


def test_the_times_of_an_app_were_measured():
    page, howto = (flat((ROOT / "docs" / f"{name}.md").read_text()) for name in ("APP", "HOWTO"))
    rows = {row["network"]: row for row in results("cpp-export-arm")["rows"]}
    for name, row in rows.items():
        times = " | ".join(f"{row[part]:#.3g}" for part in ("cpp_ms", "python_ms", "c_ms", "resize_ms"))
        assert f"| {NAMES[name]} | {times} | {row['weight_bytes'] / 1000:.0f} KB |" in page
    slower = [row["c_ms"] / row["cpp_ms"] for row in rows.values()]
    assert f"{min(slower):.0f} to {max(slower):.0f} times as long as the C++ of `--cpp`" in howto
    assert all(row["cpp_ms"] < 1.02 * row["python_ms"] for row in rows.values())  # "as fast", LIMITS says
    code = [row["binary_bytes"] - row["weight_bytes"] for row in rows.values()]
    assert CODE.startswith("less than a megabyte on 64-bit Arm")
    assert max(code) < 1e6
    on_x86 = results("cpp-export-size-x86")["rows"]
    assert all(row["code_bytes"] == row["binary_bytes"] - row["weight_bytes"] for row in on_x86)
    assert {f"{row['code_bytes'] / 1e6:.1f} MB" for row in on_x86} == {"1.2 MB"}
    assert CODE.endswith(", 1.2 MB on x86-64")
    for text in (page, flat(LIMITS), flat(README)):
        assert CODE in text
    arm, x86 = (f"{row['library_bytes'] / 1e6:.2f} MB" for row in results("litert-size")["rows"])
    assert f"LiteRT's library for Linux, without its accelerators for GPUs, has {arm} and {x86}" in page


def test_the_times_of_an_app_beside_int8_were_measured():
    page, int8 = flat((ROOT / "docs" / "APP.md").read_text()), flat(INT8)
    few = {
        each["network"]: {row["name"]: row for row in each["rows"]}
        for each in results("few-bits-latency-arm")["results"]
    }
    litert = {row["network"]: row for row in results("litert-arm")["rows"]}
    apart = max(abs(row["membound_ms"] / few[name]["membound"]["min_ms"] - 1) for name, row in litert.items())
    assert f"differ from these by up to {math.ceil(100 * apart)} %" in int8
    assert [row["times_int8"] > 1 for row in litert.values()] == [True, True, False, False]
    assert 0.95 < litert["efficientnet_lite0-auto"]["times_int8"] < 1
    faster = "faster than LiteRT's int8 on LeNet and CIFAR-10-quick, and about as fast on EfficientNet-Lite0"
    assert faster in page
    slower = f"{1 / litert['resnet8-auto']['times_int8']:.1f}"
    assert f"On ResNet-8, LiteRT's is {slower} times as fast" in page
    for name, said in (
        ("times", "times as fast as that in floats"),
        ("times_int8", "times in 8-bit integers"),
    ):
        times = [f"{row[name]:.2f}" for row in litert.values()]
        assert f"{', '.join(times[:-1])} and {times[-1]} {said}" in int8
    for name, row in litert.items():  # the table of INT8.md
        ms = {each: f"{found['min_ms']:#.3g}" for each, found in few[name].items()}
        size = {each: short(found["file_bytes"]) for each, found in few[name].items()}
        asked = [
            f"{row['litert_int8_ms']:#.3g}, {short(row['litert_file_bytes'])}",
            f"{ms['onnxruntime']} / {ms['onnxruntime int8']}, {size['onnxruntime int8']}",
            f"{ms['openvino']} / {ms['openvino default']} / {ms['openvino int8']}, {size['openvino int8']}",
            ms.get(f"membound {name.removesuffix('auto')}f16", ""),
            f"{ms['membound']} / {ms['membound int8']}, {size['membound']}",
        ]
        assert f"| {NAMES[name.removesuffix('-auto')]} | {' | '.join(asked)} |" in INT8
    said = f"LiteRT's int8 is {slower} times as fast as membound's on ResNet-8, and about as fast on EfficientNet-Lite0"
    assert said in " ".join(README.split())
    smaller = [row["litert_file_bytes"] / row["file_bytes"] for row in litert.values()]
    assert f"files {min(smaller):.1f} to {max(smaller):.0f} times smaller" in page


def short(size: int) -> str:
    return f"{size / 1e6:.2f} MB" if size >= 1e6 else f"{size / 1e3:.{0 if size >= 1e4 else 1}f} KB"


def test_the_gallery_shows_small_pictures_of_the_fits_it_names():
    page = (ROOT / "docs" / "GALLERY.md").read_text().replace("\\\n    ", "")
    for name, fit in results("gallery")["fits"].items():
        picture = f"gallery/{name}.png"
        assert picture in page
        assert fit["command"] in page
        assert (ROOT / "docs" / picture).stat().st_size < 200_000


@at_once("path", sorted((ROOT / "results").glob("*.json")))
def test_every_result_says_how_it_was_made(path):
    result = json.loads(path.read_text())
    assert {"command", "date", "hardware", "versions"} <= result.keys()
    program, what = result["command"].split()[:2]
    assert program == "membound" or (ROOT / what).exists()
    if result["date"] >= "2026-11-19":  # MEASURED.md says which are older
        assert "membound" in result["versions"]


def test_the_table_of_races_names_every_script_and_every_result():
    page = (ROOT / "benchmarks" / "README.md").read_text()
    scripts = {path.name for path in (ROOT / "benchmarks").glob("[!_]*.py")}
    assert set(re.findall(r"^\| \[(\w+\.py)\]", page, re.MULTILINE)) == scripts
    assert set(re.findall(r"`([\w-]+\.json)`", page)) == {
        path.name for path in (ROOT / "results").glob("*.json")
    }


@pytest.mark.parametrize(
    "path", sorted((ROOT / "results" / "reproduce").glob("*.json")), ids=lambda p: p.stem
)
def test_every_figure_says_how_it_was_made(path):
    document = json.loads(path.read_text())
    assert document["command"].startswith(f"membound reproduce {path.stem}")
    assert not document["quick"]
    assert {"date", "hardware", "versions", "seconds", "claims", "numbers"} <= document.keys()
    assert path.with_suffix(".svg").exists()
    assert document["claims"] == figure(path.stem).claims(document["numbers"])


def test_the_page_about_the_paper_is_made_of_its_numbers():
    assert (ROOT / "docs" / "REPRODUCTION.md").read_text() == reproduction_page.make_page()


def test_the_page_of_benchmarks_is_made_of_its_numbers():
    assert (ROOT / "docs" / "BENCHMARKS.md").read_text() == benchmarks_page.make_page()


def test_the_page_on_int8_is_of_the_results_that_are_there():
    """If not: python tools/int8_page.py"""
    assert int8_page.PAGE.read_text() == int8_page.written(int8_page.PAGE.read_text())
    assert int8_page.PICTURE.read_text() == int8_page.picture()


def test_the_first_table_of_the_readme_is_made_of_results():
    """If not: python tools/readme_table.py"""
    assert readme_table.with_table(README) == README


def test_the_first_screen_compares_with_int8_as_the_table_does():
    text = re.sub(r"\s+", " ", README)
    times, verdicts = {}, set()
    for name, (_, int8, _), ours in readme_table.rows():
        number = 0 if name in ("lenet", "alexnet") else 1
        times[name] = f"{int8.size / ours[number].size:.2g} times smaller"
        if name != "quick":
            verdicts.add(list(readme_table.less_int8(name).values())[number].verdict)
    assert f"{times['alexnet']} on AlexNet, {times['resnet8']} on ResNet-8, {times['lite0']} on Effi" in text
    assert f"and {times['lenet']} on LeNet, with no difference in accuracy that 3 seeds can show" in text
    assert verdicts == {"within the spread"}


def test_the_microcontroller_section_tells_estimates_from_counted_times():
    rows = results("micro-speed")["rows"]
    levels = next(row for row in rows if row["name"] == "digits")["levels"]
    small, fast = levels["-Os"], levels["-O2"]
    said = flat(MICRO)
    estimated = [f"{1e3 * each['estimated_cycles'] / CLOCK:.1f} ms" for each in (small, fast)]
    assert (
        f"it estimates {estimated[0]} an image on a Cortex-M4 at 80 MHz, or {estimated[1]} if exported"
        in said
    )
    counted = f"{small['ms_at_80_mhz']} ms and {fast['ms_at_80_mhz']} ms"
    assert f"The instructions that an emulated Cortex-M4 ran take {counted} at that clock" in said
    taken = {row["name"]: row["levels"]["-O2"]["instructions"] for row in results("micro-tflm")["rows"]}
    times = taken["membound: keywords, fitted"] / taken["tflm: keywords"]
    assert f"{times:.1f} times as many instructions at -O2" in said
    assert f"membound takes {times:.1f} times as many instructions at -O2" in flat(README)


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_said_of_the_error_of_estimates_is_the_largest_that_was_measured(level):
    found = [row["levels"][level] for row in results("micro-speed")["rows"]]
    assert max(abs(each["off_percent"]) for each in found) == OFF_PERCENT[level]


def measured_spreads(value: object) -> set[str]:
    """Every mean and its deviation in a result, as pages write them."""
    found: set[str] = set()
    if isinstance(value, dict):
        means = [
            value[key] for key in ("mean", "accuracy", "error") if isinstance(value.get(key), int | float)
        ]
        if isinstance(value.get("std"), int | float):
            found |= {f"{mean:.2f} ± {value['std']:.2f}" for mean in means}
        value = list(value.values())
    if isinstance(value, list):
        found = found.union(*map(measured_spreads, value))
    return found


def test_every_spread_in_the_documents_was_measured():
    """The other way round: what pages say is in some result."""
    files = (ROOT / "results").rglob("*.json")
    known = set().union(*(measured_spreads(json.loads(path.read_text())) for path in files))
    known |= {f"{abs(each.difference):.2f} ± {each.uncertainty:.2f}" for each in comparisons().values()}
    for page in PAGES:
        if page == reproduction_page.make_page():  # made of its numbers, with deviations computed there
            continue
        said = {re.sub(r"\s+", " ", each) for each in re.findall(r"\d+\.\d\d\s±\s\d+\.\d\d", page)}
        assert said <= known, sorted(said - known)


@pytest.fixture
def help_of(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    def ask(*command: str) -> str:
        with pytest.raises(SystemExit) as stopped:
            main([*command, "--help"])
        assert stopped.value.code == 0
        return capsys.readouterr().out

    return ask


def test_every_command_in_the_documents_exists(help_of):
    help_text = help_of()
    there = re.findall(r"^  ([a-z]+)  ", help_text, re.MULTILINE)
    for page in PAGES:
        blocks = "\n".join(page.split("```")[1::2])
        named = re.findall(r"(?:^|-m )membound ([a-z]+)", blocks, re.MULTILINE)
        named += re.findall(r"`membound ([a-z]+)", page)
        assert set(named) <= set(there)
        assert named or not blocks


OF_OTHERS = {  # of torchrun, ray, cmake, benchmarks/training_peers.py and examples/keywords.py
    "--nproc-per-node", "--max-restarts", "--address", "--build", "--methods", "--micro"
}  # fmt: skip


def test_names_options_and_links_in_the_documents_exist(help_of):
    commands = ("fit", "train", "evaluate", "inspect", "run", "bench", "export", "reproduce")
    help_text = help_of() + "".join(help_of(command) for command in commands)
    for page in PAGES:
        for name in re.findall(r"\bmb\.(\w+)", page):
            assert hasattr(mb, name), name
        for option in set(re.findall(r"(?<=[ `])--[a-z][a-z0-9-]+", page)) - OF_OTHERS:
            assert option in help_text, option


@at_once("page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")]))
def test_links_lead_somewhere(page):
    for link, anchor in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", page.read_text()):
        target = page.parent / link if link else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), f"{link}#{anchor}"


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings of a page.

    The site makes the same, but that it joins dashes: `make docs` checks those.
    """
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_links_to_other_sites_are_whole_addresses():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for address in re.findall(r"\]\((http[^)]*)\)", page.read_text()):
            assert re.fullmatch(r"https://[\w.-]+\.[a-z]+(/[\w./#%?=&~+-]*)?", address), address


def test_every_page_is_on_the_site():
    named = re.findall(r": (\w+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(
        [page.name for page in ROOT.glob("docs/*.md")] + ["index.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    )


def test_the_reference_is_made_of_the_docstrings():
    """If not: python tools/api_page.py"""
    assert api_page.PAGE.read_text() == api_page.make_page()


def test_the_reference_has_every_public_name_and_documents_each():
    named = [entry.name for section in api_page.SECTIONS for entry in section.entries]
    assert len(set(named)) == len(named)
    public = {f"membound.{name}" for name in mb.__all__} - {"membound.data", "membound.zoo"}
    for module in (mb.data, mb.zoo):
        public |= {f"{module.__name__}.{name}" for name in module.__all__}
    assert public <= set(named)
    for name in named:
        assert ast.get_docstring(api_page.find(name)[1]), name


def test_nobody_is_told_to_install_from_an_index_that_does_not_have_it():
    texts = [*(ROOT / "src" / "membound").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    assert [path.name for path in texts if "pip install 'membound" in path.read_text()] == []


def test_the_torchvision_that_the_onnx_extra_brings_leaves_the_pinned_torch():
    """torchvision 0.(n + 15) requires torch 2.n."""
    pins = dict(re.findall(r"^(\w+)==([\d.]+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    torch, vision = (list(map(int, pins[name].split("."))) for name in ("torch", "torchvision"))
    assert torch[0] == 2
    assert vision == [0, torch[1] + 15, torch[2]]
