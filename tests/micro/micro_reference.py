"""docs/MICRO_ARITHMETIC.md written out in numpy: whole maps, dense weights, Python's own division; nothing of the C."""

import numpy as np

from membound.micro.integers import IntegerNet, Op


def run_reference(net: IntegerNet, images: np.ndarray, pixels: bool = True) -> np.ndarray:
    """The outputs of images of bytes [n, C, H, W], int8 [n, C', H', W']."""
    return np.stack([_image(net, image.reshape(net.images[0]), pixels) for image in images])


def _image(net: IntegerNet, image: np.ndarray, pixels: bool) -> np.ndarray:
    numbers = image.astype(np.int64)
    if pixels:
        m, c = np.array(net.input, np.int64).T[:, :, None, None]
        first = np.clip((numbers * m + c) // 2**16, -128, 127)
    else:
        first = numbers - 128
    values: dict[int, np.ndarray] = {0: first}
    for op in net.ops:
        inputs = [values[value] for value in op.inputs]
        zeros = [net.quantizations[value].zero for value in op.inputs]
        made = OPERATIONS[op.kind](op, inputs, zeros)
        whole = values.setdefault(op.output, np.zeros(net.images[op.output], np.int64))
        whole[op.first : op.first + len(made)] = made
    return values[net.output].astype(np.int8)


def _rescale(op: Op, sums: np.ndarray, entries: np.ndarray) -> np.ndarray:
    scale = op.rescale
    m, shift = scale.multiplier.astype(np.int64)[entries], scale.shift.astype(np.int64)[entries]
    assert np.abs(sums * 2**scale.up).max(initial=0) < 2**31
    t = (sums * 2**scale.up * m) // 2**16
    y = np.clip(scale.zero + (t + 2 ** (shift - 1)) // 2**shift, scale.low, scale.high)
    return y if scale.table is None else scale.table.astype(np.int64)[y + 128]


def _add(op: Op, a: np.ndarray, b: np.ndarray | int) -> np.ndarray:
    total = op.sum.left * a + op.sum.right * b + op.sum.constant
    assert np.abs(total).max(initial=0) < 2**31
    return np.clip(total // 2**op.sum.shift, op.sum.low, op.sum.high)


def _conv(op: Op, inputs: list[np.ndarray], zeros: list[int]) -> np.ndarray:
    x, window = inputs[0], op.window
    top, left, bottom, right = window.pad
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right)), constant_values=zeros[0])
    rows, columns = op.size
    per_group = op.channels // op.groups
    sums = np.zeros((op.channels, rows, columns), np.int64)
    for o in range(op.channels):
        first = o // per_group * op.weight.shape[1]
        sums[o] = op.bias[o]
        for i, ky, kx in zip(*np.nonzero(op.weight[o]), strict=True):
            y, z = ky * window.dilation[0], kx * window.dilation[1]
            part = padded[first + i, y:, z:][:: window.stride[0], :: window.stride[1]][:rows, :columns]
            sums[o] += int(op.weight[o, i, ky, kx]) * part
    entries = np.arange(op.channels) if len(op.rescale.multiplier) > 1 else np.zeros(op.channels, int)
    found = _rescale(op, sums, np.broadcast_to(entries[:, None, None], sums.shape))
    if op.sum is not None:
        return _add(op, found, inputs[1])
    return found if op.pool is None else _pool(op, [found], [0])


def _pool(op: Op, inputs: list[np.ndarray], zeros: list[int]) -> np.ndarray:
    x, pool = inputs[0], op.pool
    window, (height, width) = pool.window, x.shape[1:]
    out = np.zeros((len(x), *pool.size), np.int64)
    for i in range(pool.size[0]):
        for j in range(pool.size[1]):
            y, z = i * window.stride[0] - window.pad[0], j * window.stride[1] - window.pad[1]
            bottom, right = y + window.kernel[0], z + window.kernel[1]
            part = x[:, max(y, 0) : min(bottom, height), max(z, 0) : min(right, width)]
            if not pool.mean:
                out[:, i, j] = part.max((1, 2))
                continue
            if not window.valid:
                count = (min(bottom, height + window.pad[2]) - y) * (min(right, width + window.pad[3]) - z)
            else:
                count = part.shape[1] * part.shape[2]
            entry = np.full(len(x), count - 1 if pool.each else 0)
            out[:, i, j] = _rescale(op, (part - zeros[0]).sum((1, 2)), entry)
    return out


OPERATIONS = {
    "conv": _conv,
    "pool": _pool,
    "mean": _pool,
    "sum": lambda op, inputs, zeros: _add(op, inputs[0], inputs[1] if len(inputs) > 1 else 0),
    "table": lambda op, inputs, zeros: op.rescale.table.astype(np.int64)[inputs[0] + 128],
}
