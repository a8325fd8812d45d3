#include "op_plan.h"

#include <cmath>
#include <stdexcept>
#include <utility>

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

  Fused fused() const {
    const Numbers& act = all("act");
    require(act.size() == 3 && act[0] >= 0 && act[0] <= static_cast<double>(Activation::elu), "an activation");
    return {static_cast<Activation>(static_cast<int>(act[0])), static_cast<float>(act[1]), static_cast<float>(act[2])};
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

std::vector<float> bias_of(const OpPlan& plan) {
  if (plan.constants.empty()) return std::vector<float>(plan.weight.rows, 0.0f);
  require(plan.constants.size() == plan.weight.rows, "a bias of another size");
  return plan.constants;
}

std::unique_ptr<Op> conv_of(const OpPlan& plan, const Attributes& given, const Traits& traits) {
  const Shape &input = plan.input_shapes.at(0), &output = plan.output_shape;
  const Matrix& weight = weight_of(plan);
  const size_t groups = given.size("groups");
  const Window window = given.window();
  require(input.size() == 3 && output.size() == 3 && output[0] == weight.rows, "a convolution's shapes");
  require(groups > 0 && weight.rows % groups == 0 && input[0] % groups == 0 &&
              weight.columns == input[0] / groups * static_cast<size_t>(window.kernel_h) * static_cast<size_t>(window.kernel_w),
          "a convolution's groups");
  return make_conv(input, output, Weight(weight), bias_of(plan), window, groups, given.fused(), traits);
}

std::unique_ptr<Op> linear_of(const OpPlan& plan, const Attributes& given) {
  const Shape &input = plan.input_shapes.at(0), &output = plan.output_shape;
  const Matrix& weight = weight_of(plan);
  require(!input.empty() && !output.empty() && input.back() == weight.columns && output.back() == weight.rows &&
              elements(input) / weight.columns == elements(output) / weight.rows,
          "a linear layer's shapes");
  return make_linear(elements(input) / weight.columns, Weight(weight), bias_of(plan), given.fused());
}

std::unique_ptr<Op> average_of(const OpPlan& plan, const Attributes& given) {
  const Numbers& count = given.all("count");
  require(count.size() == 4, "a count has four numbers");
  return make_average_pool(plan.input_shapes.at(0), plan.output_shape, given.window(),
                           Count{count[0] != 0, static_cast<int>(whole(count[1], 0)),
                                 static_cast<int>(whole(count[2], 0)), static_cast<float>(count[3])});
}

std::unique_ptr<Op> binary_of(const OpPlan& plan, const Attributes& given) {
  const Shape& output = plan.output_shape;
  const bool constant = plan.inputs.size() == 1, swap = given.flag("swap");
  Shape left = plan.input_shapes.at(0), right = constant ? given.sizes("constant_shape") : plan.input_shapes.at(1);
  require(!constant || plan.constants.size() == elements(right), "a constant of another size");
  if (constant && swap) std::swap(left, right);
  require(left.size() == output.size() && right.size() == output.size(), "operands of other axes");
  for (size_t i = 0; i < output.size(); ++i)
    require((left[i] == output[i] || left[i] == 1) && (right[i] == output[i] || right[i] == 1),
            "operands that do not fit");
  const double kind = given.one("kind");
  require(kind >= 0 && kind <= static_cast<double>(Binary::div), "a kind of arithmetic");
  return make_binary(static_cast<Binary>(static_cast<int>(kind)), left, right, output, plan.constants, constant, swap,
                     given.fused());
}

std::unique_ptr<Op> pad_of(const OpPlan& plan, const Attributes& given) {
  const std::vector<size_t> numbers = given.sizes("pad");
  require(numbers.size() == 2 * plan.input_shapes.at(0).size(), "padding of other axes");
  std::vector<std::array<size_t, 2>> pad;
  for (size_t i = 0; i < numbers.size(); i += 2) pad.push_back({numbers[i], numbers[i + 1]});
  return make_pad(plan.input_shapes[0], pad, given.single("value"));
}

}  // namespace

std::unique_ptr<Op> make_op(const OpPlan& plan, const Traits& traits) {
  const Attributes given(plan);
  const std::string& op = plan.op;
  require(!plan.input_shapes.empty(), "an operator without inputs");
  const Shape& input = plan.input_shapes[0];
  const size_t size = elements(plan.output_shape);
  if (op == "act" || op == "lrn" || op == "softmax" || op == "permute" || op == "reshape")
    require(size == elements(input), "an output of another size than the input");
  if (op == "concat" || op == "slice" || op == "softmax")
    require(given.size("axis") < input.size(), "an axis that is not there");
  if (op == "maxpool" || op == "avgpool" || op == "adaptive")
    require(input.size() == 3 && plan.output_shape.size() == 3 && input[0] == plan.output_shape[0], "a pool's shapes");
  if (op == "conv") return conv_of(plan, given, traits);
  if (op == "linear") return linear_of(plan, given);
  if (op == "maxpool") return make_max_pool(input, plan.output_shape, given.window());
  if (op == "avgpool") return average_of(plan, given);
  if (op == "adaptive") return make_adaptive_pool(input, plan.output_shape, given.flag("average"));
  if (op == "lrn")
    return make_lrn(input, static_cast<int>(whole(given.one("size"), 1)), given.single("alpha"), given.single("beta"),
                    given.single("k"));
  if (op == "act") return make_activation(elements(input), given.fused());
  if (op == "binary") return binary_of(plan, given);
  if (op == "concat") {
    size_t all = 0;
    for (const Shape& shape : plan.input_shapes) all += elements(shape);
    require(all == size, "an output of another size than the inputs");
    return make_concat(plan.input_shapes, given.size("axis"));
  }
  if (op == "reshape" || op == "folded") return make_reshape(elements(input));  // neither does anything
  if (op == "permute") return make_permute(input, given.sizes("axes"));
  if (op == "slice") {
    const size_t axis = given.size("axis"), start = given.size("start"), step = given.size("step");
    const size_t count = plan.output_shape.at(axis);
    require(count == 0 || start + (count - 1) * step < input[axis], "a slice beyond the end");
    return make_slice(input, axis, start, step, count);
  }
  if (op == "mean") return make_mean(input, given.sizes("axes"));
  if (op == "softmax") return make_softmax(input, given.size("axis"), given.flag("log"));
  if (op == "pad") return pad_of(plan, given);
  throw std::invalid_argument("an operator that cannot be run: " + op);
}

std::vector<size_t> make_ops(const std::vector<OpPlan>& plans, const Shape& input_shape, size_t output,
                             const Traits& traits, std::vector<std::unique_ptr<Op>>& ops) {
  std::vector<size_t> sizes{elements(input_shape)};
  for (const OpPlan& plan : plans) {
    require(plan.inputs.size() == plan.input_shapes.size(), "inputs without shapes");
    for (size_t i = 0; i < plan.inputs.size(); ++i)
      require(plan.inputs[i] < sizes.size() && elements(plan.input_shapes[i]) == sizes[plan.inputs[i]],
              "a value used before it is there");
    ops.push_back(make_op(plan, traits));
    ops.back()->inputs = plan.inputs;
    sizes.push_back(elements(plan.output_shape));
  }
  require(output < sizes.size(), "an output that is not there");
  return sizes;
}

}  // namespace membound
