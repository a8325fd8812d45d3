// Networks on AVX2 and FMA.
#include <immintrin.h>

#include "net_kernels.h"

namespace membound {
namespace {

constexpr size_t kWidth = 8;
constexpr int kTile = 13;         // of 16 registers
constexpr int kGemmRows = 4;      // 4 x 3 accumulators
constexpr int kGemmVectors = 3;

using Vec = __m256;
inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
inline Vec fill(float x) { return _mm256_set1_ps(x); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
// Of these two, the second operand is the result where either is NaN.
inline Vec within(Vec v, Vec low, Vec high) { return _mm256_min_ps(high, _mm256_max_ps(low, v)); }
inline Vec larger(Vec a, Vec b) {
  return _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
inline Vec load_second(const float* p) {
  const Vec pairs = _mm256_shuffle_ps(load(p), load(p + kWidth), 0x88);
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(pairs), 0xd8));
}
inline float total(Vec v) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

#define MEMBOUND_OWN_SOME
inline __m256i first_lanes(size_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Vec load_some(const float* p, size_t n) { return n == kWidth ? load(p) : _mm256_maskload_ps(p, first_lanes(n)); }
inline void store_some(float* p, Vec v, size_t n) {
  if (n == kWidth) return store(p, v);
  _mm256_maskstore_ps(p, first_lanes(n), v);
}

inline void store_eight(int32_t* p, const uint8_t* bytes, int32_t x) {
  const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_add_epi32(wide, _mm256_set1_epi32(x)));
}

inline __m256i indices(const int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m256i indices(const uint16_t* p) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

template <class Column>
float gather_dot_of(const Column* columns, const float* values, size_t count, const float* x) {
  Vec a = fill(0.0f), b = fill(0.0f);
  size_t k = 0;
  for (; k + 2 * kWidth <= count; k += 2 * kWidth) {
    a = fma(load(values + k), _mm256_i32gather_ps(x, indices(columns + k), 4), a);
    b = fma(load(values + k + kWidth), _mm256_i32gather_ps(x, indices(columns + k + kWidth), 4), b);
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
    store(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(half + i))));
  for (; i < n; ++i) out[i] = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half[i])));
}

#include "net_kernels.inc"

}  // namespace

const NetKernels& avx2_net_kernels() {
  static const NetKernels kernels = table("avx2", 0.6f, 1024);
  return kernels;
}

}  // namespace membound
