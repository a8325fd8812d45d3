// The exact projection onto at most t nonzeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace membound {

// Keep the t values of largest magnitude of n float32 values, given as bits, and set all others to +0.0.
//
// Of equal magnitudes the earlier ones are kept. Zeros are never kept (-0.0 becomes +0.0). Survivors keep
// their bits. Returns how many are kept, or -1, with nothing written, if a value is infinite or NaN.
// The result depends on neither the kernels nor the number of threads (0: all CPUs).
int64_t project(uint32_t* bits, size_t n, int64_t t, const Kernels& kernels, int threads = 0);

}  // namespace membound
