// With bindings_network.cpp the only file that knows Python: checks arguments, releases the GIL, calls the core.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings.h"
#include "dispatch.h"
#include "project.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Weights = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Say what is wrong with an array that is not `Weights`.
[[noreturn]] void reject(nb::handle array) {
  const std::string wanted =
      "project() needs a writable, contiguous, one-dimensional float32 array on the CPU; ";
  nb::ndarray<nb::ro> any;
  if (!nb::try_cast(array, any, false)) {
    const std::string type = nb::cast<std::string>(nb::str(nb::inst_name(array)));
    throw nb::type_error((wanted + "got " + type).c_str());
  }
  if (any.dtype() != nb::dtype<float>())
    throw nb::type_error((wanted + "this one has another element type").c_str());
  if (any.device_type() != nb::device::cpu::value)
    throw nb::value_error((wanted + "this one is on another device").c_str());
  if (any.ndim() != 1)
    throw nb::value_error((wanted + "this one has " + std::to_string(any.ndim()) + " dimensions").c_str());
  if (any.shape(0) > 1 && any.stride(0) != 1)
    throw nb::value_error((wanted + "this one is not contiguous").c_str());
  throw nb::value_error((wanted + "this one is read-only").c_str());
}

int64_t project(nb::handle array, int64_t t, const std::optional<std::string>& isa, int threads) {
  Weights weights;
  if (!nb::try_cast(array, weights, false)) reject(array);
  if (threads < 0) throw nb::value_error("threads must be 0 (all CPUs) or positive");
  const membound::Kernels& kernels = isa ? membound::kernels_named(*isa) : membound::chosen_kernels();
  uint32_t* bits = reinterpret_cast<uint32_t*>(weights.data());
  const size_t n = weights.size();
  nb::gil_scoped_release release;
  return membound::project(bits, n, t, kernels, threads);
}

std::vector<std::string> isas() {
  std::vector<std::string> names;
  for (const membound::Kernels& table : membound::available_kernels()) names.emplace_back(table.name);
  return names;
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "The compiled core of membound.";
  m.attr("version") = MEMBOUND_VERSION;
  m.def("isas", isas, "The instruction sets available here, best last.");
  m.def("isa", [] { return std::string(membound::chosen_kernels().name); },
        "The instruction set in use: the best, or the one that MEMBOUND_ISA names.");
  m.def("project", project, "array"_a, "t"_a, "isa"_a = nb::none(), "threads"_a = 0,
        nb::sig("def project(array: numpy.typing.NDArray[numpy.float32], t: int, isa: str | None = None, threads: int = 0) -> int"),
        "Keep the t values of largest magnitude, in place, and set all others to +0.0.\n\n"
        "Of equal magnitudes the earlier are kept; zeros never are. Returns how many are kept, or -1, with\n"
        "nothing written, if a value is infinite or NaN. threads = 0 uses every CPU.");
  membound::bind_network(m);
  membound::bind_micro(m);
}
