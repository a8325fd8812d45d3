#include "sparse_bytes.h"

#include <algorithm>
#include <cstring>

namespace membound {
namespace {

constexpr size_t kMostSkipped = 15;

}  // namespace

void SparseBytes::reserve(size_t values, size_t words) {
  values_.reserve(values + kWordChannels - 1);
  heads_.reserve(std::min(values, words));
}

void SparseBytes::add_row(const int8_t* words, size_t depth) {
  static constexpr int8_t kZeros[kWordChannels] = {};
  const size_t before = heads_.size();
  size_t skipped = 0;
  for (size_t k = 0; k < depth; ++k, words += kWordChannels) {
    const bool zero = std::memcmp(words, kZeros, kWordChannels) == 0;
    // A head that skips no further has a word itself, if need be one of zeros.
    if (zero && skipped < kMostSkipped) {
      ++skipped;
      continue;
    }
    auto head = static_cast<uint8_t>(skipped << 4);
    for (size_t c = 0; c < kWordChannels; ++c)
      if (words[c] != 0) {
        head = static_cast<uint8_t>(head | 1u << c);
        values_.push_back(words[c]);
      }
    heads_.push_back(head);
    words_ += !zero;
    skipped = 0;
  }
  rows_.push_back({nullptr, nullptr, heads_.size() - before});
}

void SparseBytes::finish() {
  values_.resize(values_.size() + kWordChannels - 1);  // (SparseRow)
  heads_.shrink_to_fit();
  values_.shrink_to_fit();
  const uint8_t* head = heads_.data();
  const int8_t* value = values_.data();
  for (SparseRow& row : rows_) {
    row.heads = head;
    row.values = value;
    for (size_t k = 0; k < row.count; ++k, ++head)
      for (size_t c = 0; c < kWordChannels; ++c) value += *head >> c & 1;
  }
}

void SparseBytes::copy_row(size_t row, size_t step, int8_t* words) const {
  const int8_t* value = rows_[row].values;
  for (size_t k = 0; k < rows_[row].count; ++k, words += step) {
    const uint8_t head = rows_[row].heads[k];
    words += (head >> 4) * step;
    for (size_t c = 0; c < kWordChannels; ++c)
      if (head >> c & 1) words[c] = *value++;
  }
}

}  // namespace membound
