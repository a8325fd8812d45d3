"""A self test beside a network's C: one input, the outputs that it must give, and a function that compares."""

from hashlib import shake_256

import numpy as np
import numpy.typing as npt

from membound.export.c_source import array_text
from membound.micro.plan import MicroPlan
from membound.run.micro_net import core_of

UNTESTED = """\
/* It feeds bytes, so it does not test how your readings become bytes: a wrong unit or order of channels passes. To
 * check that, feed a recorded window through your own code, and compare net_output with
 * net.integers(net.preprocess(window)) in Python, where net = membound.load(FILE, engine="micro"). */
"""
CANDIDATES = 8  # inputs of which that with the most different outputs is taken
FIRST_LINE = "/* A self test that membound wrote: one input, and the outputs that it must give. */"
HEADER = f"""{FIRST_LINE}
#ifndef NET_TEST_H
#define NET_TEST_H

#include "net.h"

#ifdef __cplusplus
extern "C" {{
#endif

/* Noise, row by row, the NET_CHANNELS bytes of a place side by side. */
extern const uint8_t net_test_input[NET_HEIGHT * NET_WIDTH * NET_CHANNELS];

/* What net_output gives for it. */
extern const int8_t net_test_outputs[NET_OUTPUTS];

/* Run the network on net_test_input, in a context that nothing else is using. Returns how many outputs are wrong:
 * 0 if all are right, NET_OUTPUTS if the last row did not complete an input. */
int net_selftest(net_context *context);

#ifdef __cplusplus
}}
#endif
#endif
"""
TEST_FUNCTIONS = r"""
int net_selftest(net_context *context) {
  uint32_t y, index;
  int done = 0, wrong = 0;
  net_start(context);
  for (y = 0; y < NET_HEIGHT; y++)
    done = net_feed_row(context, net_test_input + y * NET_WIDTH * NET_CHANNELS, 1, NET_CHANNELS);
  if (!done) return NET_OUTPUTS;
  for (index = 0; index < NET_OUTPUTS; index++) wrong += net_output(context, index) != net_test_outputs[index];
  return wrong;
}

#ifdef NET_TEST_MAIN /* a program of its own, for a host */
#include <stdio.h>

int main(void) {
  static net_context context;
  const int wrong = net_selftest(&context);
  printf("self test: %d of %d outputs are wrong\n", wrong, NET_OUTPUTS);
  return wrong != 0;
}
#endif
"""


def selftest_files(plan: MicroPlan) -> dict[str, str]:
    """net_test.h and net_test.c, by name: the same for the same plan."""
    given, outputs = golden(plan)
    arrays = array_text("net_test_input", given, "const") + array_text("net_test_outputs", outputs, "const")
    untested = "" if plan.net.takes_pixels else UNTESTED
    return {
        "net_test.h": HEADER,
        "net_test.c": f'{FIRST_LINE}\n{untested}#include "net_test.h"\n\n{arrays}{TEST_FUNCTIONS}',
    }


def golden(plan: MicroPlan) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int8]]:
    """Bytes as a device is fed with them, row by row, and the outputs of the same C that it runs."""
    channels, height, width = plan.net.images[0]
    count = channels * height * width
    noise = np.frombuffer(shake_256(b"membound").digest(CANDIDATES * count), np.uint8)
    given = noise.reshape(CANDIDATES, height, width, channels)
    images = np.ascontiguousarray(given.transpose(0, 3, 1, 2)).reshape(CANDIDATES, count)
    outputs = np.empty((CANDIDATES, int(np.prod(plan.net.images[plan.net.output]))), np.int8)
    core_of(plan).run(images, outputs, plan.net.takes_pixels)
    best = max(range(CANDIDATES), key=lambda each: len(np.unique(outputs[each])))
    return given[best].reshape(-1), outputs[best]
