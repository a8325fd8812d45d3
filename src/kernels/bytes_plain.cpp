// Products in 8 bits without vector instructions: the reference, and what runs where a CPU has no dot products of bytes.
#include <cmath>

#include "bytes.h"

namespace membound {

Quantized quantized(const Range& range) {
  const float scale = (range.high - range.low) / 255.0f;
  if (!(scale > 1e-30f)) return {1.0f, 0};  // all that is so small counts as 0
  const float zero = std::nearbyint(-range.low / scale);
  return {scale, static_cast<int>(zero < 255.0f ? zero : 255.0f)};
}

namespace {

void range(const float* x, size_t n, Range& range) {
  float low = range.low, high = range.high, nothing = 0.0f;
  for (size_t i = 0; i < n; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
    nothing += x[i] * 0.0f;  // NaN from an infinity, too
  }
  range = {low, high, range.finite && nothing == 0.0f};
}

void to_words(const float* x, size_t step, size_t channels, size_t n, const Quantized& how, uint32_t* words) {
  const float inverse = 1.0f / how.scale, zero = static_cast<float>(how.zero - kSigned);
  for (size_t i = 0; i < n; ++i) {
    uint32_t word = 0;
    for (size_t c = 0; c < kWordChannels; ++c) {
      float byte = c < channels ? std::fma(x[c * step + i], inverse, zero) : zero;
      byte = byte < -128.0f ? -128.0f : byte > 127.0f ? 127.0f : byte;
      word |= static_cast<uint32_t>(static_cast<int>(std::nearbyint(byte)) + kSigned) << (8 * c);
    }
    words[i] = word;
  }
}

void multiply(const int8_t* a, size_t depth, const int32_t* offsets, const uint32_t* x, const Chunk* chunks, int count, float* y,
              size_t y_step, int rows, const ByteFinish& finish) {
  for (int n = 0; n < count; ++n)
    for (int r = 0; r < rows; ++r) {
      const float scale = finish.scale * finish.weight_scales[r];
      for (size_t p = 0; p < chunks[n].count; ++p) {
        int32_t sum = 0;
        for (size_t k = 0; k < depth; ++k) {
          const uint32_t word = x[chunks[n].from + p + static_cast<size_t>(offsets[k])];
          const int8_t* four = a + (k * kByteRows + static_cast<size_t>(r)) * kWordChannels;
          for (size_t c = 0; c < kWordChannels; ++c) sum += four[c] * static_cast<int32_t>(word >> (8 * c) & 255);
        }
        const float found = std::fma(static_cast<float>(sum - finish.from * finish.weight_sums[r]), scale, finish.bias[r]);
        const float above = found < finish.limits.low ? finish.limits.low : found;
        y[static_cast<size_t>(r) * y_step + chunks[n].to + p] = above > finish.limits.high ? finish.limits.high : above;
      }
    }
}

}  // namespace

const ByteKernels& plain_byte_kernels() {
  static constexpr ByteKernels kernels{kLine, 0, range, to_words, multiply};
  return kernels;
}

}  // namespace membound
