// The C runtime of microcontrollers for Python: the same sources, so the same bits.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings.h"
#include "membound_micro.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<int8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// A record of membound.micro.plan, whose arrays are kept for as long as the network lives.
class Record {
 public:
  Record(nb::handle dict, nb::list& kept) : dict_(nb::cast<nb::dict>(dict)), kept_(kept) {}

  template <class T>
  void number(const char* name, T& out) const {
    out = nb::cast<T>(dict_[name]);
  }

  template <class T>
  void array(const char* name, const T*& out) const {
    const nb::object item = dict_[name];
    if (item.is_none()) return;
    kept_.append(item);
    out = static_cast<const T*>(nb::cast<nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>>(item).data());
  }

  // Another record inside, or nothing.
  nb::object inside(const char* name) const { return dict_[name]; }

 private:
  nb::dict dict_;
  nb::list& kept_;
};

mb_value read_value(const Record& from) {
  mb_value to{};
  from.number("at", to.at);
  from.number("pitch", to.pitch);
  from.number("height", to.height);
  from.number("width", to.width);
  from.number("stride", to.stride);
  from.number("rows", to.rows);
  from.number("zero", to.zero);
  return to;
}

void read(const Record& from, mb_weight& to) {
  from.array("stream", to.stream);
  from.array("palette", to.palette);
  from.number("count", to.count);
  from.number("bits", to.bits);
  from.number("k", to.k);
  from.number("sparse", to.sparse);
}

void read(const Record& from, mb_scale& to) {
  from.array("bias", to.bias);
  from.array("multiplier", to.multiplier);
  from.array("shift", to.shift);
  from.array("table", to.table);
  from.number("each", to.each);
  from.number("narrow", to.narrow);
  from.number("lift", to.lift);
  from.number("up", to.up);
  from.number("zero", to.zero);
  from.number("low", to.low);
  from.number("high", to.high);
}

void read(const Record& from, mb_sum& to) {
  from.number("left", to.left);
  from.number("right", to.right);
  from.number("constant", to.constant);
  from.number("shift", to.shift);
  from.number("low", to.low);
  from.number("high", to.high);
}

void read(const Record& from, mb_pool& to) {
  from.number("height", to.height);
  from.number("width", to.width);
  from.number("kh", to.kh);
  from.number("kw", to.kw);
  from.number("sy", to.sy);
  from.number("sx", to.sx);
  from.number("pad_top", to.pad_top);
  from.number("pad_left", to.pad_left);
  from.number("top", to.top);
  from.number("left", to.left);
  from.number("bottom", to.bottom);
  from.number("right", to.right);
  from.number("mean", to.mean);
  from.number("each", to.each);
}

// What an operation points to, at a place that stays.
struct Parts {
  mb_weight weight{};
  mb_scale scale{};
  mb_sum sum{};
  mb_pool pool{};
};

template <class T>
const T* part(const Record& from, const char* name, T& to, nb::list& kept) {
  const nb::object inside = from.inside(name);
  if (inside.is_none()) return nullptr;
  read(Record(inside, kept), to);
  return &to;
}

mb_op read_op(const Record& from, Parts& parts, nb::list& kept) {
  mb_op to{};
  from.number("kind", to.kind);
  from.number("then", to.then);
  from.number("in", to.in);
  from.number("in2", to.in2);
  from.number("out", to.out);
  from.number("first", to.first);
  from.number("channels", to.channels);
  from.number("height", to.height);
  from.number("width", to.width);
  from.number("kh", to.kh);
  from.number("kw", to.kw);
  from.number("sy", to.sy);
  from.number("sx", to.sx);
  from.number("dy", to.dy);
  from.number("dx", to.dx);
  from.number("wait", to.wait);
  from.number("pad_top", to.pad_top);
  from.number("pad_left", to.pad_left);
  from.number("group_in", to.group_in);
  from.number("group_out", to.group_out);
  from.number("state", to.state);
  to.weight = part(from, "weight", parts.weight, kept);
  to.scale = part(from, "scale", parts.scale, kept);
  to.sum = part(from, "sum", parts.sum, kept);
  to.pool = part(from, "pool", parts.pool, kept);
  return to;
}

// A network with its constants; a call has counters and an arena of its own, so that many may run at once.
class Micro {
 public:
  Micro(const nb::dict& net, const nb::list& values, const nb::list& ops, uint32_t arena_bytes)
      : parts_(nb::len(ops)), arena_((arena_bytes + 3) / 4) {
    const Record from(net, kept_);
    from.array("input", net_.input);
    from.number("sums", net_.sums);
    from.number("entries", net_.entries);
    from.number("op_count", net_.op_count);
    from.number("value_count", net_.value_count);
    from.number("output", net_.output);
    from.number("input_shift", net_.input_shift);
    from.number("whole", net_.whole);
    for (const nb::handle value : values) values_.push_back(read_value(Record(value, kept_)));
    for (size_t i = 0; i < parts_.size(); i++) ops_.push_back(read_op(Record(ops[i], kept_), parts_[i], kept_));
    net_.values = values_.data();
    net_.ops = ops_.data();
    plain_.assign(2 * (values_[0].pitch / values_[0].stride), 0);
    for (size_t i = 0; i < plain_.size(); i += 2) {
      plain_[i] = INT32_C(1) << net_.input_shift;
      plain_[i + 1] = -128 * plain_[i];
    }
  }

  // Images [n, C H W] of bytes; outputs [n, C H W]. Bytes that are not `pixels` are numbers as the network has them + 128.
  void run(const Bytes& images, const Numbers& out, bool pixels) const {
    const mb_value &in = values_[0], &last = values_[net_.output];
    const uint32_t channels = in.pitch / in.stride, size = uint32_t(in.height) * in.width;
    const uint32_t outputs = last.pitch / last.stride;
    if (images.shape(1) != size_t(channels) * size || out.shape(0) != images.shape(0) ||
        out.shape(1) != size_t(outputs) * last.height * last.width)
      throw nb::value_error("arrays of other sizes than the network's");
    nb::gil_scoped_release release;
    mb_net net = net_;
    if (!pixels) net.input = plain_.data();
    std::vector<uint16_t> counters(size_t(net.op_count) + net.value_count);
    std::vector<uint32_t> arena(arena_);
    for (size_t n = 0; n < images.shape(0); n++) {
      const uint8_t* image = images.data() + n * images.shape(1);
      int8_t* to = out.data() + n * out.shape(1);
      mb_start(&net, counters.data());
      for (uint32_t y = 0; y < in.height; y++)
        mb_feed_row(&net, counters.data(), arena.data(), image + size_t(y) * in.width, size, 1);
      for (uint32_t c = 0; c < outputs; c++)
        for (uint32_t y = 0; y < last.height; y++)
          for (uint32_t x = 0; x < last.width; x++) *to++ = mb_output(&net, arena.data(), c, y, x);
    }
  }

 private:
  nb::list kept_;
  mb_net net_{};
  std::vector<mb_value> values_;
  std::vector<Parts> parts_;
  std::vector<mb_op> ops_;
  std::vector<int32_t> plain_;
  size_t arena_;  // in words
};

}  // namespace

void membound::bind_micro(nb::module_& m) {
  nb::class_<Micro>(m, "Micro", "A network in integers, run by the C sources of microcontrollers.")
      .def(nb::init<const nb::dict&, const nb::list&, const nb::list&, uint32_t>(), "net"_a, "values"_a, "ops"_a,
           "arena_bytes"_a,
           nb::sig("def __init__(self, net: dict[str, object], values: list[dict[str, object]], "
                   "ops: list[dict[str, object]], arena_bytes: int) -> None"))
      .def("run", &Micro::run, "images"_a, "out"_a, "pixels"_a,
           nb::sig("def run(self, images: numpy.typing.NDArray[numpy.uint8], out: numpy.typing.NDArray[numpy.int8], "
                   "pixels: bool) -> None"),
           "Run images [n, numbers] of bytes; the outputs are written.");
}
