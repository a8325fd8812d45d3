// Networks on NEON, which every aarch64 has.
#include <arm_neon.h>

#include "net_kernels.h"

namespace membound {
namespace {

constexpr size_t kWidth = 4;
constexpr int kTile = 25;         // of 32 registers
constexpr int kGemmRows = 8;      // 8 x 3 accumulators
constexpr int kGemmVectors = 3;

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

inline void store_eight(int32_t* p, const uint8_t* bytes, int32_t x) {
  const uint16x8_t wide = vmovl_u8(vld1_u8(bytes));
  const int32x4_t base = vdupq_n_s32(x);
  vst1q_s32(p, vaddq_s32(base, vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)))));
  vst1q_s32(p + 4, vaddq_s32(base, vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(wide)))));
}

// There is no gather. Four sums side by side keep both multipliers busy.
float gather_dot(const int32_t* columns, const float* values, size_t count, const float* x) {
  float sums[4] = {0, 0, 0, 0};
  size_t k = 0;
  for (; k + 4 <= count; k += 4)
    for (size_t i = 0; i < 4; ++i) sums[i] += values[k + i] * x[columns[k + i]];
  for (; k < count; ++k) sums[0] += values[k] * x[columns[k]];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Four columns come with one load: it is loads that this waits for.
float gather_dot16(const uint16_t* columns, const float* values, size_t count, const float* x) {
  float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  size_t k = 0;
  for (; k + 8 <= count; k += 8) {
    uint64_t four[2];
    __builtin_memcpy(four, columns + k, sizeof four);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) sums[i] += values[k + i] * x[four[i / 4] >> (16 * (i % 4)) & 0xffff];
  }
  for (; k < count; ++k) sums[0] += values[k] * x[columns[k]];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

#define MEMBOUND_OWN_GAP_DOT
float gap_dot(const uint8_t* gaps, size_t column, const float* values, size_t count, const float* x) {
  if (count == 0) return 0.0f;
  const float* at = x + column;
  float sums[4] = {values[0] * *at, 0, 0, 0};
  size_t k = 1;
  for (; k + 4 <= count; k += 4)
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      at += gaps[k + i] + 1;
      sums[i] += values[k + i] * *at;
    }
  for (; k < count; ++k) {
    at += gaps[k] + 1;
    sums[0] += values[k] * *at;
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Four by four, transposed in registers.
#define MEMBOUND_OWN_PACK
void pack(const float* a, size_t a_step, size_t depth, float* packed) {
  size_t k = 0;
  for (; k + 4 <= depth; k += 4)
    for (size_t r = 0; r < kGemmRows; r += 4) {
      const float* from = a + r * a_step + k;
      const float32x4x2_t low = vtrnq_f32(load(from), load(from + a_step));
      const float32x4x2_t high = vtrnq_f32(load(from + 2 * a_step), load(from + 3 * a_step));
      float* to = packed + k * kGemmRows + r;
      for (size_t i = 0; i < 2; ++i) {
        store(to + i * kGemmRows, vcombine_f32(vget_low_f32(low.val[i]), vget_low_f32(high.val[i])));
        store(to + (i + 2) * kGemmRows, vcombine_f32(vget_high_f32(low.val[i]), vget_high_f32(high.val[i])));
      }
    }
  for (; k < depth; ++k)
    for (size_t r = 0; r < kGemmRows; ++r) packed[k * kGemmRows + r] = a[r * a_step + k];
}

void half_to_float(const uint16_t* half, float* out, size_t n) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4) store(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(half + i))));
  for (; i < n; ++i) out[i] = vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half[i]))), 0);
}

// The left factors come four at a time, and each multiplies from its lane.
#define MEMBOUND_OWN_GEMM_STEP
template <int N>
inline __attribute__((always_inline)) void gemm_step(const float* a, const Vec (&right)[N],
                                                     Vec (&sums)[kGemmRows][N]) {
#pragma GCC unroll 2
  for (int r = 0; r < kGemmRows; r += 4) {
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
  static const NetKernels kernels = table("neon", 0.75f, 1024);
  return kernels;
}

}  // namespace membound
