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

// There is no gather: four sums side by side keep both multipliers busy.
template <class Column>
float gather_dot_of(const Column* columns, const float* values, size_t count, const float* x) {
  float a = 0, b = 0, c = 0, d = 0;
  size_t k = 0;
  for (; k + 4 <= count; k += 4) {
    a += values[k] * x[columns[k]];
    b += values[k + 1] * x[columns[k + 1]];
    c += values[k + 2] * x[columns[k + 2]];
    d += values[k + 3] * x[columns[k + 3]];
  }
  for (; k < count; ++k) a += values[k] * x[columns[k]];
  return (a + b) + (c + d);
}

float gather_dot(const int32_t* columns, const float* values, size_t count, const float* x) {
  return gather_dot_of(columns, values, count, x);
}

float gather_dot16(const uint16_t* columns, const float* values, size_t count, const float* x) {
  return gather_dot_of(columns, values, count, x);
}

void half_to_float(const uint16_t* half, float* out, size_t n) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4) store(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(half + i))));
  for (; i < n; ++i) out[i] = vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half[i]))), 0);
}

#include "net_kernels.inc"

}  // namespace

const NetKernels& neon_net_kernels() {
  static const NetKernels kernels = table("neon", 0.6f);
  return kernels;
}

}  // namespace membound
