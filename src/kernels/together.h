// Convolutions of many images at once: the images of a batch lie side by side, as many as a vector has lanes, so that small
// maps fill vectors and every load is a whole line of the cache. Some rows of outputs at a time.
#pragma once

#include "op.h"

namespace membound {

struct Together {
  size_t rows = 0;            // of outputs, laid out at once; 0: images are taken one by one
  size_t tile = 0;            // and summed at once
  size_t image_rows = 0;      // that these read
  size_t planes = 0;          // of the pixels of these that are a stride apart
  size_t pitch = 0;           // pixels from one row of a plane to the next
  size_t channel_floats = 0, tile_floats = 0;
};

// Of images of so many channels; `reads`: of a pixel by one column of the kernel, on the average.
Together plan_together(const Window& window, size_t batch, size_t channels, size_t out_h, size_t out_w, double reads,
                       const Traits& traits);

// Where each column of the weight reads.
void place_columns(const Together& together, const Window& window, size_t columns, const Traits& traits, int32_t* offsets);

// The rows of a channel that outputs from row `first` on read, of images `step` floats apart.
void lay_out_together(const Together& together, const Window& window, const float* channel, size_t step, size_t height,
                      size_t width, size_t first, float* out, const NetKernels& kernels);

}  // namespace membound
