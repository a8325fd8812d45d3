"""A self test beside a network's C++: noise that a formula makes, the outputs that it must give, and what compares."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.data import Preprocess
from membound.errors import ModelError
from membound.export.cpp_interface import image_size
from membound.export.cpp_source import float_text, prepare_call, renamed
from membound.run.common import preprocess_of
from membound.run.net import Net

Floats = npt.NDArray[np.float32]
SEEDS = range(1, 9)  # inputs of which that with the most different outputs is taken
MOST = 256  # outputs of an array that are compared: a mask has a hundred thousand
# How far an output may be off, in parts of the largest: CPUs of another kind add in another order. In 8-bit integers
# that can turn a step of an activation.
TOLERANCES = {"float": 1e-3, "int8": 2e-2}

HEADER = """/* A self test that membound wrote: noise that a formula makes, and the outputs that it must give. */
#ifndef NET_TEST_H
#define NET_TEST_H

#include "net.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How far an output may be off, in parts of the largest one. On the kind of CPU that wrote this, all bits are equal;
 * others add in another order. */
#define NET_TEST_TOLERANCE @tolerance@

#define NET_TEST_OUTPUTS @count@ /* how many outputs are compared */

/* Open the network that is compiled in, and run it on the noise. Returns how many outputs are off by more than the
 * tolerance: 0 if all are right; -1 if it cannot be opened or run. `worst`, which may be null, is how far the worst one
 * is off, in parts of the largest. */
NET_API int net_selftest(int threads, double *worst);

#ifdef __cplusplus
}
#endif
#endif
"""
SOURCE = """// A self test: made by membound, not meant to be edited.
#include "net_test.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <new>
#include <vector>

namespace {

struct Wanted {
  size_t array, place;
  float number;
};

const std::array<Wanted, NET_TEST_OUTPUTS> wanted{{
@wanted@}};
const float largest[] = {@largest@};  // of each array of outputs

// A byte for each place.
uint8_t noise(size_t place) {
  uint32_t mixed = static_cast<uint32_t>(place) + @seed@u * 0x9e3779b9u;
  mixed = (mixed ^ mixed >> 16) * 0x7feb352du;
  mixed = (mixed ^ mixed >> 15) * 0x846ca68bu;
  return static_cast<uint8_t>((mixed ^ mixed >> 16) >> 24);
}

int run_on_noise(net* network, std::vector<std::vector<float>>& outputs) {
  for (size_t floats : {@gives@}) outputs.emplace_back(floats);
@run@}

}  // namespace

int net_selftest(int threads, double* worst) {
  net* network = net_open(threads);
  int wrong = 0;
  double most = 0;
  try {
    std::vector<std::vector<float>> outputs;
    if (network == nullptr || wanted.empty() || run_on_noise(network, outputs) != NET_OK) wrong = -1;
    for (size_t i = 0; wrong >= 0 && i < wanted.size(); ++i) {
      const Wanted& each = wanted[i];
      const double found = outputs[each.array][each.place];
      const double off = std::fabs(found - each.number) / largest[each.array];
      if (!(off <= most)) most = off;
      if (!(off <= NET_TEST_TOLERANCE)) ++wrong;  // what is no number is wrong, too
    }
  } catch (const std::bad_alloc&) {
    wrong = -1;
  }
  net_close(network);
  if (worst != nullptr) *worst = most;
  return wrong;
}
"""
RUN_PIXELS = """  std::vector<uint8_t> numbers(@count@);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = noise(i);
  std::vector<float> input(NET_INPUT_FLOATS);
  const int code = @prepare@;
  return code == NET_OK ? net_run(network, input.data(), outputs[0].data()) : code;
"""
RUN_NUMBERS = """  const struct {
    size_t floats;
    unsigned below;  // of whole numbers; 0: numbers from -1 to 1
  } takes[] = {@takes@};
  size_t place = 0;
  std::vector<std::vector<float>> inputs;
  for (const auto& each : takes) {
    inputs.emplace_back(each.floats);
    for (float& number : inputs.back()) {
      const uint8_t byte = noise(place++);
      number = each.below != 0 ? static_cast<float>(byte % each.below) : (static_cast<float>(byte) - 128.0f) / 128.0f;
    }
  }
@call@"""
CALL_ONE = "  return net_run(network, inputs[0].data(), outputs[0].data());\n"
CALL_MANY = """  std::vector<const float*> from;
  std::vector<float*> to;
  for (const auto& each : inputs) from.push_back(each.data());
  for (auto& each : outputs) to.push_back(each.data());
  return net_run(network, from.data(), to.data());
"""


@dataclass(frozen=True)
class _Noise:
    """What the network is run on: pixels, or for each input how many numbers, and which whole ones there are."""

    net: Net
    pixels: Preprocess | None
    below: int  # of whole numbers

    def run(self, seed: int) -> list[Floats]:
        """The outputs for this seed, one array each."""
        if self.pixels is not None:
            shape = self.net.input_shape
            image = len(shape) == 3
            sizes = (*image_size(self.net.model, self.pixels), shape[0]) if image else shape
            numbers = noise(seed, math.prod(sizes)).reshape(1, *sizes)
            given = [self.pixels(np.ascontiguousarray(numbers.transpose(0, 3, 1, 2) if image else numbers))]
        else:
            floats = [math.prod(port.shape) for port in self.net.inputs]
            parts = np.split(noise(seed, sum(floats)), np.cumsum(floats)[:-1])
            given = [
                (part % self.below if port.whole else (part - np.float32(128)) / np.float32(128))
                .reshape(1, *port.shape)
                .astype(np.int64 if port.whole else np.float32)
                for port, part in zip(self.net.inputs, parts, strict=True)
            ]
        found: Any = self.net(*given)
        arrays = found.values() if isinstance(found, dict) else found if isinstance(found, tuple) else [found]
        return [array.ravel() for array in arrays]


def noise(seed: int, count: int) -> npt.NDArray[np.uint8]:
    """A byte for each place, as the C++ makes them."""
    mixed: Any = np.arange(count, dtype=np.uint32) + np.uint32(seed * 0x9E3779B9 % 2**32)
    mixed = (mixed ^ mixed >> np.uint32(16)) * np.uint32(0x7FEB352D)
    mixed = (mixed ^ mixed >> np.uint32(15)) * np.uint32(0x846CA68B)
    found: npt.NDArray[np.uint8] = ((mixed ^ mixed >> np.uint32(16)) >> np.uint32(24)).astype(np.uint8)
    return found


def selftest_files(net: Net, prefix: str) -> dict[str, str]:
    """net_test.h and net_test.cpp, by name: the same for the same network on the same kind of CPU."""
    how = preprocess_of(net.model)
    several = len(net.inputs) > 1 or len(net.outputs) > 1
    pixels = how if how is not None and how.takes == "uint8" and not several else None
    below, seed, outputs = _choose(net, pixels)
    wanted = [
        f"    {{{number}, {place}, {float_text(array[place])}}},\n"
        for number, array in enumerate(outputs)
        for place in range(0, array.size, math.ceil(array.size / MOST))
        if np.isfinite(array[place])
    ]
    if pixels is None:
        takes = [f"{{{math.prod(port.shape)}, {below if port.whole else 0}}}" for port in net.inputs]
        run = RUN_NUMBERS.replace("@takes@", ", ".join(takes))
        run = run.replace("@call@", CALL_MANY if several else CALL_ONE)
    else:
        count, prepare = prepare_call(pixels, net.input_shape)
        run = RUN_PIXELS.replace("@count@", count).replace("@prepare@", prepare)
    parts = {
        "wanted": "".join(wanted),
        "largest": ", ".join(float_text(_largest(array)) for array in outputs),
        "seed": str(seed),
        "gives": ", ".join(f"size_t{{{array.size}}}" for array in outputs),
        "run": run,
        "count": str(len(wanted)),
        "tolerance": str(TOLERANCES[net.engine]),
    }
    made = {f"{prefix}_test.h": HEADER, f"{prefix}_test.cpp": SOURCE}
    for name, text in made.items():
        for part, content in parts.items():
            text = text.replace(f"@{part}@", content)
        made[name] = renamed(text, prefix)
    return made


def _choose(net: Net, pixels: Preprocess | None) -> tuple[int, int, list[Floats]]:
    """Whole numbers are below this, with which seed, and the outputs."""
    rows = [
        net.model.tensors[node.tensors["w"]].matrix.rows
        for node in net.model.graph.nodes
        if node.op == "embedding"
    ]
    for below in (min([*rows, 256]), 1):
        ready = _Noise(net, pixels, below)
        try:
            found = [(seed, ready.run(seed)) for seed in SEEDS]
        except ModelError:  # whole numbers that are added before an embedding reads them
            if below == 1:
                raise
        else:
            seed, outputs = max(found, key=lambda each: _variety(each[1]))
            return below, seed, outputs
    raise AssertionError


def _variety(outputs: Sequence[Floats]) -> float:
    """How different the outputs are, in parts of the largest."""
    if not all(np.isfinite(array).all() for array in outputs):
        return -1.0
    return sum(float(array.std()) / _largest(array) for array in outputs)


def _largest(array: Floats) -> float:
    """At least so much that it divides."""
    return max(float(np.abs(array[np.isfinite(array)]).max(initial=0)), 1e-30)
