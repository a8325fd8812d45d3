// An operator as plain data, checked and made into one that runs: what Python hands over, and what test drivers read from
// a file.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "op.h"

namespace membound {

using Numbers = std::vector<double>;

struct OpPlan {
  std::string op;
  std::vector<size_t> inputs;  // numbers of values
  std::vector<Shape> input_shapes;
  Shape output_shape;
  Fused fused;                             // its activation
  std::map<std::string, Numbers> numbers;  // all else that its attributes say
  Matrix weight;                           // computed on as it is stored; nothing of it is owned
  std::map<std::string, std::vector<float>> tables;  // other tensors by role, dense: a bias, a constant operand
  bool by_bytes = false;                   // whether it computes in bytes, and
  ByteBounds bytes;                        // whether its input and output are bytes: make_ops finds out
};

// The operators that there are, by name.
std::vector<std::string> known_ops();

// Throws std::invalid_argument where the shapes and numbers of one operator do not belong together.
std::unique_ptr<Op> make_op(const OpPlan& plan, const Traits& traits);

// Checks that every value is there when it is used, too. Returns the sizes of all values, the input's first.
std::vector<size_t> make_ops(std::vector<OpPlan> plans, const Shape& input_shape,
                             const std::vector<size_t>& outputs, const Traits& traits, std::vector<std::unique_ptr<Op>>& ops);

}  // namespace membound
