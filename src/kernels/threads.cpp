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

namespace membound {
namespace {

constexpr int kMaxThreads = 256;

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

struct Job {
  const Body* body;
  size_t tasks;
  int threads;               // how many may take part
  std::atomic<size_t> next{0};
  int joined = 1;            // the caller is worker 0; guarded by Pool::mutex_
  std::atomic<int> running{0};  // helpers inside work(); changed under Pool::mutex_

  Job(const Body& b, size_t n, int t) : body(&b), tasks(n), threads(t) {}

  void work(int worker) {
    for (size_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) (*body)(task, worker);
  }
};

class Pool {
 public:
  // Run the job and return true, or return false if another caller has the pool.
  bool run(Job& job) {
    std::unique_lock<std::mutex> one_caller(caller_, std::try_to_lock);
    if (!one_caller.owns_lock()) return false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      start_helpers(job.threads - 1);
      job_ = &job;
      posted_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    job.work(0);
    for (int look = 0; look < kLooks && job.running.load(std::memory_order_relaxed) != 0; ++look) pause();
    std::unique_lock<std::mutex> lock(mutex_);
    job_ = nullptr;  // a helper that wakes up only now finds nothing to join
    done_.wait(lock, [&] { return job.running == 0; });
    return true;
  }

 private:
  void start_helpers(int wanted) {
    try {
      for (; helpers_ < wanted; ++helpers_) std::thread([this] { help(); }).detach();
    } catch (const std::system_error&) {
      // The system gives no more threads: those we have, and the caller, do the work.
    }
  }

  void help() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      if (!can_join()) {
        const uint64_t seen = posted_.load(std::memory_order_relaxed);
        lock.unlock();
        for (int look = 0; look < kLooks && posted_.load(std::memory_order_relaxed) == seen; ++look) pause();
        lock.lock();
      }
      wake_.wait(lock, [&] { return can_join(); });
      Job& job = *job_;
      const int worker = job.joined++;
      ++job.running;
      lock.unlock();
      job.work(worker);
      lock.lock();
      if (--job.running == 0) done_.notify_one();
    }
  }

  bool can_join() const {
    return job_ != nullptr && job_->joined < job_->threads &&
           job_->next.load(std::memory_order_relaxed) < job_->tasks;
  }

  std::mutex caller_;  // held by the caller whose job this is
  std::mutex mutex_;   // guards what follows
  std::condition_variable wake_, done_;
  Job* job_ = nullptr;
  int helpers_ = 0;
  std::atomic<uint64_t> posted_{0};  // jobs so far
};

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

int thread_count(int requested) {
  const int count = requested > 0 ? requested : static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(count, 1, kMaxThreads);
}

void parallel_for(int threads, size_t tasks, const Body& body) {
  threads = static_cast<int>(std::min<size_t>(static_cast<size_t>(threads), tasks));
  if (threads > 1) {
    Job job(body, tasks, threads);
    if (pool().run(job)) return;
  }
  for (size_t task = 0; task < tasks; ++task) body(task, 0);
}

}  // namespace membound
