/* Convolutions and linear layers: weights are decoded as they are used, a row of sums is computed nonzero by nonzero. */
#include "membound_micro_codes.h"
#include "membound_micro_mve.h"
#include "membound_micro_thumb.h"

/* A weight that is being read, channel after channel: its next value, and the place of that in a channel's weight,
 * whose columns go by kernel row, kernel column, input channel. */
typedef struct {
  const mb_op *op;
  const mb_value *in;
  uint32_t edge;      /* where the channel behind the last is read in the first slot, in the last kernel column */
  uint32_t first_row; /* of the input that kernel row 0 meets: beyond any height, if above the first */
  uint32_t left;      /* values that are not used yet, the next one included */
  int32_t i;          /* the input channel, less those of a group: below 0 */
  uint32_t ky;        /* may be beyond the kernel: then the value is of a later channel */
  mb_values v;
} reader;

/* On to a later kernel column, where i is beyond the channels of a group. */
static void carry(reader *w) {
  do {
    w->i -= w->op->group_in;
    if (w->v.columns-- == 0u) {
      w->v.columns = w->op->kw - 1u;
      w->ky++;
    }
  } while (w->i >= 0);
}

static void open_weight(reader *w, const mb_run *r, const mb_op *op, uint32_t y) {
  memset(w, 0, sizeof *w);
  w->op = op;
  w->left = op->weight->count;
  w->in = &r->net->values[op->in];
  w->first_row = y * op->sy - op->pad_top;
  w->edge = w->in->at + (uint32_t)op->group_in * w->in->stride + (op->kw - 1u) * op->dx - op->pad_left;
  w->v.columns = op->kw - 1u;
  if (w->left != 0u) {
    const decoder d = open_decoder(op->weight);
    w->i = -1 - (int32_t)op->group_in;
    w->v.value = decode(&d, d.palette != 0, &w->v.bit, &w->i);
    if (w->i >= 0) carry(w);
#if defined(MB_ASSEMBLY) && MB_HAS_SPARSE
    w->v.half = (uint32_t)w->in->stride << 7;
    w->v.low_mask = 2u * d.low_mask + 1u;
    w->v.code_mask = d.code_mask;
    w->v.size = d.size + 1u;
    w->v.stream = d.stream;
    w->v.palette = d.palette;
    w->v.row = (uint32_t)op->group_in * w->in->stride << 8;
    w->v.column = (uint32_t)op->dx << 8;
#endif
  }
}

/* --- convolution --- */

/* Where the next value is read, as `base`. */
static MB_APART uint32_t find_base(const reader *w) {
  const mb_op *op = w->op;
  const mb_value *in = w->in;
  const uint32_t row = w->first_row + w->ky * op->dy;
  if (row >= in->height) return 0;
  return (w->edge + (row % in->rows) * in->pitch - w->v.columns * op->dx) << 8;
}

/* Read the values of a kernel row: what they add to every sum where the image has padding. */
static MB_APART int32_t pass_padding(reader *w) {
  const decoder d = open_decoder(w->op->weight);
  const uint32_t ky = w->ky;
  int32_t sum = 0;
  do {
    sum += weight_of(w->v.value) * w->in->zero;
    if (--w->left == 0u) break;
    w->v.value = decode(&d, d.palette != 0, &w->v.bit, &w->i);
    if (w->i >= 0) carry(w);
  } while (w->ky == ky);
  return sum;
}

/* How many entries there are, made an even number by a 0 with the last place. */
static inline uint32_t even(const uint32_t *entries, uint32_t *to) {
  if ((to - entries) & 1) {
    *to = to[-1] & ~UINT32_C(0xFF);
    to++;
  }
  return (uint32_t)(to - entries);
}

/* Decode up to MB_CHUNK values of the present channel, each as where it is applied times 256, and a byte; up to a row of
 * padding. Returns how many, an even number. What is read is copied meanwhile: entries might be anything to a compiler
 * that is not a variable of this function. The last value of all has no next one, and is a case of its own. */
MB_COPIED uint32_t fill_by(reader *w, int has_palette, uint32_t *entries) {
  const decoder d = open_decoder(w->op->weight);
  const uint32_t step = (uint32_t)w->in->stride << 8;
  uint32_t *to = entries, *const stop = entries + (w->left - 1u < MB_CHUNK ? w->left - 1u : MB_CHUNK);
  uint32_t bit = w->v.bit, value = w->v.value, base = w->v.base;
  int32_t i = w->i;
  while (to != stop) {
    *to++ = (base + (uint32_t)i * step) | value;
    value = decode(&d, has_palette, &bit, &i);
    if (MB_RARELY(i >= 0)) {
#if !defined(__OPTIMIZE_SIZE__)
      if (i < w->op->group_in && w->v.columns != 0u) { /* as most often: the next column */
        i -= w->op->group_in;
        w->v.columns--;
        base += (uint32_t)w->op->dx << 8;
        continue;
      }
#endif
      w->i = i;
      carry(w);
      i = w->i;
      base = w->ky < w->op->kh ? find_base(w) : 0u;
      if (base == 0u) break;
    }
  }
  w->left -= (uint32_t)(to - entries);
  if (w->left == 1u && base != 0u && to != entries + MB_CHUNK) {
    *to++ = (base + (uint32_t)i * step) | value;
    w->left = 0;
  }
  w->i = i;
  w->v.bit = bit;
  w->v.base = base;
  w->v.value = value;
  return even(entries, to);
}

#if defined(MB_ASSEMBLY) && MB_HAS_SPARSE
/* What fill_by() does for a sparse weight with a palette. */
static MB_APART uint32_t fill_values(reader *w, uint32_t *entries) {
  const mb_op *op = w->op;
  const uint32_t step = (uint32_t)w->in->stride << 8, k = op->weight->k + 1u;
  uint32_t *const stop = entries + (w->left - 1u < MB_CHUNK ? w->left - 1u : MB_CHUNK);
  mb_values *v = &w->v;
  v->place = v->base + (uint32_t)w->i * step;
  v->to = entries;
  while (v->to != stop) {
    v->k = ((uint32_t)(stop - v->to) - 1u) << 8 | k;
    decode_values(v);
    if (v->place >= v->base) {
      w->i = (int32_t)((v->place - v->base) / step);
      carry(w);
      v->base = w->ky < op->kh ? find_base(w) : 0u;
      v->place = v->base + (uint32_t)w->i * step;
      if (v->base == 0u) break;
    }
  }
  w->left -= (uint32_t)(v->to - entries);
  if (w->left == 1u && v->base != 0u && v->to != entries + MB_CHUNK) {
    *v->to++ = v->place | v->value;
    w->left = 0;
  }
  if (v->base != 0u) w->i = -(int32_t)((v->base - v->place) / step);
  return even(entries, v->to);
}
#endif

#if defined(__OPTIMIZE_SIZE__)
#define fill(w, entries) fill_by(w, (w)->op->weight->palette != 0, entries)
#else
static MB_APART uint32_t fill(reader *w, uint32_t *entries) {
  if (!w->op->weight->palette) return fill_by(w, 0, entries);
#if defined(MB_ASSEMBLY) && MB_HAS_SPARSE
#if MB_HAS_DENSE
  if (!w->op->weight->sparse) return fill_by(w, 1, entries);
#endif
  return fill_values(w, entries);
#else
  return fill_by(w, 1, entries);
#endif
}
#endif

static inline void set_sums(int32_t *sums, uint32_t width, int32_t bias) {
#if !defined(__OPTIMIZE_SIZE__)
  for (; width >= 8u; width -= 8u, sums += 8) {
    sums[0] = bias;
    sums[1] = bias;
    sums[2] = bias;
    sums[3] = bias;
    sums[4] = bias;
    sums[5] = bias;
    sums[6] = bias;
    sums[7] = bias;
  }
#endif
  for (; width != 0u; width--) *sums++ = bias;
}

#if !defined(MB_VECTORS)
/* 8 sums at a time in registers. */
static inline void multiply_eight(int32_t *sums, const int8_t *x, uint32_t stride, const uint32_t *next,
                                  const uint32_t *end) {
  int32_t a = sums[0], b = sums[1], c = sums[2], d = sums[3], e = sums[4], f = sums[5], g = sums[6], h = sums[7];
  do {
    const uint32_t entry = *next++;
    const int32_t w = weight_of(entry);
    const int8_t *v = x + (entry >> 8);
    a += w * v[0];
    b += w * v[stride];
    c += w * v[2u * stride];
    d += w * v[3u * stride];
    e += w * v[4u * stride];
    f += w * v[5u * stride];
    g += w * v[6u * stride];
    h += w * v[7u * stride];
  } while (next != end);
  sums[0] = a;
  sums[1] = b;
  sums[2] = c;
  sums[3] = d;
  sums[4] = e;
  sums[5] = f;
  sums[6] = g;
  sums[7] = h;
}

/* sums[p] += weight * x[place + p * stride] for all n entries, an even number that is not 0. */
MB_COPIED void multiply(int32_t *sums, uint32_t width, const int8_t *x, uint32_t stride, const uint32_t *entries,
                        uint32_t n) {
  const uint32_t *const end = entries + n;
  for (; width >= 8u; width -= 8u, sums += 8, x += 8u * stride) {
#if defined(MB_ASSEMBLY)
    if (stride == 1u) {
      eight_ones(sums, x, entries, end);
      continue;
    }
#if MB_HAS_STRIDE
    if (stride == 2u) {
      eight_twos(sums, x, entries, end);
      continue;
    }
#endif
#endif
    multiply_eight(sums, x, stride, entries, end);
  }
#if !defined(__OPTIMIZE_SIZE__)
  for (; width >= 2u; width -= 2u, sums += 2, x += 2u * stride) {
    int32_t a = sums[0], b = sums[1];
    const uint32_t *next = entries;
    do {
      const uint32_t entry = *next++;
      const int8_t *v = x + (entry >> 8);
      a += weight_of(entry) * v[0];
      b += weight_of(entry) * v[stride];
    } while (next != end);
    sums[0] = a;
    sums[1] = b;
  }
#endif
  for (; width != 0u; width--, sums++, x += stride) {
    int32_t a = sums[0];
    const uint32_t *next = entries;
    do {
      const uint32_t entry = *next++;
      a += weight_of(entry) * x[entry >> 8];
    } while (next != end);
    sums[0] = a;
  }
}
#endif

/* Sums as int8. `out` may be where the sums are: it is behind what is still to be read. */
MB_COPIED void narrow_by(const mb_scale *s, uint32_t channel, const int32_t *sums, int8_t *out, uint32_t width,
                         int all) {
  const uint32_t entry = s->each ? channel : 0u, shift = s->shift[entry];
  const int32_t low = s->low, high = s->high;
  const int32_t m = s->multiplier[entry] * 65536, up = (int32_t)(UINT32_C(1) << s->up);
  const uint32_t lift = rescale_lift(shift);
  const int32_t zero = s->zero - (int32_t)(UINT32_C(1) << (30u - shift));
#if MB_HAS_TABLE
  const int8_t *const table = s->table;
#endif
  const int32_t *const end = sums + width;
  while (sums != end) {
    const int32_t whole = (int32_t)(rescale_lifted(*sums++ * up, m, lift) >> shift) + zero;
    const int32_t y = all ? to_int8(whole) : within(whole, low, high);
#if MB_HAS_TABLE
    *out++ = table ? table[y + 128] : (int8_t)y;
#else
    *out++ = (int8_t)y;
#endif
  }
}

static MB_APART void narrow(const mb_scale *s, uint32_t channel, const int32_t *sums, int8_t *out, uint32_t width) {
#if !defined(__OPTIMIZE_SIZE__)
  if (s->low == -128 && s->high == 127) { /* many processors have that as one instruction */
    narrow_by(s, channel, sums, out, width, 1);
    return;
  }
#endif
  narrow_by(s, channel, sums, out, width, 0);
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
    pad_behind(v, out, leads(op, channel));
  }
}
#endif

void mb_run_conv(const mb_run *r, const mb_op *op, uint32_t y) {
  const mb_net *net = r->net;
  const mb_value *out = &net->values[op->out];
  int32_t *sums = (int32_t *)(void *)(r->arena + net->sums);
  uint32_t *entries = (uint32_t *)(void *)(r->arena + net->entries);
  int8_t *target = target_of(r, op, y); /* not that of a pool */
#if MB_HAS_THEN_SUM
  const mb_value *in2 = op->then == MB_THEN_SUM ? &net->values[op->in2] : out;
  const int8_t *other = row_of(r, in2, y);
#endif
  uint32_t channel, p, first, row;
  reader w;
  open_weight(&w, r, op, y);
  first = w.edge;
  row = (uint32_t)op->group_in * w.in->stride;
  for (channel = 0; channel < op->channels; channel++, target += out->stride) {
    const mb_scale *scale = op->scale;
    const int32_t bias =
        scale->narrow ? ((const int16_t *)scale->bias)[channel] * (int32_t)(UINT32_C(1) << scale->lift)
                      : ((const int32_t *)scale->bias)[channel];
    int8_t *q = (int8_t *)sums;
    int32_t padding = 0;
    set_sums(sums, op->width, bias);
    w.edge = first + channel / op->group_out * row;
    while (w.left != 0u && w.ky < op->kh) {
      uint32_t n;
      if (w.v.base == 0u) w.v.base = find_base(&w);
      if (w.v.base == 0u) {
        padding += pass_padding(&w);
        continue;
      }
      n = fill(&w, entries);
#if defined(MB_VECTORS)
#if MB_HAS_STRIDE
      if (op->sx != 1u)
        multiply_apart(sums, op->width, r->arena, op->sx, entries, n);
      else
#endif
        multiply_ones(sums, op->width, r->arena, entries, n);
#else
#if MB_HAS_STRIDE
      if (op->sx == 2u) /* as a number of its own, for compilers that make code of it */
        multiply(sums, op->width, r->arena, 2u, entries, n);
      else if (op->sx != 1u)
        multiply(sums, op->width, r->arena, op->sx, entries, n);
      else
#endif
        multiply(sums, op->width, r->arena, 1u, entries, n);
#endif
    }
    if (w.ky >= op->kh) w.ky -= op->kh;
    if (padding != 0)
      for (p = 0; p < op->width; p++) sums[p] += padding;
    if (op->then == MB_STORE) q = target;
    narrow(scale, channel, sums, q, op->width);
#if MB_HAS_THEN_SUM
    if (op->then == MB_THEN_SUM) {
      add_rows(op->sum, q, other, target, op->width);
      other += in2->stride;
      q = target;
    }
#endif
#if MB_HAS_THEN_POOL
    if (op->then == MB_THEN_POOL) {
      pool_into(r, op, channel, y, q);
      continue;
    }
#endif
    pad_behind(out, q, leads(op, channel));
  }
}
