#include "reader.h"

namespace membound {

Reader::Reader(const Weight& weight, const Places& places, const Plan& plan, size_t last_row, const NetKernels& kernels,
               float* room)
    : weight_(weight), places_(places), plan_(plan), last_row_(last_row), kernels_(kernels), offsets_(reinterpret_cast<int32_t*>(room)), values_(room + plan.most),
      cursors_(weight, plan.ahead == 0 ? room + 2 * plan.most + weight.slack() : room + whole_lines(plan.most)) {
  if (plan.ahead == 0) return;
  values_ = room + whole_lines(plan.most) + whole_lines(weight.cursor_floats() * plan.rows);
  if (floats_ahead(weight) > 1) positions_ = reinterpret_cast<int32_t*>(values_ + whole_lines(plan.ahead + kReadSlack));
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
  if (end < weight_.columns()) n = kernels_.count_below(from, left, base + static_cast<int32_t>(end));
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

void RowReader::decode(size_t row) {
  const size_t most_rows = std::max<size_t>(1, kMostPositions / weight_.columns());
  const size_t first = weight_.row_start(row);
  size_t end = row + 1;
  while (end < last_row_ && end - row < most_rows && weight_.row_start(end + 1) - first <= entries(weight_)) ++end;
  const size_t count = weight_.row_start(end) - first;
  if (const uint16_t* columns = weight_.short_columns()) {
    kernels_.short_columns(columns + first, count, weight_.columns(), offsets_);
    kernels_.place(offsets_, 0, count, places_, offsets_);
  } else {  // positions go where values will be
    auto* positions = reinterpret_cast<int32_t*>(converted_);
    weight_.read_positions(row, end, positions, kernels_);
    for (size_t each = row, at = 0; each < end; ++each) {
      const size_t next = weight_.row_start(each + 1) - first;
      kernels_.place(positions + at, static_cast<int32_t>((each - row) * weight_.columns()), next - at, places_, offsets_ + at);
      at = next;
    }
  }
  if (in_file(weight_)) {
    values_ = static_cast<const float*>(weight_.matrix().values) + first;
  } else {
    weight_.read_values(row, end, converted_, kernels_);
    values_ = converted_;
  }
  begin_ = row;
  end_ = end;
  entry_ = first;
}

Reader::Entries RowReader::read(size_t row) {
  if (row < begin_ || row >= end_) decode(row);
  const size_t first = weight_.row_start(row), at = first - entry_;
  return {weight_.row_start(row + 1) - first, offsets_ + at, values_ + at, true, true, false};
}

}  // namespace membound
