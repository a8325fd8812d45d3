"""What a wheel must do with numpy alone: store a network, load it, run it, inspect it, and say what is not there."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import membound as mb
from membound.store.file import write
from membound.store.graph import Graph, Node
from membound.store.model import Model


def main() -> None:
    weight = np.array([[0, 2, 0, 0], [0, 0, 0, -1]], np.float32)
    graph = Graph(
        (1, 2, 2), (Node("reshape", (0,), {"shape": (4,)}), Node("linear", (1,), {}, {"w": "fc"})), 2
    )
    x = np.arange(96, dtype=np.float32).reshape(24, 1, 2, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.safetensors"
        write(path, Model(graph, {"fc": weight}))
        net = mb.load(path, threads=1, max_batch=2)
        assert np.array_equal(net(x), x.reshape(24, 4) @ weight.T), net(x)
        assert net.memory().total > 0
        mb.export_c(path, Path(folder) / "c", images=x)
        assert (Path(folder) / "c" / "membound_micro.c").is_file()
        mb.export_cpp(path, Path(folder) / "cpp")
        kernels = {file.name for file in (Path(folder) / "cpp" / "membound").iterdir()}
        assert {"app.cpp", "net_neon.cpp", "net_avx2.cpp", "kernels.cmake", "LICENSE"} <= kernels
        for command in (
            ["inspect", str(path), "--json"],
            ["export", str(path), "--onnx", f"{folder}/net.onnx"],
        ):
            subprocess.run(
                [sys.executable, "-m", "membound", *command], check=True, stdout=subprocess.DEVNULL
            )
    refused = subprocess.run(
        [sys.executable, "-m", "membound", "reproduce", "all"], capture_output=True, text=True
    )
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1), refused
    assert "a clone of the repository" in refused.stderr, refused.stderr
    assert "torch" not in sys.modules
    print(f"membound {mb.__version__} at {Path(mb.__file__).parent}")


if __name__ == "__main__":
    main()
