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

Shape shape_of(const nb::handle& list) { return nb::cast<std::vector<size_t>>(list); }

struct Reader {
  std::vector<Buffer>& kept;

  const void* keep(nb::handle array, size_t bytes) {
    kept.emplace_back(array, false);
    require(kept.back().bytes() == bytes, "an array is not as large as its shape");
    const void* data = kept.back().data();
    return data;
  }

  Weight weight(const nb::dict& stored) {
    Matrix matrix;
    matrix.format = static_cast<Format>(get<int>(stored, "format"));
    matrix.rows = get<size_t>(stored, "rows");
    matrix.columns = get<size_t>(stored, "columns");
    matrix.entries = get<size_t>(stored, "entries");
    matrix.type = get<bool>(stored, "half") ? ValueType::f16 : ValueType::f32;
    matrix.index_bytes = get<int>(stored, "index_bytes");
    matrix.pointer_bytes = get<int>(stored, "pointer_bytes");
    const size_t all = matrix.rows * matrix.columns;
    require(all < (size_t{1} << 32) && matrix.entries < (size_t{1} << 32), "a weight of more than 2^32 elements");
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
      case Format::delta: matrix.index = keep(stored["index"], matrix.entries); break;
      default: require(false, "an unknown format");
    }
    return Weight(matrix);
  }

  // A small dense array, copied.
  std::vector<float> floats(nb::handle array, size_t size) {
    if (array.is_none()) return std::vector<float>(size, 0.0f);
    const Buffer buffer(array, false);
    require(buffer.bytes() == size * sizeof(float), "an array is not as large as its shape");
    const auto* from = static_cast<const float*>(buffer.data());
    return std::vector<float>(from, from + size);
  }
};

Fused fused_of(const nb::dict& plan) {
  const auto numbers = get<std::vector<double>>(plan, "act");
  Fused fused;
  fused.activation = static_cast<Activation>(static_cast<int>(numbers.at(0)));
  fused.first = static_cast<float>(numbers.at(1));
  fused.second = static_cast<float>(numbers.at(2));
  return fused;
}

Window window_of(const nb::dict& plan) {
  const auto w = get<std::vector<int>>(plan, "window");
  require(w.size() == 8, "a window has eight numbers");
  return {w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]};
}

std::unique_ptr<Op> make_op(const nb::dict& plan, Reader& reader, const Traits& traits) {
  const std::string op = get<std::string>(plan, "op");
  std::vector<Shape> shapes;
  for (nb::handle shape : nb::cast<nb::list>(plan["input_shapes"])) shapes.push_back(shape_of(shape));
  const Shape output = shape_of(plan["output_shape"]);
  const Shape& input = shapes.at(0);
  if (op == "conv") {
    Weight weight = reader.weight(nb::cast<nb::dict>(plan["weight"]));
    const size_t rows = weight.rows(), groups = get<size_t>(plan, "groups");
    const Window window = window_of(plan);
    require(input.size() == 3 && output.size() == 3 && output[0] == rows, "a convolution's shapes");
    require(groups > 0 && rows % groups == 0 && input[0] % groups == 0 &&
                weight.columns() == input[0] / groups * static_cast<size_t>(window.kernel_h * window.kernel_w),
            "a convolution's groups");
    return make_conv(input, output, std::move(weight), reader.floats(plan["bias"], rows), window, groups,
                     fused_of(plan), traits);
  }
  if (op == "linear") {
    Weight weight = reader.weight(nb::cast<nb::dict>(plan["weight"]));
    const size_t rows = weight.rows();
    require(!input.empty() && input.back() == weight.columns() && output.back() == rows, "a linear layer's shapes");
    return make_linear(elements(input) / input.back(), std::move(weight), reader.floats(plan["bias"], rows),
                       fused_of(plan));
  }
  if (op == "maxpool") return make_max_pool(input, output, window_of(plan));
  if (op == "avgpool") {
    const auto count = get<std::vector<double>>(plan, "count");
    return make_average_pool(input, output, window_of(plan),
                             Count{count.at(0) != 0, static_cast<int>(count.at(1)), static_cast<int>(count.at(2)),
                                   static_cast<float>(count.at(3))});
  }
  if (op == "adaptive") return make_adaptive_pool(input, output, get<bool>(plan, "average"));
  if (op == "lrn")
    return make_lrn(input, get<int>(plan, "size"), get<float>(plan, "alpha"), get<float>(plan, "beta"),
                    get<float>(plan, "k"));
  if (op == "act") return make_activation(elements(input), fused_of(plan));
  if (op == "binary") {
    const bool has_constant = !plan["constant"].is_none(), swap = get<bool>(plan, "swap");
    std::vector<float> constant;
    Shape left = input, right;
    if (has_constant) {
      right = shape_of(plan["constant_shape"]);
      constant = reader.floats(plan["constant"], elements(right));
      if (swap) std::swap(left, right);
    } else {
      right = shapes.at(1);
    }
    require(left.size() == output.size() && right.size() == output.size(), "operands of other axes");
    for (size_t i = 0; i < output.size(); ++i)
      require((left[i] == output[i] || left[i] == 1) && (right[i] == output[i] || right[i] == 1),
              "operands that do not fit");
    return make_binary(static_cast<Binary>(get<int>(plan, "kind")), left, right, output, std::move(constant),
                       has_constant, swap, fused_of(plan));
  }
  if (op == "concat") return make_concat(shapes, get<size_t>(plan, "axis"));
  if (op == "reshape" || op == "folded") return make_reshape(elements(input));  // neither does anything
  if (op == "permute") return make_permute(input, get<std::vector<size_t>>(plan, "axes"));
  if (op == "slice") {
    const size_t axis = get<size_t>(plan, "axis");
    return make_slice(input, axis, get<size_t>(plan, "start"), get<size_t>(plan, "step"), output.at(axis));
  }
  if (op == "mean") return make_mean(input, get<std::vector<size_t>>(plan, "axes"));
  if (op == "softmax") return make_softmax(input, get<size_t>(plan, "axis"), get<bool>(plan, "log"));
  if (op == "pad") {
    std::vector<std::array<size_t, 2>> pad;
    for (const auto& pair : get<std::vector<std::vector<size_t>>>(plan, "pad"))
      pad.push_back({pair.at(0), pair.at(1)});
    return make_pad(input, pad, get<float>(plan, "value"));
  }
  throw std::invalid_argument("an operator that cannot be run: " + op);
}

class PyNetwork {
 public:
  PyNetwork(const nb::list& plans, const std::vector<size_t>& input_shape, size_t output, size_t max_batch,
            int threads, size_t concurrency, const std::optional<std::string>& isa) {
    require(max_batch >= 1 && concurrency >= 1, "a batch or a number of calls below 1");
    const NetKernels& kernels = net_kernels(isa ? kernels_named(*isa) : chosen_kernels());
    Reader reader{kept_};
    std::vector<size_t> sizes{elements(input_shape)};
    std::vector<std::unique_ptr<Op>> ops;
    for (nb::handle handle : plans) {
      const nb::dict plan = nb::cast<nb::dict>(handle);
      ops.push_back(make_op(plan, reader, kernels.traits));
      ops.back()->inputs = get<std::vector<size_t>>(plan, "inputs");
      size_t at = 0;
      for (nb::handle shape : nb::cast<nb::list>(plan["input_shapes"])) {
        const size_t value = ops.back()->inputs.at(at++);
        require(value < sizes.size() && elements(shape_of(shape)) == sizes[value], "a value used before it is there");
      }
      require(at == ops.back()->inputs.size(), "inputs without shapes");
      sizes.push_back(elements(shape_of(plan["output_shape"])));
    }
    require(output < sizes.size(), "an output that is not there");
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
