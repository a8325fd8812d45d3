#include "weight.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace membound {
namespace {

// Up to 8 bytes from `index`, of which there are `bytes`, as the bits of a number.
uint64_t bits_at(const uint8_t* index, size_t bytes, size_t at) {
  uint64_t word = 0;
  std::memcpy(&word, index + at, std::min<size_t>(8, bytes - at));
  return word;
}

size_t count_bits(const uint8_t* index, size_t bytes, size_t from, size_t to) {
  size_t count = 0;
  for (size_t bit = from; bit < to;) {
    const size_t here = std::min(64 - bit % 8, to - bit);
    uint64_t word = bits_at(index, bytes, bit / 8) >> (bit % 8);
    if (here < 64) word &= (uint64_t{1} << here) - 1;
    count += static_cast<size_t>(__builtin_popcountll(word));
    bit += here;
  }
  return count;
}

// Up to `count` columns, stored in 16 or 32 bits with `base` added, while they are below `end`.
template <class Column>
size_t copy_columns(const Column* from, size_t count, uint32_t base, size_t end, size_t width, int32_t* columns) {
  size_t n = 0;
  if (end >= width) {
    for (; n < count; ++n) columns[n] = static_cast<int32_t>(from[n] - base);
  } else {
    for (; n < count && from[n] - base < end; ++n) columns[n] = static_cast<int32_t>(from[n] - base);
  }
  return n;
}

// The step of a palette that is its multiples, 0 in the middle; 0 if it is another.
float step_of(const Matrix& matrix) {
  const int bits = static_cast<int>(code_bits(matrix.type)), middle = bits > 0 ? 1 << (bits - 1) : 0;
  if (bits < 2) return 0.0f;
  const float step = matrix.palette[middle + 1];
  for (int code = 0; code < 2 * middle; ++code)
    if (matrix.palette[code] != static_cast<float>(code - middle) * step) return 0.0f;
  return step;
}

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string("a plan that cannot be: ") + what);
}

}  // namespace

ArrayBytes array_bytes(const Matrix& matrix) {
  constexpr size_t kMost = size_t{1} << 32;
  require((matrix.rows == 0 || matrix.columns < kMost / matrix.rows + 1) && matrix.entries < kMost,
          "a weight of more than 2^32 elements");
  const size_t all = matrix.rows * matrix.columns;
  ArrayBytes bytes;
  bytes.values = (matrix.entries * value_bits(matrix.type) + 7) / 8;
  require((code_bits(matrix.type) > 0) == (matrix.palette != nullptr), "codes without a palette, or a palette without codes");
  switch (matrix.format) {
    case Format::dense:
      require(matrix.entries == all, "a dense weight of another size");
      break;
    case Format::bitmask:
      bytes.index = (all + 7) / 8;
      break;
    case Format::indexed:
      require(matrix.index_bytes == 4, "an index of another type");
      bytes.index = matrix.entries * 4;
      break;
    case Format::csr:
      require((matrix.index_bytes == 2 || matrix.index_bytes == 4) &&
                  (matrix.pointer_bytes == 2 || matrix.pointer_bytes == 4),
              "an index of another type");
      bytes.index = matrix.entries * static_cast<size_t>(matrix.index_bytes);
      bytes.pointers = (matrix.rows + 1) * static_cast<size_t>(matrix.pointer_bytes);
      break;
    case Format::delta:
      require(matrix.index_bytes == 1, "an index of another type");
      bytes.index = matrix.entries;
      break;
    case Format::rice:
      require(matrix.index_bytes == 1 && matrix.pointer_bytes == 1, "an index of another type");
      require(matrix.parameter >= 0 && matrix.parameter <= 15, "gaps cut at a bit that is not within 0 and 15");
      bytes.index = matrix.high_bytes;
      bytes.pointers = (matrix.entries * static_cast<size_t>(matrix.parameter) + 7) / 8;
      break;
  }
  return bytes;
}

std::vector<float> padded_palette(ValueType type, const float* entries, size_t count) {
  const size_t codes = size_t{1} << code_bits(type);
  require(code_bits(type) > 0 && count >= 1 && count <= codes, "a palette of more entries than there are codes, or of none");
  std::vector<float> palette(codes, 0.0f);
  std::copy(entries, entries + count, palette.begin());
  return palette;
}

Weight::Weight(const Matrix& matrix)
    : matrix_(matrix), values_{matrix.type, matrix.values, (matrix.entries * value_bits(matrix.type) + 7) / 8, matrix.palette,
                               step_of(matrix)} {
  const size_t rows = matrix.rows, columns = matrix.columns;
  if (matrix.format == Format::bitmask) {
    const size_t bytes = (rows * columns + 7) / 8;
    starts_.assign(rows + 1, 0);
    for (size_t row = 0; row < rows; ++row)
      starts_[row + 1] = starts_[row] + static_cast<uint32_t>(count_bits(static_cast<const uint8_t*>(matrix.index), bytes,
                                                                         row * columns, (row + 1) * columns));
  } else if (matrix.format == Format::indexed) {
    const auto* positions = static_cast<const uint32_t*>(matrix.index);
    starts_.assign(rows + 1, static_cast<uint32_t>(matrix.entries));
    for (size_t row = 0, entry = 0; row < rows; ++row) {
      while (entry < matrix.entries && positions[entry] < row * columns) ++entry;
      starts_[row] = static_cast<uint32_t>(entry);
    }
  } else if (matrix.format == Format::delta) {
    find_rows_of_gaps();
  } else if (matrix.format == Format::rice) {
    find_rows_of_rice();
  }
  for (size_t row = 0; row < rows; ++row) widest_ = std::max(widest_, row_start(row + 1) - row_start(row));
}

void Weight::find_rows_of_gaps() {
  const size_t rows = matrix_.rows, columns = matrix_.columns;
  const auto* gaps = static_cast<const uint8_t*>(matrix_.index);
  starts_.assign(rows + 1, static_cast<uint32_t>(matrix_.entries));
  columns_.assign(rows, 0);
  size_t row = 0;
  uint64_t position = 0;  // one behind the last entry
  for (size_t entry = 0; entry < matrix_.entries; ++entry) {
    position += gaps[entry];
    for (; row * columns <= position && row < rows; ++row) {
      starts_[row] = static_cast<uint32_t>(entry);
      columns_[row] = static_cast<uint32_t>(position - row * columns);  // beyond the row if it is empty
    }
    ++position;
  }
}

// All gaps are read here: what says that there are fewer entries, or that one lies outside, is refused, and readers need
// not look again.
void Weight::find_rows_of_rice() {
  const size_t rows = matrix_.rows, columns = matrix_.columns;
  const auto k = static_cast<unsigned>(matrix_.parameter);
  const Rice rice{static_cast<const uint8_t*>(matrix_.index), static_cast<const uint8_t*>(matrix_.pointers),
                  matrix_.high_bytes, (matrix_.entries * k + 7) / 8, k, false};
  starts_.assign(rows + 1, static_cast<uint32_t>(matrix_.entries));
  columns_.assign(rows, 0);
  bits_.assign(rows, 0);
  size_t row = 0, word_at = 0, behind = 0;  // `behind` the last entry's bit
  uint64_t word = 0, position = ~uint64_t{0};  // of the last entry
  uint64_t farthest = 0;
  for (size_t entry = 0; entry < matrix_.entries; ++entry) {
    for (; word == 0; word_at += 64) {
      require(word_at / 8 < rice.high_bytes, "gaps of fewer entries than there are values");
      word = bits_at(rice.high, rice.high_bytes, word_at / 8);
    }
    const size_t bit = word_at - 64 + static_cast<size_t>(__builtin_ctzll(word));
    word &= word - 1;
    uint64_t low = 0;
    if (rice.k > 0) {
      const size_t first = entry * rice.k;
      low = bits_at(rice.low, rice.low_bytes, first / 8) >> (first % 8) & ((uint64_t{1} << rice.k) - 1);
    }
    const uint64_t next = position + 1 + ((bit - behind) << rice.k) + low;
    require(next < rows * columns, "an entry outside of the weight");
    farthest = std::max(farthest, next - position);
    for (; row < rows && row * columns <= next; ++row) {
      starts_[row] = static_cast<uint32_t>(entry);
      columns_[row] = static_cast<uint32_t>(position - row * columns);
      bits_[row] = static_cast<uint32_t>(behind);
    }
    position = next;
    behind = bit + 1;
  }
  rice_ = rice;
  rice_.near = farthest < 0x4000 && k <= 9;
}

size_t Weight::table_bytes() const {
  const size_t palette = matrix_.palette ? size_t{1} << code_bits(matrix_.type) : 0;
  const size_t scales = matrix_.scales ? matrix_.rows : 0;
  return (starts_.size() + columns_.size() + bits_.size()) * sizeof(uint32_t) + (palette + scales) * sizeof(float);
}

double Weight::density() const {
  const double all = static_cast<double>(matrix_.rows) * static_cast<double>(matrix_.columns);
  return all > 0 ? static_cast<double>(matrix_.entries) / all : 0;
}

size_t Weight::row_start(size_t row) const {
  switch (matrix_.format) {
    case Format::dense: return row * matrix_.columns;
    case Format::csr:
      return matrix_.pointer_bytes == 2 ? static_cast<const uint16_t*>(matrix_.pointers)[row]
                                        : static_cast<const uint32_t*>(matrix_.pointers)[row];
    default: return starts_[row];
  }
}

Weight::Cursor Weight::start(size_t row) const {
  const uint32_t column = columns_.empty() ? 0 : columns_[row], bit = bits_.empty() ? 0 : bits_[row];
  return {static_cast<uint32_t>(row_start(row)), column, bit};
}

size_t Weight::read_bits(size_t row, Cursor& cursor, size_t end, size_t most, int32_t* columns,
                         const NetKernels& kernels) const {
  const auto* index = static_cast<const uint8_t*>(matrix_.index);
  const size_t bytes = (matrix_.rows * matrix_.columns + 7) / 8, first = row * matrix_.columns + cursor.column;
  size_t n = 0;
  size_t taken;
  n = kernels.bit_columns(index + first / 8, first % 8, (end - cursor.column) / 8, static_cast<int32_t>(cursor.column), most,
                          columns, &taken);
  cursor.column += static_cast<uint32_t>(8 * taken);
  while (cursor.column < end && n + 64 <= most) {
    const size_t bit = row * matrix_.columns + cursor.column;
    const size_t here = std::min<size_t>(64 - bit % 8, end - cursor.column);
    uint64_t word = bits_at(index, bytes, bit / 8) >> (bit % 8);
    if (here < 64) word &= (uint64_t{1} << here) - 1;
    for (; word != 0; word &= word - 1)
      columns[n++] = static_cast<int32_t>(cursor.column) + __builtin_ctzll(word);
    cursor.column += static_cast<uint32_t>(here);
  }
  return n;
}

size_t Weight::read_columns(size_t row, Cursor& cursor, size_t end, size_t most, int32_t* columns,
                            const NetKernels& kernels) const {
  size_t n = 0;
  const size_t left = matrix_.format == Format::dense ? 0 : std::min(row_start(row + 1) - cursor.entry, most);
  switch (matrix_.format) {
    case Format::dense:
      for (; cursor.column < end && n < most; ++n) columns[n] = static_cast<int32_t>(cursor.column++);
      break;
    case Format::bitmask:
      n = read_bits(row, cursor, end, most, columns, kernels);
      break;
    case Format::indexed: {
      const auto* from = static_cast<const uint32_t*>(matrix_.index) + cursor.entry;
      const uint32_t base = static_cast<uint32_t>(row * matrix_.columns);
      n = copy_columns(from, left, base, end, matrix_.columns, columns);
      break;
    }
    case Format::csr:
      if (matrix_.index_bytes == 2) {
        const auto* from = static_cast<const uint16_t*>(matrix_.index) + cursor.entry;
        n = kernels.short_columns(from, left, end, columns);
      } else {
        const auto* from = static_cast<const uint32_t*>(matrix_.index) + cursor.entry;
        n = copy_columns(from, left, 0, end, matrix_.columns, columns);
      }
      break;
    case Format::delta: {
      const auto* gaps = static_cast<const uint8_t*>(matrix_.index) + cursor.entry;
      const bool more = left < row_start(row + 1) - cursor.entry;
      n = kernels.gap_columns(gaps, left, more, end, &cursor.column, columns);
      break;
    }
    case Format::rice:
      n = kernels.rice_columns(rice_, cursor.entry, left, end, &cursor.column, &cursor.bit, columns);
      break;
  }
  cursor.entry += static_cast<uint32_t>(n);
  return n;
}

Weight::Entries Weight::read(size_t row, Cursor& cursor, size_t end, size_t most, int32_t* columns, float* room,
                             const NetKernels& kernels) const {
  const size_t first = matrix_.format == Format::dense ? row * matrix_.columns + cursor.column : cursor.entry;
  const size_t n = read_columns(row, cursor, end, most, columns, kernels);
  // Bits are taken by the byte, so that some may be left where there is still room.
  const bool more = (n == most || matrix_.format == Format::bitmask) && !at_end(row, cursor);
  if (matrix_.type == ValueType::f32 && matrix_.scales == nullptr)
    return {n, static_cast<const float*>(matrix_.values) + first, more};
  kernels.to_float(values_, first, scale(row), room, n);
  return {n, room, more};
}

void Weight::read_positions(size_t first, size_t last, int32_t* positions, const NetKernels& kernels) const {
  const size_t begin = row_start(first);
  if (matrix_.format == Format::rice) {  // its gaps go on from row to row
    Cursor cursor = start(first);
    kernels.rice_columns(rice_, begin, row_start(last) - begin, ~size_t{0}, &cursor.column, &cursor.bit, positions);
    return;
  }
  for (size_t row = first; row < last; ++row) {
    const auto base = static_cast<int32_t>((row - first) * matrix_.columns);
    Cursor cursor = start(row);
    while (!at_end(row, cursor)) {
      int32_t* to = positions + (cursor.entry - begin);
      const size_t most = row_start(row + 1) - cursor.entry + kLeastRead;  // bits are taken only where there is room
      const size_t n = read_columns(row, cursor, matrix_.columns, most, to, kernels);
      for (size_t i = 0; i < n; ++i) to[i] += base;
    }
  }
}

void Weight::read_values(size_t first, size_t last, float* values, const NetKernels& kernels) const {
  const size_t begin = row_start(first);
  kernels.to_float(values_, begin, 1.0f, values, row_start(last) - begin);
  if (matrix_.scales == nullptr) return;
  for (size_t row = first; row < last; ++row) {
    float* here = values + (row_start(row) - begin);
    kernels.binary(Binary::mul, here, 1, &matrix_.scales[row], 0, here, row_start(row + 1) - row_start(row));
  }
}

Row Weight::row(size_t row) const {
  const auto* index = static_cast<const uint8_t*>(matrix_.index);
  const size_t entry = row_start(row);
  Row found{matrix_.format, &values_, entry, row_start(row + 1) - entry, index, 0, matrix_.index_bytes, 0, matrix_.columns,
            &rice_, 0};
  switch (matrix_.format) {
    case Format::dense: break;
    case Format::csr:
    case Format::indexed:
    case Format::delta:
      found.index = index + found.entry * static_cast<size_t>(matrix_.index_bytes);
      found.first = matrix_.format == Format::delta ? columns_[row] : row * matrix_.columns;
      break;
    case Format::bitmask:
      found.index_end = (matrix_.rows * matrix_.columns + 7) / 8;
      found.first = row * matrix_.columns;
      break;
    case Format::rice:
      found.first = columns_[row];
      found.bit = bits_[row];
      break;
  }
  return found;
}

}  // namespace membound
