#include "reader.h"

namespace membound {

Reader::Reader(const Weight& weight, const Places& places, const Plan& plan, size_t last_row, const NetKernels& kernels,
               float* room)
    : weight_(weight), places_(places), plan_(plan), last_row_(last_row), kernels_(kernels), offsets_(reinterpret_cast<int32_t*>(room)), values_(room + plan.most),
      cursors_(weight, plan.ahead == 0 ? room + 2 * plan.most + weight.slack() : room + lines(plan.most)) {
  if (plan.ahead == 0) return;
  values_ = room + lines(plan.most) + lines(weight.cursor_floats() * plan.rows);
  if (floats_ahead(weight) > 1) positions_ = reinterpret_cast<int32_t*>(values_ + lines(plan.ahead + kReadSlack));
}

void Reader::start(size_t begin, size_t end) {
  begin_ = begin;
  for (size_t row = begin; row < end; ++row) cursors_.put(row - begin, weight_.start(row));
  if (plan_.ahead > 0 && (begin < decoded_begin_ || end > decoded_end_)) decode(begin);
}

// As many rows as there is room for: those that were asked for, and more.
void Reader::decode(size_t begin) {
  const size_t most_rows = kMostPositions / weight_.columns();
  decoded_begin_ = decoded_end_ = begin;
  decoded_entry_ = weight_.row_start(begin);
  while (decoded_end_ < last_row_ && weight_.row_start(decoded_end_ + 1) - decoded_entry_ <= plan_.ahead &&
         decoded_end_ - begin < most_rows)
    ++decoded_end_;
  if (positions_) weight_.read_positions(begin, decoded_end_, positions_, kernels_);
  weight_.read_values(begin, decoded_end_, values_, kernels_);
}

// Of the row's entries that are decoded, those with columns below `end`.
size_t Reader::place_decoded(size_t row, Weight::Cursor& cursor, size_t end) {
  const size_t left = std::min(weight_.row_start(row + 1) - cursor.entry, plan_.most);
  const auto base = static_cast<int32_t>((row - decoded_begin_) * weight_.columns());
  const int32_t* from = positions_ + (cursor.entry - decoded_entry_);
  size_t n = left;
  if (end < weight_.columns())
    for (n = 0; n < left && from[n] - base < static_cast<int32_t>(end);) ++n;
  kernels_.place(from, base, n, places_, offsets_);
  cursor.entry += static_cast<uint32_t>(n);
  return n;
}

Reader::Entries Reader::read(size_t row, size_t end) {
  Weight::Cursor cursor = cursors_.get(row - begin_);
  const bool first = weight_.at_start(row, cursor);
  Weight::Entries found{};
  if (plan_.ahead == 0) {
    found = weight_.read(row, cursor, end, plan_.most, offsets_, values_, kernels_);
  } else {
    found.values = values_ + (cursor.entry - decoded_entry_);
    found.count = positions_ ? place_decoded(row, cursor, end)
                             : weight_.read_columns(row, cursor, end, plan_.most, offsets_, kernels_);
    found.more = found.count == plan_.most;
  }
  cursors_.put(row - begin_, cursor);
  if (positions_ == nullptr) kernels_.place(offsets_, 0, found.count, places_, offsets_);
  return {found.count, offsets_, found.values, first, weight_.at_end(row, cursor), found.more};
}

Reader::Entries Reader::read_row(size_t row) {
  const Matrix& matrix = weight_.matrix();
  const size_t entry = weight_.row_start(row), next = weight_.row_start(row + 1);
  if (row < decoded_begin_ || row >= decoded_end_) {
    decoded_begin_ = decoded_end_ = row;
    decoded_entry_ = entry;
    size_t end = entry;
    for (size_t behind; decoded_end_ < last_row_ && (behind = weight_.row_start(decoded_end_ + 1)) - entry <= rows_room(); end = behind)
      ++decoded_end_;
    kernels_.short_columns(static_cast<const uint16_t*>(matrix.index) + entry, end - entry, matrix.columns, offsets_);
    kernels_.place(offsets_, 0, end - entry, places_, offsets_);
  }
  return {next - entry, offsets_ + (entry - decoded_entry_), static_cast<const float*>(matrix.values) + entry, true, true, false};
}

}  // namespace membound
