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
    return whole_lines(plan.most) + whole_lines(places) + floats_ahead(weight) * whole_lines(plan.ahead + kReadSlack);
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

 private:
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

// The entries of whole rows, of one after the other. As many rows as there is room for are decoded at once, and placed.
class RowReader {
 public:
  // Weights that are decoded, or that tell columns in 16 bits.
  static bool takes(const Weight& weight) {
    return weight.short_columns() || (weight.slack() > 0 && weight.matrix().format != Format::dense);
  }
  // In floats.
  static size_t room(const Weight& weight) { return (weight.short_columns() && in_file(weight) ? 1 : 2) * part(weight); }

  RowReader(const Weight& weight, const Places& places, size_t last_row, const NetKernels& kernels, float* room)
      : weight_(weight), places_(places), last_row_(last_row), kernels_(kernels), offsets_(reinterpret_cast<int32_t*>(room)),
        converted_(room + part(weight)) {}

  Reader::Entries read(size_t row);

 private:
  static constexpr size_t kEntries = 512;
  static size_t entries(const Weight& weight) { return std::min(weight.matrix().entries, std::max(kEntries, weight.widest())); }
  static size_t part(const Weight& weight) { return whole_lines(entries(weight) + kReadSlack); }
  static bool in_file(const Weight& weight) {
    return weight.matrix().type == ValueType::f32 && weight.matrix().scales == nullptr;
  }
  void decode(size_t row);

  const Weight& weight_;
  const Places places_;
  const size_t last_row_;
  const NetKernels& kernels_;
  int32_t* offsets_;
  float* converted_;
  const float* values_ = nullptr;
  size_t begin_ = 0, end_ = 0, entry_ = 0;  // the rows that are decoded, and their first entry
};

}  // namespace membound
