/* The other operations, and the order in which rows are computed: see membound_micro.h. */
#include "membound_micro_inside.h"

#if MB_HAS_SUM
static void run_sum(const mb_run *r, const mb_op *op, uint32_t y) {
  const mb_value *in = &r->net->values[op->in], *out = &r->net->values[op->out];
  const mb_value *in2 = op->in2 == MB_NONE ? 0 : &r->net->values[op->in2];
  uint32_t channel;
  for (channel = 0; channel < op->channels; channel++) {
    int8_t *q = target_of(r, op, y) + channel * out->stride;
    add_rows(op->sum, row_of(r, in, y) + channel * in->stride, in2 ? row_of(r, in2, y) + channel * in2->stride : 0, q,
        op->width);
    pad_behind(out, q, leads(op, channel));
  }
}
#endif

#if MB_HAS_TABLE
static void run_table(const mb_run *r, const mb_op *op, uint32_t y) {
  const mb_value *in = &r->net->values[op->in], *out = &r->net->values[op->out];
  uint32_t channel, p;
  for (channel = 0; channel < op->channels; channel++) {
    const int8_t *from = row_of(r, in, y) + channel * in->stride;
    int8_t *q = target_of(r, op, y) + channel * out->stride;
    for (p = 0; p < op->width; p++) q[p] = op->scale->table[from[p] + 128];
    pad_behind(out, q, leads(op, channel));
  }
}
#endif

#if MB_HAS_POOL || MB_HAS_MEAN
/* How many of the lines from `begin` on, `count` of them, are within `low` and `high`. */
static int32_t overlap(int32_t begin, uint32_t count, int32_t low, int32_t high) {
  return at_most(begin + (int32_t)count, high) - at_least(begin, low);
}

/* A sum of a window, whose row and column are the i-th and the j-th, as the mean. */
static int8_t mean_of(const mb_op *op, int32_t sum, uint32_t i, uint32_t j) {
  const mb_pool *pool = op->pool;
  const mb_scale *s = op->scale;
  uint32_t entry = 0;
  if (pool->each) {
    const int32_t rows = overlap((int32_t)(i * pool->sy) - pool->pad_top, pool->kh, pool->top, pool->bottom);
    const int32_t columns = overlap((int32_t)(j * pool->sx) - pool->pad_left, pool->kw, pool->left, pool->right);
    entry = (uint32_t)(rows * columns) - 1u;
  }
  return (int8_t)within(
      rescale(sum * (int32_t)(UINT32_C(1) << s->up), s->multiplier[entry], s->shift[entry]) + s->zero, s->low, s->high);
}
#endif

#if MB_HAS_POOL
static void run_pool(const mb_run *r, const mb_op *op, uint32_t i) {
  const mb_value *in = &r->net->values[op->in], *out = &r->net->values[op->out];
  const mb_pool *pool = op->pool;
  const int32_t begin = (int32_t)(i * pool->sy) - pool->pad_top;
  const int32_t end = at_most(begin + (int32_t)pool->kh, in->height);
  uint32_t channel, j;
  for (channel = 0; channel < op->channels; channel++) {
    int8_t *q = target_of(r, op, i) + channel * out->stride;
    for (j = 0; j < pool->width; j++) {
      const int32_t left = at_least((int32_t)(j * pool->sx) - pool->pad_left, 0);
      const int32_t right = at_most((int32_t)(j * pool->sx + pool->kw) - pool->pad_left, in->width);
      int32_t x, y, sum = 0, most = -128;
      for (y = at_least(begin, 0); y < end; y++) {
        const int8_t *row = row_of(r, in, (uint32_t)y) + channel * in->stride;
        for (x = left; x < right; x++) {
          sum += row[x] - in->zero;
          most = at_least(row[x], most);
        }
      }
      q[j] = pool->mean ? mean_of(op, sum, i, j) : (int8_t)most;
    }
    pad_behind(out, q, leads(op, channel));
  }
}
#endif

#if MB_HAS_MEAN
/* Row y is added to the sums of its windows; below the last row of a window its means are stored. */
static void run_mean(const mb_run *r, const mb_op *op, uint32_t y) {
  const mb_value *in = &r->net->values[op->in], *out = &r->net->values[op->out];
  const mb_pool *pool = op->pool;
  const uint32_t i = (y + pool->pad_top) / pool->sy, inside = y + pool->pad_top - i * pool->sy;
  int32_t *sums = (int32_t *)(void *)(r->arena + op->state);
  uint32_t channel, j;
  if (i >= pool->height || inside >= pool->kh) return;
  for (channel = 0; channel < op->channels; channel++) {
    const int8_t *row = row_of(r, in, y) + channel * in->stride;
    int8_t *q = target_of(r, op, i) + channel * out->stride;
    for (j = 0; j < pool->width; j++, sums++) {
      int32_t x = at_least((int32_t)(j * pool->sx) - pool->pad_left, 0);
      const int32_t right = at_most((int32_t)(j * pool->sx + pool->kw) - pool->pad_left, in->width);
      if (inside == 0u || y == 0u) *sums = 0;
      for (; x < right; x++) *sums += row[x] - in->zero;
      if (inside + 1u == pool->kh || y + 1u == in->height) q[j] = mean_of(op, *sums, i, j);
    }
    if (inside + 1u == pool->kh || y + 1u == in->height) pad_behind(out, q, leads(op, channel));
  }
}
#endif

/* --- the order --- */

static void run_op(const mb_run *r, const mb_op *op, uint32_t y) {
  switch (op->kind) {
#if MB_HAS_SUM
    case MB_SUM:
      run_sum(r, op, y);
      break;
#endif
#if MB_HAS_TABLE
    case MB_TABLE:
      run_table(r, op, y);
      break;
#endif
#if MB_HAS_POOL
    case MB_POOL:
      run_pool(r, op, y);
      break;
#endif
#if MB_HAS_MEAN
    case MB_MEAN:
      run_mean(r, op, y);
      break;
#endif
    default:
      mb_run_conv(r, op, y);
  }
}

/* Whether the rows are there that row y of an operation needs. */
static int can_run(const mb_run *r, const mb_op *op, uint32_t y) {
  const uint32_t height = r->net->values[op->in].height;
  uint32_t need = y * op->sy + ((uint32_t)op->kh - 1u) * op->dy + 1u + op->wait;
  need = need > op->pad_top ? need - op->pad_top : 0u;
  if (y >= op->height) return 0;
  if (need > height || r->net->whole) need = height;
  if (r->rows[op->in] < need) return 0;
  if (op->in2 == MB_NONE) return 1;
  return r->rows[op->in2] >= (r->net->whole ? r->net->values[op->in2].height : y + 1u);
}

/* How many rows of its output an operation has finished after `done` rows of its own. */
static uint32_t finished(const mb_op *op, uint32_t done) {
#if MB_HAS_THEN_POOL || MB_HAS_MEAN
  if (op->then == MB_THEN_POOL || op->kind == MB_MEAN) {
    const mb_pool *pool = op->pool;
    const uint32_t reach = done + pool->pad_top;
    const uint32_t count = reach < pool->kh ? 0u : (reach - pool->kh) / pool->sy + 1u;
    return count > pool->height || done == op->height ? pool->height : count;
  }
#endif
  (void)op;
  return done;
}

/* A value has as many rows as the last of those that write channels of it. */
static void count_rows(const mb_run *r, uint32_t value) {
  uint32_t n, fewest = UINT16_MAX;
  for (n = 0; n < r->net->op_count; n++) {
    if (r->net->ops[n].out == value) {
      const uint32_t rows = finished(&r->net->ops[n], r->next[n]);
      fewest = rows < fewest ? rows : fewest;
    }
  }
  r->rows[value] = (uint16_t)fewest;
}

void mb_start(const mb_net *net, uint16_t *counters) {
  memset(counters, 0, sizeof *counters * ((uint32_t)net->op_count + net->value_count));
}

int mb_feed_row(const mb_net *net, uint16_t *counters, uint32_t *arena, const uint8_t *row, uint32_t channel_step,
                uint32_t pixel_step) {
  const mb_value *in = &net->values[0];
  uint32_t channel, x, n;
  mb_run r;
  r.net = net;
  r.arena = (int8_t *)arena;
  r.next = counters;
  r.rows = counters + net->op_count;
  if (r.rows[0] >= in->height) return 1;
  for (channel = 0; (channel + 1u) * in->stride <= in->pitch; channel++) {
    int8_t *q = row_of(&r, in, r.rows[0]) + channel * in->stride;
    for (x = 0; x < in->width; x++) {
      const int32_t pixel = row[channel * channel_step + x * pixel_step];
      const int32_t sum = pixel * net->input[2u * channel] + net->input[2u * channel + 1u];
      q[x] = (int8_t)within(floor_shift(sum, net->input_shift), -128, 127);
    }
    pad_behind(in, q, channel == 0u);
  }
  r.rows[0]++;
  /* The last operation that can run does, a row, so that rows are used as soon as they are there. */
  for (n = net->op_count; n-- > 0u;) {
    if (can_run(&r, &net->ops[n], r.next[n])) {
      run_op(&r, &net->ops[n], r.next[n]);
      r.next[n]++;
      count_rows(&r, net->ops[n].out);
      n = net->op_count;
    }
  }
  return r.rows[0] >= in->height; /* the output may have been there before: then the last rows do not count */
}

int8_t mb_output(const mb_net *net, const uint32_t *arena, uint32_t channel, uint32_t y, uint32_t x) {
  const mb_value *v = &net->values[net->output];
  return ((const int8_t *)arena)[v->at + (y % v->rows) * v->pitch + channel * v->stride + x];
}
