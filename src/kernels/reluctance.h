// How reluctant the operators of a network are to take another thread: found by trying, because no count of operations tells what
// a thread costs here. Two CPUs may share the units of one core, the other threads may be asleep between calls that come
// now and then, and other processes may want the same CPUs.
#pragma once

#include <atomic>

namespace membound {

// In rounds: a few calls try each mode in turn, and the calls behind them run in the fastest. What was tried decides nothing but
// the number of threads, so results stay the same bits. Safe from many threads: what they mix up costs time at most.
class Reluctance {
 public:
  // What an operator's work is divided by, before it counts as worth another thread.
  static constexpr double kModes[] = {1.0, 4.0, 1e30};  // as traits say; only large operators; none

  struct Call {
    int mode;
    int number;  // in its round, or kUntold: its time tells nothing
    double factor() const { return kModes[mode]; }
  };

  Call begin();
  void end(const Call& call, double seconds);
  // A call whose time tells nothing.
  Call untold() const { return {best_.load(std::memory_order_relaxed), kUntold}; }

 private:
  static constexpr int kUntold = -1;
  static constexpr int kCount = 3, kTries = 8 * kCount, kRound = 1000;
  static constexpr double kLong = 2e-3;  // seconds: where a call takes longer, threads pay, and trying is expensive
  static constexpr double kClear = 0.92;  // of the time that more threads take: less is not worth keeping them awake

  std::atomic<unsigned> calls_{0};  // beyond its end it goes on from 0
  std::atomic<int> best_{0};
  std::atomic<double> least_[kCount] = {};  // seconds, in this round
};

}  // namespace membound
