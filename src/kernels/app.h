// A network that is part of a program: its plan is code, its weights are constants. What `membound export --cpp` writes is
// made of these. Or its plan and weights come from a file (app_file.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "network.h"
#include "op_plan.h"

namespace membound {

static_assert(sizeof(size_t) == 8, "the kernels are for 64-bit CPUs");

// A weight: its arrays and numbers lie so many bytes behind the first constant, or nowhere.
struct Stored {
  static constexpr size_t nowhere = static_cast<size_t>(-1);
  const char *layout, *type;
  size_t rows, columns, entries;
  size_t values;
  size_t index = nowhere;
  int index_bytes = 0;
  size_t pointers = nowhere;
  int pointer_bytes = 0;
  int parameter = 0;      // of rice, and
  size_t high_bytes = 0;
  size_t palette = nowhere;  // as many entries as there can be codes
  size_t scales = nowhere;
};

// How pixels, or other numbers, become what a network takes: (x - mean) * scale / std, then the center.
struct Preparation {
  size_t channels, height, width;  // of what the network takes
  bool crops;                      // images may be larger
  float scale;
  const float* mean;   // one for each channel or, where there is a mean image, all of it; null: 0
  const float* std;    // one for each channel; null: 1
  size_t mean_height, mean_width;  // of the mean image, which images are as large as; 0: there is none
};

// Of the files that open() reads: cpp_file.py, which writes them, has the same number. It is raised when what they hold, or what
// that means, changes.
constexpr size_t kFileFormat = 1;

// What a program needs of a network in a file.
struct Interface {
  const char* what;  // it takes and gives, in words
  std::vector<size_t> inputs, outputs;  // floats of each
};

// Lists are initializer lists, which compile to constants and so in less time than vectors.
class App {
 public:
  App(const void* constants, size_t bytes, const Preparation& preparation, const char* engine, const char* id)
      : constants_(static_cast<const unsigned char*>(constants)), constant_bytes_(bytes), preparation_(preparation),
        engine_(engine), id_(id) {}
  App() = default;
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  // The next operator. What follows is about it, until the next.
  void op(const char* name, std::initializer_list<size_t> inputs,
          std::initializer_list<std::initializer_list<size_t>> input_shapes, std::initializer_list<size_t> output_shape);
  void number(const char* name, std::initializer_list<double> numbers);
  void activation(const char* name, double first = 0, double second = 0);
  void weight(const Stored& stored);
  void table(const char* role, size_t at, size_t floats);

  // Once all operators are there. Throws std::invalid_argument for numbers of threads or images that cannot be.
  void start(const Shape& input_shape, const std::vector<size_t>& outputs, int threads, size_t max_batch);

  // Instead of all of these: a network that `membound export --cpp-file` wrote, whose bytes are copied. Throws
  // std::invalid_argument, which says why, if it is damaged, or not what the program needs.
  void open(const void* data, size_t bytes, const Interface& wanted, int threads);

  const Network& network() const { return *network_; }
  const Preparation& preparation() const { return preparation_; }
  // How it computes: "float" or "int8".
  const std::string& engine() const { return engine_; }
  // Which network it is: the first digits of its model file's SHA-256.
  const std::string& id() const { return id_; }
  // Constants, tables and one arena.
  size_t memory_bytes() const;

 private:
  const void* at(size_t offset) const { return offset == Stored::nowhere ? nullptr : constants_ + offset; }

  void read_preparation(const Numbers& numbers, std::vector<float> mean, std::vector<float> std);

  const unsigned char* constants_ = nullptr;
  size_t constant_bytes_ = 0;
  Preparation preparation_{};  // of no channels: the file does not say
  std::string engine_, id_;
  std::vector<uint64_t> kept_;  // of a file
  std::deque<std::vector<float>> kept_floats_;  // of its palettes and scales
  std::vector<float> mean_, std_;
  std::vector<OpPlan> plans_;
  std::unique_ptr<Network> network_;
};

// Where the numbers of an image lie: elements from one to the next.
struct Steps {
  ptrdiff_t channel, row, pixel;
};

// All bytes of a file. Throws std::invalid_argument.
std::vector<unsigned char> read_file(const char* path);

// Whether images have a size that can be prepared; if so, what the network takes of this one.
bool prepare(const Preparation& how, const uint8_t* pixels, size_t height, size_t width, const Steps& steps, float* input);
bool prepare(const Preparation& how, const float* numbers, size_t height, size_t width, const Steps& steps, float* input);

}  // namespace membound
