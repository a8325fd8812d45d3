// The reference kernels: plain C++, right on every machine.
#include "kernels.h"

namespace membound {
namespace {

void scan(const uint32_t* bits, size_t n, uint32_t low, uint32_t high, uint32_t* candidates, size_t capacity,
          ScanResult* result) {
  ScanResult r{0, 0, 0, false};
  for (size_t i = 0; i < n; ++i) {
    const uint32_t key = bits[i] & kKeyMask;
    r.max_key = key > r.max_key ? key : r.max_key;
    r.negative_zero |= bits[i] == kNegativeZero;
    r.above += key > high;
    // No branch: the slot is written always and taken only if the key is inside.
    candidates[r.inside < capacity ? r.inside : capacity] = key;
    r.inside += key >= low && key <= high;
  }
  *result = r;
}

void histogram(const uint32_t* bits, size_t n, uint32_t low, uint32_t high, unsigned shift, size_t* bins) {
  for (size_t i = 0; i < n; ++i) {
    const uint32_t offset = (bits[i] & kKeyMask) - low;  // wraps to something large below low
    if (offset <= high - low) ++bins[offset >> shift];
  }
}

size_t count_equal(const uint32_t* bits, size_t n, uint32_t key) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) count += (bits[i] & kKeyMask) == key;
  return count;
}

void keep_at_least(uint32_t* bits, size_t n, uint32_t threshold) {
  for (size_t i = 0; i < n; ++i) {
    if ((bits[i] & kKeyMask) < threshold && bits[i] != 0) bits[i] = 0;
  }
}

}  // namespace

void fill_scalar(Kernels& table) { table = {"scalar", scan, histogram, count_equal, keep_at_least}; }

}  // namespace membound
