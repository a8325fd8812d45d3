"""The compiled projection against a stable sort, for every instruction set that this machine has."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from profiles import at_once, examples

_core = pytest.importorskip("membound._core")

Floats = NDArray[np.float32]

FIRST_NON_FINITE = 0x7F800000
variants = pytest.mark.parametrize("threads", [1, 2])
every_isa = pytest.mark.parametrize("isa", _core.isas())

bit_patterns = st.one_of(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x3F800000, 0xBF800000, 0x7F7FFFFF]),
)
finite_patterns = bit_patterns.filter(lambda b: b & 0x7FFFFFFF < FIRST_NON_FINITE)


def reference(w: Floats, t: int) -> tuple[Floats, int]:
    """Rank by key descending, then position; keep the first t, less the zeros."""
    keys = (w.view(np.uint32) & 0x7FFFFFFF).astype(np.int64)
    if (keys >= FIRST_NON_FINITE).any():
        return w.copy(), -1
    kept = np.argsort(-keys, kind="stable")[: max(t, 0)]
    kept = kept[keys[kept] > 0]
    result = np.zeros_like(w)
    result[kept] = w[kept]
    return result, len(kept)


def check(w: Floats, t: int, isa: str, threads: int) -> None:
    expected, kept = reference(w, t)
    got = w.copy()
    assert _core.project(got, t, isa, threads) == kept
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


@every_isa
@variants
@examples(150)
@given(data=st.data())
def test_any_bits(isa: str, threads: int, data: st.DataObject) -> None:
    patterns = data.draw(st.sampled_from([bit_patterns, finite_patterns, finite_patterns]))
    bits = data.draw(hnp.arrays(np.uint32, st.integers(0, 100), elements=patterns))
    check(bits.view(np.float32), data.draw(st.integers(-1, len(bits) + 1)), isa, threads)


@every_isa
@variants
@examples(25)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.sampled_from([500, 4096, 25_600, 65_537, 131_072, 200_003]),
    zeros=st.sampled_from([0.0, 0.5, 0.92, 1.0]),
    distinct=st.sampled_from([None, 1, 5, 1000]),
    keep=st.floats(0, 1),
)
def test_random_tensors(
    isa: str, threads: int, seed: int, n: int, zeros: float, distinct: int | None, keep: float
) -> None:
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(n, dtype=np.float32)
    if distinct is not None:
        w = (np.round(w * distinct) / distinct).astype(np.float32)
    w[rng.random(n) < zeros] = 0
    check(w, int(keep * n), isa, threads)


@every_isa
@at_once("value", [np.nan, -np.nan, np.inf, -np.inf])
@at_once("place", [0, 7, 4999])
@at_once("t", [-1, 0, 10, 5000])
def test_non_finite_is_reported_and_nothing_is_written(isa: str, value: float, place: int, t: int) -> None:
    w = np.random.default_rng(0).standard_normal(5000, dtype=np.float32)
    w[place] = value
    before = w.copy()
    assert _core.project(w, t, isa) == -1
    np.testing.assert_array_equal(w.view(np.uint32), before.view(np.uint32))


@every_isa
def test_negative_zeros_become_positive(isa: str) -> None:
    w = np.array([-0.0, 1.0, -0.0, -2.0] * 50, dtype=np.float32)
    assert _core.project(w, 1000, isa) == 100
    assert not np.signbit(w[w == 0]).any()


def test_torch_memory_is_projected_in_place() -> None:
    torch = pytest.importorskip("torch")
    w = torch.tensor([[3.0, -1.0], [2.0, -4.0]])
    assert _core.project(w.view(-1).numpy(), 2) == 2
    assert w.tolist() == [[3.0, 0.0], [0.0, -4.0]]


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: np.zeros(4, np.float64), TypeError, "float32"),
        (lambda: np.zeros(4, np.int32), TypeError, "float32"),
        (lambda: [1.0, 2.0], TypeError, "list"),
        (lambda: np.zeros((2, 2), np.float32), ValueError, "2 dimensions"),
        (lambda: np.zeros(8, np.float32)[::2], ValueError, "not contiguous"),
        (lambda: np.frombuffer(bytes(16), np.float32), ValueError, "read-only"),
    ],
)
def test_unsuitable_arrays_are_refused(make: Callable[[], object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        _core.project(make(), 1)


def test_bad_options_are_refused() -> None:
    w = np.ones(4, np.float32)
    with pytest.raises(ValueError, match="'mmx' is not available; this machine has: scalar"):
        _core.project(w, 1, "mmx")
    with pytest.raises(ValueError, match="threads"):
        _core.project(w, 1, None, -1)


def run_python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, timeout=60
    )


@every_isa
def test_the_environment_chooses_the_instruction_set(isa: str) -> None:
    result = run_python("from membound import _core; print(_core.isa())", MEMBOUND_ISA=isa)
    assert result.stdout.strip() == isa


def test_an_unknown_instruction_set_in_the_environment_is_an_error() -> None:
    result = run_python("from membound import _core; _core.isa()", MEMBOUND_ISA="mmx")
    assert result.returncode != 0
    assert "ValueError: environment variable MEMBOUND_ISA: instruction set 'mmx'" in result.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_makes_its_own_threads() -> None:
    code = """
import os, signal
import numpy as np
from membound import _core
w = np.random.default_rng(0).standard_normal(300_000, dtype=np.float32)
expected = w.copy()
_core.project(expected, 1000, None, 2)
pid = os.fork()
if pid == 0:
    signal.alarm(20)  # a child that waits for threads it does not have dies here
    again = w.copy()
    _core.project(again, 1000, None, 2)
    os._exit(0 if (again == expected).all() else 1)
status = os.waitpid(pid, 0)[1]
_core.project(w, 1000, None, 2)
assert (w == expected).all()
raise SystemExit(os.waitstatus_to_exitcode(status))
"""
    result = run_python(code)
    assert result.returncode == 0, result.stderr


def test_concurrent_callers() -> None:
    w = np.random.default_rng(0).standard_normal(300_000, dtype=np.float32)
    expected, _ = reference(w, 30_000)
    wrong: list[int] = []

    def work() -> None:
        for _ in range(20):
            got = w.copy()
            _core.project(got, 30_000, None, 2)
            if (got != expected).any():
                wrong.append(1)

    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong
