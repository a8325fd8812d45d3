// Networks without vector instructions: the reference, and what runs on every other CPU.
#include "net_kernels.h"

namespace membound {
namespace {

constexpr const Traits& kTraits = kScalar;
constexpr size_t kWidth = kTraits.width;

struct Vec {
  float lane[kWidth];
};

template <class Operation>
inline Vec lanes(Operation operation) {
  Vec v;
  for (size_t i = 0; i < kWidth; ++i) v.lane[i] = operation(i);
  return v;
}

inline Vec load(const float* p) {
  return lanes([&](size_t i) { return p[i]; });
}
inline void store(float* p, Vec v) {
  for (size_t i = 0; i < kWidth; ++i) p[i] = v.lane[i];
}
inline Vec fill(float x) {
  return lanes([&](size_t) { return x; });
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return lanes([&](size_t i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
}
inline Vec add(Vec a, Vec b) {
  return lanes([&](size_t i) { return a.lane[i] + b.lane[i]; });
}
inline Vec within(Vec v, Vec low, Vec high) {
  return lanes([&](size_t i) {
    const float x = v.lane[i] < low.lane[i] ? low.lane[i] : v.lane[i];
    return x > high.lane[i] ? high.lane[i] : x;
  });
}
inline Vec larger(Vec a, Vec b) {
  return lanes([&](size_t i) { return a.lane[i] > b.lane[i] || a.lane[i] != a.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec load_second(const float* p) {
  return lanes([&](size_t i) { return p[2 * i]; });
}
inline float total(Vec v) { return (v.lane[0] + v.lane[1]) + (v.lane[2] + v.lane[3]); }

inline void store_eight(int32_t* p, const uint8_t* bytes, int32_t x) {
  for (size_t i = 0; i < 8; ++i) p[i] = x + bytes[i];
}

constexpr size_t kGaps = 4;
inline int32_t store_sums(int32_t* p, const uint8_t* gaps, int32_t x) {
  for (size_t i = 0; i < kGaps; ++i) {
    p[i] = x;
    x += gaps[i + 1] + 1;
  }
  return x;
}

// Every finite half is a float: shift the bits into place and let a multiplication set the exponent, which is
// right for subnormal halves too.
inline float single(Half half) {
  const uint32_t sign = static_cast<uint32_t>(half.bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half.bits & 0x7fffu) << 13;
  float value;
  __builtin_memcpy(&value, &magnitude, sizeof value);
  value *= 0x1p112f;
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  bits |= sign;
  __builtin_memcpy(&value, &bits, sizeof bits);
  return value;
}
inline float single(float x) { return x; }
inline Vec load(const Half* p) {
  return lanes([&](size_t i) { return single(p[i]); });
}

template <class Column, class Value>
float gather_dot(const Column* columns, const Value* values, size_t count, const float* x) {
  float all = 0;
  for (size_t k = 0; k < count; ++k) all += single(values[k]) * x[columns[k]];
  return all;
}

#include "net_kernels.inc"

}  // namespace

const NetKernels& scalar_net_kernels() {
  static const NetKernels kernels = table();
  return kernels;
}

}  // namespace membound
