/* Products by vectors, where the processor has them (MVE): the same bits. -DMB_PLAIN leaves them out. */
#ifndef MEMBOUND_MICRO_MVE_H
#define MEMBOUND_MICRO_MVE_H

#include "membound_micro_codes.h"

#if defined(__ARM_FEATURE_MVE) && !defined(MB_PLAIN)
#include <arm_mve.h>
#define MB_VECTORS

/* What multiply() does, by vectors of 4 sums: 16 or 8 at a time, those beyond `width` masked. */
MB_COPIED void multiply_vectors(int32_t *sums, uint32_t width, const int8_t *x, uint32_t stride,
                                const uint32_t *entries, uint32_t n) {
  const uint32x4_t apart = vmulq_n_u32(vidupq_n_u32(0u, 1), stride);
  const uint32_t *const end = entries + n;
  uint32_t p;
#define MB_FOUR(v) (stride == 1u ? vldrbq_s32(v) : vldrbq_gather_offset_s32(v, apart))
  p = 0;
#if !defined(__OPTIMIZE_SIZE__)
  for (; p + 16u <= width; p += 16u, x += 16u * stride) {
    int32x4_t a = vldrwq_s32(sums + p), b = vldrwq_s32(sums + p + 4u);
    int32x4_t c = vldrwq_s32(sums + p + 8u), d = vldrwq_s32(sums + p + 12u);
    const uint32_t *next = entries;
    do {
      const uint32_t entry = *next++;
      const int8_t *v = x + (entry >> 8);
      a = vmlaq_n_s32(a, MB_FOUR(v), weight_of(entry));
      b = vmlaq_n_s32(b, MB_FOUR(v + 4u * stride), weight_of(entry));
      c = vmlaq_n_s32(c, MB_FOUR(v + 8u * stride), weight_of(entry));
      d = vmlaq_n_s32(d, MB_FOUR(v + 12u * stride), weight_of(entry));
    } while (next != end);
    vstrwq_s32(sums + p, a);
    vstrwq_s32(sums + p + 4u, b);
    vstrwq_s32(sums + p + 8u, c);
    vstrwq_s32(sums + p + 12u, d);
  }
#endif
  for (; p + 8u <= width; p += 8u, x += 8u * stride) {
    int32x4_t a = vldrwq_s32(sums + p), b = vldrwq_s32(sums + p + 4u);
    const uint32_t *next = entries;
    do {
      const uint32_t entry = *next++;
      const int8_t *v = x + (entry >> 8);
      a = vmlaq_n_s32(a, MB_FOUR(v), weight_of(entry));
      b = vmlaq_n_s32(b, MB_FOUR(v + 4u * stride), weight_of(entry));
    } while (next != end);
    vstrwq_s32(sums + p, a);
    vstrwq_s32(sums + p + 4u, b);
  }
#undef MB_FOUR
  for (; p < width; p += 4u, x += 4u * stride) {
    const mve_pred16_t there = vctp32q(width - p);
    int32x4_t a = vldrwq_z_s32(sums + p, there);
    const uint32_t *next = entries;
    do {
      const uint32_t entry = *next++;
      const int32x4_t v = vldrbq_gather_offset_z_s32(x + (entry >> 8), apart, there);
      a = vmlaq_n_s32(a, v, weight_of(entry));
    } while (next != end);
    vstrwq_p_s32(sums + p, a, there);
  }
}

/* Apart, so that their registers are not saved where values are decoded. */
static MB_APART void multiply_ones(int32_t *sums, uint32_t width, const int8_t *x, const uint32_t *entries,
                                   uint32_t n) {
  multiply_vectors(sums, width, x, 1u, entries, n);
}
#if MB_HAS_STRIDE
static MB_APART void multiply_apart(int32_t *sums, uint32_t width, const int8_t *x, uint32_t stride,
                                    const uint32_t *entries, uint32_t n) {
  multiply_vectors(sums, width, x, stride, entries, n);
}
#endif
#endif
#endif
