// What instruction sets look like from outside. All of them are known everywhere, also those that this machine lacks or
// that were not compiled: what a network takes in memory follows from these numbers alone (plan.h).
#pragma once

#include <cstddef>
#include <string>

namespace membound {

constexpr int kLine = 16;  // floats in a line of the cache

constexpr size_t whole_lines(size_t floats) { return (floats + kLine - 1) / kLine * kLine; }

struct Traits {
  const char* name;
  int width;      // floats in a vector
  int tile;       // vectors of sums that the registers hold, beside what else is needed
  int gemm_rows;  // rows of the weight that a dense product takes at once,
  int gemm_vectors;  // and vectors of pixels,
  size_t lanes_used;  // of which so many percent at least are used, or pixels are gathered first
  // How fast nonzeros are met one by one, relative to a dense product: what decides between the two.
  float direct_speed;
  int channel_near;  // floats of a channel that a tile takes, so that it stays near, where its nonzeros are not few
  // Floats of an image that stay in the nearest cache while rows of nonzeros pass by, where these are decoded before; 0: they
  // are not.
  int near_floats;
  // Tiles of an image for which rows are decoded before: fewer read them no more often, and of more, if these follow one
  // another, longer tiles gain more; 0: as many as there are.
  int least_tiles, most_tiles;
  double least_work;  // entries of a row's block, times vectors of sums: less is not worth the way of these to and fro
  // Whether channels that many rows of nonzeros read are copied to whole lines of the cache first: where a vector is a
  // line, every load that is not aligned takes two.
  bool copies_to_lines;
  bool masks_lanes;  // whether lanes of a vector are loaded each for itself or not at all
  // Multiplications for which one more thread takes part: for fewer, waking it and waiting for it take as long as it saves,
  // also where two threads share the units of one core.
  double worth_thread;
  bool slices;       // whether linear layers of few bits are sliced (slices.h)
};

constexpr Traits kScalar{"scalar", 4, 2, 4, 1, 75, 0.7f, 1024, 0, 1, 4, 80, false, false, 1e5, false};
constexpr Traits kAvx2{"avx2", 8, 13, 4, 3, 75, 0.6f, 1024, 5120, 1, 4, 80, false, true, 2.5e5, false};       // 13 of 16 registers
constexpr Traits kAvx512{"avx512", 16, 28, 8, 3, 75, 0.35f, 28 * 16, 5120, 1, 0, 80, true, true, 4e5, true};  // 28 of 32
constexpr Traits kNeon{"neon", 4, 29, 8, 3, 90, 0.75f, 1024, 10240, 1, 0, 220, false, true, 1e5, false};  // 29 of 32

constexpr const Traits* kEveryTraits[] = {&kScalar, &kAvx2, &kAvx512, &kNeon};

// Those of this name; std::invalid_argument if there are none.
const Traits& traits_named(const std::string& name);

}  // namespace membound
