// The entries of a weight's rows as a product meets them: block of columns after block, each row on from where it was.
#pragma once

#include <algorithm>

#include "weight.h"

namespace membound {

class Reader {
 public:
  // Entries of a row's block, and where they meet the image.
  struct Entries {
    size_t count;
    const int32_t* offsets;
    const float* values;
    bool first, last;  // whether they are the row's first, its last;
    bool more;         // whether the block may have more of them
  };

  struct Plan {
    size_t rows;   // that wait for their next block,
    size_t most;   // entries of a block at once,
    // and entries of whole rows that are decoded at once, where they are: to begin costs as much as dozens of them. As many
    // as all these rows have, at least. 0: blocks are read one by one.
    size_t ahead;
  };

  // In floats.
  static size_t room(const Weight& weight, const Plan& plan) {
    const size_t places = weight.cursor_floats() * plan.rows;
    if (plan.ahead == 0) return 2 * plan.most + weight.slack() + places;
    return lines(plan.most) + lines(places) + floats_ahead(weight) * lines(plan.ahead + kReadSlack);
  }
  // What an entry takes that is decoded ahead: a value and, unless the file tells columns as they are, a position.
  static size_t floats_ahead(const Weight& weight) {
    const Format format = weight.matrix().format;
    return format == Format::csr || format == Format::indexed ? 1 : 2;
  }

  // No row from `last_row` on is read.
  Reader(const Weight& weight, const Places& places, const Plan& plan, size_t last_row, const NetKernels& kernels,
         float* room);

  // The next rows that are read, plan.rows or fewer.
  void start(size_t begin, size_t end);
  bool is_empty(size_t row) const { return weight_.row_start(row) == weight_.row_start(row + 1); }
  // Entries of the row, on from those before, whose columns are below `end`.
  Entries read(size_t row, size_t end);

  // Whether rows may be read as a whole, many at once: their columns and values lie in the file one behind the other.
  bool reads_rows() const {
    const Matrix& matrix = weight_.matrix();
    return plan_.ahead == 0 && matrix.format == Format::csr && matrix.index_bytes == 2 && matrix.type == ValueType::f32 &&
           matrix.scales == nullptr && weight_.widest() <= rows_room();
  }
  // All entries of the row; without start().
  Entries read_row(size_t row);

 private:
  // Entries of whole rows that there is room for: also in that of values, which are not converted.
  size_t rows_room() const { return 2 * plan_.most; }
  static size_t lines(size_t floats) { return (floats + kLine - 1) / kLine * kLine; }
  void decode(size_t begin);
  size_t place_decoded(size_t row, Weight::Cursor& cursor, size_t end);

  const Weight& weight_;
  const Places places_;
  const Plan plan_;
  const size_t last_row_;
  const NetKernels& kernels_;
  size_t begin_ = 0;

  int32_t* offsets_;
  float* values_;  // of a block, or of all the rows that are decoded
  int32_t* positions_ = nullptr;  // of these rows' entries, from the start of the first row on
  Cursors cursors_;
  size_t decoded_begin_ = 0, decoded_end_ = 0, decoded_entry_ = 0;
};

}  // namespace membound
