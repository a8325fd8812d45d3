#include "threads.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>

#if !defined(_WIN32)
#include <pthread.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif

namespace membound {
namespace {

// Looks at a flag before a thread goes to sleep: a network's next operator comes within microseconds, and waking a
// sleeping thread takes longer than many an operator.
constexpr int kLooks = 4000;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // `yield` does nothing on most cores
#endif
}

using Body = std::function<void(size_t, int)>;

// Tasks that one worker takes in their order, and then others help with: so that, from one operator to the next, the
// caller, and the helper if there is but one, finds what it made itself in its own cache.
struct alignas(64) Range {
  std::atomic<size_t> next{0};
  size_t end = 0;
};

struct Job {
  const Body* body;
  int threads;  // how many may take part, the caller among them
  Range* ranges;
  std::atomic<int> left{0};  // helpers that have joined and are done

  Job(const Body& b, int t) : body(&b), threads(t) {}

  void work(int worker) {
    for (int other = 0; other < threads; ++other) {
      Range& range = ranges[(worker + other) % threads];
      if (range.next.load(std::memory_order_relaxed) >= range.end) continue;
      for (size_t task; (task = range.next.fetch_add(1, std::memory_order_relaxed)) < range.end;) (*body)(task, worker);
    }
  }
};

// Helpers join and leave a job without a lock: with many threads, and operators of microseconds, they would spend their
// time waiting for it. The lock is for those that sleep.
class Pool {
 public:
  // Run the job and return true, or return false if another caller has the pool.
  bool run(Job& job, size_t tasks) {
    std::unique_lock<std::mutex> one_caller(caller_, std::try_to_lock);
    if (!one_caller.owns_lock()) return false;
    job.ranges = ranges_;
    for (size_t worker = 0, all = static_cast<size_t>(job.threads); worker < all; ++worker) {
      ranges_[worker].next.store(tasks * worker / all, std::memory_order_relaxed);
      ranges_[worker].end = tasks * (worker + 1) / all;
    }
    start_helpers(job.threads - 1);
    job_ = &job;
    const uint64_t closed = (gate_.load(std::memory_order_relaxed) | kPlaces) + 1;  // of the next job
    const int places = job.threads - 1;
    gate_ = closed + static_cast<uint64_t>(places);
    wake(std::min(places, asleep_.load()));
    job.work(0);
    const uint64_t last = gate_.exchange(closed);  // a helper that wakes up only now finds nothing to join
    wait_for(job, places - static_cast<int>(last & kPlaces));
    return true;
  }

 private:
  static constexpr uint64_t kPlaces = 0xffff;

  void start_helpers(int wanted) {
    try {
      for (; helpers_ < wanted; ++helpers_) std::thread([this] { help(); }).detach();
    } catch (const std::system_error&) {
      // The system gives no more threads: those we have, and the caller, do the work.
    }
  }

  void wake(int sleepers) {
    if (sleepers == 0) return;
    { std::lock_guard<std::mutex> lock(mutex_); }  // one that is about to sleep has seen the gate open, or sleeps by now
    for (int i = 0; i < sleepers; ++i) wake_.notify_one();
  }

  void wait_for(const Job& job, int joined) {
    for (int look = 0; look < kLooks && job.left.load(std::memory_order_acquire) != joined; ++look) pause();
    if (job.left.load(std::memory_order_acquire) == joined) return;
    std::unique_lock<std::mutex> lock(mutex_);
    caller_sleeps_ = true;
    done_.wait(lock, [&] { return job.left == joined; });
    caller_sleeps_ = false;
  }

  void help() {
    for (;;) {
      for (int look = 0; look < kLooks && !is_open(); ++look) pause();
      if (!is_open()) {
        std::unique_lock<std::mutex> lock(mutex_);
        ++asleep_;
        wake_.wait(lock, [&] { return is_open(); });
        --asleep_;
      }
      uint64_t seen = gate_.load();
      while ((seen & kPlaces) != 0 && !gate_.compare_exchange_weak(seen, seen - 1)) {
      }
      if ((seen & kPlaces) == 0) continue;
      Job& job = *job_;  // it stays until we have left it
      job.work(job.threads - static_cast<int>(seen & kPlaces));
      ++job.left;
      if (caller_sleeps_) {
        { std::lock_guard<std::mutex> lock(mutex_); }
        done_.notify_one();
      }
    }
  }

  bool is_open() const { return (gate_.load() & kPlaces) != 0; }

  std::mutex caller_;  // held by the caller whose job this is
  Range ranges_[kMostThreads];
  Job* job_ = nullptr;
  std::atomic<uint64_t> gate_{0};  // how many may still join the job, and above those 16 bits which job it is
  int helpers_ = 0;

  std::mutex mutex_;  // of those who sleep
  std::condition_variable wake_, done_;
  std::atomic<int> asleep_{0};
  std::atomic<bool> caller_sleeps_{false};
};

std::atomic<unsigned> forks{0};

// Never destroyed: helpers may still be waiting on it while the process ends.
std::atomic<Pool*> the_pool{nullptr};

// After a fork the helpers do not exist in the child, and a lock may be held for ever by a thread that does
// not exist either: the child forgets the pool and makes its own when it needs one.
void forget_pool() { the_pool.store(nullptr); }

Pool& pool() {
#if !defined(_WIN32)
  static const int registered = pthread_atfork(nullptr, nullptr, forget_pool);
  (void)registered;
#endif
  Pool* current = the_pool.load();
  if (current == nullptr) {
    Pool* fresh = new Pool;
    if (the_pool.compare_exchange_strong(current, fresh)) return *fresh;
    delete fresh;  // another thread was faster; `current` is its pool
  }
  return *current;
}

}  // namespace

unsigned fork_count() {
#if !defined(_WIN32)
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  (void)registered;
#endif
  return forks.load();
}

// CPUs that this process may use, which in a container or under taskset are fewer than the machine has: threads that
// outnumber them wait for each other at every operator.
static int usable_cpus() {
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

int thread_count(int requested) { return std::clamp(requested > 0 ? requested : usable_cpus(), 1, kMostThreads); }

void parallel_for(int threads, size_t tasks, const Body& body) {
  threads = static_cast<int>(std::min({static_cast<size_t>(threads), tasks, static_cast<size_t>(kMostThreads)}));
  if (threads > 1) {
    Job job(body, threads);
    if (pool().run(job, tasks)) return;
  }
  for (size_t task = 0; task < tasks; ++task) body(task, 0);
}

}  // namespace membound
