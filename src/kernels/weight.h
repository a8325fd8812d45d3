// A weight as it lies in the file: a matrix in one of the storage formats, read row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "net_kernels.h"

namespace membound {

// Positions are 32 bits wide.
constexpr size_t kMostPositions = 0x40000000;

// Nothing here is owned, and the contents have been validated: columns in range, pointers monotone.
struct Matrix {
  Format format = Format::dense;
  size_t rows = 0, columns = 0;
  size_t entries = 0;          // how many values there are
  const void* values = nullptr;
  ValueType type = ValueType::f32;
  const void* index = nullptr; // bits, positions, columns, gaps or, of rice, the high parts of gaps
  int index_bytes = 0;
  const void* pointers = nullptr;  // csr: where each row begins; rice: the low parts of gaps
  int pointer_bytes = 0;
  const float* palette = nullptr;  // what codes mean: an entry for every code that there can be
  const float* scales = nullptr;   // if there are: what each row is multiplied by
  int parameter = 0;               // rice: bits of a low part
  size_t high_bytes = 0;           // rice: of the high parts, which does not follow from the rest
};

// A palette of fewer entries than there can be codes, as a matrix takes it: a code beyond them means 0.
std::vector<float> padded_palette(ValueType type, const float* entries, size_t count);

// The bytes that each array of a matrix must have. Throws std::invalid_argument where there can be no such matrix.
struct ArrayBytes {
  size_t values = 0, index = 0, pointers = 0;
};
ArrayBytes array_bytes(const Matrix& matrix);

class Weight {
 public:
  // A place in a row: the next entry; its column (delta), or the next column to look at (dense, bitmask), or the column
  // of the entry before (rice), and the first bit of the high parts behind that one.
  struct Cursor {
    uint32_t entry;
    uint32_t column;
    uint32_t bit;
  };

  // Entries of a row: columns, and values that lie in the file or, converted, in the reader's room.
  struct Entries {
    size_t count;
    const float* values;
    bool more;  // there may be more of them to read
  };

  // A read takes at least this many entries if there are as many.
  static constexpr size_t kLeastRead = 64;

  Weight() = default;
  explicit Weight(const Matrix& matrix);

  const Matrix& matrix() const { return matrix_; }
  size_t rows() const { return matrix_.rows; }
  size_t columns() const { return matrix_.columns; }
  double density() const;
  // Floats that may be written behind those that are read.
  size_t slack() const { return code_bits(matrix_.type) > 0 || matrix_.format == Format::rice ? kReadSlack : 0; }
  // Floats of a reader's room that a cursor takes in it (Cursors).
  size_t cursor_floats() const { return matrix_.format == Format::rice ? 3 : 2; }
  size_t widest() const { return widest_; }  // entries of the row that has most
  size_t row_start(size_t row) const;        // entries of all rows before it
  // What the weight takes beside the arrays of the file, palette and scales among it.
  size_t table_bytes() const;

  Cursor start(size_t row) const;
  // Whether nothing of the row has been read; whether all of it has. Both hold for a row without entries.
  bool at_start(size_t row, const Cursor& cursor) const { return cursor.entry == row_start(row); }
  bool at_end(size_t row, const Cursor& cursor) const { return cursor.entry == row_start(row + 1); }
  // Up to `most` (>= kLeastRead) entries of the row from the cursor on, whose columns are below `end`, which the
  // cursor moves behind. `columns` and, right behind it, `room` have space for `most`; behind that there are slack()
  // floats.
  Entries read(size_t row, Cursor& cursor, size_t end, size_t most, int32_t* columns, float* room,
               const NetKernels& kernels) const;

  // The same without values.
  size_t read_columns(size_t row, Cursor& cursor, size_t end, size_t most, int32_t* columns,
                      const NetKernels& kernels) const;

  // Of all the entries of rows [first, last), which have kMostPositions elements or fewer: positions, counted from the
  // start of the first row, and values. There is space for that many and for slack() more.
  void read_positions(size_t first, size_t last, int32_t* positions, const NetKernels& kernels) const;
  void read_values(size_t first, size_t last, float* values, const NetKernels& kernels) const;
  // The gaps of a weight of codes, if that is what it has and none is wide; else null.
  const Rice* near_gaps() const {
    return matrix_.format == Format::rice && rice_.near && code_bits(matrix_.type) > 0 ? &rice_ : nullptr;
  }
  // Columns of all entries, where the file tells them as they are, in 16 bits; else null.
  const uint16_t* short_columns() const {
    const bool told = matrix_.format == Format::csr && matrix_.index_bytes == 2;
    return told ? static_cast<const uint16_t*>(matrix_.index) : nullptr;
  }

  // The whole row as it lies in the file, and what it is multiplied by.
  Row row(size_t row) const;
  float scale(size_t row) const { return matrix_.scales ? matrix_.scales[row] : 1.0f; }
  const Values& values() const { return values_; }

 private:
  void find_rows_of_gaps();
  void find_rows_of_rice();
  size_t read_bits(size_t row, Cursor& cursor, size_t end, size_t most, int32_t* columns,
                   const NetKernels& kernels) const;

  Matrix matrix_;
  Values values_{};
  Rice rice_{};
  size_t widest_ = 0;
  std::vector<uint32_t> starts_;   // the first entry of each row, where the file does not say
  std::vector<uint32_t> columns_;  // delta: the column of that entry; rice: of the one before it, modulo 2^32
  std::vector<uint32_t> bits_;     // rice: the first bit of the high parts behind the entry before
};

// The places that a reader has reached in several rows, kept in its room: of each no more than its layout needs.
class Cursors {
 public:
  Cursors(const Weight& weight, float* room) : room_(room), floats_(weight.cursor_floats()) {}
  Weight::Cursor get(size_t number) const {
    Weight::Cursor cursor{};
    const float* from = room_ + number * floats_;
    std::memcpy(&cursor, from, kShort);
    if (floats_ == 3) std::memcpy(&cursor.bit, from + 2, sizeof cursor.bit);
    return cursor;
  }
  void put(size_t number, const Weight::Cursor& cursor) const {
    float* to = room_ + number * floats_;
    std::memcpy(to, &cursor, kShort);
    if (floats_ == 3) std::memcpy(to + 2, &cursor.bit, sizeof cursor.bit);
  }
  Cursors from(size_t number) const { return {room_ + number * floats_, floats_}; }

 private:
  static constexpr size_t kShort = offsetof(Weight::Cursor, bit);
  Cursors(float* room, size_t floats) : room_(room), floats_(floats) {}
  float* room_;
  size_t floats_;
};

}  // namespace membound
