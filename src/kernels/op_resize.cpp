// Images of another size, and the indices of an axis in another order.
#include <algorithm>
#include <cstring>

#include "op.h"

namespace membound {
namespace {

// Along rows first, into room for an image as wide as the output; then whole rows are weighed together.
class Resize final : public Op {
 public:
  Resize(const Shape& input, const Shape& output, Taps rows, Taps columns)
      : channels_(input[0]), h_(input[1]), w_(input[2]), out_h_(output[1]), out_w_(output[2]),
        columns_(std::move(columns)), taps_(rows.count) {
    for (size_t i = 0; i < out_h_; ++i)  // [output][tap]: what one call needs lies together
      for (size_t t = 0; t < taps_; ++t) {
        offsets_.push_back(rows.places[t * out_h_ + i] * static_cast<int32_t>(out_w_));
        weights_.push_back(rows.weights[t * out_h_ + i]);
      }
  }

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    const float zero = 0.0f;
    const Sums sums{&zero, false, 0.0f, 0.0f};
    const double work = static_cast<double>(batch * channels_ * out_w_ * (h_ * columns_.count + out_h_ * taps_));
    place.each(batch * channels_, work, [&](size_t i, int worker) {
      const float* x = inputs[0] + i * h_ * w_;
      float *wide = place.room(worker), *y = output + i * out_h_ * out_w_;
      for (size_t r = 0; r < h_; ++r)
        place.kernels.weigh(x + r * w_, columns_.places.data(), columns_.weights.data(), columns_.count,
                            wide + r * out_w_, out_w_);
      for (size_t r = 0; r < out_h_; ++r)
        place.kernels.accumulate(offsets_.data() + r * taps_, weights_.data() + r * taps_, taps_, wide, y + r * out_w_,
                                 out_w_, sums);
    });
  }
  Needs needs(size_t, const Traits&) const override { return {0, h_ * out_w_ + kSlack}; }
  size_t table_bytes() const override {
    return (columns_.places.size() + offsets_.size()) * (sizeof(int32_t) + sizeof(float));
  }

 private:
  size_t channels_, h_, w_, out_h_, out_w_;
  Taps columns_;
  size_t taps_;
  std::vector<int32_t> offsets_;
  std::vector<float> weights_;
};

class Gather final : public Op {
 public:
  Gather(const Shape& input, size_t axis, std::vector<size_t> indices)
      : size_(input[axis]), indices_(std::move(indices)) {
    for (size_t i = 0; i < axis; ++i) before_ *= input[i];
    for (size_t i = axis + 1; i < input.size(); ++i) behind_ *= input[i];
  }
  void run(const float* const* inputs, float* output, size_t batch, const Workplace&) const override {
    float* y = output;
    for (size_t row = 0; row < batch * before_; ++row) {
      const float* x = inputs[0] + row * size_ * behind_;
      if (behind_ == 1) {
        for (size_t index : indices_) *y++ = x[index];
      } else {
        for (size_t index : indices_) y = std::copy_n(x + index * behind_, behind_, y);
      }
    }
  }
  size_t table_bytes() const override { return indices_.size() * sizeof(size_t); }

 private:
  size_t before_ = 1, size_, behind_ = 1;
  std::vector<size_t> indices_;
};

}  // namespace

std::unique_ptr<Op> make_resize(const Shape& input, const Shape& output, Taps rows, Taps columns) {
  return std::make_unique<Resize>(input, output, std::move(rows), std::move(columns));
}
std::unique_ptr<Op> make_gather(const Shape& input, size_t axis, std::vector<size_t> indices) {
  return std::make_unique<Gather>(input, axis, std::move(indices));
}

}  // namespace membound
