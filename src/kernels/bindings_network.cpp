// The Python face of Network: takes a plan apart, checks that every array is as large as the plan says, and keeps
// the arrays alive. Their contents were validated when the file was read.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "bindings.h"
#include "dispatch.h"
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
    if (PyObject_GetBuffer(array.ptr(), &view_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  Buffer(Buffer&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }
  void* data() const { return view_.buf; }
  size_t bytes() const { return static_cast<size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string("a plan that cannot be: ") + what);
}

template <class T>
T get(const nb::dict& plan, const char* key) {
  return nb::cast<T>(plan[key]);
}

// Takes plans apart: a plan is a dictionary of an operator's name, the values and shapes that it has to do with, `weight`
// and `constants` where it has such, and numbers.
struct Reader {
  std::vector<Buffer>& kept;

  const void* keep(nb::handle array, size_t bytes) {
    kept.emplace_back(array, false);
    require(kept.back().bytes() == bytes, "an array is not as large as its shape");
    return kept.back().data();
  }

  Matrix weight(const nb::dict& stored) {
    Matrix matrix;
    matrix.format = static_cast<Format>(get<int>(stored, "format"));
    matrix.type = get<bool>(stored, "half") ? ValueType::f16 : ValueType::f32;
    matrix.rows = get<size_t>(stored, "rows");
    matrix.columns = get<size_t>(stored, "columns");
    matrix.entries = get<size_t>(stored, "entries");
    matrix.index_bytes = get<int>(stored, "index_bytes");
    matrix.pointer_bytes = get<int>(stored, "pointer_bytes");
    constexpr size_t kMost = size_t{1} << 32;
    require((matrix.rows == 0 || matrix.columns < kMost / matrix.rows + 1) && matrix.entries < kMost,
            "a weight of more than 2^32 elements");
    const size_t all = matrix.rows * matrix.columns;
    matrix.values = keep(stored["values"], matrix.entries * value_bytes(matrix.type));
    const size_t width = static_cast<size_t>(matrix.index_bytes);
    switch (matrix.format) {
      case Format::dense: require(matrix.entries == all, "a dense weight of another size"); break;
      case Format::bitmask: matrix.index = keep(stored["index"], (all + 7) / 8); break;
      case Format::indexed:
        require(width == 4, "an index of another type");
        matrix.index = keep(stored["index"], matrix.entries * 4);
        break;
      case Format::csr:
        require((width == 2 || width == 4) && (matrix.pointer_bytes == 2 || matrix.pointer_bytes == 4),
                "an index of another type");
        matrix.index = keep(stored["index"], matrix.entries * width);
        matrix.pointers = keep(stored["pointers"], (matrix.rows + 1) * static_cast<size_t>(matrix.pointer_bytes));
        break;
      case Format::delta:
        require(width == 1, "an index of another type");
        matrix.index = keep(stored["index"], matrix.entries);
        break;
      default: require(false, "an unknown format");
    }
    return matrix;
  }

  OpPlan plan(const nb::dict& given) {
    OpPlan plan;
    for (const auto& [key, value] : given) {
      const std::string name = nb::cast<std::string>(key);
      if (name == "op") {
        plan.op = nb::cast<std::string>(value);
      } else if (name == "inputs") {
        plan.inputs = nb::cast<std::vector<size_t>>(value);
      } else if (name == "input_shapes") {
        plan.input_shapes = nb::cast<std::vector<Shape>>(value);
      } else if (name == "output_shape") {
        plan.output_shape = nb::cast<Shape>(value);
      } else if (name == "weight") {
        plan.weight = weight(nb::cast<nb::dict>(value));
      } else if (name == "constants") {  // a small dense array, copied
        const Buffer buffer(value, false);
        const auto* from = static_cast<const float*>(buffer.data());
        plan.constants.assign(from, from + buffer.bytes() / sizeof(float));
      } else {
        plan.numbers[name] = nb::cast<Numbers>(value);
      }
    }
    return plan;
  }
};

class PyNetwork {
 public:
  PyNetwork(const nb::list& plans, const std::vector<size_t>& input_shape, size_t output, size_t max_batch,
            int threads, size_t concurrency, const std::optional<std::string>& isa) {
    require(max_batch >= 1 && concurrency >= 1, "a batch or a number of calls below 1");
    const NetKernels& kernels = net_kernels(isa ? kernels_named(*isa) : chosen_kernels());
    Reader reader{kept_};
    std::vector<OpPlan> read;
    for (nb::handle plan : plans) read.push_back(reader.plan(nb::cast<nb::dict>(plan)));
    std::vector<std::unique_ptr<Op>> ops;
    std::vector<size_t> sizes = make_ops(read, input_shape, output, kernels.traits, ops);
    network_ = std::make_unique<Network>(std::move(sizes), std::move(ops), output, max_batch, threads, concurrency,
                                         kernels);
  }

  void run(nb::handle input, nb::handle output, size_t batch) const { run(input, output, batch, nullptr); }

  std::vector<double> time(nb::handle input, nb::handle output, size_t batch) const {
    std::vector<double> seconds(network_->operators(), 0.0);
    run(input, output, batch, seconds.data());
    return seconds;
  }

  nb::tuple memory(const std::optional<std::string>& isa, size_t max_batch, int threads) const {
    const NetworkMemory memory =
        network_->memory({isa ? traits_named(*isa) : network_->traits(),
                          max_batch == 0 ? network_->max_batch() : max_batch, threads == 0 ? network_->threads() : threads});
    return nb::make_tuple(memory.tables, memory.arena, memory.arenas);
  }

 private:
  void run(nb::handle input, nb::handle output, size_t batch, double* seconds) const {
    const Buffer in(input, false), out(output, true);
    require(in.bytes() == batch * network_->input_size() * sizeof(float), "an input of another size");
    require(out.bytes() == batch * network_->output_size() * sizeof(float), "an output of another size");
    nb::gil_scoped_release release;
    network_->run(static_cast<const float*>(in.data()), batch, static_cast<float*>(out.data()), seconds);
  }

  std::vector<Buffer> kept_;
  std::unique_ptr<Network> network_;
};

}  // namespace

void bind_network(nb::module_& m) {
  nb::class_<PyNetwork>(m, "Network", "A planned network: one call runs all of it.")
      .def(nb::init<const nb::list&, const std::vector<size_t>&, size_t, size_t, int, size_t,
                    const std::optional<std::string>&>(),
           "plans"_a, "input_shape"_a, "output"_a, "max_batch"_a = 1, "threads"_a = 0, "concurrency"_a = 1,
           "isa"_a = nb::none())
      .def("run", nb::overload_cast<nb::handle, nb::handle, size_t>(&PyNetwork::run, nb::const_), "input"_a,
           "output"_a, "batch"_a, "Run a batch: contiguous float32 arrays in and out. The GIL is released.")
      .def("time", &PyNetwork::time, "input"_a, "output"_a, "batch"_a,
           "Run a batch, and say how many seconds each operator took.")
      .def("memory", &PyNetwork::memory, "isa"_a = nb::none(), "max_batch"_a = 0, "threads"_a = 0,
           "Bytes of the load-time tables and of an arena, and how many arenas: here, or on any instruction set.");
  std::vector<std::string> names;
  for (const Traits* traits : kEveryTraits) names.emplace_back(traits->name);
  m.def("known_isas", [names] { return names; }, "Every instruction set that there are kernels for, here or elsewhere.");
}

}  // namespace membound
