// The image of a convolution with strides laid out for loads of whole lines of the cache: some rows of outputs at a time, and
// for each column of the kernel a copy whose rows begin where lines do. Where a vector is a line, others take two lines each.
#pragma once

#include "op.h"

namespace membound {

struct Bands {
  size_t rows = 0;     // of outputs, at once; 0: no bands
  size_t image_rows = 0;   // that these read
  size_t pitch = 0;        // floats from one of these to the next
  size_t channel_floats = 0;

  size_t floats(size_t channels) const { return channels * channel_floats; }
};

// For groups of so many channels, of a weight whose nonzeros are met one by one; no bands where they would not be worth it.
// `vectors`: of outputs, if nothing is laid out by lines; `reads`: of a row that is copied, on the average.
Bands plan_bands(const Window& window, size_t channels, size_t out_h, size_t out_w, size_t vectors, double reads,
                 const Traits& traits);

// Where each column of the weight reads.
void place_columns(const Bands& bands, const Window& window, size_t columns, int32_t* offsets);

// The rows of a channel that outputs from row `first` on read.
void lay_out_band(const Bands& bands, const Window& window, const float* channel, size_t height, size_t width, size_t first,
                  float* out, const NetKernels& kernels);

}  // namespace membound
