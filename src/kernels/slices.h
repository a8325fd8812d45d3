// A weight of few bits as products with one vector like it best, where an instruction looks up as many floats at once as a
// vector has lanes: slices of as many rows, a lane each. A step takes a window of the vector's elements, and from each row the
// next entry if it lies there. What an entry is to find, its place in the window and its code, is half a byte each, so that
// no element of the vector is loaded for itself, nor its column. It is made when a network is loaded, beside the weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weight.h"

namespace membound {

class Slices {
 public:
  static constexpr size_t kRows = kSliceRows;

  Slices() = default;
  // Empty where it is not worth its bytes, or where the instruction set has no use for it.
  Slices(const Weight& weight, const Traits& traits);

  bool empty() const { return steps_.empty(); }
  size_t bytes() const;
  size_t count() const { return starts_.empty() ? 0 : starts_.size() - 1; }
  // Of one slice: the sums over each row's entries of their values times x[column].
  void multiply(size_t slice, const float* x, float* out, const NetKernels& kernels) const {
    const size_t first = starts_[slice];
    kernels.slice_dots(steps_.data() + first, starts_[slice + 1] - first, palette_.data(), x, out);
  }

 private:
  std::vector<FourSteps> steps_;
  std::vector<uint32_t> starts_;  // of each slice
  std::vector<float> palette_;    // again and again, as often as there is room
};

}  // namespace membound
