/* A network in bare-metal firmware: an interrupt brings rows of a picture, the main loop feeds them to the network.
 *
 * net.h and the other files come from `membound export FILE --c firmware`. What board.h declares is yours to write for
 * your chip; board.c has it for an emulated Cortex-M4, so that this runs without a board (docs/MICRO.md). */
#include "board.h"
#include "net.h"
#include "net_test.h"

enum { ROWS = 2 }; /* one is filled while the other is read */

static net_context context; /* all RAM that the network needs, but for its stack */
static uint8_t rows[ROWS][NET_WIDTH * NET_CHANNELS];
static volatile uint32_t filled, used; /* rows since the start: what the interrupt has written, what main has read */

/* The interrupt of a camera or of its DMA; here a timer, and the picture is a white bar. It is short: the network runs
 * in main, or in a task of low priority, never in an interrupt. */
void board_interrupt(void) {
  uint32_t y, x, c;
  uint8_t *row;
  if (filled - used == ROWS) return; /* main is behind: a camera would have to wait, or the picture is lost */
  row = rows[filled % ROWS];
  y = filled % NET_HEIGHT;
  for (x = 0; x < NET_WIDTH; x++) {
    const int inside = x >= NET_WIDTH * 4u / 9u && x < NET_WIDTH * 5u / 9u && y >= NET_HEIGHT / 7u &&
                       y < NET_HEIGHT * 6u / 7u;
    for (c = 0; c < NET_CHANNELS; c++) row[x * NET_CHANNELS + c] = inside ? 255 : 0;
  }
  filled = filled + 1u;
}

int main(void) {
  int done;
  uint32_t i, begin, ticks, longest = 0;
  board_start();
  board_print("self test: ", net_selftest(&context), " outputs wrong"); /* 0 on a board that computes right */
  net_start(&context); /* before every picture */
  do {
    while (filled == used) board_sleep();
    begin = board_ticks();
    done = net_feed_row(&context, rows[used % ROWS], 1, NET_CHANNELS);
    ticks = board_ticks() - begin; /* interrupts that came meanwhile included */
    if (ticks > longest) longest = ticks;
    used = used + 1u;
  } while (!done);
  for (i = 0; i < NET_OUTPUTS; i++) board_print("output ", net_output(&context, i), "");
  board_print("class ", (int32_t)net_best(&context), "");
  board_print("longest call: ", (int32_t)longest, " ticks of " BOARD_TICK); /* which other tasks have to wait for */
  board_stop();
  return 0;
}
