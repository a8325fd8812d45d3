// A weight times an image: convolution and, with the batch as the image, linear layers.
#pragma once

#include "weight.h"

namespace membound {

// Where the product reads and writes. The image is laid out so that the pixel p of row i that the weight's column k
// meets is x[offset(k) + i * row_step + p]: padded, and split by stride, beforehand.
struct Image {
  const int32_t* offsets = nullptr;  // of each column; null: column * column_step
  size_t column_step = 0;
  size_t channel_columns = 1;        // columns that read one channel: the kernel's area
  size_t channel_floats = 0;         // floats of a channel that a row of output may touch, for blocking
  size_t row_step = 0;
  size_t rows = 1, pixels = 0;       // the output: rows of pixels
};

struct Finish {
  const float* bias;  // one a row of the weight
  Activation activation;
  float first, second;
};

// Floats that one worker needs as room for a product with this weight and this image, or one with fewer pixels.
size_t product_room(const Weight& weight, const Image& image, const NetKernels& kernels);

// Whether the nonzeros are best met one by one, or as a dense product of blocks that are unpacked as they are used.
bool is_direct(const Weight& weight, const Image& image, size_t rows, const NetKernels& kernels);

// How a product of `rows` rows of a weight is cut into tasks for `threads`; `products` of them run side by side.
struct Tasks {
  size_t row_tasks, image_tasks;
  size_t count() const { return row_tasks * image_tasks; }
};
Tasks cut(const Image& image, size_t rows, size_t products, bool direct, int threads, const NetKernels& kernels);

// One task: rows of the weight from `first_row` on, into y, whose row r is y + r * y_step.
void multiply(const Weight& weight, const Image& image, const float* x, size_t first_row, size_t rows, float* y,
              size_t y_step, const Finish& finish, bool direct, const Tasks& tasks, size_t task, float* room,
              const NetKernels& kernels);

}  // namespace membound
