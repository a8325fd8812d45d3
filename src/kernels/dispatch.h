// Which instruction sets this machine has, and which one is used.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"
#include "net_kernels.h"

namespace membound {

// The tables that run here, best last; the first is always "scalar".
const std::vector<Kernels>& available_kernels();

// The table of that name; throws std::invalid_argument if this machine or this build does not have it.
const Kernels& kernels_named(const std::string& name);

// The table in use: the one that the environment variable MEMBOUND_ISA names, or else the best.
const Kernels& chosen_kernels();

// The kernels that run networks on the same instruction set.
const NetKernels& net_kernels(const Kernels& kernels);

}  // namespace membound
