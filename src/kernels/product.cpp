#include "product.h"

#include <algorithm>
#include <cstring>

namespace membound {
namespace {

// Sizes in floats. What is read again and again stays in the nearest cache, the rest in the second.
constexpr size_t kNear = 10240;          // of the image, for the nonzeros of one row after another,
constexpr size_t kAlignedNear = 131072;  // where every load is a line: these are as fast from the second cache
constexpr size_t kCrowded = 1024;        // channels a multiple of this apart are in each other's place in the cache
constexpr size_t kSums = 16384;          // of output rows that wait for the next channels,
constexpr size_t kMostRows = 256;        // and how many rows may
constexpr size_t kMostEntries = 4096;    // that are unpacked at once
constexpr double kLeastEntries = 16;     // of a row in a block: fewer are not worth the way of its sums to and fro
constexpr size_t kAhead = 8192;          // of what is decoded at once, for rows that wait for their next block,
constexpr size_t kFewAhead = 1024;       // for others,
constexpr size_t kRowsAhead = 8;         // if so many waiting rows have no more
constexpr size_t kLeastTile = 56;        // in vectors: the nonzeros are unpacked anew for each tile
// Nonzeros of a row that are so few that the rows of an image are summed each for itself: with many, the lanes that a
// row leaves unused cost more than copying does.
constexpr double kFewEntries = 25;
// What a dense product takes for each output beside the multiplications, in multiplications more than a direct one,
constexpr double kDenseFinish = 7;
constexpr double kRicePacked = 6;  // and for each element of a weight whose gaps are packed by rice, in vectors of these

size_t vectors(size_t floats, const Traits& traits) {
  return divide_up(floats, static_cast<size_t>(traits.width));
}

// Entries of a block of columns that are unpacked at once. Those that are decoded go to whole lines of the cache: what is
// loaded right after it was stored comes straight from there, unless the store crossed from one line to the next.
size_t entries_at_once(const Weight& weight, size_t columns) {
  const size_t entries = std::clamp(columns, Weight::kLeastRead, kMostEntries);
  return weight.slack() > 0 ? whole_lines(entries) : entries;
}

// Whether rows of this weight are read as a whole, where all of their columns are met at once.
bool reads_rows(const Weight& weight) {
  return RowReader::takes(weight) && weight.widest() <= entries_at_once(weight, weight.columns());
}

}  // namespace

bool has_wide_gaps(const Image& image, const Traits& traits) {
  const size_t alone = image.rows * vectors(image.pixels, traits);
  return traits.width <= 4 && 5 * alone <= 4 * vectors((image.rows - 1) * image.row_step + image.pixels, traits);
}

// Whether nonzeros are met one by one. Of an image of one row, a batch of vectors, the number of pixels counts on both
// sides alike and is left out: room is planned for the largest batch, and a smaller one must not choose otherwise.
bool is_direct(const Weight& weight, const Image& image, size_t rows, const Traits& traits) {
  if (image.by_lines || image.decoded) return true;
  const size_t gemm_rows = static_cast<size_t>(traits.gemm_rows);
  const size_t length = (image.rows - 1) * image.row_step + image.pixels;
  const size_t direct_vectors = image.rows == 1 ? 1 : vectors(length, traits);
  const size_t dense_vectors = image.rows == 1 ? 1 : vectors(image.rows * image.pixels, traits);
  const double columns = static_cast<double>(weight.columns());
  const double direct = weight.density() * columns / static_cast<double>(traits.direct_speed) *
                        static_cast<double>(rows * direct_vectors);
  const double packing = weight.matrix().format == Format::rice && image.rows > 1 ? kRicePacked * columns : 0.0;
  const double dense = ((columns + kDenseFinish) * static_cast<double>(dense_vectors) + packing) *
                       static_cast<double>(divide_up(rows, gemm_rows) * gemm_rows);
  return direct < dense;
}

Product::Plans::Plans(const Weight& weight, const Image& image, size_t rows, const Traits& traits)
    : direct(plan_direct(weight, image, traits)), blocked(image.decoded ? plan_blocked(weight, image, traits) : BlockedPlan{}),
      dense(plan_dense(weight, image, rows, traits)), is_direct(membound::is_direct(weight, image, rows, traits)) {}

Product::Product(const Weight& weight, const Image& image, size_t rows, const Finish& finish, const NetKernels& kernels,
                 const Plans& plans)
    : weight_(weight), image_(image), rows_(rows), finish_(finish), limits_(limits_of(finish.activation, finish.first, finish.second)),
      limits_suffice_(limits_.limited || finish.activation == Activation::none), kernels_(kernels), direct_plan_(plans.direct),
      blocked_plan_(plans.blocked), dense_plan_(plans.dense), direct_(plans.is_direct) {}

Product::Product(const Weight& weight, const Image& image, size_t rows, const Finish& finish, const NetKernels& kernels)
    : Product(weight, image, rows, finish, kernels, Plans(weight, image, rows, kernels.traits)) {}

bool may_be_decoded(const Weight& weight, const Image& image, size_t rows, const Traits& traits) {
  return traits.near_floats > 0 && is_direct(weight, image, rows, traits) && Product::plan_blocked(weight, image, traits).tile > 0;
}

size_t product_room(const Weight& weight, const Image& image, size_t rows, const Traits& traits) {
  if (image.decoded) return Product::blocked_room(weight, Product::plan_blocked(weight, image, traits));
  if (is_direct(weight, image, rows, traits)) {
    const auto plan = Product::plan_direct(weight, image, traits);
    const size_t most_columns = image.rows == 1 ? weight.columns() : plan.block_columns;
    const size_t sums = plan.straight() ? 0 : plan.group * plan.step;
    if (plan.whole_rows && image.rows > 1) return sums + RowReader::room(weight);
    const size_t whole_rows = image.rows == 1 && reads_rows(weight) ? RowReader::room(weight) : 0;  // of fewer pixels
    const Reader::Plan blocks{std::min(kMostRows, weight.rows()), entries_at_once(weight, most_columns), plan.ahead};
    return sums + std::max(whole_rows, Reader::room(weight, blocks));
  }
  return Product::dense_room(weight, image, rows, traits);
}

Tasks Product::cut(size_t products, int threads) const {
  Tasks tasks{1, 1};
  if (image_.decoded) {
    if (threads == 1) return tasks;
    // Rows of the weight first: a task decodes its own.
    const size_t wanted = 2 * static_cast<size_t>(threads), tiles = divide_up(blocked_plan_.extent, blocked_plan_.tile);
    tasks.row_tasks = std::clamp<size_t>(divide_up(wanted, products), 1, std::max<size_t>(1, rows_ / 32));
    tasks.image_tasks = std::clamp<size_t>(divide_up(static_cast<size_t>(threads), tasks.row_tasks * products), 1, tiles);
    return tasks;
  }
  if (!direct_) {
    tasks.image_tasks = divide_up(image_.rows * image_.pixels, dense_plan_.pixels);
    if (dense_plan_.pack_once) tasks.image_tasks = threads == 1 ? 1 : std::min(tasks.image_tasks, 2 * static_cast<size_t>(threads));
    if (dense_plan_.in_place && dense_plan_.pack_once && threads > 1) {
      // Rows of the weight first: a task packs its own.
      const size_t wanted = 2 * static_cast<size_t>(threads), units = divide_up(rows_, static_cast<size_t>(kernels_.traits.gemm_rows));
      tasks.row_tasks = std::clamp<size_t>(divide_up(wanted, products), 1, units);
      tasks.image_tasks = std::clamp<size_t>(divide_up(wanted, tasks.row_tasks * products), 1, tasks.image_tasks);
      return tasks;
    }
  }
  if (threads > 1) {
    // Nonzeros may be cut fine, so that the last thread to finish is not late. Every dense task gathers its pixels
    // anew, so there are no more than are needed for all threads to have one.
    const size_t wanted = static_cast<size_t>(threads) * (direct_ ? 4 : 1), least = direct_ ? 4 : 16;
    tasks.row_tasks = std::clamp<size_t>(divide_up(wanted, tasks.image_tasks * products), 1,
                                         std::max<size_t>(1, rows_ / least));
  }
  return tasks;
}

Tasks Product::cut_into_tiles(size_t products, int threads) const {
  const size_t wanted = divide_up(static_cast<size_t>(threads), products);
  return {1, std::min(wanted, divide_up(blocked_plan_.extent, blocked_plan_.tile))};
}

Tasks Product::cut_by_rows(int threads) const {
  const auto all = static_cast<size_t>(threads);
  if (direct_) return {std::clamp<size_t>(rows_ / 16, 1, 4), all, true};
  // Each task gathers pixels, or packs the weight, for itself: it has a block of pixels at least.
  const size_t blocks = divide_up(image_.rows * image_.pixels, dense_plan_.pixels);
  return {1, std::clamp(blocks, all, 4 * all), true};
}

void Product::multiply(const Source& source, size_t first_row, float* y, size_t y_step, const Tasks& tasks, size_t task,
                       float* room) const {
  const size_t row_task = task % tasks.row_tasks, image_task = task / tasks.row_tasks;
  const size_t unit = direct_ ? 1 : static_cast<size_t>(kernels_.traits.gemm_rows), units = divide_up(rows_, unit);
  Part part;
  part.first_row = first_row + std::min(rows_, units * row_task / tasks.row_tasks * unit);
  part.last_row = first_row + std::min(rows_, units * (row_task + 1) / tasks.row_tasks * unit);
  y += (part.first_row - first_row) * y_step;
  const size_t extent = image_.decoded ? blocked_plan_.extent : direct_ ? direct_plan_.extent : image_.rows * image_.pixels;
  const size_t block = image_.decoded ? blocked_plan_.tile : direct_ ? extent : dense_plan_.pixels;
  const auto start_of = [&](size_t number) {
    if (number == tasks.image_tasks) return extent;
    if (!tasks.by_rows) return std::min(extent, divide_up(extent, block) * number / tasks.image_tasks * block);
    const size_t row = image_.rows * number / tasks.image_tasks;
    if (extent == image_.rows) return row;
    return image_.row_step == image_.pixels ? row * image_.pixels / kLine * kLine : row * image_.pixels;
  };
  part.first = start_of(image_task);
  part.last = start_of(image_task + 1);
  if (image_.decoded) {
    multiply_blocked(source, part, y, y_step, room);
  } else if (direct_) {
    for (const size_t last = part.last; part.first < last; part.first = part.last) {
      part.last = std::min(part.first + direct_plan_.tile, last);
      multiply_direct(source.x, part, y, y_step, room);
    }
  } else if (part.first < part.last) {
    multiply_dense(source.x, part, y, y_step, room);
  }
}

void Product::finish_row(float* y, size_t n) const {
  if (finish_.activation != Activation::none)
    kernels_.activate(finish_.activation, finish_.first, finish_.second, y, n);
}

// Whether every column of the weight meets pixels, seen from x, that begin where a line of the cache does.
bool Product::reads_lines(const float* x) const {
  const size_t step = image_.offsets ? image_.channel_floats : image_.column_step;
  return reinterpret_cast<uintptr_t>(x) % (kLine * sizeof(float)) == 0 &&
         (image_.by_lines || (image_.channel_columns == 1 && step % kLine == 0));
}

// --- direct: nonzero by nonzero ---

Product::DirectPlan Product::plan_direct(const Weight& weight, const Image& image, const Traits& traits) {
  const size_t width = static_cast<size_t>(traits.width), all_channels = weight.columns() / image.channel_columns;
  // Of as many channels as are read at once, at least, a tile stays near: but not if they are so far apart that all are
  // in each other's place in the cache.
  const size_t least = std::min(all_channels, divide_up(Weight::kLeastRead, image.channel_columns));
  const bool crowded = image.channel_floats % kCrowded == 0;
  const size_t largest = static_cast<size_t>(traits.channel_near);
  const double entries = weight.density() * static_cast<double>(weight.columns());  // of a row
  const auto few = static_cast<size_t>(std::clamp(kLeastEntries / std::max(entries, 1.0), 1.0, 8.0));
  const size_t near =
      few * (crowded ? largest : std::clamp(kNear / least, std::min(kLeastTile * width, largest), largest));
  DirectPlan plan{};
  plan.whole = image.row_step == image.pixels || image.rows == 1;
  if (image.by_lines) plan.whole = false;
  plan.by_rows = !plan.whole && (image.by_lines || entries <= kFewEntries || has_wide_gaps(image, traits));
  plan.extent = plan.whole ? image.rows * image.pixels : image.rows;
  const size_t most = plan.whole ? near : std::max<size_t>(1, near / std::max<size_t>(1, image.row_step));
  plan.tile = divide_up(plan.extent, divide_up(plan.extent, most));
  if (plan.whole) plan.tile = divide_up(plan.tile, width) * width;
  if (plan.by_rows && (all_channels == 1 || image.by_lines)) plan.tile = plan.extent;  // nothing is read again later
  const size_t footprint = plan.whole ? plan.tile + image.channel_floats - std::min(image.channel_floats, plan.extent)
                                      : image.channel_floats * plan.tile / image.rows + 2 * image.row_step;
  const bool aligned = plan.whole && traits.copies_to_lines && image.offsets && image.channel_columns == 1 &&
                       image.channel_floats % kLine == 0;
  const size_t channels = std::max<size_t>(1, (aligned ? kAlignedNear : kNear) / footprint);
  const size_t enough = static_cast<size_t>(kLeastEntries / std::max(weight.density(), 1e-6));
  plan.block_columns =
      std::min(weight.columns(), std::max({channels * image.channel_columns, Weight::kLeastRead, enough}));
  if (image.by_lines) plan.block_columns = weight.columns();
  const size_t length = plan.whole ? plan.tile : (plan.tile - 1) * image.row_step + image.pixels;
  plan.step = divide_up(length, width) * width;
  const size_t most_rows = std::min(kMostRows, weight.rows());
  const bool one_block = plan.block_columns >= weight.columns();
  plan.group = one_block ? 1 : std::clamp<size_t>(kSums / plan.step, 1, most_rows);
  plan.whole_rows = one_block && reads_rows(weight);
  if (plan.whole_rows) return plan;
  // Of a batch of vectors there may be fewer, which are cut otherwise; their blocks have many columns anyway.
  const size_t entries_ahead = (one_block ? kFewAhead : kAhead) / Reader::floats_ahead(weight);
  const size_t fitting = entries_ahead / std::max<size_t>(1, weight.widest());
  const bool decoded = weight.slack() > 0 && weight.matrix().format != Format::dense;
  if (decoded && image.rows > 1 && fitting >= std::min(one_block ? 2 : kRowsAhead, most_rows) &&
      plan.group * weight.columns() <= kMostPositions) {
    plan.group = std::min(plan.group, fitting);
    plan.ahead = std::min(weight.matrix().entries, one_block ? entries_ahead : plan.group * weight.widest());
  }
  return plan;
}

void Product::multiply_direct(const float* x, const Part& part, float* y, size_t y_step, float* room) const {
  const DirectPlan& plan = direct_plan_;
  float* waiting = room;
  if (!plan.straight()) room += plan.group * plan.step;
  const size_t step = image_.offsets ? image_.channel_floats : image_.column_step;
  const int32_t* table = image_.channel_columns > 1 ? image_.offsets : nullptr;
  const Places places{table, static_cast<int32_t>(image_.channel_columns), static_cast<int32_t>(step), weight_.columns()};
  const size_t tile = part.last - part.first, width = static_cast<size_t>(kernels_.traits.width);
  const size_t rows = plan.whole ? 1 : tile, pixels = plan.whole ? tile : image_.pixels;
  x += part.first * (plan.whole ? 1 : image_.row_step);
  y += part.first * (plan.whole ? 1 : image_.pixels);
  // What is copied later is summed in whole vectors.
  const size_t floats = plan.whole ? pixels : divide_up((rows - 1) * image_.row_step + pixels, width) * width;
  const bool in_parts = image_.offsets == nullptr;  // of linear layers
  const bool from_lines = reads_lines(x);
  const auto out = [&](size_t row) { return y + (row - part.first_row) * y_step; };
  // Sums wait, if they do, in place `number`.
  const auto accumulate = [&](size_t row, size_t number, const Reader::Entries& entries) {
    const float* start = entries.first ? finish_.bias + row : nullptr;
    const Sums how{start, entries.last && limits_.limited, limits_.low, limits_.high, in_parts, from_lines};
    if (plan.by_rows) {
      kernels_.accumulate_rows(entries.offsets, entries.values, entries.count, x, image_.row_step, out(row), pixels, rows,
                               pixels, how);
    } else {
      float* to = plan.whole ? out(row) : waiting + number * plan.step;
      kernels_.accumulate(entries.offsets, entries.values, entries.count, x, to, floats, how);
    }
  };
  const auto finish = [&](size_t row, size_t number) {
    if (!plan.straight()) kernels_.copy_rows(waiting + number * plan.step, image_.row_step, out(row), pixels, rows, pixels);
    if (!limits_suffice_) finish_row(out(row), rows * pixels);
  };
  if (plan.whole_rows) {
    RowReader reader(weight_, places, part.last_row, kernels_, room);
    for (size_t row = part.first_row; row < part.last_row; ++row) {
      accumulate(row, 0, reader.read(row));
      finish(row, 0);
    }
    return;
  }
  const size_t most = entries_at_once(weight_, plan.block_columns), waiting_rows = std::min(kMostRows, weight_.rows());
  Reader reader(weight_, places, {waiting_rows, most, plan.ahead}, part.last_row, kernels_, room);
  for (size_t begin = part.first_row; begin < part.last_row; begin += plan.group) {
    const size_t end = std::min(begin + plan.group, part.last_row);
    reader.start(begin, end);
    for (size_t row = begin; row < end; ++row)
      if (reader.is_empty(row)) accumulate(row, row - begin, {0, nullptr, nullptr, true, true, false});
    for (size_t column = 0; column < weight_.columns(); column += plan.block_columns) {
      const size_t column_end = std::min(column + plan.block_columns, weight_.columns());
      for (size_t row = begin; row < end; ++row)
        for (bool more = true; more;) {
          const Reader::Entries entries = reader.read(row, column_end);
          more = entries.more;
          if (entries.count == 0) break;
          accumulate(row, row - begin, entries);
        }
    }
    for (size_t row = begin; row < end; ++row) finish(row, row - begin);
  }
}

}  // namespace membound
