/* Convolutions and linear layers: weights are decoded as they are used, a row of sums is computed nonzero by nonzero. */
#include "membound_micro_inside.h"

/* A weight that is being read, channel after channel; and its next value. */
typedef struct {
  const mb_weight *weight;
  const uint8_t *high;
  uint32_t bits; /* what is left of the present byte of `high`, below a bit that is always set */
  uint32_t at;   /* bits read of `codes` */
  uint32_t left; /* values that are not used yet, the next one included */
  uint32_t next; /* the column of the next value, from the first of the present channel */
  uint32_t code; /* of the next value */
} reader;

/* --- weights --- */

/* Go on to the next value. */
static inline void advance(reader *r) {
  const mb_weight *w = r->weight;
  const uint8_t *p = w->codes + (r->at >> 3); /* codes end with two spare bytes */
  const uint32_t three = (uint32_t)p[0] | ((uint32_t)p[1] << 8) | ((uint32_t)p[2] << 16);
  const uint32_t entry = three >> (r->at & 7u);
  r->code = entry & w->code_mask;
#if MB_HAS_SPARSE
#if MB_HAS_DENSE
  if (w->high != 0)
#endif
  {
    uint32_t zeros = 0, bits = r->bits;
    for (;;) {
      if (bits <= 1u) bits = *r->high++ | 0x100u;
      if ((bits & 1u) != 0u) break;
      bits >>= 1;
      zeros++;
    }
    r->bits = bits >> 1;
    r->next += (zeros << w->k) + ((entry & w->entry_mask) >> w->bits);
  }
#endif
  r->at += (uint32_t)w->bits + w->k;
  r->next++;
}

static void open_weight(reader *r, const mb_weight *w) {
  memset(r, 0, sizeof *r);
  r->weight = w;
  r->high = w->high;
  r->left = w->count;
  r->next = UINT32_MAX; /* the column before the first */
  if (r->left != 0u) advance(r);
}

/* --- convolution --- */

/* Where the next column of a channel's weight finds its input: columns go by kernel row, channel, kernel column. */
typedef struct {
  uint32_t column;    /* that the place is of */
  uint32_t kx, ky, i; /* its place */
  uint32_t base;      /* of channel i in kernel row ky, in the arena */
  uint32_t step;      /* from channel to channel: 0 in a row of padding */
} place;

static void find_row(const mb_run *r, const mb_op *op, uint32_t y, uint32_t group, place *p) {
  const mb_value *in = &r->net->values[op->in];
  const int32_t row = (int32_t)(y * op->sy + p->ky * op->dy) - (int32_t)op->pad_top;
  if (row < 0 || row >= (int32_t)in->height) {
    p->base = r->net->blank;
    p->step = 0;
  } else {
    p->base = in->at + ((uint32_t)row % in->rows) * in->pitch + group * op->group_in * in->stride - op->pad_left;
    p->step = in->stride;
  }
}

/* Decode up to MB_CHUNK values of the present channel; returns how many. What is read is copied meanwhile: offsets and
 * codes are bytes to a compiler, which might change anything that is not a variable of this function. */
static uint32_t fill(const mb_run *r, const mb_op *op, uint32_t y, uint32_t group, reader *from, place *at,
                     MB_OFFSET *offsets, int8_t *codes) {
  const uint32_t kw = op->kw, dx = op->dx, columns = (uint32_t)op->kh * op->group_in * kw;
  const int8_t *palette = from->weight->palette;
  reader w = *from;
  uint32_t n = 0, kx = at->kx, column = at->column;
  while (n < MB_CHUNK && w.left != 0u && w.next < columns) {
    kx += w.next - column;
    column = w.next;
    if (kx >= kw) {
      const uint32_t channels = kx / kw;
      kx -= channels * kw;
      at->base += channels * at->step;
      at->i += channels;
      if (at->i >= op->group_in) {
        const uint32_t lines = at->i / op->group_in;
        at->i -= lines * op->group_in;
        at->ky += lines;
        find_row(r, op, y, group, at);
        at->base += at->i * at->step;
      }
    }
    offsets[n] = (MB_OFFSET)(at->base + kx * dx);
    codes[n++] = palette ? palette[w.code] : (int8_t)((int32_t)w.code - 128);
    if (--w.left != 0u) advance(&w);
  }
  *from = w;
  at->kx = kx;
  at->column = column;
  return n;
}

/* sums[p] += codes[k] * x[offsets[k] + p * stride] for all k: 8 sums at a time in registers. */
static inline void multiply(int32_t *sums, uint32_t width, const int8_t *x, uint32_t stride, const MB_OFFSET *offsets,
                            const int8_t *codes, uint32_t n) {
  uint32_t k;
  for (; width >= 8u; width -= 8u, sums += 8, x += 8u * stride) {
    int32_t a = sums[0], b = sums[1], c = sums[2], d = sums[3], e = sums[4], f = sums[5], g = sums[6], h = sums[7];
    for (k = 0; k < n; k++) {
      const int8_t *v = x + offsets[k];
      const int32_t w = codes[k];
      a += w * v[0];
      b += w * v[stride];
      c += w * v[2u * stride];
      d += w * v[3u * stride];
      e += w * v[4u * stride];
      f += w * v[5u * stride];
      g += w * v[6u * stride];
      h += w * v[7u * stride];
    }
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
  const uint32_t columns = (uint32_t)op->kh * op->group_in * op->kw;
  uint32_t channel, p, n;
  reader w;
  const mb_value *in = &net->values[op->in];
  if (op->pads)
    memset(r->arena + net->blank, in->zero, (uint32_t)in->width + 2u * ((uint32_t)in->stride - in->width));
  open_weight(&w, op->weight);
  for (channel = 0; channel < op->channels; channel++) {
    const uint32_t group = channel / op->group_out;
    const mb_scale *scale = op->scale;
    const int32_t bias =
        scale->narrow ? ((const int16_t *)scale->bias)[channel] * (int32_t)(UINT32_C(1) << scale->lift)
                      : ((const int32_t *)scale->bias)[channel];
    int8_t *q = (int8_t *)sums;
    place at;
    memset(&at, 0, sizeof at);
    find_row(r, op, y, group, &at);
    for (p = 0; p < op->width; p++) sums[p] = bias;
    while ((n = fill(r, op, y, group, &w, &at, offsets, codes)) != 0u) {
#if MB_HAS_STRIDE
      if (op->sx != 1u)
        multiply(sums, op->width, r->arena, op->sx, offsets, codes, n);
      else
#endif
        multiply(sums, op->width, r->arena, 1u, offsets, codes, n);
    }
    if (w.left != 0u) w.next -= columns;
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
