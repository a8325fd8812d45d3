#include "together.h"

#include <algorithm>
#include <cstring>

namespace membound {
namespace {

constexpr long kMostWidth = 32;                  // pixels of a row that are taken at once, where strides part them
constexpr size_t kFewPixels = 200;               // more fill vectors anyway, and a batch of them comes from far away,
constexpr size_t kNearFloats = size_t{1} << 16;  // unless what a tile reads stays in the second cache
constexpr size_t kMostFloats = size_t{1} << 20;  // of all channels, where there are several tiles
constexpr size_t kSums = 14;                     // vectors at once: of fewer, more channels stay near
constexpr double kFewestReads = 32;              // of a pixel by one column of the kernel, where strides part many of them

// A row of a channel to rows of planes: their pixel c is the row's pixel c stride + plane - pad.
void lay_out_row(const Together& together, const Window& window, const float* row, size_t step, long width, float* out,
                 const NetKernels& kernels) {
  const long lanes = kernels.traits.width, stride = window.stride_w;
  float some[kLine * kMostWidth];
  for (long first = 0; first < width; first += kMostWidth) {  // of the row
    const long here = std::min<long>(kMostWidth, width - first);
    kernels.interleave(row + first, step, static_cast<size_t>(here), static_cast<size_t>(here), some, 0);
    for (long i = 0; i < here; ++i) {
      const long at = first + i + window.pad_left, plane = at % stride, column = at / stride;
      if (plane >= static_cast<long>(together.planes) || column >= static_cast<long>(together.pitch)) continue;
      std::memcpy(out + (plane * static_cast<long>(together.image_rows * together.pitch) + column) * lanes, some + i * lanes,
                  static_cast<size_t>(lanes) * sizeof(float));
    }
  }
}

}  // namespace

Together plan_together(const Window& window, size_t batch, size_t channels, size_t out_h, size_t out_w, double reads,
                       const Traits& traits) {
  const size_t width = static_cast<size_t>(traits.width);
  if (!traits.copies_to_lines || batch < width || out_h * out_w < 2 || out_w > static_cast<size_t>(traits.tile) ||
      window.kernel_h * window.kernel_w == 1)  // a pixel that is read once is not worth the way
    return {};
  const bool parted = window.stride_w > 1 && out_h * out_w > kSmallMap;  // pixels go their way one by one
  if (parted && reads < kFewestReads) return {};
  const size_t most_vectors = std::max(out_w, kSums);
  const size_t down = static_cast<size_t>(window.stride_h), reach_h = static_cast<size_t>(window.dilation_h * (window.kernel_h - 1));
  const size_t across = static_cast<size_t>(window.stride_w), reach_w = static_cast<size_t>(window.dilation_w * (window.kernel_w - 1));
  Together together;
  together.planes = std::min(across, reach_w + 1);
  together.pitch = out_w + reach_w / across;
  const auto image_rows = [&](size_t rows) { return (rows - 1) * down + reach_h + 1; };
  const auto floats = [&](size_t rows) { return together.planes * image_rows(rows) * together.pitch * width; };
  const size_t tiles = (out_h * out_w + most_vectors / out_w * out_w - 1) / (most_vectors / out_w * out_w);
  together.tile = (out_h + tiles - 1) / tiles;
  for (together.rows = out_h; together.rows > together.tile && channels * floats(together.rows) > kMostFloats;)
    together.rows = (together.rows - 1) / together.tile * together.tile;  // whole tiles
  together.image_rows = image_rows(together.rows);
  together.channel_floats = floats(together.rows);
  together.tile_floats = floats(together.tile);
  const bool gains = out_h * out_w <= kFewPixels || channels * together.tile_floats <= kNearFloats;
  return gains && channels * together.channel_floats <= 2 * kMostFloats ? together : Together{};
}

void place_columns(const Together& together, const Window& window, size_t columns, const Traits& traits, int32_t* offsets) {
  const auto high = static_cast<size_t>(window.kernel_h), wide = static_cast<size_t>(window.kernel_w);
  const auto width = static_cast<size_t>(traits.width), stride = static_cast<size_t>(window.stride_w);
  const size_t row = together.pitch * width, plane = together.image_rows * row;
  const size_t down = static_cast<size_t>(window.dilation_h) * row;
  for (size_t channel = 0, start = 0; channel * high * wide < columns; ++channel, start += together.channel_floats)
    for (size_t i = 0; i < high; ++i)
      for (size_t j = 0; j < wide; ++j) {
        const size_t across = j * static_cast<size_t>(window.dilation_w);
        *offsets++ = static_cast<int32_t>(start + across % stride * plane + i * down + across / stride * width);
      }
}

void lay_out_together(const Together& together, const Window& window, const float* channel, size_t step, size_t height,
                      size_t width, size_t first, float* out, const NetKernels& kernels) {
  const long all = static_cast<long>(together.image_rows), lanes = kernels.traits.width;
  const long pitch = static_cast<long>(together.pitch), wide = static_cast<long>(width);
  const long top = static_cast<long>(first) * window.stride_h - window.pad_top;
  const long begin = std::clamp(-top, 0L, all), end = std::clamp(static_cast<long>(height) - top, begin, all);
  const long left = std::min<long>(window.pad_left, pitch), there = std::min(wide, pitch - left);
  if (window.stride_w > 1 || begin > 0 || end < all || left > 0 || there < pitch) std::fill_n(out, together.channel_floats, 0.0f);
  if (window.stride_w > 1) {
    for (long i = begin; i < end; ++i)
      lay_out_row(together, window, channel + (top + i) * wide, step, wide, out + i * pitch * lanes, kernels);
    return;
  }
  if (begin == end || there == 0) return;
  const float* from = channel + (top + begin) * wide;
  float* to = out + (begin * pitch + left) * lanes;
  if (there == wide) {
    kernels.interleave(from, step, static_cast<size_t>((end - begin) * wide), width, to, together.pitch);
  } else {  // columns that no output reads are left out
    for (long i = begin; i < end; ++i, from += wide, to += pitch * lanes)
      kernels.interleave(from, step, static_cast<size_t>(there), static_cast<size_t>(there), to, together.pitch);
  }
}

}  // namespace membound
