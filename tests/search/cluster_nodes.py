"""A Ray cluster of several nodes on this machine, and traps that hold a worker in the middle of a task.

Run as a script it starts a head and says its addresses; each line on its input adds a node (`add CPUS GPUS`, answered
by its id) or loses one (`lose ID`); the end of the input, also when whoever holds it is killed, ends the cluster.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from membound.errors import TrainingError

STORE_BYTES = 100 * 2**20
HELD_SECONDS = 60  # that a trap waits to be killed: then the test has failed


class Nodes:
    """The cluster in a process of its own."""

    def __init__(self) -> None:
        environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONWARNINGS": "ignore"}
        environment.pop(
            "CUDA_VISIBLE_DEVICES", None
        )  # Ray starts no node that says it has GPUs where this hides them
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        try:
            self.address, self.client_address = self._answer().split()
        except BaseException:
            self.end()
            raise

    def add(self, cpus: int, gpus: int = 0) -> str:
        return self._ask(f"add {cpus} {gpus}")

    def lose(self, node: str) -> None:
        """The node's processes are killed; the cluster finds out by itself."""
        self._ask(f"lose {node}")

    def _ask(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("cluster: "):  # Ray has things to say, too
                return line.removeprefix("cluster: ").strip()
        raise AssertionError("the cluster has ended")

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


@contextlib.contextmanager
def nodes(*cpus: int) -> Iterator[Nodes]:
    """A cluster with nodes of that many CPUs, besides a head that has none."""
    cluster = Nodes()
    try:
        for count in cpus:
            cluster.add(count)
        yield cluster
    finally:
        cluster.end()


@dataclass(frozen=True)
class Trap:
    """A learning rate that, at the tenth step, holds the first worker to come by until it is killed.

    On `node` only, where that is given; `folder` holds what is known of it.
    """

    lr: Callable[[int], float]
    folder: Path
    node: str | None = None

    def __call__(self, step: int) -> float:
        if step == 10 and self._on_node():
            with contextlib.suppress(FileExistsError):
                (self.folder / "caught").symlink_to(str(os.getpid()))  # whole at once, and once only
                self._hold()
        return self.lr(step)

    def _on_node(self) -> bool:
        if self.node is None:
            return True
        import ray

        return bool(ray.get_runtime_context().get_node_id() == self.node)

    def _hold(self) -> None:
        until = time.monotonic() + HELD_SECONDS
        while time.monotonic() < until:
            time.sleep(0.02)
        raise AssertionError("nobody came")

    def await_catch(self) -> int:
        """The process that is held."""
        path = self.folder / "caught"
        wait_for(path.is_symlink)
        return int(os.readlink(path))


@dataclass(frozen=True)
class Death:
    """A learning rate that kills every worker of the task at the tenth step."""

    lr: Callable[[int], float]

    def __call__(self, step: int) -> float:
        if step == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.lr(step)


@dataclass(frozen=True)
class Refusal:
    """A learning rate that is refused, as an error of ours, at the tenth step."""

    lr: Callable[[int], float]

    def __call__(self, step: int) -> float:
        if step == 10:
            raise TrainingError("the tenth step is one too many: take nine")
        return self.lr(step)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.02)


def alive(process: int) -> bool:
    """Whether a process is there and not only waiting to be buried."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def serve() -> None:
    # Short: sockets are in it, whose names have a limit.
    with tempfile.TemporaryDirectory(prefix="membound-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder
        obey()


def obey() -> None:
    from ray.cluster_utils import Cluster

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    more = {"object_store_memory": STORE_BYTES, "include_dashboard": False}
    head = {**more, "num_cpus": 0, "ray_client_server_port": port}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    there = {}
    try:
        print(f"cluster: {cluster.address} ray://127.0.0.1:{port}", flush=True)
        for line in sys.stdin:
            match line.split():
                case ["add", cpus, gpus]:
                    node = cluster.add_node(num_cpus=int(cpus), num_gpus=int(gpus), **more)
                    there[node.node_id] = node
                    print(f"cluster: {node.node_id}", flush=True)
                case ["lose", name]:
                    cluster.remove_node(there.pop(name), allow_graceful=False)
                    print("cluster: lost", flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    serve()
