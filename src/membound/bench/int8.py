"""The dense network in 8 bits, as a user of ONNX Runtime or OpenVINO would make it: calibrated on samples.

Weights have a scale for each output channel, activations one each; nothing is trained.
"""

import contextlib
import importlib.util
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from membound.bench.contenders import Files, onnx_runtime
from membound.export.onnx import write_onnx
from membound.export.onnx_steps import INPUT
from membound.run.ports import inputs_of
from membound.store.model import StoredModel

Array = npt.NDArray[np.float32]
SAMPLES = 4  # that a network is calibrated on for its speed alone


@dataclass(frozen=True)
class Maker:
    """How the model of a contender is made: the packages that it takes, and what writes it where."""

    packages: tuple[str, ...]
    name: str  # of the file
    write: Callable[[Path, Path, Array], object]  # the dense ONNX, the target, samples

    def missing(self) -> list[str]:
        return [name for name in self.packages if importlib.util.find_spec(name) is None]


def write_qdq(source: Path, target: Path, samples: Array) -> None:
    """ONNX with pairs of QuantizeLinear and DequantizeLinear; unsigned activations, which x86 multiplies fastest."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Samples(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(samples)

        def get_next(self) -> dict[str, Array] | None:
            sample = next(self.left, None)
            return None if sample is None else {INPUT: sample[None]}

    with _quietly():
        quantize_static(
            str(source), str(target), Samples(), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip


def write_ir(source: Path, target: Path, samples: Array) -> None:
    """OpenVINO's own format, quantized by NNCF."""
    import nncf
    import openvino as ov

    with _quietly():
        data = nncf.Dataset(list(samples), lambda sample: sample[None])
        model = nncf.quantize(ov.Core().read_model(str(source)), data, subset_size=len(samples))
        ov.save_model(model, str(target), compress_to_fp16=False)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the advice and the bars of progress that these libraries print."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)


@contextlib.contextmanager
def onnx_runs(dense: StoredModel, threads: int) -> Iterator[list[Callable[[], object]] | None]:
    """Calls of ONNX Runtime with one input, in floats and in int8, on so many threads.

    None where it is not installed, or cannot do it: this is for a number beside others, and not worth an error.
    """
    first, *others = inputs_of(dense.graph, dense.shapes)
    if MAKERS["onnxruntime int8"].missing() or others or first.whole:
        yield None
        return
    samples = np.random.default_rng(0).normal(size=(SAMPLES, *first.shape)).astype(np.float32)
    runs: list[Callable[[], object]] | None = None
    with tempfile.TemporaryDirectory() as folder:
        plain, target = Path(folder) / "plain.onnx", Path(folder) / "int8.onnx"
        with contextlib.suppress(
            Exception
        ):  # whatever another library raises for a network that it does not take
            write_onnx(plain, dense)
            write_qdq(plain, target, samples)
            files = Files(plain, plain, plain, target)
            loaded = [onnx_runtime(int8=int8)(files, threads, 1) for int8 in (False, True)]
            found = [partial(contender.run, [samples[:1]]) for contender in loaded]
            for run in found:
                run()
            runs = [*found]
        yield runs


MAKERS = {
    "onnxruntime int8": Maker(("onnxruntime", "onnx"), "int8.onnx", write_qdq),
    "openvino int8": Maker(("openvino", "nncf"), "int8.xml", write_ir),
}


def bytes_of(path: Path) -> int:
    """Of a model; OpenVINO's is two files, a graph and its weights."""
    files = [path, path.with_suffix(".bin")] if path.suffix == ".xml" else [path]
    return sum(file.stat().st_size for file in files)
