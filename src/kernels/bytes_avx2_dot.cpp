// Products in 8 bits on AVX2 with dot products of unsigned bytes with signed ones (AVX-VNNI).
#include "bytes.h"

#if defined(__AVXVNNI__)

#include <immintrin.h>

#include <cstring>
#include <type_traits>

namespace membound {
namespace {

#include "bytes_avx2.inc"

constexpr int kVectors = 1;
constexpr size_t kSparseVectors = 12;
constexpr int kStrip = 4;

inline __attribute__((always_inline)) void add_dot(Ints& sum, Ints x, Ints weight) {
  sum = _mm256_dpbusd_avx_epi32(sum, x, weight);
}

template <int N>
inline __attribute__((always_inline)) void add_dots(const int8_t* a, const Ints (&x)[N], Ints (&sums)[kByteRows][N]) {
#pragma GCC unroll 8
  for (size_t r = 0; r < kByteRows; ++r) {
    int32_t word;
    std::memcpy(&word, a + r * kWordChannels, sizeof word);
    const Ints left = fill_ints(word);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) add_dot(sums[r][n], x[n], left);
  }
}

#include "bytes.inc"

}  // namespace

const ByteKernels* avx2_dot_byte_kernels() { return &kKernels; }

}  // namespace membound

#else  // a compiler that does not know them

const membound::ByteKernels* membound::avx2_dot_byte_kernels() { return nullptr; }

#endif
