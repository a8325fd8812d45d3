// How a convolution's image is laid out for its weight.
#pragma once

#include <cstdint>
#include <vector>

#include "op.h"

namespace membound {

// Channel by channel: padded, and split into planes of the pixels that are one step
// of the stride apart. It depends on the instruction set.
struct ImageLayout {
  bool unchanged;     // the image is already so,
  bool in_place;      // and is read where it is
  size_t planes_h, planes_w, plane_h, plane_w, channel_floats;
  size_t shared_zeros;  // behind the last row, where no next one begins with them
};

// For outputs of that size. `read_again`: whether many rows of nonzeros read each pixel.
ImageLayout plan_layout(const Window& window, size_t height, size_t width, size_t out_h, size_t out_w, bool read_again,
                        const Traits& traits);

// One channel. Where another one was laid out before, the zeros around the pixels are there. Of every plane, the rows
// [first, last); the first plane's go to `out`.
void lay_out(const ImageLayout& layout, const Window& window, const float* channel, size_t height, size_t width, size_t first,
             size_t last, bool with_zeros, float* out, const NetKernels& kernels);

// Where the places of a window read, in one channel after another: within each, the plane that its stride falls on.
std::vector<int32_t> window_offsets(const ImageLayout& layout, const Window& window, size_t channels);

}  // namespace membound
