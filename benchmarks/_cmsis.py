"""An int8 .tflite as C that calls CMSIS-NN's kernels one after another, with every map in RAM.

Only what MLPerf Tiny's image classifier has: convolutions, additions, a mean over the map, a linear layer, softmax. The
header that is written has the names of an exported network of ours, so that the same program runs both.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import tflite
from numpy.typing import NDArray

HEADER = """#include <stdint.h>
#define NET_CHANNELS {channels}
#define NET_HEIGHT {height}
#define NET_WIDTH {width}
#define NET_OUTPUTS {outputs}
typedef struct {{ int8_t input[NET_HEIGHT * NET_WIDTH * NET_CHANNELS]; uint32_t rows; int8_t output[NET_OUTPUTS]; }}
    net_context;
void net_start(net_context *context);
int net_feed_row(net_context *context, const uint8_t *row, uint32_t channel_step, uint32_t pixel_step);
int8_t net_output(const net_context *context, uint32_t index);
"""
FUNCTIONS = """
void net_start(net_context *context) { context->rows = 0; }
int net_feed_row(net_context *context, const uint8_t *row, uint32_t channel_step, uint32_t pixel_step) {
  int8_t *to = context->input + context->rows * NET_WIDTH * NET_CHANNELS;
  (void)channel_step, (void)pixel_step;
  for (int i = 0; i < NET_WIDTH * NET_CHANNELS; i++) to[i] = (int8_t)(row[i] - 128);
  if (++context->rows < NET_HEIGHT) return 0;
  run(context->input, context->output);
  return 1;
}
int8_t net_output(const net_context *context, uint32_t index) { return context->output[index]; }
"""


def fixed_point(real: float) -> tuple[int, int]:
    """(multiplier, shift): real = multiplier / 2^31 * 2^shift, as TensorFlow Lite has it."""
    part, shift = math.frexp(real)
    whole = round(part * 2**31)
    return (whole // 2, shift + 1) if whole == 2**31 else (whole, shift)


class Reader:
    """The tensors and operators of a file."""

    def __init__(self, data: bytes) -> None:
        self.model = tflite.Model.GetRootAsModel(data, 0)
        self.graph = self.model.Subgraphs(0)
        self.kinds = {v: k for k, v in vars(tflite.BuiltinOperator).items() if not k.startswith("_")}

    def kind(self, op: Any) -> str:
        code = self.model.OperatorCodes(op.OpcodeIndex())
        return str(self.kinds[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())])

    def shape(self, tensor: int) -> list[int]:
        return [int(n) for n in self.graph.Tensors(tensor).ShapeAsNumpy()]

    def scale(self, tensor: int) -> NDArray[np.float64]:
        return np.asarray(self.graph.Tensors(tensor).Quantization().ScaleAsNumpy(), np.float64)

    def zero(self, tensor: int) -> int:
        return int(self.graph.Tensors(tensor).Quantization().ZeroPointAsNumpy()[0])

    def data(self, tensor: int, kind: Any) -> NDArray[Any]:
        raw = self.model.Buffers(self.graph.Tensors(tensor).Buffer()).DataAsNumpy()
        return np.frombuffer(np.asarray(raw, np.uint8).tobytes(), kind)


def write_cmsis(file: Path, folder: Path) -> None:
    """net.h and net.c of a .tflite."""
    reader = Reader(file.read_bytes())
    made = _Writer(reader)
    graph = reader.graph
    for number in range(graph.OperatorsLength()):
        op = graph.Operators(number)
        inputs, outputs = ([int(t) for t in each] for each in (op.InputsAsNumpy(), op.OutputsAsNumpy()))
        getattr(made, f"_{reader.kind(op).lower()}")(op, inputs, outputs[0], number)
    first, last = int(graph.Inputs(0)), int(graph.Outputs(0))
    _, height, width, channels = reader.shape(first)
    sizes = {"channels": channels, "height": height, "width": width, "outputs": math.prod(reader.shape(last))}
    folder.mkdir()
    (folder / "net.h").write_text(HEADER.format(**sizes))
    buffers = "".join(f"static int8_t t{t}[{math.prod(reader.shape(t))}];\n" for t in made.stored)
    run = "".join(made.calls)
    (folder / "net.c").write_text(
        '#include "net.h"\n#include <string.h>\n#include "arm_nnfunctions.h"\n#include "arm_nnsupportfunctions.h"\n'
        + buffers
        + "static int32_t room[4096];\n"
        + "".join(made.constants)
        + f"static void run(const int8_t *t{first}, int8_t *output) {{\n  cmsis_nn_context c = {{room, sizeof room}};\n"
        + f"{run}  memcpy(output, t{last}, NET_OUTPUTS);\n}}\n"
        + FUNCTIONS
    )


class _Writer:
    def __init__(self, reader: Reader) -> None:
        self.r = reader
        self.constants: list[str] = []
        self.calls: list[str] = []
        self.stored: list[int] = []

    def _array(self, name: str, kind: str, values: NDArray[Any], const: bool = True) -> None:
        numbers = ", ".join(map(str, values.reshape(-1).tolist()))
        self.constants.append(f"static {'const ' if const else ''}{kind} {name}[] = {{{numbers}}};\n")

    def _dims(self, shape: list[int]) -> str:
        return f"&(cmsis_nn_dims){{{', '.join(map(str, shape))}}}"

    def _bounds(self, activation: int, tensor: int) -> str:
        zero = self.r.zero(tensor)
        low = max(-128, zero) if activation == tflite.ActivationFunctionType.RELU else -128
        return f"{{{low}, 127}}"

    def _conv_2d(self, op: Any, inputs: list[int], out: int, n: int) -> None:
        r, options = self.r, tflite.Conv2DOptions()
        options.Init(op.BuiltinOptions().Bytes, op.BuiltinOptions().Pos)
        given, weight, bias = inputs
        shape, kernel, size = r.shape(given), r.shape(weight), r.shape(out)
        stride = options.StrideH(), options.StrideW()
        pad = [
            max((size[1 + i] - 1) * stride[i] + kernel[1 + i] - shape[1 + i], 0) // 2
            if options.Padding() == tflite.Padding.SAME
            else 0
            for i in (0, 1)
        ]
        fixed = [fixed_point(s) for s in r.scale(given)[0] * r.scale(weight) / r.scale(out)[0]]
        self._array(f"w{n}", "int8_t", r.data(weight, np.int8))
        self._array(f"b{n}", "int32_t", r.data(bias, np.int32))
        self._array(f"m{n}", "int32_t", np.array([m for m, _ in fixed]), const=False)
        self._array(f"s{n}", "int32_t", np.array([s for _, s in fixed]), const=False)
        bounds = self._bounds(options.FusedActivationFunction(), out)
        parameters = (
            f"&(cmsis_nn_conv_params){{{-r.zero(given)}, {r.zero(out)}, {{{stride[1]}, {stride[0]}}}, "
            f"{{{pad[1]}, {pad[0]}}}, {{1, 1}}, {bounds}}}"
        )
        self.calls.append(
            f"  arm_convolve_wrapper_s8(&c, {parameters}, &(cmsis_nn_per_channel_quant_params){{m{n}, s{n}}}, "
            f"{self._dims(shape)}, t{given}, {self._dims(kernel)}, w{n}, {self._dims([1, 1, 1, size[3]])}, b{n}, "
            f"{self._dims(size)}, t{out});\n"
        )
        self.stored.append(out)

    def _add(self, op: Any, inputs: list[int], out: int, n: int) -> None:
        r, options = self.r, tflite.AddOptions()
        options.Init(op.BuiltinOptions().Bytes, op.BuiltinOptions().Pos)
        scales = [float(r.scale(t)[0]) for t in inputs]
        twice = 2 * max(scales)
        numbers = []
        for t, s in zip(inputs, scales, strict=True):
            m, shift = fixed_point(s / twice)
            numbers += [-r.zero(t), m, shift]
        m, shift = fixed_point(twice / (2**20 * float(r.scale(out)[0])))
        low = self._bounds(options.FusedActivationFunction(), out).strip("{}")
        self.calls.append(
            f"  arm_elementwise_add_s8(t{inputs[0]}, t{inputs[1]}, {', '.join(map(str, numbers))}, 20, t{out}, "
            f"{r.zero(out)}, {m}, {shift}, {low}, {math.prod(r.shape(out))});\n"
        )
        self.stored.append(out)

    def _average_pool_2d(self, op: Any, inputs: list[int], out: int, n: int) -> None:
        shape, size = self.r.shape(inputs[0]), self.r.shape(out)
        self.calls.append(
            f"  arm_avgpool_s8(&c, &(cmsis_nn_pool_params){{{{1, 1}}, {{0, 0}}, {{-128, 127}}}}, {self._dims(shape)}, "
            f"t{inputs[0]}, {self._dims([1, shape[1], shape[2], 1])}, {self._dims(size)}, t{out});\n"
        )
        self.stored.append(out)

    def _reshape(self, op: Any, inputs: list[int], out: int, n: int) -> None:
        self.calls.append(f"  const int8_t *t{out} = t{inputs[0]};\n")

    def _fully_connected(self, op: Any, inputs: list[int], out: int, n: int) -> None:
        r, (given, weight, bias) = self.r, inputs
        outputs, columns = r.shape(weight)
        m, shift = fixed_point(float(r.scale(given)[0] * r.scale(weight)[0] / r.scale(out)[0]))
        weights = r.data(weight, np.int8)
        self._array(f"w{n}", "int8_t", weights)
        self._array(f"b{n}", "int32_t", r.data(bias, np.int32))
        sums = weights.reshape(outputs, columns).astype(int).sum(1) * -r.zero(given) + r.data(bias, np.int32)
        self._array(f"k{n}", "int32_t", sums)  # what the kernel for MVE wants in its buffer
        self.calls.append(
            f"  {{ cmsis_nn_context f = {{(void *)k{n}, sizeof k{n}}};\n"
            f"  arm_fully_connected_s8(&f, &(cmsis_nn_fc_params){{{-r.zero(given)}, 0, {r.zero(out)}, {{-128, 127}}}}, "
            f"&(cmsis_nn_per_tensor_quant_params){{{m}, {shift}}}, {self._dims([1, 1, 1, columns])}, t{given}, "
            f"{self._dims([columns, 1, 1, outputs])}, w{n}, {self._dims([1, 1, 1, outputs])}, b{n}, "
            f"{self._dims([1, 1, 1, outputs])}, t{out}); }}\n"
        )
        self.stored.append(out)

    def _softmax(self, op: Any, inputs: list[int], out: int, n: int) -> None:
        m, shift = fixed_point(min(float(self.r.scale(inputs[0])[0]) * 2**26, 2**31 - 1))
        lowest = -math.floor(31 * 2**26 / 2**shift)
        self.calls.append(
            f"  arm_softmax_s8(t{inputs[0]}, 1, {self.r.shape(out)[1]}, {m}, {shift}, {lowest}, t{out});\n"
        )
        self.stored.append(out)
