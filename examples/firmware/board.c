/* board.h for two boards that `qemu-system-arm` emulates: mps2-an386, a Cortex-M4 (link with board.ld), and mps2-an505, a
 * Cortex-M33 (board_m33.ld): vectors, reset, a timer, a serial port. board_riscv.c is for RISC-V.
 * On your chip, the vendor's startup code and drivers stand here. */
#include "board.h"

extern uint32_t stack_top[], data_begin[], data_end[], data_in_flash[], bss_begin[], bss_end[];
int main(void);
void reset(void);

/* Where the stack begins, then handlers: of reset, the first, and of SysTick, exception 15. */
__attribute__((section(".vectors"), used)) static const struct {
  uint32_t *stack;
  void (*handlers[15])(void);
} vectors = {stack_top, {[0] = reset, [14] = board_interrupt}};

#define TIMER ((volatile uint32_t *)0xE000E010) /* SysTick, which every Cortex-M4 and M33 has */
#ifdef __ARM_ARCH_8M_MAIN__ /* mps2-an505, as software in the secure state sees it */
#define CLOCK ((volatile uint32_t *)0x50000000)  /* a timer of this board, 20 MHz */
#define SERIAL ((volatile uint32_t *)0x50200000) /* of this board */
#define MEGAHERTZ 20u
#else /* mps2-an386 */
#define CLOCK ((volatile uint32_t *)0x40000000)  /* a timer of this board, 25 MHz */
#define SERIAL ((volatile uint32_t *)0x40004000) /* of this board */
#define MEGAHERTZ 25u
#endif

#ifndef BOARD_ROW_TICKS
#define BOARD_ROW_TICKS (10000u * MEGAHERTZ) /* from one interrupt to the next: 10 ms; at most 2^24 */
#endif

void reset(void) {
  uint32_t *to, *from = data_in_flash;
#ifdef __ARM_FP /* compiled for an FPU: it is off until it is allowed (CPACR), and a float instruction locks up */
  *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20;
  __asm__ volatile("dsb\nisb" ::: "memory");
#endif
  for (to = data_begin; to < data_end; to++) *to = *from++;
  for (to = bss_begin; to < bss_end; to++) *to = 0;
  main();
}

void board_start(void) {
  SERIAL[4] = 16; /* the divider of the baud rate, */
  SERIAL[2] = 1;  /* and it sends */
  CLOCK[2] = CLOCK[1] = 0xFFFFFFFFu; /* it counts down, and begins again */
  CLOCK[0] = 1;
  TIMER[1] = BOARD_ROW_TICKS - 1u;
  TIMER[0] = 7;
}

/* "memory": the compiler moves no read or write across. isb: an interrupt that waits runs before what comes next. */
void board_hold(void) { __asm__ volatile("cpsid i" ::: "memory"); }

void board_release(void) { __asm__ volatile("cpsie i\nisb" ::: "memory"); }

void board_sleep(void) { __asm__ volatile("dsb\nwfi" ::: "memory"); }

/* dmb: nor does the processor, which matters for what DMA writes. Where a data cache is on, as on a Cortex-M7, rows that
 * DMA writes have to be invalidated there, too, before main reads them, or lie in memory that is not cached. */
void board_barrier(void) { __asm__ volatile("dmb" ::: "memory"); }

uint32_t board_ticks(void) { return ~CLOCK[1]; }

static void send(char letter) { SERIAL[0] = (uint32_t)letter; }

#include "board_print.h" /* by send() */

/* Ends the emulator (semihosting): firmware would go on. */
void board_stop(void) {
  register int operation __asm__("r0") = 0x18;
  register int reason __asm__("r1") = 0x20026;
  __asm__ volatile("bkpt 0xab" : : "r"(operation), "r"(reason) : "memory");
  for (;;) {
  }
}
