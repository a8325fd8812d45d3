/* Inner loops in assembly for Thumb-2, where compilers lack registers: the same bits. -DMB_PLAIN leaves them out. */
#ifndef MEMBOUND_MICRO_THUMB_H
#define MEMBOUND_MICRO_THUMB_H

#include "membound_micro_inside.h"

#if defined(__thumb2__) && !defined(MB_PLAIN) && !defined(__OPTIMIZE_SIZE__)
#define MB_ASSEMBLY
#endif

/* A stream of values that is being read. In assembly the first ones are in registers from r3 on. */
typedef struct {
  uint32_t bit; /* of the stream, behind the next value */
#if defined(MB_ASSEMBLY)
  uint32_t place; /* where the next value is applied, times 256 */
#endif
  uint32_t base; /* where the channel behind the last is read, times 256; 0: not known, or a row of padding */
#if defined(MB_ASSEMBLY)
  uint32_t half; /* of the way from channel to channel, times 256 */
  uint32_t k;    /* low bits of a distance with the bit 1 before them; and 256 times the values that are decoded, less 1 */
  uint32_t low_mask, code_mask, size;
  const uint8_t *stream;
  const int8_t *palette;
  uint32_t *to;
#endif
  uint32_t value;   /* the next one, a byte */
  uint32_t columns; /* of the kernel, behind the present one */
#if defined(MB_ASSEMBLY)
  uint32_t row, column; /* times 256: the way through all channels, and to the next column */
#endif
} mb_values;

#if defined(MB_ASSEMBLY)
#define MB_UNUSED __attribute__((unused))
#if !defined(__ARM_FEATURE_MVE) /* it has vectors: membound_micro_mve.h */
/* 8 sums by all entries: what compilers make of it in C needs a register too many. r4 to r11 have the sums, r12 the
 * weight, lr its place, r0 a number. */
#define MB_ENTRY "ldr r12, [r2], #4\n add lr, r1, r12, lsr #8\n sxtb r12, r12\n"
#define MB_PRODUCT(sum, place) "ldrsb r0, [lr, #" place "]\n mla " sum ", r12, r0, " sum "\n"
#define MB_PRODUCTS(p1, p2, p3, p4, p5, p6, p7)                                                               \
  MB_ENTRY MB_PRODUCT("r4", "0") MB_PRODUCT("r5", p1) MB_PRODUCT("r6", p2) MB_PRODUCT("r7", p3)               \
      MB_PRODUCT("r8", p4) MB_PRODUCT("r9", p5) MB_PRODUCT("r10", p6) MB_PRODUCT("r11", p7)
#define MB_EIGHT(products)                                                                    \
  __asm__("push {r0, r3-r11, lr}\n ldmia r0, {r4-r11}\n sub r0, r3, r2\n lsls r0, r0, #28\n bmi 2f\n 1:\n"     \
          products "2:\n" products MB_END "cmp r2, r3\n bne 1b\n"                                     \
          "pop {r0, r3}\n stmia r0, {r4-r11}\n pop {r4-r11, pc}\n")
#if defined(__ARM_FEATURE_DSP)
/* Four numbers at once, as two pairs of halves; r3 is a number, too. */
#define MB_PAIRS                                                                                                       \
  MB_ENTRY "ldr r0, [lr]\n ldr lr, [lr, #4]\n sxtb16 r3, r0\n sxtb16 r0, r0, ror #8\n"                              \
           "smlabb r4, r12, r3, r4\n smlabb r5, r12, r0, r5\n smlabt r6, r12, r3, r6\n smlabt r7, r12, r0, r7\n"    \
           "sxtb16 r3, lr\n sxtb16 lr, lr, ror #8\n"                                                                  \
           "smlabb r8, r12, r3, r8\n smlabb r9, r12, lr, r9\n smlabt r10, r12, r3, r10\n smlabt r11, r12, lr, r11\n"
#define MB_ONES MB_PAIRS MB_PAIRS
#define MB_END "ldr r3, [sp, #4]\n"
#else
#define MB_STEPS_OF_1 MB_PRODUCTS("1", "2", "3", "4", "5", "6", "7")
#define MB_ONES MB_STEPS_OF_1 MB_STEPS_OF_1
#define MB_END
#endif
static __attribute__((naked, noinline)) void eight_ones(MB_UNUSED int32_t *sums, MB_UNUSED const int8_t *x,
                                                        MB_UNUSED const uint32_t *entries,
                                                        MB_UNUSED const uint32_t *end) {
  MB_EIGHT(MB_ONES);
}
#if MB_HAS_STRIDE
#define MB_STEPS_OF_2 MB_PRODUCTS("2", "4", "6", "8", "10", "12", "14")
static __attribute__((naked, noinline)) void eight_twos(MB_UNUSED int32_t *sums, MB_UNUSED const int8_t *x,
                                                        MB_UNUSED const uint32_t *entries,
                                                        MB_UNUSED const uint32_t *end) {
  MB_EIGHT(MB_STEPS_OF_2 MB_STEPS_OF_2);
}
#endif
#endif

#if MB_HAS_SPARSE
/* Store a value with its place, and decode the next: as many as k says, or until one is beyond the last kernel column.
 * The bit 1 before the low bits is read with them, so that distances are doubled, less 1. r0 to r2 are at work. */
static __attribute__((naked, noinline)) void decode_values(MB_UNUSED mb_values *v) {
  __asm__(
      "push {r0, r4-r11, lr}\n ldr r2, [r0, #44]\n ldm r0, {r3-r12, lr}\n"
      "1:\n orr r2, r2, r4\n str r2, [lr], #4\n"
      "2:\n lsr r1, r3, #3\n ldr r1, [r11, r1]\n and r0, r3, #7\n lsr r1, r1, r0\n lsls r0, r1, #24\n beq 4f\n"
      "rbit r0, r1\n clz r0, r0\n lsr r1, r1, r0\n add r3, r3, r10\n add r3, r3, r0\n"
      "lsl r0, r0, r7\n and r2, r1, r8\n add r0, r0, r2\n lsr r1, r1, r7\n and r1, r1, r9\n ldrb r2, [r12, r1]\n"
      "add r4, r4, r6\n mla r4, r0, r6, r4\n cmp r4, r5\n bhs 5f\n"
      "subs r7, r7, #256\n bhs 1b\n b 6f\n"
      /* Eight bits 0. */
      "4:\n add r3, r3, #8\n movs r0, #8\n lsl r0, r0, r7\n mla r4, r0, r6, r4\n b 2b\n"
      /* The next column. */
      "5:\n ldr r1, [sp]\n ldr r0, [r1, #52]\n sub r4, r4, r0\n cmp r4, r5\n bhs 7f\n"
      "ldr r0, [r1, #48]\n subs r0, r0, #1\n blo 7f\n str r0, [r1, #48]\n"
      "ldr r0, [r1, #56]\n add r4, r4, r0\n add r5, r5, r0\n subs r7, r7, #256\n bhs 1b\n b 6f\n"
      "7:\n ldr r0, [r1, #52]\n add r4, r4, r0\n"
      "6:\n pop {r0}\n stm r0, {r3-r12, lr}\n str r2, [r0, #44]\n pop {r4-r11, pc}\n");
}
#endif
#endif
#endif
