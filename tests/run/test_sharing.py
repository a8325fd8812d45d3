"""One network used by many: threads, forked processes, other processes, pickles; and its file taken away."""

import copy
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from nets import ISAS, normal, one_node, stored, thinned
from profiles import full

from membound.errors import ModelError
from membound.run import Net, load
from membound.store.file import write
from membound.store.graph import Graph, Node
from membound.store.model import Model

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
# Python warns of forks with threads around, which is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def network(seed=0) -> Model:
    """Large enough that its layers are cut among threads."""
    nodes = (
        Node("conv", (0,), {"pad": (1, 1, 1, 1), "act": ("relu",)}, {"w": "conv1.weight", "b": "conv1.bias"}),
        Node("maxpool", (1,), {"kernel": (2, 2)}),
        Node("conv", (2,), {"pad": (1, 1, 1, 1), "act": ("relu",)}, {"w": "conv2.weight"}),
        Node("reshape", (3,), {"shape": (32 * 8 * 8,)}),
        Node("linear", (4,), {}, {"w": "fc.weight"}),
    )
    tensors = {
        "conv1.weight": normal(seed, 32, 3, 5, 5)[:, :, :3, :3].copy(),
        "conv1.bias": normal(seed + 1, 32),
        "conv2.weight": thinned(normal(seed + 2, 32, 32, 3, 3), "0.1"),
        "fc.weight": thinned(normal(seed + 3, 300, 2048), "0.2"),
    }
    return Model(Graph((3, 16, 16), nodes, 5), tensors)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "net.safetensors"
    write(path, network())
    return path


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.one_in(5)
def test_many_threads_call_one_network(file, concurrency, threads, isa):
    net = load(file, concurrency=concurrency, threads=threads, max_batch=2, isa=isa)
    inputs = [normal(seed, 1 + seed % 5, 3, 16, 16) for seed in range(60)]
    alone = [net(x) for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(net, inputs))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (
        net.memory().arena == concurrency * load(file, threads=threads, max_batch=2, isa=isa).memory().arena
    )


def test_64_threads_at_the_same_moment(file):
    """Many more callers than arenas and cores: they wait for one another, and none gets what is another's."""
    net = load(file, concurrency=2, threads=2)
    inputs = [normal(seed, 2, 3, 16, 16) for seed in range(64)]
    alone = [net(x) for x in inputs]
    assert len({result.tobytes() for result in alone}) == 64
    start, wrong, done = threading.Barrier(64), [], []

    def work(number):
        start.wait()
        for _ in range(10):
            if not np.array_equal(net(inputs[number]), alone[number]):
                wrong.append(number)
        done.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sorted(done) == list(range(64))


def test_the_number_of_threads_changes_no_bit(file):
    x = normal(1, 3, 3, 16, 16)
    first = load(file, threads=1)(x)
    for threads in (2, 3, 8):
        np.testing.assert_array_equal(load(file, threads=threads)(x), first)


def test_many_networks_from_many_threads(file):
    x = normal(1, 2, 3, 16, 16)
    wanted = load(file)(x)

    def work(_):
        net = load(file, threads=2)
        return [net(x) for _ in range(3)]

    with ThreadPoolExecutor(6) as pool:
        for results in pool.map(work, range(24)):
            for result in results:
                np.testing.assert_array_equal(result, wanted)


def test_other_threads_run_meanwhile(file):
    """The output is seen while it is made: first images there, last ones not yet."""
    net = load(file, threads=1)
    x = np.repeat(normal(1, 1, 3, 16, 16), 400, 0)
    for _ in range(20):
        out = np.full((len(x), 300), np.nan, np.float32)
        runner = threading.Thread(target=net._core.run, args=([x], [out], len(x)))
        runner.start()
        seen = False
        while runner.is_alive() and not seen:
            seen = bool(np.isfinite(out[0, 0]) and np.isnan(out[-1, 0]))
        runner.join()
        assert np.isfinite(out).all()
        if seen:
            return
    pytest.fail("no other Python thread ran during 20 calls: the GIL was not released")


def in_child(function):
    """Whether `function()` is true in a forked child; a child that hangs is killed."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        code = 1
        try:
            code = 0 if function() else 2
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


@forks
def test_a_child_goes_on(file):
    x = normal(1, 3, 3, 16, 16)
    for threads, concurrency in ((1, 1), (2, 1), (2, 3)):
        net = load(file, threads=threads, concurrency=concurrency)
        assert in_child(lambda net=net: net(x).shape == (3, 300))  # before the first use
        wanted = net(x)
        for _ in range(3):
            assert in_child(lambda net=net, wanted=wanted: np.array_equal(net(x), wanted))
        assert in_child(  # a grandchild
            lambda net=net, wanted=wanted: (
                np.array_equal(net(x), wanted) and in_child(lambda: np.array_equal(net(x), wanted))
            )
        )
        np.testing.assert_array_equal(net(x), wanted)


@forks
def test_a_child_goes_on_where_other_threads_were_running(file):
    """The only arena is taken, and locks are held, at the moment of the fork."""
    net = load(file, threads=2, concurrency=1)
    x = normal(1, 2, 3, 16, 16)
    wanted = net(x)
    stop = threading.Event()

    def work():
        while not stop.is_set():
            net(x)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    try:
        outcomes = [in_child(lambda: np.array_equal(net(x), wanted)) for _ in range(5)]
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert all(outcomes)


def _answer(path, x):
    return load(path, threads=2)(x)


@forks
@pytest.mark.parametrize("method", ["fork", full("spawn")])
def test_many_processes_on_one_file(file, method):
    x = normal(1, 2, 3, 16, 16)
    wanted = load(file)(x)
    with multiprocessing.get_context(method).Pool(4 if method == "fork" else 2) as pool:
        for result in pool.starmap(_answer, [(file, x)] * 8):
            np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("mmap", [True, False])
def test_a_network_outlives_its_file(tmp_path, mmap):
    path = tmp_path / "net.safetensors"
    write(path, network())
    net = load(path, mmap=mmap)
    x = normal(1, 2, 3, 16, 16)
    wanted = net(x)
    write(path, network(seed=9))  # put in its place
    np.testing.assert_array_equal(net(x), wanted)
    assert not np.array_equal(load(path)(x), wanted)
    path.unlink()
    np.testing.assert_array_equal(net(x), wanted)


def test_a_network_outlives_its_model():
    x = normal(1, 2, 3, 16, 16)
    net = Net(stored(network(), "csr"))
    wanted = net(x)
    del net.model
    np.testing.assert_array_equal(net(x), wanted)


def test_a_loaded_network_is_pickled_as_its_path(file, tmp_path, monkeypatch):
    x = normal(1, 2, 3, 16, 16)
    monkeypatch.chdir(file.parent)
    net = load(file.name, threads=1, max_batch=2, concurrency=3)
    data = pickle.dumps(net)
    assert len(data) < 1000
    monkeypatch.chdir(tmp_path)
    again = pickle.loads(data)
    np.testing.assert_array_equal(again(x), net(x))
    assert again.memory() == net.memory()
    again = pickle.loads(pickle.dumps(again))
    np.testing.assert_array_equal(copy.deepcopy(again)(x), net(x))


def test_the_pickle_of_a_network_whose_file_is_gone(tmp_path):
    path = tmp_path / "net.safetensors"
    write(path, network())
    data = pickle.dumps(load(path))
    path.unlink()
    with pytest.raises(ModelError, match=r"there is no file .*net\.safetensors"):
        pickle.loads(data)


def test_a_network_of_a_model_takes_it_along():
    x = normal(1, 2, 3, 16, 16)
    net = Net(stored(network(), "delta", "f16"), threads=1, max_batch=2)
    again = pickle.loads(pickle.dumps(net))
    np.testing.assert_array_equal(again(x), net(x))
    assert again.memory() == net.memory()


# --- what is refused ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batch": 0}, "max_batch=0: a whole number from 1 to 65536 is needed"),
        ({"max_batch": 2**62}, "a whole number from 1 to 65536 is needed"),
        ({"max_batch": True}, "max_batch=True"),
        ({"concurrency": 0}, "concurrency=0: a whole number from 1 to 1024 is needed"),
        ({"threads": -1}, "threads=-1: a whole number from 0 to 256 is needed"),
        ({"threads": 1.0}, "threads=1.0"),
        ({"isa": "mmx"}, "instruction set 'mmx' is not available; this machine has: scalar"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ModelError, match=message):
        Net(stored(one_node("act", (4,), {"act": ("relu",)})), **options)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((1, 4)), r"type float64: net\(x\) takes preprocessed float32"),
        (np.zeros((1, 4), np.uint8), "type uint8"),
        (np.zeros(4, np.float32), r"shape \(4,\): this network takes \(batch, 4\)"),
        (np.zeros((1, 5), np.float32), r"shape \(1, 5\): this network takes \(batch, 4\)"),
        (np.zeros((1, 1, 4), np.float32), "this network takes"),
    ],
)
def test_inputs_that_do_not_fit(x, message):
    with pytest.raises(ModelError, match=message):
        Net(stored(one_node("act", (4,), {"act": ("relu",)})))(x)


def test_inputs_in_any_order_of_memory(file):
    net = load(file)
    x = normal(1, 4, 3, 16, 16)
    wanted = net(x)
    np.testing.assert_array_equal(net(np.asfortranarray(x)), wanted)
    np.testing.assert_array_equal(net(x[:, ::-1].copy()[:, ::-1]), wanted)
    np.testing.assert_array_equal(net(x.astype(">f4").astype("<f4")), wanted)
    kept = x.copy()
    net(x)
    np.testing.assert_array_equal(x, kept)


def test_a_convolution_too_large_for_its_offsets_is_refused():
    """Steps of a stride are laid out apart, which may take more than the padded image has."""
    weight = np.ones((1, 1, 2, 16384), np.float32)
    attributes = {"stride": (2, 16383), "pad": (8000, 16384, 8000, 16384)}
    model = stored(one_node("conv", (1, 30_000, 1), attributes, {"w": weight}))
    with pytest.raises(ModelError, match="a convolution of an image that is too large"):
        Net(model)


def test_no_memory_is_taken_for_steps_beyond_the_image():
    weight = np.ones((1, 20, 1, 1), np.float32)
    net = Net(stored(one_node("conv", (20, 1, 1), {"stride": (16384, 16384)}, {"w": weight})))
    assert net.memory().arena < 1 << 20
    assert net(np.ones((1, 20, 1, 1), np.float32)).tolist() == [[[[20.0]]]]


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system does not tell which CPUs may be used"
)
def test_threads_are_as_many_as_the_cpus_that_a_process_may_use():
    allowed, model = os.sched_getaffinity(0), stored(network())
    try:
        os.sched_setaffinity(0, {min(allowed)})
        taken = Net(model, max_batch=4).memory()
    finally:
        os.sched_setaffinity(0, allowed)
    assert taken == Net(model, max_batch=4, threads=1).memory()
    assert taken != Net(model, max_batch=4, threads=2).memory()
