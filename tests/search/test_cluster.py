"""A Ray cluster of several nodes does what this process does, whatever happens to its workers."""

import importlib
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cluster_nodes import Death, Nodes, Refusal, Trap, alive, nodes, wait_for
from small import small_problem

from membound.errors import MemboundError, TrainingError
from membound.search import cluster as module
from membound.search import greedy
from membound.search.cluster import Cluster, ray_cluster
from membound.search.jobs import Job
from membound.search.ledger import open_run
from membound.search.problem import Problem
from membound.search.workshop import Workers, Workshop, this_process
from membound.train.loop import Interrupted

ray = pytest.importorskip("ray")
LAYERS = ("fc1.weight", "conv2.weight")
ROUNDS, LIMIT = 3, 4000  # bytes, which are far below what three rounds come to


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    with nodes(1, 1) as two:
        yield two
        ray.shutdown()


@pytest.fixture
def workers(cluster: Nodes) -> Cluster:
    """Connected; the connection stays for the next test, since its workers have loaded torch."""
    if not ray.is_initialized():
        ray_cluster(cluster.address)
    return ray_cluster("auto", device="cpu")


@pytest.fixture
def unconnected() -> Iterator[None]:
    ray.shutdown()
    yield
    assert not ray.is_initialized()


def with_lr(wrap: Callable[..., Any], *more: Any) -> Problem:
    """The small problem, with something in the way of its candidates' trainings."""
    problem = small_problem()
    tuning = replace(problem.training.tuning, lr=wrap(problem.training.tuning.lr, *more))
    return replace(problem, training=replace(problem.training, tuning=tuning))


def search(problem: Problem, workers: Workers, path: Path) -> dict[str, Any]:
    """A few rounds of the greedy search: what was found, without the seconds it took."""
    with open_run(path, {"problem": "small"}) as run:
        workshop = Workshop(problem, run, workers)
        rounds = []
        for found in greedy.search(workshop, [LIMIT], 0, greedy.Greedy(step=0.3, layers=LAYERS)):
            facts = sorted(found.candidates, key=lambda facts: facts["job"]["key"])
            rounds.append(([timeless(one) for one in facts], found.winner["job"]["key"]))
            if found.number == ROUNDS:
                return {"rounds": rounds, "weights": workshop.state(found.winner["job"]["key"])}
    raise AssertionError("the search has ended")


def timeless(facts: dict[str, Any]) -> dict[str, Any]:
    history = [
        {key: value for key, value in entry.items() if "second" not in key} for entry in facts["history"]
    ]
    return {**{key: value for key, value in facts.items() if key != "seconds"}, "history": history}


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["rounds"] == expected["rounds"]
    assert found["weights"].keys() == expected["weights"].keys()
    for name, value in expected["weights"].items():
        assert torch.equal(found["weights"][name], value), name


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("local") / "run"
    return search(small_problem(), this_process(torch.device("cpu")), path)


class Locked:
    """A learning rate that stays where it is."""

    def __init__(self, lr: Callable[[int], float]) -> None:
        self.lr, self.lock = lr, threading.Lock()

    def __call__(self, step: int) -> float:
        return self.lr(step)


class Busy:
    """Has the CPU of its node."""

    def there(self) -> bool:
        return True


def occupy(node: str) -> Any:
    where = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    actor = ray.remote(Busy).options(num_cpus=1, scheduling_strategy=where).remote()
    assert ray.get(actor.there.remote(), timeout=60)
    return actor


def when_caught(trap: Trap, act: Callable[[int], object]) -> threading.Thread:
    """Act, beside the search, on the process that the trap holds."""
    thread = threading.Thread(target=lambda: act(trap.await_catch()))
    thread.start()
    return thread


@pytest.mark.full
def test_a_search_is_the_same_when_a_worker_is_killed(workers, expected, tmp_path):
    problem = with_lr(Trap, tmp_path)
    killer = when_caught(problem.training.tuning.lr, lambda process: os.kill(process, signal.SIGKILL))
    found = search(problem, workers, tmp_path / "run")
    killer.join()
    assert_same(found, expected)
    assert [len(candidates) for candidates, _ in found["rounds"]] == [1, 2, 2, 2]


@pytest.mark.full
def test_a_search_is_the_same_when_a_machine_is_lost(cluster, workers, expected, tmp_path):
    node = cluster.add(1)
    problem = with_lr(Trap, tmp_path, node)
    killer = when_caught(problem.training.tuning.lr, lambda process: cluster.lose(node))
    for other in ray.nodes():  # so that the tasks of a round, which are two, cannot do without the new one
        if other["NodeID"] != node and other["Resources"].get("CPU") and "GPU" not in other["Resources"]:
            busy = occupy(other["NodeID"])
            break
    found = search(problem, workers, tmp_path / "run")
    killer.join()
    ray.kill(busy)
    assert_same(found, expected)


@pytest.mark.full
def test_an_interrupted_search_goes_on_to_the_same_end(workers, expected, tmp_path):
    problem, path = with_lr(Trap, tmp_path), tmp_path / "run"
    held: list[int] = []

    def interrupt(process: int) -> None:
        held.append(process)
        os.kill(os.getpid(), signal.SIGINT)

    thread = when_caught(problem.training.tuning.lr, interrupt)
    with pytest.raises(Interrupted):
        search(problem, workers, path)
    thread.join()
    wait_for(lambda: not alive(held[0]))
    with open_run(path, {"problem": "small"}) as run:
        assert "dense-part" in [entry.key for entry in run.entries()]
    assert_same(search(small_problem(), workers, path), expected)


@pytest.mark.full
def test_our_errors_arrive_as_themselves(workers, tmp_path):
    with pytest.raises(TrainingError) as raised:
        search(with_lr(Refusal), workers, tmp_path / "run")
    assert type(raised.value) is TrainingError
    assert str(raised.value) == "the tenth step is one too many: take nine"


@pytest.mark.full
def test_a_problem_that_cannot_be_sent_is_refused(workers, tmp_path):
    with pytest.raises(MemboundError, match=r"cannot be sent to the Ray cluster: cannot pickle .*lock"):
        search(with_lr(Locked), workers, tmp_path / "run")


@pytest.mark.full
def test_a_job_that_is_lost_again_and_again_is_given_up(workers, tmp_path):
    path = tmp_path / "run"
    message = r"^r001-(fc1|conv2): lost 2 times .* run the same command again$"
    with pytest.raises(TrainingError, match=message):
        search(with_lr(Death), ray_cluster("auto", device="cpu", retries=1), path)
    with open_run(path, {"problem": "small"}) as run:
        assert [entry.key for entry in run.entries()] == ["dense-part"]


@pytest.mark.full
def test_a_worker_that_cannot_load_the_network_says_what_it_lacks(workers, tmp_path, monkeypatch):
    (tmp_path / "here_only.py").write_text("from small import Small\n\nclass Net(Small):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    problem = small_problem(importlib.import_module("here_only").Net)
    monkeypatch.undo()  # before anything is sent: workers are not told of the folder
    with pytest.raises(TrainingError, match=r"dense-part: lost 1 times .*No module named 'here_only'"):
        search(problem, ray_cluster("auto", device="cpu", retries=0), tmp_path / "run")


@pytest.mark.full
def test_gpus_are_shared_evenly_and_a_worker_that_sees_none_says_so(cluster, workers):
    jobs = [Job(f"job-{number}", number, tuning=True) for number in range(7)]
    with pytest.raises(MemboundError, match="has no GPUs: choose another device or cluster"):
        ray_cluster("auto", device="cuda")
    node = cluster.add(1, gpus=2)  # so it says
    try:
        on_gpus = ray_cluster("auto", gpus_per_task=0.5)
        assert on_gpus.device == "cuda"
        slots = on_gpus._slots(on_gpus._needs())
        assert [len(part) for part in on_gpus._parts(jobs, slots)] == [1, 2, 2, 2]
        assert [job for part in on_gpus._parts(jobs, slots) for job in part] == jobs
        with open_run(None, {}) as run, pytest.raises(MemboundError, match="torch sees no CUDA device"):
            Workshop(small_problem(), run, on_gpus).do(jobs)
    finally:
        cluster.lose(node)


@pytest.mark.full
def test_a_client_elsewhere_gets_the_same_from_larger_tasks(cluster, unconnected, expected, tmp_path):
    with ray_cluster(cluster.client_address, device="cpu", chunk=2) as client:
        assert not client.streams
        assert_same(search(small_problem(), client, tmp_path / "run"), expected)


@pytest.mark.full
def test_local_starts_a_cluster_here_and_ends_it(unconnected, monkeypatch):
    with tempfile.TemporaryDirectory(prefix="membound-", dir="/tmp") as short:
        monkeypatch.setenv("RAY_TMPDIR", short)
        with ray_cluster("local", device="cpu") as here, open_run(None, {}) as run:
            (facts,) = Workshop(small_problem(), run, here).do([Job("one", 0, tuning=True)])
            raylet = ray.nodes()[0]["NodeManagerPort"]
        assert facts["steps"] == small_problem().training.tuning.steps
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", raylet), 1)


@pytest.mark.full
def test_a_cluster_that_loses_all_its_machines_is_told(unconnected, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "EMPTY_SECONDS", 0.0)
    with nodes() as lonely:
        with pytest.raises(MemboundError, match="has no CPUs"):
            ray_cluster(lonely.address)
        node = lonely.add(1)
        problem = with_lr(Trap, tmp_path)
        killer = when_caught(problem.training.tuning.lr, lambda process: lonely.lose(node))
        message = r"has lost every machine .* run the same command again$"
        with ray_cluster(lonely.address) as workers, pytest.raises(TrainingError, match=message):
            search(problem, workers, tmp_path / "run")
        killer.join()


@pytest.mark.full
def test_a_connection_that_is_there_is_used_and_left(cluster, unconnected):
    with ray_cluster(cluster.address):
        with ray_cluster("auto"):
            pass
        assert ray.is_initialized()
        with pytest.raises(MemboundError, match="connected to a Ray cluster already"):
            ray_cluster(cluster.address)
    assert not ray.is_initialized()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"address": "nowhere"},
            "'nowhere' is not the address of a Ray cluster: allowed are auto, local, HOST:PORT",
        ),
        ({"address": "ray://host"}, "'ray://host' is not the address"),
        ({"address": "127.0.0.1:70000"}, "is not the address"),
        ({"address": "no.such.host.invalid:6379"}, "no Ray cluster at no.such.host.invalid:6379"),
        ({"address": "auto", "device": "cuda:1"}, "choose auto, cpu or cuda"),
        ({"address": "auto", "gpus_per_task": 1.5}, "gpus_per_task must be above 0 and at most 1, got 1.5"),
        ({"address": "auto", "chunk": 0}, "chunk must be at least 1 job, got 0"),
        ({"address": "auto", "retries": -1}, "retries must be at least 0, got -1"),
    ],
)
def test_options_that_cannot_be_are_refused(unconnected, options, message):
    with pytest.raises(MemboundError) as raised:
        ray_cluster(**options)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_no_cluster_is_is_refused(unconnected, scheme, monkeypatch):
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.2)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(MemboundError, match=r"no Ray cluster at .*refused.*allowed are"):
            ray_cluster(f"{scheme}127.0.0.1:{closed.getsockname()[1]}")
        closed.listen()  # and never says a word
        with pytest.raises(MemboundError, match=r"no Ray cluster at .* \(timed out\).*allowed are"):
            ray_cluster(f"{scheme}127.0.0.1:{closed.getsockname()[1]}")


def test_another_kind_of_server_is_refused(unconnected):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(1000)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(MemboundError, match="is not a Ray cluster: allowed are"):
            ray_cluster(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()


def test_without_ray_it_is_said_how_to_get_it(unconnected, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "ray.util.client", raising=False)
    with pytest.raises(MemboundError, match=r"pip install '\.\[ray\]'"):
        ray_cluster("auto")
