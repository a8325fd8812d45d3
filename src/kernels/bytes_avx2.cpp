// Products in 8 bits on AVX2, which multiplies pairs of 16 bits. AVX-512 without VNNI takes these, too.
#include <immintrin.h>

#include <cstring>
#include <type_traits>

#include "bytes.h"

namespace membound {
namespace {

#include "bytes_avx2.inc"

constexpr int kVectors = 1;
constexpr size_t kSparseVectors = 8;
constexpr int kStrip = 1;

// The even and the odd bytes of a word, each as 16 bits.
template <int N>
inline __attribute__((always_inline)) void add_dots(const int8_t* a, const Ints (&x)[N], Ints (&sums)[kByteRows][N]) {
  Ints even[N], odd[N];
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    even[n] = _mm256_and_si256(x[n], _mm256_set1_epi16(255));
    odd[n] = _mm256_srli_epi16(x[n], 8);
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kByteRows; ++r) {
    int32_t word;
    std::memcpy(&word, a + r * kWordChannels, sizeof word);
    const Ints weight = fill_ints(word);
    const Ints left = _mm256_srai_epi16(_mm256_slli_epi16(weight, 8), 8), right = _mm256_srai_epi16(weight, 8);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n)
      sums[r][n] = _mm256_add_epi32(sums[r][n], _mm256_add_epi32(_mm256_madd_epi16(even[n], left), _mm256_madd_epi16(odd[n], right)));
  }
}

inline __attribute__((always_inline)) void add_dot(Ints& sum, Ints x, Ints weight) {
  const Ints left = _mm256_srai_epi16(_mm256_slli_epi16(weight, 8), 8), right = _mm256_srai_epi16(weight, 8);
  const Ints even = _mm256_and_si256(x, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(x, 8);
  sum = _mm256_add_epi32(sum, _mm256_add_epi32(_mm256_madd_epi16(even, left), _mm256_madd_epi16(odd, right)));
}

#include "bytes.inc"

}  // namespace

const ByteKernels& avx2_byte_kernels() {
  return kKernels;
}

}  // namespace membound
