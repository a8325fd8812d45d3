// Tests of networks without Python, for sanitizers and emulators.
//
//   test_network                             every operator, format, instruction set and number of threads
//   test_network --cases 10000 [--seed 1]    random layers as well; ends with one line of JSON
//   test_network --share 9                   one of nine of all this
//   test_network --emulated no               without AVX-512 in plain C++, which takes most of the time
//   test_network --only concurrent           several callers at once, and nothing else
//   test_network --only rooms                convolutions with more room, and of many images at once
//   test_network --only products             layers that cross every block of the products
//
// The references are plain loops in double precision. Every array has exactly the size it must have, so that a
// sanitizer sees any step beyond it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dispatch.h"
#include "network.h"
#include "plan.h"

namespace membound {
const NetKernels& emulated_avx512_net_kernels();
constexpr const char* kEmulated = "emulated avx512";
}

namespace {

using namespace membound;
using Random = std::mt19937_64;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

constexpr Format kFormats[] = {Format::dense, Format::bitmask, Format::indexed, Format::csr, Format::delta, Format::rice};

size_t g_checks = 0, g_mismatches = 0;
size_t g_share = 1, g_asked = 0;  // one of so many checks is made

struct Table {
  std::string name;
  const NetKernels& kernels;
};

bool g_native = false;  // leaves out AVX-512 in plain C++

// What this machine has, and AVX-512 in plain C++.
const std::vector<Table>& tables() {
  static const std::vector<Table> found = [] {
    std::vector<Table> all;
    for (const Kernels& kernels : available_kernels()) all.push_back({kernels.name, net_kernels(kernels)});
    if (!g_native) all.push_back({kEmulated, emulated_avx512_net_kernels()});
    return all;
  }();
  return found;
}

size_t below(Random& random, size_t limit) { return random() % limit; }
size_t between(Random& random, size_t low, size_t high) { return low + random() % (high - low + 1); }

float bell(Random& random) {
  const uint64_t r = random();
  return (float(r & 0xffff) + float(r >> 16 & 0xffff) + float(r >> 32 & 0xffff) + float(r >> 48) - 131070.0f) * 2e-5f;
}

Floats numbers(size_t n, Random& random) {
  Floats found(n);
  for (float& x : found) x = bell(random);
  return found;
}

// --- weights ---

double half_value(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -size : size;
}

uint16_t any_half(Random& random) {  // of magnitude 2^-6 to 2, or subnormal
  const uint16_t bits = static_cast<uint16_t>(random() & 0x83ff);
  return below(random, 20) == 0 ? static_cast<uint16_t>(bits | 1) : static_cast<uint16_t>(bits | (9 + below(random, 7)) << 10);
}

// What values are, and whether each row has a scale.
struct Kind {
  ValueType type;
  bool scaled;
  std::string name() const { return std::string(" ") + kValueTypeNames[int(type)] + (scaled ? " scaled" : ""); }
};

constexpr Kind kSingles{ValueType::f32, false}, kHalves{ValueType::f16, false};

Kind any_codes(Random& random) { return {ValueType(between(random, int(ValueType::p1), int(ValueType::p8))), below(random, 2) == 0}; }
Kind any_kind(Random& random) {  // as often numbers as codes
  if (below(random, 2)) return any_codes(random);
  return {below(random, 2) ? ValueType::f16 : ValueType::f32, below(random, 3) == 0};
}

// Numbers of so many bits one behind the other, lowest first.
class Bits {
 public:
  void push(uint64_t number, unsigned bits) {
    for (unsigned i = 0; i < bits; ++i, ++count_) {
      if (count_ % 8 == 0) bytes.push_back(0);
      bytes.back() = static_cast<uint8_t>(bytes.back() | (number >> i & 1) << count_ % 8);
    }
  }
  std::vector<uint8_t> bytes;

 private:
  size_t count_ = 0;
};

// A random matrix in a storage format, and its elements.
struct Stored {
  Matrix matrix;
  Doubles elements;
  Floats singles, palette, scales;
  std::vector<uint16_t> halves, index16, pointers16;
  std::vector<uint32_t> index32, pointers32;
  std::vector<uint8_t> index8;
  Bits codes, high, low;

  Stored(size_t rows, size_t columns, double density, Format format, Kind kind, Random& random)
      : elements(rows * columns, 0.0) {
    const size_t all = rows * columns;
    const unsigned bits = code_bits(kind.type);
    const bool half = kind.type == ValueType::f16;
    uint16_t zero = 0;  // what fillers are, and what a dense weight has where nothing is
    if (bits > 1 && below(random, 3) == 0) {  // equal steps
      zero = static_cast<uint16_t>(1 << (bits - 1));
      const float step = bell(random) + 1e-3f;
      for (int code = 0; code < 1 << bits; ++code) palette.push_back(static_cast<float>(code - zero) * step);
    } else if (bits > 0) {  // any entries, and perhaps fewer than there are codes
      palette = {0.0f};
      while (palette.size() < (size_t{1} << bits) && below(random, 30) > 0) palette.push_back(bell(random) + 1e-3f);
    }
    std::vector<uint16_t> raw(all, zero);  // a half or a code
    std::vector<bool> there(all, false);
    for (size_t row = 0; row < rows; ++row) {
      const bool empty = density < 1 && below(random, 4) == 0;
      for (size_t i = row * columns; i < (row + 1) * columns; ++i) {
        if (empty || double(random() >> 11) * 0x1p-53 >= density) continue;
        there[i] = true;
        raw[i] = bits > 0 ? static_cast<uint16_t>(below(random, palette.size())) : any_half(random);
        elements[i] = bits > 0 ? double(palette[raw[i]]) : half ? half_value(raw[i]) : double(bell(random) + 1e-3f);
        if (elements[i] == 0 && bits == 0) elements[i] = half ? half_value(raw[i] = 0x3c00) : 1.0;
      }
    }
    matrix.format = format;
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.type = kind.type;
    const auto push = [&](size_t i, bool filler) {
      ++matrix.entries;
      if (bits > 0) codes.push(filler ? zero : raw[i], bits);
      else if (half) halves.push_back(filler ? uint16_t{0} : raw[i]);
      else singles.push_back(filler ? 0.0f : static_cast<float>(elements[i]));
    };
    const unsigned k = format == Format::rice ? static_cast<unsigned>(below(random, 16)) : 0;
    size_t expected = 0, total = 0;  // the position after the last entry; nonzeros
    if (format == Format::bitmask) index8.assign((all + 7) / 8, 0);
    std::vector<size_t> starts;
    for (size_t i = 0; i < all; ++i) {
      if (i % columns == 0) starts.push_back(total);
      if (format != Format::dense && !there[i]) continue;
      ++total;
      if (format == Format::bitmask) index8[i / 8] = static_cast<uint8_t>(index8[i / 8] | 1u << i % 8);
      if (format == Format::indexed) index32.push_back(static_cast<uint32_t>(i));
      if (format == Format::csr && columns <= 65536) index16.push_back(static_cast<uint16_t>(i % columns));
      if (format == Format::csr && columns > 65536) index32.push_back(static_cast<uint32_t>(i % columns));
      if (format == Format::delta) {
        for (; i - expected > 255; expected += 256) {
          index8.push_back(255);
          push(0, true);
        }
        index8.push_back(static_cast<uint8_t>(i - expected));
      }
      if (format == Format::rice) {
        for (size_t zeros = (i - expected) >> k; zeros > 0; --zeros) high.push(0, 1);
        high.push(1, 1);
        low.push(i - expected, k);
      }
      expected = i + 1;
      push(i, false);
    }
    starts.push_back(total);
    if (format == Format::csr && total <= 65535) pointers16.assign(starts.begin(), starts.end());
    if (format == Format::csr && total > 65535) pointers32.assign(starts.begin(), starts.end());
    fit(halves), fit(singles), fit(index8), fit(index16), fit(index32), fit(pointers16), fit(pointers32);
    fit(codes.bytes), fit(high.bytes), fit(low.bytes);
    matrix.values = bits > 0 ? codes.bytes.data() : half ? static_cast<const void*>(halves.data()) : singles.data();
    if (format == Format::bitmask || format == Format::delta) matrix.index = index8.data(), matrix.index_bytes = 1;
    if (format == Format::indexed || (format == Format::csr && columns > 65536))
      matrix.index = index32.data(), matrix.index_bytes = 4;
    if (format == Format::csr && columns <= 65536) matrix.index = index16.data(), matrix.index_bytes = 2;
    if (format == Format::csr && total <= 65535) matrix.pointers = pointers16.data(), matrix.pointer_bytes = 2;
    if (format == Format::csr && total > 65535) matrix.pointers = pointers32.data(), matrix.pointer_bytes = 4;
    if (format == Format::rice) {
      matrix.index = high.bytes.data(), matrix.index_bytes = 1, matrix.high_bytes = high.bytes.size();
      matrix.pointers = low.bytes.data(), matrix.pointer_bytes = 1, matrix.parameter = static_cast<int>(k);
    }
    if (bits > 0) {
      palette = padded_palette(kind.type, palette.data(), palette.size());
      matrix.palette = palette.data();
    }
    if (kind.scaled) {
      for (size_t row = 0; row < rows; ++row) {
        scales.push_back(bell(random) + 1.5f);
        for (size_t i = row * columns; i < (row + 1) * columns; ++i) elements[i] *= double(scales[row]);
      }
      matrix.scales = scales.data();
    }
    const ArrayBytes wanted = array_bytes(matrix);  // throws where something is missing
    if (bits > 0 && wanted.values != codes.bytes.size()) throw std::logic_error("codes of another size");
    if (format == Format::rice && wanted.pointers != low.bytes.size()) throw std::logic_error("low parts of another size");
  }
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;

 private:
  template <class T>
  static void fit(std::vector<T>& array) { std::vector<T>(array.begin(), array.end()).swap(array); }
};

// --- a network and its reference ---

using Maker = std::function<std::unique_ptr<Op>(const NetKernels&)>;

struct Built {
  explicit Built(size_t input) : sizes(1, input) {}

  std::vector<size_t> sizes;  // of each value
  // Operators are made anew for each run; the reference fills the value that it is given. Those of products can also say
  // how large the terms of each sum are, in all: what rounding is measured by, since the sum itself may cancel.
  std::vector<Maker> makers;
  std::vector<std::vector<size_t>> inputs;
  std::vector<std::function<void(const std::vector<const double*>&, double*)>> references;
  std::function<void(const std::vector<const double*>&, double*)> sizes_of_sums;  // of the last operator
  std::vector<std::shared_ptr<Stored>> weights;

  size_t add(size_t size, std::vector<size_t> from, Maker maker,
             std::function<void(const std::vector<const double*>&, double*)> reference) {
    sizes.push_back(size);
    inputs.push_back(std::move(from));
    makers.push_back(std::move(maker));
    references.push_back(std::move(reference));
    return sizes.size() - 1;
  }

  // What comes out; and if it is one product, the sizes of its sums.
  Doubles expect(const Floats& input, size_t batch, Doubles* sums = nullptr) const {
    Doubles found;
    for (size_t n = 0; n < batch; ++n) {
      std::vector<Doubles> values{Doubles(input.begin() + long(n * sizes[0]), input.begin() + long((n + 1) * sizes[0]))};
      for (size_t i = 0; i < references.size(); ++i) {
        std::vector<const double*> from;
        for (size_t value : inputs[i]) from.push_back(values[value].data());
        Doubles out(sizes[i + 1]);
        if (sums && sizes_of_sums && references.size() == 1) {
          sizes_of_sums(from, out.data());
          sums->insert(sums->end(), out.begin(), out.end());
        }
        references[i](from, out.data());
        values.push_back(std::move(out));
      }
      found.insert(found.end(), values.back().begin(), values.back().end());
    }
    return found;
  }

  std::unique_ptr<Network> network(size_t max_batch, int threads, size_t calls, const NetKernels& kernels) const {
    std::vector<std::unique_ptr<Op>> ops;
    for (size_t i = 0; i < makers.size(); ++i) {
      ops.push_back(makers[i](kernels));
      ops.back()->inputs = inputs[i];
    }
    return std::make_unique<Network>(sizes, std::move(ops), std::vector<size_t>{makers.size()}, max_batch, threads, calls, kernels);
  }
};

bool agrees(const Floats& found, const Doubles& wanted, double tolerance) {
  double largest = 1e-3;
  for (double x : wanted) largest = std::max(largest, std::isfinite(x) ? std::fabs(x) : 0.0);
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!(std::fabs(found[i] - wanted[i]) <= tolerance * largest) && double(found[i]) != wanted[i]) return false;
  return true;
}

// Each output by the size of its own sum: 16 units in the last place.
bool agrees(const Floats& found, const Doubles& wanted, const Doubles& sums) {
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!(std::fabs(found[i] - wanted[i]) <= 0x1p-20 * sums[i])) return false;
  return true;
}

void check(const std::string& what, const Built& built, Random& random, double tolerance = 1e-5, int most_threads = 3) {
  if (g_asked++ % g_share != 0) return;
  const size_t batch = between(random, 1, 5);
  const Floats input = numbers(batch * built.sizes[0], random);
  Doubles sums;
  const Doubles wanted = built.expect(input, batch, &sums);
  const uint64_t seed = random();  // so that what comes next does not depend on how many instruction sets there are
  for (const auto& [name, kernels] : tables())
    for (int threads = 1; threads <= most_threads; ++threads) {
      Random own(seed + uint64_t(threads));
      const size_t max_batch = between(own, 1, 4);
      const auto network = built.network(max_batch, threads, 1, kernels);
      Floats found(batch * built.sizes.back(), std::numeric_limits<float>::quiet_NaN());
      for (int again = 0; again < 2; ++again) network->run(input.data(), batch, found.data());
      ++g_checks;
      if (sums.empty() ? agrees(found, wanted, tolerance) : agrees(found, wanted, sums)) continue;
      ++g_mismatches;
      std::fprintf(stderr, "MISMATCH %s: isa=%s threads=%d batch=%zu max_batch=%zu\n", what.c_str(), name.c_str(),
                   threads, batch, max_batch);
    }
}

double activated(double x, Activation kind) {
  return kind == Activation::relu ? std::max(x, 0.0) : kind == Activation::clip ? std::clamp(x, -1.0, 2.0) : x;
}

Fused fused_of(Activation kind) { return {kind, -1.0f, 2.0f}; }

struct ConvShape {
  size_t channels, height, width, outputs, groups;
  Window window;
  size_t bottom, right;  // padding

  size_t out_h() const { return out(height + bottom, window.pad_top, window.kernel_h, window.dilation_h, window.stride_h); }
  size_t out_w() const { return out(width + right, window.pad_left, window.kernel_w, window.dilation_w, window.stride_w); }
  static size_t out(size_t size, int pad, int kernel, int dilation, int stride) {
    const long room = long(size) + pad - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : size_t(room / stride + 1);
  }
};

void add_conv(Built& built, size_t from, const ConvShape& shape, std::shared_ptr<Stored> weight, Activation act,
              Random& random) {
  const size_t pixels = shape.out_h() * shape.out_w();
  const Floats bias = numbers(shape.outputs, random);
  built.weights.push_back(weight);
  const auto reference = [=](const std::vector<const double*>& x, double* y, bool sizes) {
    const Window& w = shape.window;
    const size_t each_in = shape.channels / shape.groups, each_out = shape.outputs / shape.groups;
    const auto term = [=](double value) { return sizes ? std::fabs(value) : value; };
    for (size_t o = 0; o < shape.outputs; ++o)
      for (size_t i = 0; i < shape.out_h(); ++i)
        for (size_t j = 0; j < shape.out_w(); ++j) {
          double sum = term(bias[o]);
          size_t column = 0;
          for (size_t c = 0; c < each_in; ++c)
            for (int r = 0; r < w.kernel_h; ++r)
              for (int s = 0; s < w.kernel_w; ++s, ++column) {
                const long h = long(i) * w.stride_h - w.pad_top + r * w.dilation_h;
                const long v = long(j) * w.stride_w - w.pad_left + s * w.dilation_w;
                if (h < 0 || v < 0 || h >= long(shape.height) || v >= long(shape.width)) continue;
                const size_t channel = o / each_out * each_in + c;
                sum += term(weight->elements[o * weight->matrix.columns + column] *
                            x[0][(channel * shape.height + size_t(h)) * shape.width + size_t(v)]);
              }
          *y++ = sizes ? sum : activated(sum, act);
        }
  };
  built.add(
      shape.outputs * pixels, {from},
      [=](const NetKernels& kernels) {
        return make_conv({shape.channels, shape.height, shape.width}, {shape.outputs, shape.out_h(), shape.out_w()},
                         Weight(weight->matrix), bias, shape.window, shape.groups, fused_of(act), kernels.traits);
      },
      [=](const std::vector<const double*>& x, double* y) { reference(x, y, false); });
  built.sizes_of_sums = [=](const std::vector<const double*>& x, double* y) { reference(x, y, true); };
}

void add_linear(Built& built, size_t from, size_t vectors, std::shared_ptr<Stored> weight, Activation act,
                Random& random) {
  const size_t rows = weight->matrix.rows, columns = weight->matrix.columns;
  const Floats bias = numbers(rows, random);
  built.weights.push_back(weight);
  const auto reference = [=](const std::vector<const double*>& x, double* y, bool sizes) {
    const auto term = [=](double value) { return sizes ? std::fabs(value) : value; };
    for (size_t n = 0; n < vectors; ++n)
      for (size_t row = 0; row < rows; ++row) {
        double sum = term(bias[row]);
        for (size_t k = 0; k < columns; ++k) sum += term(weight->elements[row * columns + k] * x[0][n * columns + k]);
        *y++ = sizes ? sum : activated(sum, act);
      }
  };
  built.add(
      vectors * rows, {from}, [=](const NetKernels& kernels) {
        return make_linear(vectors, Weight(weight->matrix), bias, fused_of(act), kernels.traits);
      },
      [=](const std::vector<const double*>& x, double* y) { reference(x, y, false); });
  built.sizes_of_sums = [=](const std::vector<const double*>& x, double* y) { reference(x, y, true); };
}

void check_conv(const ConvShape& shape, double density, Format format, Kind kind, Random& random, int threads = 3) {
  const size_t columns = shape.channels / shape.groups * size_t(shape.window.kernel_h * shape.window.kernel_w);
  const Activation act = Activation(below(random, 4) % 2 ? 0 : below(random, 2) ? 1 : 3);
  Built built(shape.channels * shape.height * shape.width);
  add_conv(built, 0, shape, std::make_shared<Stored>(shape.outputs, columns, density, format, kind, random), act, random);
  char what[200];
  std::snprintf(what, sizeof what, "conv %zux%zux%zu -> %zu, %dx%d / %d,%d pad %d,%d,%zu,%zu dilation %d,%d groups %zu, "
                "%s%s density %g", shape.channels, shape.height, shape.width, shape.outputs, shape.window.kernel_h,
                shape.window.kernel_w, shape.window.stride_h, shape.window.stride_w, shape.window.pad_top,
                shape.window.pad_left, shape.bottom, shape.right, shape.window.dilation_h, shape.window.dilation_w,
                shape.groups, kFormatNames[int(format)], kind.name().c_str(), density);
  check(what, built, random, 0, threads);
}

void check_linear(size_t vectors, size_t rows, size_t columns, double density, Format format, Kind kind, Random& random) {
  Built built(vectors * columns);
  add_linear(built, 0, vectors, std::make_shared<Stored>(rows, columns, density, format, kind, random),
             Activation(below(random, 2)), random);
  char what[200];
  std::snprintf(what, sizeof what, "linear %zu x %zu -> %zu, %s%s density %g", vectors, columns, rows,
                kFormatNames[int(format)], kind.name().c_str(), density);
  check(what, built, random);
}

const double kDensities[] = {1.0, 0.5, 0.1, 0.02, 0.0};

// Layers that cross every block of the products.
void check_products(Random& random) {
  const ConvShape convs[] = {
      {40, 13, 13, 24, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1},  {3, 30, 31, 17, 1, {5, 5, 2, 2, 2, 1, 1, 1}, 0, 3},
      {2, 40, 130, 5, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1},   {1, 1, 2500, 3, 1, {1, 9, 1, 1, 0, 4, 1, 1}, 0, 4},
      {1, 900, 1, 3, 1, {9, 1, 1, 1, 4, 0, 1, 1}, 4, 0},    {300, 1, 1, 40, 1, {1, 1, 1, 1, 0, 0, 1, 1}, 0, 0},
      {300, 3, 2, 9, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1},    {12, 9, 9, 12, 12, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1},
      {8, 12, 11, 20, 4, {3, 2, 2, 3, 1, 0, 2, 1}, 0, 1},   {3, 27, 27, 9, 1, {2, 2, 5, 4, 0, 0, 1, 1}, 0, 0},
      {2, 4, 4, 6, 1, {3, 3, 1, 1, 9, 7, 1, 1}, 11, 5},     {5, 1, 1, 7, 1, {1, 1, 99, 99, 0, 0, 1, 1}, 0, 0},
      {3, 5, 245, 6, 3, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1},    {3, 9, 121, 3, 3, {5, 5, 2, 2, 1, 2, 1, 1}, 2, 2},
      {20, 3, 230, 5, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1},   {70, 32, 32, 3, 1, {1, 1, 1, 1, 0, 0, 1, 1}, 0, 0},
      {11, 7, 7, 11, 11, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1},   {9, 5, 9, 9, 9, {5, 5, 1, 1, 2, 2, 1, 1}, 2, 2},
      {3, 8, 8, 3, 3, {3, 3, 1, 1, 2, 0, 1, 1}, 0, 2},      {4, 1, 2, 4, 4, {5, 5, 1, 1, 4, 1, 1, 1}, 0, 3},
      // Nearly 256 columns at once, in rows that begin within a byte of their bits.
      {507, 5, 5, 16, 1, {1, 1, 1, 1, 0, 0, 1, 1}, 0, 0},   {1021, 3, 3, 9, 1, {1, 1, 1, 1, 0, 0, 1, 1}, 0, 0},
  };
  for (Format format : kFormats)
    for (double density : kDensities) {
      for (const ConvShape& shape : convs) check_conv(shape, density, format, any_kind(random), random, 2);
      for (const Kind kind : {kSingles, kHalves, any_codes(random), any_codes(random)}) {
        for (size_t vectors : {1, 2, 5, 19}) check_linear(vectors, 37, 300, density, format, kind, random);
        check_linear(1, 1, 1, density, format, kind, random);
        check_linear(1, 2, 1, density, format, kind, random);
        check_linear(2, 700, 120, density, format, kind, random);
      }
    }
  for (Format format : kFormats)
    for (double density : {0.001, 0.01})
      for (size_t columns : {65535, 65536, 65537, 70001}) check_linear(1, 4, columns, density, format, any_kind(random), random);
}

// A convolution with the room that it needs, with the room that it likes, and of many images at once, one behind the other and side
// by side: the same bits.
struct Rooms {
  using Room = std::unique_ptr<float, decltype(&std::free)>;
  static Room room(size_t floats) {
    const size_t bytes = (floats * sizeof(float) + 63) / 64 * 64;
    float* found = static_cast<float*>(std::aligned_alloc(64, bytes));
    std::fill_n(found, bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN());  // nothing is expected to be there
    return {found, &std::free};
  }

  static Floats run(const Op& op, const Floats& input, size_t in, size_t out, size_t batch, size_t at_once, int threads,
                    bool roomy, const NetKernels& kernels) {
    const Needs needs = roomy ? op.likes(at_once, kernels.traits) : op.needs(at_once, kernels.traits);
    const size_t worker = with_slack(needs.worker);
    const auto shared = room(with_slack(needs.shared)), workers = room(worker * size_t(threads));
    const auto x = room(at_once * in + kSlack), y = room(at_once * out + kSlack);
    Floats found;
    for (size_t n = 0; n < batch; n += at_once) {
      std::fill_n(std::copy_n(input.data() + n * in, at_once * in, x.get()), kSlack, 0.0f);
      const float* inputs[] = {x.get()};
      op.run(inputs, y.get(), at_once, Workplace{kernels, threads, shared.get(), workers.get(), worker, roomy});
      found.insert(found.end(), y.get(), y.get() + at_once * out);
    }
    return found;
  }

  // As many images as there are lanes; the input `parted`, or side by side as the output is.
  static Floats run_together(const Op& op, const Floats& input, size_t in, size_t out, bool parted, int threads, const NetKernels& kernels) {
    const Needs needs = op.needs_together(parted, kernels.traits);
    const size_t lanes = size_t(kernels.traits.width), worker = with_slack(needs.worker);
    const auto shared = room(with_slack(needs.shared)), workers = room(worker * size_t(threads));
    const auto x = room(lanes * in), y = room(lanes * out);
    for (size_t n = 0; n < lanes; ++n)
      for (size_t i = 0; i < in; ++i) x.get()[parted ? n * in + i : i * lanes + n] = input[n * in + i];
    const Beside inputs[] = {{x.get(), !parted}};
    op.run_together(inputs, y.get(), Workplace{kernels, threads, shared.get(), workers.get(), worker});
    Floats found(lanes * out);
    for (size_t n = 0; n < lanes; ++n)
      for (size_t i = 0; i < out; ++i) found[n * out + i] = y.get()[i * lanes + n];
    return found;
  }
};

void check_rooms(Random& random) {
  const ConvShape convs[] = {
      {20, 14, 14, 48, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1},  {12, 29, 28, 40, 1, {3, 3, 2, 2, 1, 1, 1, 1}, 1, 1},
      {24, 16, 31, 60, 2, {5, 3, 1, 2, 2, 0, 1, 1}, 2, 1},  {9, 40, 50, 64, 1, {3, 3, 1, 1, 2, 2, 2, 2}, 2, 2},
      {7, 26, 40, 90, 1, {2, 4, 1, 3, 0, 3, 1, 1}, 1, 2},   {33, 7, 7, 40, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1},
      {30, 8, 8, 25, 5, {5, 5, 1, 1, 2, 2, 1, 1}, 2, 2},    {200, 7, 6, 130, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1},
      {16, 9, 12, 20, 1, {3, 3, 1, 1, 0, 0, 2, 2}, 0, 0},   {11, 3, 3, 30, 1, {2, 3, 1, 1, 3, 2, 1, 1}, 0, 1},
      {150, 7, 7, 40, 1, {1, 1, 1, 1, 0, 0, 1, 1}, 0, 0},   {300, 21, 23, 36, 1, {1, 1, 1, 1, 0, 0, 1, 1}, 0, 0},
      {40, 14, 13, 24, 2, {3, 3, 2, 3, 1, 1, 1, 1}, 1, 1},  {37, 9, 15, 37, 37, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1},
      {21, 17, 29, 21, 21, {5, 3, 2, 2, 2, 1, 1, 1}, 2, 1}, {48, 12, 15, 30, 1, {1, 1, 2, 2, 0, 0, 1, 1}, 0, 0},
      {24, 8, 8, 90, 1, {1, 1, 1, 1, 0, 0, 1, 1}, 0, 0},
      // So large that each tile is laid out for itself.
      {52, 37, 36, 24, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1},  {60, 41, 33, 20, 2, {5, 3, 1, 1, 4, 0, 2, 1}, 3, 1},
  };
  constexpr size_t kBatch = 19, kExpected = 2;
  size_t roomy = 0, together = 0, of_lines = 0, banded = 0;
  for (Format format : kFormats)
    for (const ConvShape& shape : convs) {
      if (g_asked++ % g_share != 0) continue;
      const size_t columns = shape.channels / shape.groups * size_t(shape.window.kernel_h * shape.window.kernel_w);
      Built built(shape.channels * shape.height * shape.width);
      add_conv(built, 0, shape, std::make_shared<Stored>(shape.outputs, columns, 0.15, format, any_kind(random), random),
               Activation::relu, random);
      const size_t in = built.sizes[0], out = built.sizes[1];
      const Floats input = numbers(kBatch * in, random);
      Doubles sums;
      const Doubles wanted = built.expect(input, kExpected, &sums);
      for (const auto& [name, kernels] : tables()) {
        const auto op = built.makers[0](kernels);
        const Floats alone = Rooms::run(*op, input, in, out, kBatch, 1, 1, false, kernels);
        const bool likes = !(op->likes(1, kernels.traits) == op->needs(1, kernels.traits));
        bool same = agrees(alone, wanted, sums);
        for (int threads : {1, 3}) {
          same = same && Rooms::run(*op, input, in, out, kBatch, kBatch, threads, false, kernels) == alone;
          if (likes) same = same && Rooms::run(*op, input, in, out, kBatch, 1, threads, true, kernels) == alone;
        }
        const bool side_by_side = op->takes_together(kernels.traits);
        const Floats first(alone.begin(), alone.begin() + std::ptrdiff_t(size_t(kernels.traits.width) * out));
        for (int threads : {1, 3})
          for (bool parted : {false, true})
            if (side_by_side) same = same && Rooms::run_together(*op, input, in, out, parted, threads, kernels) == first;
        ++g_checks;
        of_lines += kernels.traits.copies_to_lines;
        roomy += likes;
        together += side_by_side;
        banded += op->likes(1, kernels.traits).shared == 0 && op->needs(1, kernels.traits).shared > 0;
        if (same) continue;
        ++g_mismatches;
        std::fprintf(stderr, "MISMATCH rooms of conv %zux%zux%zu, %s: isa=%s\n", shape.channels, shape.height, shape.width,
                     kFormatNames[int(format)], name.c_str());
      }
    }
  if (g_share == 1 && of_lines > 0 && (roomy < of_lines / 4 || together < of_lines / 4 || banded < of_lines / 8)) ++g_mismatches;  // nothing was checked
}

void check_random(size_t cases, Random& random) {
  for (size_t i = 0; i < cases; ++i) {
    const Format format = kFormats[below(random, std::size(kFormats))];
    const double density = kDensities[below(random, 5)];
    const Kind kind = any_kind(random);
    if (below(random, 4) == 0) {
      check_linear(between(random, 1, 9), between(random, 1, 60), between(random, 1, 400), density, format, kind, random);
      continue;
    }
    const auto of = [&](size_t low, size_t high) { return int(between(random, low, high)); };
    const size_t groups = below(random, 3) ? 1 : between(random, 2, 5);
    ConvShape shape{groups * between(random, 1, 9), between(random, 1, 20), between(random, 1, 20),
                    groups * between(random, 1, 9), groups,
                    {of(1, 5), of(1, 5), of(1, 4), of(1, 4), of(0, 4), of(0, 4), of(1, 3), of(1, 3)},
                    between(random, 0, 4), between(random, 0, 4)};
    if (shape.out_h() == 0 || shape.out_w() == 0) continue;
    check_conv(shape, density, format, kind, random);
  }
}

// --- other operators ---

size_t image_at(size_t c, size_t h, size_t w, const Shape& s) { return (c * s[1] + h) * s[2] + w; }

// A pool with the room that it needs, and with what it likes: the same bits.
void check_rooms_of_pool(const Built& built, Random& random) {
  constexpr size_t kImages = 2;
  const size_t in = built.sizes[0], out = built.sizes[1];
  const Floats input = numbers(kImages * in, random);
  for (const auto& [name, kernels] : tables()) {
    const auto op = built.makers[0](kernels);
    if (op->likes(1, kernels.traits) == op->needs(1, kernels.traits)) continue;
    const Floats alone = Rooms::run(*op, input, in, out, kImages, 1, 1, false, kernels);
    for (int threads : {1, 3})
      for (size_t at_once : {size_t{1}, kImages}) {
        ++g_checks;
        if (Rooms::run(*op, input, in, out, kImages, at_once, threads, true, kernels) == alone) continue;
        ++g_mismatches;
        std::fprintf(stderr, "MISMATCH rooms of a pool: isa=%s threads=%d images=%zu\n", name.c_str(), threads, at_once);
      }
  }
}

void check_pools(Random& random) {
  for (int i = 0; i < 150; ++i) {
    const auto of = [&](int low, int high) { return int(between(random, size_t(low), size_t(high))); };
    const bool many = below(random, 3) == 0;  // of small maps, those that fill the lanes are taken side by side
    const Shape in{many ? between(random, 14, 37) : between(random, 1, 4), between(random, 1, 15), between(random, 1, many ? 21 : 40)};
    const bool average = below(random, 2);
    const int dilation = average ? 1 : of(1, 2);
    Window w{of(1, 5), of(1, 5), of(1, 4), of(1, 4), 0, 0, dilation, dilation};
    w.pad_top = of(0, (w.kernel_h - 1) * dilation), w.pad_left = of(0, (w.kernel_w - 1) * dilation);
    const int bottom = of(0, w.kernel_h - 1), right = of(0, w.kernel_w - 1);
    const ConvShape sizes{1, in[1], in[2], 1, 1, w, size_t(bottom), size_t(right)};
    const Shape out{in[0], sizes.out_h(), sizes.out_w()};
    if (out[1] == 0 || out[2] == 0) continue;
    if (int(out[1] - 1) * w.stride_h - w.pad_top >= int(in[1]) || int(out[2] - 1) * w.stride_w - w.pad_left >= int(in[2]))
      continue;  // every window reaches the image
    const int kind = of(0, 2);
    const Count count{kind == 1, int(in[1]) + bottom, int(in[2]) + right, kind == 2 ? 2.5f : 0.0f};
    Built built(elements(in));
    built.add(
        elements(out), {0},
        [=](const NetKernels&) { return average ? make_average_pool(in, out, w, count) : make_max_pool(in, out, w); },
        [=](const std::vector<const double*>& x, double* y) {
          for (size_t c = 0; c < out[0]; ++c)
            for (int i = 0; i < int(out[1]); ++i)
              for (int j = 0; j < int(out[2]); ++j) {
                double sum = 0, most = -std::numeric_limits<double>::infinity();
                int valid = 0, all = 0;
                for (int r = 0; r < w.kernel_h; ++r)
                  for (int s = 0; s < w.kernel_w; ++s) {
                    const int h = i * w.stride_h - w.pad_top + r * dilation, v = j * w.stride_w - w.pad_left + s * dilation;
                    all += h < count.limit_h && v < count.limit_w;
                    if (h < 0 || v < 0 || h >= int(in[1]) || v >= int(in[2])) continue;
                    ++valid;
                    sum += x[0][image_at(c, size_t(h), size_t(v), in)];
                    most = std::max(most, x[0][image_at(c, size_t(h), size_t(v), in)]);
                  }
                *y++ = !average ? most : sum / (kind == 2 ? 2.5 : kind == 1 ? valid : all);
              }
        });
    check(average ? "average pool" : "max pool", built, random, 1e-5, 2);
    check_rooms_of_pool(built, random);
  }
  for (int i = 0; i < 40; ++i) {
    const Shape in{between(random, 1, 4), between(random, 1, 15), between(random, 1, 15)};
    const Shape out{in[0], between(random, 1, 17), below(random, 3) ? between(random, 1, 17) : 1};
    const bool average = below(random, 2);
    Built built(elements(in));
    built.add(elements(out), {0}, [=](const NetKernels&) { return make_adaptive_pool(in, out, average); },
              [=](const std::vector<const double*>& x, double* y) {
                for (size_t c = 0; c < out[0]; ++c)
                  for (size_t i = 0; i < out[1]; ++i)
                    for (size_t j = 0; j < out[2]; ++j) {
                      double sum = 0, most = -std::numeric_limits<double>::infinity();
                      size_t n = 0;
                      for (size_t h = i * in[1] / out[1]; h < ((i + 1) * in[1] + out[1] - 1) / out[1]; ++h)
                        for (size_t v = j * in[2] / out[2]; v < ((j + 1) * in[2] + out[2] - 1) / out[2]; ++v, ++n) {
                          sum += x[0][image_at(c, h, v, in)];
                          most = std::max(most, x[0][image_at(c, h, v, in)]);
                        }
                      *y++ = average ? sum / double(n) : most;
                    }
              });
    check("adaptive pool", built, random, 1e-5, 2);
  }
}

void check_products_of_values(Random& random) {
  for (int i = 0; i < 40; ++i) {
    const size_t heads = between(random, 1, 3), m = between(random, 1, 37), n = between(random, 1, 41);
    const size_t k = between(random, 1, 33);
    const bool transpose = between(random, 0, 1) == 1;
    const Shape left{heads, m, k}, right{heads, transpose ? n : k, transpose ? k : n}, out{heads, m, n};
    const size_t first = elements(left), all = first + elements(right);
    Built built(all);
    const auto part = [&](size_t start, size_t count) {
      built.add(count, {0}, [=](const NetKernels&) { return make_slice(Shape{all}, 0, start, 1, count); },
                [=](const std::vector<const double*>& x, double* y) { std::copy_n(x[0] + start, count, y); });
    };
    part(0, first);
    part(first, all - first);
    built.add(elements(out), {1, 2},
              [=](const NetKernels&) { return make_matmul(left, right, out, transpose, 0.5f); },
              [=](const std::vector<const double*>& x, double* y) {
                for (size_t h = 0; h < heads; ++h)
                  for (size_t r = 0; r < m; ++r)
                    for (size_t c = 0; c < n; ++c) {
                      double sum = 0;
                      for (size_t d = 0; d < k; ++d)
                        sum += x[0][(h * m + r) * k + d] * x[1][h * k * n + (transpose ? c * k + d : d * n + c)];
                      *y++ = 0.5 * sum;
                    }
              });
    check("product of values", built, random, 1e-5, 2);
  }
}

void check_upsampling(Random& random) {
  for (int i = 0; i < 40; ++i) {
    const Shape in{between(random, 1, 4), between(random, 1, 15), between(random, 1, 20)};
    const size_t down = between(random, 1, 5), right = between(random, 1, 45);
    const Shape out{in[0], in[1] * down, in[2] * right};
    Built built(elements(in));
    built.add(elements(out), {0}, [=](const NetKernels&) { return make_upsample(in, down, right); },
              [=](const std::vector<const double*>& x, double* y) {
                for (size_t c = 0; c < out[0]; ++c)
                  for (size_t h = 0; h < out[1]; ++h)
                    for (size_t v = 0; v < out[2]; ++v) *y++ = x[0][image_at(c, h / down, v / right, in)];
              });
    check("upsampling", built, random, 0, 2);
  }
}

void check_lrn(Random& random) {
  for (int i = 0; i < 40; ++i) {
    const Shape shape{between(random, 1, 20), between(random, 1, 12), between(random, 1, 30)};
    const int size = int(between(random, 1, 9));
    const double beta = below(random, 2) ? 0.75 : 0.5;
    Built built(elements(shape));
    built.add(elements(shape), {0}, [=](const NetKernels&) { return make_lrn(shape, size, 0.5f, float(beta), 2.0f); },
              [=](const std::vector<const double*>& x, double* y) {
                const size_t pixels = shape[1] * shape[2];
                for (long c = 0; c < long(shape[0]); ++c)
                  for (size_t p = 0; p < pixels; ++p) {
                    double sum = 0;
                    for (long near = c - size / 2; near <= c + (size - 1) / 2; ++near)
                      if (near >= 0 && near < long(shape[0])) sum += std::pow(x[0][size_t(near) * pixels + p], 2);
                    *y++ = x[0][size_t(c) * pixels + p] / std::pow(2 + 0.5 / size * sum, beta);
                  }
              });
    check("lrn", built, random, 1e-5, 2);
  }
}

void check_layer_norm(Random& random) {
  for (int i = 0; i < 40; ++i) {
    const size_t rows = between(random, 1, 20), n = between(random, 1, 300);
    const Floats w = numbers(n, random), b = numbers(n, random);
    const float eps = below(random, 2) ? 1e-5f : 0.5f;
    Built built(rows * n);
    built.add(rows * n, {0}, [=](const NetKernels&) { return make_layer_norm(rows, eps, w, b); },
              [=](const std::vector<const double*>& x, double* y) {
                for (size_t row = 0; row < rows; ++row) {
                  const double* from = x[0] + row * n;
                  double mean = 0, variance = 0;
                  for (size_t k = 0; k < n; ++k) mean += from[k] / double(n);
                  for (size_t k = 0; k < n; ++k) variance += std::pow(from[k] - mean, 2) / double(n);
                  for (size_t k = 0; k < n; ++k) *y++ = (from[k] - mean) / std::sqrt(variance + double(eps)) * double(w[k]) + double(b[k]);
                }
              });
    check("layer norm", built, random, n > 2 ? 1e-5 : 1e-3, 2);
  }
}

// Where the element at `at` of an array of `shape` lies in one of `own`, whose axes are as long or 1.
size_t broadcast(const std::vector<size_t>& at, const Shape& own) {
  size_t found = 0;
  for (size_t i = 0; i < own.size(); ++i) found = found * own[i] + (own[i] == 1 ? 0 : at[i]);
  return found;
}

void each_element(const Shape& shape, const std::function<void(const std::vector<size_t>&)>& body) {
  std::vector<size_t> at(shape.size());
  for (size_t n = 0; n < elements(shape); ++n) {
    size_t rest = n;
    for (size_t i = shape.size(); i-- > 0; rest /= shape[i]) at[i] = rest % shape[i];
    body(at);
  }
}

Shape any_shape(Random& random, size_t least = 0) {
  Shape shape(between(random, least, 4));
  for (size_t& size : shape) size = between(random, 1, 6);
  return shape;
}

void check_arithmetic(Random& random) {
  for (int i = 0; i < 200; ++i) {
    const Shape out = any_shape(random);
    Shape left = out, right = out;
    for (size_t axis = 0; axis < out.size(); ++axis) {
      const size_t dice = below(random, 4);
      if (dice == 0) left[axis] = 1;
      if (dice == 1) right[axis] = 1;
    }
    const Binary kind = Binary(below(random, 3));
    const bool constant = below(random, 2), swap = constant && below(random, 2);
    const Floats numbers_of = numbers(constant ? elements(swap ? left : right) : 0, random);
    Built built(elements(left));
    std::vector<size_t> from{0};
    if (constant && swap) built.sizes[0] = elements(right);
    if (!constant) {  // the right operand is what is left of a larger input
      built.sizes[0] = elements(left) + elements(right);
      for (int side = 0; side < 2; ++side) {
        const size_t start = side ? elements(left) : 0, n = elements(side ? right : left), all = built.sizes[0];
        built.add(n, {0}, [=](const NetKernels&) { return make_slice({all}, 0, start, 1, n); },
                  [=](const std::vector<const double*>& x, double* y) { std::copy(x[0] + start, x[0] + start + n, y); });
      }
      from = {1, 2};
    }
    built.add(elements(out), from,
              [=](const NetKernels&) { return make_binary(kind, left, right, out, numbers_of, constant, swap, fused_of(Activation::clip)); },
              [=](const std::vector<const double*>& x, double* y) {
                const Doubles fixed(numbers_of.begin(), numbers_of.end());
                const double* a = swap ? fixed.data() : x[0];
                const double* b = !constant ? x[1] : swap ? x[0] : fixed.data();
                each_element(out, [&](const std::vector<size_t>& at) {
                  const double l = a[broadcast(at, left)], r = b[broadcast(at, right)];
                  *y++ = activated(kind == Binary::add ? l + r : kind == Binary::sub ? l - r : l * r, Activation::clip);
                });
              });
    check("arithmetic", built, random, 1e-5, 1);
  }
}

void check_moves(Random& random) {
  for (int i = 0; i < 100; ++i) {
    const Shape in = any_shape(random, 1);
    const size_t axis = below(random, in.size());
    Built built(elements(in));

    std::vector<size_t> axes(in.size());
    for (size_t k = 0; k < axes.size(); ++k) axes[k] = k;
    std::shuffle(axes.begin(), axes.end(), random);
    Shape turned;
    for (size_t k : axes) turned.push_back(in[k]);
    const size_t permuted = built.add(elements(in), {0}, [=](const NetKernels&) { return make_permute(in, axes); },
                                      [=](const std::vector<const double*>& x, double* y) {
                                        each_element(turned, [&](const std::vector<size_t>& at) {
                                          std::vector<size_t> back(at.size());
                                          for (size_t k = 0; k < at.size(); ++k) back[axes[k]] = at[k];
                                          *y++ = x[0][broadcast(back, in)];
                                        });
                                      });
    const size_t reshaped = built.add(elements(in), {permuted}, [=](const NetKernels&) { return make_reshape(elements(in)); },
                                      [=](const std::vector<const double*>& x, double* y) {
                                        std::copy(x[0], x[0] + elements(in), y);
                                      });
    const size_t start = below(random, in[axis]), step = between(random, 1, 3);
    const size_t count = between(random, 1, (in[axis] - start + step - 1) / step);
    Shape cut = in;
    cut[axis] = count;
    const size_t sliced = built.add(elements(cut), {reshaped}, [=](const NetKernels&) { return make_slice(in, axis, start, step, count); },
                                    [=](const std::vector<const double*>& x, double* y) {
                                      each_element(cut, [&](std::vector<size_t> at) {
                                        at[axis] = start + at[axis] * step;
                                        *y++ = x[0][broadcast(at, in)];
                                      });
                                    });
    Shape joined = in;
    joined[axis] += count;
    const size_t concat = built.add(elements(joined), {0, sliced}, [=](const NetKernels&) { return make_concat({in, cut}, axis); },
                                    [=](const std::vector<const double*>& x, double* y) {
                                      each_element(joined, [&](std::vector<size_t> at) {
                                        const bool first = at[axis] < in[axis];
                                        if (!first) at[axis] -= in[axis];
                                        *y++ = first ? x[0][broadcast(at, in)] : x[1][broadcast(at, cut)];
                                      });
                                    });
    std::vector<std::array<size_t, 2>> pads;
    Shape padded = joined;
    for (size_t& size : padded) {
      pads.push_back({below(random, 3), below(random, 3)});
      size += pads.back()[0] + pads.back()[1];
    }
    const size_t pad = built.add(elements(padded), {concat}, [=](const NetKernels&) { return make_pad(joined, pads, 0.5f); },
                                 [=](const std::vector<const double*>& x, double* y) {
                                   each_element(padded, [&](std::vector<size_t> at) {
                                     bool inside = true;
                                     for (size_t k = 0; k < at.size(); ++k) {
                                       inside = inside && at[k] >= pads[k][0] && at[k] - pads[k][0] < joined[k];
                                       at[k] -= pads[k][0];
                                     }
                                     *y++ = inside ? x[0][broadcast(at, joined)] : 0.5;
                                   });
                                 });
    const bool log = below(random, 2);
    const size_t soft = built.add(elements(padded), {pad}, [=](const NetKernels&) { return make_softmax(padded, axis, log); },
                                  [=](const std::vector<const double*>& x, double* y) {
                                    each_element(padded, [&](std::vector<size_t> at) {
                                      const double mine = x[0][broadcast(at, padded)];
                                      double sum = 0;
                                      for (at[axis] = 0; at[axis] < padded[axis]; ++at[axis])
                                        sum += std::exp(x[0][broadcast(at, padded)]);
                                      *y++ = log ? mine - std::log(sum) : std::exp(mine) / sum;
                                    });
                                  });
    std::vector<size_t> gone;
    Shape kept = padded;
    for (size_t k = 0; k < padded.size(); ++k)
      if (k == axis || below(random, 2)) gone.push_back(k), kept[k] = 1;
    built.add(elements(kept), {soft}, [=](const NetKernels&) { return make_mean(padded, gone); },
              [=](const std::vector<const double*>& x, double* y) {
                std::fill_n(y, elements(kept), 0.0);
                each_element(padded, [&](const std::vector<size_t>& at) {
                  y[broadcast(at, kept)] += x[0][broadcast(at, padded)] * double(elements(kept)) / double(elements(padded));
                });
              });
    check("moves", built, random, 1e-5, 1);
  }
}

void check_activations(Random& random) {
  const std::function<double(double)> functions[] = {
      [](double x) { return x; },
      [](double x) { return std::max(x, 0.0); },
      [](double x) { return x > 0 ? x : 0.25 * x; },
      [](double x) { return std::clamp(x, 0.25, 1.5); },
      [](double x) { return x / (1 + std::exp(-x)); },
      [](double x) { return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5))); },
      [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x))); },
      [](double x) { return 1 / (1 + std::exp(-x)); },
      [](double x) { return std::tanh(x); },
      [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; },
      [](double x) { return std::clamp(x + 3, 0.0, 6.0) / 6; },
      [](double x) { return x > 0 ? x : 0.25 * std::expm1(x); },
  };
  for (int kind = 0; kind <= int(Activation::elu); ++kind)
    for (size_t n : {1, 3, 16, 37, 20000}) {
      const auto function = functions[kind];
      Built built(n);
      built.add(n, {0}, [=](const NetKernels&) { return make_activation({n}, {Activation(kind), 0.25f, 1.5f}); },
                [=](const std::vector<const double*>& x, double* y) {
                  for (size_t i = 0; i < n; ++i) y[i] = function(x[0][i]);
                });
      check("activation " + std::to_string(kind), built, random, 1e-6, 2);
    }
}

// --- whole networks ---

std::shared_ptr<Built> whole(Random& random) {
  auto built = std::make_shared<Built>(3 * 20 * 20);
  const auto weight = [&](size_t rows, size_t columns, Format format) {
    return std::make_shared<Stored>(rows, columns, 0.2, format, any_kind(random), random);
  };
  add_conv(*built, 0, {3, 20, 20, 16, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1}, weight(16, 27, Format::rice), Activation::relu, random);
  add_conv(*built, 1, {16, 20, 20, 16, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1}, weight(16, 144, Format::delta), Activation::none, random);
  const size_t size = 16 * 400;
  built->add(size, {1, 2}, [=](const NetKernels&) { return make_binary(Binary::add, {size}, {size}, {size}, {}, false, false, {}); },
             [=](const std::vector<const double*>& x, double* y) {
               for (size_t i = 0; i < size; ++i) y[i] = x[0][i] + x[1][i];
             });
  add_conv(*built, 3, {16, 20, 20, 24, 1, {3, 3, 2, 2, 1, 1, 1, 1}, 1, 1}, weight(24, 144, Format::csr), Activation::relu, random);
  add_linear(*built, 4, 1, weight(64, 2400, Format::indexed), Activation::relu, random);
  add_linear(*built, 5, 1, weight(10, 64, Format::dense), Activation::none, random);
  return built;
}

// Many threads call one network at once, with fewer arenas than threads and with more.
void check_concurrent_calls(Random& random) {
  const auto built = whole(random);
  const size_t batch = 3;
  const Floats input = numbers(batch * built->sizes[0], random);
  const Doubles wanted = built->expect(input, batch);
  for (const auto& [name, kernels] : tables()) {
    if (name == kEmulated) continue;  // slow, and no other way to call
    for (size_t calls : {1, 2, 6}) {
      const auto network = built->network(2, 3, calls, kernels);
      std::vector<std::thread> callers;
      std::vector<int> wrong(4, 0);
      for (int& mine : wrong)
        callers.emplace_back([&] {
          for (int i = 0; i < 10; ++i) {
            Floats found(batch * built->sizes.back());
            network->run(input.data(), batch, found.data());
            mine += !agrees(found, wanted, 1e-5);
          }
        });
      for (std::thread& caller : callers) caller.join();
      for (int count : wrong) g_mismatches += size_t(count);
      g_checks += 40;
    }
  }
}

// However a batch is parted among threads, an image has the bits that it has alone. Small maps, which lie side by side in
// vectors where one thread has many of them.
void check_batches(Random& random) {
  Built built(3 * 12 * 13);
  const auto weight = [&](size_t rows, size_t columns, Format format) {
    return std::make_shared<Stored>(rows, columns, 0.2, format, any_kind(random), random);
  };
  add_conv(built, 0, {3, 12, 13, 18, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1}, weight(18, 27, Format::delta), Activation::relu, random);
  add_conv(built, 1, {18, 12, 13, 18, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1}, weight(18, 162, Format::csr), Activation::none, random);
  const size_t size = 18 * 12 * 13;
  built.add(size, {1, 2}, [=](const NetKernels&) { return make_binary(Binary::add, {size}, {size}, {size}, {}, false, false, {}); },
            [=](const std::vector<const double*>& x, double* y) {
              for (size_t i = 0; i < size; ++i) y[i] = x[0][i] + x[1][i];
            });
  add_conv(built, 3, {18, 12, 13, 18, 18, {3, 3, 2, 2, 1, 1, 1, 1}, 1, 1}, weight(18, 9, Format::dense), Activation::relu, random);
  add_conv(built, 4, {18, 6, 7, 24, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1}, weight(24, 162, Format::rice), Activation::relu, random);
  constexpr size_t kMost = 33, kExpected = 2;
  const size_t in = built.sizes[0], out = built.sizes.back();
  const Floats input = numbers(kMost * in, random);
  const Doubles wanted = built.expect(input, kExpected);
  for (const auto& [name, kernels] : tables()) {
    Floats alone(kMost * out);
    built.network(1, 1, 1, kernels)->run(input.data(), kMost, alone.data());
    bool same = agrees(alone, wanted, 1e-5);
    for (int threads = 1; threads <= 4; ++threads)
      for (size_t max_batch : {size_t{16}, kMost}) {
        const auto network = built.network(max_batch, threads, 1, kernels);
        for (size_t batch : {1, 2, 3, 5, 16, 17, 33}) {
          Floats found(batch * out, std::numeric_limits<float>::quiet_NaN());
          network->run(input.data(), batch, found.data());
          ++g_checks;
          if (same && std::equal(found.begin(), found.end(), alone.begin())) continue;
          ++g_mismatches;
          std::fprintf(stderr, "MISMATCH batches: isa=%s threads=%d batch=%zu max_batch=%zu\n", name.c_str(), threads, batch, max_batch);
        }
      }
  }
}

constexpr int kCallsThatTry = 27;

// The mode that takes least is chosen, with fewer threads where more save little; and of a long call, the one with all threads,
// without a try.
void check_reluctance() {
  const auto chosen = [](std::vector<double> seconds) {
    Reluctance reluctance;
    for (int call = 0; call < kCallsThatTry; ++call) {
      const Reluctance::Call now = reluctance.begin();
      reluctance.end(now, seconds[size_t(now.mode)] * (call % 2 ? 1.0 : 1.5));
    }
    return reluctance.begin().mode;
  };
  const std::vector<std::pair<std::vector<double>, int>> cases = {
      {{1e-4, 2e-4, 3e-4}, 0}, {{3e-4, 1e-4, 2e-4}, 1}, {{3e-4, 2e-4, 1e-4}, 2}, {{0.99e-4, 1e-4, 1e-4}, 2}, {{1e-2, 1e-4, 1e-4}, 0}};
  for (const auto& [seconds, mode] : cases) {
    ++g_checks;
    if (chosen(seconds) == mode) continue;
    ++g_mismatches;
    std::fprintf(stderr, "MISMATCH reluctance: mode %d instead of %d\n", chosen(seconds), mode);
  }
}

// Maps so large that threads share their rows: as many as there are do not change a bit.
void check_shares(Random& random) {
  const ConvShape convs[] = {
      {20, 40, 37, 33, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1},   {48, 40, 37, 33, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1},
      {48, 35, 33, 40, 1, {1, 1, 1, 1, 0, 0, 1, 1}, 0, 0},
      {40, 32, 32, 40, 1, {1, 1, 1, 1, 0, 0, 1, 1}, 0, 0},   {20, 70, 66, 34, 1, {3, 3, 2, 2, 1, 1, 1, 1}, 1, 1},
      {12, 41, 40, 20, 1, {5, 3, 1, 1, 4, 0, 1, 1}, 2, 1},   {60, 36, 39, 60, 60, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1},
      {60, 70, 67, 60, 60, {3, 3, 2, 2, 1, 1, 1, 1}, 1, 1},  {40, 33, 40, 80, 40, {5, 5, 1, 1, 2, 2, 1, 1}, 2, 2},
      {30, 34, 35, 30, 30, {5, 5, 1, 2, 2, 2, 1, 1}, 9, 2},  {40, 33, 36, 40, 40, {7, 7, 1, 1, 3, 3, 1, 1}, 3, 3},
  };
  std::vector<std::shared_ptr<Built>> all;
  for (double density : {0.2, 1.0})
    for (const ConvShape& shape : convs) {
      const size_t columns = shape.channels / shape.groups * size_t(shape.window.kernel_h * shape.window.kernel_w);
      const Format format = density == 1.0 ? Format::dense : kFormats[below(random, std::size(kFormats))];
      auto built = std::make_shared<Built>(shape.channels * shape.height * shape.width);
      add_conv(*built, 0, shape, std::make_shared<Stored>(shape.outputs, columns, density, format, any_kind(random), random),
               below(random, 2) ? Activation::relu : Activation::silu, random);
      all.push_back(built);
    }
  const Shape maps{300, 70, 19}, pooled{300, 36, 10};
  const size_t size = elements(maps), few = elements(pooled);
  const auto other = [&](size_t in, size_t out, Maker maker) {
    auto built = std::make_shared<Built>(in);
    built->add(out, {0}, std::move(maker), [](const std::vector<const double*>&, double*) {});
    all.push_back(built);
  };
  const Window window{3, 3, 2, 2, 2, 1, 1, 1};
  other(size, few, [=](const NetKernels&) { return make_max_pool(maps, pooled, window); });
  for (bool valid_only : {false, true})
    other(size, few, [=](const NetKernels&) { return make_average_pool(maps, pooled, window, {valid_only, 71, 20, 0}); });
  other(size, size, [=](const NetKernels&) { return make_activation(maps, {Activation::silu, 0, 0}); });
  for (Activation act : {Activation::none, Activation::mish}) {
    other(size, size, [=](const NetKernels&) { return make_activation(maps, {Activation::tanh, 0, 0}); });
    all.back()->add(size, {0, 1}, [=](const NetKernels&) {
      return make_binary(Binary::add, maps, maps, maps, {}, false, false, {act, 0, 0});
    }, [](const std::vector<const double*>&, double*) {});
  }
  for (const auto& built : all) {
    if (g_asked++ % g_share != 0) continue;
    const size_t in = built->sizes[0], out = built->sizes.back();
    const Floats input = numbers(in, random);
    for (const auto& [name, kernels] : tables()) {
      const auto run = [&](int threads) {
        Floats found(out, std::numeric_limits<float>::quiet_NaN());
        built->network(1, threads, 1, kernels)->run(input.data(), 1, found.data());
        return found;
      };
      const Floats alone = run(1);
      // Calls that try whether other threads pay, and those that follow.
      const auto network = built->network(1, 3, 1, kernels);
      for (int call = 0; call < kCallsThatTry; ++call) {
        Floats found(out, std::numeric_limits<float>::quiet_NaN());
        network->run(input.data(), 1, found.data());
        ++g_checks;
        if (found == alone) continue;
        ++g_mismatches;
        std::fprintf(stderr, "MISMATCH call %d of network %td: isa=%s\n", call, &built - all.data(), name.c_str());
      }
      const auto op = built->makers[0](kernels);
      const bool likes = !(op->likes(1, kernels.traits) == op->needs(1, kernels.traits));
      for (int threads : {2, 3, 4}) {
        bool same = run(threads) == alone;
        if (likes)
          for (bool roomy : {false, true}) same = same && Rooms::run(*op, input, in, out, 1, 1, threads, roomy, kernels) == alone;
        ++g_checks;
        if (same) continue;
        ++g_mismatches;
        std::fprintf(stderr, "MISMATCH shares of network %td: isa=%s threads=%d\n", &built - all.data(), name.c_str(), threads);
      }
    }
  }
}

// What is planned for the largest batch is enough for every smaller one, on every instruction set: near the density at
// which a dense product becomes the better one, a smaller batch must not choose otherwise.
void check_smaller_batches() {
  Random random(7);
  for (const auto& [rows, columns, nonzeros] : {std::array<size_t, 3>{7, 45, 312}, {7, 43, 300}, {7, 50, 342}, {64, 120, 900}}) {
    Stored stored(rows, columns, 1.0, Format::dense, kSingles, random);
    stored.matrix.entries = nonzeros;  // all that a plan looks at
    const auto linear = make_linear(1, Weight(stored.matrix), Floats(rows, 0.0f), {}, kScalar);
    for (const Traits* traits : kEveryTraits)
      for (size_t batch = 1, most_shared = 0, most_worker = 0; batch <= 64; ++batch) {
        const Needs needs = linear->needs(batch, *traits);
        ++g_checks;
        if (needs.shared < most_shared || needs.worker < most_worker) {
          ++g_mismatches;
          std::fprintf(stderr, "MISMATCH: %zu x %zu, %zu nonzeros on %s: less room for %zu images than for fewer\n", rows,
                       columns, nonzeros, traits->name, batch);
        }
        most_shared = std::max(most_shared, needs.shared);
        most_worker = std::max(most_worker, needs.worker);
      }
  }
}

void check_limits(Random& random) {
  const auto built = whole(random);
  for (const auto& [batch, calls] : {std::pair<size_t, size_t>{size_t{1} << 62, 1}, {1, size_t{1} << 62}}) {
    ++g_checks;
    try {
      built->network(batch, 1, calls, net_kernels(chosen_kernels()));
      ++g_mismatches;
      std::fprintf(stderr, "MISMATCH: a batch of %zu and %zu calls were accepted\n", batch, calls);
    } catch (const std::exception&) {
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  size_t cases = 0;
  uint64_t seed = 1;
  std::string only;
  for (int i = 1; i < argc; i += 2) {
    const bool has_value = i + 1 < argc;
    if (has_value && std::strcmp(argv[i], "--cases") == 0) cases = std::strtoull(argv[i + 1], nullptr, 10);
    else if (has_value && std::strcmp(argv[i], "--seed") == 0) seed = std::strtoull(argv[i + 1], nullptr, 10);
    else if (has_value && std::strcmp(argv[i], "--share") == 0)
      g_share = std::max<size_t>(1, std::strtoull(argv[i + 1], nullptr, 10));
    else if (has_value && !std::strcmp(argv[i], "--only") &&
             (!std::strcmp(argv[i + 1], "concurrent") || !std::strcmp(argv[i + 1], "rooms") || !std::strcmp(argv[i + 1], "shares") || !std::strcmp(argv[i + 1], "products")))
      only = argv[i + 1];
    else if (has_value && !std::strcmp(argv[i], "--emulated")) g_native = !std::strcmp(argv[i + 1], "no");
    else {
      std::fprintf(stderr, "usage: %s [--cases N] [--seed S] [--share N] [--emulated no] [--only concurrent|rooms|shares|products]\n", argv[0]);
      return 2;
    }
  }
  Random random(seed);
  if (only.empty() || only == "concurrent") check_concurrent_calls(random), check_batches(random);
  if (only.empty() || only == "rooms") check_rooms(random);
  if (only.empty() || only == "shares") check_reluctance(), check_shares(random);
  if (only.empty() || only == "products") check_products(random);
  if (only.empty()) {
    check_pools(random);
    check_upsampling(random);
    check_products_of_values(random);
    check_lrn(random);
    check_layer_norm(random);
    check_arithmetic(random);
    check_moves(random);
    check_activations(random);
    check_limits(random);
    check_smaller_batches();
    for (int i = 0; i < 5; ++i) check("a whole network", *whole(random), random);
    check_random(cases, random);
  }

  std::string isas;
  for (const Table& table : tables()) isas += (isas.empty() ? "\"" : ", \"") + table.name + "\"";
  std::printf("{\"cases\": %zu, \"checks\": %zu, \"mismatches\": %zu, \"isas\": [%s], \"seed\": %llu}\n", cases, g_checks,
              g_mismatches, isas.c_str(), static_cast<unsigned long long>(seed));
  return g_mismatches == 0 ? 0 : 1;
}
