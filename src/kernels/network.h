// A whole network: operators in order, one arena for activations laid out by liveness, any batch size.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "plan.h"
#include "reluctance.h"

namespace membound {

struct NetworkMemory {
  size_t tables;  // made at load from the weights
  size_t arena;   // activations and working room of one call
  size_t arenas;  // how many calls may run at once
};

class Network {
 public:
  // `sizes`: floats of each value for one image; value 0 is the input, value k the output of ops[k - 1].
  // Operators that are inputs are further ones, in their order.
  Network(std::vector<size_t> sizes, std::vector<std::unique_ptr<Op>> ops, std::vector<size_t> outputs, size_t max_batch,
          int threads, size_t concurrency, const NetKernels& kernels);
  ~Network();

  // One call for the whole network, with an array for each input and each output; batches above max_batch run in slices. Safe from many threads, and after a fork.
  // With `seconds`, one for each operator, the time that each takes is added to its own; no images run side by side then.
  void run(const float* const* inputs, size_t batch, float* const* outputs, double* seconds = nullptr) const;
  // Of one input and one output.
  void run(const float* input, size_t batch, float* output, double* seconds = nullptr) const {
    run(&input, batch, &output, seconds);
  }

  NetworkMemory memory() const { return memory({kernels_.traits, max_batch_, threads_}); }
  // What it would take elsewhere.
  NetworkMemory memory(const Target& target) const;
  size_t max_batch() const { return max_batch_; }
  int threads() const { return threads_; }
  const Traits& traits() const { return kernels_.traits; }
  size_t inputs() const { return inputs_.size(); }
  size_t outputs() const { return outputs_.size(); }
  size_t input_size(size_t number = 0) const { return sizes_[inputs_[number]]; }
  size_t output_size(size_t number = 0) const { return sizes_[outputs_[number]]; }
  size_t operators() const { return ops_.size(); }

 private:
  class Arenas;

  // What the caller gave, from its image `first` on.
  struct Given {
    const float* const* inputs;
    size_t first;
  };

  // What operators run on: all images of a batch, or one of them.
  struct Turn {
    const NetworkPlan& plan;
    float* base;
    const Layout& layout;
    size_t images;
    int threads;
    double reluctance;
    Given given;
  };

  // Plans for a batch that is not side by side, and for one that is.
  struct Plans {
    NetworkPlan any, together;
    size_t floats() const;
  };
  Plans plans_for(const Target& target) const;

  void run_slice(const NetworkPlan& plan, const Given& given, size_t batch, float* const* outputs, float* arena, double reluctance, double* seconds) const;
  void run_by_image(const Turn& all, double* seconds) const;
  void copy_input(size_t number, const Turn& turn) const;
  void run_ops(size_t first, size_t last, const Turn& turn, double* seconds) const;
  void run_op(size_t number, const Turn& turn, std::vector<const float*>& inputs) const;
  void run_together(size_t number, const Turn& turn) const;
  void part_images(const Turn& turn) const;
  Arenas& arenas() const;

  std::vector<size_t> sizes_;
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<size_t> inputs_, outputs_;  // numbers of values
  size_t max_batch_, concurrency_;
  int threads_;
  const NetKernels& kernels_;
  Plans plans_;

  mutable std::atomic<Arenas*> arenas_{nullptr};
  mutable Reluctance reluctance_;  // of single images
};

}  // namespace membound
