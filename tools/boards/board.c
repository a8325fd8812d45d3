/* A board without an operating system: starts, runs the network on the images that were compiled in, and prints by
 * semihosting, through the emulator. No part of libc is linked, unless a peer asks for its memcpy. */
#include "images.h"
#include "net.h"

#ifndef HAS_LIBC
void *memcpy(void *to, const void *from, __SIZE_TYPE__ n) {
  for (__SIZE_TYPE__ i = 0; i < n; i++) ((char *)to)[i] = ((const char *)from)[i];
  return to;
}

void *memset(void *to, int value, __SIZE_TYPE__ n) {
  for (__SIZE_TYPE__ i = 0; i < n; i++) ((char *)to)[i] = (char)value;
  return to;
}
#endif

#if defined(__arm__)
extern uint32_t stack_top[];
void reset(void);
__attribute__((section(".vectors"), used)) static const void *vectors[16] = {stack_top, (void *)reset};

static void host(int operation, const void *argument) {
  register int r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

/* An instruction takes a nanosecond. The board's first timer counts down 25 million times a second: 40 instructions a
 * tick. Where it is elsewhere, the processor's own counts, up to 2^24 ticks: 32 million times a second, which are 31.25
 * instructions a tick, or as many quarters of one as TICK_QUARTERS says. */
#ifdef HAS_TIMER
static volatile uint32_t *const timer = (volatile uint32_t *)0x40000000;
static void start_count(void) { timer[0] = 0, timer[1] = 0xFFFFFFFF, timer[2] = 0xFFFFFFFF, timer[0] = 1; }
static uint32_t count(void) { return 40u * (0xFFFFFFFF - timer[1]); }
#else
static volatile uint32_t *const timer = (volatile uint32_t *)0xE000E010;
static void start_count(void) { timer[0] = 0, timer[1] = 0xFFFFFF, timer[2] = 0, timer[0] = 5; }
#ifndef TICK_QUARTERS
#define TICK_QUARTERS 125u
#endif
static uint32_t count(void) { return (0xFFFFFF - timer[2]) * TICK_QUARTERS / 4u; }
#endif
#else
static void host(int operation, const void *argument) {
  register long a0 __asm__("a0") = operation;
  register const void *a1 __asm__("a1") = argument;
  __asm__ volatile(
      ".balign 16\n.option push\n.option norvc\nslli x0, x0, 0x1f\nebreak\nsrai x0, x0, 7\n.option pop"
      : "+r"(a0)
      : "r"(a1)
      : "memory");
}

static uint32_t first;
static uint32_t instructions(void) {
  uint32_t n;
  __asm__ volatile("csrr %0, minstret" : "=r"(n));
  return n;
}
static void start_count(void) { first = instructions(); }
static uint32_t count(void) { return instructions() - first; }
#endif

static void print_number(int32_t n, char end) {
  char text[16];
  int at = 15, negative = n < 0;
  uint32_t rest = negative ? 0u - (uint32_t)n : (uint32_t)n;
  text[at--] = 0;
  text[at--] = end;
  do text[at--] = (char)('0' + rest % 10u);
  while ((rest /= 10u) != 0u);
  if (negative) text[at--] = '-';
  host(4, text + at + 1);
}

static net_context context;

/* What the stack has where nothing was written, so that its depth can be told. */
#ifndef PAINTED
#define PAINTED 512
#endif
static uint32_t depth(const volatile uint32_t *stack) {
  uint32_t untouched = 0;
  while (untouched < PAINTED && stack[untouched] == 0xA5A5A5A5u) untouched++;
  return 4u * (PAINTED - untouched);
}

static __attribute__((noinline)) void paint(void) {
  volatile uint32_t stack[PAINTED];
  for (int i = 0; i < PAINTED; i++) stack[i] = 0xA5A5A5A5u;
}

static __attribute__((noinline)) uint32_t measure(void) {
  volatile uint32_t stack[PAINTED];
  return depth(stack);
}

#ifdef LONGEST_ROW
static uint32_t longest;
#endif

static __attribute__((noinline)) void run_image(const uint8_t *image) {
  net_start(&context);
  for (uint32_t y = 0; y < NET_HEIGHT; y++) {
#ifdef LONGEST_ROW
    start_count();
#endif
    net_feed_row(&context, image + y * NET_WIDTH * NET_CHANNELS, 1, NET_CHANNELS);
#ifdef LONGEST_ROW
    if (count() > longest) longest = count();
#endif
  }
}

int main(void) {
  uint32_t took = 0;
  paint();
  for (uint32_t n = 0; n < IMAGES; n++) {
    start_count();
    run_image(images + n * NET_HEIGHT * NET_WIDTH * NET_CHANNELS);
#ifdef LONGEST_ROW /* not of the image */
    took = longest;
#else
    took = count();
#endif
    if (n == 0) {
      uint32_t stack = measure();
      print_number((int32_t)stack, '\n');
    }
    for (uint32_t i = 0; i < NET_OUTPUTS; i++) print_number(net_output(&context, i), i + 1 < NET_OUTPUTS ? ' ' : '\n');
  }
  print_number((int32_t)took, '\n');
  host(0x18, (void *)0x20026); /* the program is done */
  for (;;) {
  }
}

#if defined(__arm__)
void reset(void) {
  extern uint32_t bss_begin[], bss_end[];
#ifdef __ARM_FEATURE_MVE
  *(volatile uint32_t *)0xE000ED88 |= 0xF << 20; /* vector instructions are off until they are allowed */
  __asm__ volatile("dsb\nisb");
#endif
  for (uint32_t *p = bss_begin; p < bss_end; p++) *p = 0;
  main();
}
#else
__attribute__((naked, section(".vectors"))) void reset(void) {
  __asm__ volatile("la sp, stack_top\nj main");
}
#endif
