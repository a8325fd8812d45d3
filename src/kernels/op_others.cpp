// Operators without a weight, but for windows and norms.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "op.h"

namespace membound {

namespace {

// The elements before and behind an axis, and the axis itself: any array is then [before][size][behind].
struct Axis {
  size_t before, size, behind;
  Axis(const Shape& shape, size_t axis) : before(1), size(shape[axis]), behind(1) {
    for (size_t i = 0; i < axis; ++i) before *= shape[i];
    for (size_t i = axis + 1; i < shape.size(); ++i) behind *= shape[i];
  }
};

// Steps through an array of `shape`, whose last axis runs `inner` times inside the body: body(offsets of a and b).
template <class Body>
void step_through(const Shape& shape, const Shape& a_steps, const Shape& b_steps, Body body) {
  const size_t axes = shape.size();
  std::vector<size_t> at(axes, 0);
  size_t a = 0, b = 0;
  if (elements(shape) == 0) return;
  for (;;) {
    body(a, b);
    size_t axis = axes;
    for (;;) {
      if (axis == 0) return;
      --axis;
      a += a_steps[axis];
      b += b_steps[axis];
      if (++at[axis] < shape[axis]) break;
      a -= a_steps[axis] * shape[axis];
      b -= b_steps[axis] * shape[axis];
      at[axis] = 0;
    }
  }
}

Shape contiguous_steps(const Shape& shape) {
  Shape steps(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) steps[i - 1] = steps[i] * shape[i];
  return steps;
}

// Maps of some rows each, of any shape: what elementwise operators cut as windows cut theirs.
struct Maps {
  explicit Maps(const Shape& shape) {
    if (shape.size() == 3) count = shape[0], rows = shape[1], width = shape[2];
    else count = elements(shape), rows = width = 1;
  }
  size_t count, rows, width;
};

// Call body(first, n) for runs of a value's n elements, some hundred at least, on all threads.
template <class Body>
void each_run(const Maps& maps, size_t batch, double operations, const Workplace& place, Body body) {
  constexpr size_t kRun = 8192;
  const size_t map = maps.rows * maps.width;
  const auto runs = [&](size_t first, size_t last) {
    for (; first < last; first += kRun) body(first, std::min(kRun, last - first));
  };
  place.each_share(batch * maps.count, batch == 1 ? maps.rows : 1, operations, [&](const Share& share, int) {
    if (batch > 1 || share.last_row - share.first_row == maps.rows) return runs(share.first_map * map, share.last_map * map);
    for (size_t i = share.first_map; i < share.last_map; ++i)
      runs(i * map + share.first_row * maps.width, i * map + share.last_row * maps.width);
  });
}

class Activate final : public Op {
 public:
  Activate(const Shape& shape, const Fused& fused) : maps_(shape), fused_(fused) {}
  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    const double operations = static_cast<double>(batch * maps_.count * maps_.rows * maps_.width * 8);
    each_run(maps_, batch, operations, place, [&](size_t first, size_t n) {
      std::memcpy(output + first, inputs[0] + first, n * sizeof(float));
      place.kernels.activate(fused_.activation, fused_.first, fused_.second, output + first, n);
    });
  }
  bool takes_together(const Traits& traits) const override { return traits.copies_to_lines; }
  void run_together(const Beside* inputs, float* output, const Workplace& place) const override {
    run(&inputs[0].data, output, static_cast<size_t>(place.kernels.traits.width), place);  // element by element
  }

 private:
  Maps maps_;
  Fused fused_;
};

class Arithmetic final : public Op {
 public:
  Arithmetic(Binary kind, const Shape& left, const Shape& right, const Shape& output, std::vector<float> constant,
             bool has_constant, bool swap, const Fused& fused)
      : kind_(kind), left_size_(elements(left)), right_size_(elements(right)), size_(elements(output)), maps_(output),
        constant_(std::move(constant)), has_constant_(has_constant), swap_(swap), fused_(fused) {
    const Shape a = contiguous_steps(left), b = contiguous_steps(right);
    // Neighbouring axes that both operands step through in the same way are one axis.
    for (size_t i = 0; i < output.size(); ++i) {
      const size_t a_step = left[i] == 1 ? 0 : a[i], b_step = right[i] == 1 ? 0 : b[i];
      if (output[i] == 1) continue;
      if (!outer_.empty() && a_steps_.back() == a_step * output[i] && b_steps_.back() == b_step * output[i]) {
        outer_.back() *= output[i];
        a_steps_.back() = a_step;
        b_steps_.back() = b_step;
      } else {
        outer_.push_back(output[i]);
        a_steps_.push_back(a_step);
        b_steps_.push_back(b_step);
      }
    }
    if (!outer_.empty() && a_steps_.back() <= 1 && b_steps_.back() <= 1) {
      inner_ = outer_.back();
      a_step_ = static_cast<int>(a_steps_.back());
      b_step_ = static_cast<int>(b_steps_.back());
      outer_.pop_back();
      a_steps_.pop_back();
      b_steps_.pop_back();
    }
  }

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    if (is_alike()) return run_alike(inputs, output, batch, place);
    for (size_t n = 0; n < batch; ++n) {
      const float* left = has_constant_ && swap_ ? constant_.data() : inputs[0] + n * left_size_;
      const float* right = !has_constant_ ? inputs[1] + n * right_size_
                           : swap_        ? inputs[0] + n * right_size_
                                          : constant_.data();
      float* y = output + n * size_;
      step_through(outer_, a_steps_, b_steps_, [&](size_t a, size_t b) {
        place.kernels.binary(kind_, left + a, a_step_, right + b, b_step_, y, inner_);
        y += inner_;
      });
    }
    if (fused_.activation == Activation::none) return;
    each_run(maps_, batch, static_cast<double>(batch * size_ * 8), place, [&](size_t first, size_t n) {
      place.kernels.activate(fused_.activation, fused_.first, fused_.second, output + first, n);
    });
  }
  size_t table_bytes() const override { return constant_.size() * sizeof(float); }

  bool takes_together(const Traits& traits) const override { return traits.copies_to_lines && is_alike(); }
  bool takes_parted() const override { return true; }
  // What lies one behind the other is laid side by side some elements at a time.
  void run_together(const Beside* inputs, float* output, const Workplace& place) const override {
    const auto lanes = static_cast<size_t>(place.kernels.traits.width);
    if (inputs[0].together && inputs[1].together) {
      const float* both[2] = {inputs[0].data, inputs[1].data};
      return run_alike(both, output, lanes, place);
    }
    place.each_share(size_, 1, static_cast<double>(lanes * size_ * 16), [&](const Share& share, int) {
      constexpr size_t kAtOnce = 64;
      float some[2][kAtOnce * kLine];
      for (size_t first = share.first_map; first < share.last_map; first += kAtOnce) {
        const size_t here = std::min(kAtOnce, share.last_map - first);
        const float* operands[2];
        for (size_t i = 0; i < 2; ++i) {
          operands[i] = inputs[i].together ? inputs[i].data + first * lanes : some[i];
          if (!inputs[i].together) place.kernels.interleave(inputs[i].data + first, size_, here, some[i]);
        }
        float* y = output + first * lanes;
        place.kernels.binary(kind_, operands[0], 1, operands[1], 1, y, here * lanes);
        if (fused_.activation != Activation::none)
          place.kernels.activate(fused_.activation, fused_.first, fused_.second, y, here * lanes);
      }
    });
  }

 private:
  bool is_alike() const { return !has_constant_ && outer_.empty() && a_step_ == 1 && b_step_ == 1; }

  // Two values of one shape.
  void run_alike(const float* const* inputs, float* output, size_t batch, const Workplace& place) const {
    // Half of what one thread alone would read lies in another's cache: that takes longer than the sums.
    each_run(maps_, batch, static_cast<double>(batch * size_ * 16), place, [&](size_t first, size_t n) {
      place.kernels.binary(kind_, inputs[0] + first, 1, inputs[1] + first, 1, output + first, n);
      if (fused_.activation != Activation::none)
        place.kernels.activate(fused_.activation, fused_.first, fused_.second, output + first, n);
    });
  }

  Binary kind_;
  size_t left_size_, right_size_, size_;
  Maps maps_;
  std::vector<float> constant_;
  bool has_constant_, swap_;
  Fused fused_;
  Shape outer_, a_steps_, b_steps_;
  size_t inner_ = 1;
  int a_step_ = 0, b_step_ = 0;
};

class Concat final : public Op {
 public:
  Concat(const std::vector<Shape>& shapes, size_t axis) {
    for (const Shape& shape : shapes) {
      const Axis here(shape, axis);
      before_ = here.before;
      chunks_.push_back(here.size * here.behind);
      all_ += chunks_.back();
    }
  }
  void run(const float* const* inputs, float* output, size_t batch, const Workplace&) const override {
    size_t start = 0;
    for (size_t i = 0; i < chunks_.size(); ++i) {
      for (size_t row = 0; row < batch * before_; ++row)
        std::memcpy(output + row * all_ + start, inputs[i] + row * chunks_[i], chunks_[i] * sizeof(float));
      start += chunks_[i];
    }
  }

 private:
  size_t before_ = 1, all_ = 0;
  std::vector<size_t> chunks_;
};

class Reshape final : public Op {
 public:
  void run(const float* const*, float*, size_t, const Workplace&) const override {}
  bool is_alias() const override { return true; }
};

class Permute final : public Op {
 public:
  Permute(const Shape& input, const std::vector<size_t>& axes) : size_(elements(input)) {
    const Shape steps = contiguous_steps(input);
    for (size_t axis : axes) {
      outer_.push_back(input[axis]);
      from_.push_back(steps[axis]);
    }
    to_ = contiguous_steps(outer_);
    if (outer_.empty()) return;  // a single number
    take(outer_.size() - 1, columns_, column_step_, ignored_);
    // The axis whose elements lie side by side in the input, if that is not the last one here, too.
    for (size_t i = 0; i < outer_.size() && column_step_ != 1; ++i)
      if (from_[i] == 1) {
        take(i, rows_, ignored_, row_to_);
        break;
      }
  }
  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    for (size_t n = 0; n < batch; ++n) {
      const float* x = inputs[0] + n * size_;
      float* y = output + n * size_;
      step_through(outer_, from_, to_, [&](size_t from, size_t to) {
        if (column_step_ == 1) {
          std::memcpy(y + to, x + from, columns_ * sizeof(float));
        } else {
          place.kernels.turn(x + from, column_step_, columns_, rows_, y + to, row_to_);
        }
      });
    }
  }

 private:
  void take(size_t axis, size_t& size, size_t& from, size_t& to) {
    const auto at = static_cast<std::ptrdiff_t>(axis);
    size = outer_[axis];
    from = from_[axis];
    to = to_[axis];
    outer_.erase(outer_.begin() + at);
    from_.erase(from_.begin() + at);
    to_.erase(to_.begin() + at);
  }

  size_t size_;
  Shape outer_, from_, to_;  // all axes but the two that are taken as a matrix
  size_t rows_ = 1, row_to_ = 0, columns_ = 1, column_step_ = 1, ignored_ = 0;
};

class Slice final : public Op {
 public:
  Slice(const Shape& input, size_t axis, size_t start, size_t step, size_t count)
      : axis_(input, axis), start_(start), step_(step), count_(count) {}
  void run(const float* const* inputs, float* output, size_t batch, const Workplace&) const override {
    const size_t behind = axis_.behind, all = axis_.size * behind;
    for (size_t row = 0; row < batch * axis_.before; ++row) {
      const float* from = inputs[0] + row * all + start_ * behind;
      float* to = output + row * count_ * behind;
      if (step_ == 1) {
        std::memcpy(to, from, count_ * behind * sizeof(float));
      } else {
        for (size_t i = 0; i < count_; ++i)
          std::memcpy(to + i * behind, from + i * step_ * behind, behind * sizeof(float));
      }
    }
  }

 private:
  Axis axis_;
  size_t start_, step_, count_;
};

class Mean final : public Op {
 public:
  Mean(const Shape& input, const std::vector<size_t>& axes, bool most) : size_(elements(input)), most_(most) {
    const Shape steps = contiguous_steps(input);
    for (size_t i = 0; i < input.size(); ++i) {
      const bool gone = std::find(axes.begin(), axes.end(), i) != axes.end();
      (gone ? gone_ : kept_).push_back(input[i]);
      (gone ? gone_steps_ : kept_steps_).push_back(steps[i]);
    }
    // The last axes: their elements lie together.
    trailing_ = true;
    for (size_t i = 0; i < axes.size(); ++i)
      trailing_ = trailing_ && std::find(axes.begin(), axes.end(), input.size() - 1 - i) != axes.end();
  }
  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    const size_t count = elements(gone_);
    float* y = output;
    for (size_t n = 0; n < batch; ++n) {
      const float* x = inputs[0] + n * size_;
      step_through(kept_, kept_steps_, kept_steps_, [&](size_t at, size_t) {
        float all = most_ ? -std::numeric_limits<float>::infinity() : 0.0f;
        if (most_) {
          step_through(gone_, gone_steps_, gone_steps_, [&](size_t more, size_t) {
            const float here = x[at + more];
            all = here > all || here != here ? here : all;
          });
          *y++ = all;
          return;
        }
        if (trailing_) {
          all = place.kernels.sum(x + at, count);
        } else {
          step_through(gone_, gone_steps_, gone_steps_, [&](size_t more, size_t) { all += x[at + more]; });
        }
        *y++ = all / static_cast<float>(count);
      });
    }
  }

 private:
  size_t size_;
  bool most_;
  Shape kept_, kept_steps_, gone_, gone_steps_;
  bool trailing_;
};

class Softmax final : public Op {
 public:
  Softmax(const Shape& shape, size_t axis, bool log) : axis_(shape, axis), log_(log) {}
  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    const size_t step = axis_.behind, all = axis_.size * step;
    if (step == 1) return run_rows(inputs[0], output, batch * axis_.before, place);
    for (size_t row = 0; row < batch * axis_.before; ++row)
      for (size_t i = 0; i < step; ++i) {
        const float* x = inputs[0] + row * all + i;
        float* y = output + row * all + i;
        float most = -std::numeric_limits<float>::infinity();
        for (size_t k = 0; k < axis_.size; ++k) most = std::max(most, x[k * step]);
        float sum = 0.0f;
        for (size_t k = 0; k < axis_.size; ++k) sum += y[k * step] = std::exp(x[k * step] - most);
        const float shift = most + std::log(sum);
        for (size_t k = 0; k < axis_.size; ++k) y[k * step] = log_ ? x[k * step] - shift : y[k * step] / sum;
      }
  }

 private:
  void run_rows(const float* x, float* y, size_t rows, const Workplace& place) const {
    constexpr size_t kElements = 2048;  // of one task, at least
    const size_t n = axis_.size, part = (kElements + n - 1) / n;
    place.each((rows + part - 1) / part, static_cast<double>(rows * n * 8), [&](size_t task, int) {
      for (size_t row = task * part; row < std::min(rows, (task + 1) * part); ++row)
        place.kernels.softmax(x + row * n, n, log_, y + row * n);
    });
  }

  Axis axis_;
  bool log_;
};

class Pad final : public Op {
 public:
  Pad(const Shape& input, const std::vector<std::array<size_t, 2>>& pad, float value)
      : input_(input), in_size_(elements(input)), value_(value) {
    Shape output;
    for (size_t i = 0; i < input.size(); ++i) output.push_back(input[i] + pad[i][0] + pad[i][1]);
    size_ = elements(output);
    out_steps_ = contiguous_steps(output);
    in_steps_ = contiguous_steps(input);
    for (size_t i = 0; i < input.size(); ++i) start_ += pad[i][0] * out_steps_[i];
    last_ = 1;
    outer_ = input;
    if (input.empty()) return;  // a single number
    last_ = input.back();
    outer_.pop_back();
    in_steps_.pop_back();
    out_steps_.pop_back();
  }
  void run(const float* const* inputs, float* output, size_t batch, const Workplace&) const override {
    std::fill_n(output, batch * size_, value_);
    for (size_t n = 0; n < batch; ++n)
      step_through(outer_, in_steps_, out_steps_, [&](size_t from, size_t to) {
        std::memcpy(output + n * size_ + start_ + to, inputs[0] + n * in_size_ + from, last_ * sizeof(float));
      });
  }

 private:
  Shape input_, outer_, in_steps_, out_steps_;
  size_t in_size_, size_ = 0, start_ = 0, last_ = 0;
  float value_;
};

}  // namespace

std::unique_ptr<Op> make_activation(const Shape& shape, const Fused& fused) {
  return std::make_unique<Activate>(shape, fused);
}
std::unique_ptr<Op> make_binary(Binary kind, const Shape& left, const Shape& right, const Shape& output,
                                std::vector<float> constant, bool has_constant, bool swap, const Fused& fused) {
  return std::make_unique<Arithmetic>(kind, left, right, output, std::move(constant), has_constant, swap, fused);
}
std::unique_ptr<Op> make_concat(const std::vector<Shape>& inputs, size_t axis) {
  return std::make_unique<Concat>(inputs, axis);
}
std::unique_ptr<Op> make_reshape(size_t) { return std::make_unique<Reshape>(); }
std::unique_ptr<Op> make_permute(const Shape& input, const std::vector<size_t>& axes) {
  return std::make_unique<Permute>(input, axes);
}
std::unique_ptr<Op> make_slice(const Shape& input, size_t axis, size_t start, size_t step, size_t count) {
  return std::make_unique<Slice>(input, axis, start, step, count);
}
std::unique_ptr<Op> make_mean(const Shape& input, const std::vector<size_t>& axes) {
  return std::make_unique<Mean>(input, axes, false);
}
std::unique_ptr<Op> make_max(const Shape& input, const std::vector<size_t>& axes) {
  return std::make_unique<Mean>(input, axes, true);
}
std::unique_ptr<Op> make_softmax(const Shape& shape, size_t axis, bool log) {
  return std::make_unique<Softmax>(shape, axis, log);
}
std::unique_ptr<Op> make_pad(const Shape& input, const std::vector<std::array<size_t, 2>>& pad, float value) {
  return std::make_unique<Pad>(input, pad, value);
}

}  // namespace membound
