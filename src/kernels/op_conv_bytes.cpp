// Convolutions in 8 bits. The weight becomes bytes when it is loaded, with a scale for each of its rows; an image becomes bytes
// as it comes, with a scale of its own, so that nothing is calibrated before and an image alone gives what it gives in a batch.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bytes.h"
#include "depthwise.h"
#include "image_layout.h"
#include "op.h"
#include "product.h"

namespace membound {
namespace {

constexpr size_t kChunks = 24;  // vectors of pixels that stay near while rows of the weight pass by
constexpr size_t kRangeParts = 8;
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();
constexpr double kBytesAtOnce = 4;  // multiplications that take as long as one of floats

class ByteConv final : public Op {
 public:
  ByteConv(const Shape& input, const Shape& output, const Weight& weight, std::vector<float> bias, const Window& window,
           const Fused& fused, const Traits& traits)
      : bias_(std::move(bias)), window_(window), fused_(fused), kernels_(byte_kernels(traits)), rows_(weight.rows()),
        channels_(input[0]), height_(input[1]), width_(input[2]), out_h_(output[1]), out_w_(output[2]) {
    if (out_h_ == 1) window_.stride_h = 1;
    if (out_w_ == 1) window_.stride_w = 1;
    // The same on every instruction set: nothing is copied for the sake of whole lines.
    layout_ = plan_layout(window_, height_, width_, out_h_, out_w_, false, traits);
    layout_.channel_floats = divide_up(layout_.channel_floats, kLine) * kLine;
    if (quads() * layout_.channel_floats > kMostOffset)
      throw std::invalid_argument("a convolution of an image that is too large: padded, it must be below 2^31 values");
    offsets_ = window_offsets(layout_, window_, quads());
    pack(weight);
    bias_.resize(groups() * kByteRows, 0.0f);
  }

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    const size_t in = channels_ * height_ * width_, out = rows_ * out_h_ * out_w_;
    for (size_t n = 0; n < batch; ++n) run_image(inputs[0] + n * in, output + n * out, place);
  }

  Needs needs(size_t, const Traits& traits) const override {
    return {quads() * layout_.channel_floats + kLine, is_flat(traits) ? kByteRows * flat_step() : 0};
  }

  size_t table_bytes() const override {
    return packed_.size() + offsets_.size() * sizeof(int32_t) + sums_.size() * sizeof(int32_t) +
           (scales_.size() + bias_.size()) * sizeof(float);
  }

 private:
  size_t quads() const { return divide_up(channels_, kWordChannels); }
  size_t groups() const { return divide_up(rows_, kByteRows); }
  size_t depth() const { return offsets_.size(); }

  // Whether rows of the output follow one another as those of the image do.
  bool is_whole() const { return layout_.plane_w == out_w_ || out_h_ == 1; }
  // Whether what lies between rows is summed, too, and left out afterwards: where rows would leave many lanes unused.
  bool is_flat(const Traits& traits) const {
    const size_t width = static_cast<size_t>(traits.width);
    return !is_whole() && 4 * out_w_ < 3 * divide_up(out_w_, width) * width;
  }
  size_t flat_pixels() const { return (out_h_ - 1) * layout_.plane_w + out_w_; }
  size_t flat_step() const { return divide_up(flat_pixels(), kLine) * kLine; }

  void pack(const Weight& weight) {
    const size_t area = static_cast<size_t>(window_.kernel_h * window_.kernel_w);
    packed_.assign(groups() * depth() * kByteRows * kWordChannels, 0);
    scales_.assign(groups() * kByteRows, 0.0f);
    sums_.assign(groups() * kByteRows, 0);
    std::vector<float> room(DenseRows::room(weight));
    DenseRows values(weight, scalar_net_kernels(), room.data());
    for (size_t row = 0; row < rows_; ++row) {
      const float* from = values(row);
      float largest = 0.0f;
      for (size_t column = 0; column < weight.columns(); ++column)
        largest = std::isfinite(from[column]) ? std::max(largest, std::fabs(from[column])) : kNoNumber;
      scales_[row] = largest / 127.0f;
      const float inverse = largest > 1e-30f ? 127.0f / largest : 0.0f;
      int8_t* to = packed_.data() + row / kByteRows * depth() * kByteRows * kWordChannels + row % kByteRows * kWordChannels;
      for (size_t column = 0; column < weight.columns(); ++column) {
        const size_t channel = column / area, word = channel / kWordChannels * area + column % area;
        const auto byte = static_cast<int8_t>(inverse > 0.0f ? std::nearbyint(from[column] * inverse) : 0.0f);
        to[word * kByteRows * kWordChannels + channel % kWordChannels] = byte;
        sums_[row] += byte;
      }
    }
  }

  void run_image(const float* x, float* y, const Workplace& place) const {
    const size_t floats = channels_ * height_ * width_, pixels = out_h_ * out_w_;
    const Range range = range_of(x, floats, place);
    if (!range.finite || !std::isfinite(range.high - range.low)) {
      std::fill_n(y, rows_ * pixels, kNoNumber);
      return;
    }
    const Quantized how = quantized(range);
    auto* words = reinterpret_cast<uint32_t*>(place.shared);
    place.each_share(quads(), 1, static_cast<double>(floats), [&](const Share& share, int) {
      for (size_t quad = share.first_map; quad < share.last_map; ++quad)
        lay_out_quad(x, quad, how, words + quad * layout_.channel_floats, place.kernels);
    });
    const Sums limits = limits_of(fused_.activation, fused_.first, fused_.second);
    const bool flat = is_flat(place.kernels.traits), unfinished = !limits.limited && fused_.activation != Activation::none;
    const size_t width = kernels_.width;
    const size_t vectors = flat ? divide_up(flat_pixels(), width) : is_whole() ? divide_up(pixels, width) : out_h_ * divide_up(out_w_, width);
    const size_t blocks = flat ? 1 : divide_up(vectors, kChunks);
    const double operations = static_cast<double>(rows_ * depth() * kWordChannels * pixels) / kBytesAtOnce;
    const int threads = place.worth(operations);
    const size_t parts = threads == 1 ? 1 : std::min(groups(), divide_up(4 * static_cast<size_t>(threads), blocks));
    place.each(blocks * parts, operations, [&](size_t task, int worker) {
      const size_t block = task / parts, part = task % parts;
      Part work{block * vectors / blocks, (block + 1) * vectors / blocks, groups() * part / parts, groups() * (part + 1) / parts};
      ByteFinish finish{nullptr, nullptr, nullptr, how.zero - kernels_.shift, how.scale, limits};
      multiply(words, work, finish, unfinished, flat, y, place, worker);
    });
  }

  Range range_of(const float* x, size_t floats, const Workplace& place) const {
    Range found[kRangeParts];
    const size_t parts = place.worth(static_cast<double>(floats)) > 1 ? kRangeParts : 1;
    place.each(parts, static_cast<double>(floats), [&](size_t part, int) {
      const size_t first = floats * part / parts;
      kernels_.range(x + first, floats * (part + 1) / parts - first, found[part]);
    });
    for (size_t part = 1; part < parts; ++part)
      found[0] = {std::min(found[0].low, found[part].low), std::max(found[0].high, found[part].high),
                  found[0].finite && found[part].finite};
    return found[0];
  }

  // Four channels, padded with what stands for 0, and split by strides.
  void lay_out_quad(const float* x, size_t quad, const Quantized& how, uint32_t* to, const NetKernels& kernels) const {
    const size_t area = height_ * width_, channels = std::min(kWordChannels, channels_ - quad * kWordChannels);
    const float* from = x + quad * kWordChannels * area;
    if (layout_.unchanged) return kernels_.to_words(from, area, channels, area, how, to);
    const uint32_t zero = 0x01010101u * static_cast<uint32_t>(static_cast<uint8_t>(how.zero - kernels_.shift));
    std::fill_n(to, layout_.channel_floats, zero);
    const size_t stride_h = static_cast<size_t>(window_.stride_h), stride_w = static_cast<size_t>(window_.stride_w);
    const size_t top = static_cast<size_t>(window_.pad_top), left = static_cast<size_t>(window_.pad_left);
    for (size_t i = 0; i < height_; ++i) {
      const size_t plane_h = (i + top) % stride_h, row = (i + top) / stride_h;
      if (plane_h >= layout_.planes_h || row >= layout_.plane_h) continue;
      uint32_t* planes = to + (plane_h * layout_.planes_w * layout_.plane_h + row) * layout_.plane_w;
      if (stride_w == 1) {
        if (left < layout_.plane_w)
          kernels_.to_words(from + i * width_, area, channels, std::min(width_, layout_.plane_w - left), how, planes + left);
        continue;
      }
      uint32_t words[kRow + kLine];
      for (size_t first = 0; first < width_; first += kRow) {
        const size_t here = std::min(kRow, width_ - first);
        kernels_.to_words(from + i * width_ + first, area, channels, here, how, words);
        for (size_t plane = 0; plane < layout_.planes_w; ++plane) {
          // The first pixel that is in this plane, and where.
          const size_t skipped = (plane + stride_w - (first + left) % stride_w) % stride_w, column = (first + skipped + left) / stride_w;
          if (skipped >= here || column >= layout_.plane_w) continue;
          const size_t count = std::min(divide_up(here - skipped, stride_w), layout_.plane_w - column);
          spread(words + skipped, stride_w, count, planes + plane * layout_.plane_h * layout_.plane_w + column, kernels);
        }
      }
    }
  }

  static void spread(const uint32_t* from, size_t stride, size_t count, uint32_t* to, const NetKernels& kernels) {
    if (stride == 2) return kernels.every_second(reinterpret_cast<const float*>(from), count, reinterpret_cast<float*>(to));
    for (size_t i = 0; i < count; ++i) to[i] = from[i * stride];
  }

  // Vectors of pixels [first, last), times groups of rows [first_group, last_group).
  struct Part {
    size_t first, last, first_group, last_group;
  };

  void multiply(const uint32_t* words, const Part& part, ByteFinish& finish, bool unfinished, bool flat, float* y,
                const Workplace& place, int worker) const {
    const size_t pixels = out_h_ * out_w_;
    for (size_t first = part.first; first < part.last; first += kChunks) {
      Chunk chunks[kChunks];
      const size_t count = std::min(kChunks, part.last - first);
      for (size_t i = 0; i < count; ++i) chunks[i] = chunk(first + i, flat);
      const size_t begin = chunks[0].to, end = chunks[count - 1].to + chunks[count - 1].count;
      for (size_t group = part.first_group; group < part.last_group; ++group) {
        const size_t row = group * kByteRows;
        const int rows = static_cast<int>(std::min(kByteRows, rows_ - row));
        float* out = flat ? place.room(worker) : y + row * pixels;
        const size_t step = flat ? flat_step() : pixels;
        finish.weight_sums = &sums_[row];
        finish.weight_scales = &scales_[row];
        finish.bias = &bias_[row];
        kernels_.multiply(packed_.data() + row * depth() * kWordChannels, depth(), offsets_.data(), words, chunks,
                          static_cast<int>(count), out, step, rows, finish);
        for (int r = 0; r < rows && unfinished; ++r)
          place.kernels.activate(fused_.activation, fused_.first, fused_.second, out + static_cast<size_t>(r) * step + begin, end - begin);
        if (!flat) continue;
        for (size_t r = 0; r < static_cast<size_t>(rows); ++r) copy_flat(out + r * step, begin, end, y + (row + r) * pixels);
      }
    }
  }

  Chunk chunk(size_t number, bool flat) const {
    const size_t width = kernels_.width;
    if (flat || is_whole()) {
      const size_t all = flat ? flat_pixels() : out_h_ * out_w_, at = number * width;
      return {at, at, std::min(width, all - at)};
    }
    const size_t each = divide_up(out_w_, width), row = number / each, column = number % each * width;
    return {row * layout_.plane_w + column, row * out_w_ + column, std::min(width, out_w_ - column)};
  }

  // Of sums [begin, end) with what lies between the rows of an image: without it.
  void copy_flat(const float* from, size_t begin, size_t end, float* to) const {
    for (size_t row = begin / layout_.plane_w; row < out_h_ && row * layout_.plane_w < end; ++row) {
      const size_t start = row * layout_.plane_w, first = std::max(begin, start), last = std::min(end, start + out_w_);
      if (first < last) std::copy(from + first, from + last, to + row * out_w_ + (first - start));
    }
  }

  static constexpr size_t kRow = 256;  // words of a row that is split by strides, at once

  std::vector<float> bias_;
  Window window_;
  Fused fused_;
  const ByteKernels& kernels_;
  size_t rows_, channels_, height_, width_, out_h_, out_w_;
  ImageLayout layout_;
  std::vector<int32_t> offsets_, sums_;
  std::vector<float> scales_;
  std::vector<int8_t> packed_;
};

}  // namespace

bool gains_by_bytes(const Shape& input, const Weight& weight, size_t groups) {
  constexpr double kLeastDensity = 0.12;  // below, what is left in floats takes less time
  return groups == 1 && input[0] >= kWordChannels - 1 && weight.columns() <= kMostByteColumns && weight.density() >= kLeastDensity;
}

std::unique_ptr<Op> make_byte_conv(const Shape& input, const Shape& output, const Weight& weight, std::vector<float> bias,
                                   const Window& window, const Fused& fused, const Traits& traits) {
  return std::make_unique<ByteConv>(input, output, weight, std::move(bias), window, fused, traits);
}

}  // namespace membound
