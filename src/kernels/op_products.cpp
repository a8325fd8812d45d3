// Convolutions and linear layers.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "op.h"
#include "product.h"

namespace membound {
namespace {

constexpr size_t kMostOffset = 0x7fffffff;  // offsets into an image are 32-bit
constexpr size_t kRowsForCopy = 16;         // rows of a weight, each of which reads channels anew

size_t divide_up(size_t a, size_t b) { return (a + b - 1) / b; }

class Conv final : public Op {
 public:
  Conv(const Shape& input, const Shape& output, Weight weight, std::vector<float> bias, const Window& window,
       size_t groups, const Fused& fused, const NetKernels& kernels)
      : weight_(std::move(weight)), bias_(std::move(bias)), window_(window), groups_(groups), fused_(fused),
        channels_(input[0]), height_(input[1]), width_(input[2]), out_h_(output[1]), out_w_(output[2]) {
    if (out_h_ == 1) window_.stride_h = 1;  // no step is taken: planes for it would only take memory
    if (out_w_ == 1) window_.stride_w = 1;
    const size_t stride_h = static_cast<size_t>(window_.stride_h), stride_w = static_cast<size_t>(window_.stride_w);
    const size_t span_h = (out_h_ - 1) * stride_h + static_cast<size_t>(window.dilation_h * (window.kernel_h - 1)) + 1;
    const size_t span_w = (out_w_ - 1) * stride_w + static_cast<size_t>(window.dilation_w * (window.kernel_w - 1)) + 1;
    unchanged_ = window.pad_top == 0 && window.pad_left == 0 && stride_h == 1 && stride_w == 1 &&
                 span_h <= height_ && span_w <= width_;
    // Where a vector is a whole cache line, loads that are not aligned take two: what many rows of nonzeros read is copied.
    const bool read_again = window.kernel_h * window.kernel_w == 1 && weight_.rows() / groups_ >= kRowsForCopy &&
                            weight_.density() < static_cast<double>(kernels.direct_speed);
    const size_t line = kernels.width == kLine && read_again ? kLine : 1;
    in_place_ = unchanged_ && (height_ * width_ % line == 0 || height_ * width_ < line);
    // Few rows a channel, of several channels: others are cut by the weight's rows.
    by_channel_ = groups_ == channels_ && groups_ > 1 && weight_.rows() / groups_ < 8;
    plane_h_ = unchanged_ ? height_ : divide_up(span_h, stride_h);
    plane_w_ = unchanged_ ? width_ : divide_up(span_w, stride_w);
    // The zeros behind a row serve as those before the next one too: rows are shorter, and so is all the work.
    const size_t pad_left = static_cast<size_t>(window.pad_left);
    if (stride_h == 1 && stride_w == 1 && span_w > pad_left + width_)
      shared_zeros_ = std::min(pad_left, span_w - pad_left - width_);
    plane_w_ -= shared_zeros_;
    planes_h_ = std::min(stride_h, static_cast<size_t>(window.dilation_h * (window.kernel_h - 1)) + 1);
    planes_w_ = std::min(stride_w, static_cast<size_t>(window.dilation_w * (window.kernel_w - 1)) + 1);
    channel_floats_ = planes_h_ * planes_w_ * plane_h_ * plane_w_ + shared_zeros_;
    if (unchanged_ && !in_place_) channel_floats_ = divide_up(channel_floats_, line) * line;
    if (channels_ * channel_floats_ > kMostOffset)
      throw std::invalid_argument("a convolution of an image that is too large: padded, it must be below 2^31 values");
    make_offsets();
  }

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    if (by_channel_) return run_by_channel(inputs[0], output, batch, place);
    const size_t rows = weight_.rows() / groups_, pixels = out_h_ * out_w_;
    const Product product(weight_, image(), rows, finish(), place.kernels);
    const double operations = weight_.density() * static_cast<double>(weight_.rows() * weight_.columns() * pixels);
    const Tasks tasks = product.cut(groups_ * (in_place_ ? batch : 1), place.threads);
    const size_t each_image = groups_ * tasks.count();
    const auto multiply_task = [&](const float* x, float* y, size_t task, int worker) {
      const size_t group = task / tasks.count();
      product.multiply(x + group * (channels_ / groups_) * channel_floats_, group * rows, y + group * rows * pixels,
                       pixels, tasks, task % tasks.count(), place.room(worker));
    };
    const size_t in_floats = channels_ * height_ * width_, out_floats = weight_.rows() * pixels;
    if (in_place_) {  // nothing is laid out for one image after another: threads meet once for all of them
      place.each(batch * each_image, static_cast<double>(batch) * operations, [&](size_t task, int worker) {
        const size_t n = task / each_image;
        multiply_task(inputs[0] + n * in_floats, output + n * out_floats, task % each_image, worker);
      });
      return;
    }
    for (size_t n = 0; n < batch; ++n) {
      const float* x = inputs[0] + n * in_floats;
      const size_t parts = std::min(channels_, 4 * static_cast<size_t>(place.threads));
      place.each(parts, static_cast<double>(channels_ * channel_floats_), [&](size_t part, int) {
        for (size_t channel = channels_ * part / parts; channel < channels_ * (part + 1) / parts; ++channel)
          lay_out(x + channel * height_ * width_, place.shared + channel * channel_floats_, true, place.kernels);
      });
      place.each(each_image, operations, [&](size_t task, int worker) {
        multiply_task(place.shared, output + n * out_floats, task, worker);
      });
    }
  }

  size_t shared_floats(size_t) const override {
    return in_place_ || by_channel_ ? 0 : channels_ * channel_floats_ + kSlack;
  }
  size_t worker_floats(size_t, const NetKernels& kernels) const override {
    const size_t laid_out = !in_place_ && by_channel_ ? channel_floats_ + kSlack : 0;
    return product_room(weight_, image(), kernels) + laid_out;
  }
  size_t table_bytes() const override {
    return weight_.table_bytes() + bias_.capacity() * sizeof(float) + offsets_.capacity() * sizeof(int32_t);
  }

 private:
  Image image() const {
    Image image;
    image.offsets = offsets_.data();
    image.channel_columns = static_cast<size_t>(window_.kernel_h * window_.kernel_w);
    image.channel_floats = channel_floats_;
    image.row_step = plane_w_;
    image.rows = out_h_;
    image.pixels = out_w_;
    return image;
  }

  // Depthwise: a channel is laid out by the one that needs it, where it stays near.
  void run_by_channel(const float* x, float* y, size_t batch, const Workplace& place) const {
    const size_t rows = weight_.rows() / groups_, pixels = out_h_ * out_w_, all = batch * channels_;
    const Product product(weight_, image(), rows, finish(), place.kernels);
    const Tasks tasks = product.cut(all, 1);
    const size_t parts = std::min(all, (place.threads > 1 ? 4 : 1) * static_cast<size_t>(place.threads));
    const double operations = static_cast<double>(all * (rows * weight_.columns() * pixels + channel_floats_));
    const size_t multiplying = product_room(weight_, image(), place.kernels);
    place.each(parts, operations, [&](size_t part, int worker) {
      float* room = place.room(worker);
      float* laid_out = room + multiplying;
      const size_t first = all * part / parts;
      for (size_t i = first; i < all * (part + 1) / parts; ++i) {
        const float* channel = x + i * height_ * width_;
        if (!in_place_) lay_out(channel, laid_out, i == first, place.kernels);
        for (size_t task = 0; task < tasks.count(); ++task)
          product.multiply(in_place_ ? channel : laid_out, i % channels_ * rows, y + i * rows * pixels, pixels, tasks,
                           task, room);
      }
    });
  }

  Finish finish() const { return {bias_.data(), fused_.activation, fused_.first, fused_.second}; }

  // Where each column of the weight reads: its channel, and within it the plane that its stride falls on.
  void make_offsets() {
    const size_t stride_h = static_cast<size_t>(window_.stride_h), stride_w = static_cast<size_t>(window_.stride_w);
    offsets_.reserve(weight_.columns());
    for (size_t channel = 0; channel < channels_ / groups_; ++channel)
      for (size_t i = 0; i < static_cast<size_t>(window_.kernel_h); ++i)
        for (size_t j = 0; j < static_cast<size_t>(window_.kernel_w); ++j) {
          const size_t h = i * static_cast<size_t>(window_.dilation_h), w = j * static_cast<size_t>(window_.dilation_w);
          const size_t plane = (h % stride_h) * planes_w_ + w % stride_w;
          offsets_.push_back(static_cast<int32_t>(channel * channel_floats_ + plane * plane_h_ * plane_w_ +
                                                  h / stride_h * plane_w_ + w / stride_w));
        }
  }

  // One channel padded, and split into planes of the pixels that are one step of the stride apart. Where another channel
  // was laid out before, the zeros around the pixels are there.
  void lay_out(const float* from, float* out, bool with_zeros, const NetKernels& kernels) const {
    if (unchanged_) {
      std::memcpy(out, from, height_ * width_ * sizeof(float));
      return;
    }
    // The first and the last of a plane's pixels, down or across, that lie in the image: its pixel i is the image's pixel
    // i * stride + shift.
    const auto inside = [](long shift, long stride, long size, size_t plane) {
      const long all = static_cast<long>(plane);
      const long first = std::min(all, shift >= 0 ? 0 : (-shift + stride - 1) / stride);
      return std::pair(first, std::max(first, std::min(all, size > shift ? (size - shift + stride - 1) / stride : 0)));
    };
    const long stride_h = window_.stride_h, stride_w = window_.stride_w;
    const long high = static_cast<long>(height_), wide = static_cast<long>(width_), plane_w = static_cast<long>(plane_w_);
    for (long ph = 0; ph < static_cast<long>(planes_h_); ++ph)
      for (long pw = 0; pw < static_cast<long>(planes_w_); ++pw, out += plane_h_ * plane_w_) {
        const long down = ph - window_.pad_top, across = pw - window_.pad_left;
        const auto [top, bottom] = inside(down, stride_h, high, plane_h_);
        const auto [left, right] = inside(across, stride_w, wide, plane_w_);
        if (with_zeros) {
          std::fill(out, out + top * plane_w, 0.0f);
          std::fill(out + bottom * plane_w, out + plane_h_ * plane_w_, 0.0f);
          for (long i = top; i < bottom; ++i) {
            std::fill(out + i * plane_w, out + i * plane_w + left, 0.0f);
            std::fill(out + i * plane_w + right, out + (i + 1) * plane_w, 0.0f);
          }
        }
        if (top == bottom || left == right) continue;
        const float* row = from + (top * stride_h + down) * wide + left * stride_w + across;
        float* to = out + top * plane_w + left;
        const size_t rows = static_cast<size_t>(bottom - top), n = static_cast<size_t>(right - left);
        if (stride_w == 1) {
          kernels.copy_rows(row, static_cast<size_t>(stride_h * wide), to, plane_w_, rows, n);
          continue;
        }
        for (size_t i = 0; i < rows; ++i, row += stride_h * wide, to += plane_w) {
          if (stride_w == 2) {
            kernels.every_second(row, n, to);
          } else {
            for (size_t j = 0; j < n; ++j) to[j] = row[static_cast<long>(j) * stride_w];
          }
        }
      }
    if (with_zeros) std::fill(out, out + shared_zeros_, 0.0f);
  }

  Weight weight_;
  std::vector<float> bias_;
  std::vector<int32_t> offsets_;
  Window window_;
  size_t groups_;
  Fused fused_;
  size_t channels_, height_, width_, out_h_, out_w_;
  bool unchanged_, in_place_, by_channel_;
  size_t planes_h_, planes_w_, plane_h_, plane_w_, channel_floats_;
  size_t shared_zeros_ = 0;  // behind the last row, where no next one begins with them
};

class Linear final : public Op {
 public:
  Linear(size_t vectors, Weight weight, std::vector<float> bias, const Fused& fused)
      : vectors_(vectors), weight_(std::move(weight)), bias_(std::move(bias)), fused_(fused) {}

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    const size_t vectors = vectors_ * batch;
    if (as_image(vectors, place.kernels)) {
      run_as_image(inputs[0], output, vectors, place);
    } else {
      for (size_t n = 0; n < vectors; ++n)
        run_vector(inputs[0] + n * weight_.columns(), output + n * weight_.rows(), place);
    }
  }

  size_t shared_floats(size_t batch) const override {
    const size_t vectors = vectors_ * batch;
    return vectors < 2 ? 0 : vectors * (weight_.columns() + weight_.rows()) + 2 * kSlack;
  }
  size_t worker_floats(size_t batch, const NetKernels& kernels) const override {
    const size_t vectors = vectors_ * batch;
    return std::max(vectors < 2 ? 0 : product_room(weight_, image(vectors), kernels), 2 * kChunk);
  }
  size_t table_bytes() const override { return weight_.table_bytes() + bias_.capacity() * sizeof(float); }
  bool gains_by_batch() const override { return true; }  // the weight is read once for all

 private:
  static constexpr size_t kChunk = 1024;

  // Enough vectors to fill a register are treated as the pixels of an image.
  bool as_image(size_t vectors, const NetKernels& kernels) const {
    return vectors >= std::max<size_t>(2, static_cast<size_t>(kernels.width) / 2) &&
           vectors * weight_.columns() <= kMostOffset;
  }

  static Image image(size_t vectors) {
    Image image;
    image.column_step = image.channel_floats = image.row_step = image.pixels = vectors;
    return image;
  }

  void run_as_image(const float* x, float* y, size_t vectors, const Workplace& place) const {
    const size_t in = weight_.columns(), out = weight_.rows();
    float* across = place.shared;
    float* products = place.shared + vectors * in + kSlack;
    const size_t blocks = divide_up(in, 64);
    place.each(blocks, static_cast<double>(4 * vectors * in), [&](size_t block, int) {
      for (size_t n = 0; n < vectors; ++n)
        for (size_t i = block * 64; i < std::min(in, (block + 1) * 64); ++i) across[i * vectors + n] = x[n * in + i];
    });
    const Finish finish{bias_.data(), fused_.activation, fused_.first, fused_.second};
    const Product product(weight_, image(vectors), out, finish, place.kernels);
    const Tasks tasks = product.cut(1, place.threads);
    place.each(tasks.count(), weight_.density() * static_cast<double>(in * out * vectors), [&](size_t task, int worker) {
      product.multiply(across, 0, products, vectors, tasks, task, place.room(worker));
    });
    for (size_t n = 0; n < vectors; ++n)
      for (size_t i = 0; i < out; ++i) y[n * out + i] = products[i * vectors + n];
  }

  void run_vector(const float* x, float* y, const Workplace& place) const {
    const size_t rows = weight_.rows();
    const size_t tasks = std::max<size_t>(1, std::min<size_t>(rows / 4, 8 * static_cast<size_t>(place.threads)));
    place.each(tasks, weight_.density() * static_cast<double>(rows * weight_.columns()), [&](size_t task, int worker) {
      const size_t begin = rows * task / tasks, end = rows * (task + 1) / tasks;
      dot_rows(x, y, begin, end, place.room(worker), place.kernels);
      for (size_t row = begin; row < end; ++row) y[row] += bias_[row];
      if (fused_.activation != Activation::none)
        place.kernels.activate(fused_.activation, fused_.first, fused_.second, y + begin, end - begin);
    });
  }

  void dot_rows(const float* x, float* y, size_t begin, size_t end, float* room, const NetKernels& kernels) const {
    if (begin == end) return;
    if (const float* rows = weight_.dense_row(begin)) {
      kernels.dots(rows, weight_.columns(), end - begin, x, weight_.columns(), y + begin);
      return;
    }
    const bool dense = weight_.matrix().format == Format::dense;
    int32_t* columns = reinterpret_cast<int32_t*>(room);
    float* converted = room + kChunk;
    for (size_t row = begin; row < end; ++row) {
      const uint16_t* shorts;
      const float* values;
      size_t count;
      if (weight_.short_row(row, &shorts, &values, &count)) {
        y[row] = kernels.gather_dot16(shorts, values, count, x);
        continue;
      }
      const uint8_t* gaps;
      size_t column;
      if (weight_.gap_row(row, &gaps, &column, &values, &count)) {
        y[row] = kernels.gap_dot(gaps, column, values, count, x);
        continue;
      }
      if (const float* values = weight_.bit_row(row)) {
        const size_t columns = weight_.columns(), bytes = (weight_.rows() * columns + 7) / 8;
        const auto* bits = static_cast<const uint8_t*>(weight_.matrix().index);
        y[row] = kernels.bit_dot(bits, bytes, row * columns, columns, values, x);
        continue;
      }
      Weight::Cursor cursor = weight_.start(row);
      float all = 0.0f;
      for (size_t done = 0;;) {
        const auto entries = weight_.read(row, cursor, weight_.columns(), kChunk, columns, converted, kernels);
        if (entries.count == 0) break;
        float part;
        if (dense) {
          kernels.dots(entries.values, entries.count, 1, x + done, entries.count, &part);
        } else {
          part = kernels.gather_dot(columns, entries.values, entries.count, x);
        }
        all += part;
        done += entries.count;
      }
      y[row] = all;
    }
  }

  size_t vectors_;
  Weight weight_;
  std::vector<float> bias_;
  Fused fused_;
};

}  // namespace

std::unique_ptr<Op> make_conv(const Shape& input, const Shape& output, Weight weight, std::vector<float> bias,
                              const Window& window, size_t groups, const Fused& fused, const NetKernels& kernels) {
  return std::make_unique<Conv>(input, output, std::move(weight), std::move(bias), window, groups, fused, kernels);
}

std::unique_ptr<Op> make_linear(size_t vectors, Weight weight, std::vector<float> bias, const Fused& fused) {
  return std::make_unique<Linear>(vectors, std::move(weight), std::move(bias), fused);
}

}  // namespace membound
