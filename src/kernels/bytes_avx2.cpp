// Products in 8 bits on AVX2, which multiplies pairs of 16 bits. AVX-512 without VNNI takes these, too.
#include <immintrin.h>

#include <cstring>
#include <type_traits>

#include "bytes.h"

namespace membound {
namespace {

constexpr size_t kWidth = 8;
constexpr int kVectors = 1;
constexpr int kStrip = 1;
constexpr int32_t kShift = 0;

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
constexpr bool kSpreadsNaN = false;
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
inline Vec as_floats(Ints v) { return _mm256_castsi256_ps(v); }
inline Vec less(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
// Its last byte is what it is rounded to.
inline Ints whole(Vec v) {
  const Ints least = fill_ints(kWholeBits - 128), most = fill_ints(kWholeBits + 127);
  return _mm256_min_epi32(_mm256_max_epi32(_mm256_castps_si256(v), least), most);
}
inline Ints join(const Vec (&channels)[kWordChannels]) {
  Ints words = fill_ints(0);
#pragma GCC unroll 4
  for (int c = 3; c >= 0; --c)
    words = _mm256_or_si256(_mm256_slli_epi32(words, 8), _mm256_and_si256(whole(channels[c]), fill_ints(255)));
  return _mm256_xor_si256(words, fill_ints(static_cast<int32_t>(0x80808080u)));
}
inline Ints join_near(const Vec (&channels)[kWordChannels]) { return join(channels); }
template <int S>
inline Ints windows(const uint8_t* p) {
  const Ints all = _mm256_loadu_si256(reinterpret_cast<const Ints*>(p));
  const Ints halves = _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 1, 2, 0, S, S + 1, S + 2, 0));
  return _mm256_shuffle_epi8(halves, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, S, S + 1, S + 2, S + 3, 2 * S, 2 * S + 1, 2 * S + 2,
                                                                               2 * S + 3, 3 * S, 3 * S + 1, 3 * S + 2, 3 * S + 3)));
}
constexpr size_t kAcross = kWidth;
template <int R>
inline void store_bytes(int8_t* to, size_t step, const Vec (&v)[R][1], size_t n) {
  for (size_t r = 0; r < R; ++r) {
    const Ints bytes_apart = _mm256_sub_epi32(whole(v[r][0]), fill_ints(kWholeBits));
    const __m128i shorts = _mm_packs_epi32(_mm256_castsi256_si128(bytes_apart), _mm256_extracti128_si256(bytes_apart, 1));
    const int64_t bytes = _mm_cvtsi128_si64(_mm_packs_epi16(shorts, shorts));
    std::memcpy(to + r * step, &bytes, n);
  }
}
constexpr size_t kSplit = kWidth;
// The bytes of each channel together, in each half and then in both.
inline void split_some(const uint32_t* words, uint8_t* planes, size_t step) {
  const Ints all = _mm256_loadu_si256(reinterpret_cast<const Ints*>(words));
  const Ints turned = _mm256_shuffle_epi8(all, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
  int64_t channels[kWordChannels];
  _mm256_storeu_si256(reinterpret_cast<Ints*>(channels), _mm256_permutevar8x32_epi32(turned, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  for (size_t c = 0; c < kWordChannels; ++c) std::memcpy(planes + c * step, channels + c, sizeof *channels);
}
inline void unite_some(const int8_t* planes, size_t step, uint32_t* words) {
  __m128i rows[kWordChannels];
  for (size_t c = 0; c < kWordChannels; ++c) rows[c] = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(planes + c * step));
  const __m128i low = _mm_unpacklo_epi8(rows[0], rows[1]), high = _mm_unpacklo_epi8(rows[2], rows[3]);
  const __m128i sign = _mm_set1_epi8(static_cast<char>(0x80));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(words), _mm_xor_si128(_mm_unpacklo_epi16(low, high), sign));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(words + 4), _mm_xor_si128(_mm_unpackhi_epi16(low, high), sign));
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
