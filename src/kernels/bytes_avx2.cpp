// Products in 8 bits on AVX2, which multiplies pairs of 16 bits. AVX-512 without VNNI takes these, too.
#include <immintrin.h>

#include <cstring>

#include "bytes.h"

namespace membound {
namespace {

constexpr size_t kWidth = 8;
constexpr int kVectors = 1;

using Vec = __m256;
using Ints = __m256i;
inline Ints fill_ints(int32_t x) { return _mm256_set1_epi32(x); }
inline Ints first_lanes(size_t n) {
  return _mm256_cmpgt_epi32(fill_ints(static_cast<int32_t>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline Vec fill(float x) { return _mm256_set1_ps(x); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec smaller(Vec a, Vec b) { return _mm256_min_ps(a, b); }
inline Vec larger(Vec a, Vec b) { return _mm256_max_ps(a, b); }
inline void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
// Of these two, the second operand is the result where either is NaN.
inline Vec within(Vec v, Vec low, Vec high) { return _mm256_min_ps(high, _mm256_max_ps(low, v)); }
template <class Operation>
inline float all_lanes(Vec v, Operation operation) {
  float lanes[kWidth];
  store(lanes, v);
  for (size_t i = 1; i < kWidth; ++i) lanes[0] = operation(lanes[0], lanes[i]);
  return lanes[0];
}
inline float least(Vec v) {
  return all_lanes(v, [](float a, float b) { return b < a ? b : a; });
}
inline float most(Vec v) {
  return all_lanes(v, [](float a, float b) { return b > a ? b : a; });
}
inline float total(Vec v) {
  return all_lanes(v, [](float a, float b) { return a + b; });
}
inline void store_some(float* p, Vec v, size_t n) { _mm256_maskstore_ps(p, first_lanes(n), v); }
inline Vec to_floats(Ints v) { return _mm256_cvtepi32_ps(v); }
inline Ints join(const Vec (&channels)[kWordChannels]) {
  const Vec least = fill(-128.0f), most = fill(127.0f);
  Ints words = fill_ints(0);
#pragma GCC unroll 4
  for (int c = 3; c >= 0; --c) {
    const Ints byte = _mm256_cvtps_epi32(smaller(larger(channels[c], least), most));
    words = _mm256_or_si256(_mm256_slli_epi32(words, 8), _mm256_and_si256(byte, fill_ints(255)));
  }
  return _mm256_xor_si256(words, fill_ints(static_cast<int32_t>(0x80808080u)));
}
inline Ints load_words(const uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const Ints*>(p)); }
inline void store_words(uint32_t* p, Ints v, size_t n) {
  _mm256_maskstore_epi32(reinterpret_cast<int*>(p), first_lanes(n), v);
}

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

#include "bytes.inc"

}  // namespace

const ByteKernels& avx2_byte_kernels() {
  static constexpr ByteKernels kernels{kWidth, 0, range, to_words, multiply};
  return kernels;
}

}  // namespace membound
