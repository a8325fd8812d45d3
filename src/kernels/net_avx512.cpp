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
inline Vec multiply(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec divide(Vec a, Vec b) { return _mm512_div_ps(a, b); }
// Of these two, the second operand is the result where either is NaN.
inline Vec within(Vec v, Vec low, Vec high) { return _mm512_min_ps(high, _mm512_max_ps(low, v)); }
inline Vec larger(Vec a, Vec b) { return _mm512_mask_max_ps(a, _mm512_cmp_ps_mask(a, a, _CMP_ORD_Q), a, b); }
inline Vec even_lanes(Vec low, Vec high) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return _mm512_permutex2var_ps(low, even, high);
}
inline Vec odd_lanes(Vec low, Vec high) {
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return _mm512_permutex2var_ps(low, odd, high);
}
inline Vec load_second(const float* p) { return even_lanes(load(p), load(p + kWidth)); }
inline float total(Vec v) { return _mm512_reduce_add_ps(v); }

#define MEMBOUND_OWN_SOME
inline __mmask16 first_lanes(size_t n) { return static_cast<__mmask16>((1u << n) - 1); }
inline Vec load_some(const float* p, size_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
inline void store_some(float* p, Vec v, size_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }

// Half a vector: where rows are stored at any place, only every second one lies across two lines of the cache.
#define MEMBOUND_OWN_PARTS
constexpr size_t kPart = 8;
inline void copy_part(const float* from, float* to) { _mm256_storeu_ps(to, _mm256_loadu_ps(from)); }
inline void copy_some(const float* from, float* to, size_t n) {
  const auto there = static_cast<__mmask8>((1u << n) - 1);
  _mm256_mask_storeu_ps(to, there, _mm256_maskz_loadu_ps(there, from));
}

#define MEMBOUND_OWN_LANES
using Lanes = __mmask16;
inline Lanes lanes_inside(int first, int width) {
  const int begin = first >= 0 ? 0 : first > -16 ? -first : 16, end = width <= first ? 0 : width - first < 16 ? width - first : 16;
  return static_cast<Lanes>((0xffffu << begin) & (0xffffu >> (16 - end)));
}
#define MEMBOUND_OWN_LANE_BITS
inline Lanes lanes_of(unsigned bits) { return static_cast<Lanes>(bits); }
inline Vec load_lanes(const float* p, Lanes lanes) { return _mm512_maskz_loadu_ps(lanes, p); }
inline Vec load_lanes(const float* p, Lanes lanes, Vec outside) { return _mm512_mask_loadu_ps(outside, lanes, p); }
inline Vec lanes_after(Vec v, Vec before) {
  return _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(v), _mm512_castps_si512(before), 15));
}
inline void store_lanes(float* p, Vec v, Lanes lanes) { _mm512_mask_storeu_ps(p, lanes, v); }

// sums[t] += values[k] x[offsets[k] + t kWidth], for each k in turn. A vector that does not begin where a line of the cache does
// takes two lines, and two loads' time: of the first kJoin vectors every line is loaded once, and vectors are joined of two each. No
// line is touched that holds nothing of what is asked for.
#define MEMBOUND_JOINS_LINES
template <int T, int kJoin>
inline __attribute__((always_inline)) void add_joined(const int32_t* offsets, const float* values, size_t count, const float* x,
                                                      Vec (&sums)[T]) {
  alignas(64) static constexpr int32_t kUp[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                  16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
  // A compiler that is left to itself loads each line twice, as operands of two instructions.
  const auto load_once = [](const float* p) {
    Vec v = load(p);
#if defined(__AVX512F__)
    __asm__("" : "+v"(v));
#endif
    return v;
  };
  const auto line_of = [](uintptr_t at) { return reinterpret_cast<const float*>(at & ~uintptr_t{63}); };
  for (size_t k = 0; k < count; ++k) {
    const float* from = x + offsets[k];
    const auto at = reinterpret_cast<uintptr_t>(from);
    const float* lines = line_of(at);
    const __m512i lanes = _mm512_loadu_si512(kUp + at % 64 / sizeof(float));
    const Vec value = fill(values[k]);
    Vec line = load_once(lines);
#pragma GCC unroll 32
    for (int t = 0; t < kJoin; ++t) {
      const Vec next = load_once(t + 1 < kJoin ? lines + (t + 1) * kWidth : line_of(at + kJoin * 64 - sizeof(float)));
      sums[t] = fma(value, _mm512_permutex2var_ps(line, lanes, next), sums[t]);
      line = next;
    }
#pragma GCC unroll 32
    for (int t = kJoin; t < T; ++t) sums[t] = fma(value, load(from + t * kWidth), sums[t]);
  }
}

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

// Whole numbers, as many as a vector of floats has.
#define MEMBOUND_OWN_INTS
using Ints = __m512i;
inline Ints load_ints(const int32_t* p) { return _mm512_loadu_si512(p); }
inline void store_ints(int32_t* p, Ints v) { _mm512_storeu_si512(p, v); }
inline Ints as_ints(Vec v) { return _mm512_castps_si512(v); }
inline Vec as_floats(Ints v) { return _mm512_castsi512_ps(v); }
inline Ints fill_ints(int32_t x) { return _mm512_set1_epi32(x); }
inline Ints count_up() { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
inline Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints subtract(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
inline Ints shift_left(Ints a, Ints bits) { return _mm512_sllv_epi32(a, bits); }
inline Ints sums_up_to(Ints v) {
  const Ints zero = fill_ints(0);
  v = add(v, _mm512_alignr_epi32(v, zero, 15));
  v = add(v, _mm512_alignr_epi32(v, zero, 14));
  v = add(v, _mm512_alignr_epi32(v, zero, 12));
  return add(v, _mm512_alignr_epi32(v, zero, 8));
}
inline Ints last_of(Ints v) { return _mm512_permutexvar_epi32(fill_ints(15), v); }

#define MEMBOUND_OWN_PLACE
size_t short_columns(const uint16_t* from, size_t count, size_t end, int32_t* columns) {
  const Ints limit = fill_ints(static_cast<int32_t>(end < 65536 ? end : 65536));
  for (size_t n = 0; n < count; n += kWidth) {
    const __mmask16 there = first_lanes(count - n < kWidth ? count - n : kWidth);
    const Ints here = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, from + n));
    const __mmask16 below = _mm512_mask_cmplt_epi32_mask(there, here, limit);
    _mm512_mask_storeu_epi32(columns + n, below, here);
    if (below != 0xffff) return n + static_cast<size_t>(__builtin_popcount(below));
  }
  return count;
}

inline void place_each(const int32_t* columns, int32_t base, size_t count, const Places& places, int32_t* offsets);

// Without the table where a channel's part of it fits into two registers: looking up takes a load for each column. The
// quotient of a column and a half is far enough from a whole number to be right in single precision.
void place(const int32_t* columns, int32_t base, size_t count, const Places& places, int32_t* offsets) {
  constexpr int32_t kMostArea = 32;
  constexpr size_t kMostColumns = size_t{1} << 20;
  if (places.table == nullptr) {
    const Ints start = fill_ints(base), step = fill_ints(places.step);
    for (size_t n = 0; n < count; n += kWidth) {
      const __mmask16 there = first_lanes(count - n < kWidth ? count - n : kWidth);
      const Ints column = subtract(_mm512_maskz_loadu_epi32(there, columns + n), start);
      _mm512_mask_storeu_epi32(offsets + n, there, _mm512_mullo_epi32(column, step));
    }
    return;
  }
  if (places.area > kMostArea || places.columns > kMostColumns) return place_each(columns, base, count, places, offsets);
  const auto area = static_cast<size_t>(places.area), low = area < 16 ? area : 16;
  const Ints first = _mm512_maskz_loadu_epi32(first_lanes(low), places.table);
  const Ints second = _mm512_maskz_loadu_epi32(first_lanes(area - low), places.table + low);
  const Ints start = fill_ints(base), step = fill_ints(places.step), wide = fill_ints(places.area);
  const Vec part = fill(1.0f / static_cast<float>(places.area)), half = fill(0.5f);
  for (size_t n = 0; n < count; n += kWidth) {
    const __mmask16 there = first_lanes(count - n < kWidth ? count - n : kWidth);
    const Ints column = subtract(_mm512_maskz_loadu_epi32(there, columns + n), start);
    const Ints channel = _mm512_cvttps_epi32(_mm512_mul_ps(add(_mm512_cvtepi32_ps(column), half), part));
    const Ints tap = subtract(column, _mm512_mullo_epi32(channel, wide));
    const Ints to = add(_mm512_mullo_epi32(channel, step), _mm512_permutex2var_epi32(first, tap, second));
    _mm512_mask_storeu_epi32(offsets + n, there, to);
  }
}

size_t count_below(const int32_t* numbers, size_t n, int32_t limit) {
  const Ints most = fill_ints(limit);
  for (size_t k = 0; k < n; k += kWidth) {
    const __mmask16 there = first_lanes(n - k < kWidth ? n - k : kWidth);  // what lies behind them may be below, too
    const __mmask16 below = _mm512_mask_cmplt_epi32_mask(there, load_ints(numbers + k), most);
    if (below != there) return k + static_cast<size_t>(__builtin_popcount(below));
  }
  return n;
}

// The places of the bits that are set in a word, `first` added, sixteen bits at a time.
#define MEMBOUND_OWN_PLACES
inline size_t store_places(int32_t* p, uint64_t word, int32_t first) {
  size_t n = 0;
  Ints places = add(count_up(), fill_ints(first));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i, word >>= 16, places = add(places, fill_ints(16))) {
    const auto mask = static_cast<__mmask16>(word);
    store_ints(p + n, _mm512_maskz_compress_epi32(mask, places));
    n += static_cast<size_t>(__builtin_popcount(mask));
  }
  return n;
}

// Numbers of up to 15 bits that lie one behind the other, lowest bits first: sixteen, the first of which begins `skipped`
// bits into the byte at p. Eight of them lie in 16 bytes, and the other eight in those that begin `bits` bytes later.
struct Unpack {
  static constexpr size_t kReach = 15 + 16;
  unsigned bits;
  Ints mask, steps, bytes, shifts;
  explicit Unpack(unsigned bits_) : bits(bits_), mask(fill_ints((1 << bits_) - 1)) {
    const Ints number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
    steps = _mm512_mullo_epi16(number, fill_ints(static_cast<int>(bits)));
  }
  void skip(size_t skipped) {
    const Ints first = add(steps, fill_ints(static_cast<int>(skipped)));
    const Ints low_byte = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);  // of each number
    bytes = add(_mm512_shuffle_epi8(_mm512_srli_epi32(first, 3), low_byte), fill_ints(0x03020100));
    shifts = _mm512_and_si512(first, fill_ints(7));
  }
  size_t step() const { return 2 * bits; }
  Ints loose(const uint8_t* p) const {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + bits));
    const Ints both = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(low), 0xff00, high);
    return _mm512_srlv_epi32(_mm512_shuffle_epi8(both, bytes), shifts);
  }
  Ints operator()(const uint8_t* p) const { return _mm512_and_si512(loose(p), mask); }
};

// A palette times a scale: in one register, again and again, or in two or four. The bits above a code are not looked at.
struct Palette16 {
  Vec all;
  Palette16(const float* entries, size_t count, float scale) {
    const Ints again = _mm512_and_si512(count_up(), fill_ints(static_cast<int>(count) - 1));
    all = _mm512_mul_ps(_mm512_permutexvar_ps(again, load_some(entries, count)), fill(scale));
  }
  Vec operator()(Ints codes) const { return _mm512_permutexvar_ps(codes, all); }
};
struct Palette32 {
  Vec low, high;
  Palette32(const float* entries, size_t, float scale)
      : low(_mm512_mul_ps(load(entries), fill(scale))), high(_mm512_mul_ps(load(entries + 16), fill(scale))) {}
  Vec operator()(Ints codes) const { return _mm512_permutex2var_ps(low, codes, high); }
};
struct Palette64 {
  Palette32 low, high;
  Palette64(const float* entries, size_t, float scale) : low(entries, 32, scale), high(entries + 32, 32, scale) {}
  Vec operator()(Ints codes) const {
    return _mm512_mask_mov_ps(low(codes), _mm512_test_epi32_mask(codes, fill_ints(32)), high(codes));
  }
};
struct Steps {  // of a palette of equal steps: nothing is looked up
  Ints mask, middle;
  Vec step, scale;
  Steps(const Codes& codes, float scale_)
      : mask(fill_ints((1 << codes.bits) - 1)), middle(fill_ints(1 << (codes.bits - 1))), step(fill(codes.step)), scale(fill(scale_)) {}
  Vec operator()(Ints codes) const {
    const Ints steps = subtract(_mm512_and_si512(codes, mask), middle);
    return _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(steps), step), scale);
  }
};
// body(palette), by the bits of the codes; false if the registers do not hold it.
template <class Body>
inline __attribute__((always_inline)) bool with_palette(const Codes& codes, float scale, Body body) {
  if (codes.bits <= 4) body(Palette16(codes.palette, size_t{1} << codes.bits, scale));
  else if (codes.step != 0.0f) body(Steps(codes, scale));
  else if (codes.bits == 5) body(Palette32(codes.palette, 32, scale));
  else if (codes.bits == 6) body(Palette64(codes.palette, 64, scale));
  else return false;
  return true;
}

inline Vec load(const Half* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline float single(Half half) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half.bits))); }
inline float single(float x) { return x; }

#include "net_gather_x86.inc"

// Of a window's sixteen places the last is 0. What is looked up is in the lowest four bits; others are not looked at.
#define MEMBOUND_OWN_SLICES
void slice_dots(const FourSteps* steps, size_t count, const float* palette, const float* x, float* out) {
  static_assert(kSliceRows == kWidth, "a lane for each row");
  const Vec table = load(palette);
  Vec sums[4] = {fill(0.0f), fill(0.0f), fill(0.0f), fill(0.0f)};
  for (; count > 0; --count, ++steps) {
    const Ints lanes = _mm512_loadu_si512(steps->lanes);
#pragma GCC unroll 4
    for (unsigned i = 0; i < 4; ++i) {
      const Vec window = _mm512_maskz_loadu_ps(0x7fff, x + steps->windows[i]);
      const Vec value = _mm512_permutexvar_ps(_mm512_srli_epi32(lanes, 8 * i + 4), table);
      sums[i] = fma(value, _mm512_permutexvar_ps(_mm512_srli_epi32(lanes, 8 * i), window), sums[i]);
    }
  }
  store(out, add(add(sums[0], sums[1]), add(sums[2], sums[3])));
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

// out[c] = the next of the values where bit first + c is set, and else 0, for c in [0, n). Up to kWidth values behind the last
// are read, and up to kWidth - 1 zeros written behind the n.
#define MEMBOUND_OWN_EXPAND
inline void expand_bits(const uint8_t* bits, size_t bytes, size_t first, size_t n, const float* values, float* out) {
  for (size_t done = 0; done < n;) {
    const size_t room = 64 - (first + done) % 8, here = n - done < room ? n - done : room;
    uint64_t word = some_bits(bits, bytes, first + done, here);
    for (size_t i = 0; i < here; i += kWidth, word >>= kWidth) {
      const auto mask = static_cast<__mmask16>(word);
      store(out + done + i, _mm512_maskz_expand_ps(mask, load(values)));
      values += __builtin_popcount(mask);
    }
    done += here;
  }
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

// Row i and row i + 8 interleaved are rows 2 i and 2 i + 1: four times, and rows are columns.
#define MEMBOUND_OWN_TRANSPOSE
#define MEMBOUND_OWN_SQUARE
inline __attribute__((always_inline)) void transpose(Vec (&square)[kWidth]) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#pragma GCC unroll 4
  for (int turn = 0; turn < 4; ++turn) {
    Vec turned[kWidth];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) {
      const Halves two = interleave(square[i], square[i + 8], low, high);
      turned[2 * i] = two.low;
      turned[2 * i + 1] = two.high;
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < kWidth; ++i) square[i] = turned[i];
  }
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
