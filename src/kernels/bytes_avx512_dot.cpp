// Products in 8 bits on AVX-512 with VNNI: dot products of unsigned bytes with signed ones.
#include <immintrin.h>

#include <cstring>
#include <type_traits>

#include "bytes.h"

namespace membound {
namespace {

constexpr size_t kWidth = 16;
constexpr int kVectors = 3;
constexpr size_t kSparseVectors = 16;
constexpr int kStrip = 4;
constexpr int32_t kShift = 0;

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
constexpr bool kSpreadsNaN = false;
inline float least(Vec v) { return _mm512_reduce_min_ps(v); }
inline float most(Vec v) { return _mm512_reduce_max_ps(v); }
inline float total(Vec v) { return _mm512_reduce_add_ps(v); }
inline void store_some(float* p, Vec v, size_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }
inline Ints fill_ints(int32_t x) { return _mm512_set1_epi32(x); }
inline Vec to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
inline Vec as_floats(Ints v) { return _mm512_castsi512_ps(v); }
inline Vec less(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
// Its last byte is what it is rounded to.
inline Ints whole(Vec v) {
  const Ints least = fill_ints(kWholeBits - 128), most = fill_ints(kWholeBits + 127);
  return _mm512_min_epi32(_mm512_max_epi32(_mm512_castps_si512(v), least), most);
}
inline Ints join(const Vec (&channels)[kWordChannels]) {
  Ints words = fill_ints(0);
#pragma GCC unroll 4
  for (int c = 3; c >= 0; --c)
    words = _mm512_or_si512(_mm512_slli_epi32(words, 8), _mm512_and_si512(whole(channels[c]), fill_ints(255)));
  return _mm512_xor_si512(words, fill_ints(static_cast<int32_t>(0x80808080u)));
}
inline Ints join_near(const Vec (&channels)[kWordChannels]) { return join(channels); }
template <int S>
inline Ints windows(const uint8_t* p) {
  const Ints places = _mm512_setr_epi32(0, 1, 2, 0, S, S + 1, S + 2, 0, 2 * S, 2 * S + 1, 2 * S + 2, 0, 3 * S, 3 * S + 1, 3 * S + 2, 0);
  const Ints quarters = _mm512_permutexvar_epi32(places, _mm512_loadu_si512(p));
  return _mm512_shuffle_epi8(quarters, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, S, S + 1, S + 2, S + 3, 2 * S, 2 * S + 1, 2 * S + 2,
                                                                            2 * S + 3, 3 * S, 3 * S + 1, 3 * S + 2, 3 * S + 3)));
}
constexpr size_t kAcross = kWidth;
template <int R>
inline void store_bytes(int8_t* to, size_t step, const Vec (&v)[R][1], size_t n) {
  for (size_t r = 0; r < R; ++r) _mm512_mask_cvtepi32_storeu_epi8(to + r * step, first_lanes(n), whole(v[r][0]));
}
constexpr size_t kSplit = kWidth;
inline void split_some(const uint32_t* words, uint8_t* planes, size_t step) {
  const Ints all = _mm512_loadu_si512(words);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(planes), _mm512_cvtepi32_epi8(all));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(planes + step), _mm512_cvtepi32_epi8(_mm512_srli_epi32(all, 8)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(planes + 2 * step), _mm512_cvtepi32_epi8(_mm512_srli_epi32(all, 16)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(planes + 3 * step), _mm512_cvtepi32_epi8(_mm512_srli_epi32(all, 24)));
}
inline void unite_some(const int8_t* planes, size_t step, uint32_t* words) {
  Ints all = fill_ints(static_cast<int32_t>(0x80808080u));
  const auto channel = [&](size_t c) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(planes + c * step)));
  };
  all = _mm512_xor_si512(all, _mm512_or_si512(channel(0), _mm512_slli_epi32(channel(1), 8)));
  all = _mm512_xor_si512(all, _mm512_or_si512(_mm512_slli_epi32(channel(2), 16), _mm512_slli_epi32(channel(3), 24)));
  _mm512_storeu_si512(words, all);
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

inline __attribute__((always_inline)) Ints take_word(const int8_t*& values, uint32_t places) {
  int32_t next, from;
  std::memcpy(&next, values, sizeof next);
  std::memcpy(&from, kBytePlaces + places, sizeof from);
  values += __builtin_popcount(places);
  return _mm512_broadcastd_epi32(_mm_shuffle_epi8(_mm_cvtsi32_si128(next), _mm_cvtsi32_si128(from)));
}

#include "bytes.inc"

}  // namespace

const ByteKernels& avx512_dot_byte_kernels() {
  return kKernels;
}

}  // namespace membound
