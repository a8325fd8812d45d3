// The operators of a network. Each runs on any number of images; shapes are those of one.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net_kernels.h"
#include "weight.h"

namespace membound {

using Shape = std::vector<size_t>;
size_t elements(const Shape& shape);

// How threads share the maps of one image. Where each gets some rows, it takes these of every map, in every operator: it then
// finds what it made itself in its own cache, but for the rows beside its own. Of smaller maps, each takes some maps, and so it
// does with short vectors: there, that each decodes the whole weight costs what is gained.
constexpr size_t kRowsEach = 16;
inline bool are_cut_by_rows(size_t rows, int threads, const Traits& traits) {
  return traits.width > 4 && threads > 1 && rows >= kRowsEach * static_cast<size_t>(threads);
}

// The part [first_map, last_map) of the maps, and of each the rows [first_row, last_row).
struct Share {
  size_t first_map, last_map, first_row, last_row;
};

// The window over the outputs from row `first` on, and over the image without the `above` rows that these do not read.
struct Lower {
  Lower(const Window& whole, size_t first, int height) : window(whole) {
    const int top = static_cast<int>(first) * whole.stride_h - whole.pad_top;
    above = top < 0 ? 0 : top < height ? top : height;
    window.pad_top = above - top;
  }
  Window window;
  int above;
};

// What an operator runs with: kernels, threads and working room.
struct Workplace {
  const NetKernels& kernels;
  int threads;
  float* shared;         // room that all workers see
  float* workers;        // room of worker 0; the next one's begins worker_floats later
  size_t worker_floats;

  bool roomy = false;    // the operator has what it likes, and not only what it needs
  double reluctance = 1.0;  // to take another thread (reluctance.h)

  float* room(int worker) const { return workers + static_cast<size_t>(worker) * worker_floats; }
  // As many threads as so many multiplications are worth: who cuts work into tasks cuts it for these.
  int worth(double operations) const;
  // Call body(task, worker) for each task, on these threads.
  void each(size_t tasks, double operations, const std::function<void(size_t, int)>& body) const;
  // Call body(part, worker) for the parts of so many maps of `rows` rows each, some for each thread so that the last one to
  // finish is not late.
  void each_share(size_t maps, size_t rows, double operations, const std::function<void(const Share&, int)>& body) const;
};

struct Fused {
  Activation activation = Activation::none;
  float first = 0, second = 0;
};

// Working room, in floats: what all workers see, and what each has for itself.
struct Needs {
  size_t shared = 0, worker = 0;
  bool operator==(const Needs& other) const { return shared == other.shared && worker == other.worker; }
};

// A value of as many images as a vector has lanes. Together, they lie side by side: element i of image n is data[i lanes + n].
// Else they lie one behind the other.
struct Beside {
  const float* data;
  bool together;
};

class Op {
 public:
  virtual ~Op() = default;
  virtual void run(const float* const* inputs, float* output, size_t batch, const Workplace& place) const = 0;
  // For this many images or fewer, on any instruction set.
  virtual Needs needs(size_t batch, const Traits& traits) const {
    (void)batch; (void)traits; return {};
  }
  // What it runs faster with, if the network has room for it anyway.
  virtual Needs likes(size_t batch, const Traits& traits) const { return needs(batch, traits); }
  virtual size_t table_bytes() const { return 0; }
  // The same of tables that are made for one instruction set.
  virtual size_t table_bytes_on(const Traits& traits) const {
    (void)traits; return 0;
  }
  // The output is the input under another shape: nothing runs, and they share their place.
  virtual bool is_alias() const { return false; }
  // The value comes from the caller: the network copies it, nothing runs.
  virtual bool is_input() const { return false; }
  // Whether many images at once take less time than one after another, or than each thread taking its own.
  virtual bool gains_by_batch() const { return false; }
  // Of images side by side: whether the operator takes and makes them, on this instruction set; whether it also takes `parted`
  // inputs, that lie one behind the other; and the multiplications of one image that take less time so, if any do;
  // whether one image takes no more than is near one thread.
  virtual bool takes_together(const Traits& traits) const {
    (void)traits; return false;
  }
  virtual bool takes_parted() const { return false; }
  virtual double gains_together() const { return 0.0; }
  virtual bool is_near() const { return true; }
  virtual Needs needs_together(bool parted, const Traits& traits) const {
    (void)parted; (void)traits; return {};
  }
  virtual void run_together(const Beside* given, float* output, const Workplace& place) const {
    (void)given; (void)output; (void)place;
  }

  std::vector<size_t> inputs;  // numbers of values
};

std::unique_ptr<Op> make_conv(const Shape& input, const Shape& output, Weight weight, std::vector<float> bias,
                              const Window& window, size_t groups, const Fused& fused, const Traits& traits);
// What the numbers of an operator's input and output lie within, from 0 to this, where they are bytes (floats_of_bytes); 0: they
// are floats.
struct ByteBounds {
  float in = 0.0f, out = 0.0f;
};
// The same in 8 bits, of one group; and whether that takes less time, where what it reads or makes stays bytes, or is turned into
// them and back. Nothing of the weight is kept but its bytes.
bool gains_by_bytes(const Shape& input, const Shape& output, const Matrix& weight, size_t groups, bool stays_bytes);
std::unique_ptr<Op> make_byte_conv(const Shape& input, const Shape& output, const Weight& weight, std::vector<float> bias,
                                   const Window& window, const Fused& fused, const ByteBounds& bounds, const Traits& traits);
// A depthwise one whose input is bytes.
bool takes_bytes(const Shape& input, const Matrix& weight, const Window& window, size_t groups);
std::unique_ptr<Op> make_byte_depthwise(const Shape& input, const Shape& output, const Weight& weight, std::vector<float> bias,
                                        const Window& window, const Fused& fused, const ByteBounds& bounds, const Traits& traits);
std::unique_ptr<Op> make_linear(size_t vectors, Weight weight, std::vector<float> bias, const Fused& fused,
                                const Traits& traits);
std::unique_ptr<Op> make_max_pool(const Shape& input, const Shape& output, const Window& window);
std::unique_ptr<Op> make_average_pool(const Shape& input, const Shape& output, const Window& window,
                                      const Count& count);
std::unique_ptr<Op> make_adaptive_pool(const Shape& input, const Shape& output, bool average);
// Each pixel `down` times below itself and `right` times beside.
std::unique_ptr<Op> make_upsample(const Shape& input, size_t down, size_t right);
std::unique_ptr<Op> make_lrn(const Shape& shape, int size, float alpha, float beta, float k);
// Over the last w.size() elements of each row; b is as large.
std::unique_ptr<Op> make_layer_norm(size_t rows, float eps, std::vector<float> w, std::vector<float> b);
std::unique_ptr<Op> make_activation(const Shape& shape, const Fused& fused);
// With `constant`, it is the right operand, or with `swap` the left one.
std::unique_ptr<Op> make_binary(Binary kind, const Shape& left, const Shape& right, const Shape& output,
                                std::vector<float> constant, bool has_constant, bool swap, const Fused& fused);
std::unique_ptr<Op> make_concat(const std::vector<Shape>& inputs, size_t axis);
std::unique_ptr<Op> make_reshape(size_t size);
std::unique_ptr<Op> make_permute(const Shape& input, const std::vector<size_t>& axes);
std::unique_ptr<Op> make_slice(const Shape& input, size_t axis, size_t start, size_t step, size_t count);
std::unique_ptr<Op> make_mean(const Shape& input, const std::vector<size_t>& axes);
std::unique_ptr<Op> make_max(const Shape& input, const std::vector<size_t>& axes);
std::unique_ptr<Op> make_softmax(const Shape& shape, size_t axis, bool log);
std::unique_ptr<Op> make_pad(const Shape& input, const std::vector<std::array<size_t, 2>>& pad, float value);

// The indices of an axis that are listed, in that order.
std::unique_ptr<Op> make_gather(const Shape& input, size_t axis, std::vector<size_t> indices);
// Of an axis, the places that each output is a sum of, and their weights: [tap][output].
struct Taps {
  size_t count;
  std::vector<int32_t> places;
  std::vector<float> weights;
};
std::unique_ptr<Op> make_resize(const Shape& input, const Shape& output, Taps rows, Taps columns);
// Matrices [m,k] times [k,n], or times the transpose of [n,k], and a number; of the axes before them, one that is 1 is
// repeated.
std::unique_ptr<Op> make_matmul(const Shape& left, const Shape& right, const Shape& output, bool transpose, float scale);
std::unique_ptr<Op> make_constant(std::vector<float> values);
// One more input of the network.
std::unique_ptr<Op> make_input();
// Rows of the weight, by their numbers. Throws std::out_of_range when it runs on a number that no row has.
std::unique_ptr<Op> make_embedding(size_t count, Weight weight);

}  // namespace membound
