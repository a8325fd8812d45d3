// A whole network: operators in order, one arena for activations laid out by liveness, any batch size.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "op.h"

namespace membound {

struct NetworkMemory {
  size_t tables;  // made at load from the weights
  size_t arena;   // activations and working room of one call
  size_t arenas;  // how many calls may run at once
};

class Network {
 public:
  // `sizes`: floats of each value for one image; value 0 is the input, value k the output of ops[k - 1].
  Network(std::vector<size_t> sizes, std::vector<std::unique_ptr<Op>> ops, size_t output, size_t max_batch,
          int threads, size_t concurrency, const NetKernels& kernels);
  ~Network();

  // One call for the whole network; batches above max_batch run in slices. Safe from many threads, and after a fork.
  // With `seconds`, one for each operator, the time that each takes is added to its own; no images run side by side then.
  void run(const float* input, size_t batch, float* output, double* seconds = nullptr) const;

  NetworkMemory memory() const;
  size_t input_size() const { return sizes_.front(); }
  size_t output_size() const { return sizes_[output_]; }
  size_t operators() const { return ops_.size(); }

 private:
  class Arenas;

  // What operators run on: all images of a batch, or one of them, in a lane of the arena.
  struct Turn {
    float* arena;
    bool one_image;
    size_t lane, images;
  };

  void plan();
  size_t give_places(const std::vector<size_t>& values, const std::vector<size_t>& last_use, size_t images,
                     std::vector<size_t>& offsets) const;
  void run_slice(const float* input, size_t batch, float* output, float* arena, double* seconds) const;
  void run_by_image(const float* input, size_t batch, float* arena, double* seconds) const;
  void run_ops(size_t first, size_t last, const Turn& turn, const Workplace& place, double* seconds) const;
  float* value(size_t number, const Turn& turn) const;
  Arenas& arenas() const;

  std::vector<size_t> sizes_;
  std::vector<std::unique_ptr<Op>> ops_;
  size_t output_, max_batch_, concurrency_;
  int threads_;
  const NetKernels& kernels_;
  // Of a batch, the first operators take one image after another, and up to `lanes_` of them side by side: what one
  // operator leaves for the next is still near, and there need not be room for all. What later operators use is kept.
  size_t by_image_ = 0, lanes_ = 1;
  std::vector<size_t> kept_;
  // The arena: values of the whole batch, and room that operators share there; lanes of values of one image, with such
  // room; room for each thread.
  std::vector<size_t> batch_offsets_, lane_offsets_;  // of each value, in its part
  size_t batch_shared_ = 0, lanes_offset_ = 0, lane_shared_ = 0, lane_floats_ = 0, rooms_offset_ = 0;
  size_t worker_floats_ = 0, arena_floats_ = 0;

  mutable std::atomic<Arenas*> arenas_{nullptr};
};

}  // namespace membound
