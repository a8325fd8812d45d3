// The table of kernels that run networks: every instruction set fills one from the same text, net_kernels.inc.
//
// Kernels may read up to kSlack floats behind the end of an array of activations, so every such array has that
// much room behind it; what they read there is never used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "row.h"
#include "traits.h"

namespace membound {

constexpr size_t kSlack = 16;

constexpr size_t kSmallMap = 64;  // pixels (depthwise_small)

// What is decoded, codes and columns of rice, is written in whole vectors: up to so many numbers behind the last.
constexpr size_t kReadSlack = 32;

enum class Activation : int {
  none, relu, leaky, clip, silu, gelu, gelu_tanh, sigmoid, tanh, hardswish, hardsigmoid, elu, mish, softplus, sqrt
};
inline constexpr const char* kActivationNames[] = {
    "none", "relu",      "leaky",       "clip", "silu", "gelu",     "gelu_tanh", "sigmoid",
    "tanh", "hardswish", "hardsigmoid", "elu",  "mish", "softplus", "sqrt"};

enum class Binary : int { add, sub, mul, div, maximum, minimum };
inline constexpr const char* kBinaryNames[] = {"add", "sub", "mul", "div", "maximum", "minimum"};

// A window that moves over an image: a kernel's size, stride, dilation, and the padding before the image.
struct Window {
  int kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
};

// How an average pool counts: everything in the window clipped to [-pad, limit), the image alone, or a number.
struct Count {
  bool valid_only;
  int limit_h, limit_w;  // the padded image ends here, where the padding is counted
  float divisor;         // 0: as above
};

// How sums begin, with a number or with what is there (null), and the limits that they are brought within, if they are.
// NaN stays.
struct Sums {
  const float* start;
  bool limited;
  float low, high;
  bool in_parts = false;  // several at once, for speed; else products are added in their order, one after another
  bool from_lines = false;  // every vector that is read begins where a line of the cache does
};

// What an activation does to sums, if that is no more than limits.
inline Sums limits_of(Activation activation, float first, float second) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  if (activation == Activation::relu) return {nullptr, true, 0.0f, kInfinite, false};
  if (activation == Activation::clip) return {nullptr, true, first, second, false};
  return {nullptr, false, -kInfinite, kInfinite, false};
}

// A vector of pixels, or the first of one: where they are read, where their sums go, and how many there are.
struct Chunk {
  size_t from, to, count;
};

// Four steps of a slice (slices.h). A lane has a byte for each: in the lower half its place in the window of x, which begins
// at that column, and in the upper one its code.
constexpr size_t kSliceRows = 16;
struct alignas(8) FourSteps {
  uint32_t lanes[kSliceRows];
  uint16_t windows[4];
};

// Where the columns of a weight meet an image. There may be a table of them all, one channel after another: column c area + t is
// at table[c area + t], and that is c step + table[t]: kernels use either. Without one, a column is at so many steps.
struct Places {
  const int32_t* table;
  int32_t area, step;
  size_t columns;
};

// Where the bits of some rows begin, in an array of so many bytes.
struct BitRows {
  const uint8_t* bits;
  size_t bytes;
  const size_t* first;
};

// Rows of nonzeros, decoded: where they meet an image, and their values. Those of row r in block b are the ones from
// cuts[r cut_step + b] to the next cut.
struct Segments {
  const int32_t* offsets;
  const float* values;
  const uint32_t* cuts;
  size_t cut_step, rows;
};

// Some rows of a few pixels, each of which is a vector: a lane for each image. Steps are in floats: `row` leads to the next row
// of pixels, `step` to the next row of the weight.
constexpr int kMostOfTile = 14;  // pixels
struct Tile {
  int rows, across;
  const float* x;
  size_t x_row;
  const float* from;  // sums so far, row behind row; null: they start
  size_t from_step;
  float* to;
  size_t to_row, to_step;
};

// Rows of pixels of one channel for windows: `rows` from `top` on, and in each `columns` from `left` on, zeros where these are beside
// the image of h times w. Pixel c of a row goes to plane c % stride, if there is one, as number c / stride.
struct Patch {
  int h, w, top, left, rows, columns, stride, planes;
  size_t pitch, plane;  // floats from one row to the next, and from plane to plane
};

// Zeros around a map of `rows` rows of `width` floats: so many floats before its first row and behind its last one, and its rows
// `pitch` floats apart.
struct Frame {
  size_t before, rows, width, pitch, behind;
};

struct NetKernels {
  const Traits& traits;

  // y[p] = the sum over k of values[k] x[offsets[k] + p], and what it starts with, for p in [0, n).
  void (*accumulate)(const int32_t* offsets, const float* values, size_t count, const float* x, float* y, size_t n,
                     const Sums& sums) = nullptr;

  // The same for `rows` rows of n, which lie `x_step` and `y_step` floats apart.
  void (*accumulate_rows)(const int32_t* offsets, const float* values, size_t count, const float* x, size_t x_step,
                          float* y, size_t y_step, size_t rows, size_t n, const Sums& sums) = nullptr;

  // The same for each row's part of a block: row r's sums begin at y[r y_step], and are n, as many as a tile has or fewer.
  // sums.start, if there, is row 0's.
  void (*accumulate_each)(const Segments& segments, size_t block, const float* x, float* y, size_t y_step, size_t n,
                          const Sums& sums) = nullptr;

  // The same of images side by side, for the first block. Null where nothing is taken so.
  void (*accumulate_tiles)(const Segments& segments, const Tile& tile, const Sums& sums) = nullptr;

  // Of each block in turn, its part of every row, so that what follows one another is read in its order: `to` gets them, offsets
  // less `step` for each block before, and `cuts` where each part begins, and the last one ends. Null as above.
  void (*sort_blocks)(const Segments& rows, size_t blocks, int32_t step, int32_t* offsets, float* values, uint32_t* cuts) = nullptr;

  // Rows of n floats, which lie steps apart, to other such rows.
  void (*copy_rows)(const float* from, size_t from_step, float* to, size_t to_step, size_t rows, size_t n) = nullptr;

  // A map, whose rows lie `from_step` floats apart, with zeros around it.
  void (*frame_rows)(const float* from, size_t from_step, const Frame& frame, float* to) = nullptr;

  // to[i] = from[2 i], for i in [0, n); reads nothing behind from[2 n - 2].
  void (*every_second)(const float* from, size_t n, float* to) = nullptr;

  // to[i] = from[first + i stride], where that is in [0, w), and else 0, for i in [0, n): of `rows` rows, `from_step` floats
  // apart there and n here. Null where rows are better copied.
  void (*spread_rows)(const float* from, size_t from_step, int w, int first, int stride, size_t rows, float* to,
                      size_t n) = nullptr;

  // As many images as a vector has lanes: pixel p of image i, from[i step + p], is lane i of vector p of `to`, for p in [0, pixels);
  // and back. Null as above, as are the next two.
  void (*interleave)(const float* from, size_t step, size_t pixels, float* to) = nullptr;
  void (*separate)(const float* from, size_t pixels, float* to, size_t step) = nullptr;
  // A patch of a channel of images that are side by side (`step` is 0), or so many floats apart.
  void (*lay_patch)(const float* channel, size_t step, const Patch& patch, float* to) = nullptr;
  // A channel of images side by side; without a count, the largest.
  void (*pool_tiles)(const float* x, int h, int w, float* y, int out_h, int out_w, const Window& window, const Count* count) = nullptr;

  // to[c to_step + r] = from[r from_step + c]: rows become columns.
  void (*turn)(const float* from, size_t from_step, size_t rows, size_t columns, float* to, size_t to_step) = nullptr;

  // One channel of a depthwise convolution, read where it lies: `taps` are the kernel, a square of 3, 5 or 7; steps of 1, or
  // of 2 from column to column. sums.start is there. Null where the instruction set masks no lanes.
  void (*depthwise)(const float* x, int h, int w, const float* taps, float* y, int out_h, int out_w, const Window& window,
                    const Sums& sums) = nullptr;

  // Channels one behind the other, of kSmallMap pixels or fewer, whose results are as large: steps of 1, a square kernel of 3
  // or 5. sums.start is the first one's. Null where a row of such a map fills a vector.
  void (*depthwise_small)(const float* x, size_t channels, int h, int w, const float* taps, float* y, const Window& window,
                          const Sums& sums) = nullptr;

  // c[r][p] (+)= sum over k of a[k][r] b[k][p]: a is packed [depth][gemm_rows], rows <= gemm_rows of it count;
  // b has rows `b_step` floats apart, c `c_step`. With `start`, c begins as start[r], else as it is.
  void (*gemm)(const float* a, size_t depth, const float* b, size_t b_step, size_t pixels, float* c,
               size_t c_step, int rows, const float* start) = nullptr;

  // The same for up to gemm_vectors chunks of pixels, which column k of the weight meets offsets[k] floats further: with
  // sums.start, c begins as sums.start[r]. Lanes behind the last pixel of a chunk are read, but not written.
  void (*gemm_at)(const float* a, size_t depth, const int32_t* offsets, const float* x, const Chunk* chunks, int count,
                  float* c, size_t c_step, int rows, const Sums& sums) = nullptr;

  // out[r] = sum over k of a[r][k] x[k], rows of values `a_step` apart, the first from `entry` on; reads nothing behind
  // the ends.
  void (*dots)(const Values& a, size_t entry, size_t a_step, size_t rows, const float* x, size_t n, float* out) = nullptr;

  // The sum over the row's entries of their values times x[column]; reads nothing behind the ends.
  float (*row_dot)(const Row& row, const float* x) = nullptr;

  // The same of several rows whose entries are decoded, starts[r] - starts[0] of them before row r: their columns are
  // positions[k] - r step, or as the file tells them.
  void (*dots_at)(const int32_t* positions, const float* values, const uint32_t* starts, size_t rows, size_t step,
                  const float* x, float* out) = nullptr;
  void (*short_dots_at)(const uint16_t* columns, const float* values, const uint32_t* starts, size_t rows, const float* x,
                        float* out) = nullptr;

  // The same of rows whose gaps are near (Rice) and whose values are codes. `column`, seen from the first row, is that of the
  // entry before it, and `bit` the first of the high parts behind that one. Null where positions are decoded first.
  void (*rice_dots)(const Rice& rice, const Values& values, const uint32_t* starts, size_t rows, size_t step, int32_t column,
                    uint32_t bit, const float* x, float* out) = nullptr;

  // The same of the rows of a slice. The palette has kSliceRows entries. Null where weights are not sliced.
  void (*slice_dots)(const FourSteps* steps, size_t count, const float* palette, const float* x, float* out) = nullptr;

  // a[r][k] for gemm_rows rows, of values `a_step` apart, the first from `entry` on, as packed[k][r]; each row times
  // its scale, if there are any.
  void (*pack)(const Values& a, size_t entry, size_t a_step, size_t depth, const float* scales, float* packed) = nullptr;

  // The same of rows whose positions are bits, `rows` of gemm_rows, and 0 for the others: of row r the bits from
  // bits.first[r] on, and values from entries[r] on, which moves behind those that are taken. Null where no instruction puts
  // values where bits are set.
  void (*pack_bits)(const BitRows& bits, const Values& values, uint32_t* entries, size_t rows, size_t depth,
                    const float* scales, float* packed) = nullptr;

  // The columns of the bits that are set in `bytes` times eight bits, which begin `shift` bits into the first byte, the first
  // bit's being `column`: as many eights as certainly fit into `most` columns. How many were taken is in *taken; the
  // result is how many columns there are.
  size_t (*bit_columns)(const uint8_t* bits, unsigned shift, size_t bytes, int32_t column, size_t most, int32_t* columns,
                        size_t* taken) = nullptr;

  // The columns of up to `count` entries of a row whose columns are told by gaps, while they are below `end`: the first
  // one's is *column, the next is gaps[1] + 1 further, and so on. With `more`, there is a gap behind these, too. Then,
  // *column is that of the entry behind the last one, if its gap was there. The result is how many columns there are.
  size_t (*gap_columns)(const uint8_t* gaps, size_t count, bool more, size_t end, uint32_t* column,
                        int32_t* columns) = nullptr;

  // The columns of up to `count` entries of a row from `entry` on, while they are below `end`. *column is that of the
  // entry before, *bit the first of the high parts behind it; then, those of the last entry whose column is here. The
  // result is how many there are.
  size_t (*rice_columns)(const Rice& rice, size_t entry, size_t count, size_t end, uint32_t* column, uint32_t* bit,
                         int32_t* columns) = nullptr;

  // The columns of up to `count` entries, while they are below `end`. The result is how many there are.
  size_t (*short_columns)(const uint16_t* from, size_t count, size_t end, int32_t* columns) = nullptr;

  // Where columns, less `base`, meet an image; `offsets` may be `columns`.
  void (*place)(const int32_t* columns, int32_t base, size_t count, const Places& places, int32_t* offsets) = nullptr;

  // How many of n numbers, which ascend, are below a limit; may read kSlack numbers behind them.
  size_t (*count_below)(const int32_t* numbers, size_t n, int32_t limit) = nullptr;

  // Values from `entry` on in single precision, times `scale`; reads nothing behind the end of all values.
  void (*to_float)(const Values& values, size_t entry, float scale, float* out, size_t n) = nullptr;

  void (*activate)(Activation kind, float first, float second, float* y, size_t n) = nullptr;

  // y[i] = a[i a_step] op b[i b_step], the steps 0 or 1.
  void (*binary)(Binary kind, const float* a, int a_step, const float* b, int b_step, float* y, size_t n) = nullptr;

  float (*sum)(const float* x, size_t n) = nullptr;

  // y = x / (k + alpha / size * sum of squares over `size` channels)^beta, for pixels [first, last).
  void (*lrn)(const float* x, float* y, size_t channels, size_t pixels, size_t first, size_t last, int size,
              float alpha, float beta, float k) = nullptr;

  // y = (x - mean) / sqrt(variance + eps) * w + b over n elements.
  void (*layer_norm)(const float* x, size_t n, float eps, const float* w, const float* b, float* y) = nullptr;

  void (*max_pool)(const float* x, int h, int w, float* y, int out_h, int out_w, const Window& window,
                   float* row) = nullptr;  // `row`: room for w floats and three times the slack
  void (*average_pool)(const float* x, int h, int w, float* y, int out_h, int out_w, const Window& window,
                       const Count& count, float* row) = nullptr;

  // e^x over their sum, of n elements side by side, or the logarithm of it. Minus infinity is as good as -87 below the
  // largest.
  void (*softmax)(const float* x, size_t n, bool log, float* y) = nullptr;

  // y[i] = the sum over t of weights[t n + i] x[places[t n + i]], for i in [0, n) and t in [0, taps).
  void (*weigh)(const float* x, const int32_t* places, const float* weights, size_t taps, float* y, size_t n) = nullptr;
};

const NetKernels& scalar_net_kernels();
const NetKernels& avx2_net_kernels();
const NetKernels& avx512_net_kernels();
const NetKernels& neon_net_kernels();

}  // namespace membound
