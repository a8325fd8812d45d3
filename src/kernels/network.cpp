#include "network.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <stdexcept>

#if !defined(_WIN32)
#include <pthread.h>
#endif

#include "threads.h"

namespace membound {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kLine = kAlignment / sizeof(float);

// Beyond all use, and so far from the limits that no product of sizes overflows.
constexpr size_t kMostBatch = size_t{1} << 16, kMostCalls = size_t{1} << 10, kMostFloats = size_t{1} << 33;

size_t with_slack(size_t floats) { return (floats + kSlack + kLine - 1) / kLine * kLine; }

std::atomic<unsigned> forks{0};

// How often this process is a fork of another.
unsigned fork_count() {
#if !defined(_WIN32)
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  (void)registered;
#endif
  return forks.load();
}

}  // namespace

// The arenas of a network: up to `most` are made, when they are needed, and kept for the next call.
class Network::Arenas {
 public:
  Arenas(size_t floats, size_t most) : born(fork_count()), most_(most) {
    bytes_ = (floats * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  }
  Arenas(const Arenas&) = delete;
  Arenas& operator=(const Arenas&) = delete;
  ~Arenas() {
    for (float* arena : idle_) std::free(arena);
  }

  float* take() {
    std::unique_lock<std::mutex> lock(mutex_);
    returned_.wait(lock, [&] { return !idle_.empty() || made_ < most_; });
    if (!idle_.empty()) {
      float* arena = idle_.back();
      idle_.pop_back();
      return arena;
    }
    idle_.reserve(made_ + 1);  // so that giving back cannot fail
    auto* arena = static_cast<float*>(std::aligned_alloc(kAlignment, bytes_));
    if (arena == nullptr) throw std::bad_alloc();
    ++made_;
    return arena;
  }

  void give_back(float* arena) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      idle_.push_back(arena);
    }
    returned_.notify_one();
  }

  const unsigned born;  // in which process

 private:
  size_t bytes_, most_, made_ = 0;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<float*> idle_;
};

Network::Network(std::vector<size_t> sizes, std::vector<std::unique_ptr<Op>> ops, size_t output, size_t max_batch,
                 int threads, size_t concurrency, const NetKernels& kernels)
    : sizes_(std::move(sizes)),
      ops_(std::move(ops)),
      output_(output),
      max_batch_(max_batch),
      concurrency_(concurrency),
      threads_(thread_count(threads)),
      kernels_(kernels) {
  size_t all = 0;
  for (size_t size : sizes_) all += std::min(size, kMostFloats + 1);
  if (max_batch > kMostBatch || concurrency > kMostCalls || all > kMostFloats)
    throw std::invalid_argument("a network, a batch or a number of calls that is too large to run");
  plan();
  arenas_ = new Arenas(arena_floats_, concurrency_);
}

Network::~Network() { delete arenas_.load(); }

// Every value gets the lowest place that is free while it lives; room for the operators lies behind them all.
void Network::plan() {
  const size_t count = sizes_.size();
  std::vector<size_t> root(count), last_use(count, 0);
  for (size_t value = 0; value < count; ++value) {
    const bool alias = value > 0 && ops_[value - 1]->is_alias();
    root[value] = alias ? root[ops_[value - 1]->inputs[0]] : value;
    last_use[root[value]] = std::max(last_use[root[value]], value);
    if (value > 0)
      for (size_t input : ops_[value - 1]->inputs) last_use[root[input]] = std::max(last_use[root[input]], value);
  }
  last_use[root[output_]] = count;

  offsets_.assign(count, 0);
  std::vector<size_t> placed;  // roots that are alive, by offset
  size_t values_end = 0;
  for (size_t value = 0; value < count; ++value) {
    if (root[value] != value) {
      offsets_[value] = offsets_[root[value]];
      continue;
    }
    placed.erase(std::remove_if(placed.begin(), placed.end(), [&](size_t other) { return last_use[other] < value; }),
                 placed.end());
    const size_t floats = with_slack(sizes_[value] * max_batch_);
    size_t offset = 0;
    for (size_t other : placed) {
      if (offset + floats <= offsets_[other]) break;
      offset = std::max(offset, offsets_[other] + with_slack(sizes_[other] * max_batch_));
    }
    offsets_[value] = offset;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), value,
                                   [&](size_t a, size_t b) { return offsets_[a] < offsets_[b]; }),
                  value);
    values_end = std::max(values_end, offset + floats);
  }

  size_t shared = 0;
  for (const auto& op : ops_) {
    shared = std::max(shared, op->shared_floats(max_batch_));
    worker_floats_ = std::max(worker_floats_, op->worker_floats(max_batch_, kernels_));
  }
  worker_floats_ = with_slack(worker_floats_);
  shared_offset_ = values_end;
  worker_offset_ = shared_offset_ + with_slack(shared);
  arena_floats_ = worker_offset_ + worker_floats_ * static_cast<size_t>(threads_);
}

NetworkMemory Network::memory() const {
  size_t tables = offsets_.capacity() * sizeof(size_t) + sizes_.capacity() * sizeof(size_t);
  for (const auto& op : ops_) tables += op->table_bytes();
  return {tables, arena_floats_ * sizeof(float), concurrency_};
}

// After a fork the threads of the parent are gone, with the arenas that they had taken and any lock that they held:
// the child leaves the parent's arenas as they are and makes its own.
Network::Arenas& Network::arenas() const {
  Arenas* current = arenas_.load();
  if (current->born != fork_count()) {
    auto* fresh = new Arenas(arena_floats_, concurrency_);
    if (arenas_.compare_exchange_strong(current, fresh)) return *fresh;
    delete fresh;  // another thread was faster; `current` is what it made
  }
  return *current;
}

void Network::run(const float* input, size_t batch, float* output, double* seconds) const {
  struct Taken {  // given back also if an operator throws
    Arenas& arenas;
    float* arena;
    ~Taken() { arenas.give_back(arena); }
  };
  Arenas& arenas = this->arenas();
  const Taken taken{arenas, arenas.take()};
  for (size_t done = 0; done < batch; done += max_batch_)
    run_slice(input + done * input_size(), std::min(max_batch_, batch - done), output + done * output_size(),
              taken.arena, seconds);
}

void Network::run_slice(const float* input, size_t batch, float* output, float* arena, double* seconds) const {
  using Clock = std::chrono::steady_clock;
  const Workplace place{kernels_, threads_, arena + shared_offset_, arena + worker_offset_, worker_floats_};
  std::memcpy(arena + offsets_[0], input, batch * sizes_[0] * sizeof(float));
  std::vector<const float*> inputs;
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = *ops_[i];
    if (op.is_alias()) continue;
    inputs.clear();
    for (size_t value : op.inputs) inputs.push_back(arena + offsets_[value]);
    const Clock::time_point begin = seconds ? Clock::now() : Clock::time_point();
    op.run(inputs.data(), arena + offsets_[i + 1], batch, place);
    if (seconds) seconds[i] += std::chrono::duration<double>(Clock::now() - begin).count();
  }
  std::memcpy(output, arena + offsets_[output_], batch * sizes_[output_] * sizeof(float));
}

}  // namespace membound
