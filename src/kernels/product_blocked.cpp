// Products with nonzeros that were decoded before: rows of the weight in groups, tile after tile of the image, and of each
// tile block after block of channels, so few that they stay in the nearest cache while the rows pass by.
#include <algorithm>

#include "product.h"

namespace membound {
namespace {

constexpr size_t kEntriesAtOnce = 40960;  // of the rows of a group: decoded, they stay in the second cache,
constexpr size_t kSecond = 131072;        // floats of an image that stay there, where the nearest would hold too few,
constexpr size_t kSumsAtOnce = 65536;     // as do their sums, in floats
constexpr size_t kLeastRowsAtOnce = 8;    // of a group: fewer are not worth their way
constexpr double kLeastOfBlock = 3;       // entries of a row's block, on the average
constexpr size_t kSumsNear = 8192;        // floats that stay in the nearest cache beside an image's
constexpr size_t kMostVectors = 15;  // of short rows that are summed at once: of fewer, more channels stay near

// What steps take, in cycles, where every load is a line: a multiplication whose pixels come from the first cache, from so many
// lines of the second, or from more;
constexpr struct { size_t lines; double cycles; } kLoads[] = {{448, 0.57}, {1024, 0.75}, {3072, 1.04}, {size_t{1} << 30, 1.23}};
constexpr double kNonzero = 1.1, kLatency = 4;  // one more of a row, with its few or many pixels;
constexpr double kRow = 12, kBlock = 25;        // a row, and each of its blocks if there are several;
constexpr double kSum = 1;                      // a vector of sums to its place or from there

// How many vectors of a channel, and how many channels, meet the rows at once.
struct Points {
  size_t vectors, channels;
};

// Of all shapes, the one that takes least: with few vectors, more channels stay near, and sums are fetched less often.
Points plan_points(size_t extent, size_t channels, double density, const Traits& traits) {
  Points best{1, channels};
  double least = 0;
  for (size_t most = 1; most <= static_cast<size_t>(traits.tile); ++most) {
    const size_t tiles = divide_up(extent, most), vectors = divide_up(extent, tiles);
    for (const auto& from : kLoads) {
      const size_t blocks = divide_up(channels, std::clamp<size_t>(from.lines / vectors, 1, channels));
      const double parts = blocks > 1 ? static_cast<double>(blocks) * (kBlock + 2 * kSum * static_cast<double>(vectors)) : 0.0;
      const double row = density * static_cast<double>(channels) *
                             (std::max(static_cast<double>(vectors) * from.cycles, kLatency) + kNonzero) +
                         kRow + parts;
      const double all = static_cast<double>(tiles) * row;
      if (least > 0 && all >= least) continue;
      least = all;
      best = {vectors, divide_up(channels, blocks)};
    }
  }
  return best;
}

}  // namespace

bool values_lie_in_file(const Weight& weight) {
  return weight.matrix().type == ValueType::f32 && weight.matrix().scales == nullptr;
}

Product::BlockedPlan Product::plan_blocked(const Weight& weight, const Image& image, const Traits& traits) {
  const size_t width = static_cast<size_t>(traits.width), most = static_cast<size_t>(traits.tile) * width;
  const size_t channels = weight.columns() / image.channel_columns;
  BlockedPlan plan{};
  plan.whole = image.row_step == image.pixels || image.rows == 1;
  plan.extent = plan.whole ? image.rows * image.pixels : image.rows;
  if (!plan.whole && (image.pixels > most || has_wide_gaps(image, traits))) return {};
  const auto most_tiles = static_cast<size_t>(traits.most_tiles);
  if (plan.whole && most_tiles > 0 && plan.extent > most_tiles * most) return {};
  if (plan.whole && traits.copies_to_lines) {
    const Points points = plan_points(divide_up(plan.extent, width), channels, weight.density(), traits);
    plan.tile = points.vectors * width;
    plan.columns = points.channels * image.channel_columns;
    plan.blocks = divide_up(channels, points.channels);
    plan.step = plan.blocks > 1 ? plan.tile : 0;
    return with_groups(plan, weight, plan.blocks > 1 ? kSumsNear / plan.tile : weight.rows());
  }
  const size_t of_rows = image.pixels > 2 * width ? most : std::max(image.pixels, std::min(most, kMostVectors * width));
  const size_t fitting = plan.whole ? most : 1 + (of_rows - image.pixels) / image.row_step;
  plan.tile = divide_up(plan.extent, divide_up(plan.extent, fitting));
  if (plan.whole) plan.tile = divide_up(plan.tile, width) * width;
  if (divide_up(plan.extent, plan.tile) < static_cast<size_t>(traits.least_tiles)) return {};
  const size_t footprint = plan.whole     ? std::min(plan.tile, image.channel_floats)
                           : image.banded ? image.channel_floats
                                          : image.channel_floats * plan.tile / image.rows + 2 * image.row_step;
  const size_t sums = plan.whole ? plan.tile : divide_up((plan.tile - 1) * image.row_step + image.pixels, width) * width;
  const auto fitting_channels = [&](size_t floats) { return std::clamp<size_t>(floats / footprint, 1, channels); };
  // More may come from the second cache where every line is loaded once: aligned, or to be joined. So may those that no other
  // column of the kernel reads again, of short vectors.
  const bool joined = !plan.whole && traits.copies_to_lines, short_whole = plan.whole && traits.width <= 4;
  const size_t quarters = joined || short_whole ? 6 : 4;
  const size_t near = fitting_channels(static_cast<size_t>(traits.near_floats) * quarters / 4);
  const double entries = weight.density() * static_cast<double>(near * image.channel_columns);
  const bool few = entries < kLeastOfBlock || entries * static_cast<double>(divide_up(sums, width)) < traits.least_work;
  const size_t most_channels = few ? fitting_channels(kSecond) : near;
  const size_t at_once = divide_up(channels, divide_up(channels, most_channels));
  plan.columns = at_once * image.channel_columns;
  plan.blocks = divide_up(channels, at_once);
  plan.step = plan.whole ? 0 : sums;
  return with_groups(plan, weight, std::max<size_t>(1, kSumsAtOnce / sums));
}

// Of so many rows at most.
Product::BlockedPlan Product::with_groups(BlockedPlan plan, const Weight& weight, size_t most) {
  const size_t widest = std::max<size_t>(1, weight.widest());
  plan.group = std::min({weight.rows(), kEntriesAtOnce / widest, most});
  if (plan.group < std::min(weight.rows(), kLeastRowsAtOnce)) return {};
  if (plan.group * weight.columns() > kMostPositions) return {};
  plan.entries = std::min(plan.group * widest, weight.matrix().entries);
  return plan;
}

size_t Product::blocked_room(const Weight& weight, const BlockedPlan& plan) {
  const size_t decoded = whole_lines(plan.entries + kBehindDecoded) * (values_lie_in_file(weight) ? 1 : 2);
  return whole_lines(plan.group * (plan.blocks + 1)) + decoded + plan.group * plan.step;
}

void decode_rows(const Weight& weight, size_t begin, size_t end, const Places& places, size_t blocks, size_t block_floats,
                 uint32_t* cuts, int32_t* offsets, const NetKernels& kernels) {
  const Matrix& matrix = weight.matrix();
  const size_t first = weight.row_start(begin), all = weight.row_start(end) - first;
  const uint16_t* told = weight.short_columns();  // columns lie in the file as they are
  if (told) {
    kernels.short_columns(told + first, all, matrix.columns, offsets);
    kernels.place(offsets, 0, all, places, offsets);
  } else {
    weight.read_positions(begin, end, offsets, kernels);
  }
  for (size_t row = begin, from = 0; row < end; ++row) {
    const size_t to = weight.row_start(row + 1) - first;
    if (!told) kernels.place(offsets + from, static_cast<int32_t>((row - begin) * matrix.columns), to - from, places, offsets + from);
    *cuts++ = static_cast<uint32_t>(from);
    for (size_t block = 1; block < blocks; ++block) {
      from += kernels.count_below(offsets + from, to - from, static_cast<int32_t>(block * block_floats));
      *cuts++ = static_cast<uint32_t>(from);
    }
    *cuts++ = static_cast<uint32_t>(to);
    from = to;
  }
}

size_t banded_rows(const Weight& weight, const Image& image, size_t rows, const Traits& traits) {
  if (!may_be_decoded(weight, image, rows, traits)) return 0;
  const Product::BlockedPlan plan = Product::plan_blocked(weight, image, traits);
  return plan.whole || plan.group < rows || plan.tile == plan.extent ? 0 : plan.tile;
}

void Product::multiply_blocked(const Source& source, const Part& part, float* y, size_t y_step, float* room) const {
  const BlockedPlan& plan = blocked_plan_;
  const size_t across = plan.whole ? 1 : image_.pixels;
  auto* cuts = reinterpret_cast<uint32_t*>(room);
  auto* offsets = reinterpret_cast<int32_t*>(room + whole_lines(plan.group * (plan.blocks + 1)));
  const size_t step = image_.offsets ? image_.channel_floats : image_.column_step;
  const Places places{image_.offsets, static_cast<int32_t>(image_.channel_columns), static_cast<int32_t>(step), weight_.columns()};
  const bool in_file = values_lie_in_file(weight_);
  float* decoded = reinterpret_cast<float*>(offsets) + whole_lines(plan.entries + kBehindDecoded);
  float* waiting = decoded + (in_file ? 0 : whole_lines(plan.entries + kBehindDecoded));
  for (size_t begin = part.first_row; begin < part.last_row; begin += plan.group) {
    const size_t end = std::min(begin + plan.group, part.last_row), rows = end - begin;
    decode_rows(weight_, begin, end, places, plan.blocks, plan.columns / image_.channel_columns * step, cuts, offsets, kernels_);
    const float* values = static_cast<const float*>(weight_.matrix().values) + (in_file ? weight_.row_start(begin) : 0);
    if (!in_file) {
      weight_.read_values(begin, end, decoded, kernels_);
      values = decoded;
    }
    for (size_t first = part.first; first < part.last; first += plan.tile) {
      const size_t here = std::min(plan.tile, part.last - first);
      float* out = y + (begin - part.first_row) * y_step + first * across;
      const bool waits = plan.step > 0;
      const size_t floats = plan.whole ? here : (here - 1) * image_.row_step + image_.pixels;
      const float* from =
          image_.banded ? (*source.lay_out)(first, here) : source.x + first * (plan.whole ? 1 : image_.row_step);
      const Segments segments{offsets, values, cuts, plan.blocks + 1, rows};
      for (size_t block = 0; block < plan.blocks; ++block) {
        const bool last = block + 1 == plan.blocks;
        const Sums how{block == 0 ? finish_.bias + begin : nullptr, last && limits_.limited, limits_.low, limits_.high, false,
                       reads_lines(from)};
        kernels_.accumulate_each(segments, block, from, waits ? waiting : out, waits ? plan.step : y_step, floats, how);
      }
      for (size_t row = 0; row < rows; ++row, out += y_step) {
        float* summed = waiting + row * plan.step;
        if (waits && plan.whole) kernels_.copy_rows(summed, 0, out, 0, 1, here);
        else if (waits) kernels_.copy_rows(summed, image_.row_step, out, image_.pixels, here, image_.pixels);
        if (!limits_suffice_) finish_row(out, plan.whole ? here : here * image_.pixels);
      }
    }
  }
}

}  // namespace membound
