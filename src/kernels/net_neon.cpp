// Networks on NEON, which every aarch64 has.
#include <arm_neon.h>

#include "net_kernels.h"

namespace membound {
namespace {

constexpr const Traits& kTraits = kNeon;
constexpr size_t kWidth = kTraits.width;

using Vec = float32x4_t;
inline Vec load(const float* p) { return vld1q_f32(p); }
inline void store(float* p, Vec v) { vst1q_f32(p, v); }
inline Vec fill(float x) { return vdupq_n_f32(x); }
inline Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
inline Vec add(Vec a, Vec b) { return vaddq_f32(a, b); }
inline float total(Vec v) { return vaddvq_f32(v); }
inline Vec larger(Vec a, Vec b) { return vmaxq_f32(a, b); }
inline Vec load_second(const float* p) { return vld2q_f32(p).val[0]; }
inline Vec within(Vec v, Vec low, Vec high) { return vminq_f32(vmaxq_f32(v, low), high); }

// sums[t] += values[i] x[offsets[i] + t kWidth], for i = 0, then 1, and so on, while there are two more; the result is how many
// were taken. Two offsets come with one load, and so do two values: those of the next two, before these meet the image.
#define MEMBOUND_OWN_PAIRS
#define MEMBOUND_LOADS_AHEAD  // of a dense product, too
template <int T>
inline __attribute__((always_inline)) size_t add_pairs(const int32_t* offsets, const float* values, size_t count, const float* x,
                                                       Vec (&sums)[T]) {
  const size_t end = count / 2 * 2;
  if (end == 0) return 0;
  int64_t next_offsets;
  __builtin_memcpy(&next_offsets, offsets, sizeof next_offsets);
  float32x2_t next_values = vld1_f32(values);
  for (size_t k = 2;; k += 2) {
    const float* first = x + static_cast<int32_t>(next_offsets);
    const float* second = x + (next_offsets >> 32);
    const float32x2_t both = next_values;
    const size_t next = k < end ? k : 0;
    __builtin_memcpy(&next_offsets, offsets + next, sizeof next_offsets);
    next_values = vld1_f32(values + next);
#pragma GCC unroll 32
    for (int t = 0; t < T; ++t) sums[t] = vfmaq_lane_f32(sums[t], load(first + static_cast<size_t>(t) * kWidth), both, 0);
#pragma GCC unroll 32
    for (int t = 0; t < T; ++t) sums[t] = vfmaq_lane_f32(sums[t], load(second + static_cast<size_t>(t) * kWidth), both, 1);
    if (k == end) return end;
  }
}

// The first n floats, 1 <= n <= 4: the rest of memory is neither read nor written.
#define MEMBOUND_OWN_SOME
inline Vec load_some(const float* p, size_t n) {
  if (n == kWidth) return load(p);
  if (n == 1) return vld1q_lane_f32(p, fill(0.0f), 0);
  const Vec two = vcombine_f32(vld1_f32(p), vdup_n_f32(0.0f));
  return n == 2 ? two : vld1q_lane_f32(p + 2, two, 2);
}
inline void store_some(float* p, Vec v, size_t n) {
  if (n == kWidth) return store(p, v);
  if (n == 1) return vst1q_lane_f32(p, v, 0);
  vst1_f32(p, vget_low_f32(v));
  if (n == 3) vst1q_lane_f32(p + 2, v, 2);
}

// Lanes that are inside: loaded from where the row begins, if it begins behind the first of them, and moved to their places.
// Other lanes are read from no further than kWidth floats behind the row, where there is slack, and are not used.
#define MEMBOUND_OWN_LANES
#define MEMBOUND_COPIES_ROWS  // which takes less than masking their lanes
struct Lanes {
  uint8x16_t bytes;  // of each byte, where it comes from; others become zeros
  int skipped;       // floats that the load begins later
  int count;         // if the first lane is inside, how many are
};
inline Lanes lanes_inside(int first, int width) {
  static constexpr uint8_t kBytes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  static constexpr int32_t kPlaces[4] = {0, 1, 2, 3};
  const int skipped = first < 0 ? -first : first > width ? width - first : 0, left = width - first;
  const uint32x4_t behind = vcgeq_s32(vld1q_s32(kPlaces), vdupq_n_s32(left));
  const uint32x4_t before = vcltq_s32(vld1q_s32(kPlaces), vdupq_n_s32(-first));
  const uint8x16_t moved = vsubq_u8(vld1q_u8(kBytes), vdupq_n_u8(static_cast<uint8_t>(4 * skipped)));
  return {vorrq_u8(moved, vreinterpretq_u8_u32(vorrq_u32(before, behind))), skipped, left < 4 ? left : 4};
}
inline Vec load_lanes(const float* p, const Lanes& lanes) {
  return vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(load(p + lanes.skipped)), lanes.bytes));
}
inline Vec load_lanes(const float* p, const Lanes& lanes, Vec outside) {
  return vreinterpretq_f32_u8(
      vqtbx1q_u8(vreinterpretq_u8_f32(outside), vreinterpretq_u8_f32(load(p + lanes.skipped)), lanes.bytes));
}
inline void store_lanes(float* p, Vec v, const Lanes& lanes) { store_some(p, v, static_cast<size_t>(lanes.count)); }
inline Vec lanes_after(Vec v, Vec before) { return vextq_f32(before, v, 3); }
inline Vec even_lanes(Vec low, Vec high) { return vuzp1q_f32(low, high); }
inline Vec odd_lanes(Vec low, Vec high) { return vuzp2q_f32(low, high); }
inline Vec multiply(Vec a, Vec b) { return vmulq_f32(a, b); }
inline Vec divide(Vec a, Vec b) { return vdivq_f32(a, b); }

// Of a depthwise kernel: as many sums as the registers hold, beside its taps.
#define MEMBOUND_OWN_SIDES
template <int K>
constexpr int kSides = K == 3 ? 4 : K == 5 ? 2 : 1;
constexpr int kRowsAtOnce = 4;
constexpr bool kLoadsInside = true;

// The taps of a depthwise kernel, four in a register: each multiplies from its lane.
#define MEMBOUND_OWN_TAPS
template <int K>
struct Taps {
  Vec of[(K * K + 3) / 4];
  explicit Taps(const float* taps) {
#pragma GCC unroll 16
    for (int i = 0; i < K * K; i += 4) of[i / 4] = load_some(taps + i, static_cast<size_t>(K * K - i < 4 ? K * K - i : 4));
  }
  inline __attribute__((always_inline)) Vec times(int i, int j, Vec x, Vec sum) const {
    const Vec four = of[(i * K + j) / 4];
    switch ((i * K + j) % 4) {
      case 0: return vfmaq_laneq_f32(sum, x, four, 0);
      case 1: return vfmaq_laneq_f32(sum, x, four, 1);
      case 2: return vfmaq_laneq_f32(sum, x, four, 2);
      default: return vfmaq_laneq_f32(sum, x, four, 3);
    }
  }
};

#define MEMBOUND_OWN_SQUARE
inline __attribute__((always_inline)) void transpose(Vec (&square)[kWidth]) {
  const float32x4x2_t low = vtrnq_f32(square[0], square[1]), high = vtrnq_f32(square[2], square[3]);
#pragma GCC unroll 2
  for (size_t i = 0; i < 2; ++i) {
    square[i] = vcombine_f32(vget_low_f32(low.val[i]), vget_low_f32(high.val[i]));
    square[i + 2] = vcombine_f32(vget_high_f32(low.val[i]), vget_high_f32(high.val[i]));
  }
}

inline void store_eight(int32_t* p, const uint8_t* bytes, int32_t x) {
  const uint16x8_t wide = vmovl_u8(vld1_u8(bytes));
  const int32x4_t base = vdupq_n_s32(x);
  vst1q_s32(p, vaddq_s32(base, vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)))));
  vst1q_s32(p + 4, vaddq_s32(base, vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(wide)))));
}

// Columns eight at a time, while the last of them, which in a row is the largest, is below the end.
#define MEMBOUND_OWN_PLACE
size_t short_columns(const uint16_t* from, size_t count, size_t end, int32_t* columns) {
  size_t n = 0;
  for (; n + 8 <= count; n += 8) {
    if (from[n + 7] >= end) break;
    const uint16x8_t eight = vld1q_u16(from + n);
    vst1q_s32(columns + n, vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(eight))));
    vst1q_s32(columns + n + 4, vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(eight))));
  }
  for (; n < count && from[n] < end; ++n) columns[n] = from[n];
  return n;
}

void place(const int32_t* columns, int32_t base, size_t count, const Places& places, int32_t* offsets) {
  size_t k = 0;
  if (places.table) {
    const int32_t* table = places.table - base;
    for (; k + 4 <= count; k += 4) {  // all are read before any is written: these may be the same
      const int32_t a = table[columns[k]], b = table[columns[k + 1]], c = table[columns[k + 2]], d = table[columns[k + 3]];
      offsets[k] = a;
      offsets[k + 1] = b;
      offsets[k + 2] = c;
      offsets[k + 3] = d;
    }
    for (; k < count; ++k) offsets[k] = table[columns[k]];
    return;
  }
  const int32x4_t from = vdupq_n_s32(base);
  for (; k + 4 <= count; k += 4) vst1q_s32(offsets + k, vmulq_n_s32(vsubq_s32(vld1q_s32(columns + k), from), places.step));
  for (; k < count; ++k) offsets[k] = (columns[k] - base) * places.step;
}

size_t count_below(const int32_t* numbers, size_t n, int32_t limit) {
  const int32x4_t end = vdupq_n_s32(limit);
  size_t k = 0;
  for (; k + 4 <= n; k += 4) {
    const uint32_t below = vaddvq_u32(vshrq_n_u32(vcltq_s32(vld1q_s32(numbers + k), end), 31));
    if (below < 4) return k + below;
  }
  while (k < n && numbers[k] < limit) ++k;
  return k;
}

constexpr size_t kGaps = 8;
inline int32_t store_sums(int32_t* p, const uint8_t* gaps, int32_t x) {
  const uint16x8_t zero = vdupq_n_u16(0);
  uint16x8_t sums = vaddq_u16(vmovl_u8(vld1_u8(gaps + 1)), vdupq_n_u16(1));
  sums = vaddq_u16(sums, vextq_u16(zero, sums, 7));
  sums = vaddq_u16(sums, vextq_u16(zero, sums, 6));
  sums = vaddq_u16(sums, vextq_u16(zero, sums, 4));
  const uint16x8_t before = vextq_u16(zero, sums, 7);
  const int32x4_t here = vdupq_n_s32(x);
  vst1q_s32(p, vaddq_s32(here, vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(before)))));
  vst1q_s32(p + 4, vaddq_s32(here, vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(before)))));
  return x + vgetq_lane_u16(sums, 7);
}

inline Vec load(const Half* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p))));
}
inline float single(Half half) { return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half.bits))), 0); }
inline float single(float x) { return x; }

// sums[i] += values[i] x[at(i)] for four values, which are loaded, and converted, together: each multiplies from its lane.
template <class Value, class At>
inline void add_four(const Value* values, const float* x, float* sums, At at) {
  const Vec four = load(values);
  sums[0] = vfmas_laneq_f32(sums[0], x[at(0)], four, 0);
  sums[1] = vfmas_laneq_f32(sums[1], x[at(1)], four, 1);
  sums[2] = vfmas_laneq_f32(sums[2], x[at(2)], four, 2);
  sums[3] = vfmas_laneq_f32(sums[3], x[at(3)], four, 3);
}

// There is no gather. It is loads that this waits for: several columns come with one of them. Eight sums side by side keep both
// multipliers busy.
inline uint64_t word_at(const void* p) {
  uint64_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return word;
}
inline auto four_columns(const uint16_t* columns) {
  return [four = word_at(columns)](size_t i) { return four >> (16 * i) & 0xffff; };
}
inline auto four_columns(const int32_t* columns) {
  return [low = word_at(columns), high = word_at(columns + 2)](size_t i) {
    const uint64_t two = i < 2 ? low : high;
    return i % 2 == 0 ? static_cast<uint32_t>(two) : two >> 32;
  };
}

template <class Column, class Value>
float gather_dot(const Column* columns, const Value* values, size_t count, const float* x) {
  float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  size_t k = 0;
  for (; k + 8 <= count; k += 8) {
    add_four(values + k, x, sums, four_columns(columns + k));
    add_four(values + k + 4, x, sums + 4, four_columns(columns + k + 4));
  }
  if (k + 4 <= count) {
    add_four(values + k, x, sums, four_columns(columns + k));
    k += 4;
  }
  for (; k < count; ++k) sums[0] += single(values[k]) * x[columns[k]];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

#define MEMBOUND_OWN_GAP_DOT
template <class Value>
float gap_dot(const uint8_t* gaps, size_t column, const Value* values, size_t count, const float* x) {
  if (count == 0) return 0.0f;
  size_t at = column;
  float sums[4] = {single(values[0]) * x[at], 0, 0, 0};
  size_t k = 1;
  for (; k + 4 <= count; k += 4) add_four(values + k, x, sums, [&](size_t i) { return at += gaps[k + i] + 1u; });
  for (; k < count; ++k) {
    at += gaps[k] + 1u;
    sums[0] += single(values[k]) * x[at];
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Codes, gaps and bits.
#define MEMBOUND_OWN_DECODING "net_codes_neon.inc"
#define MEMBOUND_OWN_BIT_DOT
#define MEMBOUND_OWN_RICE_DOTS

// Four by four, transposed in registers.
#define MEMBOUND_OWN_PACK
template <class Value>
void pack_some(const Value* a, size_t a_step, size_t first, size_t last, float* packed);

template <class Value>
void pack_of(const Value* a, size_t a_step, size_t depth, float* packed) {
  constexpr size_t kRows = kTraits.gemm_rows;
  size_t k = 0;
  for (; k + 4 <= depth; k += 4)
    for (size_t r = 0; r < kRows; r += 4) {
      const Value* from = a + r * a_step + k;
      const float32x4x2_t low = vtrnq_f32(load(from), load(from + a_step));
      const float32x4x2_t high = vtrnq_f32(load(from + 2 * a_step), load(from + 3 * a_step));
      float* to = packed + k * kRows + r;
      for (size_t i = 0; i < 2; ++i) {
        store(to + i * kRows, vcombine_f32(vget_low_f32(low.val[i]), vget_low_f32(high.val[i])));
        store(to + (i + 2) * kRows, vcombine_f32(vget_high_f32(low.val[i]), vget_high_f32(high.val[i])));
      }
    }
  pack_some(a, a_step, k, depth, packed);
}

// The left factors come four at a time, and each multiplies from its lane.
#define MEMBOUND_OWN_GEMM_STEP
template <int N>
inline __attribute__((always_inline)) void gemm_step(const float* a, const Vec (&right)[N],
                                                     Vec (&sums)[kTraits.gemm_rows][N]) {
#pragma GCC unroll 2
  for (int r = 0; r < kTraits.gemm_rows; r += 4) {
    const Vec left = load(a + r);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      sums[r][n] = vfmaq_laneq_f32(sums[r][n], right[n], left, 0);
      sums[r + 1][n] = vfmaq_laneq_f32(sums[r + 1][n], right[n], left, 1);
      sums[r + 2][n] = vfmaq_laneq_f32(sums[r + 2][n], right[n], left, 2);
      sums[r + 3][n] = vfmaq_laneq_f32(sums[r + 3][n], right[n], left, 3);
    }
  }
}

#include "net_kernels.inc"

}  // namespace

const NetKernels& neon_net_kernels() {
  static const NetKernels kernels = table();
  return kernels;
}

}  // namespace membound
