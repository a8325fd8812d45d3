/* A network in bare-metal firmware: an interrupt brings rows of pictures, or of a sensor's numbers, and the main loop
 * feeds them to the network.
 *
 * net.h and the other files come from `membound export FILE --c firmware`. What board.h declares is yours to write for
 * your chip; board.c and board_riscv.c have it for emulated boards, so that this runs without one
 * (docs/MICRO_REFERENCE.md). */
#include "board.h"
#include "net.h"
#include "net_test.h"

/* How many rows wait at most. While the longest call of net_feed_row runs, rows go on coming: if pictures are lost,
 * divide the time of that call by the time between two rows, and add 1. */
#ifndef ROWS
#define ROWS 2
#endif
enum { PICTURES = 2, MOST_LOST = 5 }; /* after which this example ends; firmware goes on */

#if defined(NET_INPUT_UNIT) /* of a network that takes numbers: integers, which count this unit */
typedef int32_t sample;
#define WHITE 100
#define BLACK 0
#elif defined(NET_INPUT_SCALE) /* without --input-unit: as in training, before any preparation */
typedef float sample;
#define WHITE 1.0f
#define BLACK 0.0f
#else
typedef uint8_t sample;
#define WHITE 255
#define BLACK 0
#endif

typedef struct {
  uint32_t y; /* its place in the picture */
  sample samples[NET_WIDTH * NET_CHANNELS];
} camera_row;

static net_context context; /* all RAM that the network needs, but for its stack */
static camera_row rows[ROWS];

/* Rows that the interrupt has written, and rows that main has read, since the start. Each has one writer, so no update
 * is lost, and a Cortex-M reads and writes 32 bits at once. volatile orders these two alone: the samples are not
 * volatile, so a compiler may move their loads and stores across, but for board_barrier(). */
static volatile uint32_t filled, used, lost;

/* The interrupt of a camera, a sensor or its DMA; here a timer, and every picture is a white bar. It is short: the
 * network runs in main, or in a task of low priority, never in an interrupt.
 *
 * A camera does not wait. If main is behind, a row has nowhere to go; then the rest of its picture is dropped, too,
 * for a network that missed a row would compute on a picture with rows missing. */
void board_interrupt(void) {
  static uint32_t y;         /* of the row that is coming */
  static int is_kept = 1;    /* no row of this picture was dropped */
  const uint32_t here = y;
  y = here + 1u < NET_HEIGHT ? here + 1u : 0u;
  if (here == 0u) is_kept = 1;
  if (is_kept && filled - used == ROWS) {
    is_kept = 0;
    lost = lost + 1u;
  }
  if (is_kept) {
    camera_row *row = &rows[filled % ROWS];
    uint32_t x, c;
    row->y = here;
    for (x = 0; x < NET_WIDTH; x++) { /* counted from 1, so that no comparison is always true where a side is 1 */
      const int inside = x + 1u > NET_WIDTH * 4u / 9u && x + 1u <= NET_WIDTH * 5u / 9u && here + 1u > NET_HEIGHT / 7u &&
                         here + 1u <= NET_HEIGHT * 6u / 7u;
      for (c = 0; c < NET_CHANNELS; c++) row->samples[x * NET_CHANNELS + c] = inside ? WHITE : BLACK;
    }
    board_barrier(); /* the row is in memory before main is told of it */
    filled = filled + 1u;
  }
}

/* Sleep until there is a row. If interrupts were enabled here, one could arrive between the check and the sleep, and its
 * row would wait until the next interrupt, or forever. So they are held back from the check on. A Cortex-M wakes for an
 * interrupt that is held back, and runs it as soon as it may. */
static const camera_row *next_row(void) {
  board_hold();
  while (filled == used) {
    board_sleep();
    board_release(); /* the interrupt runs here */
    board_hold();
  }
  board_release();
  board_barrier(); /* no sample is read before the test */
  return &rows[used % ROWS];
}

/* A row as the network is fed with: numbers become bytes here, so that the interrupt stays short. */
static const uint8_t *bytes_of(const camera_row *row) {
#ifdef NET_INPUT_SCALE
  static uint8_t bytes[NET_WIDTH * NET_CHANNELS];
  uint32_t i;
  for (i = 0; i < NET_WIDTH * NET_CHANNELS; i++) {
#ifdef NET_INPUT_UNIT
    bytes[i] = net_input_fixed(row->samples[i], i % NET_CHANNELS);
#else
    bytes[i] = net_input(row->samples[i], i % NET_CHANNELS);
#endif
  }
  return bytes;
#else
  return row->samples;
#endif
}

/* The class; of a network without classes, as in regression, what each output stands for. */
static void print_result(void) {
  uint32_t i;
#if NET_CLASSES
  for (i = 0; i < NET_OUTPUTS; i++) board_print("output ", net_output(&context, i), "");
  board_print("class ", (int32_t)net_best(&context), "");
#else
  /* Thousandths of NET_OUTPUT_SCALE, times 2^16: the compiler computes it, so that none of this takes floating point. */
  static const int64_t scale = (int64_t)(65536.0f * 1000.0f * NET_OUTPUT_SCALE);
  for (i = 0; i < NET_OUTPUTS; i++) {
    const int64_t number = scale * (net_output(&context, i) - NET_OUTPUT_ZERO);
    board_print("number: ", (int32_t)(number >> 16), " thousandths"); /* rounded down */
  }
#endif
}

int main(void) {
  uint32_t begin, ticks, sum = 0, longest = 0, whole = 0, pictures = 0;
  /* 0 on a board that computes right. It uses the context, so it comes before the first picture. */
  const int wrong = net_selftest(&context);
  board_start();
  board_print("self test: ", wrong, " outputs wrong");
  while (pictures < PICTURES && lost < MOST_LOST) {
    const camera_row *row = next_row();
    const uint8_t *bytes = bytes_of(row);
    int done;
    if (row->y == 0u) { /* also where the picture before was dropped half way */
      net_start(&context);
      sum = 0;
    }
    begin = board_ticks();
    done = net_feed_row(&context, bytes, 1, NET_CHANNELS);
    ticks = board_ticks() - begin; /* interrupts that came meanwhile included */
    if (ticks > longest) longest = ticks;
    sum += ticks; /* of all calls for this picture; the waits between them are not in it */
    board_barrier(); /* the row has been read before the interrupt may write there */
    used = used + 1u;
    if (!done) continue;
    print_result();
    whole = sum;
    pictures++;
  }
  board_print("longest call: ", (int32_t)longest, " ticks of " BOARD_TICK); /* which other tasks have to wait for */
  board_print("whole input: ", (int32_t)whole, " ticks of " BOARD_TICK); /* of the last picture */
  board_print("pictures lost: ", (int32_t)lost, "");
  board_stop();
  return 0;
}
