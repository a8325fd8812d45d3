// Pools, upsampling and norms.
#include <algorithm>
#include <cstring>
#include <limits>

#include "op.h"

namespace membound {
namespace {

class Pool final : public Op {
 public:
  Pool(const Shape& input, const Shape& output, const Window& window, const Count* count)
      : channels_(input[0]), h_(static_cast<int>(input[1])), w_(static_cast<int>(input[2])),
        out_h_(static_cast<int>(output[1])), out_w_(static_cast<int>(output[2])), window_(window),
        average_(count != nullptr), count_(count ? *count : Count{}) {}

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    const size_t in = static_cast<size_t>(h_) * static_cast<size_t>(w_);
    const size_t out = static_cast<size_t>(out_h_) * static_cast<size_t>(out_w_);
    const auto rows = static_cast<size_t>(out_h_);
    const double operations = static_cast<double>(batch * channels_ * in * 2);
    const size_t all = batch * channels_, lanes = place.roomy ? lanes_of(place.kernels.traits) : 0;
    const size_t taken = lanes > 0 ? all / lanes * lanes : 0;  // side by side; those that are left, one by one
    if (taken > 0)
      place.each_share(taken / lanes, 1, operations, [&](const Share& share, int worker) {
        float* side_by_side = place.room(worker);
        float* pooled = side_by_side + lanes * in;
        for (size_t i = lanes * share.first_map; i < lanes * share.last_map; i += lanes) {
          place.kernels.interleave(inputs[0] + i * in, in, in, side_by_side);
          place.kernels.pool_tiles(side_by_side, h_, w_, pooled, out_h_, out_w_, window_, average_ ? &count_ : nullptr);
          place.kernels.separate(pooled, out, output + i * out, out);
        }
      });
    if (taken == all) return;
    place.each_share(all - taken, batch == 1 ? rows : 1, operations, [&](const Share& share, int worker) {
      const size_t first = batch == 1 ? share.first_row : 0;
      const int high = static_cast<int>(batch == 1 ? share.last_row - first : rows);
      const Lower lower(window_, first, h_);
      Count count = count_;
      count.limit_h -= lower.above;
      for (size_t i = taken + share.first_map; i < taken + share.last_map; ++i) {
        const float* x = inputs[0] + i * in + static_cast<size_t>(lower.above * w_);
        float* y = output + i * out + first * static_cast<size_t>(out_w_);
        if (average_) {
          place.kernels.average_pool(x, h_ - lower.above, w_, y, high, out_w_, lower.window, count, place.room(worker));
        } else {
          place.kernels.max_pool(x, h_ - lower.above, w_, y, high, out_w_, lower.window, place.room(worker));
        }
      }
    });
  }
  Needs needs(size_t, const Traits&) const override { return {0, static_cast<size_t>(w_) + 3 * kSlack}; }
  Needs likes(size_t batch, const Traits& traits) const override {
    const size_t side_by_side = static_cast<size_t>(h_ * w_ + out_h_ * out_w_) * lanes_of(traits);
    return {0, std::max(needs(batch, traits).worker, side_by_side)};
  }

  bool takes_together(const Traits& traits) const override { return traits.copies_to_lines; }
  void run_together(const Beside* inputs, float* output, const Workplace& place) const override {
    const auto lanes = static_cast<size_t>(place.kernels.traits.width);
    const size_t in = static_cast<size_t>(h_ * w_) * lanes, out = static_cast<size_t>(out_h_ * out_w_) * lanes;
    place.each_share(channels_, 1, static_cast<double>(channels_ * in * 2), [&](const Share& share, int) {
      for (size_t i = share.first_map; i < share.last_map; ++i)
        place.kernels.pool_tiles(inputs[0].data + i * in, h_, w_, output + i * out, out_h_, out_w_, window_, average_ ? &count_ : nullptr);
    });
  }

 private:
  static constexpr size_t kMostSideBySide = 320;  // pixels of a map: of larger ones, their way to and fro costs more than it gains

  // Small maps are taken side by side, a lane each, so that rows of any length fill vectors; 0: none are.
  size_t lanes_of(const Traits& traits) const {
    const auto lanes = static_cast<size_t>(traits.width);
    return traits.copies_to_lines && channels_ >= lanes && static_cast<size_t>(h_ * w_) <= kMostSideBySide ? lanes : 0;
  }

  size_t channels_;
  int h_, w_, out_h_, out_w_;
  Window window_;
  bool average_;
  Count count_;
};

class AdaptivePool final : public Op {
 public:
  AdaptivePool(const Shape& input, const Shape& output, bool average)
      : channels_(input[0]), h_(input[1]), w_(input[2]), out_h_(output[1]), out_w_(output[2]), average_(average) {}

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    place.each(batch * channels_, static_cast<double>(batch * channels_ * h_ * w_), [&](size_t i, int) {
      const float* x = inputs[0] + i * h_ * w_;
      float* y = output + i * out_h_ * out_w_;
      if (average_ && out_h_ * out_w_ == 1) {
        *y = place.kernels.sum(x, h_ * w_) / static_cast<float>(h_ * w_);
        return;
      }
      for (size_t r = 0; r < out_h_; ++r)
        for (size_t c = 0; c < out_w_; ++c)
          *y++ = cell(x, r * h_ / out_h_, ((r + 1) * h_ + out_h_ - 1) / out_h_, c * w_ / out_w_,
                      ((c + 1) * w_ + out_w_ - 1) / out_w_);
    });
  }

 private:
  float cell(const float* x, size_t top, size_t bottom, size_t left, size_t right) const {
    float all = average_ ? 0.0f : -std::numeric_limits<float>::infinity();
    for (size_t i = top; i < bottom; ++i)
      for (size_t j = left; j < right; ++j) {
        const float here = x[i * w_ + j];
        all = average_ ? all + here : (here > all || here != here ? here : all);
      }
    return average_ ? all / static_cast<float>((bottom - top) * (right - left)) : all;
  }

  size_t channels_, h_, w_, out_h_, out_w_;
  bool average_;
};

class Upsample final : public Op {
 public:
  Upsample(const Shape& input, size_t down, size_t right)
      : channels_(input[0]), h_(input[1]), w_(input[2]), down_(down), right_(right) {}

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    const size_t in = h_ * w_, wide = w_ * right_, out = h_ * down_ * wide;
    place.each(batch * channels_, static_cast<double>(batch * channels_ * out), [&](size_t i, int) {
      const float* x = inputs[0] + i * in;
      float* y = output + i * out;
      for (size_t r = 0; r < h_; ++r) {
        float* const first = y;
        for (size_t c = 0; c < w_; ++c, y += right_) std::fill_n(y, right_, *x++);
        for (size_t copy = 1; copy < down_; ++copy, y += wide) std::memcpy(y, first, wide * sizeof(float));
      }
    });
  }

 private:
  size_t channels_, h_, w_, down_, right_;
};

class Lrn final : public Op {
 public:
  Lrn(const Shape& shape, int size, float alpha, float beta, float k)
      : channels_(shape[0]), pixels_(elements(shape) / shape[0]), size_(size), alpha_(alpha), beta_(beta), k_(k) {}

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    constexpr size_t kPixels = 256;
    const size_t parts = (pixels_ + kPixels - 1) / kPixels, image = channels_ * pixels_;
    place.each(batch * parts, static_cast<double>(batch * image * 8), [&](size_t task, int) {
      const size_t n = task / parts, first = task % parts * kPixels;
      place.kernels.lrn(inputs[0] + n * image, output + n * image, channels_, pixels_, first,
                        std::min(first + kPixels, pixels_), size_, alpha_, beta_, k_);
    });
  }

 private:
  size_t channels_, pixels_;
  int size_;
  float alpha_, beta_, k_;
};

class LayerNorm final : public Op {
 public:
  LayerNorm(size_t rows, float eps, std::vector<float> w, std::vector<float> b)
      : rows_(rows), eps_(eps), w_(std::move(w)), b_(std::move(b)) {}

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    constexpr size_t kElements = 4096;  // of one task, at least
    const size_t n = w_.size(), all = batch * rows_, part = (kElements + n - 1) / n;
    place.each((all + part - 1) / part, static_cast<double>(all * n * 4), [&](size_t task, int) {
      for (size_t row = task * part; row < std::min(all, (task + 1) * part); ++row)
        place.kernels.layer_norm(inputs[0] + row * n, n, eps_, w_.data(), b_.data(), output + row * n);
    });
  }
  size_t table_bytes() const override { return (w_.size() + b_.size()) * sizeof(float); }

 private:
  size_t rows_;
  float eps_;
  std::vector<float> w_, b_;
};

}  // namespace

std::unique_ptr<Op> make_max_pool(const Shape& input, const Shape& output, const Window& window) {
  return std::make_unique<Pool>(input, output, window, nullptr);
}
std::unique_ptr<Op> make_average_pool(const Shape& input, const Shape& output, const Window& window,
                                      const Count& count) {
  return std::make_unique<Pool>(input, output, window, &count);
}
std::unique_ptr<Op> make_adaptive_pool(const Shape& input, const Shape& output, bool average) {
  return std::make_unique<AdaptivePool>(input, output, average);
}
std::unique_ptr<Op> make_upsample(const Shape& input, size_t down, size_t right) {
  return std::make_unique<Upsample>(input, down, right);
}
std::unique_ptr<Op> make_lrn(const Shape& shape, int size, float alpha, float beta, float k) {
  return std::make_unique<Lrn>(shape, size, alpha, beta, k);
}
std::unique_ptr<Op> make_layer_norm(size_t rows, float eps, std::vector<float> w, std::vector<float> b) {
  return std::make_unique<LayerNorm>(rows, eps, std::move(w), std::move(b));
}

}  // namespace membound
