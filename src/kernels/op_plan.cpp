#include "op_plan.h"

#include <cmath>
#include <stdexcept>
#include <utility>

#include "bytes.h"
#include "names.h"

namespace membound {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string("a plan that cannot be: ") + what);
}

constexpr double kMost = 0x7fffffff;

// A whole number from `low` to 2^31 - 1: what else a double may hold cannot be cast.
int64_t whole(double x, double low) {
  require(x >= low && x <= kMost && x == std::floor(x), "a number out of range");
  return static_cast<int64_t>(x);
}

// The numbers of one operator, by name.
class Attributes {
 public:
  explicit Attributes(const OpPlan& plan) : numbers_(plan.numbers) {}

  bool has(const char* name) const { return numbers_.count(name) > 0; }

  const Numbers& all(const char* name) const {
    const auto found = numbers_.find(name);
    if (found == numbers_.end()) throw std::invalid_argument(std::string("a plan without ") + name);
    return found->second;
  }
  double one(const char* name) const {
    require(all(name).size() == 1, "one number is needed");
    return all(name)[0];
  }
  size_t size(const char* name) const { return static_cast<size_t>(whole(one(name), 0)); }
  float single(const char* name) const { return static_cast<float>(one(name)); }
  bool flag(const char* name) const { return one(name) != 0; }
  std::vector<size_t> sizes(const char* name) const {
    std::vector<size_t> found;
    for (double x : all(name)) found.push_back(static_cast<size_t>(whole(x, 0)));
    return found;
  }

  Window window() const {
    const Numbers& w = all("window");
    require(w.size() == 8, "a window has eight numbers");
    const auto number = [&](size_t i) { return static_cast<int>(whole(w[i], i == 4 || i == 5 ? 0 : 1)); };
    return {number(0), number(1), number(2), number(3), number(4), number(5), number(6), number(7)};
  }

 private:
  const std::map<std::string, Numbers>& numbers_;
};

// A weight that is there, and whose columns offsets of 32 bits reach.
const Matrix& weight_of(const OpPlan& plan) {
  const Matrix& weight = plan.weight;
  require(weight.rows > 0 && weight.columns > 0 && static_cast<double>(weight.columns) <= kMost, "a weight's shape");
  return weight;
}

const std::vector<float>* table_of(const OpPlan& plan, const char* role) {
  const auto found = plan.tables.find(role);
  return found == plan.tables.end() ? nullptr : &found->second;
}

std::vector<float> bias_of(const OpPlan& plan) {
  const std::vector<float>* bias = table_of(plan, "b");
  if (bias == nullptr) return std::vector<float>(plan.weight.rows, 0.0f);
  require(bias->size() == plan.weight.rows, "a bias of another size");
  return *bias;
}

const Shape& input_of(const OpPlan& plan) { return plan.input_shapes[0]; }

void require_same_size(const OpPlan& plan) {
  require(elements(plan.output_shape) == elements(input_of(plan)), "an output of another size than the input");
}

size_t axis_of(const OpPlan& plan, const Attributes& given) {
  const size_t axis = given.size("axis");
  require(axis < input_of(plan).size(), "an axis that is not there");
  return axis;
}

void require_images(const OpPlan& plan) {
  const Shape &input = input_of(plan), &output = plan.output_shape;
  require(input.size() == 3 && output.size() == 3 && input[0] == output[0], "images of as many channels");
}

using Made = std::unique_ptr<Op>;

Made conv_of(const OpPlan& plan, const Attributes& given, const Traits& traits) {
  const Shape &input = input_of(plan), &output = plan.output_shape;
  const Matrix& weight = weight_of(plan);
  const size_t groups = given.size("groups");
  const Window window = given.window();
  require(input.size() == 3 && output.size() == 3 && output[0] == weight.rows, "a convolution's shapes");
  require(groups > 0 && weight.rows % groups == 0 && input[0] % groups == 0 &&
              weight.columns == input[0] / groups * static_cast<size_t>(window.kernel_h) * static_cast<size_t>(window.kernel_w),
          "a convolution's groups");
  Weight stored(weight);
  if (plan.by_bytes && groups == 1)
    return make_byte_conv(input, output, stored, bias_of(plan), window, plan.fused, plan.bytes, traits);
  if (plan.by_bytes && plan.bytes.in > 0)
    return make_byte_depthwise(input, output, stored, bias_of(plan), window, plan.fused, plan.bytes, traits);
  return make_conv(input, output, std::move(stored), bias_of(plan), window, groups, plan.fused, traits);
}

Made linear_of(const OpPlan& plan, const Attributes&, const Traits& traits) {
  const Shape &input = input_of(plan), &output = plan.output_shape;
  const Matrix& weight = weight_of(plan);
  require(!input.empty() && !output.empty() && input.back() == weight.columns && output.back() == weight.rows &&
              elements(input) / weight.columns == elements(output) / weight.rows,
          "a linear layer's shapes");
  return make_linear(elements(input) / weight.columns, Weight(weight), bias_of(plan), plan.fused, traits);
}

Made max_pool_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  require_images(plan);
  return make_max_pool(input_of(plan), plan.output_shape, given.window());
}

Made average_pool_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  require_images(plan);
  const Numbers& count = given.all("count");
  require(count.size() == 4, "a count has four numbers");
  return make_average_pool(input_of(plan), plan.output_shape, given.window(),
                           Count{count[0] != 0, static_cast<int>(whole(count[1], 0)),
                                 static_cast<int>(whole(count[2], 0)), static_cast<float>(count[3])});
}

Made adaptive_pool_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  require_images(plan);
  return make_adaptive_pool(input_of(plan), plan.output_shape, given.flag("average"));
}

Made upsample_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  require_images(plan);
  const Shape &input = input_of(plan), &output = plan.output_shape;
  const std::vector<size_t> factor = given.sizes("factor");
  require(factor.size() == 2, "a factor has two numbers");
  require(output[1] == input[1] * factor[0] && output[2] == input[2] * factor[1], "an upsampled image's shape");
  return make_upsample(input, factor[0], factor[1]);
}

Made lrn_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  require_same_size(plan);
  return make_lrn(input_of(plan), static_cast<int>(whole(given.one("size"), 1)), given.single("alpha"),
                  given.single("beta"), given.single("k"));
}

Made layer_norm_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  require_same_size(plan);
  const Shape& input = input_of(plan);
  const size_t last = given.size("last");
  require(last >= 1 && last <= input.size(), "axes that are not there");
  const size_t n = elements(Shape(input.end() - static_cast<std::ptrdiff_t>(last), input.end()));
  require(n > 0, "a norm of nothing");
  const std::vector<float>*w = table_of(plan, "w"), *b = table_of(plan, "b");
  require((w == nullptr || w->size() == n) && (b == nullptr || b->size() == n), "a norm's tensors of another size");
  return make_layer_norm(elements(input) / n, given.single("eps"), w ? *w : std::vector<float>(n, 1.0f),
                         b ? *b : std::vector<float>(n, 0.0f));
}

Made activation_of(const OpPlan& plan, const Attributes&, const Traits&) {
  require_same_size(plan);
  return make_activation(input_of(plan), plan.fused);
}

Made binary_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  const Shape& output = plan.output_shape;
  const std::vector<float>* constant = table_of(plan, "c");
  require((plan.inputs.size() == 1) == (constant != nullptr), "two operands are needed");
  const bool swap = given.flag("swap");
  Shape left = input_of(plan), right = constant ? given.sizes("constant_shape") : plan.input_shapes.at(1);
  require(constant == nullptr || constant->size() == elements(right), "a constant of another size");
  if (constant && swap) std::swap(left, right);
  require(left.size() == output.size() && right.size() == output.size(), "operands of other axes");
  for (size_t i = 0; i < output.size(); ++i)
    require((left[i] == output[i] || left[i] == 1) && (right[i] == output[i] || right[i] == 1),
            "operands that do not fit");
  return make_binary(named<Binary>(kBinaryNames, plan.op), left, right, output,
                     constant ? *constant : std::vector<float>(), constant != nullptr, swap, plan.fused);
}

Made concat_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  const size_t axis = axis_of(plan, given);
  size_t all = 0;
  for (const Shape& shape : plan.input_shapes) {
    require(axis < shape.size(), "an axis that is not there");
    all += elements(shape);
  }
  require(all == elements(plan.output_shape), "an output of another size than the inputs");
  return make_concat(plan.input_shapes, axis);
}

Made reshape_of(const OpPlan& plan, const Attributes&, const Traits&) {
  require_same_size(plan);
  return make_reshape(elements(input_of(plan)));
}

// What a convolution does as it reads: nothing is left to do.
Made folded_of(const OpPlan& plan, const Attributes&, const Traits&) { return make_reshape(elements(input_of(plan))); }

Made permute_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  require_same_size(plan);
  return make_permute(input_of(plan), given.sizes("axes"));
}

Made slice_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  const size_t axis = axis_of(plan, given), start = given.size("start"), step = given.size("step");
  const size_t count = plan.output_shape.at(axis);
  require(count == 0 || start + (count - 1) * step < input_of(plan)[axis], "a slice beyond the end");
  return make_slice(input_of(plan), axis, start, step, count);
}

Made mean_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  return make_mean(input_of(plan), given.sizes("axes"));
}

Made max_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  return make_max(input_of(plan), given.sizes("axes"));
}

Made gather_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  const size_t axis = axis_of(plan, given);
  std::vector<size_t> indices = given.sizes("indices");
  for (size_t index : indices) require(index < input_of(plan)[axis], "an index beyond the end");
  require(elements(plan.output_shape) == elements(input_of(plan)) / input_of(plan)[axis] * indices.size(),
          "an output of another size than what is gathered");
  return make_gather(input_of(plan), axis, std::move(indices));
}

Taps taps_of(const Attributes& given, const char* places, const char* weights, size_t in, size_t out) {
  Taps taps{0, {}, {}};
  for (size_t place : given.sizes(places)) {
    require(place < in, "a pixel beyond the end");
    taps.places.push_back(static_cast<int32_t>(place));
  }
  for (double weight : given.all(weights)) taps.weights.push_back(static_cast<float>(weight));
  taps.count = out == 0 ? 0 : taps.places.size() / out;
  require(taps.count > 0 && taps.count * out == taps.places.size() && taps.places.size() == taps.weights.size(),
          "as many weights as pixels");
  return taps;
}

Made resize_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  require_images(plan);
  const Shape &input = input_of(plan), &output = plan.output_shape;
  return make_resize(input, output, taps_of(given, "rows", "row_weights", input[1], output[1]),
                     taps_of(given, "columns", "column_weights", input[2], output[2]));
}

Made matmul_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  require(plan.inputs.size() == 2, "two operands are needed");
  const Shape &left = input_of(plan), &right = plan.input_shapes[1], &output = plan.output_shape;
  const size_t axes = output.size();
  require(axes >= 2 && left.size() == axes && right.size() == axes, "operands of other axes");
  for (size_t i = 0; i + 2 < axes; ++i)
    require((left[i] == output[i] || left[i] == 1) && (right[i] == output[i] || right[i] == 1),
            "operands that do not fit");
  const bool transpose = given.flag("transpose");
  const size_t k = left[axes - 1], n = output[axes - 1];
  require(left[axes - 2] == output[axes - 2] && right[axes - 2] == (transpose ? n : k) &&
              right[axes - 1] == (transpose ? k : n),
          "matrices that do not fit");
  return make_matmul(left, right, output, transpose, given.single("scale"));
}

Made constant_of(const OpPlan& plan, const Attributes&, const Traits&) {
  const std::vector<float>* values = table_of(plan, "c");
  require(values != nullptr && values->size() == elements(plan.output_shape), "a constant of another size");
  return make_constant(*values);
}

Made further_input_of(const OpPlan& plan, const Attributes&, const Traits&) {
  require(plan.inputs.empty(), "an input that is computed");
  return make_input();
}

Made embedding_of(const OpPlan& plan, const Attributes&, const Traits&) {
  const Matrix& weight = weight_of(plan);
  require(elements(plan.output_shape) == elements(input_of(plan)) * weight.columns, "an embedding's shapes");
  return make_embedding(elements(input_of(plan)), Weight(weight));
}

Made softmax_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  require_same_size(plan);
  return make_softmax(input_of(plan), axis_of(plan, given), given.flag("log"));
}

Made pad_of(const OpPlan& plan, const Attributes& given, const Traits&) {
  const std::vector<size_t> numbers = given.sizes("pad");
  require(numbers.size() == 2 * input_of(plan).size(), "padding of other axes");
  std::vector<std::array<size_t, 2>> pad;
  for (size_t i = 0; i < numbers.size(); i += 2) pad.push_back({numbers[i], numbers[i + 1]});
  return make_pad(input_of(plan), pad, given.single("value"));
}

// What the outputs of an operator lie within, from 0 to this; 0: something else.
float bound_of(const Fused& fused) {
  const Sums limits = limits_of(fused.activation, fused.first, fused.second);
  return limits.limited && limits.low == 0.0f && limits.high > 0.0f && std::isfinite(limits.high) ? limits.high : 0.0f;
}

// Whether an operator is a convolution that may read bytes. What else must hold of it is checked when it is made. `bounded`:
// whether its input or output is.
bool may_take_bytes(const OpPlan& plan, bool bounded) {
  const Attributes given(plan);
  if (plan.op != "conv" || !given.has("int8") || plan.input_shapes.size() != 1 || input_of(plan).size() != 3 || plan.output_shape.size() != 3)
    return false;
  const size_t groups = given.size("groups");
  return gains_by_bytes(input_of(plan), plan.output_shape, weight_of(plan), groups, bounded) ||
         takes_bytes(input_of(plan), weight_of(plan), given.window(), groups);
}

// Finds which operators compute in bytes, and what the outputs of each lie within, where they stay bytes (ByteBounds): they have
// a bound, and convolutions that read bytes are all that reads them.
std::vector<float> choose_bytes(std::vector<OpPlan>& plans, const std::vector<size_t>& outputs) {
  std::vector<float> bounds(plans.size() + 1, 0.0f);
  std::vector<size_t> root(plans.size() + 1, 0);  // the value that a folded one is
  const auto kept = [&](size_t value) -> float& { return bounds[root[value]]; };
  for (size_t i = 0; i < plans.size(); ++i) {
    OpPlan& plan = plans[i];
    const float bound = bound_of(plan.fused);
    root[i + 1] = plan.op == "folded" ? root[plan.inputs[0]] : i + 1;
    plan.by_bytes = may_take_bytes(plan, bound > 0.0f || (!plan.inputs.empty() && kept(plan.inputs[0]) > 0.0f));
    if (plan.by_bytes) bounds[i + 1] = bound;
  }
  for (const OpPlan& plan : plans)
    if (!plan.by_bytes && plan.op != "folded")
      for (size_t input : plan.inputs) kept(input) = 0.0f;
  for (size_t output : outputs) kept(output) = 0.0f;
  for (size_t i = 0; i < plans.size(); ++i)  // depthwise ones make bytes of bytes alone
    if (plans[i].by_bytes && Attributes(plans[i]).size("groups") > 1 && kept(plans[i].inputs[0]) == 0.0f) bounds[i + 1] = 0.0f;
  for (size_t value = 1; value < bounds.size(); ++value) bounds[value] = kept(value);
  return bounds;
}

using Maker = Made (*)(const OpPlan&, const Attributes&, const Traits&);

const std::map<std::string, Maker> kMakers = {
    {"conv", conv_of},       {"linear", linear_of},     {"maxpool", max_pool_of},     {"avgpool", average_pool_of},
    {"adaptive", adaptive_pool_of}, {"upsample", upsample_of}, {"lrn", lrn_of},        {"layernorm", layer_norm_of},
    {"act", activation_of},  {"add", binary_of},        {"sub", binary_of},           {"mul", binary_of},
    {"div", binary_of},      {"concat", concat_of},     {"reshape", reshape_of},      {"permute", permute_of},
    {"slice", slice_of},     {"mean", mean_of},         {"softmax", softmax_of},      {"pad", pad_of},
    {"folded", folded_of},   {"maximum", binary_of},    {"minimum", binary_of},       {"max", max_of},
    {"gather", gather_of},   {"resize", resize_of},     {"matmul", matmul_of},        {"constant", constant_of},
    {"input", further_input_of}, {"embedding", embedding_of},
};

}  // namespace

std::vector<std::string> known_ops() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : kMakers) names.push_back(name);
  return names;
}

std::unique_ptr<Op> make_op(const OpPlan& plan, const Traits& traits) {
  require(!plan.input_shapes.empty() || plan.op == "constant" || plan.op == "input", "an operator without inputs");
  const auto maker = kMakers.find(plan.op);
  if (maker == kMakers.end()) throw std::invalid_argument("an operator that cannot be run: " + plan.op);
  return maker->second(plan, Attributes(plan), traits);
}

std::vector<size_t> make_ops(std::vector<OpPlan> plans, const Shape& input_shape,
                             const std::vector<size_t>& outputs, const Traits& traits, std::vector<std::unique_ptr<Op>>& ops) {
  std::vector<size_t> values{elements(input_shape)};  // numbers of each,
  for (const OpPlan& plan : plans) {
    require(plan.inputs.size() == plan.input_shapes.size(), "inputs without shapes");
    for (size_t i = 0; i < plan.inputs.size(); ++i)
      require(plan.inputs[i] < values.size() && elements(plan.input_shapes[i]) == values[plan.inputs[i]],
              "a value used before it is there");
    values.push_back(elements(plan.output_shape));
  }
  require(!outputs.empty(), "no output");
  for (size_t output : outputs) require(output < values.size(), "an output that is not there");
  const std::vector<float> bounds = choose_bytes(plans, outputs);
  std::vector<size_t> sizes{values[0]};  // and the floats that they take
  for (OpPlan& plan : plans) {
    const size_t value = sizes.size();
    plan.bytes = {plan.inputs.empty() ? 0.0f : bounds[plan.inputs[0]], bounds[value]};
    ops.push_back(make_op(plan, traits));
    ops.back()->inputs = plan.inputs;
    const Shape& shape = plan.output_shape;
    sizes.push_back(plan.bytes.out > 0 ? floats_of_bytes(shape[0], shape[1] * shape[2]) : values[value]);
  }
  return sizes;
}

}  // namespace membound
