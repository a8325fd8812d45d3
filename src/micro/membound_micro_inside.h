/* What the sources of the runtime share: no part of its interface. */
#ifndef MEMBOUND_MICRO_INSIDE_H
#define MEMBOUND_MICRO_INSIDE_H

#include "membound_micro.h"

#if defined(__STDC_HOSTED__) && !__STDC_HOSTED__ /* -ffreestanding: there may be no string.h */
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);
#ifdef __cplusplus
}
#endif
#else
#include <string.h>
#endif

/* All that functions need to know of a network that runs. */
typedef struct {
  const mb_net *net;
  int8_t *arena;
  uint16_t *next; /* of each operation: its next row */
  uint16_t *rows; /* of each value: how many there are */
} mb_run;

static inline int32_t at_most(int32_t a, int32_t b) { return a < b ? a : b; }
static inline int32_t at_least(int32_t a, int32_t b) { return a > b ? a : b; }
static inline int32_t within(int32_t y, int32_t low, int32_t high) { return at_least(at_most(y, high), low); }

/* Within -128 and 127. */
static inline int32_t to_int8(int32_t y) {
#if defined(__thumb2__) && defined(__ARM_FEATURE_SAT) && !defined(MB_PLAIN)
  int32_t found;
  __asm__("ssat %0, #8, %1" : "=r"(found) : "r"(y));
  return found;
#else
  return within(y, -128, 127);
#endif
}

/* floor(x / 2^shift), shift from 1 to 31, without a shift of a negative number. */
static inline int32_t floor_shift(int32_t x, uint32_t shift) {
  const uint32_t lift = UINT32_C(1) << 31;
  return (int32_t)(((uint32_t)x + lift) >> shift) - (int32_t)(lift >> shift);
}

/* floor(sum m / 2^16) with 2^30 and half of 2^shift added, so that it is above 0: m times 65536 is given. */
static inline uint32_t rescale_lift(uint32_t shift) { return (UINT32_C(1) << 30) + (UINT32_C(1) << (shift - 1u)); }
static inline uint32_t rescale_lifted(int32_t sum, int32_t m, uint32_t lift) {
  return (uint32_t)((uint64_t)((int64_t)sum * m) >> 32) + lift;
}

/* floor(floor(sum m / 2^16) / 2^shift + 1/2), shift from 1 to 29 and |m| below 2^15: |sum m| < 2^46. */
static inline int32_t rescale(int32_t sum, int32_t m, uint32_t shift) {
  return (int32_t)(rescale_lifted(sum, m * 65536, rescale_lift(shift)) >> shift) -
         (int32_t)(UINT32_C(1) << (30u - shift));
}

/* Row r of a value, at its first channel. */
static inline int8_t *row_of(const mb_run *r, const mb_value *v, uint32_t row) {
  return r->arena + v->at + (row % v->rows) * v->pitch;
}

/* The padding behind a channel, and before the first. */
static inline void pad_behind(const mb_value *v, int8_t *channel, int leads) {
  const int8_t zero = v->zero;
  int8_t *const behind = channel + v->width, *const end = channel + v->stride, *p;
  for (p = behind; p != end; p++) {
    *p = zero;
    if (leads) p[-(int32_t)v->stride] = zero;
  }
}

/* Where the output's row begins, at the operation's first channel. */
static inline int8_t *target_of(const mb_run *r, const mb_op *op, uint32_t row) {
  const mb_value *v = &r->net->values[op->out];
  return row_of(r, v, row) + (uint32_t)op->first * v->stride;
}

static inline int leads(const mb_op *op, uint32_t channel) { return op->first + channel == 0u; }

static inline void add_rows(const mb_sum *s, const int8_t *a, const int8_t *b, int8_t *out, uint32_t width) {
  const int32_t left = s->left, right = b ? s->right : 0, low = s->low, high = s->high;
  const uint32_t shift = s->shift, lift = (uint32_t)s->constant + (UINT32_C(1) << 31);
  const int32_t lifted = (int32_t)((UINT32_C(1) << 31) >> shift);
  const int8_t *const end = a + width;
  if (!b) b = a; /* times 0 */
#if !defined(__OPTIMIZE_SIZE__)
  if (low == -128 && high == 127) { /* many processors have that as one instruction */
    while (a != end) {
      const int32_t sum = *a++ * left + *b++ * right;
      *out++ = (int8_t)to_int8((int32_t)(((uint32_t)sum + lift) >> shift) - lifted);
    }
    return;
  }
#endif
  while (a != end) {
    const int32_t sum = *a++ * left + *b++ * right; /* with the constant it is within 32 bits, too */
    *out++ = (int8_t)within((int32_t)(((uint32_t)sum + lift) >> shift) - lifted, low, high);
  }
}

/* Row y of an operation, as `then` says: membound_micro_conv.c. */
void mb_run_conv(const mb_run *r, const mb_op *op, uint32_t y);

#endif
