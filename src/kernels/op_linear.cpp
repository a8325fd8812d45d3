// Linear layers.
#include <algorithm>
#include <utility>

#include "op.h"
#include "product.h"
#include "slices.h"

namespace membound {
namespace {

constexpr size_t kDeep = 128;         // columns of a dense weight at once: a panel of so many stays in the nearest cache
constexpr size_t kCrowded = 1024;     // floats: rows a multiple of this apart are in each other's place in the cache
constexpr size_t kColumnsAtOnce = 64; // of vectors that are turned
constexpr double kWorthThread = 1e5;  // entries: these come from far away, so that fewer are worth one more thread (Traits)

// Floats from one row to the next where vectors lie across: whole lines of the cache.
size_t across_step(size_t vectors) {
  const size_t step = whole_lines(vectors);
  return step % kCrowded == 0 ? step + kLine : step;
}

class Linear final : public Op {
 public:
  Linear(size_t vectors, Weight weight, std::vector<float> bias, const Fused& fused, const Traits& traits)
      : vectors_(vectors), weight_(std::move(weight)), bias_(std::move(bias)), fused_(fused), sliced_(traits.slices),
        slices_(weight_, traits) {}

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    const size_t vectors = vectors_ * batch;
    if (!many(vectors, place.kernels.traits)) {
      for (size_t n = 0; n < vectors; ++n)
        run_vector(inputs[0] + n * weight_.columns(), output + n * weight_.rows(), place);
    } else if (weight_.matrix().format == Format::dense) {
      run_dense(inputs[0], output, vectors, place);
    } else {
      run_as_image(inputs[0], output, vectors, place);
    }
  }

  Needs needs(size_t batch, const Traits& traits) const override {
    // More than these are taken one by one, which needs no room: but a smaller batch is not.
    const size_t vectors = std::min(vectors_ * batch, kMostOffset / std::max<size_t>(1, weight_.columns()));
    if (!many(vectors, traits)) return {};
    if (weight_.matrix().format == Format::dense) {
      const size_t rows = static_cast<size_t>(traits.gemm_rows), panel = depth() * panel_width(traits);
      return {divide_up(vectors, rows) * rows * weight_.columns(), reads_in_place() ? panel : 2 * panel + kReadSlack};
    }
    return {across_step(vectors) * (weight_.columns() + weight_.rows()) + 2 * kSlack,
            product_room(weight_, image(vectors), weight_.rows(), traits)};
  }
  size_t table_bytes() const override { return weight_.table_bytes() + bias_.size() * sizeof(float); }
  size_t table_bytes_on(const Traits& traits) const override {
    return traits.slices == sliced_ ? slices_.bytes() : Slices(weight_, traits).bytes();
  }
  bool gains_by_batch() const override { return true; }  // the weight is read once for all

 private:
  // Enough vectors to fill a register: they are treated as a matrix.
  bool many(size_t vectors, const Traits& traits) const {
    return vectors >= std::max<size_t>(2, static_cast<size_t>(traits.width) / 2) &&
           vectors * weight_.columns() <= kMostOffset;
  }

  static Image image(size_t vectors) {
    Image image;
    image.column_step = image.channel_floats = image.row_step = across_step(vectors);
    image.pixels = vectors;
    return image;
  }

  // Nonzeros times the pixels of an image: a column for each vector.
  void run_as_image(const float* x, float* y, size_t vectors, const Workplace& place) const {
    const size_t in = weight_.columns(), out = weight_.rows(), step = across_step(vectors);
    float* across = place.shared;
    float* products = place.shared + step * in + kSlack;
    clear_slack(across + step * in);
    place.each(divide_up(in, kColumnsAtOnce), static_cast<double>(vectors * in), [&](size_t block, int) {
      const size_t first = block * kColumnsAtOnce, here = std::min(kColumnsAtOnce, in - first);
      place.kernels.turn(x + first, in, vectors, here, across + first * step, step);
      for (size_t i = first; i < first + here; ++i) std::fill(across + i * step + vectors, across + (i + 1) * step, 0.0f);
    });
    const Finish finish{bias_.data(), fused_.activation, fused_.first, fused_.second};
    const Product product(weight_, image(vectors), out, finish, place.kernels);
    const double operations = weight_.density() * static_cast<double>(in * out * vectors);
    const Tasks tasks = product.cut(1, place.worth(operations));
    place.each(tasks.count(), operations, [&](size_t task, int worker) {
      product.multiply(across, 0, products, step, tasks, task, place.room(worker));
    });
    place.each(divide_up(out, kColumnsAtOnce), static_cast<double>(vectors * out), [&](size_t block, int) {
      const size_t first = block * kColumnsAtOnce, here = std::min(kColumnsAtOnce, out - first);
      place.kernels.turn(products + first * step, step, here, vectors, y + first, out);
    });
  }

  // --- dense: groups of vectors, packed, times panels of the weight's rows, turned as they are used ---

  size_t depth() const {
    return divide_up(weight_.columns(), std::max<size_t>(1, divide_up(weight_.columns(), kDeep)));
  }
  static size_t panel_width(const Traits& traits) { return static_cast<size_t>(traits.gemm_vectors * traits.width); }
  // Whether rows are turned from where they lie in the file.
  bool reads_in_place() const { return weight_.matrix().type == ValueType::f32 && weight_.matrix().scales == nullptr; }

  void run_dense(const float* x, float* y, size_t vectors, const Workplace& place) const {
    const NetKernels& kernels = place.kernels;
    const size_t in = weight_.columns(), out = weight_.rows(), rows = static_cast<size_t>(kernels.traits.gemm_rows);
    const size_t wide = panel_width(kernels.traits), groups = divide_up(vectors, rows), panels = divide_up(out, wide);
    const Values all{ValueType::f32, x, vectors * in * sizeof(float), nullptr, 0.0f};
    place.each(groups, static_cast<double>(vectors * in), [&](size_t group, int) {
      const size_t first = group * rows;
      float* packed = place.shared + first * in;
      if (first + rows <= vectors) return kernels.pack(all, first * in, in, in, nullptr, packed);
      std::fill_n(packed, rows * in, 0.0f);
      kernels.turn(x + first * in, in, vectors - first, in, packed, rows);
    });
    const double operations = static_cast<double>(in * out * vectors);
    const auto threads = static_cast<size_t>(place.worth(operations));
    // Where there are fewer panels than threads, the vectors are cut, too: each part turns the weight for itself.
    const size_t parts = std::min(groups, divide_up(threads, std::max<size_t>(1, panels)));
    place.each(panels * parts, operations, [&](size_t task, int worker) {
      const size_t panel = task / parts, part = task % parts, begin = groups * part / parts, end = groups * (part + 1) / parts;
      multiply_panel(y, panel * wide, begin * rows, std::min(end * rows, vectors), place, place.room(worker));
    });
  }

  // Vectors [begin, end) times the rows of the weight from `first` on that make a panel.
  void multiply_panel(float* y, size_t first, size_t begin, size_t end, const Workplace& place, float* panel) const {
    const NetKernels& kernels = place.kernels;
    const size_t in = weight_.columns(), out = weight_.rows(), rows = static_cast<size_t>(kernels.traits.gemm_rows);
    const size_t wide = panel_width(kernels.traits), here = std::min(wide, out - first);
    for (size_t n = begin; n < end; ++n) std::copy_n(bias_.data() + first, here, y + n * out + first);
    if (here < wide) std::fill_n(panel, depth() * wide, 0.0f);
    for (size_t from = 0; from < in; from += depth()) {
      const size_t deep = std::min(depth(), in - from);
      turn_panel(first, here, from, deep, panel, wide, kernels);
      for (size_t n = begin; n < end; n += rows)
        kernels.gemm(place.shared + n * in + from * rows, deep, panel, wide, here, y + n * out + first, out,
                     static_cast<int>(std::min(rows, end - n)), nullptr);
    }
    if (fused_.activation != Activation::none)
      for (size_t n = begin; n < end; ++n)
        kernels.activate(fused_.activation, fused_.first, fused_.second, y + n * out + first, here);
  }

  // panel[k][r] = weight[first + r][from + k]
  void turn_panel(size_t first, size_t rows, size_t from, size_t deep, float* panel, size_t wide,
                  const NetKernels& kernels) const {
    const size_t in = weight_.columns();
    if (reads_in_place())
      return kernels.turn(static_cast<const float*>(weight_.values().data) + first * in + from, in, rows, deep, panel, wide);
    float* converted = panel + depth() * wide;
    for (size_t r = 0; r < rows; ++r)
      kernels.to_float(weight_.values(), (first + r) * in + from, weight_.scale(first + r), converted + r * deep, deep);
    kernels.turn(converted, deep, rows, deep, panel, wide);
  }

  void run_vector(const float* x, float* y, const Workplace& place) const {
    const size_t rows = weight_.rows(), unit = slices_.empty() ? 1 : Slices::kRows, units = divide_up(rows, unit);
    const size_t least = slices_.empty() ? 4 : 1;  // units of a task
    const double entries = weight_.density() * static_cast<double>(rows * weight_.columns());
    const double operations = entries / kWorthThread * place.kernels.traits.worth_thread;
    const int threads = place.worth(operations);
    const size_t most = threads > 1 ? 8 * static_cast<size_t>(threads) : 1;
    const size_t tasks = std::max<size_t>(1, std::min(units / least, most));
    place.each(tasks, operations, [&](size_t task, int) {
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
    if (weight_.near_gaps() && kernels.rice_dots) return dot_near(x, y, begin, end, kernels);
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

  void dot_near(const float* x, float* y, size_t begin, size_t end, const NetKernels& kernels) const {
    constexpr size_t kRows = 128;
    uint32_t starts[kRows + 1];
    const size_t most_rows = std::min(kRows, kMostPositions / std::max<size_t>(1, weight_.columns()));
    for (size_t row = begin, rows; row < end; row += rows) {
      rows = std::min(std::max<size_t>(1, most_rows), end - row);
      for (size_t i = 0; i <= rows; ++i) starts[i] = static_cast<uint32_t>(weight_.row_start(row + i));
      const Weight::Cursor cursor = weight_.start(row);
      kernels.rice_dots(*weight_.near_gaps(), weight_.values(), starts, rows, weight_.columns(),
                        static_cast<int32_t>(cursor.column), cursor.bit, x, y + row);
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
