// Convolutions of many images at once: the images of a batch lie side by side, as many as a vector has lanes, so that maps of any
// size fill vectors and every load is a whole line of the cache.
#pragma once

#include "op.h"
#include "product.h"

namespace membound {

// What a convolution reads and makes, of one image.
struct Maps {
  size_t channels, height, width, out_h, out_w;
};

// Sparse. The nonzeros of a block of channels, which stay in the nearest cache, meet one tile of pixels after
// another; sums wait for the next block.
class TogetherProduct {
 public:
  // `maps` are those of a group. `parted`: images of the input lie one behind the other.
  TogetherProduct(const Weight& weight, const Window& window, const Maps& maps, size_t groups, bool parted, const Traits& traits);

  bool works() const { return plan_.rows > 0; }
  bool is_for(const Traits& traits) const { return lanes_ == static_cast<size_t>(traits.width); }
  Needs needs() const;
  void run(const Beside& x, const Finish& finish, float* y, const Workplace& place) const;

 private:
  struct Plan {
    size_t rows = 0, across = 0;  // of a tile, at most
    size_t channels = 0, blocks = 0;
    size_t planes = 0, image_rows = 0, pitch = 0;  // of a patch: what the tiles that are laid out at once read of a channel
    bool whole_rows = false;      // of tiles are laid out at once
    double laid = 0, cycles = 0;  // what it takes to lay out the image, and all
  };
  struct Pixels {
    size_t top, rows, left, across;
  };
  struct Part {
    size_t first_row, last_row, first, last;  // of the weight; of what is laid out at once
  };

  void find_plan();
  Plan plan_tiles(size_t rows, size_t across, size_t lines_near) const;
  size_t channel_step() const;
  size_t rows_at_once() const;
  size_t entries_at_once() const;
  size_t sums_room() const;
  Segments decode(size_t begin, size_t end, const int32_t* offsets, float* room, float* scratch, const NetKernels& kernels) const;
  Pixels pixels_of(size_t unit) const;
  void multiply(const Beside& x, const Finish& finish, float* y, const Part& part, const int32_t* offsets, float* room,
                const NetKernels& kernels) const;

  const Weight& weight_;
  Window window_;
  Maps maps_;
  size_t groups_, rows_, lanes_;  // rows of a group
  bool parted_, in_place_ = false;
  Plan plan_;
};

// A kernel for each channel.
class TogetherDepthwise {
 public:
  TogetherDepthwise(const Weight& weight, const Window& window, const Maps& maps, const Traits& traits);
  Needs needs() const;
  void run(const Beside& x, const Finish& finish, float* y, const Workplace& place) const;

 private:
  const Weight& weight_;
  const Window window_;
  const Maps maps_;
  size_t lanes_, rows_, across_, strip_;  // rows and columns of a tile, and rows that are laid out at once
  size_t planes_, pitch_;
  size_t image_rows() const;
};

}  // namespace membound
