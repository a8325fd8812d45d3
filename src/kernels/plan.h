// Where everything lies while a network runs: a pure function of its operators, the instruction set's traits, the number
// of threads and the largest batch. Any machine plans for any other; nothing that is found out at run time changes it.
#pragma once

#include <memory>
#include <vector>

#include "op.h"

namespace membound {

// What a network is to be planned for.
struct Target {
  const Traits& traits;
  size_t max_batch;
  int threads;
};

// With the slack behind it, in whole lines of the cache.
constexpr size_t with_slack(size_t floats) { return whole_lines(floats + kSlack); }

// Of values that have no place.
constexpr size_t kNowhere = static_cast<size_t>(-1);

// Offsets, in floats, of all that operators use while they run: values by their numbers, rooms by operator.
struct Layout {
  std::vector<size_t> values, shared, workers;
  std::vector<size_t> liked;  // of operators that have all that they like, from one worker's room to the next; else nowhere
  size_t floats = 0;
};

// Operators [first, last) that take as many images as a vector has lanes, side by side. Those of their values that others use
// lie one behind the other then, too: `leaving`, and of each value where its images lie side by side.
struct Stretch {
  size_t first = 0, last = 0;
  std::vector<size_t> leaving, values;
  bool has(size_t op) const { return first <= op && op < last; }
};

struct NetworkPlan {
  size_t images = 0;  // at once
  Stretch together;
  // Of a batch, the first `by_image` operators take one image after another: what one operator leaves for the next is
  // still near, and there need not be room for all. Values that later operators use are kept.
  size_t by_image = 0;
  std::vector<size_t> kept;
  // As long as there is an image for most threads, up to `lanes` are side by side, a thread and a lane each; else all
  // threads take one image, which then has all the lanes' room.
  size_t lanes = 1;
  Layout beside, alone;     // of one image; `beside` is repeated for each lane
  size_t lanes_offset = 0;  // where both begin, in the arena
  Layout batch;             // of all images: the whole arena
  std::vector<size_t> worker_floats;  // of each operator, from one worker's room to the next

  size_t table_bytes() const;
};

// `sizes`: floats of each value for one image; value 0 is the input, value k the output of ops[k - 1].
// As many images as the target may have at once, or fewer; and exactly as many as a vector has lanes, some operators taking
// them side by side: a plan of no images, where none gains by it.
NetworkPlan plan_together(const std::vector<size_t>& sizes, const std::vector<std::unique_ptr<Op>>& ops,
                          const std::vector<size_t>& outputs, const Target& target);
NetworkPlan plan_network(const std::vector<size_t>& sizes, const std::vector<std::unique_ptr<Op>>& ops,
                         const std::vector<size_t>& outputs, const Target& target);

}  // namespace membound
