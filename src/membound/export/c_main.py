"""main.c beside a network's C: a program for a host, which reads examples from standard input."""

from membound.export.c_readme import example_of, says_class
from membound.micro.plan import MicroPlan

# One program for what is fed as it is (MAIN_OF_BYTES) and one for floats, which net_input makes bytes of.
MAIN_OF_BYTES = r"""/* Reads examples from standard input, and prints the outputs of each and the index of the largest.
 * For a host: leave this file out of firmware, and copy its loop.
 *
 * An example is NET_HEIGHT rows of NET_WIDTH places, each of NET_CHANNELS bytes: ABOUT. */
#include <stdio.h>

#include "net.h"

#ifdef NET_INPUT_SCALE
#error "this main.c feeds bytes as they are, and this network takes floats: make bytes of them with net_input of net.h"
#endif
#if !defined(ARDUINO) && !defined(PLATFORMIO) /* there this folder is a library, and the program is yours */
int main(int argc, char **argv) {
  static net_context context;
  static uint8_t row[NET_WIDTH * NET_CHANNELS];
  const unsigned long size = sizeof row * 1ul * NET_HEIGHT; /* bytes of an example */
  unsigned long came = 0, examples = 0, read;               /* bytes of an example, whole examples, bytes of a row */
  net_start(&context);
  while ((read = (unsigned long)fread(row, 1, sizeof row, stdin)) == sizeof row) {
    came += read;
    if (!net_feed_row(&context, row, 1, NET_CHANNELS)) continue;
    for (uint32_t i = 0; i < NET_OUTPUTS; i++) printf("%d ", net_output(&context, i));
    printf("-> %u\n", (unsigned)net_best(&context));
    net_start(&context);
    came = 0;
    examples++;
  }
  came += read;
  if (came == 0 && examples > 0) return 0;
  if (came == 0)
    fprintf(stderr, "usage: %s < FILE, of %lu bytes for each example\n", argc > 0 ? argv[0] : "main", size);
  if (came > 0) fprintf(stderr, "short input: an example has %lu bytes, %lu came\n", size, came);
  return 1;
}
#endif
"""
MAIN_OF_NUMBERS = (
    MAIN_OF_BYTES.replace("each of NET_CHANNELS bytes: ABOUT.", "each of NET_CHANNELS float32 numbers: those of the\n"
    " * training data, before any preparation. net_input makes the byte that the network is fed with of each.")
    .replace("#ifdef NET_INPUT_SCALE", "#ifndef NET_INPUT_SCALE")
    .replace(
        "feeds bytes as they are, and this network takes floats: make bytes of them with net_input of net.h",
        "feeds floats, and this network takes bytes: feed them as they are",
    )
    .replace("  static uint8_t row", "  static float numbers[NET_WIDTH * NET_CHANNELS];\n  static uint8_t row")
    .replace("sizeof row", "sizeof numbers")
    .replace("fread(row", "fread(numbers")
    .replace(
        "    if (!net_feed_row",
        "    for (uint32_t i = 0; i < NET_WIDTH * NET_CHANNELS; i++) "
        "row[i] = net_input(numbers[i], i % NET_CHANNELS);\n"
        "    if (!net_feed_row",
    )
)  # fmt: skip
# The same where there is net_input_fixed: with --counts it reads integers.
MAIN_OF_COUNTS = (
    MAIN_OF_NUMBERS.replace("is fed with of each.", "is fed with of each.\n"
    " * main --counts reads int32 instead, which count NET_INPUT_UNIT: net_input_fixed makes the byte.")
    .replace("#include <stdio.h>\n", "#include <stdio.h>\n#include <string.h>\n")
    .replace(
        "  static uint8_t row",
        "  static int32_t counts[NET_WIDTH * NET_CHANNELS]; /* as many bytes as the floats */\n"
        '  const int are_counts = argc > 1 && strcmp(argv[1], "--counts") == 0;\n'
        "  if (argc > 1 && !are_counts) {\n"
        '    fprintf(stderr, "usage: %s [--counts] < FILE\\n", argv[0]);\n'
        "    return 1;\n"
        "  }\n"
        "  void *const to = are_counts ? (void *)counts : (void *)numbers;\n"
        "  static uint8_t row",
    )
    .replace("fread(numbers", "fread(to")
    .replace(
        "row[i] = net_input(numbers[i], i % NET_CHANNELS);\n",
        "{\n      const uint32_t channel = i % NET_CHANNELS;\n"
        "      row[i] = are_counts ? net_input_fixed(counts[i], channel) : net_input(numbers[i], channel);\n    }\n",
    )
    .replace("usage: %s < FILE", "usage: %s [--counts] < FILE")
)  # fmt: skip
ABOUT = {
    "image": "pixels from 0 to 255,\n * as a camera gives them",
    "example": "those of the\n * training data, the channels of a place side by side",
}


_CLASSES = (
    "prints the outputs of each and the index of the largest.",
    r"""    for (uint32_t i = 0; i < NET_OUTPUTS; i++) printf("%d ", net_output(&context, i));
    printf("-> %u\n", (unsigned)net_best(&context));
""",
)
_NUMBERS = (
    "prints the outputs of each and the numbers that they stand for.",
    r"""    for (uint32_t i = 0; i < NET_OUTPUTS; i++) printf("%d ", net_output(&context, i));
    printf("->");
    for (uint32_t i = 0; i < NET_OUTPUTS; i++)
      printf(" %g", (double)NET_OUTPUT_SCALE * (net_output(&context, i) - NET_OUTPUT_ZERO));
    printf("\n");
""",
)


def main_text(plan: MicroPlan, classes: list[str] | None, has_units: bool = False) -> str:
    """The program for what a network takes; where outputs are no scores of classes, it prints their numbers.

    With `has_units`, there is net_input_fixed, and it can read integers, too.
    """
    text = MAIN_OF_COUNTS if has_units else MAIN_OF_NUMBERS
    if plan.net.takes_pixels:
        text = MAIN_OF_BYTES.replace("ABOUT", ABOUT[example_of(plan)])
    if not says_class(plan, classes):
        for of_class, of_numbers in zip(_CLASSES, _NUMBERS, strict=True):
            text = text.replace(of_class, of_numbers)
    return text
