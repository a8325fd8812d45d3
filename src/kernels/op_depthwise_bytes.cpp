// Depthwise convolutions of images that are bytes, four channels at a time. A channel's taps become bytes with a scale of their
// own when they are loaded.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "bytes.h"
#include "depthwise.h"
#include "op.h"
#include "product.h"

namespace membound {
namespace {

constexpr size_t kNear = 24576;  // bytes of four channels, and of what is made of them, that stay in the nearest cache

class ByteDepthwise final : public Op {
 public:
  ByteDepthwise(const Shape& input, const Shape& output, const Weight& weight, std::vector<float> bias, const Window& window,
                const Fused& fused, const ByteBounds& bounds, const Traits& traits)
      : window_(window), fused_(fused), kernels_(byte_kernels(traits)), channels_(input[0]),
        height_(input[1]), width_(input[2]), out_h_(output[1]), out_w_(output[2]), to_bytes_(bounds.out > 0) {
    pitch_ = std::max((out_w_ - 1) * stride() + side(), static_cast<size_t>(window_.pad_left) + width_);
    const size_t least = kWordChannels * side() * pitch_, each = kWordChannels * (stride() * pitch_ + out_w_);
    band_ = std::clamp<size_t>(kNear > least ? (kNear - least) / each : 0, 1, out_h_);
    const size_t padded = quads_of(channels_) * kWordChannels;
    ByteRows rows;
    rows.biases = std::move(bias);
    rows.biases.resize(padded, 0.0f);
    pack(weight, rows);
    if (to_bytes_) rows.make_bytes(quantized({0.0f, bounds.out}));
    starts_.resize(padded);
    scales_.resize(padded);
    rows.finish(-kernels_.shift, quantized({0.0f, bounds.in}).scale, starts_.data(), scales_.data());
    biases_ = std::move(rows.biases);
  }

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    const size_t in = floats_of_bytes(channels_, height_ * width_), pixels = out_h_ * out_w_;
    const size_t out = to_bytes_ ? floats_of_bytes(channels_, pixels) : channels_ * pixels;
    for (size_t n = 0; n < batch; ++n) {
      const auto* x = reinterpret_cast<const uint32_t*>(inputs[0] + n * in);
      run_image(x, output + n * out, x[quads_of(channels_) * height_ * width_] != 0 || spoiled_, place);
    }
  }

  Needs needs(size_t, const Traits&) const override {
    return {0, kWordChannels * (plane_bytes() + made_bytes()) / sizeof(float)};
  }
  size_t table_bytes() const override {
    return packed_.size() + starts_.size() * sizeof(int32_t) + (scales_.size() + biases_.size()) * sizeof(float);
  }

 private:
  size_t side() const { return static_cast<size_t>(window_.kernel_h); }
  size_t stride() const { return static_cast<size_t>(window_.stride_h); }
  size_t channel_bytes() const { return side() * words_across(window_.kernel_w) * kWordChannels; }
  // Of a channel that is laid out, and of what a band of it becomes.
  size_t plane_bytes() const { return divide_up(((band_ - 1) * stride() + side()) * pitch_ + 2 * kByteSlack, sizeof(float)) * sizeof(float); }
  size_t made_bytes() const { return divide_up(band_ * out_w_ + kByteSlack, sizeof(float)) * sizeof(float); }

  void pack(const Weight& weight, ByteRows& rows) {
    const size_t across = words_across(window_.kernel_w) * kWordChannels, padded = rows.biases.size();
    packed_.assign(padded * channel_bytes(), 0);
    rows.scales.assign(padded, 0.0f);
    rows.sums.assign(padded, 0);
    std::vector<float> room(DenseRows::room(weight));
    DenseRows taps(weight, scalar_net_kernels(), room.data());
    for (size_t channel = 0; channel < channels_; ++channel) {
      const float* from = taps(channel);
      const ByteScale scale = byte_scale(from, weight.columns());
      rows.scales[channel] = scale.scale;
      spoiled_ = spoiled_ || !std::isfinite(scale.scale) || !std::isfinite(rows.biases[channel]);
      for (size_t tap = 0; tap < weight.columns(); ++tap) {
        const int8_t byte = scale.byte(from[tap]);
        packed_[channel * channel_bytes() + tap / side() * across + tap % side()] = byte;
        rows.sums[channel] += byte;
      }
    }
  }

  void run_image(const uint32_t* x, float* y, bool spoiled, const Workplace& place) const {
    const size_t pixels = out_h_ * out_w_, quads = quads_of(channels_);
    auto* bytes = reinterpret_cast<uint32_t*>(y);
    if (to_bytes_) bytes[quads * pixels] = spoiled ? 1 : 0;
    if (spoiled) {
      if (!to_bytes_) std::fill_n(y, channels_ * pixels, std::numeric_limits<float>::quiet_NaN());
      return;
    }
    const Sums limits = limits_of(fused_.activation, fused_.first, fused_.second);
    const bool unfinished = !limits.limited && fused_.activation != Activation::none;
    const double operations = static_cast<double>(channels_ * (side() * side() * pixels + height_ * width_));
    place.each_share(quads, 1, operations, [&](const Share& share, int worker) {
      auto* planes = reinterpret_cast<uint8_t*>(place.room(worker));
      auto* made = reinterpret_cast<int8_t*>(planes + kWordChannels * plane_bytes());
      std::fill_n(planes, kWordChannels * plane_bytes(), zero());
      for (size_t quad = share.first_map; quad < share.last_map; ++quad) {
        const size_t first = quad * kWordChannels, count = std::min(kWordChannels, channels_ - first);
        for (size_t row = 0; row < out_h_; row += band_) {
          const size_t high = std::min(band_, out_h_ - row), floats = high * out_w_;
          lay_out_band(x + quad * height_ * width_, row, high, planes);
          for (size_t c = 0; c < (to_bytes_ ? kWordChannels : count); ++c) {
            const size_t channel = first + c;
            const ByteFinish finish{&starts_[channel], &scales_[channel], &biases_[channel], limits, true};
            const uint8_t* plane = planes + c * plane_bytes();
            const int8_t* taps = &packed_[channel * channel_bytes()];
            float* out = to_bytes_ ? nullptr : y + channel * pixels + row * out_w_;
            kernels_.depthwise(plane, pitch_, taps, window_.kernel_w, window_.stride_w, high, out_w_, out,
                               to_bytes_ ? made + c * made_bytes() : nullptr, finish);
            if (unfinished && out) place.kernels.activate(fused_.activation, fused_.first, fused_.second, out, floats);
          }
          if (to_bytes_) kernels_.unite(made, made_bytes(), floats, bytes + quad * pixels + row * out_w_);
        }
      }
    });
  }

  uint8_t zero() const { return static_cast<uint8_t>(-kernels_.shift); }

  // The rows that the outputs [row, row + high) read. Left of them lies what stands for 0; above and below, other bands may have
  // left their own.
  void lay_out_band(const uint32_t* words, size_t row, size_t high, uint8_t* planes) const {
    const long rows = static_cast<long>((high - 1) * stride() + side()), top = static_cast<long>(row * stride()) - window_.pad_top;
    const size_t begin = static_cast<size_t>(std::clamp(-top, 0L, rows));
    const size_t end = static_cast<size_t>(std::clamp(static_cast<long>(height_) - top, static_cast<long>(begin), rows));
    const size_t left = static_cast<size_t>(window_.pad_left);
    if (begin < end)
      kernels_.split(words + static_cast<size_t>(top + static_cast<long>(begin)) * width_, width_, end - begin,
                     planes + begin * pitch_ + left, plane_bytes(), pitch_);
    for (size_t c = 0; c < kWordChannels && band_ < out_h_; ++c) {
      uint8_t* plane = planes + c * plane_bytes();
      std::fill_n(plane, begin * pitch_ + left, zero());
      std::fill_n(plane + end * pitch_, (static_cast<size_t>(rows) - end) * pitch_, zero());
    }
  }

  Window window_;
  Fused fused_;
  const ByteKernels& kernels_;
  size_t channels_, height_, width_, out_h_, out_w_;
  bool to_bytes_;
  size_t pitch_, band_;  // bytes of a row that is laid out; rows of outputs at once
  std::vector<int8_t> packed_;
  std::vector<int32_t> starts_;         // (ByteFinish)
  std::vector<float> scales_, biases_;
  bool spoiled_ = false;  // by a weight or a bias that is no number
};

}  // namespace

bool takes_bytes(const Shape& input, const Matrix& weight, const Window& window, size_t groups) {
  const int side = window.kernel_h;
  return groups > 1 && groups == input[0] && weight.rows == groups && side == window.kernel_w && (side == 3 || side == 5 || side == 7) &&
         window.pad_top < side && window.pad_left < side && window.stride_h == window.stride_w && window.stride_h <= 2 &&
         window.dilation_h == 1 && window.dilation_w == 1;
}

std::unique_ptr<Op> make_byte_depthwise(const Shape& input, const Shape& output, const Weight& weight, std::vector<float> bias,
                                        const Window& window, const Fused& fused, const ByteBounds& bounds, const Traits& traits) {
  return std::make_unique<ByteDepthwise>(input, output, weight, std::move(bias), window, fused, bounds, traits);
}

}  // namespace membound
