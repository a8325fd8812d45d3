// Networks that Python dumped (tests/kernels/replay.py), on every instruction set: for emulators and sanitizers.
//
//   test_replay FILE [--emulated no]      ends with one line of JSON; the option leaves out AVX-512 in plain C++
//
// A file has, for each network, its plans, an input, and what a reference in double precision makes of it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dispatch.h"
#include "names.h"
#include "network.h"
#include "op_plan.h"

namespace membound {
const NetKernels& emulated_avx512_net_kernels();
}

namespace {

using namespace membound;

// Numbers are 64 bits wide, little-endian; lists and arrays begin with how many elements or bytes they have.
class Dump {
 public:
  explicit Dump(const char* path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(std::string("cannot open ") + path);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }
  bool at_end() const { return at_ == bytes_.size(); }

  int64_t number() { return read<int64_t>(); }
  double real() { return read<double>(); }
  size_t size() { return static_cast<size_t>(number()); }

  std::string text() {
    const std::vector<char> found = array<char>();
    return {found.begin(), found.end()};
  }
  // An array of its own size, so that a sanitizer sees any step beyond it.
  template <class T>
  std::vector<T> array() {
    const size_t bytes = size();
    if (bytes > bytes_.size() - at_ || bytes % sizeof(T) != 0) throw std::runtime_error("the file ends early");
    std::vector<T> found(bytes / sizeof(T));
    if (bytes > 0) std::memcpy(found.data(), bytes_.data() + at_, bytes);
    at_ += bytes;
    return found;
  }
  std::vector<size_t> sizes() {
    std::vector<size_t> found(size());
    for (size_t& each : found) each = size();
    return found;
  }

 private:
  template <class T>
  T read() {
    T found;
    if (sizeof found > bytes_.size() - at_) throw std::runtime_error("the file ends early");
    std::memcpy(&found, bytes_.data() + at_, sizeof found);
    at_ += sizeof found;
    return found;
  }

  std::vector<char> bytes_;
  size_t at_ = 0;
};

struct Case {
  std::string name;
  Shape input_shape;
  size_t output, batch;
  double tolerance;
  std::vector<OpPlan> plans;
  std::vector<std::vector<char>> arrays;   // what weights point into,
  std::vector<std::vector<float>> floats;  // palettes and scales
  std::vector<float> input;
  std::vector<double> expected;

  explicit Case(Dump& dump) {
    name = dump.text();
    input_shape = dump.sizes();
    output = dump.size();
    batch = dump.size();
    tolerance = dump.real();
    const size_t count = dump.size();
    for (size_t i = 0; i < count; ++i) plans.push_back(read_plan(dump));
    input = dump.array<float>();
    expected = dump.array<double>();
  }

 private:
  OpPlan read_plan(Dump& dump) {
    OpPlan plan;
    plan.op = dump.text();
    plan.inputs = dump.sizes();
    const size_t shapes = dump.size();
    for (size_t i = 0; i < shapes; ++i) plan.input_shapes.push_back(dump.sizes());
    plan.output_shape = dump.sizes();
    const size_t attributes = dump.size();
    for (size_t i = 0; i < attributes; ++i) {
      const std::string attribute = dump.text();
      plan.numbers[attribute] = dump.array<double>();
    }
    const std::string activation = dump.text();
    const std::vector<double> numbers = dump.array<double>();
    plan.fused = {named<Activation>(kActivationNames, activation), numbers.size() > 0 ? float(numbers[0]) : 0.0f,
                  numbers.size() > 1 ? float(numbers[1]) : 0.0f};
    const size_t tables = dump.size();
    for (size_t i = 0; i < tables; ++i) {
      const std::string role = dump.text();
      plan.tables[role] = dump.array<float>();
    }
    if (dump.number()) {
      Matrix& weight = plan.weight;
      weight.format = named<Format>(kFormatNames, dump.text());
      weight.type = named<ValueType>(kValueTypeNames, dump.text());
      weight.rows = dump.size();
      weight.columns = dump.size();
      weight.entries = dump.size();
      weight.index_bytes = static_cast<int>(dump.number());
      weight.pointer_bytes = static_cast<int>(dump.number());
      weight.parameter = static_cast<int>(dump.number());
      weight.high_bytes = dump.size();
      const std::vector<float> palette = dump.array<float>();
      if (!palette.empty()) {
        floats.push_back(padded_palette(weight.type, palette.data(), palette.size()));
        weight.palette = floats.back().data();
      }
      floats.push_back(dump.array<float>());
      if (!floats.back().empty()) {
        if (floats.back().size() != weight.rows) throw std::runtime_error("not one scale a row");
        weight.scales = floats.back().data();
      }
      const ArrayBytes wanted = array_bytes(weight);
      weight.values = keep(dump, wanted.values);
      weight.index = keep(dump, wanted.index);
      weight.pointers = keep(dump, wanted.pointers);
    }
    return plan;
  }
  const void* keep(Dump& dump, size_t bytes) {
    arrays.push_back(dump.array<char>());
    if (arrays.back().size() != bytes) throw std::runtime_error("an array is not as large as its shape");
    return arrays.back().data();
  }
};

size_t g_checks = 0, g_mismatches = 0;

void check(const Case& one, const std::string& isa, const NetKernels& kernels, int threads, size_t max_batch) {
  std::vector<std::unique_ptr<Op>> ops;
  std::vector<size_t> sizes = make_ops(one.plans, one.input_shape, {one.output}, kernels.traits, ops);
  const Network network(std::move(sizes), std::move(ops), {one.output}, max_batch, threads, 1, kernels);
  std::vector<float> found(one.expected.size());
  network.run(one.input.data(), one.batch, found.data());
  double largest = 1e-30, worst = 0;
  for (double x : one.expected) largest = std::max(largest, std::fabs(x));
  for (size_t i = 0; i < found.size(); ++i) {
    const double off = std::fabs(found[i] - one.expected[i]) / largest;
    worst = off <= worst ? worst : off;  // NaN is the worst
  }
  ++g_checks;
  if (worst <= one.tolerance) return;
  ++g_mismatches;
  std::fprintf(stderr, "MISMATCH %s: isa=%s threads=%d max_batch=%zu: %g off\n", one.name.c_str(), isa.c_str(), threads,
               max_batch, worst);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && !(argc == 4 && !std::strcmp(argv[2], "--emulated") && !std::strcmp(argv[3], "no"))) {
    std::fprintf(stderr, "usage: %s FILE [--emulated no]\n", argv[0]);
    return 2;
  }
  Dump dump(argv[1]);
  size_t cases = 0;
  std::string isas;
  for (; !dump.at_end(); ++cases) {
    const Case one(dump);
    isas.clear();
    const auto on = [&](const std::string& isa, const NetKernels& kernels) {
      isas += (isas.empty() ? "\"" : ", \"") + isa + "\"";
      check(one, isa, kernels, 1, 1);
      check(one, isa, kernels, 2, one.batch);
    };
    for (const Kernels& kernels : available_kernels()) on(kernels.name, net_kernels(kernels));
    if (argc == 2) on("emulated avx512", emulated_avx512_net_kernels());
  }
  std::printf("{\"cases\": %zu, \"checks\": %zu, \"mismatches\": %zu, \"isas\": [%s]}\n", cases, g_checks, g_mismatches,
              isas.c_str());
  return g_mismatches == 0 ? 0 : 1;
}
