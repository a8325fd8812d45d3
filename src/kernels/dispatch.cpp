// The only file that knows CPUs.
#include "dispatch.h"

#include <cstdlib>
#include <stdexcept>

#include "bytes.h"

#if defined(MEMBOUND_X86)
#include <cpuid.h>
#elif defined(MEMBOUND_NEON) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace membound {
namespace {

#if defined(MEMBOUND_X86)
// Some compilers' __builtin_cpu_supports, such as that of Clang 14, does not know it.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

std::vector<Kernels> find_kernels() {
  std::vector<Kernels> found;
  Kernels table;
  fill_scalar(table);
  found.push_back(table);
#if defined(MEMBOUND_X86)
  // __builtin_cpu_supports also asks whether the operating system saves the wide registers.
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt") && has_f16c()) {
    fill_avx2(table);
    found.push_back(table);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      fill_avx512(table);
      found.push_back(table);
    }
  }
#elif defined(MEMBOUND_NEON)
  fill_neon(table);  // part of every aarch64
  found.push_back(table);
#endif
  return found;
}

const Kernels& choose(const char* wanted) {
  if (wanted == nullptr || *wanted == '\0') return available_kernels().back();
  try {
    return kernels_named(wanted);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("environment variable MEMBOUND_ISA: " + std::string(error.what()));
  }
}

}  // namespace

const std::vector<Kernels>& available_kernels() {
  static const std::vector<Kernels> tables = find_kernels();
  return tables;
}

const Kernels& kernels_named(const std::string& name) {
  std::string names;
  for (const Kernels& table : available_kernels()) {
    if (name == table.name) return table;
    names += names.empty() ? table.name : std::string(", ") + table.name;
  }
  throw std::invalid_argument("instruction set '" + name + "' is not available; this machine has: " + names);
}

const Kernels& chosen_kernels() {
  static const Kernels& chosen = choose(std::getenv("MEMBOUND_ISA"));
  return chosen;
}

const Traits& traits_named(const std::string& name) {
  std::string names;
  for (const Traits* traits : kEveryTraits) {
    if (name == traits->name) return *traits;
    names += names.empty() ? traits->name : std::string(", ") + traits->name;
  }
  throw std::invalid_argument("instruction set '" + name + "' is not known; there are: " + names);
}

const NetKernels& net_kernels(const Kernels& kernels) {
  const std::string name = kernels.name;
#if defined(MEMBOUND_X86)
  if (name == "avx512") return avx512_net_kernels();
  if (name == "avx2") return avx2_net_kernels();
#elif defined(MEMBOUND_NEON)
  if (name == "neon") return neon_net_kernels();
#endif
  return scalar_net_kernels();
}

namespace {

// Dot products of bytes are in no baseline.
#if defined(MEMBOUND_X86)
bool has_dot_products_of_512_bits() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512vnni");
}

// Not every compiler knows them by name.
bool has_dot_products_of_256_bits() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

const ByteKernels& avx2_byte_kernels_of_this_cpu() {
  static const ByteKernels* const dot = has_dot_products_of_256_bits() ? avx2_dot_byte_kernels() : nullptr;
  return dot ? *dot : avx2_byte_kernels();
}
#elif defined(MEMBOUND_NEON)
bool has_dot_products() {
#if defined(__linux__)
  return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#elif defined(__APPLE__)
  int found = 0;
  size_t bytes = sizeof found;
  return sysctlbyname("hw.optional.arm.FEAT_DotProd", &found, &bytes, nullptr, 0) == 0 && found;
#else
  return false;
#endif
}
#endif

}  // namespace

const ByteKernels& byte_kernels(const Traits& traits) {
  const std::string name = traits.name;
#if defined(MEMBOUND_X86)
  static const bool dot_products = has_dot_products_of_512_bits();
  if (name == "avx512" && dot_products) return avx512_dot_byte_kernels();
  if (name == "avx512" || name == "avx2") return avx2_byte_kernels_of_this_cpu();
#elif defined(MEMBOUND_NEON)
  static const bool dot_products = has_dot_products();
  if (name == "neon") return dot_products ? neon_dot_byte_kernels() : neon_byte_kernels();
#endif
  return plain_byte_kernels();
}

}  // namespace membound
