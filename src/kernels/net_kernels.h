// The table of kernels that run networks: every instruction set fills one from the same text, net_kernels.inc.
//
// Kernels may read up to kSlack floats behind the end of an array of activations, so every such array has that
// much room behind it; what they read there is never used.
#pragma once

#include <cstddef>
#include <cstdint>

namespace membound {

constexpr size_t kSlack = 16;
constexpr int kLine = 16;  // floats in a line of the cache

enum class Activation : int {
  none, relu, leaky, clip, silu, gelu, gelu_tanh, sigmoid, tanh, hardswish, hardsigmoid, elu
};

enum class Binary : int { add, sub, mul, div };

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
};

struct NetKernels {
  const char* name;
  int width;        // floats in a vector
  int gemm_rows;    // rows of the weight that gemm() takes at once
  // How fast `accumulate` does its multiplications, relative to gemm(): what decides between the two.
  float direct_speed;
  int channel_near;  // floats of a channel that a tile takes, so that it stays near, where its nonzeros are not few

  // y[p] = the sum over k of values[k] x[offsets[k] + p], and what it starts with, for p in [0, n).
  void (*accumulate)(const int32_t* offsets, const float* values, size_t count, const float* x, float* y, size_t n,
                     const Sums& sums);

  // The same for `rows` rows of n, which lie `x_step` and `y_step` floats apart.
  void (*accumulate_rows)(const int32_t* offsets, const float* values, size_t count, const float* x, size_t x_step,
                          float* y, size_t y_step, size_t rows, size_t n, const Sums& sums);

  // Rows of n floats, which lie steps apart, to other such rows.
  void (*copy_rows)(const float* from, size_t from_step, float* to, size_t to_step, size_t rows, size_t n);

  // to[i] = from[2 i], for i in [0, n); reads nothing behind from[2 n - 2].
  void (*every_second)(const float* from, size_t n, float* to);

  // c[r][p] (+)= sum over k of a[k][r] b[k][p]: a is packed [depth][gemm_rows], rows <= gemm_rows of it count;
  // b has rows `b_step` floats apart, c `c_step`. With `start`, c begins as start[r], else as it is.
  void (*gemm)(const float* a, size_t depth, const float* b, size_t b_step, size_t pixels, float* c,
               size_t c_step, int rows, const float* start);

  // out[r] = sum over k of a[r][k] x[k], rows `a_step` floats apart; reads nothing behind the ends.
  void (*dots)(const float* a, size_t a_step, size_t rows, const float* x, size_t n, float* out);

  // The sum over k of values[k] x[columns[k]]; reads nothing behind the ends.
  float (*gather_dot)(const int32_t* columns, const float* values, size_t count, const float* x);
  float (*gather_dot16)(const uint16_t* columns, const float* values, size_t count, const float* x);
  // The same for columns that are told by gaps: the first is `column`, the next gaps[1] + 1 further, and so on.
  float (*gap_dot)(const uint8_t* gaps, size_t column, const float* values, size_t count, const float* x);

  // The same for columns that are the bits set among `count` bits from bit `first` of `bits` on, an array that ends
  // after `bytes`.
  float (*bit_dot)(const uint8_t* bits, size_t bytes, size_t first, size_t count, const float* values,
                   const float* x);

  // a[r][k] for gemm_rows rows, `a_step` floats apart, as packed[k][r].
  void (*pack)(const float* a, size_t a_step, size_t depth, float* packed);

  // The columns of the bits that are set in `bytes` bytes, the first bit's being `column`: as many bytes as certainly
  // fit into `most` columns. How many bytes were taken is in *taken; the result is how many columns there are.
  size_t (*bit_columns)(const uint8_t* bits, size_t bytes, int32_t column, size_t most, int32_t* columns,
                        size_t* taken);

  // IEEE half precision to single.
  void (*half_to_float)(const uint16_t* half, float* out, size_t n);

  void (*activate)(Activation kind, float first, float second, float* y, size_t n);

  // y[i] = a[i a_step] op b[i b_step], the steps 0 or 1.
  void (*binary)(Binary kind, const float* a, int a_step, const float* b, int b_step, float* y, size_t n);

  float (*sum)(const float* x, size_t n);

  // y = x / (k + alpha / size * sum of squares over `size` channels)^beta, for pixels [first, last).
  void (*lrn)(const float* x, float* y, size_t channels, size_t pixels, size_t first, size_t last, int size,
              float alpha, float beta, float k);

  void (*max_pool)(const float* x, int h, int w, float* y, int out_h, int out_w, const Window& window,
                   float* row);  // `row`: room for w floats and three times the slack
  void (*average_pool)(const float* x, int h, int w, float* y, int out_h, int out_w, const Window& window,
                       const Count& count, float* row);
};

const NetKernels& scalar_net_kernels();
const NetKernels& avx2_net_kernels();
const NetKernels& avx512_net_kernels();
const NetKernels& neon_net_kernels();

}  // namespace membound
