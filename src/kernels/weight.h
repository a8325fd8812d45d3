// A weight as it lies in the file: a matrix in one of the storage formats, read row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "net_kernels.h"

namespace membound {

// Nothing here is owned, and the contents have been validated: columns in range, pointers monotone.
struct Matrix {
  Format format = Format::dense;
  size_t rows = 0, columns = 0;
  size_t entries = 0;          // how many values there are
  const void* values = nullptr;
  ValueType type = ValueType::f32;
  const void* index = nullptr; // bits, positions, columns or gaps
  int index_bytes = 0;
  const void* pointers = nullptr;  // csr: where each row begins
  int pointer_bytes = 0;
};

// The bytes that each array of a matrix must have. Throws std::invalid_argument where there can be no such matrix.
struct ArrayBytes {
  size_t values = 0, index = 0, pointers = 0;
};
ArrayBytes array_bytes(const Matrix& matrix);

class Weight {
 public:
  // A place in a row: the next entry; its column (delta), or the next column to look at (dense, bitmask).
  struct Cursor {
    uint32_t entry;
    uint32_t column;
  };

  // Entries of a row: columns, and values that lie in the file or, converted, in the reader's room.
  struct Entries {
    size_t count;
    const float* values;
  };

  // A read takes at least this many entries if there are as many.
  static constexpr size_t kLeastRead = 64;

  Weight() = default;
  explicit Weight(const Matrix& matrix);

  const Matrix& matrix() const { return matrix_; }
  size_t rows() const { return matrix_.rows; }
  size_t columns() const { return matrix_.columns; }
  double density() const;
  size_t table_bytes() const { return (starts_.size() + columns_.size()) * sizeof(uint32_t); }

  Cursor start(size_t row) const;
  // Whether nothing of the row has been read; whether all of it has. Both hold for a row without entries.
  bool at_start(size_t row, const Cursor& cursor) const { return cursor.entry == row_start(row); }
  bool at_end(size_t row, const Cursor& cursor) const { return cursor.entry == row_start(row + 1); }
  // Up to `most` (>= kLeastRead) entries of the row from the cursor on, whose columns are below `end`, which the
  // cursor moves behind. `columns` and `room` have space for `most`.
  Entries read(size_t row, Cursor& cursor, size_t end, size_t most, int32_t* columns, float* room,
               const NetKernels& kernels) const;

  // The whole row as it lies in the file.
  Row row(size_t row) const;

 private:
  size_t row_start(size_t row) const;
  size_t read_bits(size_t row, Cursor& cursor, size_t end, size_t most, int32_t* columns,
                   const NetKernels& kernels) const;

  Matrix matrix_;
  std::vector<uint32_t> starts_;   // the first entry of each row, where the file does not say
  std::vector<uint32_t> columns_;  // delta: the column of that entry
};

}  // namespace membound
