// A network that a program opens from a file as it runs. `membound export --cpp-file` writes it: what membound/export/
// cpp_file.py puts into it is what is read here, in the same order. All of it is checked before any of it is used.
//
// Whole numbers have 7 bits in each byte, the lowest first, and a bit that says whether another byte follows. Texts and
// arrays begin with how many bytes they have. Arrays begin at multiples of 8: they are computed on where they lie.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "app.h"
#include "names.h"

namespace membound {
namespace {

constexpr char kMagic[] = "MBAPPNET";
constexpr size_t kBegin = 24;  // behind the magic, how many bytes there are, and their checksum

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

void require(bool holds, const char* what) {
  if (!holds) refuse(std::string("the file is damaged: ") + what);
}

// CRC-32, as zlib has it.
uint32_t checksum(const unsigned char* bytes, size_t count) {
  uint32_t table[256];
  for (uint32_t i = 0; i < 256; ++i) {
    table[i] = i;
    for (int bit = 0; bit < 8; ++bit) table[i] = (table[i] >> 1) ^ (table[i] & 1 ? 0xedb88320u : 0);
  }
  uint32_t sum = ~0u;
  for (size_t i = 0; i < count; ++i) sum = (sum >> 8) ^ table[(sum ^ bytes[i]) & 255];
  return ~sum;
}

float from_half(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const float found = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                    : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  require(exponent < 31, "a number is not finite");
  return half >> 15 ? -found : found;
}

class FileReader {
 public:
  FileReader(const unsigned char* bytes, size_t count) : bytes_(bytes), count_(count) {}

  uint64_t number() {
    uint64_t found = 0;
    for (int shift = 0; shift < 63; shift += 7) {
      const unsigned char part = *take(1);
      found |= uint64_t{part & 127u} << shift;
      if (part < 128) return found;
    }
    refuse("the file is damaged: a number is too large");
  }
  size_t size(size_t most = 0xffffffff) {
    const uint64_t found = number();
    require(found <= most, "a number is too large");
    return found;
  }
  std::string text() {
    const size_t bytes = size();
    return {reinterpret_cast<const char*>(take(bytes)), bytes};
  }
  Shape sizes() {
    Shape found;
    for (size_t left = size(); left > 0; --left) found.push_back(size());
    return found;
  }
  Numbers numbers() {
    Numbers found;
    for (size_t left = size(); left > 0; --left) found.push_back(real());
    return found;
  }
  // Where an array of so many bytes lies; null where none is wanted.
  const void* array(size_t bytes) {
    require(size() == bytes, "an array is not as large as its shape");
    if (bytes == 0) return nullptr;
    take((8 - at_ % 8) % 8);
    return take(bytes);
  }
  // Floats, all of them finite; none where there are none.
  std::vector<float> floats() {
    const size_t count = size(), kind = size(3);
    std::vector<float> found;
    if (kind == 0) {
      const auto parts = all<float>(count);
      found.assign(parts.begin(), parts.end());
    } else if (kind == 1) {
      for (uint16_t half : all<uint16_t>(count)) found.push_back(from_half(half));
    } else {
      const auto steps = kind == 2 ? all<int8_t>(count) : steps_around_zero(count);
      const float step = all<float>(1)[0];
      for (int8_t each : steps) found.push_back(static_cast<float>(each) * step);
    }
    for (float x : found) require(std::isfinite(x), "a number is not finite");
    return found;
  }
  bool at_end() const { return at_ == count_; }

 private:
  // A whole number is written as twice itself, any other behind a 1.
  double real() {
    const uint64_t found = number();
    if (found % 2 == 0) return static_cast<double>(found / 2);
    return all<double>(1)[0];
  }
  template <class T>
  std::vector<T> all(size_t count) {
    const unsigned char* from = take(count * sizeof(T));
    std::vector<T> found(count);
    if (count > 0) std::memcpy(found.data(), from, count * sizeof(T));
    return found;
  }
  // The codes of a linear palette.
  static std::vector<int8_t> steps_around_zero(size_t count) {
    require(count <= 256, "a palette is too large");
    std::vector<int8_t> found;
    const int first = -static_cast<int>(count / 2);
    for (size_t i = 0; i < count; ++i) found.push_back(static_cast<int8_t>(first + static_cast<int>(i)));
    return found;
  }
  const unsigned char* take(size_t bytes) {
    require(bytes <= count_ - at_, "it ends early");
    const unsigned char* found = bytes_ + at_;
    at_ += bytes;
    return found;
  }

  const unsigned char* bytes_;
  size_t count_, at_ = 0;
};

template <class Index>
void check_columns(const Matrix& matrix, const Index* columns, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i)
    require(columns[i] < matrix.columns && (i == begin || columns[i] > columns[i - 1]), "a column is out of order");
}

template <class Pointer>
void check_rows(const Matrix& matrix, const Pointer* starts) {
  require(starts[0] == 0 && starts[matrix.rows] == matrix.entries, "rows do not cover the values");
  for (size_t row = 0; row < matrix.rows; ++row) {
    require(starts[row] <= starts[row + 1] && starts[row + 1] <= matrix.entries, "a row ends before it begins");
    if (matrix.index_bytes == 2) check_columns(matrix, static_cast<const uint16_t*>(matrix.index), starts[row], starts[row + 1]);
    else check_columns(matrix, static_cast<const uint32_t*>(matrix.index), starts[row], starts[row + 1]);
  }
}

// Kernels follow what an index says: it must stay within the weight. Of rice, Weight looks at it.
void check_index(const Matrix& matrix) {
  const size_t all = matrix.rows * matrix.columns;
  if (matrix.format == Format::bitmask) {
    const auto* bits = static_cast<const uint8_t*>(matrix.index);
    size_t set = 0;
    for (size_t i = 0; i < (all + 7) / 8; ++i) set += static_cast<size_t>(__builtin_popcount(bits[i]));
    const bool spare = all % 8 != 0 && bits[all / 8] >> (all % 8) != 0;
    require(set == matrix.entries && !spare, "bits and values of a weight are not as many");
  } else if (matrix.format == Format::indexed) {
    const auto* positions = static_cast<const uint32_t*>(matrix.index);
    for (size_t i = 0; i < matrix.entries; ++i)
      require(positions[i] < all && (i == 0 || positions[i] > positions[i - 1]), "a position is out of order");
  } else if (matrix.format == Format::csr) {
    if (matrix.pointer_bytes == 2) check_rows(matrix, static_cast<const uint16_t*>(matrix.pointers));
    else check_rows(matrix, static_cast<const uint32_t*>(matrix.pointers));
  } else if (matrix.format == Format::delta) {
    const auto* gaps = static_cast<const uint8_t*>(matrix.index);
    uint64_t end = 0;
    for (size_t i = 0; i < matrix.entries; ++i) end += gaps[i] + uint64_t{1};
    require(end <= all, "a position is beyond the weight");
  }
}

void check_values(const Matrix& matrix) {
  for (size_t i = 0; i < matrix.entries && matrix.type == ValueType::f32; ++i)
    require(std::isfinite(static_cast<const float*>(matrix.values)[i]), "a weight is not finite");
  for (size_t i = 0; i < matrix.entries && matrix.type == ValueType::f16; ++i)
    require((static_cast<const uint16_t*>(matrix.values)[i] & 0x7c00) != 0x7c00, "a weight is not finite");
}

// Palettes and scales are kept: a matrix only points to them.
using Kept = std::deque<std::vector<float>>;

Matrix read_weight(FileReader& file, Kept& kept) {
  Matrix weight;
  weight.format = named<Format>(kFormatNames, file.text());
  weight.type = named<ValueType>(kValueTypeNames, file.text());
  weight.rows = file.size();
  weight.columns = file.size();
  weight.entries = file.size();
  weight.index_bytes = static_cast<int>(file.size(8));
  weight.pointer_bytes = static_cast<int>(file.size(8));
  weight.parameter = static_cast<int>(file.size(15));
  weight.high_bytes = file.size();
  if (const int bits = code_bits(weight.type); bits > 0) {
    kept.push_back(file.floats());
    require(kept.back().size() <= size_t{1} << bits, "a palette is too large");
    kept.back().resize(size_t{1} << bits);  // an entry for every code that there can be
    weight.palette = kept.back().data();
  }
  kept.push_back(file.floats());
  require(kept.back().empty() || kept.back().size() == weight.rows, "rows and their scales are not as many");
  if (!kept.back().empty()) weight.scales = kept.back().data();
  const ArrayBytes wanted = array_bytes(weight);
  weight.values = file.array(wanted.values);
  weight.index = file.array(wanted.index);
  weight.pointers = file.array(wanted.pointers);
  check_index(weight);
  check_values(weight);
  return weight;
}

OpPlan read_plan(FileReader& file, Kept& kept) {
  OpPlan plan;
  plan.op = file.text();
  plan.inputs = file.sizes();
  for (size_t left = file.size(); left > 0; --left) plan.input_shapes.push_back(file.sizes());
  plan.output_shape = file.sizes();
  for (size_t left = file.size(); left > 0; --left) {
    const std::string name = file.text();
    plan.numbers[name] = file.numbers();
  }
  const auto activation = named<Activation>(kActivationNames, file.text());
  const Numbers about = file.numbers();
  require(about.size() == 2, "an activation has two numbers");
  plan.fused = {activation, static_cast<float>(about[0]), static_cast<float>(about[1])};
  for (size_t left = file.size(); left > 0; --left) {
    const std::string role = file.text();
    plan.tables[role] = file.floats();
  }
  if (file.size(1) != 0) plan.weight = read_weight(file, kept);
  return plan;
}

size_t product(const Shape& shape) {
  double all = 1;
  for (size_t each : shape) all *= static_cast<double>(each);
  require(all <= 0xffffffff, "a shape is too large");
  return elements(shape);
}

}  // namespace

std::vector<unsigned char> read_file(const char* path) {
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "rb");
  if (file == nullptr) refuse("the file cannot be opened");
  std::vector<unsigned char> bytes;
  unsigned char part[1 << 14];
  size_t count;
  try {
    while ((count = std::fread(part, 1, sizeof part, file)) > 0) bytes.insert(bytes.end(), part, part + count);
  } catch (...) {
    std::fclose(file);
    throw;
  }
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) refuse("the file cannot be read");
  return bytes;
}

void App::open(const void* data, size_t bytes, const Interface& wanted, int threads) {
  if (data == nullptr || bytes < kBegin || std::memcmp(data, kMagic, 8) != 0)
    refuse("this is not a network file for an app; write one with membound export --cpp-file");
  kept_.assign(bytes / 8 + 1, 0);  // aligned, whatever the caller's is
  std::memcpy(kept_.data(), data, bytes);
  const auto* begin = reinterpret_cast<const unsigned char*>(kept_.data());
  constant_bytes_ = bytes;
  if (kept_[1] != bytes)
    refuse("the file is cut short, or has more than its own bytes: " + std::to_string(bytes) + " of " + std::to_string(kept_[1]));
  require(kept_[2] == checksum(begin + kBegin, bytes - kBegin), "its checksum does not match");
  FileReader file(begin + kBegin, bytes - kBegin);
  const size_t format = file.size();
  if (format != kFileFormat)
    refuse("the file has format " + std::to_string(format) + ", and this program reads format " + std::to_string(kFileFormat) +
           ": export both with the same version of membound");
  engine_ = file.text();
  id_ = file.text();
  const std::string what = file.text();
  const std::string needed = wanted.what;
  if (what != needed && what.substr(0, what.rfind('(')) == needed.substr(0, needed.rfind('(')))
    refuse("the names of the file's classes, or their order, are not those of this program");
  if (what != needed) refuse("the file's network has " + what + "; this program needs " + needed);
  if (file.size(1) != 0) {
    const Numbers how = file.numbers();
    std::vector<float> mean = file.floats();
    read_preparation(how, std::move(mean), file.floats());
  }
  const Shape input = file.sizes();
  const std::vector<size_t> outputs = file.sizes();
  for (size_t left = file.size(); left > 0; --left) {
    plans_.push_back(read_plan(file, kept_floats_));
    for (const Shape& shape : plans_.back().input_shapes) product(shape);
    product(plans_.back().output_shape);
  }
  require(file.at_end(), "there is more than a network");
  for (const auto& floats : kept_floats_) constant_bytes_ += floats.size() * sizeof(float);
  product(input);
  start(input, outputs, threads, 1);
  bool same = network_->inputs() == wanted.inputs.size() && network_->outputs() == wanted.outputs.size();
  for (size_t i = 0; same && i < wanted.inputs.size(); ++i) same = network_->input_size(i) == wanted.inputs[i];
  for (size_t i = 0; same && i < wanted.outputs.size(); ++i) same = network_->output_size(i) == wanted.outputs[i];
  require(same && (!preparation_.channels || preparation_.channels * preparation_.height * preparation_.width == wanted.inputs[0]),
          "its inputs or outputs are of other sizes");
}

void App::read_preparation(const Numbers& numbers, std::vector<float> mean, std::vector<float> std) {
  require(numbers.size() == 7, "how images are prepared");
  for (size_t i = 0; i < 6; ++i)
    require(numbers[i] >= 0 && numbers[i] <= 0xffffff && numbers[i] == std::floor(numbers[i]), "how images are prepared");
  const auto whole = [&](size_t i) { return static_cast<size_t>(numbers[i]); };
  mean_ = std::move(mean);
  std_ = std::move(std);
  const bool image = whole(4) > 0;
  const size_t channels = whole(0), pixels = image ? whole(4) * whole(5) : 1;
  require(mean_.empty() ? !image : mean_.size() == channels * pixels, "how images are prepared");
  require(std_.empty() || std_.size() == channels, "how images are prepared");
  require(channels > 0 && std::isfinite(numbers[6]), "how images are prepared");
  preparation_ = {channels, whole(1), whole(2), whole(3) != 0, static_cast<float>(numbers[6]),
                  mean_.empty() ? nullptr : mean_.data(), std_.empty() ? nullptr : std_.data(), whole(4), whole(5)};
}

}  // namespace membound
