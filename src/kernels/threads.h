// A small thread pool: started at first use, safe across fork, shared by everything in the core.
#pragma once

#include <cstddef>
#include <functional>

namespace membound {

constexpr int kMostThreads = 256;  // that one call may use

// How often this process is a fork of another: whoever keeps something that threads share makes it anew after a fork.
unsigned fork_count();

// Threads to use when the caller asks for `requested`: 0 means every CPU that this process may run on.
int thread_count(int requested);

// Call body(task, worker) once for each task in [0, tasks), on up to `threads` threads, the caller among
// them. `worker` is below `threads`, and no two calls share one at the same time. `body` must not throw.
// If the pool is busy with another caller, everything runs on the calling thread.
void parallel_for(int threads, size_t tasks, const std::function<void(size_t task, int worker)>& body);

}  // namespace membound
