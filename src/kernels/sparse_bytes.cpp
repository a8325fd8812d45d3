#include "sparse_bytes.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace membound {
namespace {

constexpr size_t kMostSkipped = 15;

}  // namespace

SparseBytes::SparseBytes(size_t values, size_t words, size_t depth, size_t block) : depth_(depth), block_(block) {
  values_.reserve(values + kWordChannels - 1);
  heads_.reserve(std::min(values, words));
}

void SparseBytes::add_row(const int8_t* words) {
  static constexpr int8_t kZeros[kWordChannels] = {};
  const size_t first_count = counts_.size();
  add_zeros();
  size_t skipped = 0;
  for (size_t k = 0; k < depth_; ++k, words += kWordChannels) {
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
    ++counts_[first_count + k / block_];
    words_ += !zero;
    skipped = 0;
  }
}

void SparseBytes::add_zeros() {
  rows_.push_back({});
  counts_.resize(counts_.size() + blocks());
}

void SparseBytes::finish() {
  values_.resize(values_.size() + kWordChannels - 1);  // (SparseRow)
  heads_.shrink_to_fit();
  values_.shrink_to_fit();
  const uint8_t* head = heads_.data();
  const int8_t* value = values_.data();
  const uint16_t* count = counts_.data();
  for (SparseRow& row : rows_) {
    row = {head, value, count};
    for (size_t block = 0; block < blocks(); ++block, ++count)
      for (size_t k = 0; k < *count; ++k, ++head)
        for (size_t c = 0; c < kWordChannels; ++c) value += *head >> c & 1;
  }
}

void SparseBytes::copy_row(size_t row, size_t step, int8_t* words) const {
  const auto [heads, values, counts] = rows_[row];
  const int8_t* value = values;
  const size_t count = std::accumulate(counts, counts + blocks(), size_t{0});
  for (size_t k = 0; k < count; ++k, words += step) {
    words += (heads[k] >> 4) * step;
    for (size_t c = 0; c < kWordChannels; ++c)
      if (heads[k] >> c & 1) words[c] = *value++;
  }
}

}  // namespace membound
