// Networks on AVX-512.
#include <immintrin.h>

#include "net_kernels.h"

namespace membound {
namespace {

constexpr size_t kWidth = 16;
constexpr int kTile = 28;         // of 32 registers
constexpr int kGemmRows = 8;      // 8 x 3 accumulators
constexpr int kGemmVectors = 3;

using Vec = __m512;
inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline Vec fill(float x) { return _mm512_set1_ps(x); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
// Of these two, the second operand is the result where either is NaN.
inline Vec within(Vec v, Vec low, Vec high) { return _mm512_min_ps(high, _mm512_max_ps(low, v)); }
inline Vec larger(Vec a, Vec b) {
  return _mm512_mask_mov_ps(_mm512_max_ps(a, b), _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a);
}
inline Vec even_lanes(Vec low, Vec high) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return _mm512_permutex2var_ps(low, even, high);
}
inline Vec load_second(const float* p) { return even_lanes(load(p), load(p + kWidth)); }
inline float total(Vec v) { return _mm512_reduce_add_ps(v); }

#define MEMBOUND_OWN_SOME
inline __mmask16 first_lanes(size_t n) { return static_cast<__mmask16>((1u << n) - 1); }
inline Vec load_some(const float* p, size_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
inline void store_some(float* p, Vec v, size_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }

#define MEMBOUND_OWN_EVERY_SECOND
void every_second(const float* from, size_t n, float* to) {
  for (; n > kWidth; n -= kWidth, from += 2 * kWidth, to += kWidth) store(to, load_second(from));
  const size_t floats = n == 0 ? 0 : 2 * n - 1, low = floats < kWidth ? floats : kWidth;
  store_some(to, even_lanes(load_some(from, low), load_some(from + kWidth, floats - low)), n);
}

inline void store_eight(int32_t* p, const uint8_t* bytes, int32_t x) {
  const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_add_epi32(wide, _mm256_set1_epi32(x)));
}

inline __m512i indices(const int32_t* p) { return _mm512_loadu_si512(p); }
inline __m512i indices(const uint16_t* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

template <class Column>
float gather_dot_of(const Column* columns, const float* values, size_t count, const float* x) {
  Vec a = fill(0.0f), b = fill(0.0f);
  size_t k = 0;
  for (; k + 2 * kWidth <= count; k += 2 * kWidth) {
    a = fma(load(values + k), _mm512_i32gather_ps(indices(columns + k), x, 4), a);
    b = fma(load(values + k + kWidth), _mm512_i32gather_ps(indices(columns + k + kWidth), x, 4), b);
  }
  if (k + kWidth <= count) {
    a = fma(load(values + k), _mm512_i32gather_ps(indices(columns + k), x, 4), a);
    k += kWidth;
  }
  float rest = total(add(a, b));
  for (; k < count; ++k) rest += values[k] * x[columns[k]];
  return rest;
}

float gather_dot(const int32_t* columns, const float* values, size_t count, const float* x) {
  return gather_dot_of(columns, values, count, x);
}

float gather_dot16(const uint16_t* columns, const float* values, size_t count, const float* x) {
  return gather_dot_of(columns, values, count, x);
}

void half_to_float(const uint16_t* half, float* out, size_t n) {
  size_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
    store(out + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(half + i))));
  for (; i < n; ++i) out[i] = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half[i])));
}

#include "net_kernels.inc"

}  // namespace

const NetKernels& avx512_net_kernels() {
  static const NetKernels kernels = table("avx512", 0.35f, kTile * kLine);
  return kernels;
}

}  // namespace membound
