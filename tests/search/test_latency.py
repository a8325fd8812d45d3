"""A bound on latency: the time of a file that fit writes, on this machine, is within it."""

import html
import re
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

import membound as mb
from membound.cli import _say_in_options
from membound.errors import MemboundError
from membound.report.engines import say_engines
from membound.report.text import Score
from membound.run.inspection import inspect
from membound.search import latency, timing
from membound.search.budget import Limit
from membound.search.integers import note_memory, note_time
from membound.search.place import Watch
from membound.search.timing import Latency
from membound.units import parse_latency

fit_module = import_module("membound.search.fit")
X = np.random.default_rng(0).normal(size=(80, 32)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
QUICK = {"steps": 20, "batch_size": 20, "device": "cpu", "dense": False, "progress": False}


def network():
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))


@pytest.fixture
def clock(monkeypatch):
    """Time as it would be on a machine that takes a microsecond for each nonzero: tests measure no time."""

    def taken(nets):
        counts = [sum(layer["nonzeros"] for layer in inspect(net.model)["layers"]) for net in nets]
        return [Latency(count / 1000) for count in counts]

    monkeypatch.setattr(timing, "measure", taken)


def test_the_file_is_as_fast_as_asked_for_and_as_large_as_that_allows(clock):
    fitted = mb.fit(network, (X, Y), test_data=(X, Y), latency="1 ms", **QUICK)
    about = fitted.facts["latency_bound"]
    assert about["measured_ms"] == fitted.facts["nonzeros"] / 1000 <= 1
    assert about["measured_ms"] > 0.2, "it is used"
    assert "the limit is 1 ms" in fitted.facts["tried"][-1]
    assert "bind" not in "".join(fitted.facts["tried"])
    assert fitted.name == "in 1 ms", "what was asked for, not bytes that nobody wrote"


@pytest.mark.parametrize("values", ["auto", "p8"])
def test_a_bound_that_does_not_bind_keeps_every_weight_and_says_so(clock, values):
    fitted = mb.fit(network, (X, Y), test_data=(X, Y), latency="1 s", values=values, **QUICK)
    weights = [layer for layer in fitted.facts["layers"] if len(layer["shape"]) == 2]
    assert sum(layer["size"] for layer in weights) == 32 * 64 + 64 * 2
    # Few bits round some to zero; what is taken away by a bound would be far more.
    assert sum(layer["nonzeros"] for layer in weights) > 0.95 * (32 * 64 + 64 * 2)
    assert all(layer["values"] in ("f16", "p8") for layer in weights)
    notes = [note for note in fitted.facts["tried"] if "bind" in note]
    assert len(notes) == 1
    assert "this does not bind, so no weight has to go" in notes[0]


def test_a_network_that_is_too_slow_is_trained_again_and_that_is_said(monkeypatch):
    times = iter([Latency(0.5), Latency(1.25), Latency(0.75)])  # as it starts, trained, trained again
    monkeypatch.setattr(timing, "measure", lambda nets: [next(times), *[Latency(0.5) for _ in nets[1:]]])
    said = []
    fitted = mb.fit(
        network, (X, Y), test_data=(X, Y), latency="1 ms", watch=Watch(say=said.append, warn=said.append),
        **{name: value for name, value in QUICK.items() if name != "progress"},
    )  # fmt: skip
    assert fitted.facts["latency_ms"] == fitted.facts["latency_bound"]["measured_ms"] == 0.75
    assert any(
        text.startswith("it takes 1.25 ms, more than the 1 ms allowed: training again") for text in said
    )


def test_a_file_has_one_latency_and_it_is_measured_beside_dense(clock):
    keywords = {**QUICK, "dense": True, "teacher": "none"}
    small, large = mb.fit(network, (X, Y), test_data=(X, Y), budget=["1.5 KB", "2.5 KB"], **keywords)
    for fitted in (small, large):
        assert fitted.facts["latency_ms"] == fitted.facts["nonzeros"] / 1000
        assert fitted.dense["latency_ms"] == fitted.dense["nonzeros"] / 1000
        assert "engine_int8" not in fitted.facts, "it has no convolution"
        assert fitted.facts["threads"] == fitted.dense["threads"] == 1


def test_networks_are_timed_by_turns(monkeypatch):
    called = []
    port = SimpleNamespace(shape=(2,), whole=False)
    nets = [SimpleNamespace(inputs=[port], called=name) for name in "ab"]
    monkeypatch.setattr(timing, "_least", lambda run: called.append(run.func.called) or len(called) / 1000)
    for number, net in enumerate(nets):
        nets[number] = type("Timed", (), {**vars(net), "__call__": lambda self, *given: None})()
    a, b = timing.measure(nets)
    assert called == ["a", "b"] * timing.TURNS
    assert (a.ms, b.ms) == (1.0, 2.0)
    assert a.spread > b.spread > 0


def test_a_budget_beside_it_holds_as_well(clock):
    fitted = mb.fit(network, (X, Y), test_data=(X, Y), budget="1.5 KB", latency="1 s", **QUICK)
    assert fitted.file_bytes <= 1500
    assert fitted.limit == 1500, "time does not bind"


def test_a_budget_that_time_leaves_unused_is_explained(clock):
    fitted = mb.fit(network, (X, Y), test_data=(X, Y), budget="4 KB", latency="0.5 ms", **QUICK)
    assert fitted.file_bytes < 2500
    assert fitted.facts["latency_ms"] <= 0.5
    used = f"so the file takes {fitted.file_bytes:,} of 4,000 bytes, and a larger one would be too slow"
    assert fitted.facts["tried"][-1].endswith(used)


@pytest.mark.full
def test_a_run_that_goes_on_keeps_what_it_measured(clock, tmp_path, monkeypatch):
    first = mb.fit(network, (X, Y), test_data=(X, Y), latency="1 ms", run_dir=tmp_path / "run", **QUICK)
    monkeypatch.setattr(latency, "find_size", None)
    again = mb.fit(network, (X, Y), test_data=(X, Y), latency="1 ms", run_dir=tmp_path / "run", **QUICK)
    assert again.file_bytes == first.file_bytes


def test_what_cannot_be_met_is_said_before_training(clock):
    with pytest.raises(MemboundError, match="a latency of 1 us cannot be met here: with 1% of its weights"):
        mb.fit(network, (X, Y), test_data=(X, Y), latency="1us", **QUICK)


def test_labels_that_begin_at_1_are_warned_of(clock):
    said = []
    keywords = {name: value for name, value in QUICK.items() if name != "progress"}
    for begin in (0, 1):
        model = nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 3))
        fitted = mb.fit(model, (X, Y + begin), budget="2 KB", watch=Watch(warn=said.append), **keywords)
    assert len(said) == 1
    assert "labels begin at 1 and go to 2, so class 0 has no examples: subtract 1" in said[0]
    assert said[0] in fitted.facts["tried"]  # and again at the end


def test_classes_without_training_examples_are_named(clock):
    said = []
    keywords = {name: value for name, value in QUICK.items() if name != "progress"}
    model = nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 12))
    labels = Y.copy()
    labels[:3] = [9, 9, 11]
    mb.fit(model, (X, Y), budget="2 KB", test_data=(X, labels), watch=Watch(warn=said.append), **keywords)
    count = f"3 of {len(Y)} test labels name: these count as errors"
    assert said == [
        "no example has class 2, 3, 4, 5, 6 and 3 more, and the largest label is 11: check the labels",
        f"no training examples of classes 9, 11, which {count}",
    ]


def test_a_time_without_a_unit_is_asked_about():
    with pytest.raises(MemboundError, match="has no unit, ms, s or us: did you mean '5 ms'"):
        parse_latency("5")


@pytest.mark.parametrize("given", ["5 parsecs", "0 ms", "-3", ""])
def test_times_that_are_none(given):
    with pytest.raises(MemboundError, match="write a time above 0"):
        parse_latency(given)


@pytest.mark.parametrize(
    ("others", "says"),
    [
        (
            {"ram": "1 MB"},
            "--latency cannot be combined with --ram: leave one out; a budget may stay",
        ),
        (
            {"budget": "8KB", "ram": "1 MB"},
            "--latency cannot be combined with --ram: leave one out; a budget may stay",
        ),
        (
            {"ram": "1 MB", "nonzeros": 5},
            "--latency cannot be combined with --ram and --nonzeros: leave --ram and --nonzeros out",
        ),
        (
            {"budget": ["1 KB", "2 KB"]},
            "--latency goes with one budget, and there are 2: give --budget once, and run fit once for each",
        ),
        (
            {"budget": "8KB", "members": 2},
            "--latency and --members do not go together, since the time of one network is bounded: leave one out",
        ),
    ],
)
def test_what_does_not_go_with_it_is_named(others, says):
    """And nothing else: a budget may stay."""
    with pytest.raises(MemboundError) as refused:
        mb.fit(network, (X, Y), test_data=(X, Y), latency="5 ms", **others)
    assert str(refused.value) == says.replace("--", "")
    assert _say_in_options(["fit"], refused.value) == says


def convolutional():
    body = nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(), nn.Flatten()
    return nn.Sequential(nn.Unflatten(1, (8, 2, 2)), *body, nn.Linear(128, 2))


def test_files_are_timed_in_integers_and_judged_where_these_are_faster(monkeypatch, tmp_path):
    def measure(nets):
        called.append([net.engine for net in nets])
        return [Latency(0.8 if net.engine == "int8" else 1.0, spread=0.5) for net in nets]

    called = []
    monkeypatch.setattr(timing, "measure", measure)
    fitted = mb.fit(convolutional, (X, Y), test_data=(X, Y), budget="4 KB", **QUICK)
    assert called == [["float", "int8"]], "by turns, in one race"
    fitted.save(tmp_path / "net.safetensors")
    scores = mb.load(tmp_path / "net.safetensors", engine="int8")(X)
    wanted = 100 * float((scores.argmax(1) == np.asarray(Y)).mean())
    found = fitted.facts["engine_int8"]
    assert found["accuracy"] == pytest.approx(wanted)
    assert found["errors"] == (scores.argmax(1) != np.asarray(Y)).sum()
    there = mb.load(tmp_path / "net.safetensors", engine="int8", threads=1, max_batch=1)
    assert found["memory_bytes"] == there.memory("every").total
    fitted.report(tmp_path / "page.html")
    usage = html.unescape((tmp_path / "page.html").read_text()).split("How to use it")[1]
    assert 'engine="int8")' in usage
    assert "Engine int8 is 1.2 times as fast as floats here: 0.800 ms an example, floats 1.00 ms." in usage
    monkeypatch.setattr(timing, "measure", lambda nets: [Latency(1.0) for _ in nets])
    slow = mb.fit(convolutional, (X, Y), test_data=(X, Y), budget="4 KB", **QUICK)
    assert "accuracy" not in slow.facts["engine_int8"]
    said = (
        "In floats: 1.00 ms an example. In 8-bit integers (engine int8): 1.00 ms, about as fast as in floats."
    )
    assert say_engines(slow.facts, {}, Score()) == said


def test_dense_in_8_bits_is_timed_in_integers_without_another_runtime(monkeypatch, tmp_path):
    """A report without it would leave out what the file is compared with, wherever nothing else is installed."""
    monkeypatch.setattr(
        timing, "measure", lambda nets: [Latency(0.3 if net.engine == "int8" else 1.0) for net in nets]
    )
    keywords = {**QUICK, "dense": True, "teacher": "none"}
    fitted = mb.fit(convolutional, (X, Y), test_data=(X, Y), budget="4 KB", **keywords)
    assert fitted.dense["latency_ms"] == 1.0
    assert (fitted.dense["int8"]["latency_ms"], fitted.dense["int8"]["latency_by"]) == (0.3, "membound")
    fitted.report(tmp_path / "page.html")
    page = html.unescape(re.sub(r"<[^>]+>", "", (tmp_path / "page.html").read_text()))
    assert "dense int8, membound: 0.300 ms" in page
    assert "ONNX Runtime and LiteRT were not timed: pip install onnxruntime onnx ai-edge-litert, " in page
    integers = fitted.facts["engine_int8"]
    assert f"in int8: {integers['memory_bytes']:,} bytes" in page
    assert f"in int8: {integers['accuracy']:.2f} ± " in page


IMAGES = np.random.default_rng(0).normal(size=(24, 3, 16, 16)).astype(np.float32)
WHOLE = "in 8-bit integers the whole network takes {}, within the bound: {}, and the engine int8, no weight has to go"


def of_images():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU6(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2),
    )  # fmt: skip


def noted(**bound):
    """What a fit of images notes on integers: before training, and at its end."""
    said = []
    keywords = {name: value for name, value in QUICK.items() if name != "progress"} | {"steps": 4}
    fitted = mb.fit(of_images, (IMAGES, Y[:24]), watch=Watch(note=said.append), **keywords, **bound)
    found = [
        [text for text in texts if "in 8-bit integers the whole" in text]
        for texts in (said, fitted.facts["tried"])
    ]
    assert found[0] == found[1]
    return found[0]


def test_a_bound_on_latency_that_integers_meet_with_every_weight_says_so(monkeypatch):
    def taken(nets):
        counts = [sum(layer["nonzeros"] for layer in inspect(net.model)["layers"]) for net in nets]
        of_each = zip(nets, counts, strict=True)
        return [Latency(count / (4000 if net.engine == "int8" else 1000)) for net, count in of_each]

    monkeypatch.setattr(timing, "measure", taken)
    (note,) = noted(latency="0.7 ms")
    assert note == WHOLE.format("0.356 ms", "with a budget of 2KB instead of the bound on latency")
    assert noted(latency="2 ms") == [], "time takes no weight away"
    whole = {"ms": 0.5, "bytes": 1999}
    assert note_time(whole, 0.7, Limit("2KB", 2000)) == [
        WHOLE.format("0.5 ms", "without the bound on latency")
    ]
    assert note_time(whole, 0.7, Limit("1.5KB", 1500)) == [], "the file has no room for every weight"


def test_a_bound_on_memory_that_integers_meet_with_every_weight_says_so(monkeypatch):
    asked = []
    monkeypatch.setattr(fit_module, "note_memory", lambda *given: asked.append(given) or note_memory(*given))
    (note,) = noted(ram="40 KB")
    taken, instead = r"2\d,\d{3} bytes of memory", "with a budget of 2KB instead of the bound on memory"
    assert re.fullmatch(WHOLE.format(taken, instead), note)
    ((problem, bound, _),) = asked
    for allowed, count in ((20_000, 0), (40_000, 1), (60_000, 0)):
        assert len(note_memory(problem, bound, [Limit("", allowed)])) == count
    both = problem.changed(target=replace(problem.target, kind="file", memory=40_000, file_bytes=4000))
    (note,) = note_memory(both, bound, [Limit("", 4000)])
    assert "without the bound on memory, and the engine int8" in note
    assert note_memory(both, bound, [Limit("", 1500)]) == [], "the file has no room for every weight"
