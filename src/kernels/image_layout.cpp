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

namespace {

// Of a plane's pixels down or across, those that lie in the image: its pixel i is the image's pixel i * stride + shift.
struct Inside {
  Inside(int shift, int stride, int size, int plane) {
    first = std::min(plane, shift >= 0 ? 0 : (-shift + stride - 1) / stride);
    last = std::max(first, std::min(plane, size > shift ? (size - shift + stride - 1) / stride : 0));
  }
  int first, last;
};

// Steps of 1: one plane, the image with zeros around it.
void lay_out_framed(const ImageLayout& layout, const Window& window, const float* channel, size_t height, size_t width, size_t first,
                    size_t last, float* out, const NetKernels& kernels) {
  const size_t top = static_cast<size_t>(window.pad_top), left = std::min(static_cast<size_t>(window.pad_left), layout.plane_w);
  const size_t begin = std::clamp(top, first, last), end = std::clamp(top + height, begin, last);
  Frame frame;
  frame.rows = end - begin;
  frame.width = std::min(width, layout.plane_w - left);
  frame.pitch = layout.plane_w;
  frame.before = (begin - first) * frame.pitch + left;
  frame.behind = (last - end) * frame.pitch + (last == layout.plane_h ? layout.shared_zeros : 0);
  if (frame.rows > 0) frame.behind += frame.pitch - left - frame.width;
  else frame.before -= left;
  kernels.frame_rows(channel + (begin > top ? begin - top : 0) * width, width, frame, out);
}

// Each plane has the pixels that are one step apart.
void lay_out_planes(const ImageLayout& layout, const Window& window, const float* channel, size_t height, size_t width, size_t first,
                    size_t last, bool with_zeros, float* out, const NetKernels& kernels) {
  const int wide = static_cast<int>(width), begin = static_cast<int>(first), end = static_cast<int>(last);
  const size_t pitch = layout.plane_w;
  float* plane = out;
  for (int ph = 0; ph < static_cast<int>(layout.planes_h); ++ph) {
    const int down = ph - window.pad_top;
    const Inside rows(down, window.stride_h, static_cast<int>(height), static_cast<int>(layout.plane_h));
    const int top = std::clamp(rows.first, begin, end), bottom = std::clamp(rows.last, top, end);
    for (int pw = 0; pw < static_cast<int>(layout.planes_w); ++pw, plane += layout.plane_h * pitch) {
      float* upper_row = plane + static_cast<size_t>(top - begin) * pitch;
      float* lower_row = plane + static_cast<size_t>(bottom - begin) * pitch;
      if (with_zeros) {
        std::fill(plane, upper_row, 0.0f);
        std::fill(lower_row, plane + (last - first) * pitch, 0.0f);
      }
      if (top == bottom) continue;
      const int across = pw - window.pad_left;
      const float* row = channel + static_cast<ptrdiff_t>(top * window.stride_h + down) * wide;
      const size_t count = static_cast<size_t>(bottom - top), step = static_cast<size_t>(window.stride_h) * width;
      if (with_zeros && kernels.spread_rows) {
        kernels.spread_rows(row, step, wide, across, window.stride_w, count, upper_row, pitch);
        continue;
      }
      const Inside columns(across, window.stride_w, wide, static_cast<int>(pitch));
      for (float* to = upper_row; with_zeros && to < lower_row; to += pitch) {
        std::fill(to, to + columns.first, 0.0f);
        std::fill(to + columns.last, to + pitch, 0.0f);
      }
      const size_t n = static_cast<size_t>(columns.last - columns.first);
      if (n == 0) continue;
      row += columns.first * window.stride_w + across;
      float* to = upper_row + columns.first;
      if (window.stride_w == 1) {
        kernels.copy_rows(row, step, to, pitch, count, n);
        continue;
      }
      for (size_t i = 0; i < count; ++i, row += step, to += pitch) {
        if (window.stride_w == 2) {
          kernels.every_second(row, n, to);
        } else {
          for (size_t j = 0; j < n; ++j) to[j] = row[j * static_cast<size_t>(window.stride_w)];
        }
      }
    }
  }
}

}  // namespace

void lay_out(const ImageLayout& layout, const Window& window, const float* channel, size_t height, size_t width, size_t first,
             size_t last, bool with_zeros, float* out, const NetKernels& kernels) {
  if (layout.unchanged) {
    const size_t high = last - first;
    std::memcpy(out, channel + first * width, high * width * sizeof(float));
    if (last == layout.plane_h) std::fill(out + high * width, out + layout.channel_floats - first * width, 0.0f);
  } else if (window.stride_h == 1 && window.stride_w == 1) {
    lay_out_framed(layout, window, channel, height, width, first, last, out, kernels);
  } else {
    lay_out_planes(layout, window, channel, height, width, first, last, with_zeros, out, kernels);
  }
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
