// Products in 8 bits on AVX-512 with VNNI: dot products of unsigned bytes with signed ones.
#include <immintrin.h>

#include <cstring>

#include "bytes.h"

namespace membound {
namespace {

constexpr size_t kWidth = 16;
constexpr int kVectors = 3;

using Vec = __m512;
using Ints = __m512i;
inline __mmask16 first_lanes(size_t n) { return static_cast<__mmask16>((1u << n) - 1); }
inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline Vec fill(float x) { return _mm512_set1_ps(x); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec smaller(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec larger(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
// Of these two, the second operand is the result where either is NaN.
inline Vec within(Vec v, Vec low, Vec high) { return _mm512_min_ps(high, _mm512_max_ps(low, v)); }
inline float least(Vec v) { return _mm512_reduce_min_ps(v); }
inline float most(Vec v) { return _mm512_reduce_max_ps(v); }
inline float total(Vec v) { return _mm512_reduce_add_ps(v); }
inline void store_some(float* p, Vec v, size_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }
inline Ints fill_ints(int32_t x) { return _mm512_set1_epi32(x); }
inline Vec to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
inline Ints join(const Vec (&channels)[kWordChannels]) {
  const Vec least = fill(-128.0f), most = fill(127.0f);
  Ints words = fill_ints(0);
#pragma GCC unroll 4
  for (int c = 3; c >= 0; --c) {
    const Ints byte = _mm512_cvtps_epi32(smaller(larger(channels[c], least), most));
    words = _mm512_or_si512(_mm512_slli_epi32(words, 8), _mm512_and_si512(byte, fill_ints(255)));
  }
  return _mm512_xor_si512(words, fill_ints(static_cast<int32_t>(0x80808080u)));
}
inline Ints load_words(const uint32_t* p) { return _mm512_loadu_si512(p); }
inline void store_words(uint32_t* p, Ints v, size_t n) { _mm512_mask_storeu_epi32(p, first_lanes(n), v); }

// In assembly: around the intrinsic, compilers copy sums to and fro.
inline __attribute__((always_inline)) void add_dot(Ints& sum, Ints x, Ints weight) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(weight));
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

const ByteKernels& avx512_dot_byte_kernels() {
  static constexpr ByteKernels kernels{kWidth, 0, range, to_words, multiply};
  return kernels;
}

}  // namespace membound
