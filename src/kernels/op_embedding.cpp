// Further inputs of a network, and rows of a weight by their numbers.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "op.h"

namespace membound {
namespace {

class Input final : public Op {
 public:
  void run(const float* const*, float*, size_t, const Workplace&) const override {}
  bool is_input() const override { return true; }
};

class Embedding final : public Op {
 public:
  Embedding(size_t count, Weight weight) : count_(count), weight_(std::move(weight)) {}

  void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const override {
    const size_t all = batch * count_, columns = weight_.columns();
    for (size_t i = 0; i < all; ++i) check(inputs[0][i]);
    const size_t parts = std::min(all, 8 * static_cast<size_t>(place.threads));
    place.each(parts, static_cast<double>(all * columns), [&](size_t part, int worker) {
      for (size_t i = all * part / parts; i < all * (part + 1) / parts; ++i)
        copy_row(static_cast<size_t>(inputs[0][i]), output + i * columns, place.kernels, place.room(worker));
    });
  }
  Needs needs(size_t, const Traits&) const override {
    return {0, 2 * kMost + kReadSlack};
  }
  size_t table_bytes() const override { return weight_.table_bytes(); }

 private:
  static constexpr size_t kMost = 4 * Weight::kLeastRead;  // entries that are read at once

  void check(float number) const {
    if (number >= 0.0f && number < static_cast<float>(weight_.rows()) && number == static_cast<float>(static_cast<size_t>(number)))
      return;  // NaN is not
    throw std::out_of_range("index " + std::to_string(number) + " is not one of the " + std::to_string(weight_.rows()) +
                            " rows of an embedding");
  }

  void copy_row(size_t row, float* y, const NetKernels& kernels, float* room) const {
    const size_t columns = weight_.columns();
    if (weight_.matrix().format == Format::dense) {
      for (size_t i = 0; i < columns; i += kMost) {  // in the room, as codes are written in whole vectors
        const size_t n = std::min(kMost, columns - i);
        kernels.to_float(weight_.values(), row * columns + i, weight_.scale(row), room, n);
        std::copy(room, room + n, y + i);
      }
      return;
    }
    std::fill_n(y, columns, 0.0f);
    auto* places = reinterpret_cast<int32_t*>(room);
    Weight::Cursor cursor = weight_.start(row);
    while (!weight_.at_end(row, cursor)) {
      const Weight::Entries found = weight_.read(row, cursor, columns, kMost, places, room + kMost, kernels);
      for (size_t i = 0; i < found.count; ++i) y[places[i]] = found.values[i];
    }
  }

  size_t count_;
  Weight weight_;
};

}  // namespace

std::unique_ptr<Op> make_input() { return std::make_unique<Input>(); }
std::unique_ptr<Op> make_embedding(size_t count, Weight weight) {
  return std::make_unique<Embedding>(count, std::move(weight));
}

}  // namespace membound
