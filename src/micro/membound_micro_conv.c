/* Convolutions and linear layers: weights are decoded as they are used, a row of sums is computed nonzero by nonzero. */
#include "membound_micro_inside.h"
#if defined(__ARM_FEATURE_MVE) && !defined(MB_PLAIN)
#include <arm_mve.h>
#endif

/* A weight that is being read, channel after channel: its next value, and the place of that in a channel's weight,
 * whose columns go by kernel row, kernel column, input channel. */
typedef struct {
  uint32_t bit;       /* of the stream, behind the next value */
  uint32_t left;      /* values that are not used yet, the next one included */
  uint32_t i, kx, ky; /* ky may be beyond the kernel: then the value is of a later channel */
  int32_t value;
} reader;

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

/* The next value, and how many columns it is behind the one before, less 1. The stream ends with spare bytes. */
static inline uint32_t decode(const decoder *d, uint32_t *bit, int32_t *value) {
  uint32_t at = *bit, gap = 0, word = load(d->stream + (at >> 3)) >> (at & 7u);
#if MB_HAS_SPARSE
#if MB_HAS_DENSE
  if (d->sparse)
#endif
  {
    uint32_t zeros;
    while ((word & 0xFFu) == 0u) {
      gap += 8u;
      at += 8u;
      word = load(d->stream + (at >> 3)) >> (at & 7u);
    }
    zeros = trailing_zeros(word);
    word >>= zeros + 1u;
    at += zeros + 1u;
    gap = ((gap + zeros) << d->k) + (word & d->low_mask);
    word >>= d->k;
  }
#endif
  *bit = at + d->size;
  word &= d->code_mask;
  *value = d->palette ? d->palette[word] : (int32_t)word - 128;
  return gap;
}

/* Columns i of kernel column kx and row ky, where i may be beyond the channels of a group. */
static inline void carry(const mb_op *op, uint32_t *i, uint32_t *kx, uint32_t *ky) {
  const uint32_t over = *i / op->group_in;
  *i -= over * op->group_in;
  *kx += over;
  if (*kx >= op->kw) {
    const uint32_t lines = *kx / op->kw;
    *kx -= lines * op->kw;
    *ky += lines;
  }
}

static void open_weight(reader *r, const mb_op *op) {
  memset(r, 0, sizeof *r);
  r->left = op->weight->count;
  if (r->left != 0u) {
    const decoder d = open_decoder(op->weight);
    r->i = decode(&d, &r->bit, &r->value);
    carry(op, &r->i, &r->kx, &r->ky);
  }
}

/* --- convolution --- */

/* Where the first channel of a group is read for kernel row ky and column kx, and how far apart its channels are. */
static inline uint32_t find_base(const mb_run *r, const mb_op *op, uint32_t y, uint32_t group, uint32_t ky, uint32_t kx,
                                 uint32_t *step) {
  const mb_value *in = &r->net->values[op->in];
  const int32_t row = (int32_t)(y * op->sy + ky * op->dy) - (int32_t)op->pad_top;
  const uint32_t column = kx * op->dx;
  if (row < 0 || row >= (int32_t)in->height) {
    *step = 0; /* a row of padding */
    return r->net->blank + column;
  }
  *step = in->stride;
  return in->at + ((uint32_t)row % in->rows) * in->pitch + group * op->group_in * in->stride - op->pad_left + column;
}

/* Decode up to MB_CHUNK values of the present channel; returns how many. What is read is copied meanwhile: offsets and
 * codes are bytes to a compiler, which might change anything that is not a variable of this function. */
static uint32_t fill(const mb_run *r, const mb_op *op, uint32_t y, uint32_t group, reader *from, MB_OFFSET *offsets,
                     int8_t *codes) {
  const decoder d = open_decoder(op->weight);
  const uint32_t channels = op->group_in;
  uint32_t n = 0, i = from->i, left = from->left, bit = from->bit, step, base;
  int32_t value = from->value;
  if (left == 0u || from->ky >= op->kh) return 0;
  base = find_base(r, op, y, group, from->ky, from->kx, &step);
  do {
    offsets[n] = (MB_OFFSET)(base + i * step);
    codes[n++] = (int8_t)value;
    if (--left == 0u) break;
    i += decode(&d, &bit, &value) + 1u;
    if (i >= channels) {
      carry(op, &i, &from->kx, &from->ky);
      if (from->ky >= op->kh) break;
      base = find_base(r, op, y, group, from->ky, from->kx, &step);
    }
  } while (n < MB_CHUNK);
  from->i = i;
  from->left = left;
  from->bit = bit;
  from->value = value;
  return n;
}

#if defined(__ARM_FEATURE_MVE) && !defined(MB_PLAIN)
/* What multiply() does, by vectors of 4 sums: 8 at a time, those beyond `width` masked. */
static void multiply_vectors(int32_t *sums, uint32_t width, const int8_t *x, const MB_OFFSET *offsets,
                             const int8_t *codes, uint32_t n) {
  uint32_t k, p;
  for (p = 0; p + 8u <= width; p += 8u, x += 8) {
    int32x4_t a = vldrwq_s32(sums + p), b = vldrwq_s32(sums + p + 4u);
    for (k = 0; k < n; k++) {
      a = vmlaq_n_s32(a, vldrbq_s32(x + offsets[k]), codes[k]);
      b = vmlaq_n_s32(b, vldrbq_s32(x + offsets[k] + 4), codes[k]);
    }
    vstrwq_s32(sums + p, a);
    vstrwq_s32(sums + p + 4u, b);
  }
  for (; p < width; p += 4u, x += 4) {
    const mve_pred16_t there = vctp32q(width - p);
    int32x4_t a = vldrwq_z_s32(sums + p, there);
    for (k = 0; k < n; k++) a = vmlaq_n_s32(a, vldrbq_z_s32(x + offsets[k], there), codes[k]);
    vstrwq_p_s32(sums + p, a, there);
  }
}
#endif

/* sums[p] += codes[k] * x[offsets[k] + p * stride] for all k, at least one: 8 sums at a time in registers. */
static inline void multiply(int32_t *sums, uint32_t width, const int8_t *x, uint32_t stride, const MB_OFFSET *offsets,
                            const int8_t *codes, uint32_t n) {
  uint32_t k;
  for (; width >= 8u; width -= 8u, sums += 8, x += 8u * stride) {
    int32_t a = sums[0], b = sums[1], c = sums[2], d = sums[3], e = sums[4], f = sums[5], g = sums[6], h = sums[7];
    const MB_OFFSET *offset = offsets;
    const int8_t *code = codes;
    do {
      const int8_t *v = x + *offset++;
      const int32_t w = *code++;
      a += w * v[0];
      b += w * v[stride];
      c += w * v[2u * stride];
      d += w * v[3u * stride];
      e += w * v[4u * stride];
      f += w * v[5u * stride];
      g += w * v[6u * stride];
      h += w * v[7u * stride];
    } while (code != codes + n);
    sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d, sums[4] = e, sums[5] = f, sums[6] = g, sums[7] = h;
  }
  for (; width >= 2u; width -= 2u, sums += 2, x += 2u * stride) {
    int32_t a = sums[0], b = sums[1];
    for (k = 0; k < n; k++) {
      const int8_t *v = x + offsets[k];
      a += codes[k] * v[0];
      b += codes[k] * v[stride];
    }
    sums[0] = a, sums[1] = b;
  }
  if (width != 0u) {
    int32_t a = sums[0];
    for (k = 0; k < n; k++) a += codes[k] * x[offsets[k]];
    sums[0] = a;
  }
}

/* Sums as int8. `out` may be where the sums are: it is behind what is still to be read. */
static void narrow(const mb_scale *s, uint32_t channel, const int32_t *sums, int8_t *out, uint32_t width) {
  const uint32_t entry = s->each ? channel : 0u, shift = s->shift[entry];
  const int32_t m = s->multiplier[entry];
  uint32_t p;
  for (p = 0; p < width; p++) {
    const int32_t y = within(rescale(sums[p] * (int32_t)(UINT32_C(1) << s->up), m, shift) + s->zero, s->low, s->high);
#if MB_HAS_TABLE
    out[p] = s->table ? s->table[y + 128] : (int8_t)y;
#else
    out[p] = (int8_t)y;
#endif
  }
}

#if MB_HAS_THEN_POOL
/* The largest of a row's windows, into the rows of the pool that row y is part of. */
static void pool_into(const mb_run *r, const mb_op *op, uint32_t channel, uint32_t y, const int8_t *row) {
  const mb_pool *pool = op->pool;
  const mb_value *v = &r->net->values[op->out];
  const uint32_t reach = y + pool->pad_top;
  uint32_t i = reach < pool->kh ? 0u : (reach - pool->kh) / pool->sy + 1u;
  for (; i < pool->height && i * pool->sy <= reach; i++) {
    int8_t *out = target_of(r, op, i) + channel * v->stride;
    const int starts = i * pool->sy == reach || y == 0u;
    uint32_t j;
    for (j = 0; j < pool->width; j++) {
      const int32_t begin = (int32_t)(j * pool->sx) - (int32_t)pool->pad_left;
      const int32_t end = at_most(begin + (int32_t)pool->kw, (int32_t)op->width);
      int32_t x = at_least(begin, 0);
      int8_t most = starts ? row[x] : out[j];
      for (; x < end; x++) most = row[x] > most ? row[x] : most;
      out[j] = most;
    }
    pad_behind(v, out, leads(v, op, channel, i));
  }
}
#endif

void mb_run_conv(const mb_run *r, const mb_op *op, uint32_t y) {
  const mb_net *net = r->net;
  const mb_value *out = &net->values[op->out];
  int32_t *sums = (int32_t *)(void *)(r->arena + net->sums);
  MB_OFFSET *offsets = (MB_OFFSET *)(void *)(r->arena + net->offsets);
  int8_t *codes = r->arena + net->codes;
  uint32_t channel, p, n;
  reader w;
  const mb_value *in = &net->values[op->in];
  if (op->pads)
    memset(r->arena + net->blank, in->zero, (uint32_t)in->width + 2u * ((uint32_t)in->stride - in->width));
  open_weight(&w, op);
  for (channel = 0; channel < op->channels; channel++) {
    const uint32_t group = channel / op->group_out;
    const mb_scale *scale = op->scale;
    const int32_t bias =
        scale->narrow ? ((const int16_t *)scale->bias)[channel] * (int32_t)(UINT32_C(1) << scale->lift)
                      : ((const int32_t *)scale->bias)[channel];
    int8_t *q = (int8_t *)sums;
    for (p = 0; p < op->width; p++) sums[p] = bias;
    while ((n = fill(r, op, y, group, &w, offsets, codes)) != 0u) {
#if MB_HAS_STRIDE
      if (op->sx == 2u) /* as a number of its own, for compilers that make code of it */
        multiply(sums, op->width, r->arena, 2u, offsets, codes, n);
      else if (op->sx != 1u)
        multiply(sums, op->width, r->arena, op->sx, offsets, codes, n);
      else
#endif
#if defined(__ARM_FEATURE_MVE) && !defined(MB_PLAIN)
        multiply_vectors(sums, op->width, r->arena, offsets, codes, n);
#else
        multiply(sums, op->width, r->arena, 1u, offsets, codes, n);
#endif
    }
    if (w.ky >= op->kh) w.ky -= op->kh;
    if (op->then == MB_STORE) q = target_of(r, op, y) + channel * out->stride;
    narrow(scale, channel, sums, q, op->width);
#if MB_HAS_THEN_SUM
    if (op->then == MB_THEN_SUM) {
      const mb_value *in2 = &net->values[op->in2];
      int8_t *target = target_of(r, op, y) + channel * out->stride;
      add_rows(op->sum, q, row_of(r, in2, y) + channel * in2->stride, target, op->width);
      q = target;
    }
#endif
#if MB_HAS_THEN_POOL
    if (op->then == MB_THEN_POOL) {
      pool_into(r, op, channel, y, q);
      continue;
    }
#endif
    pad_behind(out, q, leads(out, op, channel, y));
  }
}
