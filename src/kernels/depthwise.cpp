#include "depthwise.h"

#include <algorithm>

namespace membound {

bool is_read_in_place(const Window& window, const Traits& traits) {
  const int kernel = window.kernel_w;
  const bool stepped = window.stride_w == 2 || (window.stride_w == 1 && window.stride_h == 1);
  return traits.masks_lanes && window.kernel_h == kernel && (kernel == 3 || kernel == 5 || kernel == 7) && stepped &&
         window.dilation_h == 1 && window.dilation_w == 1;
}

bool is_small(const Window& window, size_t height, size_t width, size_t out_h, size_t out_w) {
  return height * width <= kSmallMap && out_h == height && out_w == width && window.stride_h == 1 && window.stride_w == 1 &&
         window.kernel_w <= 5;
}

// As many as take no more room than a product of the same weight would.
size_t DenseRows::rows_at_once(const Weight& weight) {
  const size_t floats = 96 + 2 * std::min<size_t>(256, weight.rows());
  return std::clamp<size_t>(floats / (3 * weight.columns()), 1, weight.rows());
}

size_t DenseRows::room(const Weight& weight) { return 3 * rows_at_once(weight) * weight.columns() + kReadSlack; }

DenseRows::DenseRows(const Weight& weight, const NetKernels& kernels, float* room)
    : weight_(weight), kernels_(kernels), room_(room) {}

const float* DenseRows::operator()(size_t row) {
  if (row < begin_ || row >= end_) read(row);
  return rows_ + (row - begin_) * weight_.columns();
}

void DenseRows::read(size_t row) {
  const Matrix& matrix = weight_.matrix();
  const size_t columns = matrix.columns;
  begin_ = row;
  end_ = std::min(row + rows_at_once(weight_), matrix.rows);
  rows_ = room_;
  if (matrix.format == Format::dense) {
    if (matrix.type == ValueType::f32 && matrix.scales == nullptr) {
      rows_ = static_cast<const float*>(matrix.values) + row * columns;
      end_ = matrix.rows;
    } else {
      weight_.read_values(begin_, end_, room_, kernels_);
    }
    return;
  }
  const size_t floats = (end_ - begin_) * columns, count = weight_.row_start(end_) - weight_.row_start(begin_);
  auto* positions = reinterpret_cast<int32_t*>(room_ + floats);
  float* values = room_ + floats + count;  // what was written behind the positions is not needed any more
  weight_.read_positions(begin_, end_, positions, kernels_);
  weight_.read_values(begin_, end_, values, kernels_);
  std::fill_n(room_, floats, 0.0f);
  for (size_t i = 0; i < count; ++i) room_[positions[i]] = values[i];
}

}  // namespace membound
