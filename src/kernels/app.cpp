#include "app.h"

#include <stdexcept>
#include <utility>

#include "dispatch.h"
#include "names.h"
#include "threads.h"

namespace membound {

void App::op(const char* name, std::initializer_list<size_t> inputs,
             std::initializer_list<std::initializer_list<size_t>> input_shapes, std::initializer_list<size_t> output_shape) {
  OpPlan plan;
  plan.op = name;
  plan.inputs = inputs;
  plan.input_shapes.assign(input_shapes.begin(), input_shapes.end());
  plan.output_shape = output_shape;
  plans_.push_back(std::move(plan));
}

void App::number(const char* name, std::initializer_list<double> numbers) { plans_.back().numbers[name] = numbers; }

void App::activation(const char* name, double first, double second) {
  plans_.back().fused = {named<Activation>(kActivationNames, name), static_cast<float>(first), static_cast<float>(second)};
}

void App::weight(const Stored& stored) {
  Matrix& matrix = plans_.back().weight;
  matrix.format = named<Format>(kFormatNames, stored.layout);
  matrix.type = named<ValueType>(kValueTypeNames, stored.type);
  matrix.rows = stored.rows;
  matrix.columns = stored.columns;
  matrix.entries = stored.entries;
  matrix.values = at(stored.values);
  matrix.index = at(stored.index);
  matrix.index_bytes = stored.index_bytes;
  matrix.pointers = at(stored.pointers);
  matrix.pointer_bytes = stored.pointer_bytes;
  matrix.parameter = stored.parameter;
  matrix.high_bytes = stored.high_bytes;
  matrix.palette = static_cast<const float*>(at(stored.palette));
  matrix.scales = static_cast<const float*>(at(stored.scales));
}

void App::table(const char* role, size_t at, size_t floats) {
  const auto* from = static_cast<const float*>(this->at(at));
  plans_.back().tables[role].assign(from, from + floats);
}

void App::start(const Shape& input_shape, const std::vector<size_t>& outputs, int threads, size_t max_batch) {
  if (threads < 0 || threads > kMostThreads) throw std::invalid_argument("a number of threads that cannot be");
  const NetKernels& kernels = net_kernels(chosen_kernels());
  std::vector<std::unique_ptr<Op>> ops;
  std::vector<size_t> sizes = make_ops(plans_, input_shape, outputs, kernels.traits, ops);
  plans_ = {};  // the operators have what they need of it
  network_ = std::make_unique<Network>(std::move(sizes), std::move(ops), outputs, max_batch, threads, 1, kernels);
}

size_t App::memory_bytes() const {
  const NetworkMemory memory = network_->memory();
  return constant_bytes_ + memory.tables + memory.arena * memory.arenas;
}

namespace {

template <class Number, class Prepared>
void copy(const Number* from, size_t height, size_t width, const Steps& steps, float* to, const Prepared& prepared) {
  for (size_t y = 0; y < height; ++y) {
    const Number* row = from + static_cast<ptrdiff_t>(y) * steps.row;
    for (size_t x = 0; x < width; ++x) *to++ = prepared(row[static_cast<ptrdiff_t>(x) * steps.pixel], y, x);
  }
}

template <class Number>
bool prepare_any(const Preparation& how, const Number* numbers, size_t height, size_t width, const Steps& steps,
                 float* input) {
  const bool as_mean = how.mean_height == 0 || (height == how.mean_height && width == how.mean_width);
  const bool fits = how.crops ? height >= how.height && width >= how.width : height == how.height && width == how.width;
  if (!as_mean || !fits) return false;
  const size_t top = (height - how.height) / 2, left = (width - how.width) / 2;
  for (size_t channel = 0; channel < how.channels; ++channel) {
    const Number* from = numbers + static_cast<ptrdiff_t>(channel) * steps.channel +
                         static_cast<ptrdiff_t>(top) * steps.row + static_cast<ptrdiff_t>(left) * steps.pixel;
    float* to = input + channel * how.height * how.width;
    const float std = how.std == nullptr ? 1.0f : how.std[channel];
    const auto formula = [&](Number x, float mean) { return (static_cast<float>(x) - mean) * how.scale / std; };
    if (how.mean_height > 0) {
      const float* means = how.mean + (channel * height + top) * width + left;
      copy(from, how.height, how.width, steps, to, [&](Number x, size_t row, size_t column) { return formula(x, means[row * width + column]); });
      continue;
    }
    const float mean = how.mean == nullptr ? 0.0f : how.mean[channel];
    if constexpr (sizeof(Number) == 1) {  // divided once for each value that there can be
      float table[256];
      for (int x = 0; x < 256; ++x) table[x] = formula(static_cast<Number>(x), mean);
      copy(from, how.height, how.width, steps, to, [&](Number x, size_t, size_t) { return table[x]; });
    } else {
      copy(from, how.height, how.width, steps, to, [&](Number x, size_t, size_t) { return formula(x, mean); });
    }
  }
  return true;
}

}  // namespace

bool prepare(const Preparation& how, const uint8_t* pixels, size_t height, size_t width, const Steps& steps, float* input) {
  return prepare_any(how, pixels, height, width, steps, input);
}

bool prepare(const Preparation& how, const float* numbers, size_t height, size_t width, const Steps& steps, float* input) {
  return prepare_any(how, numbers, height, width, steps, input);
}

}  // namespace membound
