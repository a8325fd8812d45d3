// Products in 8 bits: the bytes of an image times those of a weight, summed exactly in 32 bits. Whole numbers have no order
// of summing: every CPU gives the same sums, and what is made of them is rounded alike everywhere.
#pragma once

#include "net_kernels.h"

namespace membound {

constexpr size_t kWordChannels = 4;  // a word is a pixel of so many channels, a byte each
constexpr size_t kByteRows = 8;      // of a weight at once
constexpr size_t kMostByteColumns = 65536;  // of a weight: the sum of more may not fit

// What numbers lie between, 0 among them.
struct Range {
  float low = 0.0f, high = 0.0f;
  bool finite = true;
};

constexpr int kSigned = 128;  // what a byte is more by that is stored without a sign

// A number x is the byte round(x / scale + zero), from 0 to 255. It is rounded as a signed one, 128 less: so it comes out alike
// however it is stored.
struct Quantized {
  float scale;
  int zero;
};
Quantized quantized(const Range& range);

// What sums become: less the weight's own sum for each step of `from`, times scales, and a bias; then within limits.
struct ByteFinish {
  const int32_t* weight_sums;  // one a row, and so
  const float* weight_scales;
  const float* bias;
  int32_t from;  // what stands for 0 in an image
  float scale;   // of the image
  Sums limits;   // infinite where there are none
};

struct ByteKernels {
  size_t width;   // pixels of a vector: a chunk has as many or fewer
  int32_t shift;  // what bytes are stored less by: dot products take signed ones here, unsigned ones there

  void (*range)(const float* x, size_t n, Range& range);

  // Pixels of up to four channels, `step` floats apart, as words.
  void (*to_words)(const float* x, size_t step, size_t channels, size_t n, const Quantized& how, uint32_t* words);

  // y[r][p] for kByteRows rows, of which `rows` count, and some chunks of pixels: word k of the weight, at
  // a[k][r], meets the image offsets[k] words further.
  void (*multiply)(const int8_t* a, size_t depth, const int32_t* offsets, const uint32_t* x, const Chunk* chunks, int count,
                   float* y, size_t y_step, int rows, const ByteFinish& finish);
};

// Those of Arm and AVX-512 with dot products of bytes, those of older CPUs without, and those of any CPU.
const ByteKernels& neon_dot_byte_kernels();
const ByteKernels& avx512_dot_byte_kernels();
const ByteKernels& neon_byte_kernels();
const ByteKernels& avx2_byte_kernels();
const ByteKernels& plain_byte_kernels();

// The best that this CPU has, beside kernels of these traits.
const ByteKernels& byte_kernels(const Traits& traits);

}  // namespace membound
