/* A network in integers, run row by row from constant data: C99, no malloc, no libc but memcpy and memset.
 *
 * docs/MICRO_ARITHMETIC.md of membound says what is computed, to the last bit. All that is constant (mb_net and what it
 * points to) may lie in flash; what changes is in a context: one counter an operation and a value, and the arena. Two
 * contexts of one network may run side by side. */
#ifndef MEMBOUND_MICRO_H
#define MEMBOUND_MICRO_H

#include <stdint.h>

#include "membound_micro_config.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MB_NONE 0xFFFFu /* no such value */
#define MB_CHUNK 32u    /* nonzeros of a weight that are decoded at once */

/* Operations. What a network does not use is left out of the code by membound_micro_config.h. */
enum { MB_CONV, MB_SUM, MB_POOL, MB_MEAN, MB_TABLE };
/* What a convolution does with a row of a channel before it is stored. */
enum { MB_STORE, MB_THEN_SUM, MB_THEN_POOL };

/* A value: a ring of `rows` rows, row r in slot r mod rows. A row has its channels one behind the other, `stride` bytes
 * apart: `width` numbers, then padding, which is also the padding before the next channel. The first has padding before
 * it. Two values may have one ring: then a row of one replaces that of the other. */
typedef struct {
  uint32_t at;    /* its first number in the arena */
  uint32_t pitch; /* bytes of a row: channels * stride, and padding */
  uint16_t height, width, stride, rows;
  int8_t zero;
} mb_value;

/* A weight as one stream of bits, the lowest first. If it is `sparse`, each value has how far it is from the one before,
 * less 1: that is q 2^k + l, as q bits 0, a bit 1 and l of k bits; then, in any case, a code of `bits` bits. */
typedef struct {
  const uint8_t *stream;
  const int8_t *palette; /* none: a code of 8 bits less 128 */
  uint32_t count;
  uint8_t bits, k, sparse;
} mb_weight;

/* From sums to int8: y = zero + floor(t / 2^shift + 1/2), t = floor(sum 2^up multiplier / 2^16), within low and high. */
typedef struct {
  const void *bias; /* int32, or int16 times 2^lift if `narrow`: one a channel */
  const int16_t *multiplier;
  const uint8_t *shift;
  const int8_t *table; /* 256 numbers, or none: applied last, by y + 128 */
  uint8_t each;        /* multiplier and shift are one a channel, else one for all */
  uint8_t narrow, lift, up;
  int8_t zero, low, high;
} mb_scale;

/* y = floor((a left + b right + constant) / 2^shift), within low and high. */
typedef struct {
  int32_t left, right, constant;
  uint8_t shift;
  int8_t low, high;
} mb_sum;

/* A window over rows of a channel. For means, sums are divided by the elements of the window within `bottom` and `right`
 * and beyond `top` and `left` (which may lie in the padding): scale entry n - 1 is for n elements, or entry 0 for all. */
typedef struct {
  uint16_t height, width; /* of what comes out */
  uint16_t kh, kw, sy, sx, pad_top, pad_left;
  int16_t top, left, bottom, right;
  uint8_t mean, each;
} mb_pool;

typedef struct {
  uint8_t kind, then;
  uint16_t in, in2, out;
  uint16_t first;                   /* the channel of `out` that it starts with */
  uint16_t channels, height, width; /* that it computes, before `then` */
  uint16_t kh, kw, sy, sx, pad_top, pad_left;
  uint8_t dy, dx;
  uint16_t wait; /* rows of `in` that have to be there beside those that are needed */
  uint16_t group_in, group_out; /* channels of a group */
  uint32_t state;               /* sums of a mean, in the arena */
  const mb_weight *weight;
  const mb_scale *scale;
  const mb_sum *sum;
  const mb_pool *pool;
} mb_op;

typedef struct {
  const mb_op *ops;
  const mb_value *values; /* the input first */
  const int32_t *input;   /* a multiplier and a constant for each channel */
  uint32_t sums, entries; /* working room in the arena */
  uint16_t op_count, value_count, output;
  uint8_t input_shift;
  uint8_t whole; /* an operation waits until its inputs are whole */
} mb_net;

/* Forget all rows: the next one fed is the first of another image. `counters` has op_count + value_count numbers. */
void mb_start(const mb_net *net, uint16_t *counters);

/* Feed the next row of the input, and compute all that can be. Pixel x of channel c is row[c * channel_step + x *
 * pixel_step]. Returns 1 with the last row: the output is there; else 0. The arena is aligned for uint32_t. */
int mb_feed_row(const mb_net *net, uint16_t *counters, uint32_t *arena, const uint8_t *row, uint32_t channel_step,
                uint32_t pixel_step);

/* Number `index` of row y, channel c of the output. */
int8_t mb_output(const mb_net *net, const uint32_t *arena, uint32_t channel, uint32_t y, uint32_t x);

#ifdef __cplusplus
}
#endif
#endif
