// Products in 8 bits on Arm CPUs without dot products.
#include <arm_neon.h>

#include <cstring>
#include <type_traits>

#include "bytes.h"

namespace membound {
namespace {

#include "bytes_neon.inc"

constexpr int kVectors = 2;
constexpr size_t kSparseVectors = 12;
constexpr int kStrip = 1;

// Products of 16 bits, of which two fit into as many, then pairs of these.
inline __attribute__((always_inline)) void add_dot(Ints& sum, Ints x, Ints weight) {
  const int8x16_t left = vreinterpretq_s8_s32(weight), right = vreinterpretq_s8_s32(x);
  const int16x8_t low = vmull_s8(vget_low_s8(left), vget_low_s8(right)), high = vmull_high_s8(left, right);
  sum = vpadalq_s16(sum, vpaddq_s16(low, high));
}

template <int N>
inline __attribute__((always_inline)) void add_dots(const int8_t* a, const Ints (&x)[N], Ints (&sums)[kByteRows][N]) {
#pragma GCC unroll 8
  for (size_t r = 0; r < kByteRows; ++r) {
    const Ints left = vld1q_dup_s32(reinterpret_cast<const int32_t*>(a + r * kWordChannels));
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) add_dot(sums[r][n], x[n], left);
  }
}

#include "bytes.inc"

}  // namespace

const ByteKernels& neon_byte_kernels() {
  return kKernels;
}

}  // namespace membound
