// Tests of the projection without Python, for sanitizers and emulators.
//
//   test_project                              every kind of tensor, instruction set and thread count
//   test_project --cases 1000000 [--seed 1]   random tensors as well; ends with one line of JSON
//   test_project --share 29                   one of so many of the fixed cases
//   test_project --only concurrent            several callers at once, and nothing else
//
// The reference is a stable sort by key.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "dispatch.h"
#include "project.h"

namespace {

using membound::kFirstNonFinite;
using membound::kKeyMask;
using membound::Kernels;
using Bits = std::vector<uint32_t>;
using Random = std::mt19937_64;

struct Projected {
  Bits bits;
  int64_t kept;
};

Projected reference(const Bits& input, int64_t t) {
  for (uint32_t b : input) {
    if ((b & kKeyMask) >= kFirstNonFinite) return {input, -1};
  }
  std::vector<uint32_t> order(input.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return (input[a] & kKeyMask) > (input[b] & kKeyMask); });
  Projected result{Bits(input.size(), 0), 0};
  for (size_t i = 0; i < order.size() && static_cast<int64_t>(i) < t; ++i) {
    if ((input[order[i]] & kKeyMask) == 0) break;
    result.bits[order[i]] = input[order[i]];
    ++result.kept;
  }
  return result;
}

size_t g_checks = 0, g_mismatches = 0;
size_t g_share = 1, g_asked = 0;  // one of so many checks is made

void check_one(const char* what, const Bits& input, int64_t t, const Kernels& kernels, int threads,
               const Projected& expected) {
  static Bits buffer;  // one value before and behind, to catch stray writes; also misaligns the vectors
  const uint32_t guard = 0xdeadbeef;
  buffer.assign(input.size() + 2, guard);
  std::copy(input.begin(), input.end(), buffer.begin() + 1);
  const int64_t kept = membound::project(buffer.data() + 1, input.size(), t, kernels, threads);
  ++g_checks;
  const bool same = std::equal(expected.bits.begin(), expected.bits.end(), buffer.begin() + 1);
  if (same && kept == expected.kept && buffer.front() == guard && buffer.back() == guard) return;
  ++g_mismatches;
  std::fprintf(stderr, "MISMATCH %s: n=%zu t=%lld isa=%s threads=%d kept=%lld expected=%lld\n", what,
               input.size(), static_cast<long long>(t), kernels.name, threads, static_cast<long long>(kept),
               static_cast<long long>(expected.kept));
}

void check(const char* what, const Bits& input, int64_t t, int max_threads = 3) {
  if (g_asked++ % g_share != 0) return;
  const Projected expected = reference(input, t);
  for (const Kernels& kernels : membound::available_kernels()) {
    for (int threads = 1; threads <= max_threads; ++threads)
      check_one(what, input, t, kernels, threads, expected);
  }
}

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

enum Kind {
  kNormal, kAnyFinite, kDenormal, kFewValues, kSparse, kAllEqual, kSignedZeros, kScaledRows, kNonFinite,
  kKinds
};
const char* const kKindNames[] = {"normal",    "any finite",   "denormal",    "few values", "sparse",
                                  "all equal", "signed zeros", "scaled rows", "non-finite"};

// A cheap bell shape: enough to spread exponents as weights do, and much faster than a real normal.
uint32_t bell(Random& random) {
  const uint64_t r = random();
  const float sum = float(r & 0xffff) + float(r >> 16 & 0xffff) + float(r >> 32 & 0xffff) + float(r >> 48);
  return bits_of((sum - 131070.0f) * 1e-6f);
}

Bits make(Kind kind, size_t n, Random& random) {
  Bits bits(n);
  const uint32_t sign = kKeyMask + 1;
  const uint32_t constant = bell(random);
  const size_t row = 1 + random() % 300;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t r = random();
    const uint32_t low = static_cast<uint32_t>(r), high = static_cast<uint32_t>(r >> 32);
    switch (kind) {
      case kNormal: case kNonFinite: bits[i] = bell(random); break;
      case kAnyFinite: bits[i] = (low & kKeyMask) % kFirstNonFinite | (high & sign); break;
      case kDenormal: bits[i] = (low & 0x7fffff) >> (high & 15) | (high & sign); break;
      case kFewValues: bits[i] = bits_of(float(low % 7) * 0.25f) | (high & sign); break;
      case kSparse: bits[i] = high % 100 < 92 ? 0 : bell(random); break;
      case kAllEqual: bits[i] = constant ^ (high & sign); break;
      case kSignedZeros: bits[i] = high % 3 == 0 ? bell(random) : (high & sign); break;
      case kScaledRows: bits[i] = bits_of(float(1 + i / row) * float(int32_t(low)) * 1e-9f); break;
      case kKinds: break;
    }
  }
  if (kind == kNonFinite && n > 0) {
    const uint32_t bad[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0xffffffff};
    bits[random() % n] = bad[random() % 6];
  }
  return bits;
}

void check_counts(Kind kind, const Bits& input, Random& random, int max_threads = 3) {
  const int64_t n = static_cast<int64_t>(input.size());
  int64_t nonzeros = 0;
  for (uint32_t b : input) nonzeros += (b & kKeyMask) != 0;
  for (int64_t t : {int64_t{-1}, int64_t{0}, int64_t{1}, n / 12, n / 2, nonzeros - 1, nonzeros, nonzeros + 1,
                    n - 1, n, n + 1, int64_t{1} << 62, static_cast<int64_t>(random() % uint64_t(n + 1))})
    check(kKindNames[kind], input, t, max_threads);
}

// Tensors around every size where the code changes path: vectors, sampling, chunks, threads.
void check_sizes(Random& random) {
  for (int kind = 0; kind < kKinds; ++kind) {
    for (size_t n = 0; n <= 70; ++n) check_counts(Kind(kind), make(Kind(kind), n, random), random, 1);
    for (size_t n : {500, 1023, 1024, 1025, 4097, 25600, 65535, 65536, 65537, 131071, 131072, 131073, 300001})
      check_counts(Kind(kind), make(Kind(kind), n, random), random);
  }
}

// Orders and distributions that a sample could misjudge.
void check_adversaries(Random& random) {
  const size_t n = 400000;
  Bits sorted = make(kNormal, n, random);
  std::sort(sorted.begin(), sorted.end(),
            [](uint32_t a, uint32_t b) { return (a & kKeyMask) < (b & kKeyMask); });
  Bits reversed(sorted.rbegin(), sorted.rend());
  Bits needle(n, bits_of(1.0f));  // one value hides among equal ones
  needle[n / 3] = bits_of(2.0f);
  Bits blocks(n);                 // large values in one place only: candidates overflow there
  for (size_t i = 0; i < n; ++i) blocks[i] = (i < n / 10 ? 0x3f800000u : 0u) + uint32_t(random() % 4096);
  Bits steps(n);                  // just below and just above a threshold, in runs
  for (size_t i = 0; i < n; ++i) steps[i] = 0x3f000000u + uint32_t(i / 1000 % 3);
  for (int64_t t : {1, 2, 39999, 40000, 40001, 100000, 133333, 266666, 399999}) {
    check("sorted", sorted, t);
    check("reversed", reversed, t);
    check("needle", needle, t);
    check("blocks", blocks, t);
    check("steps", steps, t);
  }
}

void check_huge(Random& random) {
  for (Kind kind : {kNormal, kSparse, kFewValues}) {
    const Bits input = make(kind, 5000011, random);
    for (int64_t t : {400000, 3000000}) check("huge", input, t);
  }
}

// Several callers at once: one gets the pool, the others run alone, and all are right.
void check_concurrent_callers(Random& random) {
  const Bits input = make(kNormal, 300000, random);
  const Projected expected = reference(input, 30000);
  std::vector<std::thread> callers;
  std::vector<int> wrong(4, 0);
  for (int& mine : wrong) {
    callers.emplace_back([&input, &expected, &mine] {
      for (int i = 0; i < 25; ++i) {
        Bits bits = input;
        const int64_t kept =
            membound::project(bits.data(), bits.size(), 30000, membound::chosen_kernels(), 3);
        mine += kept != expected.kept || bits != expected.bits;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (int count : wrong) g_mismatches += size_t(count);
  g_checks += 100;
}

// Random tensors: mostly small (where the paths meet), some medium, a few that use threads.
void check_random(size_t cases, Random& random) {
  for (size_t i = 0; i < cases; ++i) {
    const Kind kind = Kind(random() % kKinds);
    const uint64_t dice = random() % 10000;
    const size_t limit = dice < 9000 ? 100 : dice < 9950 ? 2000 : dice < 9998 ? 20000 : 200000;
    const size_t n = random() % limit;
    const Bits input = make(kind, n, random);
    const int64_t t = static_cast<int64_t>(random() % (n + 2));
    const Projected expected = reference(input, t);
    for (const Kernels& kernels : membound::available_kernels())
      check_one(kKindNames[kind], input, t, kernels, 1 + int(random() % 3), expected);
  }
}

}  // namespace

int main(int argc, char** argv) {
  size_t cases = 0;
  uint64_t seed = 1;
  bool only_concurrent = false;
  for (int i = 1; i < argc; i += 2) {
    const bool has_value = i + 1 < argc;
    if (has_value && std::strcmp(argv[i], "--cases") == 0) cases = std::strtoull(argv[i + 1], nullptr, 10);
    else if (has_value && std::strcmp(argv[i], "--seed") == 0) seed = std::strtoull(argv[i + 1], nullptr, 10);
    else if (has_value && std::strcmp(argv[i], "--share") == 0)
      g_share = std::max<size_t>(1, std::strtoull(argv[i + 1], nullptr, 10));
    else if (has_value && !std::strcmp(argv[i], "--only") && !std::strcmp(argv[i + 1], "concurrent"))
      only_concurrent = true;
    else {
      std::fprintf(stderr, "usage: %s [--cases N] [--seed S] [--share N] [--only concurrent]\n", argv[0]);
      return 2;
    }
  }
  Random random(seed);
  const auto start = std::chrono::steady_clock::now();
  check_concurrent_callers(random);
  if (!only_concurrent) {
    check_sizes(random);
    check_adversaries(random);
    check_huge(random);
    check_random(cases, random);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  std::string isas;
  for (const Kernels& kernels : membound::available_kernels())
    isas += (isas.empty() ? "\"" : ", \"") + std::string(kernels.name) + "\"";
  std::printf("{\"cases\": %zu, \"checks\": %zu, \"mismatches\": %zu, \"isas\": [%s], \"seed\": %llu, "
              "\"seconds\": %.1f}\n",
              cases, g_checks, g_mismatches, isas.c_str(), static_cast<unsigned long long>(seed),
              seconds.count());
  return g_mismatches == 0 ? 0 : 1;
}
