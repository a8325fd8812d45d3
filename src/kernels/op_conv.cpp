// Convolutions.
#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "bands.h"
#include "depthwise.h"
#include "image_layout.h"
#include "op.h"
#include "product.h"
#include "together.h"

namespace membound {
namespace {

constexpr size_t kRowsForCopy = 16;         // rows of a weight, each of which reads channels anew
constexpr size_t kLarge = 65536;            // floats of an image that push others out of the second cache
constexpr double kSecondCache = 131072;     // floats that a thread's second cache holds, with room to spare
constexpr double kLeastOfFloat = 20;        // multiplications for each float of an image and its result

class Conv final : public Op {
 public:
  Conv(const Shape& input, const Shape& output, Weight weight, std::vector<float> bias, const Window& window,
       size_t groups, const Fused& fused, const Traits& traits)
      : weight_(std::move(weight)), bias_(std::move(bias)), window_(window), groups_(groups), fused_(fused),
        channels_(input[0]), height_(input[1]), width_(input[2]), out_h_(output[1]), out_w_(output[2]) {
    if (out_h_ == 1) window_.stride_h = 1;  // no step is taken: planes for it would only take memory
    if (out_w_ == 1) window_.stride_w = 1;
    // Few rows a channel, of several channels: others are cut by the weight's rows.
    by_channel_ = groups_ == channels_ && groups_ > 1 && weight_.rows() / groups_ < 8;
    layout_ = layout_for(traits);
    if (traits.copies_to_lines && !by_channel_)
      for (const bool parted : {false, true}) together_[parted].emplace(weight_, window_, maps_of_group(), groups_, parted, traits);
    if (channels_ * layout_.channel_floats > kMostOffset)
      throw std::invalid_argument("a convolution of an image that is too large: padded, it must be below 2^31 values");
    offsets_ = window_offsets(layout_, window_, channels_ / groups_);
    if (!by_channel_) ready_.emplace(*this, traits);
  }

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    if (by_channel_ && is_read_in_place(window_, place.kernels.traits)) return run_in_place(inputs[0], output, batch, place);
    if (by_channel_) return run_by_channel(inputs[0], output, batch, place);
    const float* x = inputs[0];
    if (place.roomy && ready_->banded) return run_banded(x, output, batch, place);
    place.roomy && ready_->bands.rows > 0 ? run_bands(x, output, batch, place) : run_each(x, output, batch, place);
  }

  Needs needs(size_t, const Traits& traits) const override { return needs_of_each(traits); }
  Needs likes(size_t batch, const Traits& traits) const override {
    const ImageLayout layout = layout_for(traits);
    const Bands bands = bands_for(traits);
    if (bands.rows > 0)
      return {whole_lines(weight_.columns()) + bands.floats(channels_),
              product_room(weight_, image(bands, bands.rows, offsets_.data()), weight_.rows() / groups_, traits)};
    if (by_channel_ || !may_be_decoded(weight_, image(layout), weight_.rows() / groups_, traits))
      return needs(batch, traits);
    if (const Image banded = banded_image(traits); banded.banded)
      return {whole_lines(weight_.columns()), room_of_banded(banded, traits) + band_floats(banded)};
    return {layout.in_place ? 0 : channels_ * layout.channel_floats + kSlack,
            product_room(weight_, image(layout, true), weight_.rows() / groups_, traits)};
  }
  // Dense products are as fast as they are, and sum in another order.
  bool takes_together(const Traits& traits) const override {
    if (!traits.copies_to_lines) return false;
    if (is_depthwise()) return true;
    return !by_channel_ && is_sparse(traits) && together(false, traits).works();
  }
  bool takes_parted() const override { return true; }
  // Images side by side come from far away: that must be worth their way.
  double gains_together() const override {
    if (is_depthwise() || window_.kernel_h * window_.kernel_w == 1) return 0.0;  // points are soon read
    const double operations = weight_.density() * static_cast<double>(weight_.rows() * weight_.columns() * out_h_ * out_w_);
    return operations >= kLeastOfFloat * static_cast<double>(floats()) ? operations : 0.0;
  }
  // An image, its result and the weight stay in one core's second cache.
  bool is_near() const override {
    return static_cast<double>(floats()) + weight_.density() * static_cast<double>(weight_.rows() * weight_.columns()) <= kSecondCache;
  }
  Needs needs_together(bool parted, const Traits& traits) const override {
    return is_depthwise() ? TogetherDepthwise(weight_, window_, maps(), traits).needs() : together(parted, traits).needs();
  }
  void run_together(const Beside* inputs, float* output, const Workplace& place) const override {
    const Traits& traits = place.kernels.traits;
    if (is_depthwise()) TogetherDepthwise(weight_, window_, maps(), traits).run(inputs[0], finish(), output, place);
    else together(!inputs[0].together, traits).run(inputs[0], finish(), output, place);
  }
  size_t table_bytes() const override {
    return weight_.table_bytes() + bias_.size() * sizeof(float) + offsets_.size() * sizeof(int32_t);
  }

 private:
  // Found once, for the instruction set that runs: in a small network, to find them takes as long as some layers.
  struct Planned {
    Planned(const Conv& conv, const Image& image, const Traits& traits)
        : image(image), plans(conv.weight_, image, conv.weight_.rows() / conv.groups_, traits) {}
    Image image;
    Product::Plans plans;
  };
  struct Ready {
    Ready(const Conv& conv, const Traits& traits)
        : bands(conv.bands_for(traits)), needed(conv, conv.image(conv.layout_), traits), liked(conv, conv.image(conv.layout_, true), traits) {
      const Image image = conv.banded_image(traits);
      if (!image.banded) return;
      banded.emplace(conv, image, traits);
      banded_room = conv.room_of_banded(image, traits);
    }
    Bands bands;
    Planned needed, liked;  // with the room that is needed; with what is liked,
    std::optional<Planned> banded;  // and laid out tile by tile, if it is
    size_t banded_room = 0;
  };

  Product product(const Planned& planned, const Image& image, const Workplace& place) const {
    return {weight_, image, weight_.rows() / groups_, finish(), place.kernels, planned.plans};
  }

  void run_each(const float* input, float* output, size_t batch, const Workplace& place) const {
    const size_t rows = weight_.rows() / groups_, pixels = out_h_ * out_w_;
    const Planned& planned = place.roomy ? ready_->liked : ready_->needed;
    const Product product = this->product(planned, planned.image, place);
    const double operations = weight_.density() * static_cast<double>(weight_.rows() * weight_.columns() * pixels);
    const size_t at_once = layout_.in_place ? batch : 1;
    const int threads = place.worth(static_cast<double>(at_once) * operations);
    const bool by_rows = batch == 1 && groups_ == 1 && are_cut_by_rows(out_h_, threads, place.kernels.traits);
    const Tasks tasks = by_rows ? product.cut_by_rows(threads) : product.cut(groups_ * at_once, threads);
    const size_t each_image = groups_ * tasks.count();
    const auto multiply_task = [&](const float* x, float* y, size_t task, int worker) {
      const size_t group = task / tasks.count();
      product.multiply(x + group * (channels_ / groups_) * layout_.channel_floats, group * rows, y + group * rows * pixels,
                       pixels, tasks, task % tasks.count(), place.room(worker));
    };
    const size_t in_floats = channels_ * height_ * width_, out_floats = weight_.rows() * pixels;
    if (layout_.in_place) {  // nothing is laid out for one image after another: threads meet once for all of them
      place.each(batch * each_image, static_cast<double>(batch) * operations, [&](size_t task, int worker) {
        const size_t n = task / each_image;
        multiply_task(input + n * in_floats, output + n * out_floats, task % each_image, worker);
      });
      return;
    }
    clear_slack(place.shared + channels_ * layout_.channel_floats);
    for (size_t n = 0; n < batch; ++n) {
      const float* x = input + n * in_floats;
      // By rows, as many threads as multiply: each then reads what it wrote.
      const double floats = static_cast<double>(channels_ * layout_.channel_floats);
      place.each_share(channels_, by_rows ? layout_.plane_h : 1, by_rows ? operations : floats, [&](const Share& share, int) {
        const size_t first = by_rows ? share.first_row : 0, last = by_rows ? share.last_row : layout_.plane_h;
        for (size_t channel = share.first_map; channel < share.last_map; ++channel)
          lay_out(layout_, window_, x + channel * height_ * width_, height_, width_, first, last, true,
                  place.shared + channel * layout_.channel_floats + first * layout_.plane_w, place.kernels);
      });
      place.each(each_image, operations, [&](size_t task, int worker) {
        multiply_task(place.shared, output + n * out_floats, task, worker);
      });
    }
  }

  // So fine that the last thread to finish is not late.
  static size_t parts_for(int threads) { return threads > 1 ? 4 * static_cast<size_t>(threads) : 1; }
  size_t parts_of(double floats, const Workplace& place) const { return std::min(channels_, parts_for(place.worth(floats))); }

  bool is_sparse(const Traits& traits) const { return is_direct(weight_, image(layout_for(traits)), weight_.rows() / groups_, traits); }


  Needs needs_of_each(const Traits& traits) const {
    if (by_channel_ && is_read_in_place(window_, traits)) return {0, DenseRows::room(weight_)};
    const ImageLayout layout = layout_for(traits);
    const size_t multiplying = product_room(weight_, image(layout), weight_.rows() / groups_, traits);
    if (layout.in_place) return {0, multiplying};
    if (by_channel_) return {0, multiplying + layout.channel_floats + kSlack};
    return {channels_ * layout.channel_floats + kSlack, multiplying};
  }

  ImageLayout layout_for(const Traits& traits) const {
    const bool read_again = weight_.rows() / groups_ >= kRowsForCopy && weight_.density() < static_cast<double>(traits.direct_speed);
    return plan_layout(window_, height_, width_, out_h_, out_w_, read_again, traits);
  }

  Image image(const ImageLayout& layout, bool decoded = false) const {
    Image image;
    image.offsets = offsets_.data();
    image.channel_columns = static_cast<size_t>(window_.kernel_h * window_.kernel_w);
    image.channel_floats = layout.channel_floats;
    image.row_step = layout.plane_w;
    image.rows = out_h_;
    image.pixels = out_w_;
    image.decoded = decoded;
    return image;
  }

  // Of a large image, what a tile of outputs reads is laid out by the worker that sums it, when its turn comes: all of it at
  // once would push inputs and outputs out of the second cache, and threads would wait for it.
  Image banded_image(const Traits& traits) const {
    if (traits.width <= 4 || by_channel_) return {};  // short vectors gain nothing by it
    const ImageLayout layout = layout_for(traits);
    if (layout.unchanged || layout.planes_h * layout.planes_w > 1 || channels_ * layout.channel_floats < kLarge) return {};
    Image banded = image(layout, true);
    const size_t rows = banded_rows(weight_, banded, weight_.rows() / groups_, traits);
    if (rows == 0) return {};
    banded.banded = true;
    banded.channel_floats = band_rows(rows) * layout.plane_w + layout.shared_zeros;
    return banded;
  }
  // Of the image, that so many rows of outputs read.
  size_t band_rows(size_t rows) const { return rows + static_cast<size_t>(window_.dilation_h * (window_.kernel_h - 1)); }
  size_t band_floats(const Image& banded) const { return channels_ / groups_ * banded.channel_floats + kSlack; }
  size_t room_of_banded(const Image& banded, const Traits& traits) const {
    return whole_lines(product_room(weight_, banded, weight_.rows() / groups_, traits));
  }

  void run_banded(const float* input, float* output, size_t batch, const Workplace& place) const {
    const size_t rows = weight_.rows() / groups_, pixels = out_h_ * out_w_, channels = channels_ / groups_;
    const Image& banded = ready_->banded->image;
    auto* offsets = reinterpret_cast<int32_t*>(place.shared);  // in a band, channels follow each other sooner
    for (size_t channel = 0; channel < channels; ++channel)
      for (size_t tap = 0; tap < banded.channel_columns; ++tap)
        offsets[channel * banded.channel_columns + tap] = offsets_[tap] + static_cast<int32_t>(channel * banded.channel_floats);
    Image image = banded;
    image.offsets = offsets;
    const Product product = this->product(*ready_->banded, image, place);
    const double operations = weight_.density() * static_cast<double>(batch * weight_.rows() * weight_.columns() * pixels);
    const Tasks tasks = product.cut_into_tiles(batch * groups_, place.worth(operations));
    const size_t room = ready_->banded_room;
    place.each(batch * groups_ * tasks.count(), operations, [&](size_t task, int worker) {
      const size_t image_group = task / tasks.count(), group = image_group % groups_;
      const float* x = input + image_group * channels * height_ * width_;
      float* band = place.room(worker) + room;
      clear_slack(band + channels * banded.channel_floats);
      const LayOut lay_out_tile = [&](size_t first, size_t here) {
        const size_t last = std::min(first + band_rows(here), layout_.plane_h);
        for (size_t channel = 0; channel < channels; ++channel) {
          float* to = band + channel * banded.channel_floats;
          lay_out(layout_, window_, x + channel * height_ * width_, height_, width_, first, last, true, to, place.kernels);
          std::fill_n(to + (last - first) * layout_.plane_w, layout_.shared_zeros, 0.0f);
        }
        return band;
      };
      product.multiply(lay_out_tile, group * rows, output + image_group * rows * pixels, pixels, tasks, task % tasks.count(),
                       place.room(worker));
    });
  }

  Bands bands_for(const Traits& traits) const {
    const Image plain = image(layout_for(traits));
    const size_t rows = weight_.rows() / groups_, length = (out_h_ - 1) * plain.row_step + out_w_;
    const size_t vectors = divide_up(length, static_cast<size_t>(traits.width));
    if (by_channel_ || !is_direct(weight_, plain, rows, traits)) return {};
    const double reads = weight_.density() * static_cast<double>(rows) * window_.kernel_h;
    return plan_bands(window_, channels_ / groups_, out_h_, out_w_, vectors, reads, traits);
  }

  Image image(const Bands& bands, size_t rows, const int32_t* offsets) const {
    Image image;
    image.offsets = offsets;
    image.channel_columns = static_cast<size_t>(window_.kernel_h * window_.kernel_w);
    image.channel_floats = bands.channel_floats;
    image.row_step = static_cast<size_t>(window_.stride_h) * bands.pitch;
    image.rows = rows;
    image.pixels = out_w_;
    image.by_lines = true;
    return image;
  }

  size_t floats() const { return channels_ * height_ * width_ + weight_.rows() * out_h_ * out_w_; }
  // Found once for the instruction set that runs: to find the best tiles takes microseconds, and plans ask again and again.
  TogetherProduct together(bool parted, const Traits& traits) const {
    const std::optional<TogetherProduct>& known = together_[parted];
    return known && known->is_for(traits) ? *known : TogetherProduct(weight_, window_, maps_of_group(), groups_, parted, traits);
  }
  Maps maps() const { return {channels_, height_, width_, out_h_, out_w_}; }
  Maps maps_of_group() const { return {channels_ / groups_, height_, width_, out_h_, out_w_}; }
  bool is_depthwise() const { return groups_ == channels_ && weight_.rows() == groups_ && groups_ > 1; }

  // Band after band of the outputs.
  void run_bands(const float* x, float* y, size_t batch, const Workplace& place) const {
    const Bands& bands = ready_->bands;
    const size_t rows = weight_.rows() / groups_, pixels = out_h_ * out_w_, in = height_ * width_;
    auto* offsets = reinterpret_cast<int32_t*>(place.shared);
    float* laid_out = place.shared + whole_lines(weight_.columns());
    place_columns(bands, window_, weight_.columns(), offsets);
    const double operations = weight_.density() * static_cast<double>(weight_.rows() * weight_.columns() * out_w_);
    const size_t parts = parts_of(static_cast<double>(bands.floats(channels_)), place);
    for (size_t n = 0; n < batch; ++n, x += channels_ * in, y += weight_.rows() * pixels)
      for (size_t first = 0; first < out_h_; first += bands.rows) {
        place.each(parts, static_cast<double>(bands.floats(channels_)), [&](size_t part, int) {
          for (size_t channel = channels_ * part / parts; channel < channels_ * (part + 1) / parts; ++channel)
            lay_out_band(bands, window_, x + channel * in, height_, width_, first, laid_out + bands.floats(channel),
                         place.kernels);
        });
        const size_t here = std::min(bands.rows, out_h_ - first);
        const Product product(weight_, image(bands, here, offsets), rows, finish(), place.kernels);
        const Tasks tasks = product.cut(groups_, place.worth(operations * static_cast<double>(here)));
        place.each(groups_ * tasks.count(), operations * static_cast<double>(here), [&](size_t task, int worker) {
          const size_t group = task / tasks.count();
          product.multiply(laid_out + bands.floats(group * (channels_ / groups_)), group * rows,
                           y + group * rows * pixels + first * out_w_, pixels, tasks, task % tasks.count(),
                           place.room(worker));
        });
      }
  }

  // Depthwise, by kernels that take a channel as it is.
  void run_in_place(const float* x, float* y, size_t batch, const Workplace& place) const {
    const size_t rows = weight_.rows(), each = rows / groups_, in = height_ * width_, out = out_h_ * out_w_;
    const size_t all = batch * rows;
    const double operations = static_cast<double>(all * (weight_.columns() * out + in));
    const int h = static_cast<int>(height_), w = static_cast<int>(width_);
    const Sums limits = limits_of(fused_.activation, fused_.first, fused_.second);
    const bool small = place.kernels.depthwise_small && each == 1 && is_small(window_, height_, width_, out_h_, out_w_);
    const bool unfinished = !limits.limited && fused_.activation != Activation::none;
    const bool whole = batch > 1 || small;  // maps
    place.each_share(all, whole ? 1 : out_h_, operations, [&](const Share& share, int worker) {
      Sums sums = limits;
      DenseRows taps(weight_, place.kernels, place.room(worker));
      size_t at_once = 0;
      for (size_t i = share.first_map; i < share.last_map && small; i += at_once) {
        const float* kernel = taps(i % rows);
        at_once = std::min(taps.left(i % rows), share.last_map - i);
        sums.start = &bias_[i % rows];
        place.kernels.depthwise_small(x + i * in, at_once, h, w, kernel, y + i * out, window_, sums);
        if (unfinished) place.kernels.activate(fused_.activation, fused_.first, fused_.second, y + i * out, at_once * out);
      }
      const size_t first = whole ? 0 : share.first_row, high = whole ? out_h_ : share.last_row - first;
      const Lower lower(window_, first, h);
      for (size_t i = share.first_map; i < share.last_map && !small; ++i) {
        sums.start = &bias_[i % rows];
        float* to = y + i * out + first * out_w_;
        place.kernels.depthwise(x + i / each * in + static_cast<size_t>(lower.above * w), h - lower.above, w, taps(i % rows), to,
                                static_cast<int>(high), static_cast<int>(out_w_), lower.window, sums);
        if (unfinished) place.kernels.activate(fused_.activation, fused_.first, fused_.second, to, high * out_w_);
      }
    });
  }

  // Depthwise: a channel is laid out by the one that needs it, where it stays near.
  void run_by_channel(const float* x, float* y, size_t batch, const Workplace& place) const {
    const size_t rows = weight_.rows() / groups_, pixels = out_h_ * out_w_, all = batch * channels_;
    const Product product(weight_, image(layout_), rows, finish(), place.kernels);
    const Tasks tasks = product.cut(all, 1);
    const double operations = static_cast<double>(all * (rows * weight_.columns() * pixels + layout_.channel_floats));
    const size_t parts = std::min(all, parts_for(place.worth(operations)));
    const size_t multiplying = product_room(weight_, image(layout_), rows, place.kernels.traits);
    place.each(parts, operations, [&](size_t part, int worker) {
      float* room = place.room(worker);
      float* laid_out = room + multiplying;
      if (!layout_.in_place) clear_slack(laid_out + layout_.channel_floats);
      const size_t first = all * part / parts;
      for (size_t i = first; i < all * (part + 1) / parts; ++i) {
        const float* channel = x + i * height_ * width_;
        if (!layout_.in_place)
          lay_out(layout_, window_, channel, height_, width_, 0, layout_.plane_h, i == first, laid_out, place.kernels);
        for (size_t task = 0; task < tasks.count(); ++task)
          product.multiply(layout_.in_place ? channel : laid_out, i % channels_ * rows, y + i * rows * pixels, pixels, tasks,
                           task, room);
      }
    });
  }

  Finish finish() const { return {bias_.data(), fused_.activation, fused_.first, fused_.second}; }

  Weight weight_;
  std::vector<float> bias_;
  std::vector<int32_t> offsets_;
  Window window_;
  size_t groups_;
  Fused fused_;
  size_t channels_, height_, width_, out_h_, out_w_;
  bool by_channel_;
  ImageLayout layout_;
  std::optional<Ready> ready_;
  std::optional<TogetherProduct> together_[2];  // of images side by side, and of parted ones
};

}  // namespace

std::unique_ptr<Op> make_conv(const Shape& input, const Shape& output, Weight weight, std::vector<float> bias,
                              const Window& window, size_t groups, const Fused& fused, const Traits& traits) {
  return std::make_unique<Conv>(input, output, std::move(weight), std::move(bias), window, groups, fused, traits);
}

}  // namespace membound
