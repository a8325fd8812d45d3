// The table of kernels that every instruction set fills.
//
// Kernels work on the bit patterns of float32 values, as unsigned integers. The key of a value is its bits
// without the sign: keys order like magnitudes, denormals included, whatever the floating-point mode is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace membound {

constexpr uint32_t kKeyMask = 0x7fffffffu;      // a key is the bits without the sign
constexpr uint32_t kNegativeZero = 0x80000000u;
constexpr uint32_t kFirstNonFinite = 0x7f800000u;  // keys from here on are infinity or NaN
constexpr uint32_t kLastFinite = kFirstNonFinite - 1;

// A scan may overwrite this many candidate slots behind the last one it fills.
constexpr size_t kCandidateSlack = 16;

struct ScanResult {
  size_t above;        // keys > high
  size_t inside;       // keys in [low, high]
  uint32_t max_key;
  bool negative_zero;  // some value is -0.0
};

struct Kernels {
  const char* name;

  // Count keys above and inside [low, high], and append those inside, in order, to `candidates`, which has
  // room for `capacity` keys plus kCandidateSlack. If result.inside > capacity the candidates are incomplete
  // (the counts are still right). low = 1, high = 0 is the empty range: `above` then counts all nonzeros.
  void (*scan)(const uint32_t* bits, size_t n, uint32_t low, uint32_t high, uint32_t* candidates,
               size_t capacity, ScanResult* result);

  // For each key in [low, high]: ++bins[(key - low) >> shift].
  void (*histogram)(const uint32_t* bits, size_t n, uint32_t low, uint32_t high, unsigned shift,
                    size_t* bins);

  // How many keys equal `key`.
  size_t (*count_equal)(const uint32_t* bits, size_t n, uint32_t key);

  // Replace every value whose key is below `threshold` (>= 1) by +0.0; write only where something changes.
  void (*keep_at_least)(uint32_t* bits, size_t n, uint32_t threshold);
};

// Each overwrites the entries that it does better; dispatch.cpp stacks them.
void fill_scalar(Kernels& table);
void fill_avx2(Kernels& table);
void fill_avx512(Kernels& table);
void fill_neon(Kernels& table);

}  // namespace membound
