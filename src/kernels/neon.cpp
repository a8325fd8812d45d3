// Kernels for NEON on aarch64. No std templates and no shared inline functions, as in the other files.
#include <arm_neon.h>

#include "kernels.h"

namespace membound {
namespace {

constexpr size_t kLanes = 4;
constexpr size_t kBlock = 4 * kLanes;  // one cache line of 64 bytes

bool any(uint32x4_t mask) { return vmaxvq_u32(mask) != 0; }

// NEON has no movemask and no compress. Candidates are few, so a block that holds none is the fast path and
// the others append one by one.
void scan(const uint32_t* bits, size_t n, uint32_t low, uint32_t high, uint32_t* candidates, size_t capacity,
          ScanResult* result) {
  const uint32x4_t key_mask = vdupq_n_u32(kKeyMask);
  const uint32x4_t low_v = vdupq_n_u32(low), high_v = vdupq_n_u32(high);
  uint32x4_t max = vdupq_n_u32(0);
  int32x4_t min_bits = vdupq_n_s32(0);  // as signed integers; -0.0 is the least of all
  ScanResult r{0, 0, 0, false};
  size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    uint32x4_t inside = vdupq_n_u32(0), above = vdupq_n_u32(0);
    for (size_t j = i; j < i + kBlock; j += kLanes) {
      const uint32x4_t value = vld1q_u32(bits + j);
      const uint32x4_t key = vandq_u32(value, key_mask);
      const uint32x4_t above_j = vcgtq_u32(key, high_v);
      inside = vorrq_u32(inside, vbicq_u32(vcgeq_u32(key, low_v), above_j));
      above = vsubq_u32(above, above_j);  // a true lane is -1
      max = vmaxq_u32(max, key);
      min_bits = vminq_s32(min_bits, vreinterpretq_s32_u32(value));
    }
    r.above += vaddvq_u32(above);
    if (!any(inside)) continue;
    for (size_t j = i; j < i + kBlock; ++j) {
      const uint32_t key = bits[j] & kKeyMask;
      candidates[r.inside < capacity ? r.inside : capacity] = key;
      r.inside += key >= low && key <= high;
    }
  }
  r.max_key = vmaxvq_u32(max);
  r.negative_zero = uint32_t(vminvq_s32(min_bits)) == kNegativeZero;
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

void keep_at_least(uint32_t* bits, size_t n, uint32_t threshold) {
  const uint32x4_t limit = vdupq_n_u32(threshold), key_mask = vdupq_n_u32(kKeyMask);
  size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    uint32x4_t kept[4], dropped = vdupq_n_u32(0);
    for (size_t j = 0; j < 4; ++j) {
      const uint32x4_t value = vld1q_u32(bits + i + j * kLanes);
      const uint32x4_t keep = vcgeq_u32(vandq_u32(value, key_mask), limit);
      kept[j] = vandq_u32(value, keep);
      dropped = vorrq_u32(dropped, vbicq_u32(value, keep));
    }
    if (!any(dropped)) continue;
    for (size_t j = 0; j < 4; ++j) vst1q_u32(bits + i + j * kLanes, kept[j]);
  }
  for (; i < n; ++i) {
    if ((bits[i] & kKeyMask) < threshold && bits[i] != 0) bits[i] = 0;
  }
}

}  // namespace

void fill_neon(Kernels& table) {
  table.name = "neon";
  table.scan = scan;
  table.keep_at_least = keep_at_least;
}

}  // namespace membound
