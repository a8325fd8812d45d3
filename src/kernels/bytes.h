// Products in 8 bits: the bytes of an image times those of a weight, summed exactly in 32 bits. Whole numbers have no order
// of summing: every CPU gives the same sums, and what is made of them is rounded alike everywhere.
#pragma once

#include <cmath>
#include <vector>

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
// however it is stored. Adding kToWhole rounds it, of two numbers that are as near to the even one, and leaves the signed byte in
// the last bits of the sum.
constexpr float kToWhole = 12582912.0f;  // 1.5 times 2^23: there, floats are one apart
constexpr int32_t kWholeBits = 0x4b400000;  // its bits
struct Quantized {
  float scale;
  int zero;
};
Quantized quantized(const Range& range);

// Weights that share a scale: signed bytes, the largest 127. NaN if one of them is no finite number.
struct ByteScale {
  float scale, inverse;
  int8_t byte(float x) const { return static_cast<int8_t>(inverse > 0.0f ? std::nearbyint(x * inverse) : 0.0f); }
};
ByteScale byte_scale(const float* x, size_t n);

// An image of numbers from 0 to some bound can stay bytes from one operator to the next: the words of four channels after those
// of the four before, and behind them one that is not 0 if the image had what is no number.
inline size_t quads_of(size_t channels) { return (channels + kWordChannels - 1) / kWordChannels; }
inline size_t floats_of_bytes(size_t channels, size_t pixels) {
  return whole_lines(quads_of(channels) * pixels + 1);  // the next image of a batch begins with a line
}

// How rows of a weight are summed and what sums become, each row with numbers of its own: they begin with `starts`, are multiplied
// by `scales`, and `biases` are added. Then come limits; or, where bytes are made, all is done: a bias is then kToWhole and a whole
// number, and the rest of it is in the start.
struct ByteFinish {
  const int32_t* starts;
  const float* scales;
  const float* biases;
  Sums limits;  // infinite where there are none
  bool small;   // no sum goes beyond kMostSmall, and starts are kWholeBits more: then, what is less by kToWhole is a float of it
};
constexpr int32_t kMostStart = 1 << 20;  // of a bias, where bytes are made
constexpr int32_t kMostSmall = (1 << 22) - 1 - kMostStart;

// The rows of a weight in bytes: their scales and sums, and biases.
struct ByteRows {
  std::vector<float> scales, biases;
  std::vector<int32_t> sums;
  bool small = true;  // (ByteFinish)

  // Makes biases those of bytes.
  void make_bytes(const Quantized& to);
  size_t bytes() const { return (scales.size() + biases.size() + rests_.size()) * sizeof(float) + sums.size() * sizeof(int32_t); }
  // For an image whose 0 is stored as `from`, and whose scale is known.
  void finish(int32_t from, float scale, int32_t* starts, float* of_sums) const;

 private:
  std::vector<float> rests_;  // of biases, in steps of the bytes that are made
  float inverse_ = 1.0f;      // steps a unit
};

// A row of a weight of which most words are 0: those that are not. A head has in its upper half how many words of zeros come
// before, and in its lower half a bit for each byte that is not 0; `values` has these bytes. Three more behind them are read.
// `counts` says how many heads each block has of the columns.
struct SparseRow {
  const uint8_t* heads;
  const int8_t* values;
  const uint16_t* counts;
};

// A group of rows, kByteRows of them, block by block: what a block reads of the image stays near for all of them.
struct SparseRows {
  const SparseRow* rows;
  size_t blocks;
};

// For each head: which of its values every byte of the word is; beyond them, it is 0.
struct alignas(uint32_t) BytePlaces {
  uint8_t of[kWordChannels];
};
constexpr BytePlaces kBytePlaces[16] = {
    {{255, 255, 255, 255}}, {{0, 255, 255, 255}}, {{255, 0, 255, 255}}, {{0, 1, 255, 255}},
    {{255, 255, 0, 255}},   {{0, 255, 1, 255}},   {{255, 0, 1, 255}},   {{0, 1, 2, 255}},
    {{255, 255, 255, 0}},   {{0, 255, 255, 1}},   {{255, 0, 255, 1}},   {{0, 1, 255, 2}},
    {{255, 255, 0, 1}},     {{0, 255, 1, 2}},     {{255, 0, 1, 2}},     {{0, 1, 2, 3}},
};

struct ByteKernels {
  size_t width;   // pixels of a vector: a chunk has as many or fewer
  int32_t shift;  // what bytes are stored less by: dot products take signed ones here, unsigned ones there
  size_t strip;   // vectors of pixels that a row of a sparse weight is summed for at once

  void (*range)(const float* x, size_t n, Range& range);

  // Pixels of up to four channels, `step` floats apart, as words.
  void (*to_words)(const float* x, size_t step, size_t channels, size_t n, const Quantized& how, uint32_t* words);

  // y[r][p] for kByteRows rows, of which `rows` count, and some chunks of pixels: word k of the weight, at
  // a[k][r], meets the image offsets[k] words further.
  void (*multiply)(const int8_t* a, size_t depth, const int32_t* offsets, const uint32_t* x, const Chunk* chunks, int count,
                   float* y, size_t y_step, int rows, const ByteFinish& finish);

  // The same as words: y[r / 4][p].
  void (*multiply_to_words)(const int8_t* a, size_t depth, const int32_t* offsets, const uint32_t* x, const Chunk* chunks,
                            int count, uint32_t* y, size_t y_step, int rows, const ByteFinish& finish);

  // The same for n pixels one after another, a strip or fewer, and rows of a sparse weight.
  void (*multiply_sparse)(const SparseRows& a, const int32_t* offsets, const uint32_t* x, size_t n, float* y, size_t y_step, int rows,
                          const ByteFinish& finish);
  void (*multiply_sparse_to_words)(const SparseRows& a, const int32_t* offsets, const uint32_t* x, size_t n, uint32_t* y,
                                   size_t y_step, int rows, const ByteFinish& finish);

  // Rows of n words as bytes of four planes, a channel each, `step` bytes apart: rows go to where rows of `pitch` bytes are, and up
  // to the next one follows what stands for 0; so it does behind the last, up to kByteSlack bytes of it.
  void (*split)(const uint32_t* words, size_t n, size_t rows, uint8_t* planes, size_t step, size_t pitch);
  // Planes of n signed bytes as words.
  void (*unite)(const int8_t* planes, size_t step, size_t n, uint32_t* words);

  // Depthwise: `rows` rows of n outputs of a channel, by a square kernel of 3, 5 or 7 in steps of 1 or 2, as floats or signed
  // bytes: the other one is null. The image is padded, its rows `pitch` bytes apart; kByteSlack bytes behind it are read. `taps`
  // has the words of a row of the kernel after another, four columns each. What `finish` has is this channel's. Up to kByteSlack
  // bytes behind those that are made may be written.
  void (*depthwise)(const uint8_t* x, size_t pitch, const int8_t* taps, int kernel, int stride, size_t rows, size_t n, float* floats,
                    int8_t* bytes, const ByteFinish& finish);
};

constexpr size_t kByteSlack = 64;
inline size_t words_across(int kernel) { return (static_cast<size_t>(kernel) + kWordChannels - 1) / kWordChannels; }

// Those of Arm, AVX-512 and AVX2 with dot products of bytes (null if the compiler does not know these), those of older CPUs
// without, and those of any CPU.
const ByteKernels& neon_dot_byte_kernels();
const ByteKernels& avx512_dot_byte_kernels();
const ByteKernels* avx2_dot_byte_kernels();
const ByteKernels& neon_byte_kernels();
const ByteKernels& avx2_byte_kernels();
const ByteKernels& plain_byte_kernels();

// The best that this CPU has, beside kernels of these traits.
const ByteKernels& byte_kernels(const Traits& traits);

}  // namespace membound
