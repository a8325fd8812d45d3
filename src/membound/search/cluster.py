"""Jobs as tasks of a Ray cluster: the same outcomes as in this process, from many machines.

The problem goes to the cluster once and each machine keeps one copy of its arrays. Which outcomes are still missing is
known here, not there: when a worker or a machine is lost, only these are done again, and since a job is fully described
by its order, whoever does it comes to the same end.
"""

import importlib
import logging
import os
import re
import site
import socket
import struct
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from membound.errors import MemboundError, TrainingError, install
from membound.search.jobs import Job, Order, Outcome, Show, carry_out
from membound.search.problem import Problem
from membound.train.loop import Interrupted, graceful_interrupt
from membound.train.parallel import World, choose_device

ADDRESSES = "allowed are auto, local, HOST:PORT of a cluster's head, or ray://HOST:PORT of its client server"
CONNECT_SECONDS = 5.0
LOOK_SECONDS = 1.0  # between looks at what a person or the cluster wants
EMPTY_SECONDS = 60.0  # that a cluster may be without a machine for the work: one may be on its way
GO_ON = "what is finished is kept, so mend that and run the same command again"

Finished = tuple[Job, Outcome]


def ray_cluster(
    address: str,
    *,
    device: str = "auto",
    gpus_per_task: float | None = None,
    chunk: int | None = None,
    retries: int = 3,
) -> "Cluster":
    """Connect to a Ray cluster: workers for a Workshop, and a context manager that ends the connection.

    `auto` is CUDA where the cluster has GPUs. A task is `chunk` jobs: by default one on CPUs, and on GPUs an even
    share for each slot, of which a GPU has 1 / `gpus_per_task`. A task that is lost is done again `retries` times.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise MemboundError(
            "a Ray cluster under torchrun: each process would spread the work in its own way; start the fit alone, or "
            "leave the cluster out",
            about="workers",
        )
    if not re.fullmatch(r"auto|cpu|cuda", device):
        raise MemboundError(f"a cluster has no device {device!r}: choose auto, cpu or cuda")
    share = 1.0 if gpus_per_task is None else gpus_per_task
    if not 0 < share <= 1:
        raise MemboundError(f"gpus_per_task must be above 0 and at most 1, got {share}")
    if chunk is not None and chunk < 1:
        raise MemboundError(f"chunk must be at least 1 job, got {chunk}")
    if retries < 0:
        raise MemboundError(f"retries must be at least 0, got {retries}")
    ray = _import_ray()
    own = _connect(ray, address)
    try:
        return Cluster(ray, address, device, share, chunk, retries, own)
    except BaseException:
        _disconnect(ray, own)
        raise


@dataclass
class _Task:
    """Orders that one worker has, without those whose outcome is here; and how often they were lost."""

    orders: list[Order]
    lost: int = 0

    @property
    def names(self) -> str:
        keys = [order.job.key for order in self.orders]
        return ", ".join(keys) if len(keys) <= 3 else f"{keys[0]} and {len(keys) - 1} more"


class Cluster:
    """A connection to a cluster, made by `ray_cluster`; called with a problem and orders, it has them done."""

    def __init__(
        self, ray: Any, address: str, device: str, share: float, chunk: int | None, retries: int, own: bool
    ) -> None:
        self.ray, self.address, self.share = ray, address, share
        self.chunk, self.retries, self.own = chunk, retries, own
        self.device = "cuda" if device == "cuda" or (device == "auto" and self._amounts("GPU")) else "cpu"
        self.streams = not ray.util.client.ray.is_connected()  # a client gets the outcomes of a task together
        self._placed: tuple[Problem, Any] | None = None
        if not self._slots(self._needs()):
            kind = "GPUs" if self.device == "cuda" else "CPUs"
            raise MemboundError(f"the Ray cluster {address} has no {kind}: choose another device or cluster")

    def close(self) -> None:
        """End the connection; a cluster that was started by `local` ends with it."""
        self._placed = None
        _disconnect(self.ray, self.own)
        self.own = False

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(
        self, problem: Problem, orders: Sequence[Order], show: Show | None = None
    ) -> Iterator[Finished]:
        """Have all orders done; outcomes come as they finish. Workers do not `show` the steps between."""
        if any(order.curves is not None for order in orders):
            raise MemboundError("the workers of a cluster write no curves for TensorBoard: leave that out")
        with graceful_interrupt(World()) as interrupted:
            yield from self._have_done(problem, orders, interrupted)

    def _have_done(
        self, problem: Problem, orders: Sequence[Order], interrupted: Callable[[], bool]
    ) -> Iterator[Finished]:
        needs = self._needs()
        starts = {id(order.start): self.ray.put(order.start) for order in orders if order.start is not None}
        submit = partial(self._submit, self._place(problem), starts, needs)
        tasks: dict[Any, _Task] = {}  # by what Ray calls them
        roomy = time.monotonic()
        try:
            for part in self._parts(orders, self._slots(needs)):
                tasks[submit(part)] = _Task(part)
            while tasks:
                ready, _ = self.ray.wait(list(tasks), timeout=LOOK_SECONDS)
                if interrupted():
                    raise Interrupted
                if ready or self._slots(needs):
                    roomy = time.monotonic()
                elif time.monotonic() - roomy >= EMPTY_SECONDS:
                    raise TrainingError(
                        f"the Ray cluster {self.address} has lost every machine that could do this: {GO_ON}"
                    )
                for handle in ready:
                    task = tasks[handle]
                    finished, over = self._collect(handle, task)
                    for job, outcome in finished:
                        task.orders = [order for order in task.orders if order.job.key != job.key]
                        yield job, outcome
                    if over:
                        del tasks[handle]
                        if task.orders:
                            tasks[submit(task.orders)] = task
        finally:
            self._cancel(tasks)

    def _cancel(self, tasks: dict[Any, _Task]) -> None:
        for handle in tasks:
            try:
                self.ray.cancel(handle, force=True)
            except Exception as error:  # where the connection is lost, that is told already
                logging.getLogger(__name__).debug("not cancelled: %s", error)

    def _place(self, problem: Problem) -> Any:
        """The problem in the cluster's memory, put there once."""
        if self._placed is None or self._placed[0] is not problem:
            try:
                self._placed = problem, self.ray.put(problem)
            except Exception as error:  # a network, a loss and a data set may be anything
                reason = _line(error.__cause__ or error)
                raise MemboundError(
                    f"the network, its data or its loss cannot be sent to the Ray cluster: {reason}"
                ) from error
        return self._placed[1]

    def _submit(
        self, placed: Any, starts: dict[int, Any], needs: dict[str, float], orders: Sequence[Order]
    ) -> Any:
        # References within lists are not fetched before the task starts: a worker that has the problem takes its own.
        # Folders are on this machine. Ray's own retries would also do again what is here already.
        sent = [(order.job, [] if order.start is None else [starts[id(order.start)]]) for order in orders]
        remote = self.ray.remote(_stream if self.streams else _gather).options(
            **needs,
            num_returns="streaming" if self.streams else 1,
            max_retries=0,
            runtime_env=_environment(),
            name=f"membound {orders[0].job.key}",
        )
        return remote.remote([placed], sent, self.device, torch.get_num_threads())

    def _collect(self, handle: Any, task: _Task) -> tuple[list[Finished], bool]:
        """What there is of a task, and whether that is all that will come."""
        exceptions = self.ray.exceptions
        try:
            if not self.streams:
                return self.ray.get(handle), True
            reference = next(handle, None)
            return ([], True) if reference is None else ([self.ray.get(reference)], False)
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, MemboundError):
                raise error.cause from None
            # Of the cluster are what a worker gets that is asked to go, and what it could not get or load.
            if not isinstance(error.cause, KeyboardInterrupt | exceptions.RayError):
                raise
            reason: BaseException = error.cause
        except exceptions.RayError as error:
            reason = error
        task.lost += 1
        if task.lost > self.retries:
            raise TrainingError(
                f"{task.names}: lost {task.lost} times by the Ray cluster {self.address} ({_line(reason)}): {GO_ON}"
            ) from reason
        return [], True

    def _parts(self, orders: Sequence[Order], slots: int) -> list[list[Order]]:
        """The orders of each task: in their order, and the same on every cluster of this size."""
        if self.chunk is None and self.device == "cuda":
            count = min(len(orders), max(slots, 1))
            cuts = [len(orders) * number // count for number in range(count + 1)]
        else:
            cuts = [*range(0, len(orders), self.chunk or 1), len(orders)]
        return [list(orders[a:b]) for a, b in pairwise(cuts)]

    def _needs(self) -> dict[str, float]:
        """What a task asks for: a part of a GPU, or a CPU for each thread, as far as one machine has them."""
        if self.device == "cuda":
            return {"num_cpus": 1, "num_gpus": self.share}
        return {"num_cpus": min(torch.get_num_threads(), max(self._amounts("CPU"), default=1))}

    def _slots(self, needs: dict[str, float]) -> int:
        """How many tasks the cluster can do at once."""
        if self.device == "cuda":
            return sum(int(amount) * int(1 / self.share + 1e-9) for amount in self._amounts("GPU"))
        return sum(int(amount // needs["num_cpus"]) for amount in self._amounts("CPU"))

    def _amounts(self, kind: str) -> list[float]:
        """The CPUs or GPUs of every machine that has some."""
        found = (node["Resources"].get(kind, 0.0) for node in self.ray.nodes() if node["Alive"])
        return [amount for amount in found if amount >= 1]


# In a worker


def _stream(
    placed: list[Any], sent: list[tuple[Job, list[Any]]], device: str, threads: int
) -> Iterator[Finished]:
    """Do jobs of a problem; both come as references."""
    ray: Any = importlib.import_module("ray")
    # Sums are cut into as many parts as there are threads, so another number of them rounds differently.
    torch.set_num_threads(threads)
    problem = _receive(ray, placed[0])
    orders = [Order(job, ray.get(start[0]) if start else None) for job, start in sent]
    yield from carry_out(problem, orders, choose_device(device))


def _gather(*task: Any) -> list[Finished]:
    return list(_stream(*task))


_received: dict[str, Problem] = {}  # at most one: a worker keeps it, and what it has found out about it


def _receive(ray: Any, reference: Any) -> Problem:
    key = reference.hex()
    if key not in _received:
        # Arrays lie in memory that all workers of a machine share, and torch warns that it must not write there.
        # It does not: batches are copies.
        warnings.filterwarnings(
            "ignore", message="The given NumPy array is not writable", category=UserWarning
        )
        _received.clear()
        _received[key] = ray.get(reference)
    return _received[key]


# The connection


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # without it, Ray tells of its plans
    try:
        with _quiet():
            importlib.import_module("ray.util.client")
            return importlib.import_module("ray")
    except ImportError as error:
        raise MemboundError(f"a cluster needs Ray ({error}): {install('ray')}") from error


def _connect(ray: Any, address: str) -> bool:
    """Connect this process; False where it was connected before."""
    if ray.is_initialized():
        if address == "auto":
            return False
        raise MemboundError(
            f"this process is connected to a Ray cluster already, so {address} cannot be another: "
            "take auto, or call ray.shutdown() first"
        )
    if address not in ("auto", "local"):
        _probe(address)
    try:
        with _quiet():
            more = {"include_dashboard": False} if address == "local" else {}
            ray.init(
                address,
                log_to_driver=False,
                logging_level=logging.CRITICAL,
                runtime_env=_environment(),  # a client's own process in the cluster needs it, too
                **more,
            )
    except Exception as error:  # Ray raises whatever its parts raise
        raise MemboundError(f"no Ray cluster at {address} ({_line(error)}): {ADDRESSES}") from error
    return True


def _disconnect(ray: Any, own: bool) -> None:
    if own:
        with _quiet():
            ray.shutdown()


def _probe(address: str) -> None:
    """Refuse what does not answer as Ray does: it would try for minutes, and end the process."""
    match = re.fullmatch(r"(?:ray://)?\[?([^/\[\]]+?)\]?:([0-9]{1,5})", address)
    if match is None or not 0 < int(match[2]) < 65536:
        raise MemboundError(f"{address!r} is not the address of a Ray cluster: {ADDRESSES}")
    try:
        with socket.create_connection((match[1], int(match[2])), CONNECT_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
                # Ray speaks HTTP/2, where each side begins with a frame of its settings, type 4.
                connection.settimeout(CONNECT_SECONDS)
                connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack(">I5x", 4))
                if connection.recv(4)[3:] != b"\x04":
                    raise MemboundError(f"what answers at {address} is not a Ray cluster: {ADDRESSES}")
    except OSError as error:
        raise MemboundError(
            f"no Ray cluster at {address} ({error.strerror or error}): {ADDRESSES}"
        ) from error


def _environment() -> dict[str, Any]:
    """Workers look for modules where this process does, besides what is installed; then where they would."""
    paths = sysconfig.get_paths()
    installed = {*site.getsitepackages(), site.getusersitepackages(), *paths.values()}
    installed |= {f"{paths['stdlib']}/lib-dynload"}
    found = [str(Path(place).absolute()) for place in sys.path if not place.endswith(".zip")]
    places = [*(place for place in found if place not in installed), "${PYTHONPATH}"]
    return {"env_vars": {"PYTHONPATH": os.pathsep.join(places)}}


@contextmanager
def _quiet() -> Iterator[None]:
    """Ray's own warnings are not for those who use membound."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".: ") if lines else type(error).__name__
