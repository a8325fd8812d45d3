// Products of two values, as attention has them, and values that are the same for every image.
#include <algorithm>

#include "op.h"

namespace membound {
namespace {

class MatMul final : public Op {
 public:
  MatMul(const Shape& left, const Shape& right, const Shape& output, bool transpose, float scale)
      : m_(output[output.size() - 2]), n_(output.back()), k_(left.back()), transpose_(transpose), scale_(scale),
        left_size_(elements(left)), right_size_(elements(right)), size_(elements(output)) {
    const size_t axes = output.size() - 2;
    size_t matrices = 1;
    for (size_t i = 0; i < axes; ++i) matrices *= output[i];
    for (size_t number = 0; number < matrices; ++number) {
      lefts_.push_back(place(number, left, output, axes) * m_ * k_);
      rights_.push_back(place(number, right, output, axes) * k_ * n_);
    }
  }

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    const size_t rows = static_cast<size_t>(place.kernels.traits.gemm_rows), groups = (m_ + rows - 1) / rows;
    const size_t products = batch * lefts_.size();
    // A product is cut where there are fewer of them than threads; each part lays out the right matrix for itself.
    const size_t threads = static_cast<size_t>(place.threads);
    const size_t parts = std::min(groups, (threads + products - 1) / std::max<size_t>(products, 1));
    const double work = static_cast<double>(products) * static_cast<double>(m_ * n_) * static_cast<double>(k_);
    place.each(products * parts, work, [&](size_t task, int worker) {
      const size_t product = task / parts, part = task % parts;
      const size_t image = product / lefts_.size(), number = product % lefts_.size();
      multiply(inputs[0] + image * left_size_ + lefts_[number], inputs[1] + image * right_size_ + rights_[number],
               output + image * size_ + number * m_ * n_, groups * part / parts, groups * (part + 1) / parts, place,
               place.room(worker));
    });
  }
  Needs needs(size_t, const Traits& traits) const override {
    const size_t packed = k_ * static_cast<size_t>(traits.gemm_rows);
    return {0, packed + kSlack + (transpose_ ? k_ * turned_step() + kSlack : 0)};
  }
  size_t table_bytes() const override { return (lefts_.size() + rights_.size()) * sizeof(size_t); }

 private:
  // Which matrix of an operand meets matrix `number` of the output.
  static size_t place(size_t number, const Shape& shape, const Shape& output, size_t axes) {
    size_t found = 0, step = 1;
    for (size_t i = axes; i-- > 0;) {
      if (shape[i] != 1) found += number % output[i] * step;
      number /= output[i];
      step *= shape[i];
    }
    return found;
  }

  // The groups [first, last) of rows.
  void multiply(const float* a, const float* b, float* c, size_t first, size_t last, const Workplace& place,
                float* room) const {
    constexpr size_t kMostRows = 16;
    const NetKernels& kernels = place.kernels;
    const size_t rows = static_cast<size_t>(kernels.traits.gemm_rows);
    float* packed = room;
    size_t step = n_;
    if (transpose_) {
      float* turned = room + k_ * rows + kSlack;
      step = turned_step();
      kernels.turn(b, k_, n_, k_, turned, step);
      for (size_t k = 0; k < k_; ++k) std::fill(turned + k * step + n_, turned + (k + 1) * step, 0.0f);
      b = turned;
    }
    float scales[kMostRows], zeros[kMostRows] = {};
    std::fill_n(scales, kMostRows, scale_);
    const Values all{ValueType::f32, a, m_ * k_ * sizeof(float), nullptr, 0.0f};
    for (size_t group = first; group < last; ++group) {
      const size_t row = group * rows, here = std::min(rows, m_ - row);
      if (here == rows) {
        kernels.pack(all, row * k_, k_, k_, scale_ == 1.0f ? nullptr : scales, packed);
      } else {
        std::fill_n(packed, k_ * rows, 0.0f);
        kernels.turn(a + row * k_, k_, here, k_, packed, rows);
        if (scale_ != 1.0f) kernels.binary(Binary::mul, packed, 1, &scale_, 0, packed, k_ * rows);
      }
      kernels.gemm(packed, k_, b, step, n_, c + row * n_, n_, static_cast<int>(here), zeros);
    }
  }

  // Of the right matrix, turned: its rows begin where a line of the cache does.
  size_t turned_step() const { return whole_lines(n_); }

  size_t m_, n_, k_;
  bool transpose_;
  float scale_;
  size_t left_size_, right_size_, size_;
  std::vector<size_t> lefts_, rights_;  // where the matrices of each product begin
};

class Constant final : public Op {
 public:
  explicit Constant(std::vector<float> values) : values_(std::move(values)) {}
  void run(const float* const*, float* output, size_t batch, const Workplace&) const override {
    for (size_t n = 0; n < batch; ++n) std::copy(values_.begin(), values_.end(), output + n * values_.size());
  }
  size_t table_bytes() const override { return values_.size() * sizeof(float); }

 private:
  std::vector<float> values_;
};

}  // namespace

std::unique_ptr<Op> make_matmul(const Shape& left, const Shape& right, const Shape& output, bool transpose,
                                float scale) {
  return std::make_unique<MatMul>(left, right, output, transpose, scale);
}
std::unique_ptr<Op> make_constant(std::vector<float> values) { return std::make_unique<Constant>(std::move(values)); }

}  // namespace membound
