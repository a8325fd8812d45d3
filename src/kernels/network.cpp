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

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "threads.h"

namespace membound {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{1} << 21;  // bytes
constexpr size_t kWorthThread = 200000;  // floats of images that are parted: fewer are not worth another thread

// Beyond all use, and so far from the limits that no product of sizes overflows.
constexpr size_t kMostBatch = size_t{1} << 16, kMostCalls = size_t{1} << 10, kMostFloats = size_t{1} << 33;

void check_target(const Target& target) {
  if (target.max_batch < 1 || target.max_batch > kMostBatch || target.threads < 1 || target.threads > kMostThreads)
    throw std::invalid_argument("a batch or a number of threads that is too large to run, or below 1");
}

// Of large arenas, as much as fills huge pages is asked to be these: nonzeros reach for channels all over an image, and of small
// pages a CPU knows too few. No byte more is taken.
float* allocate(size_t bytes) {
  void* arena = nullptr;  // aligned_alloc is not in every Android's C library
  if (posix_memalign(&arena, bytes < kHugePage ? kAlignment : kHugePage, bytes) != 0) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
  if (bytes >= kHugePage) madvise(arena, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // or not: it runs all the same
#endif
  return static_cast<float*>(arena);
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
    float* arena = allocate(bytes_);
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
  plans_ = plans_for({kernels.traits, max_batch_, threads_});
  arenas_ = new Arenas(plans_.floats(), concurrency_);
}

Network::~Network() { delete arenas_.load(); }

size_t Network::Plans::floats() const { return std::max(any.batch.floats, together.batch.floats); }

Network::Plans Network::plans_for(const Target& target) const {
  return {plan_network(sizes_, ops_, outputs_, target), plan_together(sizes_, ops_, outputs_, target)};
}

NetworkMemory Network::memory(const Target& target) const {
  check_target(target);
  const Plans plans = plans_for(target);
  size_t tables = plans.any.table_bytes() + plans.together.table_bytes() + sizes_.size() * sizeof(size_t);
  for (const auto& op : ops_) tables += op->table_bytes() + op->table_bytes_on(target.traits);
  return {tables, plans.floats() * sizeof(float), concurrency_};
}

// After a fork the threads of the parent are gone, with the arenas that they had taken and any lock that they held:
// the child leaves the parent's arenas as they are and makes its own.
Network::Arenas& Network::arenas() const {
  Arenas* current = arenas_.load();
  if (current->born != fork_count()) {
    auto* fresh = new Arenas(plans_.floats(), concurrency_);
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
  using Clock = std::chrono::steady_clock;
  const bool tells = batch == 1 && threads_ > 1 && seconds == nullptr;
  const Reluctance::Call call = tells ? reluctance_.begin() : batch == 1 ? reluctance_.untold() : Reluctance::Call{0, -1};
  const Clock::time_point begin = Clock::now();
  for (size_t done = 0, images = 0; done < batch; done += images) {
    const size_t together = plans_.together.images;
    const NetworkPlan& plan = together > 0 && batch - done >= together ? plans_.together : plans_.any;
    images = std::min(plan.images, batch - done);
    run_slice(plan, {inputs, done}, images, outputs, taken.arena, call.factor(), seconds);
  }
  if (tells) reluctance_.end(call, std::chrono::duration<double>(Clock::now() - begin).count());
}

void Network::run_slice(const NetworkPlan& plan, const Given& given, size_t batch, float* const* outputs, float* arena,
                        double reluctance, double* seconds) const {
  const Turn turn{plan, arena, plan.batch, batch, threads_, reluctance, given};
  if (plan.by_image > 0) {
    run_by_image(turn, seconds);
  } else {
    copy_input(0, turn);
  }
  run_ops(plan.by_image, ops_.size(), turn, seconds);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const size_t value = outputs_[i], size = sizes_[value];
    std::memcpy(outputs[i] + given.first * size, arena + plan.batch.values[value], batch * size * sizeof(float));
  }
}

void Network::copy_input(size_t number, const Turn& turn) const {
  const size_t value = inputs_[number], size = sizes_[value];
  std::memcpy(turn.base + turn.layout.values[value], turn.given.inputs[number] + turn.given.first * size,
              turn.images * size * sizeof(float));
}

// Images side by side, a thread and a lane each, as long as there is one for most threads; then all threads take one
// image after another.
void Network::run_by_image(const Turn& all, double* seconds) const {
  const NetworkPlan& plan = all.plan;
  const Given& given = all.given;
  const size_t batch = all.images;
  const auto run_image = [&](size_t image, const Turn& turn) {
    copy_input(0, turn);
    run_ops(0, plan.by_image, turn, seconds);
    for (size_t number : plan.kept)
      std::memcpy(all.base + plan.batch.values[number] + image * sizes_[number], turn.base + turn.layout.values[number],
                  sizes_[number] * sizeof(float));
  };
  float* lanes = all.base + plan.lanes_offset;
  size_t side_by_side = 0;
  if (plan.lanes > 1 && seconds == nullptr) {
    const size_t threads = static_cast<size_t>(threads_), rest = batch % threads;
    side_by_side = 2 * rest > threads ? batch : batch - rest;
  }
  if (side_by_side > 0) {
    std::exception_ptr failure;
    std::mutex failing;
    parallel_for(static_cast<int>(plan.lanes), side_by_side, [&](size_t image, int lane) {
      try {
        run_image(image, {plan, lanes + static_cast<size_t>(lane) * plan.beside.floats, plan.beside, 1, 1, 1.0, {given.inputs, given.first + image}});
      } catch (...) {
        std::lock_guard<std::mutex> lock(failing);
        failure = std::current_exception();
      }
    });
    if (failure) std::rethrow_exception(failure);
  }
  for (size_t image = side_by_side; image < batch; ++image) 
    run_image(image, {plan, lanes, plan.alone, 1, threads_, all.reluctance, {given.inputs, given.first + image}});
}

// The operators [first, last).
void Network::run_ops(size_t first, size_t last, const Turn& turn, double* seconds) const {
  using Clock = std::chrono::steady_clock;
  const Stretch& together = turn.plan.together;
  std::vector<const float*> inputs;  // of one operator after another
  for (size_t i = first; i < last; ++i) {
    if (ops_[i]->is_input()) {
      copy_input(static_cast<size_t>(std::find(inputs_.begin(), inputs_.end(), i + 1) - inputs_.begin()), turn);
      continue;
    }
    const Clock::time_point begin = seconds ? Clock::now() : Clock::time_point();
    if (together.has(i)) {
      if (!ops_[i]->is_alias()) run_together(i, turn);
      if (i + 1 == together.last) part_images(turn);
    } else if (!ops_[i]->is_alias()) {
      run_op(i, turn, inputs);
    } else {
      continue;
    }
    if (seconds) seconds[i] += std::chrono::duration<double>(Clock::now() - begin).count();
  }
}

void Network::run_op(size_t number, const Turn& turn, std::vector<const float*>& inputs) const {
  const Op& op = *ops_[number];
  inputs.clear();
  for (size_t value : op.inputs) inputs.push_back(turn.base + turn.layout.values[value]);
  const size_t liked = turn.layout.liked[number];
  Workplace place{kernels_, turn.threads, turn.base + turn.layout.shared[number], turn.base + turn.layout.workers[number],
                  liked == kNowhere ? turn.plan.worker_floats[number] : liked};
  place.roomy = liked != kNowhere;
  place.reluctance = turn.reluctance;
  op.run(inputs.data(), turn.base + turn.layout.values[number + 1], turn.images, place);
}

void Network::run_together(size_t number, const Turn& turn) const {
  const std::vector<size_t>& values = turn.plan.together.values;
  std::vector<Beside> inputs;
  for (size_t value : ops_[number]->inputs) {
    const bool together = values[value] != kNowhere;
    inputs.push_back({turn.base + (together ? values : turn.layout.values)[value], together});
  }
  const Workplace place{kernels_, turn.threads, turn.base + turn.layout.shared[number], turn.base + turn.layout.workers[number],
                        turn.plan.worker_floats[number]};
  ops_[number]->run_together(inputs.data(), turn.base + values[number + 1], place);
}

// Images that lie side by side, one behind the other.
void Network::part_images(const Turn& turn) const {
  constexpr size_t kAtOnce = 1024;  // elements
  for (size_t value : turn.plan.together.leaving) {
    const float* from = turn.base + turn.plan.together.values[value];
    float* to = turn.base + turn.layout.values[value];
    const size_t size = sizes_[value], parts = (size + kAtOnce - 1) / kAtOnce;
    parallel_for(turn.images * size < kWorthThread ? 1 : turn.threads, parts, [&](size_t part, int) {
      const size_t first = part * kAtOnce;
      kernels_.separate(from + first * turn.images, std::min(kAtOnce, size - first), to + first, size);
    });
  }
}

}  // namespace membound
