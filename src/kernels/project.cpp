// The projection reads the data twice and writes it once:
//
//   1. A small sample brackets the threshold between two keys, low and high.
//   2. One pass counts the keys above the bracket and collects those inside it (the candidates, 1% or 2%).
//   3. The exact threshold is selected among the candidates, by histograms of ever narrower bins.
//   4. One pass drops what is below the threshold.
//
// Where a shortcut fails (the sample misled, or too many candidates) the selection reads the data instead
// of the candidates: slower, same result. Every loop is bounded by the sizes, not by what was counted: if
// another thread changes the data meanwhile, the result is garbage but memory is safe.
#include "project.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "threads.h"

namespace membound {
namespace {

constexpr size_t kChunk = 1 << 16;          // values a task handles: 256 KiB, fits the second-level cache
constexpr size_t kCandidatesPart = 8;       // a chunk has room for 1/8 of its values as candidates;
constexpr size_t kCandidatesPartAlone = 2;  // the brackets of small tensors are wider
constexpr size_t kParallelFrom = 1 << 17;   // below, starting threads costs more than it gains
constexpr size_t kSampleFrom = 1024;        // below, selecting directly is as fast as sampling
constexpr size_t kSamplePart = 16;          // sample 1/16 of a small tensor,
constexpr size_t kSampleBase = 8192;        // and of a large one this many
constexpr size_t kSampleGrowth = 2048;      // and one more for each so many values
constexpr double kMargin = 4.0;             // half width of the bracket, in standard deviations of its rank
constexpr size_t kFewItems = 8192;          // below, clearing and reading 2048 bins costs more than a pass
constexpr size_t kGather = 256;             // so few keys are gathered and sorted out directly

struct Range {
  uint32_t low, high;
};

// No bracket: everything nonzero counts as above it.
constexpr Range kNoBracket{1, 0};

struct Span {
  const uint32_t* bits;
  size_t n;
};

struct Selection {
  uint32_t key;
  size_t rank;   // 1-based, among the values with this key
  size_t ties;   // how many values have this key
  size_t total;  // how many values lie in the range
};

// Finish a selection that has narrowed the range until it holds at most kGather keys: sort them out directly.
Selection select_among_few(const Kernels& kernels, const std::vector<Span>& spans, Range range,
                           Selection found) {
  uint32_t few[kGather + kCandidateSlack] = {};
  size_t filled = 0;
  for (const Span& span : spans) {
    ScanResult scan;
    kernels.scan(span.bits, span.n, range.low, range.high, few + filled, found.ties - filled, &scan);
    filled = std::min(filled + scan.inside, found.ties);
  }
  uint32_t* const end = few + found.ties;
  std::nth_element(few, few + found.rank - 1, end, std::greater<uint32_t>());
  found.key = few[found.rank - 1];
  found.rank -= static_cast<size_t>(std::count_if(few, end, [&](uint32_t key) { return key > found.key; }));
  found.ties = static_cast<size_t>(std::count(few, end, found.key));
  return found;
}

// The key of the given rank (1-based, largest first) among the keys in the range.
// If the range holds fewer than `rank` keys, the result has ties = 0.
Selection select(const Kernels& kernels, const std::vector<Span>& spans, Range range, size_t rank,
                 int threads) {
  size_t items = 0;
  for (const Span& span : spans) items += span.n;
  if (items < kParallelFrom) threads = 1;
  const unsigned digit = items < kFewItems ? 8 : 11;  // log2 of the number of bins
  const size_t bin_count = size_t{1} << digit;
  std::vector<size_t> bins(bin_count * static_cast<size_t>(threads));
  Selection found{0, rank, 0, 0};

  for (bool first = true;; first = false) {
    unsigned shift = 0;
    while ((range.high - range.low) >> shift >= bin_count) ++shift;
    std::fill(bins.begin(), bins.end(), 0);
    parallel_for(threads, threads == 1 ? 1 : spans.size(), [&](size_t task, int worker) {
      size_t* mine = bins.data() + bin_count * static_cast<size_t>(worker);
      const size_t end = threads == 1 ? spans.size() : task + 1;
      for (size_t i = task; i < end; ++i)
        kernels.histogram(spans[i].bits, spans[i].n, range.low, range.high, shift, mine);
    });
    const auto in_bin = [&](size_t bin) {
      size_t count = 0;
      for (int worker = 0; worker < threads; ++worker) count += bins[bin_count * size_t(worker) + bin];
      return count;
    };
    if (first) {
      for (size_t bin = 0; bin < bin_count; ++bin) found.total += in_bin(bin);
      if (found.total < rank) return found;
    }
    size_t bin = (range.high - range.low) >> shift;
    for (; (found.ties = in_bin(bin)) < found.rank && bin > 0; --bin) found.rank -= found.ties;
    found.rank = std::min(found.rank, std::max<size_t>(found.ties, 1));  // changes nothing, but see the top
    range.low += static_cast<uint32_t>(bin) << shift;
    if (shift == 0) break;
    range.high = std::min(range.high, range.low + (1u << shift) - 1);
    if (found.ties <= kGather) return select_among_few(kernels, spans, range, found);
  }
  found.key = range.low;
  return found;
}

// Two keys that very likely enclose the key of rank t.
Range bracket_by_sample(const Kernels& kernels, const uint32_t* bits, size_t n, size_t t) {
  const size_t size = std::min(n / kSamplePart, kSampleBase + n / kSampleGrowth);
  const size_t stride = n / size;
  std::vector<uint32_t> sample(size);
  uint32_t random = 0x9e3779b9u;
  for (size_t i = 0; i < size; ++i) {
    // One pseudo-random place in every stride: a fixed stride would resonate with rows of equal length.
    random = random * 1664525u + 1013904223u;
    const size_t offset = static_cast<size_t>((static_cast<uint64_t>(random) * stride) >> 32);
    sample[i] = bits[i * stride + offset];
  }
  const double part = static_cast<double>(t) / static_cast<double>(n);
  const double rank = part * static_cast<double>(size);
  const double margin = kMargin * std::sqrt(rank * (1.0 - part)) + kMargin;
  const double upper = std::floor(rank - margin), lower = std::ceil(rank + margin);
  const auto sample_key = [&](double r) {
    return select(kernels, {{sample.data(), size}}, {0, kKeyMask}, static_cast<size_t>(r), 1).key;
  };
  Range range{1, kLastFinite};
  if (upper >= 1) range.high = sample_key(upper);
  if (lower <= static_cast<double>(size)) range.low = std::max(sample_key(lower), 1u);
  return range;  // high may be 0 where nearly everything is zero: then nothing is inside, as it should be
}

class Projection {
 public:
  Projection(uint32_t* bits, size_t n, const Kernels& kernels, int threads)
      : bits_(bits), n_(n), kernels_(kernels), threads_(n < kParallelFrom ? 1 : thread_count(threads)),
        chunks_((n + kChunk - 1) / kChunk), scans_(chunks_) {}

  int64_t run(int64_t t) {
    const bool choose = t > 0 && static_cast<uint64_t>(t) < n_;
    if (choose && n_ >= kSampleFrom) bracket_ = bracket_by_sample(kernels_, bits_, n_, size_t(t));
    scan();
    if (max_key_ >= kFirstNonFinite) return -1;
    if (t <= 0) {
      for_chunks([&](size_t begin, size_t end) { std::memset(bits_ + begin, 0, (end - begin) * 4); });
      return 0;
    }
    return keep(static_cast<size_t>(t));
  }

 private:
  template <typename Body>  // body(begin, end) for every chunk, in parallel
  void for_chunks(const Body& body) {
    parallel_for(threads_, chunks_, [&](size_t task, int) {
      // Backwards: what the scan read last is still in the cache.
      const size_t begin = (chunks_ - 1 - task) * kChunk;
      body(begin, std::min(begin + kChunk, n_));
    });
  }

  Span data_of(size_t chunk) const { return {bits_ + chunk * kChunk, std::min(kChunk, n_ - chunk * kChunk)}; }

  void scan() {
    if (bracket_.low <= bracket_.high)
      capacity_ = chunks_ == 1 ? n_ / kCandidatesPartAlone : kChunk / kCandidatesPart;
    candidates_.reset(new uint32_t[chunks_ * (capacity_ + kCandidateSlack)]);
    parallel_for(threads_, chunks_, [&](size_t chunk, int) {
      const Span data = data_of(chunk);
      kernels_.scan(data.bits, data.n, bracket_.low, bracket_.high, candidates(chunk), capacity_,
                    &scans_[chunk]);
    });
    for (const ScanResult& scan : scans_) {
      above_ += scan.above;
      inside_ += scan.inside;
      max_key_ = std::max(max_key_, scan.max_key);
      negative_zero_ |= scan.negative_zero;
    }
  }

  uint32_t* candidates(size_t chunk) { return candidates_.get() + chunk * (capacity_ + kCandidateSlack); }

  // What holds all keys of the chunk that lie in the bracket.
  Span inside_of(size_t chunk) {
    const size_t inside = scans_[chunk].inside;
    if (inside <= capacity_) return {candidates(chunk), inside};
    return data_of(chunk);
  }

  int64_t keep(size_t t) {
    if (bracket_.low == 1 && t >= above_ + inside_) return keep_nonzeros(above_ + inside_);
    if (t > above_ && t <= above_ + inside_) {
      if (bracket_.low == bracket_.high)  // all inside are ties, and the scan has counted them
        return write({bracket_.low, t - above_, inside_, inside_}, t);
      for (size_t chunk = 0; chunk < chunks_; ++chunk) spans_.push_back(inside_of(chunk));
      return write(select(kernels_, spans_, bracket_, t - above_, threads_), t);
    }
    // The bracket misses the threshold (or there is none): select from the data itself.
    for (size_t chunk = 0; chunk < chunks_; ++chunk) spans_.push_back(data_of(chunk));
    if (t <= above_) return write(select(kernels_, spans_, {bracket_.high + 1, kLastFinite}, t, threads_), t);
    const Selection found =
        select(kernels_, spans_, {1, bracket_.low - 1}, t - above_ - inside_, threads_);
    if (found.ties == 0) return keep_nonzeros(above_ + inside_ + found.total);
    return write(found, t);
  }

  int64_t keep_nonzeros(size_t nonzeros) {
    if (negative_zero_) drop_below(1, n_);
    return static_cast<int64_t>(nonzeros);
  }

  int64_t write(const Selection& threshold, size_t t) {
    const size_t tie_end = threshold.rank == threshold.ties ? n_ : end_of_kept_ties(threshold);
    drop_below(threshold.key, tie_end);
    return static_cast<int64_t>(t);
  }

  // The place behind the last value at the threshold that is kept.
  size_t end_of_kept_ties(const Selection& threshold) {
    std::vector<size_t> ties(chunks_);
    parallel_for(inside_ < kParallelFrom ? 1 : threads_, chunks_, [&](size_t chunk, int) {
      ties[chunk] = spans_.empty() ? scans_[chunk].inside
                                   : kernels_.count_equal(spans_[chunk].bits, spans_[chunk].n, threshold.key);
    });
    size_t left = threshold.rank, chunk = 0;
    for (; chunk + 1 < chunks_ && ties[chunk] < left; ++chunk) left -= ties[chunk];
    for (size_t i = chunk * kChunk; i < n_; ++i) {
      if ((bits_[i] & kKeyMask) == threshold.key && --left == 0) return i + 1;
    }
    return n_;
  }

  // Up to `tie_end` the threshold itself is kept, from there on only what is above it.
  void drop_below(uint32_t threshold, size_t tie_end) {
    for_chunks([&](size_t begin, size_t end) {
      const size_t middle = std::clamp(tie_end, begin, end);
      kernels_.keep_at_least(bits_ + begin, middle - begin, threshold);
      kernels_.keep_at_least(bits_ + middle, end - middle, threshold + 1);
    });
  }

  uint32_t* const bits_;
  const size_t n_;
  const Kernels& kernels_;
  const int threads_;
  const size_t chunks_;
  Range bracket_ = kNoBracket;
  std::vector<ScanResult> scans_;  // one a chunk
  size_t capacity_ = 0;            // candidates that a chunk has room for
  std::unique_ptr<uint32_t[]> candidates_;
  size_t above_ = 0, inside_ = 0;  // sums over the chunks
  uint32_t max_key_ = 0;
  bool negative_zero_ = false;
  std::vector<Span> spans_;        // one a chunk: where the selection looked for the threshold
};

}  // namespace

int64_t project(uint32_t* bits, size_t n, int64_t t, const Kernels& kernels, int threads) {
  return Projection(bits, n, kernels, threads).run(t);
}

}  // namespace membound
