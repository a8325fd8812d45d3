// Kernels for AVX2. Built with its own flags: no std templates and no shared inline functions here, or the
// linker could pick this file's wide version of them for every machine.
#include <immintrin.h>

#include "kernels.h"

namespace membound {
namespace {

constexpr size_t kLanes = 8;
static_assert(kLanes <= kCandidateSlack, "a full vector is stored behind the last candidate");

// AVX2 cannot compress: for each mask of 8 lanes, the lanes to gather to the front.
struct CompressTable {
  uint8_t lane[256][8];
  constexpr CompressTable() : lane() {
    for (int mask = 0; mask < 256; ++mask) {
      int filled = 0;
      for (uint8_t i = 0; i < 8; ++i) {
        if (mask >> i & 1) lane[mask][filled++] = i;
      }
    }
  }
};
constexpr CompressTable kCompress;

unsigned lane_bits(__m256i mask) { return unsigned(_mm256_movemask_ps(_mm256_castsi256_ps(mask))); }

__m256i load(const uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

void store(uint32_t* p, __m256i v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }

// The loops do enough work a vector that the hardware prefetcher alone falls behind: ask for data some
// vectors ahead (a prefetch beyond the end is harmless).
void prefetch(const uint32_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p + 512), _MM_HINT_T0); }

void scan(const uint32_t* bits, size_t n, uint32_t low, uint32_t high, uint32_t* candidates, size_t capacity,
          ScanResult* result) {
  const __m256i key_mask = _mm256_set1_epi32(kKeyMask), minus_zero = _mm256_set1_epi32(int(kNegativeZero));
  // Keys are below 2^31, so signed compares are right. key >= low is key > low - 1.
  const __m256i below_low = _mm256_set1_epi32(int(low) - 1), high_v = _mm256_set1_epi32(int(high));
  __m256i max = _mm256_setzero_si256();
  __m256i min_bits = _mm256_setzero_si256();  // as signed integers; -0.0 is the least of all
  size_t above = 0, inside = 0, i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    prefetch(bits + i);
    const __m256i value = load(bits + i);
    const __m256i key = _mm256_and_si256(value, key_mask);
    const __m256i above_v = _mm256_cmpgt_epi32(key, high_v);
    const unsigned in = lane_bits(_mm256_andnot_si256(above_v, _mm256_cmpgt_epi32(key, below_low)));
    max = _mm256_max_epi32(max, key);
    min_bits = _mm256_min_epi32(min_bits, value);
    const __m256i order =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kCompress.lane[in])));
    store(candidates + (inside < capacity ? inside : capacity), _mm256_permutevar8x32_epi32(key, order));
    above += size_t(_mm_popcnt_u32(lane_bits(above_v)));
    inside += size_t(_mm_popcnt_u32(in));
  }
  uint32_t maxima[kLanes];
  store(maxima, max);
  ScanResult r{above, inside, 0, lane_bits(_mm256_cmpeq_epi32(min_bits, minus_zero)) != 0};
  for (uint32_t m : maxima) r.max_key = m > r.max_key ? m : r.max_key;
  for (; i < n; ++i) {
    const uint32_t key = bits[i] & kKeyMask;
    r.max_key = key > r.max_key ? key : r.max_key;
    r.negative_zero |= bits[i] == kNegativeZero;
    r.above += key > high;
    candidates[r.inside < capacity ? r.inside : capacity] = key;
    r.inside += key >= low && key <= high;
  }
  *result = r;
}

size_t count_equal(const uint32_t* bits, size_t n, uint32_t key) {
  const __m256i wanted = _mm256_set1_epi32(int(key)), key_mask = _mm256_set1_epi32(kKeyMask);
  size_t count = 0, i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m256i equal = _mm256_cmpeq_epi32(_mm256_and_si256(load(bits + i), key_mask), wanted);
    count += size_t(_mm_popcnt_u32(lane_bits(equal)));
  }
  for (; i < n; ++i) count += (bits[i] & kKeyMask) == key;
  return count;
}

void keep_at_least(uint32_t* bits, size_t n, uint32_t threshold) {
  const __m256i limit = _mm256_set1_epi32(int(threshold)), key_mask = _mm256_set1_epi32(kKeyMask);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    prefetch(bits + i);
    const __m256i value = load(bits + i);
    const __m256i below = _mm256_cmpgt_epi32(limit, _mm256_and_si256(value, key_mask));
    if (!_mm256_testz_si256(below, value)) store(bits + i, _mm256_andnot_si256(below, value));
  }
  for (; i < n; ++i) {
    if ((bits[i] & kKeyMask) < threshold && bits[i] != 0) bits[i] = 0;
  }
}

}  // namespace

void fill_avx2(Kernels& table) {
  table.name = "avx2";
  table.scan = scan;
  table.count_equal = count_equal;
  table.keep_at_least = keep_at_least;
}

}  // namespace membound
