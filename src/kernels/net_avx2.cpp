// Networks on AVX2 and FMA.
#include <immintrin.h>

#include "net_kernels.h"

namespace membound {
namespace {

constexpr const Traits& kTraits = kAvx2;
constexpr size_t kWidth = kTraits.width;

using Vec = __m256;
inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
inline Vec fill(float x) { return _mm256_set1_ps(x); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
inline Vec multiply(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
inline Vec divide(Vec a, Vec b) { return _mm256_div_ps(a, b); }
// Of these two, the second operand is the result where either is NaN.
inline Vec within(Vec v, Vec low, Vec high) { return _mm256_min_ps(high, _mm256_max_ps(low, v)); }
inline Vec larger(Vec a, Vec b) {
  return _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
inline Vec even_lanes(Vec low, Vec high) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88)), 0xd8));
}
inline Vec odd_lanes(Vec low, Vec high) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xdd)), 0xd8));
}
inline Vec load_second(const float* p) { return even_lanes(load(p), load(p + kWidth)); }
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

#define MEMBOUND_OWN_LANES
using Lanes = __m256i;
inline Lanes lanes_inside(int first, int width) {
  const __m256i lanes = _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  return _mm256_andnot_si256(_mm256_srai_epi32(lanes, 31), _mm256_cmpgt_epi32(_mm256_set1_epi32(width), lanes));
}
inline Vec load_lanes(const float* p, Lanes lanes) { return _mm256_maskload_ps(p, lanes); }
inline Vec load_lanes(const float* p, Lanes lanes, Vec outside) {
  return _mm256_blendv_ps(outside, load_lanes(p, lanes), _mm256_castsi256_ps(lanes));
}
inline Vec lanes_after(Vec v, Vec before) {
  const __m256i shift = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
  return _mm256_blend_ps(_mm256_permutevar8x32_ps(v, shift), _mm256_permutevar8x32_ps(before, shift), 1);
}
inline void store_lanes(float* p, Vec v, Lanes lanes) { _mm256_maskstore_ps(p, lanes, v); }

// Pairs of rows, then pairs of pairs, of each half of a vector; then halves change places.
#define MEMBOUND_OWN_SQUARE
inline __attribute__((always_inline)) void transpose(Vec (&square)[kWidth]) {
  Vec turned[kWidth];
#pragma GCC unroll 2
  for (size_t i = 0; i < kWidth; i += 4) {
    const Vec a = _mm256_unpacklo_ps(square[i], square[i + 1]), b = _mm256_unpackhi_ps(square[i], square[i + 1]);
    const Vec c = _mm256_unpacklo_ps(square[i + 2], square[i + 3]), d = _mm256_unpackhi_ps(square[i + 2], square[i + 3]);
    turned[i] = _mm256_shuffle_ps(a, c, 0x44);
    turned[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    turned[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    turned[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    square[i] = _mm256_permute2f128_ps(turned[i], turned[i + 4], 0x20);
    square[i + 4] = _mm256_permute2f128_ps(turned[i], turned[i + 4], 0x31);
  }
}

inline void store_eight(int32_t* p, const uint8_t* bytes, int32_t x) {
  const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_add_epi32(wide, _mm256_set1_epi32(x)));
}

constexpr size_t kGaps = 8;
inline int32_t store_sums(int32_t* p, const uint8_t* gaps, int32_t x) {
  __m128i sums = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(gaps + 1)));
  sums = _mm_add_epi16(sums, _mm_set1_epi16(1));
  sums = _mm_add_epi16(sums, _mm_slli_si128(sums, 2));
  sums = _mm_add_epi16(sums, _mm_slli_si128(sums, 4));
  sums = _mm_add_epi16(sums, _mm_slli_si128(sums, 8));
  const __m256i before = _mm256_cvtepu16_epi32(_mm_slli_si128(sums, 2));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_add_epi32(before, _mm256_set1_epi32(x)));
  return x + _mm_extract_epi16(sums, 7);
}

// Whole numbers, as many as a vector of floats has.
#define MEMBOUND_OWN_INTS
using Ints = __m256i;
inline Ints load_ints(const int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline void store_ints(int32_t* p, Ints v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
inline Ints fill_ints(int32_t x) { return _mm256_set1_epi32(x); }
inline Ints count_up() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
inline Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Ints subtract(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
inline Ints shift_left(Ints a, Ints bits) { return _mm256_sllv_epi32(a, bits); }
inline Ints sums_up_to(Ints v) {
  v = add(v, _mm256_slli_si256(v, 4));
  v = add(v, _mm256_slli_si256(v, 8));  // of each half
  const Ints low = _mm256_permutevar8x32_epi32(v, fill_ints(3));
  return add(v, _mm256_blend_epi32(fill_ints(0), low, 0xf0));
}
inline Ints last_of(Ints v) { return _mm256_permutevar8x32_epi32(v, fill_ints(7)); }

// Numbers of up to 15 bits that lie one behind the other, lowest bits first: eight, the first of which begins `skipped`
// bits into the byte at p. They lie in 16 bytes.
struct Unpack {
  static constexpr size_t kReach = 16;
  unsigned bits;
  Ints mask, steps, bytes, shifts;
  explicit Unpack(unsigned bits_) : bits(bits_), mask(fill_ints((1 << bits_) - 1)) {
    steps = _mm256_mullo_epi16(count_up(), fill_ints(static_cast<int>(bits)));
  }
  void skip(size_t skipped) {
    const Ints first = add(steps, fill_ints(static_cast<int>(skipped)));
    const Ints low_byte = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c);
    bytes = add(_mm256_shuffle_epi8(_mm256_srli_epi32(first, 3), low_byte), fill_ints(0x03020100));
    shifts = _mm256_and_si256(first, fill_ints(7));
  }
  size_t step() const { return bits; }
  Ints loose(const uint8_t* p) const {
    const Ints all = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_srlv_epi32(_mm256_shuffle_epi8(all, bytes), shifts);
  }
  Ints operator()(const uint8_t* p) const { return _mm256_and_si256(loose(p), mask); }
};

// A palette times a scale: in one register, again and again, or in two or four. The bits above a code are not looked at.
struct Palette8 {
  Vec all;
  Palette8(const float* entries, size_t count, float scale) {
    const Ints again = _mm256_and_si256(count_up(), fill_ints(static_cast<int>(count) - 1));
    all = _mm256_mul_ps(_mm256_permutevar8x32_ps(load_some(entries, count), again), fill(scale));
  }
  Vec operator()(Ints codes) const { return _mm256_permutevar8x32_ps(all, codes); }
};
struct Palette16 {
  Palette8 low, high;
  Palette16(const float* entries, size_t, float scale) : low(entries, 8, scale), high(entries + 8, 8, scale) {}
  Vec operator()(Ints codes) const {
    return _mm256_blendv_ps(low(codes), high(codes), _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28)));
  }
};
struct Palette32 {
  Palette16 low, high;
  Palette32(const float* entries, size_t, float scale) : low(entries, 16, scale), high(entries + 16, 16, scale) {}
  Vec operator()(Ints codes) const {
    return _mm256_blendv_ps(low(codes), high(codes), _mm256_castsi256_ps(_mm256_slli_epi32(codes, 27)));
  }
};
struct Steps {  // of a palette of equal steps: nothing is looked up
  Ints mask, middle;
  Vec step, scale;
  Steps(const Codes& codes, float scale_)
      : mask(fill_ints((1 << codes.bits) - 1)), middle(fill_ints(1 << (codes.bits - 1))), step(fill(codes.step)), scale(fill(scale_)) {}
  Vec operator()(Ints codes) const {
    const Ints steps = subtract(_mm256_and_si256(codes, mask), middle);
    return _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(steps), step), scale);
  }
};
// body(palette), by the bits of the codes; false if the registers do not hold it.
template <class Body>
inline __attribute__((always_inline)) bool with_palette(const Codes& codes, float scale, Body body) {
  if (codes.bits <= 3) body(Palette8(codes.palette, size_t{1} << codes.bits, scale));
  else if (codes.bits == 4) body(Palette16(codes.palette, 16, scale));
  else if (codes.step != 0.0f) body(Steps(codes, scale));
  else if (codes.bits == 5) body(Palette32(codes.palette, 32, scale));
  else return false;
  return true;
}

inline Vec load(const Half* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline float single(Half half) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half.bits))); }
inline float single(float x) { return x; }

#include "net_gather_x86.inc"

// Eight values, or the `left` that there are before the end.
inline Vec load_before_end(const float* p, size_t left) { return left < kWidth ? load_some(p, left) : load(p); }
inline Vec load_before_end(const Half* p, size_t left) {
  if (left >= kWidth) return load(p);
  Half some[kWidth] = {};
  for (size_t i = 0; i < left; ++i) some[i] = p[i];
  return load(some);
}

// For each byte of bits, which value each of eight lanes takes, and whether it takes one.
struct Spread {
  alignas(8) uint8_t from[256][8];
  alignas(8) int8_t taken[256][8];
  Spread() {
    for (unsigned byte = 0; byte < 256; ++byte)
      for (unsigned bit = 0, next = 0; bit < 8; ++bit) {
        const bool set = byte >> bit & 1;
        from[byte][bit] = static_cast<uint8_t>(set ? next++ : 0);
        taken[byte][bit] = set ? -1 : 0;
      }
  }
};

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

// Eight columns at a time: the values go to the lanes whose bits are set, and only there x is read.
#define MEMBOUND_OWN_BIT_DOT
inline uint64_t some_bits(const uint8_t* bits, size_t bytes, size_t first, size_t count);

template <class Value>
float bit_dot(const Row& row, const Value& stored, const float* x) {
  static const Spread spread;
  const auto wide = [](const void* eight) { return _mm_loadl_epi64(static_cast<const __m128i*>(eight)); };
  const auto* bits = static_cast<const uint8_t*>(row.index);
  auto values = in_turn(stored, row.count);
  Vec sums[4] = {fill(0.0f), fill(0.0f), fill(0.0f), fill(0.0f)};
  for (size_t done = 0; done < row.columns;) {
    const size_t room = 64 - (row.first + done) % 8, here = row.columns - done < room ? row.columns - done : room;
    const uint64_t word = some_bits(bits, row.index_end, row.first + done, here);
    values.prepare(static_cast<size_t>(__builtin_popcountll(word)));
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) {
      const auto byte = static_cast<uint8_t>(word >> (8 * i));
      const __m256i from = _mm256_cvtepu8_epi32(wide(spread.from[byte])), taken = _mm256_cvtepi8_epi32(wide(spread.taken[byte]));
      const Vec here8 = values.load_next();
      const Vec spread8 = _mm256_and_ps(_mm256_permutevar8x32_ps(here8, from), _mm256_castsi256_ps(taken));
      sums[i % 4] = fma(spread8, _mm256_maskload_ps(x + done + 8 * i, taken), sums[i % 4]);
      values.skip(static_cast<size_t>(__builtin_popcount(byte)));
    }
    done += here;
  }
  return total(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

// Eight columns of four rows, transposed in registers.
#define MEMBOUND_OWN_PACK
template <class Value>
void pack_some(const Value* a, size_t a_step, size_t first, size_t last, float* packed);

template <class Value>
void pack_of(const Value* a, size_t a_step, size_t depth, float* packed) {
  constexpr size_t kRows = kTraits.gemm_rows;
  static_assert(kRows == 4, "four rows are transposed at once");
  size_t k = 0;
  for (; k + kWidth <= depth; k += kWidth) {
    const Vec a0 = load(a + k), a1 = load(a + a_step + k);
    const Vec a2 = load(a + 2 * a_step + k), a3 = load(a + 3 * a_step + k);
    const Vec low01 = _mm256_unpacklo_ps(a0, a1), high01 = _mm256_unpackhi_ps(a0, a1);
    const Vec low23 = _mm256_unpacklo_ps(a2, a3), high23 = _mm256_unpackhi_ps(a2, a3);
    // Columns 0 and 4, 1 and 5, 2 and 6, 3 and 7.
    const Vec c0 = _mm256_shuffle_ps(low01, low23, 0x44), c1 = _mm256_shuffle_ps(low01, low23, 0xee);
    const Vec c2 = _mm256_shuffle_ps(high01, high23, 0x44), c3 = _mm256_shuffle_ps(high01, high23, 0xee);
    float* to = packed + k * kRows;
    store(to, _mm256_permute2f128_ps(c0, c1, 0x20));
    store(to + 8, _mm256_permute2f128_ps(c2, c3, 0x20));
    store(to + 16, _mm256_permute2f128_ps(c0, c1, 0x31));
    store(to + 24, _mm256_permute2f128_ps(c2, c3, 0x31));
  }
  pack_some(a, a_step, k, depth, packed);
}

#include "net_kernels.inc"

}  // namespace

const NetKernels& avx2_net_kernels() {
  static const NetKernels kernels = table();
  return kernels;
}

}  // namespace membound
