/* board.h for the 32-bit RISC-V board that `qemu-system-riscv32 -M virt` emulates: reset, a timer, a serial port.
 * On your chip, the vendor's startup code and drivers stand here. */
#include <stddef.h>

#include "board.h"

extern uint32_t data_begin[], data_end[], data_in_flash[], bss_begin[], bss_end[];
int main(void);
void reset(void);
void begin(void);

#define SERIAL ((volatile uint8_t *)0x10000000)   /* a 16550 */
#define STOP ((volatile uint32_t *)0x00100000)    /* ends the emulator */
#define COMPARE ((volatile uint32_t *)0x02004000) /* mtimecmp: the timer interrupts when mtime reaches it */
#define CLOCK ((volatile uint32_t *)0x0200BFF8)   /* mtime, 10 MHz */

#ifndef BOARD_ROW_TICKS
#define BOARD_ROW_TICKS 100000u /* of mtime, from one interrupt to the next: 10 ms */
#endif

#ifndef __PICOLIBC__ /* Debian's compiler brings no C library: these two are all that the network needs of one */
void *memcpy(void *to, const void *from, size_t n) {
  volatile uint8_t *end = to; /* volatile: or the compiler makes a call of memcpy of the loop */
  for (size_t i = 0; i < n; i++) end[i] = ((const uint8_t *)from)[i];
  return to;
}

void *memset(void *to, int value, size_t n) {
  volatile uint8_t *end = to;
  for (size_t i = 0; i < n; i++) end[i] = (uint8_t)value;
  return to;
}
#endif

/* Where the processor begins: there is no stack yet, so this is no C. */
__attribute__((naked, section(".vectors"))) void reset(void) { __asm__ volatile("la sp, stack_top\nj begin"); }

static void wait_for_next(uint32_t from) {
  COMPARE[1] = 0xFFFFFFFFu; /* no interrupt while the halves do not belong together */
  COMPARE[0] = from + BOARD_ROW_TICKS;
  COMPARE[1] = 0; /* it runs for seven minutes: then the high half of mtime matters */
}

__attribute__((interrupt("machine"), aligned(4))) static void on_timer(void) {
  wait_for_next(COMPARE[0]);
  board_interrupt();
}

void begin(void) {
  uint32_t *to, *from = data_in_flash;
  for (to = data_begin; to < data_end; to++) *to = *from++;
  for (to = bss_begin; to < bss_end; to++) *to = 0;
  __asm__ volatile("csrw mtvec, %0" : : "r"(on_timer));
  main();
}

void board_start(void) {
  wait_for_next(CLOCK[0]);
  __asm__ volatile("csrs mie, %0" : : "r"(1 << 7)); /* the timer's interrupt */
  board_release();
}

/* "memory": the compiler moves no read or write across. */
void board_hold(void) { __asm__ volatile("csrci mstatus, 8" ::: "memory"); }

void board_release(void) { __asm__ volatile("csrsi mstatus, 8" ::: "memory"); }

void board_sleep(void) { __asm__ volatile("wfi" ::: "memory"); } /* wakes for an interrupt that is held back, too */

void board_barrier(void) { __asm__ volatile("fence" ::: "memory"); }

uint32_t board_ticks(void) {
  uint32_t count;
  __asm__ volatile("csrr %0, minstret" : "=r"(count));
  return count;
}

static void send(char letter) { SERIAL[0] = (uint8_t)letter; }

#include "board_print.h" /* by send() */

void board_stop(void) {
  *STOP = 0x5555u;
  for (;;) {
  }
}
