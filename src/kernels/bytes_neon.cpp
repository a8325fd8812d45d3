// Products in 8 bits on Arm CPUs with dot products (Armv8.2): of signed bytes.
#include <arm_neon.h>

#include "bytes.h"

namespace membound {
namespace {

constexpr size_t kWidth = 4;

using Vec = float32x4_t;
using Ints = int32x4_t;
inline Vec load(const float* p) { return vld1q_f32(p); }
inline Vec fill(float x) { return vdupq_n_f32(x); }
inline Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
inline Vec smaller(Vec a, Vec b) { return vminq_f32(a, b); }
inline Vec larger(Vec a, Vec b) { return vmaxq_f32(a, b); }
inline void store(float* p, Vec v) { vst1q_f32(p, v); }
inline Vec within(Vec v, Vec low, Vec high) { return vminq_f32(vmaxq_f32(v, low), high); }
inline float least(Vec v) { return vminvq_f32(v); }
inline float most(Vec v) { return vmaxvq_f32(v); }
inline float total(Vec v) { return vaddvq_f32(v); }
inline void store_some(float* p, Vec v, size_t n) {
  if (n == kWidth) return store(p, v);
  if (n == 1) return vst1q_lane_f32(p, v, 0);
  vst1_f32(p, vget_low_f32(v));
  if (n == 3) vst1q_lane_f32(p + 2, v, 2);
}
inline Ints fill_ints(int32_t x) { return vdupq_n_s32(x); }
inline Vec to_floats(Ints v) { return vcvtq_f32_s32(v); }
inline Ints join(const Vec (&channels)[kWordChannels]) {
  static constexpr uint8_t kTurned[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  const auto narrow = [](Vec a, Vec b) { return vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(a)), vcvtnq_s32_f32(b)); };
  const int8x16_t bytes =
      vqmovn_high_s16(vqmovn_s16(narrow(channels[0], channels[1])), narrow(channels[2], channels[3]));
  return vreinterpretq_s32_s8(vqtbl1q_s8(bytes, vld1q_u8(kTurned)));
}
inline Ints load_words(const uint32_t* p) { return vreinterpretq_s32_u32(vld1q_u32(p)); }
inline void store_words(uint32_t* p, Ints v, size_t n) { store_some(reinterpret_cast<float*>(p), vreinterpretq_f32_s32(v), n); }

// Four words of the weight come with one load, and each multiplies from its lane.
template <int N>
inline __attribute__((always_inline)) void add_dots(const int8_t* a, const Ints (&x)[N], Ints (&sums)[kByteRows][N]) {
#pragma GCC unroll 2
  for (size_t r = 0; r < kByteRows; r += 4) {
    const int8x16_t left = vld1q_s8(a + r * kWordChannels);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const int8x16_t right = vreinterpretq_s8_s32(x[n]);
      sums[r][n] = vdotq_laneq_s32(sums[r][n], right, left, 0);
      sums[r + 1][n] = vdotq_laneq_s32(sums[r + 1][n], right, left, 1);
      sums[r + 2][n] = vdotq_laneq_s32(sums[r + 2][n], right, left, 2);
      sums[r + 3][n] = vdotq_laneq_s32(sums[r + 3][n], right, left, 3);
    }
  }
}

#include "bytes.inc"

}  // namespace

const ByteKernels& neon_byte_kernels() {
  static constexpr ByteKernels kernels{kSigned, range, to_words, multiply};
  return kernels;
}

}  // namespace membound
