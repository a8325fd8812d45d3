// A weight in bytes without the words that are 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bytes.h"

namespace membound {

class SparseBytes {
 public:
  SparseBytes() = default;
  // For so many values that are not 0, in so many words at most; a block has so many words of a row, zeros among them.
  SparseBytes(size_t values, size_t words, size_t depth, size_t block);
  void add_row(const int8_t* words);
  void add_zeros();
  // When all rows are there.
  void finish();

  bool empty() const { return rows_.empty(); }
  size_t words() const { return words_; }  // that are not 0
  SparseRows rows(size_t first) const { return {rows_.data() + first, blocks()}; }
  size_t bytes() const {
    return heads_.size() + values_.size() + counts_.size() * sizeof(uint16_t) + rows_.size() * sizeof(SparseRow);
  }

  // Row `row`, with all its words, each `step` bytes after the one before; those of zeros are left as they are.
  void copy_row(size_t row, size_t step, int8_t* words) const;

 private:
  size_t blocks() const { return (depth_ + block_ - 1) / block_; }

  size_t depth_ = 0, block_ = 1;
  std::vector<uint8_t> heads_;
  std::vector<int8_t> values_;
  std::vector<uint16_t> counts_;
  std::vector<SparseRow> rows_;
  size_t words_ = 0;
};

}  // namespace membound
