"""Exported networks on emulated microcontrollers: the engine's bits, within its memory, in little code."""

import numpy as np
import pytest
from emulated_boards import BOARDS, run_on
from micro_networks import NETWORKS, micro, random_network, random_residual, some_images
from profiles import full

from membound.errors import ModelError
from membound.micro.code import STACK_BYTES, STACK_UNOPTIMIZED
from membound.micro.cost import longest_call

CASES = [
    pytest.param(board, name) if (board, name) == ("cortex-m4", "lenet") else full(board, name)
    for board in BOARDS
    for name in NETWORKS
]


def fed_bytes(net) -> np.ndarray:
    return some_images(net.model, 2)


def wanted(net, images: np.ndarray) -> np.ndarray:
    """The engine's numbers of bytes, which a file that does not prepare pixels takes as they are."""
    out = np.empty((len(images), int(np.prod(net.output_shape))), np.int8)
    net._core.run(images.reshape(len(images), -1), out, net.plan.net.takes_pixels)
    return out


def here(name: str):
    board = BOARDS[name]
    if not board.is_here:
        pytest.skip(f"{board.compiler[0]} or {board.emulator[0]} is not installed")
    return board


@pytest.mark.parametrize(("board", "name"), CASES)
def test_a_board_gives_the_bits_of_the_engine(board, name, tmp_path):
    chosen = here(board)
    net = micro(NETWORKS[name]())
    images = fed_bytes(net)
    ran = run_on(chosen, net, images, tmp_path / "c")
    assert np.array_equal(ran.outputs, wanted(net, images))
    assert ran.stack <= STACK_BYTES
    assert ran.code < (6_500 if board == "rv32" else 4_500)


@pytest.mark.parametrize("level", ["-Os", full("-O2")])
@pytest.mark.parametrize("name", ["lenet", full("resnet8"), full("mobilenet"), full("dscnn"), "concat"])
def test_the_longest_call_is_about_as_long_as_estimated(name, level, tmp_path):
    net = micro(NETWORKS[name]())
    ran = run_on(
        here("cortex-m4"), net, fed_bytes(net)[:1], tmp_path / "c", level, "-DLONGEST_ROW"
    ).instructions
    found, whole = longest_call(net.plan, level), net.speed(level)
    assert found.instructions == pytest.approx(ran, rel=0.1)
    assert (found.instructions, found.cycles) == (whole.longest_instructions, whole.longest_cycles)
    assert 0.12 < whole.longest_ms("80 MHz") / whole.ms("80 MHz") < 0.5


@pytest.mark.parametrize("level", ["-Os", full("-O2")])
@pytest.mark.parametrize("name", ["lenet", *(full(name) for name in NETWORKS if name != "lenet")])
def test_time_does_not_depend_on_the_data(name, level, tmp_path):
    net = micro(NETWORKS[name]())
    shape = (1, *net.input_shape)
    noise, ramp = some_images(net.model, 1), np.arange(np.prod(shape)).astype(np.uint8).reshape(shape)
    given = [np.zeros_like(ramp), np.full_like(ramp, 255), noise, ramp]
    ran = [run_on(here("cortex-m4"), net, each, tmp_path / str(i), level) for i, each in enumerate(given)]
    assert len({each.outputs.tobytes() for each in ran}) > 1
    assert len({each.instructions for each in ran}) == 1


@pytest.mark.parametrize("name", [full("resnet8"), "concat"])
def test_a_call_that_is_not_optimized_takes_as_much_stack_as_is_said(name, tmp_path):
    net = micro(NETWORKS[name]())
    ran = run_on(here("cortex-m4"), net, fed_bytes(net)[:1], tmp_path / "c", "-O0")
    assert STACK_BYTES < ran.stack <= STACK_UNOPTIMIZED
    assert f"{STACK_UNOPTIMIZED} at -O0" in (tmp_path / "c" / "README.md").read_text()


@pytest.mark.full
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("seed", range(6))
def test_random_networks_on_boards(board, seed, tmp_path):
    chosen = here(board)
    try:
        net = micro((random_network, random_residual)[seed % 2](seed))
    except ModelError as error:
        pytest.skip(str(error))
    images = fed_bytes(net)
    assert np.array_equal(run_on(chosen, net, images, tmp_path / "c").outputs, wanted(net, images))
