#include "together.h"

#include <algorithm>

namespace membound {
namespace {

constexpr size_t kMostPixels = 64;  // larger maps fill vectors anyway, and a batch of them comes from far away

}  // namespace

Together plan_together(const Window& window, size_t batch, size_t out_h, size_t out_w, const Traits& traits) {
  const size_t width = static_cast<size_t>(traits.width), pixels = out_h * out_w;
  if (!traits.copies_to_lines || batch < width || window.stride_h != 1 || window.stride_w != 1 || pixels < 2 ||
      pixels > kMostPixels || window.kernel_h * window.kernel_w == 1)  // a pixel that is read once is not worth the way
    return {};
  const size_t most = std::clamp<size_t>(static_cast<size_t>(traits.tile) / out_w, 1, out_h), count = (out_h + most - 1) / most;
  Together together;
  together.rows = (out_h + count - 1) / count;
  together.image_rows = together.rows + static_cast<size_t>(window.dilation_h * (window.kernel_h - 1));
  together.pitch = out_w + static_cast<size_t>(window.dilation_w * (window.kernel_w - 1));
  together.channel_floats = together.image_rows * together.pitch * width;
  return together;
}

void place_columns(const Together& together, const Window& window, size_t columns, const Traits& traits, int32_t* offsets) {
  const auto high = static_cast<size_t>(window.kernel_h), wide = static_cast<size_t>(window.kernel_w);
  const auto width = static_cast<size_t>(traits.width);
  const size_t down = static_cast<size_t>(window.dilation_h) * together.pitch * width;
  const size_t across = static_cast<size_t>(window.dilation_w) * width;
  for (size_t channel = 0, start = 0; channel * high * wide < columns; ++channel, start += together.channel_floats)
    for (size_t i = 0; i < high; ++i)
      for (size_t j = 0; j < wide; ++j) *offsets++ = static_cast<int32_t>(start + i * down + j * across);
}

void lay_out_together(const Together& together, const Window& window, const float* channel, size_t step, size_t height,
                      size_t width, size_t first, float* out, const NetKernels& kernels) {
  const long all = static_cast<long>(together.image_rows), lanes = kernels.traits.width;
  const long pitch = static_cast<long>(together.pitch), wide = static_cast<long>(width);
  const long top = static_cast<long>(first) - window.pad_top;
  const long begin = std::clamp(-top, 0L, all), end = std::clamp(static_cast<long>(height) - top, begin, all);
  const long left = std::min<long>(window.pad_left, pitch), there = std::min(wide, pitch - left);
  if (begin > 0 || end < all || left > 0 || there < pitch) std::fill_n(out, together.channel_floats, 0.0f);
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
