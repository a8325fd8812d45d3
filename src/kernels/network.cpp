#include "network.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <stdexcept>

#include "threads.h"

namespace membound {
namespace {

constexpr size_t kAlignment = 64;

// Beyond all use, and so far from the limits that no product of sizes overflows.
constexpr size_t kMostBatch = size_t{1} << 16, kMostCalls = size_t{1} << 10, kMostFloats = size_t{1} << 33;

void check_target(const Target& target) {
  if (target.max_batch < 1 || target.max_batch > kMostBatch || target.threads < 1 || target.threads > kMostThreads)
    throw std::invalid_argument("a batch or a number of threads that is too large to run, or below 1");
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
    void* arena = nullptr;  // aligned_alloc is not in every Android's C library
    if (posix_memalign(&arena, kAlignment, bytes_) != 0) throw std::bad_alloc();
    ++made_;
    return static_cast<float*>(arena);
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

Network::Network(std::vector<size_t> sizes, std::vector<std::unique_ptr<Op>> ops, std::vector<size_t> outputs,
                 size_t max_batch, int threads, size_t concurrency, const NetKernels& kernels)
    : sizes_(std::move(sizes)),
      ops_(std::move(ops)),
      inputs_{0},
      outputs_(std::move(outputs)),
      max_batch_(max_batch),
      concurrency_(concurrency),
      threads_(thread_count(threads)),
      kernels_(kernels) {
  check_target({kernels.traits, max_batch, threads_});
  for (size_t i = 0; i < ops_.size(); ++i)
    if (ops_[i]->is_input()) inputs_.push_back(i + 1);
  size_t all = 0;
  for (size_t size : sizes_) all += std::min(size, kMostFloats + 1);
  if (concurrency > kMostCalls || all > kMostFloats)
    throw std::invalid_argument("a network or a number of calls that is too large to run");
  plan_ = plan_network(sizes_, ops_, outputs_, {kernels.traits, max_batch_, threads_});
  arenas_ = new Arenas(plan_.batch.floats, concurrency_);
}

Network::~Network() { delete arenas_.load(); }

NetworkMemory Network::memory(const Target& target) const {
  check_target(target);
  const NetworkPlan plan = plan_network(sizes_, ops_, outputs_, target);
  size_t tables = plan.table_bytes() + sizes_.size() * sizeof(size_t);
  for (const auto& op : ops_) tables += op->table_bytes() + op->table_bytes_on(target.traits);
  return {tables, plan.batch.floats * sizeof(float), concurrency_};
}

// After a fork the threads of the parent are gone, with the arenas that they had taken and any lock that they held:
// the child leaves the parent's arenas as they are and makes its own.
Network::Arenas& Network::arenas() const {
  Arenas* current = arenas_.load();
  if (current->born != fork_count()) {
    auto* fresh = new Arenas(plan_.batch.floats, concurrency_);
    if (arenas_.compare_exchange_strong(current, fresh)) return *fresh;
    delete fresh;  // another thread was faster; `current` is what it made
  }
  return *current;
}

void Network::run(const float* const* inputs, size_t batch, float* const* outputs, double* seconds) const {
  struct Taken {  // given back also if an operator throws
    Arenas& arenas;
    float* arena;
    ~Taken() { arenas.give_back(arena); }
  };
  Arenas& arenas = this->arenas();
  const Taken taken{arenas, arenas.take()};
  for (size_t done = 0; done < batch; done += max_batch_)
    run_slice({inputs, done}, std::min(max_batch_, batch - done), outputs, taken.arena, seconds);
}

void Network::run_slice(const Given& given, size_t batch, float* const* outputs, float* arena, double* seconds) const {
  const Turn turn{arena, plan_.batch, batch, threads_, given};
  if (plan_.by_image > 0) {
    run_by_image(given, batch, arena, seconds);
  } else {
    copy_input(0, turn);
  }
  run_ops(plan_.by_image, ops_.size(), turn, seconds);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const size_t value = outputs_[i], size = sizes_[value];
    std::memcpy(outputs[i] + given.first * size, arena + plan_.batch.values[value], batch * size * sizeof(float));
  }
}

void Network::copy_input(size_t number, const Turn& turn) const {
  const size_t value = inputs_[number], size = sizes_[value];
  std::memcpy(turn.base + turn.layout.values[value], turn.given.inputs[number] + turn.given.first * size,
              turn.images * size * sizeof(float));
}

// Images side by side, a thread and a lane each, as long as there is one for most threads; then all threads take one
// image after another.
void Network::run_by_image(const Given& given, size_t batch, float* arena, double* seconds) const {
  const auto run_image = [&](size_t image, const Turn& turn) {
    copy_input(0, turn);
    run_ops(0, plan_.by_image, turn, seconds);
    for (size_t number : plan_.kept)
      std::memcpy(arena + plan_.batch.values[number] + image * sizes_[number], turn.base + turn.layout.values[number],
                  sizes_[number] * sizeof(float));
  };
  float* lanes = arena + plan_.lanes_offset;
  size_t side_by_side = 0;
  if (plan_.lanes > 1 && seconds == nullptr) {
    const size_t threads = static_cast<size_t>(threads_), rest = batch % threads;
    side_by_side = 2 * rest > threads ? batch : batch - rest;
  }
  if (side_by_side > 0) {
    std::exception_ptr failure;
    std::mutex failing;
    parallel_for(static_cast<int>(plan_.lanes), side_by_side, [&](size_t image, int lane) {
      try {
        run_image(image, {lanes + static_cast<size_t>(lane) * plan_.beside.floats, plan_.beside, 1, 1, {given.inputs, given.first + image}});
      } catch (...) {
        std::lock_guard<std::mutex> lock(failing);
        failure = std::current_exception();
      }
    });
    if (failure) std::rethrow_exception(failure);
  }
  for (size_t image = side_by_side; image < batch; ++image) 
    run_image(image, {lanes, plan_.alone, 1, threads_, {given.inputs, given.first + image}});
}

// The operators [first, last).
void Network::run_ops(size_t first, size_t last, const Turn& turn, double* seconds) const {
  using Clock = std::chrono::steady_clock;
  std::vector<const float*> inputs;
  for (size_t i = first; i < last; ++i) {
    const Op& op = *ops_[i];
    if (op.is_alias()) continue;
    if (op.is_input()) {
      copy_input(static_cast<size_t>(std::find(inputs_.begin(), inputs_.end(), i + 1) - inputs_.begin()), turn);
      continue;
    }
    inputs.clear();
    for (size_t number : op.inputs) inputs.push_back(turn.base + turn.layout.values[number]);
    Workplace place{kernels_, turn.threads, turn.base + turn.layout.shared[i], nullptr, plan_.worker_floats[i]};
    if (turn.layout.workers[i] == kRoomy) {
      const Needs liked = op.likes(turn.images, kernels_.traits);
      place.workers = place.shared + with_slack(liked.shared);
      place.worker_floats = with_slack(liked.worker);
      place.roomy = true;
    } else {
      place.workers = turn.base + turn.layout.workers[i];
    }
    const Clock::time_point begin = seconds ? Clock::now() : Clock::time_point();
    op.run(inputs.data(), turn.base + turn.layout.values[i + 1], turn.images, place);
    if (seconds) seconds[i] += std::chrono::duration<double>(Clock::now() - begin).count();
  }
}

}  // namespace membound
