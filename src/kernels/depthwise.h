// Depthwise convolutions whose channels are read where they lie, on instruction sets that mask what is beside an image.
#pragma once

#include "op.h"

namespace membound {

// Whether there is a kernel for such a window; others need a channel that is padded and split by strides first.
bool is_read_in_place(const Window& window, const Traits& traits);

// Whether there is one for channels of this size, many at once.
bool is_small(const Window& window, size_t height, size_t width, size_t out_h, size_t out_w);

// The dense kernels of a weight's rows, some at a time, in a worker's room.
class DenseRows {
 public:
  static size_t room(const Weight& weight);  // in floats

  DenseRows(const Weight& weight, const NetKernels& kernels, float* room);
  // Of `row`, which is the one after the last one asked for, or any: then those behind it are read anew.
  const float* operator()(size_t row);
  size_t left(size_t row) const { return end_ - row; }  // rows that are there from this one on, one behind the other

 private:
  static size_t rows_at_once(const Weight& weight);
  void read(size_t row);

  const Weight& weight_;
  const NetKernels& kernels_;
  float* room_;
  const float* rows_ = nullptr;
  size_t begin_ = 0, end_ = 0;  // the rows that are there
};

}  // namespace membound
