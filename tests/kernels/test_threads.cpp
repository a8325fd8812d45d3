// The thread pool alone: every task once, no worker twice at a time, whoever calls and however many threads there are.
//
//   test_threads [--cases N] [--seed S]
#include "threads.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#if !defined(_WIN32)
#include <sys/wait.h>
#include <unistd.h>
#endif

using Random = std::mt19937_64;

namespace {

constexpr int kMostThreads = 9;
std::atomic<size_t> g_checks{0}, g_mismatches{0};

void expect(bool good) {
  ++g_checks;
  if (!good) ++g_mismatches;
}

// One job: counts how often each task is done, and whether two threads are the same worker at once. What a task writes
// is read afterwards without an atomic: a sanitizer sees if the end of a job does not order them.
void check_job(int threads, size_t tasks, bool nested) {
  std::vector<int> done(tasks, 0);
  std::vector<std::atomic<int>> busy(static_cast<size_t>(threads));
  for (auto& one : busy) one = 0;
  std::atomic<int> wrong{0};
  membound::parallel_for(threads, tasks, [&](size_t task, int worker) {
    if (worker < 0 || worker >= threads || busy[static_cast<size_t>(worker)].exchange(1) != 0) ++wrong;
    ++done[task];
    if (nested) {  // alone, unless nobody has the pool
      std::atomic<int> inside{0};
      membound::parallel_for(threads, 3, [&](size_t, int) { ++inside; });
      if (inside != 3) ++wrong;
    }
    busy[static_cast<size_t>(worker)] = 0;
  });
  bool once = wrong == 0;
  for (int count : done) once = once && count == 1;
  expect(once);
}

void check_random(size_t cases, Random& random) {
  for (size_t i = 0; i < cases; ++i) {
    check_job(1 + static_cast<int>(random() % kMostThreads), random() % 40, random() % 8 == 0);
    // Now and then helpers get the time to fall asleep.
    if (random() % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void check_callers(size_t cases, Random& random) {
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([cases, seed = random()] {
      Random own(seed);
      check_random(cases, own);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// A child has none of the helpers, and must not wait for them.
void check_fork() {
#if !defined(_WIN32) && !defined(__SANITIZE_THREAD__)
  check_job(4, 20, false);
  const pid_t child = fork();
  if (child == 0) {
    const size_t before = g_mismatches;
    for (int i = 0; i < 100; ++i) check_job(4, 20, false);
    _exit(g_mismatches == before ? 0 : 1);
  }
  int status = 1;
  expect(child > 0 && waitpid(child, &status, 0) == child && status == 0);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  size_t cases = 2000;
  uint64_t seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--cases")) {
      cases = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (!std::strcmp(argv[i], "--seed")) {
      seed = std::strtoull(argv[i + 1], nullptr, 10);
    } else {
      std::fprintf(stderr, "usage: %s [--cases N] [--seed S]\n", argv[0]);
      return 2;
    }
  }
  Random random(seed);
  check_random(cases, random);
  check_callers(cases, random);
  check_fork();
  std::printf("{\"cases\": %zu, \"checks\": %zu, \"mismatches\": %zu}\n", cases, g_checks.load(), g_mismatches.load());
  return g_mismatches == 0 ? 0 : 1;
}
