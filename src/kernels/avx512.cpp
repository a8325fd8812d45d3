// Kernels for AVX-512 (F, BW, DQ, VL). Built with its own flags: no std templates and no shared inline
// functions here, or the linker could pick this file's wide version of them for every machine.
#include <immintrin.h>

#include "kernels.h"

namespace membound {
namespace {

constexpr size_t kLanes = 16;
static_assert(kLanes <= kCandidateSlack, "a full vector is stored behind the last candidate");

// The first `n` (< 16) lanes.
__mmask16 first_lanes(size_t n) { return static_cast<__mmask16>((1u << n) - 1); }

// The shift drops what is above the mask: GCC 12 may spill 16 bits of a mask and load 32 bits back.
size_t lane_count(__mmask16 mask) { return size_t(_mm_popcnt_u32(uint32_t(mask) << 16)); }

// The loops do enough work a vector that the hardware prefetcher alone falls behind: ask for data some
// vectors ahead (a prefetch beyond the end is harmless).
inline void prefetch(const uint32_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p + 512), _MM_HINT_T0); }

struct Scan {
  __m512i low, high;
  __m512i max_key, min_bits;  // as signed integers; -0.0 is the least of all
  size_t above, inside, capacity;
  uint32_t* candidates;
};

inline __attribute__((always_inline)) void scan_vector(Scan& s, __m512i bits, __mmask16 lanes) {
  // The masked forms of max and min, because GCC 12 warns about its own unmasked ones.
  const __m512i key = _mm512_and_si512(bits, _mm512_set1_epi32(kKeyMask));
  s.max_key = _mm512_mask_max_epi32(s.max_key, 0xffff, s.max_key, key);
  s.min_bits = _mm512_mask_min_epi32(s.min_bits, 0xffff, s.min_bits, bits);
  const __mmask16 above = _mm512_mask_cmpgt_epi32_mask(lanes, key, s.high);
  const __mmask16 from_low = _mm512_mask_cmpge_epi32_mask(lanes, key, s.low);
  const __mmask16 inside = _kandn_mask16(above, from_low);
  // Compress in a register and store it whole: a compressing store is slow on some CPUs.
  const size_t slot = s.inside < s.capacity ? s.inside : s.capacity;
  _mm512_storeu_si512(s.candidates + slot, _mm512_maskz_compress_epi32(inside, key));
  s.above += lane_count(above);
  s.inside += lane_count(inside);
}

void scan(const uint32_t* bits, size_t n, uint32_t low, uint32_t high, uint32_t* candidates, size_t capacity,
          ScanResult* result) {
  const __m512i zero = _mm512_setzero_si512();
  Scan s{_mm512_set1_epi32(int(low)), _mm512_set1_epi32(int(high)), zero, zero, 0, 0, capacity, candidates};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    prefetch(bits + i);
    scan_vector(s, _mm512_loadu_si512(bits + i), 0xffff);
  }
  if (i < n) {
    const __mmask16 rest = first_lanes(n - i);
    scan_vector(s, _mm512_maskz_loadu_epi32(rest, bits + i), rest);
  }
  uint32_t maxima[kLanes];
  _mm512_storeu_si512(maxima, s.max_key);
  const __m512i minus_zero = _mm512_set1_epi32(int(kNegativeZero));
  *result = {s.above, s.inside, 0, _mm512_cmpeq_epi32_mask(s.min_bits, minus_zero) != 0};
  for (uint32_t m : maxima) result->max_key = m > result->max_key ? m : result->max_key;
}

size_t count_equal(const uint32_t* bits, size_t n, uint32_t key) {
  const __m512i wanted = _mm512_set1_epi32(int(key)), key_mask = _mm512_set1_epi32(kKeyMask);
  size_t count = 0;
  for (size_t i = 0; i < n; i += kLanes) {
    const __mmask16 lanes = n - i < kLanes ? first_lanes(n - i) : __mmask16(0xffff);
    const __m512i keys = _mm512_and_si512(_mm512_maskz_loadu_epi32(lanes, bits + i), key_mask);
    count += lane_count(_mm512_mask_cmpeq_epi32_mask(lanes, keys, wanted));
  }
  return count;
}

void keep_at_least(uint32_t* bits, size_t n, uint32_t threshold) {
  const __m512i limit = _mm512_set1_epi32(int(threshold)), key_mask = _mm512_set1_epi32(kKeyMask);
  for (size_t i = 0; i < n; i += kLanes) {
    const __mmask16 lanes = n - i < kLanes ? first_lanes(n - i) : __mmask16(0xffff);
    prefetch(bits + i);
    const __m512i value = _mm512_maskz_loadu_epi32(lanes, bits + i);
    const __mmask16 below = _mm512_cmplt_epi32_mask(_mm512_and_si512(value, key_mask), limit);
    const __mmask16 drop = _mm512_mask_test_epi32_mask(below, value, value);  // below and not yet zero
    if (drop) _mm512_mask_storeu_epi32(bits + i, lanes, _mm512_maskz_mov_epi32(_knot_mask16(drop), value));
  }
}

}  // namespace

void fill_avx512(Kernels& table) {
  table.name = "avx512";
  table.scan = scan;
  table.count_equal = count_equal;
  table.keep_at_least = keep_at_least;
}

}  // namespace membound
