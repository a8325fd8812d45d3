#include "bands.h"

#include <algorithm>

namespace membound {
namespace {

constexpr size_t kBand = 204800;     // floats of a group's channels that stay in the second cache
constexpr size_t kLeastSums = 7;     // vectors: fewer wait for one another
constexpr size_t kMostVectors = 7;   // of a row of outputs
constexpr double kLeastReads = 8;    // of a copied row, on the average: fewer are not worth the copy
constexpr double kMostUnused = 1.25; // vectors more than without bands

}  // namespace

Bands plan_bands(const Window& window, size_t channels, size_t out_h, size_t out_w, size_t vectors, double reads,
                 const Traits& traits) {
  const size_t width = static_cast<size_t>(traits.width), across = (out_w + width - 1) / width;
  if (!traits.copies_to_lines || (window.stride_h == 1 && window.stride_w == 1) || reads < kLeastReads || across > kMostVectors || window.kernel_h < window.stride_h ||
      window.kernel_h * window.kernel_w == 1 || static_cast<double>(out_h * across) > kMostUnused * static_cast<double>(vectors))
    return {};
  const size_t reach = static_cast<size_t>(window.dilation_h * (window.kernel_h - 1));
  const auto banded = [&](size_t rows) {
    Bands bands;
    bands.rows = rows;
    bands.image_rows = (rows - 1) * static_cast<size_t>(window.stride_h) + reach + 1;
    bands.pitch = across * width;
    bands.channel_floats = static_cast<size_t>(window.kernel_w) * bands.image_rows * bands.pitch;
    return bands;
  };
  size_t most = std::min(out_h, static_cast<size_t>(traits.tile) / across);
  while (most > 0 && banded(most).floats(channels) > kBand) --most;
  if (most * across < std::min(kLeastSums, out_h * across)) return {};
  const size_t count = (out_h + most - 1) / most;
  return banded((out_h + count - 1) / count);
}

void place_columns(const Bands& bands, const Window& window, size_t columns, int32_t* offsets) {
  const auto high = static_cast<size_t>(window.kernel_h), wide = static_cast<size_t>(window.kernel_w);
  const size_t down = static_cast<size_t>(window.dilation_h) * bands.pitch, copy = bands.image_rows * bands.pitch;
  for (size_t channel = 0, start = 0; channel * high * wide < columns; ++channel, start += bands.channel_floats)
    for (size_t i = 0; i < high; ++i)
      for (size_t j = 0; j < wide; ++j) *offsets++ = static_cast<int32_t>(start + j * copy + i * down);
}

void lay_out_band(const Bands& bands, const Window& window, const float* channel, size_t height, size_t width, size_t first,
                  float* out, const NetKernels& kernels) {
  const long all = static_cast<long>(bands.image_rows), pitch = static_cast<long>(bands.pitch);
  const long top = static_cast<long>(first) * window.stride_h - window.pad_top;
  const long begin = std::clamp(-top, 0L, all), end = std::clamp(static_cast<long>(height) - top, begin, all);
  for (int j = 0; j < window.kernel_w; ++j, out += all * pitch) {
    std::fill(out, out + begin * pitch, 0.0f);
    if (begin < end)
      kernels.spread_rows(channel + (top + begin) * static_cast<long>(width), width, static_cast<int>(width),
                          j * window.dilation_w - window.pad_left, window.stride_w, static_cast<size_t>(end - begin),
                          out + begin * pitch, bands.pitch);
    std::fill(out + end * pitch, out + all * pitch, 0.0f);
  }
}

}  // namespace membound
