// Products in 8 bits on Arm CPUs with dot products of signed bytes (Armv8.2).
#include "bytes.h"

#if defined(__ARM_FEATURE_DOTPROD)

#include <arm_neon.h>

#include <cstring>
#include <type_traits>

namespace membound {
namespace {

#include "bytes_neon.inc"

constexpr int kVectors = 3;
constexpr size_t kSparseVectors = 24;
constexpr int kStrip = 4;

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

inline __attribute__((always_inline)) void add_dot(Ints& sum, Ints x, Ints weight) {
  sum = vdotq_s32(sum, vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(weight));
}

#include "bytes.inc"

}  // namespace

const ByteKernels& neon_dot_byte_kernels() {
  return kKernels;
}

}  // namespace membound

#else  // somebody compiles it without kernels.cmake, for any Arm CPU

const membound::ByteKernels& membound::neon_dot_byte_kernels() { return neon_byte_kernels(); }

#endif
