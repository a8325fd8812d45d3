#include "slices.h"

#include <algorithm>

namespace membound {
namespace {

// The last place of a window holds 0, for rows that have no entry in it.
constexpr uint32_t kPlaces = 15, kNowhere = 15;
constexpr unsigned kMostBits = 4;
constexpr size_t kLeastEntries = 1024;  // fewer take no time that is worth their bytes

bool may_be_sliced(const Weight& weight, const Traits& traits) {
  const unsigned bits = code_bits(weight.matrix().type);
  return traits.slices && weight.short_columns() && bits > 0 && bits <= kMostBits && weight.columns() >= kPlaces &&
         weight.matrix().entries >= kLeastEntries;
}

// Steps that entries may take, so that a weight in few bits is with them no larger than in float32: and one more for each
// slice, whose last ones are not full. So it is seen from the first rows whether entries are too few.
size_t most_steps(const Weight& weight, size_t entries, size_t slices) {
  return entries * (32 - code_bits(weight.matrix().type)) / 8 / sizeof(FourSteps) + slices;
}

// Of some rows, and each of these from the entry on that is next: a column, and the code in the lowest four bits. Whether a row
// has one in the window cannot be guessed, so there is no branch on it.
class Slicer {
 public:
  explicit Slicer(const Weight& weight)
      : weight_(weight), last_window_(static_cast<uint32_t>(weight.columns()) - kPlaces),
        entries_(kSliceRows * (weight.widest() + 1)) {}

  void start(size_t first_row) {
    for (size_t lane = 0; lane < kSliceRows; ++lane) {
      next_[lane] = entries_.data() + lane * (weight_.widest() + 1);
      read(first_row + lane, next_[lane]);
    }
    first_ = kNone;
    for (const uint32_t* entry : next_) first_ = std::min(first_, *entry);
  }

  bool done() const { return first_ == kNone; }

  // One more step, as number `turn` of the four.
  void take(FourSteps& steps, size_t turn) {
    const uint32_t window = std::min(first_ >> 4, last_window_);
    steps.windows[turn] = static_cast<uint16_t>(window);
    uint32_t first = kNone;
    for (size_t lane = 0; lane < kSliceRows; ++lane) {
      const uint32_t entry = *next_[lane], place = (entry >> 4) - window;
      const uint32_t found = place < kPlaces;
      const uint32_t taken = 0 - found;  // all bits
      steps.lanes[lane] |= ((taken & (place | (entry & 15) << 4)) | (~taken & kNowhere)) << 8 * turn;
      next_[lane] += found;
      first = std::min(first, *next_[lane]);
    }
    first_ = first;
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  void read(size_t row, uint32_t* to) const {
    const Values& values = weight_.values();
    const auto* bytes = static_cast<const uint8_t*>(values.data);
    const unsigned bits = code_bits(values.type), mask = (1u << bits) - 1;
    const size_t end = row < weight_.rows() ? weight_.row_start(row + 1) : 0;
    for (size_t entry = end > 0 ? weight_.row_start(row) : 0; entry < end; ++entry) {
      const size_t byte = entry * bits / 8;
      const unsigned both = bytes[byte] | static_cast<unsigned>(bytes[std::min(byte + 1, values.bytes - 1)]) << 8;
      *to++ = static_cast<uint32_t>(weight_.short_columns()[entry] << 4) | (both >> entry * bits % 8 & mask);
    }
    *to = kNone;
  }

  const Weight& weight_;
  const uint32_t last_window_;
  std::vector<uint32_t> entries_;
  uint32_t* next_[kSliceRows];
  uint32_t first_ = kNone;
};

}  // namespace

Slices::Slices(const Weight& weight, const Traits& traits) {
  if (!may_be_sliced(weight, traits)) return;
  steps_.reserve(most_steps(weight, weight.matrix().entries, weight.rows() / kRows + 1));
  Slicer slicer(weight);
  for (size_t row = 0; row < weight.rows(); row += kRows) {
    starts_.push_back(static_cast<uint32_t>(steps_.size()));
    for (slicer.start(row); !slicer.done();) {
      steps_.emplace_back();
      for (size_t turn = 0; turn < 4; ++turn) slicer.take(steps_.back(), turn);
    }
    if (steps_.size() > most_steps(weight, weight.row_start(std::min(row + kRows, weight.rows())), starts_.size())) {
      *this = Slices();
      return;
    }
  }
  starts_.push_back(static_cast<uint32_t>(steps_.size()));
  steps_.shrink_to_fit();
  const size_t codes = size_t{1} << code_bits(weight.matrix().type);
  for (size_t i = 0; i < kRows; ++i) palette_.push_back(weight.matrix().palette[i % codes]);
}

size_t Slices::bytes() const {
  return steps_.size() * sizeof(FourSteps) + starts_.size() * sizeof(uint32_t) + palette_.size() * sizeof(float);
}

}  // namespace membound
