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
inline float total(Vec v) { return _mm512_reduce_add_ps(v); }

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
  static const NetKernels kernels = table("avx512", 0.5f);
  return kernels;
}

}  // namespace membound
