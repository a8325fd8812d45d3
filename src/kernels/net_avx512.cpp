// Networks on AVX-512.
#include <immintrin.h>

#include "net_kernels.h"

namespace membound {
namespace {

constexpr const Traits& kTraits = kAvx512;
constexpr size_t kWidth = kTraits.width;

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

constexpr size_t kGaps = 16;
inline int32_t store_sums(int32_t* p, const uint8_t* gaps, int32_t x) {
  const __m512i zero = _mm512_set1_epi32(0);
  __m512i sums = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(gaps + 1)));
  sums = _mm512_add_epi32(sums, _mm512_set1_epi32(1));
  sums = _mm512_add_epi32(sums, _mm512_alignr_epi32(sums, zero, 15));
  sums = _mm512_add_epi32(sums, _mm512_alignr_epi32(sums, zero, 14));
  sums = _mm512_add_epi32(sums, _mm512_alignr_epi32(sums, zero, 12));
  sums = _mm512_add_epi32(sums, _mm512_alignr_epi32(sums, zero, 8));
  const __m512i here = _mm512_set1_epi32(x);
  _mm512_storeu_si512(p, _mm512_add_epi32(_mm512_alignr_epi32(sums, zero, 15), here));
  return x + _mm_cvtsi128_si32(_mm512_castsi512_si128(_mm512_alignr_epi32(zero, sums, 15)));
}

inline __m512i indices(const int32_t* p) { return _mm512_loadu_si512(p); }
inline __m512i indices(const uint16_t* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

inline Vec load(const Half* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline float single(Half half) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half.bits))); }
inline float single(float x) { return x; }

template <class Column, class Value>
float gather_dot(const Column* columns, const Value* values, size_t count, const float* x) {
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
  for (; k < count; ++k) rest += single(values[k]) * x[columns[k]];
  return rest;
}

// Sixteen values, or the `left` that there are before the end.
inline Vec load_before_end(const float* p, size_t left) { return left < kWidth ? load_some(p, left) : load(p); }
inline Vec load_before_end(const Half* p, size_t left) {
  if (left >= kWidth) return load(p);
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(left), p));
}

// Values in the order of bits: as many as are to come are loaded, and those skipped that were taken.
template <class Value>
struct InTurn {
  const Value* next;
  const Value* end;
  void prepare(size_t) {}
  Vec load_next() const { return load_before_end(next, static_cast<size_t>(end - next)); }
  void skip(size_t count) { next += count; }
};
template <class Value>
inline InTurn<Value> in_turn(const Value* values, size_t count) { return {values, values + count}; }
template <class From>
struct Converted;
inline Converted<Codes> in_turn(const Codes& values, size_t count);

// Sixteen columns at a time: the values go to the lanes whose bits are set, and only there x is read.
#define MEMBOUND_OWN_BIT_DOT
inline uint64_t some_bits(const uint8_t* bits, size_t bytes, size_t first, size_t count);

template <class Value>
float bit_dot(const Row& row, const Value& stored, const float* x) {
  const auto* bits = static_cast<const uint8_t*>(row.index);
  auto values = in_turn(stored, row.count);
  Vec sums[4] = {fill(0.0f), fill(0.0f), fill(0.0f), fill(0.0f)};
  for (size_t done = 0; done < row.columns;) {
    const size_t room = 64 - (row.first + done) % 8, here = row.columns - done < room ? row.columns - done : room;
    const uint64_t word = some_bits(bits, row.index_end, row.first + done, here);
    values.prepare(static_cast<size_t>(__builtin_popcountll(word)));
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      const auto mask = static_cast<__mmask16>(word >> (16 * i));
      const Vec spread = _mm512_maskz_expand_ps(mask, values.load_next());
      sums[i] = fma(spread, _mm512_maskz_loadu_ps(mask, x + done + 16 * i), sums[i]);
      values.skip(static_cast<size_t>(__builtin_popcount(mask)));
    }
    done += here;
  }
  return total(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

// Sixteen columns of eight rows, transposed in registers: pairs of rows, then of pairs, then of fours.
#define MEMBOUND_OWN_PACK
template <class Value>
void pack_some(const Value* a, size_t a_step, size_t first, size_t last, float* packed);

struct Halves {
  Vec low, high;
};
inline Halves interleave(Vec a, Vec b, __m512i low, __m512i high) {
  return {_mm512_permutex2var_ps(a, low, b), _mm512_permutex2var_ps(a, high, b)};
}

template <class Value>
void pack_of(const Value* a, size_t a_step, size_t depth, float* packed) {
  constexpr size_t kRows = kTraits.gemm_rows;
  static_assert(kRows == 8, "eight rows are transposed at once");
  const __m512i one_low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i one_high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  const __m512i two_low = _mm512_setr_epi32(0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23);
  const __m512i two_high = _mm512_setr_epi32(8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31);
  const __m512i four_low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i four_high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  size_t k = 0;
  for (; k + kWidth <= depth; k += kWidth) {
    Halves pairs[4], fours[2][2];
#pragma GCC unroll 4
    for (size_t r = 0; r < 4; ++r)
      pairs[r] = interleave(load(a + 2 * r * a_step + k), load(a + (2 * r + 1) * a_step + k), one_low, one_high);
#pragma GCC unroll 2
    for (size_t r = 0; r < 2; ++r) {
      fours[r][0] = interleave(pairs[2 * r].low, pairs[2 * r + 1].low, two_low, two_high);
      fours[r][1] = interleave(pairs[2 * r].high, pairs[2 * r + 1].high, two_low, two_high);
    }
    float* to = packed + k * kRows;
#pragma GCC unroll 2
    for (size_t half = 0; half < 2; ++half) {
      const Halves low = interleave(fours[0][half].low, fours[1][half].low, four_low, four_high);
      const Halves high = interleave(fours[0][half].high, fours[1][half].high, four_low, four_high);
      store(to + half * 64, low.low);
      store(to + half * 64 + 16, low.high);
      store(to + half * 64 + 32, high.low);
      store(to + half * 64 + 48, high.high);
    }
  }
  pack_some(a, a_step, k, depth, packed);
}

#include "net_kernels.inc"

}  // namespace

const NetKernels& avx512_net_kernels() {
  static const NetKernels kernels = table();
  return kernels;
}

}  // namespace membound
