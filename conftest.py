"""What pytest needs to know before it collects: no GPU, how many random examples, modules that cannot be imported."""

import fcntl
import gc
import importlib.util
import os
import pickle
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import settings
from profiles import FEW

import membound

# The few are the same every time, so that a failure belongs to the change at hand. Looking for new ones, and
# remembering them, is for `make test-full`: pytest --hypothesis-profile=full.
settings.register_profile("few", max_examples=FEW, deadline=None, derandomize=True)
settings.register_profile("full", max_examples=100, deadline=None, print_blob=True)
settings.load_profile("few")

# What is printed is as in a pipe, however wide the terminal is that tests are started from.
os.environ.pop("COLUMNS", None)

# Tests are about the CPU, wherever they run. Those of CUDA: MEMBOUND_TEST_GPU=1 pytest tests/train/test_cuda.py
if not os.environ.get("MEMBOUND_TEST_GPU"):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

collect_ignore = []
if importlib.util.find_spec("triton") is None:  # only torch builds for GPUs bring it
    collect_ignore += ["src/membound/train/projection_triton.py", "src/membound/zoo/lrn_triton.py"]
if not any(map(importlib.util.find_spec, ("lightning", "pytorch_lightning"))):
    collect_ignore.append("src/membound/train/lightning.py")


# Modules and tests stay until the end: looking through them for garbage, again and again, would take seconds.
gc.disable()


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_configure_node(node) -> None:
    node.workerinput["first_run"] = not (Path(__file__).parent / "tests" / "store" / "__pycache__").exists()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """In the first run, one worker after the other: what one has compiled to byte code, the next reads."""
    if not getattr(session.config, "workerinput", {}).get("first_run"):
        return (yield)
    with open(__file__) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()
    gc.set_threshold(
        50_000, 20, 50
    )  # seldom: a network that is traced is hundreds of thousands of small objects


@pytest.fixture(scope="session", autouse=True)
def unpacked_once() -> Iterator[None]:
    """MNIST takes half a second to unpack, and hundreds of tests load it: in a process of tests it is unpacked once."""
    from membound.data import named

    @cache
    def unpack(path: Path, _changed: int, _size: int):
        return read_idx(path)

    def read_once(path: Path):
        found = path.stat() if path.exists() else None
        return read_idx(path) if found is None else unpack(path, found.st_mtime_ns, found.st_size)

    read_idx = named.read_idx
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(named, "read_idx", read_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def traced_once() -> Iterator[None]:
    """torch takes tenths of a second to trace a network, and many tests train the same: equal ones are traced once.

    Two are equal if they pickle alike, weights included, and their modules are of the very same classes.
    """
    import torch

    from membound.capture.capture import Tracer
    from membound.capture.export import private_copy

    class Values(pickle.Pickler):
        """Tensors by their values: torch's own way writes down where they lie."""

        def reducer_override(self, obj):
            if not isinstance(obj, torch.Tensor):
                return NotImplemented
            return tuple, ((type(obj), obj.dtype, obj.shape, obj.stride(), obj.numpy(force=True).tobytes()),)

    trace, traced = Tracer.__init__, dict[object, tuple[Tracer, list[type]]]()

    def trace_once(self: Tracer, module, example_input) -> None:
        key = None
        with suppress(Exception):  # no module, or classes of a function: traced, or refused, as it is
            private = private_copy(module)
            classes = [type(part) for part in private.modules()]
            Values(shown := BytesIO()).dump((private, example_input))
            key = sha256(shown.getbuffer()).digest(), *map(id, classes)
        if key in traced:
            vars(self).update(vars(traced[key][0]))
            return
        trace(self, module, example_input)
        if key is not None:
            traced[key] = self, classes  # a class that is kept has its id for itself

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tracer, "__init__", trace_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def raced_briefly() -> Iterator[None]:
    """A fit calls its networks thousands of times to time them, which takes longer than to train small ones.

    No test looks at a time: here it calls them a few times.
    """
    from membound.search import timing

    with pytest.MonkeyPatch.context() as patch:
        for name, few in (("TURNS", 2), ("LEAST_TURNS", 2), ("TURN_RUNS", 3)):
            assert few < getattr(timing, name)
            patch.setattr(timing, name, few)
        yield


@pytest.fixture(scope="session", autouse=True)
def left_to_the_system() -> Iterator[None]:
    """Nobody pulls the plug on tests: the thousands of files that they write need not wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which also fails of what is closed
        yield


@pytest.hookimpl(tryfirst=True)  # before cases are left out by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test that is marked `one_in(n)`, every n-th case stays in `make test`."""
    seen: Counter[str] = Counter()
    for item in items:
        thinned = item.get_closest_marker("one_in")
        if thinned is not None:
            name = item.nodeid.partition("[")[0]
            if seen[name] % thinned.args[0]:
                item.add_marker(pytest.mark.full)
            seen[name] += 1


@pytest.fixture(autouse=True, scope="session")
def _mb(doctest_namespace):
    """Examples of public names are written as a user writes them: mb.attach."""
    doctest_namespace["mb"] = membound
