// Products with dense weights: blocks of the weight, unpacked as they are used, times a matrix of pixels. These are read where
// they lie, or, where that would leave many lanes of vectors unused, gathered first.
#include <algorithm>
#include <cstring>

#include "product.h"

namespace membound {
namespace {

// Sizes in floats.
constexpr size_t kDepth = 256;         // columns of the weight at once
constexpr size_t kPackedOnce = 16384;  // of a weight that is packed as a whole; where pixels are gathered, if it has
constexpr size_t kShallow = 96;        // columns or fewer; its pixels are then taken
constexpr size_t kFewPixels = 2048;    // in blocks of about so many floats,
constexpr size_t kLeastPixels = 48;    // and at least so many pixels
constexpr size_t kRowsForLines = 64;   // of a weight, for which pixels are gathered in whole lines of the cache
constexpr size_t kMostRows = 8;        // of the weight that any instruction set packs at once
constexpr size_t kChunks = 24;         // vectors of pixels at once, which stay near while the weight's rows pass by,
constexpr size_t kMostChunks = 96;     // and of short ones, where these rows are packed anew each time

// Pixels that a dense block takes at once: few, so that they stay near, but enough for the packing of the weight's
// rows, which is done anew for each block, to be worth it.
size_t block_pixels(const Traits& traits) { return kChunks * static_cast<size_t>(traits.width); }

// The same in vectors of pixels that are read where they lie.
size_t chunks_at_once(bool pack_once, const Traits& traits) { return !pack_once && traits.width <= 4 ? kMostChunks : kChunks; }

size_t offset_of(const Image& image, size_t column) {
  return image.offsets ? static_cast<size_t>(image.offsets[column]) : column * image.column_step;
}

// Whether the rows of an image follow one another as their outputs do.
bool is_whole(const Image& image) { return image.row_step == image.pixels || image.rows == 1; }

// Whether pixels are best read where they lie: few lanes of their vectors are unused, and where it matters and many rows of
// the weight read them, vectors are whole lines of the cache.
bool is_read_in_place(const Image& image, size_t rows, const Traits& traits) {
  const size_t width = static_cast<size_t>(traits.width), all = image.rows * image.pixels;
  if (traits.copies_to_lines && is_whole(image) && image.channel_floats % kLine != 0 && rows >= kRowsForLines) return false;
  const size_t vectors = is_whole(image) ? divide_up(all, width) : image.rows * divide_up(image.pixels, width);
  return traits.lanes_used * vectors * width <= 100 * all;
}

}  // namespace

Product::DensePlan Product::plan_dense(const Weight& weight, const Image& image, size_t rows, const Traits& traits) {
  const size_t all = image.rows * image.pixels, panel = static_cast<size_t>(traits.gemm_vectors * traits.width);
  const size_t gemm_rows = static_cast<size_t>(traits.gemm_rows), packed = divide_up(rows, gemm_rows) * gemm_rows * weight.columns();
  DensePlan plan;
  plan.in_place = image.offsets != nullptr && is_read_in_place(image, rows, traits);
  plan.depth = divide_up(weight.columns(), std::max<size_t>(1, divide_up(weight.columns(), kDepth)));
  plan.pack_once = weight.columns() <= kShallow && rows * weight.columns() <= kPackedOnce;
  size_t block = block_pixels(traits);
  if (plan.pack_once)
    block = std::min(block, std::max(kFewPixels / plan.depth, std::max(kLeastPixels, panel)) / panel * panel);
  plan.pixels = plan.pack_once ? std::min(all, block) : divide_up(all, divide_up(all, block));
  plan.step = divide_up(plan.pixels, kSlack) * kSlack + kSlack;
  if (!plan.in_place) return plan;
  // No more room than the gathered pixels would take.
  plan.pack_once = plan.pack_once || packed <= std::min(kPackedOnce, plan.depth * (plan.step + gemm_rows));
  const size_t at_once = chunks_at_once(plan.pack_once, traits) * static_cast<size_t>(traits.width);
  if (!is_whole(image)) plan.pixels = std::max<size_t>(1, at_once / image.pixels) * image.pixels;
  else if (!plan.pack_once) plan.pixels = divide_up(all, divide_up(all, at_once));
  return plan;
}

size_t Product::dense_room(const Weight& weight, const Image& image, size_t rows, const Traits& traits) {
  const DensePlan plan = plan_dense(weight, image, rows, traits);
  const size_t gemm_rows = static_cast<size_t>(traits.gemm_rows), read = std::max(plan.depth, Weight::kLeastRead);
  const size_t reading = 2 * read + weight.slack() + weight.cursor_floats() * weight.rows();
  const size_t groups = divide_up(rows, gemm_rows);
  if (plan.in_place) return (plan.pack_once ? groups * weight.columns() : plan.depth) * gemm_rows + reading;
  const size_t packed = plan.depth * (plan.pack_once ? groups : 1) * gemm_rows;
  // Of one row of pixels there may be fewer, which are cut into other blocks.
  const size_t most = image.rows == 1 ? std::min(image.pixels, block_pixels(traits)) : plan.pixels;
  const size_t step = std::max(plan.step, divide_up(most, kSlack) * kSlack + kSlack);
  return plan.depth * step + kSlack + packed + reading;
}

// Vectors of pixels from `first` on, up to kChunks or kMostChunks, of those before `last`; `first` moves behind them.
size_t Product::find_chunks(size_t& first, size_t last, Chunk* chunks) const {
  const size_t width = static_cast<size_t>(kernels_.traits.width), begin = first;
  const bool lie_together = !dense_plan_.in_place || is_whole(image_);
  const size_t pixels = lie_together ? image_.rows * image_.pixels : image_.pixels;
  const size_t most = chunks_at_once(dense_plan_.pack_once || !dense_plan_.in_place, kernels_.traits);
  size_t count = 0;
  for (; count < most && first < last; ++count) {
    const size_t row = first / pixels, column = first % pixels, n = std::min({width, pixels - column, last - first});
    chunks[count] = {dense_plan_.in_place ? row * image_.row_step + column : first - begin, first, n};
    first += n;
  }
  return count;
}

// Some vectors of pixels after others, each with all rows of the weight; these are packed once, or for each of them anew.
void Product::multiply_dense(const float* x, const Part& part, float* y, size_t y_step, float* room) const {
  const DensePlan& plan = dense_plan_;
  const size_t gemm_rows = static_cast<size_t>(kernels_.traits.gemm_rows), read = std::max(plan.depth, Weight::kLeastRead);
  const size_t columns = weight_.columns(), at_once = static_cast<size_t>(kernels_.traits.gemm_vectors);
  int32_t places[kDepth];  // of gathered pixels
  for (size_t k = 0; k < plan.depth; ++k) places[k] = static_cast<int32_t>(k * plan.step);
  float* pixels = room;
  float* packed = room + (plan.in_place ? 0 : plan.depth * plan.step + kSlack);
  float* end = packed + (plan.pack_once ? divide_up(rows_, gemm_rows) * columns : plan.depth) * gemm_rows;
  const Cursors cursors(weight_, end + 2 * read + weight_.slack());
  const auto start = [&] {
    for (size_t row = part.first_row; row < part.last_row; ++row) cursors.put(row - part.first_row, weight_.start(row));
  };
  const auto pack = [&](size_t row, size_t from, size_t to, float* into) {
    pack_rows(row, std::min(gemm_rows, part.last_row - row), from, to, cursors.from(row - part.first_row), into,
              reinterpret_cast<int32_t*>(end), end + read, read);
  };
  const auto place_in_packed = [&](size_t row, size_t from) { return (row - part.first_row) * columns + from * gemm_rows; };
  if (plan.pack_once) {
    start();
    for (size_t row = part.first_row; row < part.last_row; row += gemm_rows)
      for (size_t from = 0; from < columns; from += plan.depth)
        pack(row, from, std::min(from + plan.depth, columns), packed + place_in_packed(row, from));
  }
  Chunk chunks[kMostChunks];
  for (size_t first = part.first; first < part.last;) {
    const size_t begin = first;
    const size_t count = find_chunks(first, plan.in_place ? part.last : std::min(part.last, first + plan.pixels), chunks);
    if (!plan.pack_once) start();
    for (size_t from = 0; from < columns; from += plan.depth) {
      const size_t to = std::min(from + plan.depth, columns);
      const bool last = to == columns;
      if (!plan.in_place) gather_pixels(x, from, to, begin, first, pixels);
      for (size_t row = part.first_row; row < part.last_row; row += gemm_rows) {
        const float* values = plan.pack_once ? packed + place_in_packed(row, from) : packed;
        if (!plan.pack_once) pack(row, from, to, packed);
        float* out = y + (row - part.first_row) * y_step;
        const int rows = static_cast<int>(std::min(gemm_rows, part.last_row - row));
        const Sums sums{from == 0 ? finish_.bias + row : nullptr, last && limits_.limited, limits_.low, limits_.high, false};
        for (size_t i = 0; i < count; i += at_once)
          kernels_.gemm_at(values, to - from, plan.in_place ? image_.offsets + from : places, plan.in_place ? x : pixels,
                           chunks + i, static_cast<int>(std::min(at_once, count - i)), out, y_step, rows, sums);
        if (last && !limits_suffice_)
          for (int r = 0; r < rows; ++r) finish_row(out + static_cast<size_t>(r) * y_step + begin, first - begin);
      }
    }
  }
}

// The pixels [first, last) that the columns [begin, end) meet, as rows of a matrix.
void Product::gather_pixels(const float* x, size_t begin, size_t end, size_t first, size_t last, float* out) const {
  if (is_whole(image_) && image_.channel_columns == 1) {  // channels lie equally far apart
    const size_t step = image_.offsets ? image_.channel_floats : image_.column_step;
    return kernels_.copy_rows(x + begin * step + first, step, out, dense_plan_.step, end - begin, last - first);
  }
  const size_t first_row = first / image_.pixels, first_pixel = first % image_.pixels;
  for (size_t column = begin; column < end; ++column, out += dense_plan_.step) {
    const float* from = x + offset_of(image_, column) + first_row * image_.row_step;
    size_t pixel = first_pixel;
    for (size_t p = first; p < last;) {
      const size_t n = std::min(image_.pixels - pixel, last - p);
      // Vectors of a fixed size: what is written behind the row is overwritten by the next, or lies in the slack.
      float* to = out + (p - first);
      for (size_t i = 0; i < n; i += 8) std::memcpy(to + i, from + pixel + i, 8 * sizeof(float));
      p += n;
      pixel = 0;
      from += image_.row_step;
    }
  }
}

// Rows of the weight, columns [begin, end), as gemm() takes them: packed[column][row].
void Product::pack_rows(size_t row, size_t rows, size_t begin, size_t end, const Cursors& cursors, float* packed,
                        int32_t* columns, float* converted, size_t most) const {
  const size_t gemm_rows = static_cast<size_t>(kernels_.traits.gemm_rows), depth = end - begin;
  if (rows == gemm_rows && weight_.matrix().format == Format::dense) {
    const float* scales = weight_.matrix().scales;
    kernels_.pack(weight_.values(), row * weight_.columns() + begin, weight_.columns(), depth,
                  scales ? scales + row : nullptr, packed);
    return;
  }
  if (weight_.matrix().format == Format::bitmask && kernels_.pack_bits) {
    const Matrix& matrix = weight_.matrix();
    size_t first[kMostRows];
    uint32_t entries[kMostRows];
    for (size_t r = 0; r < rows; ++r) {
      first[r] = (row + r) * matrix.columns + begin;
      entries[r] = cursors.get(r).entry;
    }
    const BitRows bits{static_cast<const uint8_t*>(matrix.index), (matrix.rows * matrix.columns + 7) / 8, first};
    kernels_.pack_bits(bits, weight_.values(), entries, rows, depth, matrix.scales ? matrix.scales + row : nullptr, packed);
    for (size_t r = 0; r < rows; ++r) cursors.put(r, {entries[r], static_cast<uint32_t>(end), 0});
    return;
  }
  std::fill_n(packed, depth * gemm_rows, 0.0f);
  for (size_t r = 0; r < rows; ++r) {
    Weight::Cursor cursor = cursors.get(r);
    for (;;) {
      const auto entries = weight_.read(row + r, cursor, end, most, columns, converted, kernels_);
      if (entries.count == 0) break;
      for (size_t k = 0; k < entries.count; ++k)
        packed[(static_cast<size_t>(columns[k]) - begin) * gemm_rows + r] = entries.values[k];
      if (!entries.more) break;
    }
    cursors.put(r, cursor);
  }
}

}  // namespace membound
