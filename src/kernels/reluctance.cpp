#include "reluctance.h"

namespace membound {

Reluctance::Call Reluctance::begin() {
  const int number = static_cast<int>(calls_.fetch_add(1, std::memory_order_relaxed) % kRound);
  return number < kTries ? Call{number % kCount, number} : Call{best_.load(std::memory_order_relaxed), number};
}

void Reluctance::end(const Call& call, double seconds) {
  if (call.number < 0 || call.number >= kTries) return;
  std::atomic<double>& least = least_[call.mode];
  if (call.number < kCount || seconds < least.load(std::memory_order_relaxed)) least.store(seconds, std::memory_order_relaxed);
  if (call.mode == 0 && seconds > kLong) {
    best_.store(0, std::memory_order_relaxed);
    calls_.fetch_add(static_cast<unsigned>(kTries - call.number - 1), std::memory_order_relaxed);
    return;
  }
  if (call.number + 1 < kTries) return;
  int best = kCount - 1;
  for (int mode = kCount - 2; mode >= 0; --mode)
    if (least_[mode].load(std::memory_order_relaxed) < kClear * least_[best].load(std::memory_order_relaxed)) best = mode;
  best_.store(best, std::memory_order_relaxed);
}

}  // namespace membound
