"""Random tensors through the projection, by torch and by every instruction set, against a stable sort.

    python fuzz/projection.py --cases 1000000

Kinds: random bits of every exponent, denormals, the largest floats, normal values, few distinct values, all equal,
mostly zeros of both signs. Most are tiny, every thousandth has up to a million weights. Counts run from 0 to beyond the
size. All comparisons are of bits.
"""

import argparse

import numpy as np
import torch

from membound import _core
from membound.train.projection import project_torch_

KINDS = ("any bits", "denormal", "huge", "normal", "few values", "all equal", "mostly zero")


def tensor(kind: str, size: int, rng: np.random.Generator) -> np.ndarray:
    if kind == "normal":
        return rng.standard_normal(size, np.float32)
    if kind == "few values":
        return rng.integers(-3, 4, size).astype(np.float32)
    if kind == "all equal":
        return np.full(size, rng.standard_normal(), np.float32)
    if kind == "mostly zero":
        values = rng.standard_normal(size, np.float32) * (rng.random(size) < 0.1)
        return values * np.where(rng.random(size) < 0.5, 1, -1).astype(np.float32)
    exponents = {"any bits": (0, 255), "denormal": (0, 1), "huge": (250, 255)}[kind]
    bits = rng.integers(0, 2**23, size, np.uint32) | (rng.integers(*exponents, size, np.uint32) << 23)
    return (bits | (rng.integers(0, 2, size, np.uint32) << 31)).view(np.float32)


def expected(values: np.ndarray, count: int) -> np.ndarray:
    bits = values.view(np.uint32)
    keys = (bits & 0x7FFF_FFFF).astype(np.int64)
    kept = np.argsort(-keys, kind="stable")[:count]
    result = np.zeros_like(bits)
    result[kept] = bits[kept]
    result[keys == 0] = 0
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(options.seed)
    ways = ["torch", *_core.isas()]
    weights = 0
    for case in range(options.cases):
        most = 10 ** int(rng.integers(3, 7)) if case % 1000 == 0 else 48
        size = int(rng.integers(1, most))
        values = tensor(KINDS[case % len(KINDS)], size, rng)
        count = int(rng.integers(0, size + 2))
        want = expected(values, count)
        weights += size
        for way in ways:
            got = values.copy()
            if way == "torch":
                project_torch_(torch.from_numpy(got), count)
            else:
                _core.project(got, count, way, 1 + case % 2)
            assert np.array_equal(got.view(np.uint32), want), f"{way}: case {case} of seed {options.seed}"
    print(f"{options.cases:,} tensors, {weights:,} weights, by {', '.join(ways)}: none differs")


if __name__ == "__main__":
    main()
