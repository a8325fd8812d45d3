#include "op.h"

#include <algorithm>

#include "threads.h"

namespace membound {

size_t elements(const Shape& shape) {
  size_t all = 1;
  for (size_t size : shape) all *= size;
  return all;
}

int Workplace::worth(double operations) const {
  const double found = 1.0 + operations / (kernels.traits.worth_thread * reluctance);
  return found < static_cast<double>(threads) ? static_cast<int>(found) : threads;
}

void Workplace::each(size_t tasks, double operations, const std::function<void(size_t, int)>& body) const {
  parallel_for(worth(operations), tasks, body);
}

void Workplace::each_share(size_t maps, size_t rows, double operations,
                          const std::function<void(const Share&, int)>& body) const {
  const int found = worth(operations);
  if (found == 1) return body({0, maps, 0, rows}, 0);
  const auto all = static_cast<size_t>(found);
  const size_t of_rows = are_cut_by_rows(rows, found, kernels.traits) ? all : 1, of_maps = std::min(maps, 4 * all / of_rows);
  parallel_for(found, of_rows * of_maps, [&](size_t task, int worker) {
    const size_t high = task / of_maps, map = task % of_maps;
    body({maps * map / of_maps, maps * (map + 1) / of_maps, rows * high / of_rows, rows * (high + 1) / of_rows}, worker);
  });
}

}  // namespace membound
