"""The l0 projection on a GPU, in Triton. Which weight is the last to survive is found without sorting them:

- Up to SMALL weights, one program holds them all and finds the threshold bit by bit, in a single launch.
- Above that a sample brackets the threshold. A histogram of the few per cent of the weights within the bracket, and
  one of the bin in which the wanted rank falls, give the threshold exactly; a last pass writes. The weights are read
  three or four times (the fourth to count ties) and written once: 16 to 20 bytes a weight over the memory's bandwidth.
- Where the bracket misses, the same histograms are taken over all nonzero weights.

Magnitudes are compared as integers, the float's bits without the sign ('keys'). Every program owns one contiguous
chunk of the weights, so that ties can be counted in order of position. Nothing waits for the host but the look at the
outcome at the end.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from membound.train.magnitudes import NonFiniteError

SMALL = 1 << 16
SAMPLE = 1 << 14
DEVIATIONS = 5  # half the bracket's width, in standard deviations of a rank in the sample
PROGRAMS = 2112  # sixteen for each of a large GPU's 132 multiprocessors
BLOCK = 2048

GROUP = tl.constexpr(256)
BINS = tl.constexpr(256 * 256)  # 16 bits at a time: two histograms are enough for 31
DIGIT = tl.constexpr(16)
MAGNITUDE = tl.constexpr(0x7FFF_FFFF)
INFINITE = tl.constexpr(0x7F80_0000)

# The selection's state on the device, one int32 each.
LOW = tl.constexpr(0)  # the bracket: its ends,
HIGH = tl.constexpr(1)
BITS = tl.constexpr(2)  # and how many bits HIGH - LOW has
RANK = tl.constexpr(3)  # how many keys survive, of those in the bracket, then the bin, then at the threshold
ABOVE = tl.constexpr(4)  # how many keys are above the bracket
BIN = tl.constexpr(5)  # the bin of the first histogram in which the threshold lies
THRESHOLD = tl.constexpr(6)
TIES = tl.constexpr(7)  # how many keys are equal to it
OUTCOME = tl.constexpr(8)
STATE = 9
# The outcomes; of two the worse one stays.
GOOD, MISSED, NONFINITE = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def _small(weights, outcome, n, count, BLOCK: tl.constexpr):
    """The whole projection by one program: the largest threshold that at least `count` weights reach."""
    at = tl.arange(0, BLOCK)
    bits = tl.load(weights + at, mask=at < n, other=0)
    key = bits & MAGNITUDE
    if tl.max(key) >= INFINITE:
        tl.store(outcome, NONFINITE)
    else:
        threshold = 0
        for bit in range(30, -1, -1):
            higher = threshold | (1 << bit)
            if tl.sum((key >= higher).to(tl.int32)) >= count:
                threshold = higher
        above = tl.sum((key > threshold).to(tl.int32))
        tie = (key == threshold) & (key > 0)
        keep = (key > threshold) | (tie & (tl.cumsum(tie.to(tl.int32)) <= count - above))
        tl.store(weights + at, tl.where(keep, bits, 0), mask=at < n)


@triton.jit
def _set_bracket(state, low, high, count):
    bits = 0
    for bit in range(31):
        bits += (((high - low) >> bit) > 0).to(tl.int32)
    tl.store(state + LOW, low)
    tl.store(state + HIGH, high)
    tl.store(state + BITS, bits)
    tl.store(state + RANK, count)


@triton.jit
def _bracket_all(state, count):
    """A bracket that cannot miss: every nonzero key."""
    _set_bracket(state, 1, INFINITE - 1, count)


@triton.jit
def _bracket_sample(weights, state, stride, count, high_rank, low_rank, SAMPLE: tl.constexpr):
    """Two keys between which the threshold lies, most likely: those of two ranks in a sample, found bit by bit."""
    key = tl.load(weights + tl.arange(0, SAMPLE).to(tl.int64) * stride) & MAGNITUDE
    high = 0
    low = 0
    for bit in range(30, -1, -1):
        # Both counts in one sum: each fits in 16 bits.
        both = (key >= (high | (1 << bit))).to(tl.int32) + ((key >= (low | (1 << bit))).to(tl.int32) << 16)
        reached = tl.sum(both)
        if (reached & 0xFFFF) >= high_rank:
            high = high | (1 << bit)
        if (reached >> 16) >= low_rank:
            low = low | (1 << bit)
    high = tl.maximum(tl.minimum(high, INFINITE - 1), 1)  # zeros never survive
    low = tl.minimum(tl.maximum(low, 1), high)
    _set_bracket(state, low, high, count)


@triton.jit
def _count_bracket(weights, state, counts, n, chunk, BLOCK: tl.constexpr):
    """The histogram of the keys in the bracket, by their upper bits, and the number of keys above it."""
    start = tl.program_id(0).to(tl.int64) * chunk
    low = tl.load(state + LOW)
    high = tl.load(state + HIGH)
    bits = tl.load(state + BITS)
    shift = tl.maximum(bits - DIGIT, 0)
    above = tl.zeros((BLOCK,), dtype=tl.int32)
    equal = tl.zeros((BLOCK,), dtype=tl.int32)
    largest = tl.zeros((BLOCK,), dtype=tl.int32)
    for offset in range(0, chunk, BLOCK):
        at = start + offset + tl.arange(0, BLOCK)
        key = tl.load(weights + at, mask=at < n, other=0) & MAGNITUDE
        largest = tl.maximum(largest, key)
        above += (key > high).to(tl.int32)
        within = (key >= low) & (key <= high)
        if bits == 0:  # one key only: many adds to one address would be slow
            equal += within.to(tl.int32)
        else:
            tl.atomic_add(counts + ((key - low) >> shift), 1, mask=within, sem="relaxed")
    tl.atomic_add(state + ABOVE, tl.sum(above))
    if bits == 0:
        tl.atomic_add(counts, tl.sum(equal))
    if tl.max(largest) >= INFINITE:
        tl.atomic_max(state + OUTCOME, NONFINITE)


@triton.jit
def _count_bin(weights, state, counts, n, chunk, BLOCK: tl.constexpr):
    """The histogram of the keys in the chosen bin, by their lower bits, where it has any."""
    shift = tl.maximum(tl.load(state + BITS) - DIGIT, 0)
    if (shift == 0) | (tl.load(state + OUTCOME) != GOOD):
        return
    start = tl.program_id(0).to(tl.int64) * chunk
    low = tl.load(state + LOW)
    chosen = tl.load(state + BIN)
    for offset in range(0, chunk, BLOCK):
        at = start + offset + tl.arange(0, BLOCK)
        key = tl.load(weights + at, mask=at < n, other=0) & MAGNITUDE
        within = (key >= low) & (((key - low) >> shift) == chosen)
        tl.atomic_add(counts + ((key - low) & ((1 << shift) - 1)), 1, mask=within, sem="relaxed")


@triton.jit
def _bin_of_rank(counts, rank):
    """The bin in which a rank, counted from the highest bin, lies; the keys above that bin; the keys in it."""
    group = tl.arange(0, GROUP)
    sums = tl.sum(tl.load(counts + group[:, None] * GROUP + group[None, :]), axis=1)
    reached = tl.cumsum(sums, reverse=True)
    row = tl.max(tl.where(reached >= rank, group, -1))
    above_row = tl.sum(tl.where(group > row, sums, 0))
    count = tl.load(counts + tl.maximum(row, 0) * GROUP + group)
    reached = above_row + tl.cumsum(count, reverse=True)
    column = tl.max(tl.where(reached >= rank, group, -1))
    above = above_row + tl.sum(tl.where(group > column, count, 0))
    return row * GROUP + column, above, tl.sum(tl.where(group == column, count, 0))


@triton.jit
def _choose(state, counts, LOWER: tl.constexpr):
    """Narrow the threshold down to a bin of the bracket, then (LOWER) to a key of the bin."""
    shift = tl.maximum(tl.load(state + BITS) - DIGIT, 0)
    rank = tl.load(state + RANK)
    if LOWER:
        if (shift > 0) & (tl.load(state + TIES) > 0):
            key, above, ties = _bin_of_rank(counts, rank)
            tl.store(state + THRESHOLD, tl.load(state + LOW) + (tl.load(state + BIN) << shift) + key)
            tl.store(state + RANK, rank - above)
            tl.store(state + TIES, ties)
    else:
        rank -= tl.load(state + ABOVE)
        low = tl.load(state + LOW)
        bin, above, ties = _bin_of_rank(counts, tl.maximum(rank, 1))
        if rank <= 0:
            tl.atomic_max(state + OUTCOME, MISSED)
        elif bin < 0:  # fewer keys than wanted: all nonzeros survive, if the bracket holds all that are left
            if low > 1:
                tl.atomic_max(state + OUTCOME, MISSED)
            tl.store(state + RANK, 0)
        else:
            tl.store(state + BIN, bin)
            tl.store(state + THRESHOLD, low + (bin << shift))
            tl.store(state + RANK, rank - above)
            tl.store(state + TIES, ties)


@triton.jit
def _count_ties(weights, state, chunk_ties, n, chunk, BLOCK: tl.constexpr):
    """The ties in each chunk, where only some of them survive; where all do, nobody needs to know."""
    if (tl.load(state + RANK) == tl.load(state + TIES)) | (tl.load(state + OUTCOME) != GOOD):
        return
    start = tl.program_id(0).to(tl.int64) * chunk
    threshold = tl.load(state + THRESHOLD)
    ties = tl.zeros((BLOCK,), dtype=tl.int32)
    for offset in range(0, chunk, BLOCK):
        at = start + offset + tl.arange(0, BLOCK)
        ties += ((tl.load(weights + at, mask=at < n, other=0) & MAGNITUDE) == threshold).to(tl.int32)
    tl.store(chunk_ties + tl.program_id(0), tl.sum(ties))


@triton.jit
def _cut(weights, state, chunk_ties, n, chunk, CHUNKS: tl.constexpr, BLOCK: tl.constexpr):
    """Write zero over everything that does not survive."""
    if tl.load(state + OUTCOME) != GOOD:
        return
    start = tl.program_id(0).to(tl.int64) * chunk
    threshold = tl.load(state + THRESHOLD)
    rank = tl.load(state + RANK)
    # Of this chunk's ties survive all, none, or, in the one chunk where the rank runs out, the first few.
    allowed = 0
    ties = 0
    lowest = tl.maximum(threshold, 1)
    if rank != tl.load(state + TIES):
        others = tl.arange(0, CHUNKS)
        earlier = tl.sum(tl.load(chunk_ties + others, mask=others < tl.program_id(0), other=0))
        ties = tl.load(chunk_ties + tl.program_id(0))
        allowed = tl.minimum(tl.maximum(rank - earlier, 0), ties)
        if allowed == 0:
            lowest = threshold + 1
    if (allowed == ties) | (allowed == 0):
        for offset in range(0, chunk, BLOCK):
            at = start + offset + tl.arange(0, BLOCK)
            bits = tl.load(weights + at, mask=at < n, other=0)
            tl.store(weights + at, tl.where((bits & MAGNITUDE) >= lowest, bits, 0), mask=at < n)
    else:
        used = 0
        for offset in range(0, chunk, BLOCK):
            at = start + offset + tl.arange(0, BLOCK)
            bits = tl.load(weights + at, mask=at < n, other=0)
            key = bits & MAGNITUDE
            tie = (key == threshold) & (at < n)
            keep = (key > threshold) | (tie & (used + tl.cumsum(tie.to(tl.int32)) <= allowed))
            tl.store(weights + at, tl.where(keep, bits, 0), mask=at < n)
            used += tl.sum(tie.to(tl.int32))


def project_triton_(flat: Tensor, count: int) -> None:
    """Set all but the `count` largest magnitudes of a float32 vector on a GPU to zero."""
    n = flat.numel()
    if count <= 0:
        if not bool(flat.isfinite().all()):
            raise NonFiniteError
        flat.zero_()
        return
    bits, count = flat.view(torch.int32), min(count, n)
    with torch.cuda.device(flat.device):
        if n <= SMALL:
            outcome = torch.zeros(1, dtype=torch.int32, device=flat.device)
            block = max(triton.next_power_of_2(n), 128)
            _small[(1,)](bits, outcome, n, count, block, num_warps=min(max(block // 512, 1), 32))
            found = int(outcome)
        else:
            found = _select(bits, count, sampled=True)
            if found == MISSED.value:
                found = _select(bits, count, sampled=False)
    if found == NONFINITE.value:
        raise NonFiniteError


def _select(bits: Tensor, count: int, sampled: bool) -> int:
    """The projection of many weights; its outcome."""
    n = len(bits)
    chunk = triton.cdiv(triton.cdiv(n, PROGRAMS), BLOCK) * BLOCK
    grid = (triton.cdiv(n, chunk),)
    # One allocation: the two histograms, the ties of each chunk, and the state.
    memory = torch.zeros(2 * BINS.value + PROGRAMS + STATE, dtype=torch.int32, device=bits.device)
    upper, lower, chunk_ties, state = torch.split(memory, [BINS.value, BINS.value, PROGRAMS, STATE])
    if sampled:
        part = count / n
        margin = DEVIATIONS * (SAMPLE * part * (1 - part)) ** 0.5 + 2
        high_rank, low_rank = max(int(SAMPLE * part - margin), 0), int(SAMPLE * part + margin) + 1
        _bracket_sample[(1,)](bits, state, n // SAMPLE, count, high_rank, low_rank, SAMPLE, num_warps=32)
    else:
        _bracket_all[(1,)](state, count)
    _count_bracket[grid](bits, state, upper, n, chunk, BLOCK, num_warps=8)
    _choose[(1,)](state, upper, False, num_warps=32)
    _count_bin[grid](bits, state, lower, n, chunk, BLOCK, num_warps=8)
    _choose[(1,)](state, lower, True, num_warps=32)
    _count_ties[grid](bits, state, chunk_ties, n, chunk, BLOCK, num_warps=8)
    _cut[grid](bits, state, chunk_ties, n, chunk, triton.next_power_of_2(PROGRAMS), BLOCK, num_warps=8)
    return int(state[OUTCOME.value])
