"""fit() for a microcontroller: flash and RAM are promises, and accuracy is that of the C code."""

import itertools
import json
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
import torch
from emulated_boards import BOARDS, run_on
from profiles import full
from small import Small, digits
from torch import nn

import membound as mb
from membound.cli import fit_tables, main
from membound.cli.fit_tables import beside_device, on_device, tell
from membound.errors import MemboundError
from membound.micro import code, code_sizes
from membound.report.page import make_page
from membound.search.place import Watch
from membound.search.problem import Target
from membound.search.request import Choices, Examples
from membound.search.setup import make_problem
from membound.search.summary import describe_final, summarise
from membound.units import LEVELS

TRAIN = (digits().images, digits().labels)
HELD_OUT = (digits(300, 400).images, digits(300, 400).labels)
FLASH, RAM = 6_000, 1_900


def fit(model=Small, budget=FLASH, **options):
    options = {
        "val_data": HELD_OUT,
        "dense": False,
        "steps": 30,
        "batch_size": 20,
        "target": "micro",
        **options,
    }
    return mb.fit(model, TRAIN, budget, **options)


@pytest.fixture(scope="module")
def fitted():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield fit(ram=RAM)
    torch.set_num_threads(before)


def test_flash_and_ram_are_within_their_bounds_and_used(fitted):
    micro = fitted.facts["micro"]
    assert 0.97 * FLASH <= fitted.size == micro["flash_bytes"] <= FLASH == fitted.limit
    assert micro["flash_bytes"] == micro["constant_bytes"] + micro["code_bytes"]
    assert micro["ram_bytes"] == micro["context_bytes"] + micro["stack_bytes"] <= RAM
    assert fitted.facts["memory_bytes"] == micro["ram_bytes"]
    assert 0 < micro["weight_bytes"] < micro["constant_bytes"]
    assert 0 < micro["arena_bytes"] < micro["context_bytes"]
    assert (fitted.flash, fitted.ram, fitted.ms) == (micro["flash_bytes"], micro["ram_bytes"], micro["ms"])
    assert replace(fitted, facts={}).flash is None


def test_time_is_estimated_at_a_clock_for_both_ways_to_compile(fitted):
    micro = fitted.facts["micro"]
    assert 0 < micro["at_O2"]["instructions"] < micro["instructions"] < micro["cycles"]
    assert micro["clock_hz"] == 80_000_000
    assert micro["ms"] == pytest.approx(micro["cycles"] / 80_000, rel=1e-3)


@pytest.mark.parametrize("also", [full({}), {"ram": RAM}])
def test_a_bound_on_time_holds_for_the_file_that_is_written(fitted, also, tmp_path):
    allowed = 0.7 * fitted.facts["micro"]["ms"] / 2
    bound = fit(latency=f"{allowed:.4f}ms", clock="160 MHz", **also)
    micro = bound.facts["micro"]
    assert 0.9 * allowed < micro["ms"] <= allowed
    assert micro["clock_hz"] == 160_000_000
    assert micro["flash_bytes"] < fitted.flash <= FLASH, "fewer weights are faster"
    assert any(f"of the {allowed:.3g} ms allowed" in note for note in bound.facts["tried"])
    bound.save(tmp_path / "net.safetensors")
    assert mb.load(tmp_path / "net.safetensors", engine="micro").speed().ms("160 MHz") <= allowed


def test_flash_and_time_are_bounded_as_c_is_compiled(fitted, tmp_path):
    fast = fitted.facts["micro"]["at_O2"]
    allowed, budget = 0.8 * fast["ms"], fast["flash_bytes"] - 300
    bound = fit(budget=budget, latency=f"{allowed:.4f}ms", compiled="O2")
    micro = bound.facts["micro"]
    assert micro["compiled_with"] == "-O2"
    assert bound.size == micro["flash_bytes"] == micro["at_O2"]["flash_bytes"] <= budget
    assert 0.85 * allowed < micro["ms"] == micro["at_O2"]["ms"] <= allowed < micro["at_Os"]["ms"]
    assert micro["at_Os"]["flash_bytes"] < budget - 1_000
    assert any("compiled with -O2; flash takes" in note for note in bound.facts["tried"])
    assert not any("time is the limiting bound" in note for note in bound.facts["tried"])
    (_, flash), _, (_, speed), *_ = on_device(describe_final(bound))
    assert "of code at -O2 for a Cortex-M4" in flash
    assert flash.endswith(f"{micro['at_Os']['flash_bytes']:,} if exported for -Os")
    assert "instructions an example at -O2" in speed
    bound.save(tmp_path / "net.safetensors")
    net = mb.load(tmp_path / "net.safetensors", engine="micro")
    assert net.memory("-O2").flash == bound.flash
    assert net.speed("O2").ms() <= allowed
    shown = json.dumps(describe_final(bound) | {"curves": None}, default=str)
    assert "latency_bound" in shown


def test_a_flash_at_o2_that_is_beyond_the_budget_is_said(fitted):
    (_, flash), *_ = on_device(describe_final(fitted))
    beyond = fitted.facts["micro"]["at_O2"]["flash_bytes"]
    assert beyond > FLASH
    assert flash.endswith(f"{beyond:,} if exported for -O2, which is beyond the budget")


def movements(count, seed):
    """Three kinds of movement, easily told apart: 3 channels of 64 samples."""
    draw = np.random.default_rng(seed)
    kinds = draw.integers(0, 3, count)
    pace, phase = np.array([0.3, 0.75, 1.6])[kinds][:, None, None], draw.uniform(0, 6.28, (count, 3, 1))
    samples = np.sin(pace * np.arange(64) + phase) + 0.3 * draw.standard_normal((count, 3, 64))
    return samples[..., None].astype(np.float32), kinds


def movement_net():
    return nn.Sequential(
        nn.Conv2d(3, 12, (5, 1), stride=(2, 1), padding=(2, 0)),
        nn.ReLU(),
        nn.Conv2d(12, 16, (5, 1), stride=(2, 1), padding=(2, 0)),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def test_at_o2_no_flash_is_kept_for_code_that_a_small_network_does_not_use():
    """Its weights all fit in few bits without positions, whose code would take the room of most of them."""
    found = mb.fit(
        movement_net,
        movements(600, 0),
        6_000,
        val_data=movements(300, 1),
        target="micro",
        compiled="O2",
        ram=2_000,
        dense=False,
        steps=100,
        batch_size=64,
    )
    assert 0.97 * 6_000 <= found.flash <= 6_000
    assert found.facts["nonzeros"] > 0.8 * found.facts["parameters"]
    assert found.accuracy > 85


def sequence_net():
    return nn.Sequential(nn.Conv1d(3, 8, 5), nn.ReLU(), nn.Flatten(), nn.Linear(480, 3))


def test_a_network_of_sequences_is_fitted_as_it_is(tmp_path):
    samples, kinds = movements(200, 0)
    told = {"target": "micro", "dense": False, "steps": 10, "batch_size": 64}
    found = mb.fit(sequence_net, (samples[..., 0], kinds), 4_000, **told)
    assert found.flash <= 4_000
    found.save(tmp_path / "n.safetensors")
    device = mb.load(tmp_path / "n.safetensors", engine="micro")
    assert device.memory().flash == found.flash
    assert device.integers(device.preprocess(samples[:2, ..., 0])).shape == (2, 3)
    with pytest.raises(MemboundError, match=r"Examples are read as 3 x 64 \(channels, time\)$"):
        mb.fit(sequence_net, (samples[..., 0], kinds), 4_000, ram=700, **told)


@pytest.mark.parametrize(
    ("model", "turned", "said"),
    [
        (movement_net, (0, 3, 1, 2), r"takes 3 channels and gets 1; .*: give x.transpose\(0, 2, 3, 1\)$"),
        (
            movement_net,
            (0, 2, 3, 1),
            r"takes 3 channels and gets 64; .*: give x.transpose\(0, 3, 1, 2\)$",
        ),
        (
            sequence_net,
            (0, 1, 2, 3),
            r"takes examples of 2 dimensions and gets 3; Conv1d takes \[channels, time\]: give x\[..., 0\]$",
        ),
    ],
)
def test_arrays_in_another_layout_are_told_how_to_turn_them(model, turned, said):
    samples, kinds = movements(40, 0)
    with pytest.raises(MemboundError, match=said):
        mb.fit(model, (samples.transpose(turned), kinds), 6_000, target="micro", dense=False, steps=2)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((64, 3, 1), r"takes 3 channels and gets 64; Conv2d of .*: give x.transpose\(0, 2, 1, 3\)$"),
        (
            (192,),
            r"takes examples of 3 dimensions and gets 1; Conv2d of .*: give x of \[n, channels, time, 1\]",
        ),
    ],
)
def test_sequences_of_another_shape_are_told_what_to_give(shape, said):
    samples, kinds = movements(40, 0)
    with pytest.raises(MemboundError, match=said):
        mb.fit(
            movement_net, (samples.reshape(-1, *shape), kinds), 6_000, target="micro", dense=False, steps=2
        )


def test_the_half_that_the_network_takes_is_named():
    samples, kinds = movements(40, 0)
    told = r"training data has examples of shape \[3, 64\] .*; the network takes those of test_data$"
    with pytest.raises(MemboundError, match=told):
        mb.fit(movement_net, (samples[..., 0], kinds), 6_000, test_data=(samples, kinds), steps=2)


def test_ways_to_compile_that_were_not_measured_are_refused():
    with pytest.raises(MemboundError, match="compiled='O3': choose Os"):
        fit(compiled="O3")
    with pytest.raises(MemboundError, match="for the target micro"):
        fit(compiled="O2", target="cpu")


def test_dense_in_8_bits_is_measured_as_the_file_would_be():
    """Where it is the file, its row has the same numbers."""
    found = fit(budget=64_000, dense=True, test_data=HELD_OUT, val_data=None, steps=8)
    assert any("the budget is larger than the whole network (" in note for note in found.facts["tried"])
    int8 = found.dense["int8"]
    if not found.facts.get("is_dense_in_8_bits"):
        pytest.skip("the fitted network learned as much")
    assert (int8["errors"], int8["file_bytes"]) == (found.errors, found.file_bytes)
    assert int8["micro"]["flash_bytes"] == found.flash


def test_progress_counts_in_the_unit_of_the_bound():
    said = []
    watch = Watch(done=lambda job, facts: said.append((job.limit, facts["size_in"])))
    fit(steps=2, watch=watch)
    fit(steps=2, watch=watch, latency="50ms")
    fit(steps=2, watch=watch, target="cpu", budget="3 KB")
    assert said == [(FLASH, "bytes of flash"), (FLASH, None), (3_000, "bytes")]


def test_time_alone_is_a_bound_on_a_microcontroller():
    bound = fit(budget=None, latency="3ms", steps=10)
    assert bound.facts["micro"]["ms"] <= 3
    assert bound.name == "in 3 ms"
    told = dict(on_device(describe_final(bound)))
    assert told["flash"].startswith(f"{bound.flash:,} bytes: ")  # of no number that nobody asked for
    assert not any("the budget" in note or "100%" in note for note in bound.facts["tried"])


@pytest.mark.parametrize(
    ("clock", "said"),
    [
        ("80", "has no unit"),
        ("1mHz", "did you mean '1 MHz'"),
        (80, "did you mean '80 MHz'"),
        ("0 MHz", "a frequency above 0"),
        ("fast", "as in '80 MHz'"),
    ],
)
def test_a_clock_that_is_none_is_refused(clock, said):
    with pytest.raises(MemboundError, match=said):
        fit(clock=clock)
    with pytest.raises(MemboundError, match="for the target micro"):
        fit(clock="80 MHz", target="cpu")


def test_what_this_machine_takes_is_named_so(fitted):
    facts = fitted.to_dict()["facts"]
    assert facts["host_latency_ms"] > 0
    assert facts["host_threads"] == 1
    assert not {"latency_ms", "latency_spread", "threads"} & facts.keys()


def test_the_file_says_how_values_become_int8_and_accuracy_is_that_of_the_engine(fitted, tmp_path):
    fitted.save(tmp_path / "net.safetensors")
    net = mb.load(tmp_path / "net.safetensors", engine="micro")
    images, labels = HELD_OUT
    wrong = [int(net.integers(images[i : i + 1])[0].argmax() != label) for i, label in enumerate(labels)]
    assert sum(wrong) == fitted.errors
    micro, memory = fitted.facts["micro"], net.memory()
    assert {key: micro[key] for key in memory.to_json()} == memory.to_json()
    assert (memory.flash, memory.ram) == (micro["flash_bytes"], micro["ram_bytes"])
    assert f"{memory.flash:,} bytes of flash at -Os, {memory.ram:,} of RAM" in repr(net)


def test_pixels_are_exact(fitted):
    assert fitted.files.preprocess.mean.tolist() == [round(float(fitted.files.preprocess.mean[0]))]
    multiplier, constant = mb.run.micro_net.MicroNet(
        fitted.files.stored(fitted.model.state_dict())
    ).plan.net.input[0]
    pixels = np.arange(256)
    assert ((pixels * multiplier + constant) // 2**16).tolist() == (pixels - 128).tolist()


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="there is no compiler for Cortex-M")
@pytest.mark.parametrize("level", LEVELS)
def test_what_the_compiler_makes_of_the_export_is_within_the_flash(fitted, tmp_path, level):
    fitted.save(tmp_path / "net.safetensors")
    mb.export_c(tmp_path / "net.safetensors", tmp_path / "c")
    total = 0
    for source in ("net", "membound_micro", "membound_micro_conv"):
        target = tmp_path / f"{source}.o"
        options = ["-mcpu=cortex-m4", "-mthumb", level, "-ffreestanding", "-c"]
        subprocess.run(
            ["arm-none-eabi-gcc", *options, tmp_path / "c" / f"{source}.c", "-o", target], check=True
        )
        printed = subprocess.run(["arm-none-eabi-size", target], capture_output=True, check=True, text=True)
        text, data, bss = map(int, printed.stdout.splitlines()[1].split()[:3])
        assert data == bss == 0  # all is constant
        total += text
    promised = fitted.facts["micro"][f"at_{level[1:]}"]["flash_bytes"]
    assert promised - 100 < total <= promised


@pytest.mark.full
def test_the_stack_of_a_board_is_within_what_is_counted(fitted, tmp_path):
    board = BOARDS["cortex-m4"]
    if not board.is_here:
        pytest.skip("there is no emulator")
    fitted.save(tmp_path / "net.safetensors")
    net = mb.load(tmp_path / "net.safetensors", engine="micro")
    for optimize in ("-Os", "-O2"):
        ran = run_on(board, net, HELD_OUT[0][:2], tmp_path / optimize, optimize)
        assert ran.stack <= code.STACK_BYTES
        assert np.array_equal(ran.outputs, net.integers(HELD_OUT[0][:2]))


def test_recorded_sizes_stand_in_for_a_compiler(monkeypatch):
    used = ("SPARSE", "THEN_POOL")
    monkeypatch.setattr(code.shutil, "which", lambda name: None)
    code._code.cache_clear()
    found = code.code_for(used)
    code._code.cache_clear()
    assert not found.compiled
    assert 1_500 < found.nbytes < 3_000
    for level in LEVELS:
        assert code.recorded_bytes(code.ALL, level) > code.recorded_bytes(used, level)
    assert code.recorded_bytes(used, "-O2") > 1.3 * code.recorded_bytes(used, "-Os")


@pytest.mark.full
def test_recorded_sizes_are_those_of_the_compiler_that_recorded_them():
    if shutil.which(code.COMPILER[0]) is None:
        pytest.skip("there is no compiler for Cortex-M")
    said = subprocess.run([code.COMPILER[0], "--version"], capture_output=True, check=True, text=True).stdout
    if said.splitlines()[0] not in str(code_sizes.__doc__):
        pytest.skip("another compiler")
    for used, level in itertools.product((("SPARSE", "THEN_POOL"), code.ALL), LEVELS):
        found = sum(code.compiled_bytes(source, used, level) for source in code.SOURCES)
        assert found == code.recorded_bytes(used, level)


class Normalized(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(1, 4, 5), nn.LocalResponseNorm(3), nn.Flatten(), nn.Linear(2304, 10))


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weigh = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        return x * self.weigh(x.mean((2, 3), keepdim=True)).sigmoid()


class Gated(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(1, 4, 5), Gate(), nn.Flatten(), nn.Linear(2304, 10))


class Swishing(nn.Sequential):
    def __init__(self) -> None:
        layers = (
            nn.Linear(784, 8),
            nn.Hardswish(),
            nn.Linear(8, 8),
            nn.ReLU(),
            nn.Linear(8, 10),
            nn.Hardswish(),
        )
        super().__init__(nn.Flatten(), *layers)


class Recurrent(nn.Module):
    """Which is refused by its name, before it is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.last = nn.LSTM(28, 4, batch_first=True), nn.Linear(4, 10)

    def forward(self, x):
        assert not torch.compiler.is_compiling(), "it was traced"
        return self.last(self.recurrent(x.flatten(1, 2))[0][:, -1])


def test_pictures_that_are_not_square_are_not_taken_for_sequences():
    for dtype, told in ((np.uint8, False), (np.float32, True)):
        images = np.random.default_rng(0).integers(0, 255, (40, 1, 16, 24)).astype(dtype)
        with pytest.raises(MemboundError) as raised:
            mb.fit(
                nn.Sequential(nn.Flatten(), nn.Linear(384, 10)), (images, np.arange(40) % 10), "20KB", ram=501,
                target="micro", test_data=None, steps=2,
            )  # fmt: skip
        assert "Examples are read as 1 x 16 x 24" in str(raised.value)
        assert ("sequences of 16 channels" in str(raised.value)) is told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": 2_000}, "a budget of 2,000 bytes of flash cannot be met: with one weight in each layer"),
        ({"budget": 2_000}, " of them code), and dense in 8 bits "),
        ({"budget": 2_000}, ": a usable one lies in between; allow more"),
        (
            {"budget": 2_000, "model": Swishing},
            " of them code, 512 the tables of 2 activations (Hardswish): ReLU needs none), and dense",
        ),
        ({"ram": 501}, "ram of 501 bytes cannot be met: with all its channels, this network takes"),
        ({"ram": 501}, "(500 of them stack); the output of"),
        (
            {"ram": 501},
            "the output of layer 'conv1' takes the most (360 bytes for 5 of 12 rows of 6 x 12). Allow",
        ),
        ({"ram": 501}, "Allow at least that, or take fewer channels or a larger stride there. Examples"),
        ({"ram": 500}, "ram of 500 bytes cannot be met by any network: 500 are reserved for the stack"),
        ({"ram": 3}, "ram of 3 bytes (did you mean 3KB?) cannot be met by any network"),
        ({"within": 1.0}, "or both, and ram (such as 4KB) beside them: leave within out"),
        ({"nonzeros": 9, "within": 1.0, "latency": 3}, "beside them: leave nonzeros and within out"),
        ({"budget": 0}, "this network takes 2,780 (2,190 of them code), and dense in 8 bits"),
        ({"ram": 501}, "Examples are read as 1 x 28 x 28 (channels, height, width)"),
        ({"budget": None}, "the target micro takes a budget (of flash, such as 20KB), a latency"),
        ({"model": Normalized}, "(LocalResponseNorm) does not run on a microcontroller: take BatchNorm,"),
        (
            {"model": Gated},
            "mul of 1 (Gate), in `return x * self.weigh(x.mean((2, 3), keepdim=True)).sigmoid()`: the micro",
        ),
        ({"model": Recurrent}, " does not run on a microcontroller: take convolutions over time"),
        ({"budget": None, "ram": 4_000}, "beside them: got ram alone"),
        ({"values": "f16"}, "computes in integers, not in f16: choose auto or p1 to p8"),
        ({"members": 2}, "one network on one input: leave members out"),
        ({"threads": 2, "latency": "9ms"}, "one network on one input: leave threads out"),
        ({"latency": "1us"}, "a latency of 0.001 ms at 80 MHz cannot be met: with one weight in each layer"),
        ({"target": "tpu"}, "there is no target 'tpu': choose cpu, or micro for any microcontroller"),
        ({"ram": "2KBs"}, "KB, MB (powers of 1000) or KiB, MiB (powers of 1024), as in '40 KiB'"),
        ({"ram": "10%"}, "10% of RAM: a microcontroller's is bounded in bytes"),
    ],
)
def test_what_cannot_be_met_is_refused_before_training(options, said):
    with pytest.raises(MemboundError) as raised:
        fit(**options)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert options.get("ram") != "2KBs" or str(raised.value).endswith("'40 KiB'"), "no part of dense's"
    assert "ram" in options or "Examples are read as" not in str(raised.value)


def test_other_targets_are_as_they_were():
    problem = make_problem(Small, Examples(train_data=TRAIN), Choices(steps=5), Target())
    assert problem.data.preprocess.mean[0] != round(float(problem.data.preprocess.mean[0]))


def test_flash_and_ram_are_said_part_by_part(fitted):
    final = describe_final(fitted)
    (_, flash), (_, ram), (_, speed) = on_device(final)
    (_, excluded), (_, times) = beside_device([final, final])
    assert f"{fitted.size:,} of {FLASH:,} bytes: " in flash
    assert "of code at -Os for a Cortex-M4" in flash
    assert f" of {RAM:,} bytes: " in ram
    assert re.fullmatch(
        r"about .* million instructions an example: .* ms on a Cortex-M4 at 80 MHz, .*", speed
    )
    assert excluded == "startup code and memcpy/memset (about 470 bytes) are not in flash"
    assert times.startswith(
        "estimates: on an emulated Cortex-M4, they were off by at most 7.6 % at -Os and 22.2 %"
    )
    assert on_device({}) == beside_device([{}]) == []


def test_tables_show_flash_and_ram_beside_what_was_promised(fitted, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fitted.save("my net.safetensors")
    summary = summarise([fitted], network="small", data="digits", strategy="global", seed=0, seconds=1.0,
                        files=["my net.safetensors"])  # fmt: skip
    tell(summary, None, None, None, as_json=False)
    said, micro = capsys.readouterr().out, fitted.facts["micro"]
    head = next(line.split() for line in said.splitlines() if line.startswith("network"))
    assert head[:7] == ["network", "accuracy", "errors", "flash", "RAM", "time", "file"]
    assert f"{micro['flash_bytes']:,} of {FLASH:,}" in said
    assert f"{micro['ram_bytes']:,} of {RAM:,}" in said
    assert "membound export 'my net.safetensors' --c firmware" in said
    assert summary["budget"] == {"kind": "flash", "limit": FLASH, "text": str(FLASH)}
    rows = [line.split() for line in said.splitlines()]
    assert ["layer", "kept", "values", "flash", "bytes", "RAM", "bytes", "instructions"] in rows
    assert sum(layer["flash_bytes"] for layer in micro["layers"]) < micro["constant_bytes"]
    for layer in micro["layers"]:
        numbers = [f"{layer[key]:,}" for key in ("flash_bytes", "row_bytes", "instructions")]
        (row,) = (row for row in rows if row[-3:] == numbers)
        assert " ".join(row).startswith(layer["name"])
    shown = make_page(summary)
    assert f"{FLASH}: {len(micro['layers'])} layers on the device" in shown
    assert "rows that are not needed at the same time share their bytes in the" in shown
    beside = micro["beside_layers"]
    assert [part["name"] for part in beside] == ["input", "working room"]
    assert all([*part["name"].split(), f"{part['row_bytes']:,}"] in rows for part in beside)
    device = shown.split("layers on the device</summary>")[1]
    assert device.startswith('<p class="note swipe">Scroll the table sideways')
    assert said.count("they were off by at most 7.6 %") == said.count("memcpy/memset (about 470 bytes)") == 1
    assert "of this machine" not in said
    assert f"{micro['flash_bytes']:,} bytes of flash, {micro['ram_bytes']:,} of RAM" in repr(fitted)
    assert f"{micro['ram_bytes']:,} of {RAM:,}" in fitted._repr_html_()


def test_no_line_of_a_terminal_ends_within_an_option(fitted, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fitted.save("net.safetensors")
    summary = summarise([fitted], network="small", data="digits", strategy="global", seed=0, seconds=1.0,
                        files=["net.safetensors"])  # fmt: skip
    monkeypatch.setattr(fit_tables, "make_lines", lambda *_: ["train longer, or with a smaller --batch-size"])
    monkeypatch.setenv("COLUMNS", "40")
    tell(summary, None, None, None, as_json=False)
    last = "train longer, or with a smaller\n--batch-size\n\nnext      membound export net.safetensors --c firmware\n"
    assert capsys.readouterr().out.endswith(last)


def test_numbers_that_are_integers_are_told_of_the_option_for_them(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    found = mb.fit(lambda: nn.Linear(6, 2), (x, (x[:, 0] > 0).astype(int)), 6_000, target="micro", steps=2)
    found.save("net.safetensors")
    summary = summarise([found], network="small", data="x", strategy="global", seed=0, seconds=1.0,
                        files=["net.safetensors"])  # fmt: skip
    tell(summary, None, None, None, as_json=False)
    command, hint = capsys.readouterr().out.splitlines()[-2:]
    assert command == "next      membound export net.safetensors --c firmware"
    assert hint.startswith("          if your driver gives integers, add --input-unit: what a count of 1 is")


@pytest.mark.full
def test_the_command_fits_for_a_microcontroller(tmp_path, capsys):
    np.savez(tmp_path / "d.npz", x_train=TRAIN[0], y_train=TRAIN[1], x_test=HELD_OUT[0], y_test=HELD_OUT[1])
    command = ["fit", "lenet", "--data", str(tmp_path / "d.npz"), "--target", "micro", "--budget", "9KB"]
    more = ["--ram", "4KB", "--steps", "3", "--no-dense", "--json", "--out", str(tmp_path / "n.safetensors")]
    with pytest.raises(SystemExit) as stopped:
        main([*command, *more])
    facts = json.loads(capsys.readouterr().out)["finals"][0]
    assert stopped.value.code == 0
    assert facts["micro"]["flash_bytes"] <= 9_000
    assert facts["memory_limit"] == 4_000
    assert (tmp_path / "n.report.html").exists()


def test_a_smaller_width_meets_a_bound_on_ram_that_the_network_itself_does_not():
    def network(width: int = 8) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, width, 3), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(width * 36, 10)
        )

    asked = {"target": "micro", "steps": 2, "dense": False, "seed": 0}
    needed = mb.fit(network, digits(0, 200), "12KB", **asked).facts["micro"]["ram_bytes"]
    with pytest.raises(MemboundError, match=r"^ram of .* bytes cannot be met"):
        mb.fit(network, digits(0, 200), "12KB", ram=needed - 1, **asked)
    found = mb.fit(network, digits(0, 200), "12KB", ram=needed - 1, widths=[0.5, 1], **asked)
    assert found.facts["width"] == 0.5
    assert found.facts["micro"]["ram_bytes"] < needed


@pytest.mark.parametrize(
    ("layer", "instead"),
    [
        (nn.ConvTranspose2d(4, 4, 2, stride=2), "take a convolution with a stride of 1"),
        (nn.LayerNorm([4, 24, 24]), "take BatchNorm,"),
        (nn.GroupNorm(2, 4), "take BatchNorm,"),
        (nn.Upsample(scale_factor=2), "end the network before it"),
        (nn.PixelShuffle(2), "end the network before it"),
    ],
)
def test_a_layer_that_does_not_run_is_named(layer, instead):
    def network():
        return nn.Sequential(
            nn.Conv2d(1, 4, 5), layer, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(10)
        )

    model = network()
    model(torch.zeros(1, 1, 28, 28))
    with pytest.raises(MemboundError) as raised:
        fit(model=lambda: model)
    kind = type(layer).__name__
    assert str(raised.value).startswith(f"layer '1' ({kind}) does not run on a microcontroller: {instead}")
