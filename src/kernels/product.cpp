#include "product.h"

#include <algorithm>
#include <cstring>

namespace membound {
namespace {

// Sizes in floats. What is read again and again stays in the nearest cache, the rest in the second.
constexpr size_t kNear = 10240;        // of the image, for the nonzeros of one row after another
constexpr size_t kChannelNear = 1024;  // of one channel: more rows of the image are another tile
constexpr size_t kSums = 16384;        // of output rows that wait for the next channels,
constexpr size_t kMostRows = 256;      // and how many rows may
constexpr size_t kMostEntries = 4096;  // that are unpacked at once
constexpr size_t kDepth = 256;         // columns that a dense block takes at once

size_t divide_up(size_t a, size_t b) { return (a + b - 1) / b; }

// Pixels that a dense block takes at once: few, so that they stay near, but enough for the packing of the weight's
// rows, which is done anew for each block, to be worth it.
size_t block_pixels(const NetKernels& kernels) { return 24 * static_cast<size_t>(kernels.width); }

size_t offset_of(const Image& image, size_t column) {
  return image.offsets ? static_cast<size_t>(image.offsets[column]) : column * image.column_step;
}

// --- direct: nonzero by nonzero ---

struct DirectPlan {
  size_t tile_rows;      // rows of the image at once
  size_t block_columns;  // columns of the weight at once: whole channels
  size_t group;          // rows of the weight whose sums wait for the next block
  size_t step;           // floats between their sums
};

DirectPlan plan_direct(const Weight& weight, const Image& image, size_t width) {
  DirectPlan plan;
  const size_t rows_near = std::max<size_t>(1, kChannelNear / std::max<size_t>(1, image.row_step));
  const size_t tiles = divide_up(image.rows, std::min(image.rows, rows_near));
  plan.tile_rows = divide_up(image.rows, tiles);
  const size_t footprint = image.channel_floats * plan.tile_rows / image.rows + 2 * image.row_step;
  const size_t channels = std::max<size_t>(1, kNear / footprint);
  plan.block_columns = std::min(weight.columns(), std::max(channels * image.channel_columns, Weight::kLeastRead));
  const size_t length = (plan.tile_rows - 1) * image.row_step + image.pixels;
  plan.step = divide_up(length, width) * width;
  const size_t most_rows = std::min(kMostRows, weight.rows());
  plan.group = plan.block_columns >= weight.columns() ? 1 : std::clamp<size_t>(kSums / plan.step, 1, most_rows);
  return plan;
}

size_t most_entries(const Weight& weight, const DirectPlan& plan) {
  return std::clamp(std::min(plan.block_columns, weight.columns()), Weight::kLeastRead, kMostEntries);
}

// Enough for this image and for every one with fewer pixels: a batch may be smaller than the largest.
size_t direct_room(const Weight& weight, const DirectPlan& plan) {
  const size_t entries = std::clamp(weight.columns(), Weight::kLeastRead, kMostEntries);
  const size_t rows = plan.block_columns >= weight.columns() ? 1 : std::min(kMostRows, weight.rows());
  return std::max(plan.step, std::min(kSums, rows * plan.step)) + kSlack + 2 * entries + 2 * rows;
}

void finish_rows(float* y, size_t n, const Finish& finish, const NetKernels& kernels) {
  if (finish.activation != Activation::none) kernels.activate(finish.activation, finish.first, finish.second, y, n);
}

void multiply_direct(const Weight& weight, const Image& image, const float* x, size_t first_row, size_t last_row,
                     size_t first, size_t last, float* y, size_t y_step, size_t y_row, const Finish& finish,
                     const DirectPlan& plan, float* room, const NetKernels& kernels) {
  const size_t most = most_entries(weight, plan);
  float* sums = room;
  int32_t* offsets = reinterpret_cast<int32_t*>(room + plan.group * plan.step + kSlack);
  float* converted = room + plan.group * plan.step + kSlack + most;
  auto* cursors = reinterpret_cast<Weight::Cursor*>(room + plan.group * plan.step + kSlack + 2 * most);
  const size_t length = (last - first - 1) * image.row_step + image.pixels;
  const size_t vectors = divide_up(length, static_cast<size_t>(kernels.width));
  const float* tile = x + first * image.row_step;
  for (size_t begin = first_row; begin < last_row; begin += plan.group) {
    const size_t end = std::min(begin + plan.group, last_row);
    for (size_t row = begin; row < end; ++row) {
      std::fill_n(sums + (row - begin) * plan.step, plan.step, finish.bias[row]);
      cursors[row - begin] = weight.start(row);
    }
    for (size_t column = 0; column < weight.columns(); column += plan.block_columns) {
      const size_t column_end = std::min(column + plan.block_columns, weight.columns());
      for (size_t row = begin; row < end; ++row) {
        for (;;) {
          const auto entries = weight.read(row, cursors[row - begin], column_end, most, offsets, converted, kernels);
          if (entries.count == 0) break;
          if (image.offsets) {
            for (size_t k = 0; k < entries.count; ++k) offsets[k] = image.offsets[offsets[k]];
          } else {
            const int32_t step = static_cast<int32_t>(image.column_step);
            for (size_t k = 0; k < entries.count; ++k) offsets[k] *= step;
          }
          kernels.accumulate(offsets, entries.values, entries.count, tile, sums + (row - begin) * plan.step,
                             vectors);
        }
      }
    }
    for (size_t row = begin; row < end; ++row) {
      const float* from = sums + (row - begin) * plan.step;
      float* to = y + (row - y_row) * y_step + first * image.pixels;
      for (size_t i = first; i < last; ++i, from += image.row_step, to += image.pixels)
        std::memcpy(to, from, image.pixels * sizeof(float));
      finish_rows(y + (row - y_row) * y_step + first * image.pixels, (last - first) * image.pixels, finish, kernels);
    }
  }
}

// --- dense: blocks of the weight, unpacked as they are used, times a matrix of pixels ---

struct DensePlan {
  size_t depth, pixels, step;
};

DensePlan plan_dense(const Weight& weight, const Image& image, const NetKernels& kernels) {
  const size_t all = image.rows * image.pixels;
  DensePlan plan;
  plan.depth = divide_up(weight.columns(), std::max<size_t>(1, divide_up(weight.columns(), kDepth)));
  plan.pixels = divide_up(all, divide_up(all, block_pixels(kernels)));
  plan.step = divide_up(plan.pixels, kSlack) * kSlack + kSlack;
  return plan;
}

// Like direct_room(), enough for images with fewer pixels too.
size_t dense_room(const Weight& weight, const Image& image, const NetKernels& kernels) {
  DensePlan plan = plan_dense(weight, image, kernels);
  plan.step = divide_up(std::min(image.rows * image.pixels, block_pixels(kernels)), kSlack) * kSlack + kSlack;
  const size_t gemm_rows = static_cast<size_t>(kernels.gemm_rows);
  const size_t read = std::max(plan.depth, Weight::kLeastRead);
  return plan.depth * plan.step + kSlack + plan.depth * gemm_rows + 2 * read + 2 * weight.rows();
}

// The pixels [first, last) that the columns [begin, end) meet, as rows of a matrix.
void gather_pixels(const Image& image, const float* x, size_t begin, size_t end, size_t first, size_t last,
                   float* out, size_t step) {
  const size_t first_row = first / image.pixels, first_pixel = first % image.pixels;
  for (size_t column = begin; column < end; ++column, out += step) {
    const float* from = x + offset_of(image, column) + first_row * image.row_step;
    size_t pixel = first_pixel;
    for (size_t p = first; p < last;) {
      const size_t n = std::min(image.pixels - pixel, last - p);
      // Vectors of a fixed size: what is written behind the row is overwritten by the next, or lies in the slack.
      float* to = out + (p - first);
      for (size_t i = 0; i < n; i += 8) std::memcpy(to + i, from + pixel + i, 8 * sizeof(float));
      p += n;
      pixel = 0;
      from += image.row_step;
    }
  }
}

// Rows of the weight, columns [begin, end), as gemm() takes them: packed[column][row].
void pack_rows(const Weight& weight, size_t row, size_t rows, size_t begin, size_t end, Weight::Cursor* cursors,
               float* packed, int32_t* columns, float* converted, size_t most, const NetKernels& kernels) {
  const size_t gemm_rows = static_cast<size_t>(kernels.gemm_rows), depth = end - begin;
  if (rows == gemm_rows && weight.dense_row(row)) {
    kernels.pack(weight.dense_row(row) + begin, weight.columns(), depth, packed);
    return;
  }
  std::fill_n(packed, depth * gemm_rows, 0.0f);
  for (size_t r = 0; r < rows; ++r)
    for (;;) {
      const auto entries = weight.read(row + r, cursors[r], end, most, columns, converted, kernels);
      if (entries.count == 0) break;
      for (size_t k = 0; k < entries.count; ++k)
        packed[(static_cast<size_t>(columns[k]) - begin) * gemm_rows + r] = entries.values[k];
    }
}

void multiply_dense(const Weight& weight, const Image& image, const float* x, size_t first_row, size_t last_row,
                    size_t first, size_t last, float* y, size_t y_step, size_t y_row, const Finish& finish,
                    const DensePlan& plan, float* room, const NetKernels& kernels) {
  const size_t gemm_rows = static_cast<size_t>(kernels.gemm_rows);
  const size_t most = std::max(plan.depth, Weight::kLeastRead);
  float* pixels = room;
  float* packed = pixels + plan.depth * plan.step + kSlack;
  int32_t* columns = reinterpret_cast<int32_t*>(packed + plan.depth * gemm_rows);
  float* converted = packed + plan.depth * gemm_rows + most;
  auto* cursors = reinterpret_cast<Weight::Cursor*>(converted + most);
  for (size_t row = first_row; row < last_row; ++row) cursors[row - first_row] = weight.start(row);
  for (size_t begin = 0; begin < weight.columns(); begin += plan.depth) {
    const size_t end = std::min(begin + plan.depth, weight.columns());
    gather_pixels(image, x, begin, end, first, last, pixels, plan.step);
    for (size_t row = first_row; row < last_row; row += gemm_rows) {
      const size_t rows = std::min(gemm_rows, last_row - row);
      pack_rows(weight, row, rows, begin, end, cursors + (row - first_row), packed, columns, converted, most, kernels);
      float* to = y + (row - y_row) * y_step + first;
      kernels.gemm(packed, end - begin, pixels, plan.step, last - first, to, y_step, static_cast<int>(rows),
                   begin == 0 ? finish.bias + row : nullptr);
      if (end == weight.columns())
        for (size_t r = 0; r < rows; ++r) finish_rows(to + r * y_step, last - first, finish, kernels);
    }
  }
}

}  // namespace

bool is_direct(const Weight& weight, const Image& image, size_t rows, const NetKernels& kernels) {
  const size_t width = static_cast<size_t>(kernels.width), gemm_rows = static_cast<size_t>(kernels.gemm_rows);
  const size_t length = (image.rows - 1) * image.row_step + image.pixels;
  const double direct = weight.density() * static_cast<double>(rows) *
                        static_cast<double>(divide_up(length, width) * width) / kernels.direct_speed;
  const double dense = static_cast<double>(divide_up(rows, gemm_rows) * gemm_rows) *
                       static_cast<double>(divide_up(image.rows * image.pixels, width) * width);
  return direct < dense;
}

size_t product_room(const Weight& weight, const Image& image, const NetKernels& kernels) {
  return std::max(direct_room(weight, plan_direct(weight, image, static_cast<size_t>(kernels.width))),
                  dense_room(weight, image, kernels));
}

Tasks cut(const Image& image, size_t rows, size_t products, bool direct, int threads, const NetKernels& kernels) {
  Tasks tasks{1, 1};
  if (!direct) tasks.image_tasks = divide_up(image.rows * image.pixels, block_pixels(kernels));
  if (threads > 1) {
    // Nonzeros may be cut fine, so that the last thread to finish is not late. Every dense task gathers its pixels
    // anew, so there are no more than are needed for all threads to have one.
    const size_t wanted = static_cast<size_t>(threads) * (direct ? 4 : 1), least = direct ? 4 : 16;
    tasks.row_tasks = std::clamp<size_t>(divide_up(wanted, tasks.image_tasks * products), 1,
                                         std::max<size_t>(1, rows / least));
  }
  return tasks;
}

void multiply(const Weight& weight, const Image& image, const float* x, size_t first_row, size_t rows, float* y,
              size_t y_step, const Finish& finish, bool direct, const Tasks& tasks, size_t task, float* room,
              const NetKernels& kernels) {
  const size_t row_task = task % tasks.row_tasks, image_task = task / tasks.row_tasks;
  const size_t unit = direct ? 1 : static_cast<size_t>(kernels.gemm_rows), units = divide_up(rows, unit);
  const size_t begin = first_row + std::min(rows, units * row_task / tasks.row_tasks * unit);
  const size_t end = first_row + std::min(rows, units * (row_task + 1) / tasks.row_tasks * unit);
  if (direct) {
    const DirectPlan plan = plan_direct(weight, image, static_cast<size_t>(kernels.width));
    for (size_t first = 0; first < image.rows; first += plan.tile_rows)
      multiply_direct(weight, image, x, begin, end, first, std::min(first + plan.tile_rows, image.rows), y, y_step,
                      first_row, finish, plan, room, kernels);
  } else {
    const DensePlan plan = plan_dense(weight, image, kernels);
    const size_t all = image.rows * image.pixels;
    const size_t first = image_task * plan.pixels, last = std::min(first + plan.pixels, all);
    if (first < last)
      multiply_dense(weight, image, x, begin, end, first, last, y, y_step, first_row, finish, plan, room, kernels);
  }
}

}  // namespace membound
