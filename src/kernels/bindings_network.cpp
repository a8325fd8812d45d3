// The Python face of Network: takes a plan apart, checks that every array is as large as the plan says, and keeps
// the arrays alive. Their contents were validated when the file was read.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "bindings.h"
#include "dispatch.h"
#include "names.h"
#include "network.h"
#include "op_plan.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace membound {
namespace {

// A view of a Python array's memory, held for as long as this lives.
class Buffer {
 public:
  Buffer(nb::handle array, bool writable) {
    if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_ND | (writable ? PyBUF_WRITABLE : 0)) != 0) throw nb::python_error();
  }
  Buffer(Buffer&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }
  void* data() const { return view_.buf; }
  size_t bytes() const { return static_cast<size_t>(view_.len); }
  size_t item_bytes() const { return static_cast<size_t>(view_.itemsize); }

 private:
  Py_buffer view_{};
};

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string("a plan that cannot be: ") + what);
}

template <size_t count>
std::vector<std::string> all_of(const char* const (&names)[count]) {
  return {names, names + count};
}

// A weight as it is stored: held for as long as this lives.
class PyMatrix {
 public:
  PyMatrix(const std::string& layout, const std::string& type, size_t rows, size_t columns, size_t entries,
           nb::handle values, const nb::sequence& arrays, nb::handle palette, nb::handle scales, int parameter) {
    matrix_.format = named<Format>(kFormatNames, layout);
    matrix_.type = named<ValueType>(kValueTypeNames, type);
    matrix_.rows = rows;
    matrix_.columns = columns;
    matrix_.entries = entries;
    matrix_.parameter = parameter;
    require(parameter == 0 || matrix_.format == Format::rice, "a parameter of a layout other than rice");
    kept_.emplace_back(values, false);
    for (nb::handle array : arrays) kept_.emplace_back(array, false);
    require(kept_.size() <= 3, "more arrays than there are");
    if (kept_.size() > 1) matrix_.index_bytes = static_cast<int>(kept_[1].item_bytes());
    if (kept_.size() > 2) matrix_.pointer_bytes = static_cast<int>(kept_[2].item_bytes());
    if (matrix_.format == Format::rice && kept_.size() > 1) matrix_.high_bytes = kept_[1].bytes();
    if (!palette.is_none()) {
      const std::vector<float> given = floats(palette, "a palette of another type");
      palette_ = padded_palette(matrix_.type, given.data(), given.size());
      matrix_.palette = palette_.data();
    }
    if (!scales.is_none()) {
      scales_ = floats(scales, "scales of another type");
      require(scales_.size() == rows, "not one scale a row");
      matrix_.scales = scales_.data();
    }
    const ArrayBytes wanted = array_bytes(matrix_);
    matrix_.values = at(0, wanted.values);
    matrix_.index = at(1, wanted.index);
    matrix_.pointers = at(2, wanted.pointers);
  }
  PyMatrix(const PyMatrix&) = delete;
  PyMatrix& operator=(const PyMatrix&) = delete;
  const Matrix& matrix() const { return matrix_; }

 private:
  const void* at(size_t number, size_t bytes) const {
    const bool there = number < kept_.size();
    require((there ? kept_[number].bytes() : 0) == bytes, "an array is not as large as its shape");
    return there ? kept_[number].data() : nullptr;
  }
  static std::vector<float> floats(nb::handle array, const char* otherwise) {
    const Buffer buffer(array, false);
    require(buffer.item_bytes() == sizeof(float), otherwise);
    const auto* from = static_cast<const float*>(buffer.data());
    return {from, from + buffer.bytes() / sizeof(float)};
  }

  Matrix matrix_;
  std::vector<Buffer> kept_;
  std::vector<float> palette_, scales_;  // copied, and counted as tables of the weight
};

// An operator as plain data; its weight is kept alive.
struct PyOpPlan {
  OpPlan plan;
  nb::object weight;

  PyOpPlan(const std::string& op, const std::vector<size_t>& inputs, const std::vector<Shape>& input_shapes,
           const Shape& output_shape, const std::string& activation, const std::vector<float>& activation_numbers,
           const std::map<std::string, Numbers>& numbers, nb::object stored, const nb::mapping& tables)
      : weight(std::move(stored)) {
    plan.op = op;
    plan.inputs = inputs;
    plan.input_shapes = input_shapes;
    plan.output_shape = output_shape;
    plan.numbers = numbers;
    const std::vector<float>& given = activation_numbers;
    require(given.size() <= 2, "an activation has up to two numbers");
    plan.fused = {named<Activation>(kActivationNames, activation), given.size() > 0 ? given[0] : 0.0f,
                  given.size() > 1 ? given[1] : 0.0f};
    if (!weight.is_none()) plan.weight = nb::cast<const PyMatrix&>(weight).matrix();
    for (nb::handle role : tables.keys()) {  // small dense arrays, copied
      const Buffer buffer(tables[role], false);
      require(buffer.item_bytes() == sizeof(float), "a table of another type");
      const auto* from = static_cast<const float*>(buffer.data());
      plan.tables[nb::cast<std::string>(role)].assign(from, from + buffer.bytes() / sizeof(float));
    }
  }
};

class PyNetwork {
 public:
  PyNetwork(const std::vector<const PyOpPlan*>& plans, const std::vector<size_t>& input_shape,
            const std::vector<size_t>& outputs, size_t max_batch,
            int threads, size_t concurrency, const std::optional<std::string>& isa) {
    require(max_batch >= 1 && concurrency >= 1, "a batch or a number of calls below 1");
    const NetKernels& kernels = net_kernels(isa ? kernels_named(*isa) : chosen_kernels());
    std::vector<OpPlan> read;
    for (const PyOpPlan* each : plans) {
      read.push_back(each->plan);
      weights_.push_back(each->weight);
    }
    std::vector<std::unique_ptr<Op>> ops;
    std::vector<size_t> sizes = make_ops(std::move(read), input_shape, outputs, kernels.traits, ops);
    network_ = std::make_unique<Network>(std::move(sizes), std::move(ops), outputs, max_batch, threads, concurrency,
                                         kernels);
  }

  void run(const nb::sequence& inputs, const nb::sequence& outputs, size_t batch) const { run(inputs, outputs, batch, nullptr); }

  std::vector<double> time(const nb::sequence& inputs, const nb::sequence& outputs, size_t batch) const {
    std::vector<double> seconds(network_->operators(), 0.0);
    run(inputs, outputs, batch, seconds.data());
    return seconds;
  }

  nb::tuple memory(const std::optional<std::string>& isa, size_t max_batch, int threads) const {
    const NetworkMemory memory =
        network_->memory({isa ? traits_named(*isa) : network_->traits(),
                          max_batch == 0 ? network_->max_batch() : max_batch, threads == 0 ? network_->threads() : threads});
    return nb::make_tuple(memory.tables, memory.arena, memory.arenas);
  }

 private:
  void run(const nb::sequence& inputs, const nb::sequence& outputs, size_t batch, double* seconds) const {
    std::vector<Buffer> kept;  // for as long as it runs
    kept.reserve(network_->inputs() + network_->outputs());
    std::vector<const float*> from;
    std::vector<float*> to;
    for (nb::handle each : inputs) {
      kept.emplace_back(each, false);
      require(from.size() < network_->inputs() && kept.back().bytes() == batch * network_->input_size(from.size()) * sizeof(float),
              "an input of another size");
      from.push_back(static_cast<const float*>(kept.back().data()));
    }
    for (nb::handle each : outputs) {
      kept.emplace_back(each, true);
      require(to.size() < network_->outputs() && kept.back().bytes() == batch * network_->output_size(to.size()) * sizeof(float),
              "an output of another size");
      to.push_back(static_cast<float*>(kept.back().data()));
    }
    require(from.size() == network_->inputs() && to.size() == network_->outputs(), "fewer inputs or outputs than there are");
    nb::gil_scoped_release release;
    network_->run(from.data(), batch, to.data(), seconds);
  }

  std::vector<nb::object> weights_;
  std::unique_ptr<Network> network_;
};

}  // namespace

void bind_network(nb::module_& m) {
  nb::class_<PyMatrix>(m, "Matrix",
                       "A weight in the layout and type of values that it is stored in; the arrays are kept, palette and scales "
                       "copied.")
      .def(nb::init<const std::string&, const std::string&, size_t, size_t, size_t, nb::handle, const nb::sequence&,
                    nb::handle, nb::handle, int>(),
           "layout"_a, "values_type"_a, "rows"_a, "columns"_a, "entries"_a, "values"_a, "arrays"_a,
           "palette"_a = nb::none(), "scales"_a = nb::none(), "parameter"_a = 0,
           nb::sig("def __init__(self, layout: str, values_type: str, rows: int, columns: int, entries: int, "
                   "values: numpy.typing.NDArray[typing.Any], "
                   "arrays: collections.abc.Sequence[numpy.typing.NDArray[typing.Any]], "
                   "palette: numpy.typing.NDArray[numpy.float32] | None = None, "
                   "scales: numpy.typing.NDArray[numpy.float32] | None = None, parameter: int = 0) -> None"),
           "The arrays of rice are the high and the low parts of its gaps, its parameter the bits of a low part. Codes\n"
           "(p1 to p8) have a palette of up to as many entries as there are codes; each row is multiplied by its scale.");
  nb::class_<PyOpPlan>(m, "OpPlan", "An operator with its shapes, numbers and tensors.")
      .def(nb::init<const std::string&, const std::vector<size_t>&, const std::vector<Shape>&, const Shape&,
                    const std::string&, const std::vector<float>&, const std::map<std::string, Numbers>&, nb::object,
                    const nb::mapping&>(),
           "op"_a, "inputs"_a, "input_shapes"_a, "output_shape"_a, "activation"_a, "activation_numbers"_a, "numbers"_a,
           "weight"_a.none(), "tables"_a,
           nb::sig("def __init__(self, op: str, inputs: collections.abc.Sequence[int], "
                   "input_shapes: collections.abc.Sequence[collections.abc.Sequence[int]], "
                   "output_shape: collections.abc.Sequence[int], activation: str, "
                   "activation_numbers: collections.abc.Sequence[float], "
                   "numbers: collections.abc.Mapping[str, collections.abc.Sequence[float]], weight: Matrix | None, "
                   "tables: collections.abc.Mapping[str, numpy.typing.NDArray[numpy.float32]]) -> None"));
  nb::class_<PyNetwork>(m, "Network", "A planned network: one call runs all of it.")
      .def(nb::init<const std::vector<const PyOpPlan*>&, const std::vector<size_t>&,
                    const std::vector<size_t>&, size_t, int, size_t,
                    const std::optional<std::string>&>(),
           "plans"_a, "input_shape"_a, "outputs"_a, "max_batch"_a = 1, "threads"_a = 0, "concurrency"_a = 1,
           "isa"_a = nb::none())
      .def("run", nb::overload_cast<const nb::sequence&, const nb::sequence&, size_t>(&PyNetwork::run, nb::const_),
           "inputs"_a, "outputs"_a, "batch"_a,
           nb::sig("def run(self, inputs: collections.abc.Sequence[numpy.typing.NDArray[numpy.float32]], "
                   "outputs: collections.abc.Sequence[numpy.typing.NDArray[numpy.float32]], batch: int) -> None"),
           "Run a batch: contiguous float32 arrays in and out, one for each input and output. The GIL is released.")
      .def("time", &PyNetwork::time, "inputs"_a, "outputs"_a, "batch"_a,
           nb::sig("def time(self, inputs: collections.abc.Sequence[numpy.typing.NDArray[numpy.float32]], "
                   "outputs: collections.abc.Sequence[numpy.typing.NDArray[numpy.float32]], batch: int) -> list[float]"),
           "Run a batch, and say how many seconds each operator took.")
      .def("memory", &PyNetwork::memory, "isa"_a = nb::none(), "max_batch"_a = 0, "threads"_a = 0,
           nb::sig("def memory(self, isa: str | None = None, max_batch: int = 0, threads: int = 0) -> tuple[int, int, int]"),
           "Bytes of the load-time tables and of an arena, and how many arenas: here, or on any instruction set.");
  m.def("operators", &known_ops, "The operators that it runs.");
  m.def("layouts", [] { return all_of(kFormatNames); }, "The layouts of positions that it reads.");
  m.def("value_types", [] { return all_of(kValueTypeNames); }, "The types of values that it reads.");
  m.def("activations", [] { return all_of(kActivationNames); }, "The activations that it knows.");
  std::vector<std::string> names;
  for (const Traits* traits : kEveryTraits) names.emplace_back(traits->name);
  m.def("known_isas", [names] { return names; }, "Every instruction set that there are kernels for, here or elsewhere.");
}

}  // namespace membound
