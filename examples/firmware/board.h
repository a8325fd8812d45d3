/* What main.c needs of a board. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

void board_interrupt(void); /* in main.c; the board calls it, again and again */
void board_start(void);     /* start the clock and the interrupt */
void board_hold(void);      /* hold interrupts back: they wait */
void board_release(void);   /* let those run that wait, at once */
void board_sleep(void);     /* until an interrupt comes, one that is held back included */
void board_barrier(void);   /* all reads and writes before it come before those after it */
uint32_t board_ticks(void); /* of a clock that runs on: on a chip, DWT->CYCCNT, which counts cycles */
void board_print(const char *before, int32_t number, const char *after); /* in a line */
void board_stop(void);

/* In qemu with -icount shift=0, an instruction takes 1 ns. */
#if defined(__riscv)
#define BOARD_TICK "1 ns" /* board_riscv.c counts instructions */
#elif defined(__ARM_ARCH_8M_MAIN__)
#define BOARD_TICK "50 ns" /* at 20 MHz */
#else
#define BOARD_TICK "40 ns" /* at 25 MHz */
#endif

#endif
