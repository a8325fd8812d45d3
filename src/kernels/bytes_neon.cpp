// Products in 8 bits on Arm CPUs without dot products.
#include <arm_neon.h>

#include "bytes.h"

namespace membound {
namespace {

#include "bytes_neon.inc"

constexpr int kVectors = 2;

// Products of 16 bits, of which two fit into as many, then pairs of these.
template <int N>
inline __attribute__((always_inline)) void add_dots(const int8_t* a, const Ints (&x)[N], Ints (&sums)[kByteRows][N]) {
#pragma GCC unroll 8
  for (size_t r = 0; r < kByteRows; ++r) {
    const int8x16_t left = vreinterpretq_s8_s32(vld1q_dup_s32(reinterpret_cast<const int32_t*>(a + r * kWordChannels)));
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const int8x16_t right = vreinterpretq_s8_s32(x[n]);
      const int16x8_t low = vmull_s8(vget_low_s8(left), vget_low_s8(right)), high = vmull_high_s8(left, right);
      sums[r][n] = vpadalq_s16(sums[r][n], vpaddq_s16(low, high));
    }
  }
}

#include "bytes.inc"

}  // namespace

const ByteKernels& neon_byte_kernels() {
  static constexpr ByteKernels kernels{kWidth, kSigned, range, to_words, multiply};
  return kernels;
}

}  // namespace membound
