"""The projection by torch, by the C++ core and by the GPU kernel, against a stable sort: the same bits."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from by_hand import assert_same_bits
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from profiles import examples
from torch import Tensor

from membound.errors import RuleError
from membound.train import projection
from membound.train.magnitudes import BITS, NonFiniteError
from membound.train.projection import project_, project_cpp_, project_torch_

FLOATS = sorted(BITS, key=str)
NUMPY = {2: np.uint16, 4: np.uint32, 8: np.uint64}

needs_core = pytest.mark.skipif(projection._core() is None, reason="the compiled extension is absent")
in_float32 = pytest.mark.parametrize("way", [project_torch_, pytest.param(project_cpp_, marks=needs_core)])


@pytest.fixture(params=[False, True], ids=["denormals kept", "denormals flushed"])
def flush(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Arithmetic that flushes denormals to zero must not make the projection lose one."""
    if not torch.set_flush_denormal(request.param) and request.param:
        pytest.skip("this CPU does not flush denormals")
    yield request.param
    torch.set_flush_denormal(False)


def bits_of(tensor: Tensor) -> np.ndarray:
    integer = BITS[tensor.dtype][0]
    return tensor.contiguous().view(integer).numpy().reshape(-1).view(NUMPY[tensor.element_size()])


def reference(tensor: Tensor, count: int) -> Tensor:
    """On bit patterns alone: sort magnitudes descending, stably; keep the first `count` that are not zero."""
    bits = bits_of(tensor)
    sign = bits.dtype.type(1 << (8 * bits.itemsize - 1))
    keys = (bits & ~sign).astype(np.int64)
    kept = np.argsort(-keys, kind="stable")[: max(count, 0)]
    kept = kept[keys[kept] > 0]
    result = np.zeros_like(bits)
    result[kept] = bits[kept]
    integer = BITS[tensor.dtype][0]
    signed = torch.from_numpy(result.view(f"i{bits.itemsize}"))
    return signed.to(integer).view(tensor.dtype).reshape(tensor.shape)


def check(way: Callable[[Tensor, int], None], tensor: Tensor, count: int) -> None:
    expected, actual = reference(tensor, count), tensor.clone()
    way(actual, count)
    assert_same_bits(actual, expected)
    nonzeros = int(np.count_nonzero(bits_of(tensor) << 1))
    assert np.count_nonzero(bits_of(actual)) == min(max(count, 0), nonzeros)


def from_bits(bits: np.ndarray, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(bits.view(f"i{bits.itemsize}").copy()).view(dtype)


@st.composite
def finite(draw: st.DrawFn, dtype: torch.dtype, most: int = 60) -> Tensor:
    """Any finite bit patterns, with many ties, zeros of both signs, denormals and huge values among them."""
    _, magnitude, infinity = BITS[dtype]
    width = torch.empty(0, dtype=dtype).element_size()
    special = [0, 1, 2, magnitude ^ infinity, (magnitude ^ infinity) + 1, infinity - 1, infinity // 2]
    keys = st.one_of(st.sampled_from(special), st.integers(0, infinity - 1))
    signed = st.tuples(keys, st.booleans()).map(lambda pair: pair[0] | (pair[1] << (8 * width - 1)))
    return from_bits(draw(hnp.arrays(NUMPY[width], st.integers(1, most), elements=signed)), dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@examples(150)
@given(data=st.data())
def test_torch_is_the_stable_sort_on_any_bits(dtype: torch.dtype, data: st.DataObject) -> None:
    tensor = data.draw(finite(dtype))
    check(project_torch_, tensor, data.draw(st.integers(-1, len(tensor) + 1)))


@needs_core
@examples(300)
@given(data=st.data())
def test_the_core_is_the_stable_sort_on_any_bits(data: st.DataObject) -> None:
    tensor = data.draw(finite(torch.float32))
    check(project_cpp_, tensor, data.draw(st.integers(-1, len(tensor) + 1)))


HARD = {
    "random": torch.randn(1000, generator=torch.Generator().manual_seed(0)),
    "all equal": torch.full((300,), 0.1),
    "equal but for the sign": torch.tensor([1.0, -1.0] * 150),
    "few values": torch.randn(1000, generator=torch.Generator().manual_seed(1)).mul(3).round().div(3),
    "denormal": torch.arange(-150, 150, dtype=torch.int32).abs().view(torch.float32),
    "denormal and tied": torch.tensor([1, 2, -2147483647, 2, 1] * 40, dtype=torch.int32).view(torch.float32),
    "denormal and not": torch.tensor([1e-40, 1.0, -1e-45, 0.0, -1e-38, 1e-39] * 50),
    "signed zeros": torch.tensor([0.0, -0.0] * 100),
    "signed zeros and one": torch.tensor([-0.0, 0.0, -0.0, 1.0, -0.0]),
    "huge": torch.tensor([3.4028234663852886e38, -3.4028234663852886e38, 1e38, 1.0] * 50),
    "every exponent": torch.arange(0, 255, dtype=torch.int32).mul(1 << 23).view(torch.float32),
    "one weight": torch.tensor([-3.0]),
    "one zero": torch.tensor([-0.0]),
}


@in_float32
@pytest.mark.parametrize("name", HARD)
def test_hard_tensors(way: Callable[[Tensor, int], None], name: str, flush: bool) -> None:
    tensor = HARD[name]
    size = len(tensor)
    for count in sorted({0, 1, 2, size // 3, size // 2, size - 1, size, size + 1, 10 * size}):
        check(way, tensor, count)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_denormals_of_every_type_survive_flushing(dtype: torch.dtype, flush: bool) -> None:
    smallest = torch.tensor([1, 3, 0, 2, 3], dtype=BITS[dtype][0]).view(dtype)
    project_(smallest, 2)
    assert smallest.view(BITS[dtype][0]).tolist() == [0, 3, 0, 0, 3]


@in_float32
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("count", [0, 2, 5, 9])
def test_what_is_not_finite_is_refused_and_nothing_is_written(
    way: Callable[[Tensor, int], None], value: float, count: int
) -> None:
    tensor = torch.tensor([1.0, -2.0, value, 3.0, -0.0])
    actual = tensor.clone()
    with pytest.raises(NonFiniteError):
        way(actual, count)
    assert_same_bits(actual, tensor)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_not_finite_in_every_type(dtype: torch.dtype) -> None:
    with pytest.raises(NonFiniteError):
        project_(torch.tensor([1.0, float("nan")], dtype=dtype), 1)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda w: w,
        lambda w: w.to(memory_format=torch.channels_last),
        lambda w: w.permute(3, 1, 0, 2),
        lambda w: w[:, ::2],
        lambda w: w[1:],
    ],
    ids=["contiguous", "channels_last", "permuted", "strided", "offset"],
)
def test_ties_are_broken_by_logical_position_in_every_memory_layout(
    dtype: torch.dtype, make: Callable[[Tensor], Tensor]
) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = make(torch.randint(-3, 4, (4, 6, 3, 5), generator=generator).to(dtype))
    expected, strides = reference(weight, 70), weight.stride()
    project_(weight, 70)
    assert_same_bits(weight.contiguous(), expected.contiguous())
    assert weight.stride() == strides


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4, 2, 2)])
@pytest.mark.parametrize("count", [0, 5])
def test_empty_weights_are_left_alone(shape: tuple[int, ...], count: int) -> None:
    weight = torch.empty(shape)
    project_(weight, count)
    assert weight.shape == shape


def test_a_scalar_weight() -> None:
    weight = torch.tensor(-2.0)
    project_(weight, 1)
    assert weight.item() == -2.0
    project_(weight, 0)
    assert weight.item() == 0.0


def test_a_parameter_is_projected_in_place_without_a_trace_in_autograd() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    project_(weight, 1)
    assert weight.tolist() == [0.0, 2.0]
    assert weight.is_leaf
    assert weight.requires_grad


@pytest.mark.parametrize("dtype", [torch.int32, torch.float8_e4m3fn, torch.complex64])
def test_other_types_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(RuleError, match=f"not {dtype}"):
        project_(torch.ones(3).to(dtype), 1)


def test_without_the_core_torch_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with_core, without = HARD["few values"].clone(), HARD["few values"].clone()
    project_(with_core, 123)
    monkeypatch.setattr(projection, "_core", lambda: None)
    assert projection._best_for(without) is project_torch_
    project_(without, 123)
    assert_same_bits(with_core, without)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
def test_a_hundred_thousand_tensors(seed: int) -> None:
    """Small tensors of one kind after another, a million over the ten seeds, by every way there is."""
    rng = np.random.default_rng(seed)
    ways = [project_torch_] + ([project_cpp_] if projection._core() is not None else [])
    for at in range(100_000):
        size = int(rng.integers(1, 40))
        exponents = [(0, 255), (0, 1), (1, 5), (120, 130), (250, 255)][at % 5]
        bits = rng.integers(0, 2**23, size) | (rng.integers(*exponents, size) << 23)
        bits = np.where(rng.random(size) < 0.3, rng.choice(bits, size), bits) | (
            rng.integers(0, 2, size) << 31
        )
        tensor = from_bits(np.where(rng.random(size) < 0.1, 0, bits).astype(np.uint32), torch.float32)
        count = int(rng.integers(0, size + 2))
        expected = reference(tensor, count)
        for way in ways:
            actual = tensor.clone()
            way(actual, count)
            assert_same_bits(actual, expected)


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or torch.cuda.is_available(),
    reason="triton is absent: only torch builds for GPUs bring it (and where there is a GPU, the kernels run on it)",
)
def test_the_gpu_kernel_in_tritons_interpreter(tmp_path: Path) -> None:
    torch.save([HARD[name] for name in HARD], tmp_path / "hard.pt")
    code = """
import contextlib, sys, torch
from membound.train import projection_triton
from membound.train.projection import project_torch_
torch.cuda.device = contextlib.nullcontext
for small in (1 << 16, 0):  # one program for all the weights, and many
    projection_triton.SMALL, projection_triton.SAMPLE, projection_triton.PROGRAMS = small, 64, 4
    for tensor in torch.load(sys.argv[1]):
        if len(tensor) < 64 and small == 0:
            continue
        for count in {0, 1, len(tensor) // 3, len(tensor) - 1, len(tensor), len(tensor) + 5}:
            expected, actual = tensor.clone(), tensor.clone()
            project_torch_(expected, count)
            projection_triton.project_triton_(actual, count)
            assert torch.equal(actual.view(torch.int32), expected.view(torch.int32)), (tensor, count)
"""
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "hard.pt")],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
