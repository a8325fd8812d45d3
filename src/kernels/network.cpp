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

#if !defined(_WIN32)
#include <pthread.h>
#endif

#include "threads.h"

namespace membound {
namespace {

constexpr size_t kAlignment = 64;

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

void Network::plan() {
  const size_t count = sizes_.size(), threads = static_cast<size_t>(threads_);
  const auto works = [](const std::unique_ptr<Op>& op) { return !op->is_alias(); };
  if (max_batch_ > 1)
    while (by_image_ < ops_.size() && !ops_[by_image_]->gains_by_batch()) ++by_image_;
  if (std::none_of(ops_.begin(), ops_.begin() + static_cast<long>(by_image_), works)) by_image_ = 0;
  lanes_ = 2 * max_batch_ > threads ? std::min(max_batch_, threads) : 1;
  std::vector<size_t> root(count), last_use(count, 0);
  for (size_t value = 0; value < count; ++value) {
    const bool alias = value > 0 && ops_[value - 1]->is_alias();
    root[value] = alias ? root[ops_[value - 1]->inputs[0]] : value;
    last_use[root[value]] = std::max(last_use[root[value]], value);
    if (value > 0)
      for (size_t input : ops_[value - 1]->inputs) last_use[root[input]] = std::max(last_use[root[input]], value);
  }
  last_use[root[output_]] = count;
  // Value k is the output of operator k - 1.
  std::vector<size_t> batch_values, lane_values;
  for (size_t value = 0; value < count; ++value) {
    if (root[value] != value) continue;
    const bool of_image = by_image_ > 0 && value <= by_image_, used_later = !of_image || last_use[value] > by_image_;
    if (of_image) lane_values.push_back(value);
    if (used_later) batch_values.push_back(value);
    if (of_image && used_later) kept_.push_back(value);
  }
  batch_shared_ = give_places(batch_values, last_use, max_batch_, batch_offsets_);
  lane_shared_ = give_places(lane_values, last_use, 1, lane_offsets_);
  for (size_t value = 0; value < count; ++value) {
    batch_offsets_[value] = batch_offsets_[root[value]];
    lane_offsets_[value] = lane_offsets_[root[value]];
  }

  size_t shared = 0, lane_shared = 0;
  for (size_t i = 0; i < ops_.size(); ++i) {
    const size_t images = i < by_image_ ? 1 : max_batch_;
    size_t& most = i < by_image_ ? lane_shared : shared;
    most = std::max(most, ops_[i]->shared_floats(images));
    worker_floats_ = std::max(worker_floats_, ops_[i]->worker_floats(images, kernels_));
  }
  worker_floats_ = with_slack(worker_floats_);
  lanes_offset_ = batch_shared_ + with_slack(shared);
  lane_floats_ = by_image_ > 0 ? lane_shared_ + with_slack(lane_shared) : 0;
  rooms_offset_ = lanes_offset_ + lanes_ * lane_floats_;
  arena_floats_ = rooms_offset_ + worker_floats_ * threads;
}

// Every value, in the order of their births, gets the lowest place that is free while it lives. The result is how many
// floats that takes.
size_t Network::give_places(const std::vector<size_t>& values, const std::vector<size_t>& last_use, size_t images,
                            std::vector<size_t>& offsets) const {
  offsets.assign(sizes_.size(), 0);
  std::vector<size_t> placed;  // those that are alive, by offset
  size_t end = 0;
  for (size_t value : values) {
    placed.erase(std::remove_if(placed.begin(), placed.end(), [&](size_t other) { return last_use[other] < value; }),
                 placed.end());
    const size_t floats = with_slack(sizes_[value] * images);
    size_t offset = 0;
    for (size_t other : placed) {
      if (offset + floats <= offsets[other]) break;
      offset = std::max(offset, offsets[other] + with_slack(sizes_[other] * images));
    }
    offsets[value] = offset;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), value,
                                   [&](size_t a, size_t b) { return offsets[a] < offsets[b]; }),
                  value);
    end = std::max(end, offset + floats);
  }
  return end;
}

NetworkMemory Network::memory() const {
  size_t tables = (batch_offsets_.capacity() + lane_offsets_.capacity() + sizes_.capacity()) * sizeof(size_t);
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
  const Turn turn{arena, false, 0, batch};
  if (by_image_ > 0) {
    run_by_image(input, batch, arena, seconds);
  } else {
    std::memcpy(value(0, turn), input, batch * sizes_[0] * sizeof(float));
  }
  const Workplace place{kernels_, threads_, arena + batch_shared_, arena + rooms_offset_, worker_floats_};
  run_ops(by_image_, ops_.size(), turn, place, seconds);
  std::memcpy(output, value(output_, turn), batch * sizes_[output_] * sizeof(float));
}

// Images side by side, a thread and a lane each, as long as there is one for most threads; then all threads take one
// image after another.
void Network::run_by_image(const float* input, size_t batch, float* arena, double* seconds) const {
  const auto run_image = [&](size_t image, size_t lane, int threads) {
    const Turn turn{arena, true, lane, 1};
    const Workplace place{kernels_, threads, arena + lanes_offset_ + lane * lane_floats_ + lane_shared_,
                          arena + rooms_offset_ + lane * worker_floats_, worker_floats_};
    std::memcpy(value(0, turn), input + image * sizes_[0], sizes_[0] * sizeof(float));
    run_ops(0, by_image_, turn, place, seconds);
    for (size_t number : kept_)
      std::memcpy(arena + batch_offsets_[number] + image * sizes_[number], value(number, turn),
                  sizes_[number] * sizeof(float));
  };
  size_t side_by_side = 0;
  if (lanes_ > 1 && seconds == nullptr) {
    const size_t threads = static_cast<size_t>(threads_), rest = batch % threads;
    side_by_side = 2 * rest > threads ? batch : batch - rest;
  }
  if (side_by_side > 0) {
    std::exception_ptr failure;
    std::mutex failing;
    parallel_for(static_cast<int>(lanes_), side_by_side, [&](size_t image, int lane) {
      try {
        run_image(image, static_cast<size_t>(lane), 1);
      } catch (...) {
        std::lock_guard<std::mutex> lock(failing);
        failure = std::current_exception();
      }
    });
    if (failure) std::rethrow_exception(failure);
  }
  for (size_t image = side_by_side; image < batch; ++image) run_image(image, 0, threads_);
}

float* Network::value(size_t number, const Turn& turn) const {
  if (!turn.one_image) return turn.arena + batch_offsets_[number];
  return turn.arena + lanes_offset_ + turn.lane * lane_floats_ + lane_offsets_[number];
}

// The operators [first, last).
void Network::run_ops(size_t first, size_t last, const Turn& turn, const Workplace& place, double* seconds) const {
  using Clock = std::chrono::steady_clock;
  std::vector<const float*> inputs;
  for (size_t i = first; i < last; ++i) {
    const Op& op = *ops_[i];
    if (op.is_alias()) continue;
    inputs.clear();
    for (size_t number : op.inputs) inputs.push_back(value(number, turn));
    const Clock::time_point begin = seconds ? Clock::now() : Clock::time_point();
    op.run(inputs.data(), value(i + 1, turn), turn.images, place);
    if (seconds) seconds[i] += std::chrono::duration<double>(Clock::now() - begin).count();
  }
}

}  // namespace membound
