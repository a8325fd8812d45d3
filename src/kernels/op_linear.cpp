// Linear layers.
#include <algorithm>
#include <utility>

#include "op.h"
#include "product.h"
#include "slices.h"

namespace membound {
namespace {

class Linear final : public Op {
 public:
  Linear(size_t vectors, Weight weight, std::vector<float> bias, const Fused& fused, const Traits& traits)
      : vectors_(vectors), weight_(std::move(weight)), bias_(std::move(bias)), fused_(fused), sliced_(traits.slices),
        slices_(weight_, traits) {}

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    const size_t vectors = vectors_ * batch;
    if (as_image(vectors, place.kernels.traits)) {
      run_as_image(inputs[0], output, vectors, place);
    } else {
      for (size_t n = 0; n < vectors; ++n)
        run_vector(inputs[0] + n * weight_.columns(), output + n * weight_.rows(), place);
    }
  }

  Needs needs(size_t batch, const Traits& traits) const override {
    // More than these are taken one by one, which needs no room: but a smaller batch is not.
    const size_t vectors = std::min(vectors_ * batch, kMostOffset / std::max<size_t>(1, weight_.columns()));
    if (!as_image(vectors, traits)) return {};
    return {vectors * (weight_.columns() + weight_.rows()) + 2 * kSlack,
            product_room(weight_, image(vectors), weight_.rows(), traits)};
  }
  size_t table_bytes() const override { return weight_.table_bytes() + bias_.size() * sizeof(float); }
  size_t table_bytes_on(const Traits& traits) const override {
    return traits.slices == sliced_ ? slices_.bytes() : Slices(weight_, traits).bytes();
  }
  bool gains_by_batch(size_t, const Traits&) const override { return true; }  // the weight is read once for all

 private:
  // Enough vectors to fill a register are treated as the pixels of an image.
  bool as_image(size_t vectors, const Traits& traits) const {
    return vectors >= std::max<size_t>(2, static_cast<size_t>(traits.width) / 2) &&
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
    clear_slack(across + vectors * in);
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
    const size_t rows = weight_.rows(), unit = slices_.empty() ? 1 : Slices::kRows, units = divide_up(rows, unit);
    const size_t least = slices_.empty() ? 4 : 1;  // units of a task
    const size_t tasks = std::max<size_t>(1, std::min<size_t>(units / least, 8 * static_cast<size_t>(place.threads)));
    place.each(tasks, weight_.density() * static_cast<double>(rows * weight_.columns()), [&](size_t task, int) {
      const size_t begin = units * task / tasks * unit, end = std::min(rows, units * (task + 1) / tasks * unit);
      dot_rows(x, y, begin, end, place.kernels);
      for (size_t row = begin; row < end; ++row) y[row] += bias_[row];
      if (fused_.activation != Activation::none)
        place.kernels.activate(fused_.activation, fused_.first, fused_.second, y + begin, end - begin);
    });
  }

  void dot_rows(const float* x, float* y, size_t begin, size_t end, const NetKernels& kernels) const {
    if (begin == end) return;
    if (!slices_.empty()) {
      dot_slices(x, y, begin, end, kernels);
    } else if (weight_.matrix().format == Format::dense) {
      const size_t columns = weight_.columns();
      kernels.dots(weight_.values(), begin * columns, columns, end - begin, x, columns, y + begin);
    } else if (is_decoded()) {
      dot_decoded(x, y, begin, end, kernels);
    } else {
      for (size_t row = begin; row < end; ++row) y[row] = kernels.row_dot(weight_.row(row), x);
    }
    if (const float* scales = weight_.matrix().scales)
      for (size_t row = begin; row < end; ++row) y[row] *= scales[row];
  }

  void dot_slices(const float* x, float* y, size_t begin, size_t end, const NetKernels& kernels) const {
    for (size_t row = begin; row < end; row += Slices::kRows) {
      float sums[Slices::kRows];
      slices_.multiply(row / Slices::kRows, x, sums, kernels);
      std::copy_n(sums, std::min(Slices::kRows, end - row), y + row);
    }
  }

  // Bits are met where they are, with the values that they stand for.
  bool is_decoded() const {
    const Format format = weight_.matrix().format;
    return weight_.slack() > 0 && format != Format::dense && format != Format::bitmask;
  }

  // To begin to decode costs as much as dozens of entries: it is done for many rows at once.
  void dot_decoded(const float* x, float* y, size_t begin, size_t end, const NetKernels& kernels) const {
    constexpr size_t kEntries = 1024, kRows = 128;
    int32_t positions[kEntries + kReadSlack];
    float values[kEntries + kReadSlack];
    uint32_t starts[kRows + 1];
    const size_t most_rows = std::min(kRows, kMostPositions / std::max<size_t>(1, weight_.columns()));
    for (size_t row = begin; row < end;) {
      size_t rows = 0;
      for (const size_t first = weight_.row_start(row);; ++rows) {
        starts[rows] = static_cast<uint32_t>(weight_.row_start(row + rows));
        if (rows == most_rows || row + rows == end || weight_.row_start(row + rows + 1) - first > kEntries) break;
      }
      if (rows == 0) {  // too long
        y[row] = kernels.row_dot(weight_.row(row), x);
        ++row;
        continue;
      }
      kernels.to_float(weight_.values(), starts[0], 1.0f, values, starts[rows] - starts[0]);
      if (const uint16_t* columns = weight_.short_columns()) {
        kernels.short_dots_at(columns + starts[0], values, starts, rows, x, y + row);
      } else {
        weight_.read_positions(row, row + rows, positions, kernels);
        kernels.dots_at(positions, values, starts, rows, weight_.columns(), x, y + row);
      }
      row += rows;
    }
  }

  size_t vectors_;
  Weight weight_;
  std::vector<float> bias_;
  Fused fused_;
  bool sliced_;  // where they are worth it
  Slices slices_;
};

}  // namespace

std::unique_ptr<Op> make_linear(size_t vectors, Weight weight, std::vector<float> bias, const Fused& fused,
                                const Traits& traits) {
  return std::make_unique<Linear>(vectors, std::move(weight), std::move(bias), fused, traits);
}

}  // namespace membound
