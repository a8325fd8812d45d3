// Convolutions in 8 bits. The weight becomes bytes when it is loaded, with a scale for each of its rows; an image becomes bytes
// as it comes, with a scale of its own, so that nothing is calibrated before and an image alone gives what it gives in a batch.
// Where activations have a bound, such as ReLU6, that is the scale of all images, and they stay bytes from one layer to the next.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bytes.h"
#include "depthwise.h"
#include "image_layout.h"
#include "op.h"
#include "product.h"
#include "sparse_bytes.h"

namespace membound {
namespace {

constexpr size_t kChunks = 24;  // vectors of pixels that stay near while rows of the weight pass by
constexpr size_t kFlatStep = kChunks * kLine;  // floats of a row of them, on any CPU
constexpr size_t kRangeParts = 8;
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();
constexpr double kRowInWords = 6;  // dense ones that take as long as to begin and end a row of a sparse weight
constexpr double kLeastInBlock = 40;  // values of a row of a sparse weight
constexpr double kBytesAtOnce = 4;  // multiplications that take as long as one of floats

class ByteConv final : public Op {
 public:
  ByteConv(const Shape& input, const Shape& output, const Weight& weight, std::vector<float> bias, const Window& window,
           const Fused& fused, const ByteBounds& bounds, const Traits& traits)
      : window_(window), fused_(fused), bounds_(bounds), kernels_(byte_kernels(traits)), rows_(weight.rows()),
        channels_(input[0]), height_(input[1]), width_(input[2]), out_h_(output[1]), out_w_(output[2]) {
    if (out_h_ == 1) window_.stride_h = 1;
    if (out_w_ == 1) window_.stride_w = 1;
    made_.biases = std::move(bias);
    made_.biases.resize(groups() * kByteRows, 0.0f);
    // The same on every instruction set: nothing is copied for the sake of whole lines.
    layout_ = plan_layout(window_, height_, width_, out_h_, out_w_, false, traits);
    pack(weight, traits);
    read_in_place_ = bounds_.in > 0 && layout_.unchanged && (sparse_.empty() || layout_.channel_floats % kLine == 0);
    if (!read_in_place_) layout_.channel_floats = whole_lines(layout_.channel_floats);
    if (quads() * layout_.channel_floats > kMostOffset)
      throw std::invalid_argument("a convolution of an image that is too large: padded, it must be below 2^31 values");
    offsets_ = window_offsets(layout_, window_, quads());
    if (bounds_.out > 0) made_.make_bytes(quantized({0.0f, bounds_.out}));
  }

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    const size_t in = bounds_.in > 0 ? floats_of_bytes(channels_, height_ * width_) : channels_ * height_ * width_;
    const size_t out = bounds_.out > 0 ? floats_of_bytes(rows_, out_h_ * out_w_) : rows_ * out_h_ * out_w_;
    for (size_t n = 0; n < batch; ++n) run_image(inputs[0] + n * in, output + n * out, place);
  }

  Needs needs(size_t, const Traits& traits) const override {
    return {finish_floats() + (read_in_place_ ? 0 : quads() * layout_.channel_floats + kLine),
            is_flat(traits) ? kByteRows * kFlatStep : 0};
  }

  size_t table_bytes() const override {
    return packed_.size() + sparse_.bytes() + offsets_.size() * sizeof(int32_t) + made_.bytes();
  }

 private:
  size_t quads() const { return quads_of(channels_); }
  size_t groups() const { return divide_up(rows_, kByteRows); }
  size_t depth() const { return quads() * static_cast<size_t>(window_.kernel_h * window_.kernel_w); }

  size_t finish_floats() const { return whole_lines(2 * groups() * kByteRows); }  // (ByteFinish)
  // Whether rows of the output follow one another as those of the image do.
  bool is_whole() const { return layout_.plane_w == out_w_ || out_h_ == 1; }
  // Whether what lies between rows is summed, too, and left out afterwards: where rows would leave many lanes unused, and for
  // a sparse weight, whose strips have no end where a row has.
  bool is_flat(const Traits& traits) const {
    const size_t width = static_cast<size_t>(traits.width);
    return !is_whole() && (!sparse_.empty() || 4 * out_w_ < 3 * divide_up(out_w_, width) * width);
  }
  size_t flat_pixels() const { return (out_h_ - 1) * layout_.plane_w + out_w_; }

  void pack(const Weight& weight, const Traits& traits) {
    const size_t area = static_cast<size_t>(window_.kernel_h * window_.kernel_w);
    made_.scales.assign(groups() * kByteRows, 0.0f);
    made_.sums.assign(groups() * kByteRows, 0);
    sparse_ = SparseBytes(weight.matrix().entries, rows_ * depth(), depth(), block(weight, traits));
    std::vector<float> room(DenseRows::room(weight));
    DenseRows values(weight, scalar_net_kernels(), room.data());
    std::vector<int8_t> words(depth() * kWordChannels);
    for (size_t row = 0; row < rows_; ++row) {
      const float* from = values(row);
      const ByteScale scale = byte_scale(from, weight.columns());
      made_.scales[row] = scale.scale;
      spoiled_ = spoiled_ || !std::isfinite(scale.scale) || !std::isfinite(made_.biases[row]);
      int32_t above = 0, below = 0;  // the sums of positive and of negative bytes
      for (size_t column = 0; column < weight.columns(); ++column) {
        const size_t channel = column / area, word = channel / kWordChannels * area + column % area;
        const int8_t byte = scale.byte(from[column]);
        words[word * kWordChannels + channel % kWordChannels] = byte;
        made_.sums[row] += byte;
        (byte > 0 ? above : below) += std::abs(byte);
      }
      made_.small = made_.small && 255 * std::max(above, below) <= kMostSmall;
      sparse_.add_row(words.data());
    }
    for (size_t row = rows_; row < groups() * kByteRows; ++row) sparse_.add_zeros();
    sparse_.finish();
    if (sooner_sparse(traits)) return;
    constexpr size_t kStep = kByteRows * kWordChannels;
    packed_.assign(groups() * depth() * kStep, 0);
    for (size_t row = 0; row < rows_; ++row)
      sparse_.copy_row(row, kStep, packed_.data() + row / kByteRows * depth() * kStep + row % kByteRows * kWordChannels);
    sparse_ = SparseBytes();
  }

  // Words of a row in a block of a sparse weight: of as many channels as stay in the nearest cache while a group of rows passes by,
  // if what a row has of them is worth the way of its sums to and fro.
  size_t block(const Weight& weight, const Traits& traits) const {
    if (traits.near_floats == 0) return depth();
    const size_t strip = std::min(kernels_.strip * kernels_.width, is_whole() ? out_h_ * out_w_ : flat_pixels());
    const auto reach = static_cast<size_t>((window_.kernel_h - 1) * window_.dilation_h / window_.stride_h);
    const size_t seen = layout_.planes_h * layout_.planes_w * (strip + reach * layout_.plane_w + kLine);
    const double row = static_cast<double>(weight.matrix().entries) / static_cast<double>(rows_);
    const auto most = std::max(static_cast<size_t>(row / kLeastInBlock), size_t{1});
    const size_t blocks = std::clamp(divide_up(quads() * seen, static_cast<size_t>(traits.near_floats)), size_t{1}, most);
    return divide_up(quads(), blocks) * (depth() / quads());
  }

  // Whether it is multiplied sooner, or about as soon and from less memory, without the words that are 0. Whole numbers have the
  // same sum whichever way it is: this may differ from one CPU to the next. Where a vector is a whole line of the cache, almost
  // every load of words takes two, and a sparse weight loads them for one row alone.
  bool sooner_sparse(const Traits& traits) const {
    const double times = traits.copies_to_lines ? 2.4 : 1.3;
    const double words = static_cast<double>(sparse_.words()) / static_cast<double>(rows_);
    return words * times + kRowInWords <= static_cast<double>(depth());
  }

  void run_image(const float* x, float* y, const Workplace& place) const {
    const size_t floats = channels_ * height_ * width_, pixels = out_h_ * out_w_;
    const auto* bytes = reinterpret_cast<const uint32_t*>(x);
    const Range range = bounds_.in > 0 ? Range{0.0f, bounds_.in, bytes[quads() * height_ * width_] == 0} : range_of(x, floats, place);
    const bool finite = range.finite && std::isfinite(range.high - range.low);
    if (bounds_.out > 0) reinterpret_cast<uint32_t*>(y)[quads_of(rows_) * pixels] = finite && !spoiled_ ? 0 : 1;
    if (!finite) {
      if (bounds_.out <= 0) std::fill_n(y, rows_ * pixels, kNoNumber);
      return;
    }
    const Quantized how = quantized(range);
    auto* starts = reinterpret_cast<int32_t*>(place.shared);
    float* scales = place.shared + groups() * kByteRows;
    made_.finish(how.zero - kernels_.shift, how.scale, starts, scales);
    auto* laid_out = reinterpret_cast<uint32_t*>(place.shared + finish_floats());
    if (!read_in_place_)
      place.each_share(quads(), 1, static_cast<double>(floats), [&](const Share& share, int) {
        for (size_t quad = share.first_map; quad < share.last_map; ++quad)
          lay_out_quad(x, quad, how, laid_out + quad * layout_.channel_floats, place.kernels);
      });
    const uint32_t* words = read_in_place_ ? bytes : laid_out;
    const Sums limits = limits_of(fused_.activation, fused_.first, fused_.second);
    const bool flat = is_flat(place.kernels.traits), unfinished = !limits.limited && fused_.activation != Activation::none;
    const size_t width = kernels_.width;
    const size_t vectors = flat ? divide_up(flat_pixels(), width) : is_whole() ? divide_up(pixels, width) : out_h_ * divide_up(out_w_, width);
    const size_t blocks = divide_up(vectors, at_once());
    const double operations = static_cast<double>(rows_ * depth() * kWordChannels * pixels) / kBytesAtOnce;
    const int threads = place.worth(operations);
    const size_t parts = threads == 1 ? 1 : std::min(groups(), divide_up(4 * static_cast<size_t>(threads), blocks));
    place.each(blocks * parts, operations, [&](size_t task, int worker) {
      const size_t block = task / parts, part = task % parts;
      Part work{block * vectors / blocks, (block + 1) * vectors / blocks, groups() * part / parts, groups() * (part + 1) / parts};
      const ByteFinish finish{starts, scales, made_.biases.data(), limits, made_.small};
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
    const float* floats = x + quad * kWordChannels * area;
    const auto* bytes = reinterpret_cast<const uint32_t*>(x) + quad * area;
    // Some of its pixels as words.
    const auto take = [&](size_t first, size_t count, uint32_t* out) {
      if (bounds_.in > 0) std::copy_n(bytes + first, count, out);
      else kernels_.to_words(floats + first, area, channels, count, how, out);
    };
    if (layout_.unchanged) return take(0, area, to);
    const uint32_t zero = 0x01010101u * static_cast<uint32_t>(static_cast<uint8_t>(how.zero - kernels_.shift));
    std::fill_n(to, layout_.channel_floats, zero);
    const size_t stride_h = static_cast<size_t>(window_.stride_h), stride_w = static_cast<size_t>(window_.stride_w);
    const size_t top = static_cast<size_t>(window_.pad_top), left = static_cast<size_t>(window_.pad_left);
    for (size_t i = 0; i < height_; ++i) {
      const size_t plane_h = (i + top) % stride_h, row = (i + top) / stride_h;
      if (plane_h >= layout_.planes_h || row >= layout_.plane_h) continue;
      uint32_t* planes = to + (plane_h * layout_.planes_w * layout_.plane_h + row) * layout_.plane_w;
      if (stride_w == 1) {
        if (left < layout_.plane_w) take(i * width_, std::min(width_, layout_.plane_w - left), planes + left);
        continue;
      }
      uint32_t words[kRow + kLine];
      for (size_t first = 0; first < width_; first += kRow) {
        const size_t here = std::min(kRow, width_ - first);
        take(i * width_ + first, here, words);
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

  // Vectors of pixels that stay near while rows of the weight pass by.
  size_t at_once() const { return sparse_.empty() ? kChunks : std::min(kChunks, kernels_.strip); }

  // Vectors of pixels [first, last), times groups of rows [first_group, last_group).
  struct Part {
    size_t first, last, first_group, last_group;
  };

  void multiply(const uint32_t* words, const Part& part, const ByteFinish& all, bool unfinished, bool flat, float* y,
                const Workplace& place, int worker) const {
    const size_t pixels = out_h_ * out_w_;
    for (size_t first = part.first; first < part.last; first += at_once()) {
      Chunk chunks[kChunks] = {};
      const size_t count = std::min(at_once(), part.last - first);
      for (size_t i = 0; i < count; ++i) chunks[i] = chunk(first + i, flat);
      const size_t begin = chunks[0].to, end = chunks[count - 1].to + chunks[count - 1].count;
      if (flat)  // to where there is room for these alone
        for (size_t i = 0; i < count; ++i) chunks[i].to -= begin;
      const size_t step = flat ? kFlatStep : pixels;
      for (size_t group = part.first_group; group < part.last_group; ++group) {
        const size_t row = group * kByteRows;
        const int rows = static_cast<int>(std::min(kByteRows, rows_ - row));
        const ByteFinish finish{all.starts + row, all.scales + row, all.biases + row, all.limits, all.small};
        // Of words, each is a pixel of four rows.
        const size_t first_map = bounds_.out > 0 ? row / kWordChannels : row;
        const size_t maps = bounds_.out > 0 ? quads_of(static_cast<size_t>(rows)) : static_cast<size_t>(rows);
        float* out = flat ? place.room(worker) : y + first_map * pixels;
        multiply_group(row, rows, words, chunks, count, end - begin, out, step, finish);
        float* made = out + chunks[0].to;
        for (size_t map = 0; map < maps && unfinished; ++map)
          place.kernels.activate(fused_.activation, fused_.first, fused_.second, made + map * step, end - begin);
        for (size_t map = 0; map < maps && flat; ++map) copy_flat(made + map * step, begin, end, y + (first_map + map) * pixels);
      }
    }
  }

  void multiply_group(size_t row, int rows, const uint32_t* words, const Chunk* chunks, size_t count, size_t n, float* out,
                      size_t step, const ByteFinish& finish) const {
    auto* bytes = bounds_.out > 0 ? reinterpret_cast<uint32_t*>(out) : nullptr;
    if (!sparse_.empty()) {
      const uint32_t* from = words + chunks[0].from;
      const size_t to = chunks[0].to;
      if (bytes) kernels_.multiply_sparse_to_words(sparse_.rows(row), offsets_.data(), from, n, bytes + to, step, rows, finish);
      else kernels_.multiply_sparse(sparse_.rows(row), offsets_.data(), from, n, out + to, step, rows, finish);
      return;
    }
    const int8_t* weight = packed_.data() + row * depth() * kWordChannels;
    const int all = static_cast<int>(count);
    if (bytes) kernels_.multiply_to_words(weight, depth(), offsets_.data(), words, chunks, all, bytes, step, rows, finish);
    else kernels_.multiply(weight, depth(), offsets_.data(), words, chunks, all, out, step, rows, finish);
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

  // Of sums [begin, end), the first of them at `from`, with what lies between the rows of an image: without it.
  void copy_flat(const float* from, size_t begin, size_t end, float* to) const {
    for (size_t row = begin / layout_.plane_w; row < out_h_ && row * layout_.plane_w < end; ++row) {
      const size_t start = row * layout_.plane_w, first = std::max(begin, start), last = std::min(end, start + out_w_);
      if (first < last) std::copy(from + (first - begin), from + (last - begin), to + row * out_w_ + (first - start));
    }
  }

  static constexpr size_t kRow = 256;  // words of a row that is split by strides, at once

  Window window_;
  Fused fused_;
  ByteBounds bounds_;
  const ByteKernels& kernels_;
  size_t rows_, channels_, height_, width_, out_h_, out_w_;
  ImageLayout layout_;
  std::vector<int32_t> offsets_;
  std::vector<int8_t> packed_;  // or, of few words that are not 0:
  SparseBytes sparse_;
  bool read_in_place_;
  ByteRows made_;
  bool spoiled_ = false;  // by a weight or a bias that is no number: as all that follows would be
};

}  // namespace

// Bytes against floats, zeros left out of both, as measured on AVX-512 with VNNI: below these densities, floats take as long or
// less. Windows read an image again and again while it is near, points but once, which takes floats longer.
bool gains_by_bytes(const Shape& input, const Shape& output, const Matrix& weight, size_t groups, bool stays_bytes) {
  constexpr double kLeastOfWindows = 0.04, kLeastOfPoints = 0.015;
  constexpr double kTurned = 9;  // multiplications in floats that take as long as to turn a float into a byte
  const double least = weight.columns > input[0] ? kLeastOfWindows : kLeastOfPoints;
  const double size = static_cast<double>(weight.rows * weight.columns), pixels = static_cast<double>(output[1] * output[2]);
  const double turned = stays_bytes ? 0.0 : kTurned * static_cast<double>(elements(input));
  return groups == 1 && input[0] >= kWordChannels - 1 && weight.columns <= kMostByteColumns &&
         static_cast<double>(weight.entries) * pixels >= least * size * pixels + turned;
}

std::unique_ptr<Op> make_byte_conv(const Shape& input, const Shape& output, const Weight& weight, std::vector<float> bias,
                                   const Window& window, const Fused& fused, const ByteBounds& bounds, const Traits& traits) {
  return std::make_unique<ByteConv>(input, output, weight, std::move(bias), window, fused, bounds, traits);
}

}  // namespace membound
