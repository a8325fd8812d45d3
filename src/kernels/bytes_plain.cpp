// Products in 8 bits without vector instructions: the reference, and what runs where a CPU has no dot products of bytes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "bytes.h"

namespace membound {

Quantized quantized(const Range& range) {
  const float scale = (range.high - range.low) / 255.0f;
  if (!(scale > 1e-30f)) return {1.0f, 0};  // all that is so small counts as 0
  const float zero = std::nearbyint(-range.low / scale);
  return {scale, static_cast<int>(zero < 255.0f ? zero : 255.0f)};
}

ByteScale byte_scale(const float* x, size_t n) {
  float largest = 0.0f;
  for (size_t i = 0; i < n; ++i) largest = std::isfinite(x[i]) ? std::max(largest, std::fabs(x[i])) : std::numeric_limits<float>::quiet_NaN();
  return {largest / 127.0f, largest > 1e-30f ? 127.0f / largest : 0.0f};
}

void ByteRows::make_bytes(const Quantized& to) {
  constexpr float kMostWhole = 1 << 21;  // what is so far away is beyond all bytes
  inverse_ = 1.0f / to.scale;
  rests_.assign(biases.size(), 0.0f);
  for (size_t row = 0; row < biases.size(); ++row) {
    const float bias = std::fma(biases[row], inverse_, static_cast<float>(to.zero - kSigned));
    if (!std::isfinite(bias)) continue;  // whoever has it makes no bytes
    const float whole = std::clamp(std::nearbyint(bias), -kMostWhole, kMostWhole);
    biases[row] = kToWhole + whole;
    rests_[row] = bias - whole;
  }
}

void ByteRows::finish(int32_t from, float scale, int32_t* starts, float* of_sums) const {
  constexpr float kMost = kMostStart;
  for (size_t row = 0; row < sums.size(); ++row) {
    int32_t start = -from * sums[row] + (small ? kWholeBits : 0);
    float step = scale * scales[row];
    if (!rests_.empty()) {
      step *= inverse_;
      if (step > 0.0f) start += static_cast<int32_t>(std::clamp(rests_[row] / step, -kMost, kMost) + kToWhole - kToWhole);
    }
    starts[row] = start;
    of_sums[row] = step;
  }
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

// What a number with kToWhole is rounded to.
int signed_byte(float sum) {
  const float whole = sum - kToWhole;
  return static_cast<int>(whole < -128.0f ? -128.0f : whole > 127.0f ? 127.0f : whole);
}

void to_words(const float* x, size_t step, size_t channels, size_t n, const Quantized& how, uint32_t* words) {
  const float inverse = 1.0f / how.scale, zero = kToWhole + static_cast<float>(how.zero - kSigned);
  for (size_t i = 0; i < n; ++i) {
    uint32_t word = 0;
    for (size_t c = 0; c < kWordChannels; ++c) {
      const int byte = signed_byte(std::fma(c < channels ? x[c * step + i] : 0.0f, inverse, zero));
      word |= static_cast<uint32_t>(byte + kSigned) << (8 * c);
    }
    words[i] = word;
  }
}

// A sum, scaled and with its bias.
float finished(int32_t sum, size_t r, const ByteFinish& finish) {
  return std::fma(static_cast<float>(sum - (finish.small ? kWholeBits : 0)), finish.scales[r], finish.biases[r]);
}

float within(float x, const Sums& limits) {
  const float above = x < limits.low ? limits.low : x;
  return above > limits.high ? limits.high : above;
}

// That of row r and pixel p.
float sum_at(const int8_t* a, size_t depth, const int32_t* offsets, const uint32_t* x, size_t p, size_t r, const ByteFinish& finish) {
  int32_t sum = finish.starts[r];
  for (size_t k = 0; k < depth; ++k) {
    const uint32_t word = x[p + static_cast<size_t>(offsets[k])];
    const int8_t* four = a + (k * kByteRows + r) * kWordChannels;
    for (size_t c = 0; c < kWordChannels; ++c) sum += four[c] * static_cast<int32_t>(word >> (8 * c) & 255);
  }
  return finished(sum, r, finish);
}

void multiply(const int8_t* a, size_t depth, const int32_t* offsets, const uint32_t* x, const Chunk* chunks, int count, float* y,
              size_t y_step, int rows, const ByteFinish& finish) {
  for (int n = 0; n < count; ++n)
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r)
      for (size_t p = 0; p < chunks[n].count; ++p)
        y[r * y_step + chunks[n].to + p] = within(sum_at(a, depth, offsets, x, chunks[n].from + p, r, finish), finish.limits);
}

void multiply_to_words(const int8_t* a, size_t depth, const int32_t* offsets, const uint32_t* x, const Chunk* chunks, int count,
                       uint32_t* y, size_t y_step, int rows, const ByteFinish& finish) {
  for (int n = 0; n < count; ++n)
    for (size_t first = 0; first < static_cast<size_t>(rows); first += kWordChannels)
      for (size_t p = 0; p < chunks[n].count; ++p) {
        uint32_t word = 0;
        for (size_t c = 0; c < kWordChannels; ++c) {
          const int byte = signed_byte(sum_at(a, depth, offsets, x, chunks[n].from + p, first + c, finish));
          word |= static_cast<uint32_t>(byte + kSigned) << (8 * c);
        }
        y[first / kWordChannels * y_step + chunks[n].to + p] = word;
      }
}

int32_t sparse_sum(const SparseRow& row, size_t blocks, const int32_t* offsets, const uint32_t* x, int32_t start) {
  const int8_t* values = row.values;
  size_t count = 0;
  for (size_t block = 0; block < blocks; ++block) count += row.counts[block];
  for (size_t k = 0; k < count; ++k, ++offsets) {
    offsets += row.heads[k] >> 4;
    for (size_t c = 0; c < kWordChannels; ++c)
      if (row.heads[k] >> c & 1) start += *values++ * static_cast<int32_t>(x[*offsets] >> (8 * c) & 255);
  }
  return start;
}

void multiply_sparse(const SparseRows& a, const int32_t* offsets, const uint32_t* x, size_t n, float* y, size_t y_step, int rows,
                     const ByteFinish& finish) {
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r)
    for (size_t p = 0; p < n; ++p)
      y[r * y_step + p] = within(finished(sparse_sum(a.rows[r], a.blocks, offsets, x + p, finish.starts[r]), r, finish), finish.limits);
}

void multiply_sparse_to_words(const SparseRows& a, const int32_t* offsets, const uint32_t* x, size_t n, uint32_t* y, size_t y_step,
                              int rows, const ByteFinish& finish) {
  for (size_t first = 0; first < static_cast<size_t>(rows); first += kWordChannels)
    for (size_t p = 0; p < n; ++p) {
      uint32_t word = 0;
      for (size_t r = first; r < first + kWordChannels; ++r) {
        const int byte = signed_byte(finished(sparse_sum(a.rows[r], a.blocks, offsets, x + p, finish.starts[r]), r, finish));
        word |= static_cast<uint32_t>(byte + kSigned) << (8 * (r - first));
      }
      y[first / kWordChannels * y_step + p] = word;
    }
}

void split(const uint32_t* words, size_t n, size_t rows, uint8_t* planes, size_t step, size_t pitch) {
  for (size_t row = 0; row < rows; ++row)
    for (size_t c = 0; c < kWordChannels; ++c) {
      uint8_t* to = planes + c * step + row * pitch;
      for (size_t i = 0; i < n; ++i) to[i] = static_cast<uint8_t>(words[row * n + i] >> (8 * c));
      std::fill_n(to + n, pitch - n, uint8_t{0});
    }
}

void unite(const int8_t* planes, size_t step, size_t n, uint32_t* words) {
  for (size_t i = 0; i < n; ++i) {
    words[i] = 0;
    for (size_t c = 0; c < kWordChannels; ++c) words[i] |= static_cast<uint32_t>(planes[c * step + i] + kSigned) << (8 * c);
  }
}

float depthwise_at(const uint8_t* x, size_t pitch, const int8_t* taps, size_t side, const ByteFinish& finish) {
  const size_t across = words_across(static_cast<int>(side)) * kWordChannels;
  int32_t sum = finish.starts[0];
  for (size_t i = 0; i < side; ++i)
    for (size_t j = 0; j < side; ++j) sum += taps[i * across + j] * x[i * pitch + j];
  return finished(sum, 0, finish);
}

void depthwise(const uint8_t* x, size_t pitch, const int8_t* taps, int kernel, int stride, size_t rows, size_t n, float* floats,
               int8_t* bytes, const ByteFinish& finish) {
  const auto side = static_cast<size_t>(kernel), step = static_cast<size_t>(stride);
  for (size_t r = 0; r < rows; ++r)
    for (size_t p = 0; p < n; ++p) {
      const float found = depthwise_at(x + r * step * pitch + p * step, pitch, taps, side, finish);
      if (bytes) bytes[r * n + p] = static_cast<int8_t>(signed_byte(found));
      else floats[r * n + p] = within(found, finish.limits);
    }
}

}  // namespace

const ByteKernels& plain_byte_kernels() {
  static constexpr ByteKernels kernels{
      kLine, 0, 12, range, to_words, multiply, multiply_to_words, multiply_sparse, multiply_sparse_to_words,
      split, unite, depthwise};
  return kernels;
}

}  // namespace membound
