/* The codes of a weight in flash: its positions and values, decoded one after another. */
#ifndef MEMBOUND_MICRO_CODES_H
#define MEMBOUND_MICRO_CODES_H

#include "membound_micro_inside.h"

#if defined(__GNUC__)
#define MB_RARELY(condition) __builtin_expect(!!(condition), 0)
#define MB_APART __attribute__((noinline))
#else
#define MB_RARELY(condition) (condition)
#define MB_APART
#endif

/* A function of which there is a copy for each number that it is called with, unless code is to be small. */
#if defined(__OPTIMIZE_SIZE__)
#define MB_COPIED static MB_APART
#elif defined(__GNUC__)
#define MB_COPIED static inline __attribute__((always_inline))
#else
#define MB_COPIED static inline
#endif

/* 32 bits, the first byte lowest: compilers make it one load where the processor has it. */
static inline uint32_t load(const uint8_t *p) {
  return (uint32_t)p[0] | ((uint32_t)p[1] << 8) | ((uint32_t)p[2] << 16) | ((uint32_t)p[3] << 24);
}

/* How many bits 0 are below the lowest bit 1. */
static inline uint32_t trailing_zeros(uint32_t x) {
#if defined(__GNUC__) && !defined(__riscv)
  return (uint32_t)__builtin_ctz(x);
#else
  uint32_t n = 0;
  for (; (x & 1u) == 0u; x >>= 1) n++;
  return n;
#endif
}

/* An entry as the value of a weight. */
static inline int32_t weight_of(uint32_t entry) { return (int32_t)((entry & 0xFFu) ^ 0x80u) - 128; }

/* What fill() reads of a weight, in variables. */
typedef struct {
  const uint8_t *stream;
  const int8_t *palette;
  uint32_t k, low_mask, code_mask, size;
  int sparse;
} decoder;

static inline decoder open_decoder(const mb_weight *w) {
  decoder d;
  d.stream = w->stream;
  d.palette = w->palette;
  d.k = w->k;
  d.low_mask = (UINT32_C(1) << w->k) - 1u;
  d.code_mask = (UINT32_C(1) << w->bits) - 1u;
  d.size = (uint32_t)w->k + w->bits;
  d.sparse = w->sparse;
  return d;
}

/* The next value; i goes on by how many columns it is behind the one before. The stream ends with spare bytes. */
MB_COPIED uint32_t decode(const decoder *d, int has_palette, uint32_t *bit, int32_t *i) {
  uint32_t at = *bit, word = load(d->stream + (at >> 3)) >> (at & 7u);
#if MB_HAS_SPARSE
#if MB_HAS_DENSE
  if (d->sparse)
#endif
  {
    uint32_t zeros;
    while (MB_RARELY((word << 24) == 0u)) {
      *i += (int32_t)(UINT32_C(8) << d->k);
      at += 8u;
      word = load(d->stream + (at >> 3)) >> (at & 7u);
    }
    zeros = trailing_zeros(word);
    word = word >> zeros >> 1;
    at += zeros + 1u;
    *i += (int32_t)(zeros << d->k);
    *i += (int32_t)(word & d->low_mask);
    word >>= d->k;
  }
#endif
  *i += 1;
  *bit = at + d->size;
  word &= d->code_mask;
  return has_palette ? (uint8_t)d->palette[word] : word ^ 0x80u;
}

#endif
