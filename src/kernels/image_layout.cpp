#include "image_layout.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "product.h"

namespace membound {

ImageLayout plan_layout(const Window& window, size_t height, size_t width, size_t out_h, size_t out_w, bool read_again,
                        const Traits& traits) {
  const size_t stride_h = static_cast<size_t>(window.stride_h), stride_w = static_cast<size_t>(window.stride_w);
  const size_t reach_h = static_cast<size_t>(window.dilation_h * (window.kernel_h - 1));
  const size_t reach_w = static_cast<size_t>(window.dilation_w * (window.kernel_w - 1));
  const size_t span_h = (out_h - 1) * stride_h + reach_h + 1, span_w = (out_w - 1) * stride_w + reach_w + 1;
  ImageLayout layout{};
  layout.unchanged =
      window.pad_top == 0 && window.pad_left == 0 && stride_h == 1 && stride_w == 1 && span_h <= height && span_w <= width;
  // Where a vector is a whole cache line, loads that are not aligned take two: what many rows of nonzeros read is copied.
  const bool to_lines = traits.copies_to_lines && window.kernel_h * window.kernel_w == 1 && read_again;
  const size_t line = to_lines ? kLine : 1;
  layout.in_place = layout.unchanged && (height * width % line == 0 || height * width < line);
  layout.plane_h = layout.unchanged ? height : divide_up(span_h, stride_h);
  layout.plane_w = layout.unchanged ? width : divide_up(span_w, stride_w);
  // The zeros behind a row serve as those before the next one too: rows are shorter, and so is all the work.
  const size_t pad_left = static_cast<size_t>(window.pad_left);
  if (stride_h == 1 && stride_w == 1 && span_w > pad_left + width)
    layout.shared_zeros = std::min(pad_left, span_w - pad_left - width);
  layout.plane_w -= layout.shared_zeros;
  layout.planes_h = std::min(stride_h, reach_h + 1);
  layout.planes_w = std::min(stride_w, reach_w + 1);
  layout.channel_floats = layout.planes_h * layout.planes_w * layout.plane_h * layout.plane_w + layout.shared_zeros;
  if (layout.unchanged && !layout.in_place) layout.channel_floats = divide_up(layout.channel_floats, line) * line;
  return layout;
}

void lay_out(const ImageLayout& layout, const Window& window, const float* channel, size_t height, size_t width, size_t first,
             size_t last, bool with_zeros, float* out, const NetKernels& kernels) {
  const size_t high = last - first;
  if (layout.unchanged) {
    std::memcpy(out, channel + first * width, high * width * sizeof(float));
    if (last == layout.plane_h) std::fill(out + high * width, out + layout.channel_floats - first * width, 0.0f);
    return;
  }
  // The first and the last of a plane's pixels, down or across, that lie in the image: its pixel i is the image's pixel
  // i * stride + shift.
  const auto inside = [](long shift, long stride, long size, size_t plane) {
    const long all = static_cast<long>(plane);
    const long first = std::min(all, shift >= 0 ? 0 : (-shift + stride - 1) / stride);
    return std::pair(first, std::max(first, std::min(all, size > shift ? (size - shift + stride - 1) / stride : 0)));
  };
  const long stride_h = window.stride_h, stride_w = window.stride_w;
  const long wide = static_cast<long>(width), plane_w = static_cast<long>(layout.plane_w);
  const long begin = static_cast<long>(first), end = static_cast<long>(last);
  float* plane = out;
  for (long ph = 0; ph < static_cast<long>(layout.planes_h); ++ph)
    for (long pw = 0; pw < static_cast<long>(layout.planes_w); ++pw, plane += layout.plane_h * layout.plane_w) {
      const long down = ph - window.pad_top, across = pw - window.pad_left;
      const auto [upper, lower] = inside(down, stride_h, static_cast<long>(height), layout.plane_h);
      const long top = std::clamp(upper, begin, end), bottom = std::clamp(lower, top, end);
      float* upper_row = plane + (top - begin) * plane_w;
      float* lower_row = plane + (bottom - begin) * plane_w;
      if (with_zeros) {
        std::fill(plane, upper_row, 0.0f);
        std::fill(lower_row, plane + (end - begin) * plane_w, 0.0f);
      }
      if (top == bottom) continue;
      const float* row = channel + (top * stride_h + down) * wide;
      const size_t rows = static_cast<size_t>(bottom - top), step = static_cast<size_t>(stride_h * wide);
      if (with_zeros && kernels.spread_rows) {
        kernels.spread_rows(row, step, static_cast<int>(wide), static_cast<int>(across), window.stride_w, rows, upper_row,
                            layout.plane_w);
        continue;
      }
      const auto [left, right] = inside(across, stride_w, wide, layout.plane_w);
      for (float* to = upper_row; with_zeros && to < lower_row; to += plane_w) {
        std::fill(to, to + left, 0.0f);
        std::fill(to + right, to + plane_w, 0.0f);
      }
      if (left == right) continue;
      row += left * stride_w + across;
      float* to = upper_row + left;
      const size_t n = static_cast<size_t>(right - left);
      if (stride_w == 1) {
        kernels.copy_rows(row, step, to, layout.plane_w, rows, n);
        continue;
      }
      for (size_t i = 0; i < rows; ++i, row += step, to += plane_w) {
        if (stride_w == 2) {
          kernels.every_second(row, n, to);
        } else {
          for (size_t j = 0; j < n; ++j) to[j] = row[static_cast<long>(j) * stride_w];
        }
      }
    }
  if (with_zeros && last == layout.plane_h) std::fill_n(out + high * layout.plane_w, layout.shared_zeros, 0.0f);
}

std::vector<int32_t> window_offsets(const ImageLayout& layout, const Window& window, size_t channels) {
  const size_t stride_h = static_cast<size_t>(window.stride_h), stride_w = static_cast<size_t>(window.stride_w);
  std::vector<int32_t> offsets;
  offsets.reserve(channels * static_cast<size_t>(window.kernel_h * window.kernel_w));
  for (size_t channel = 0; channel < channels; ++channel)
    for (size_t i = 0; i < static_cast<size_t>(window.kernel_h); ++i)
      for (size_t j = 0; j < static_cast<size_t>(window.kernel_w); ++j) {
        const size_t h = i * static_cast<size_t>(window.dilation_h), w = j * static_cast<size_t>(window.dilation_w);
        const size_t plane = (h % stride_h) * layout.planes_w + w % stride_w;
        offsets.push_back(static_cast<int32_t>(channel * layout.channel_floats + plane * layout.plane_h * layout.plane_w +
                                               h / stride_h * layout.plane_w + w / stride_w));
      }
  return offsets;
}

}  // namespace membound
