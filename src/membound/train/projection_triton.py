"""The l0 projection on a GPU, in Triton. Which weight is the last to survive is found without sorting them all:

- Up to SMALL weights, one program holds them all and finds the threshold bit by bit, in a single launch.
- Above that a sample brackets the threshold. One pass counts the weights above the bracket and collects the few per
  cent within it, and a radix selection of 11 bits at a time finds the threshold among those. The weights are read
  twice and written once: 12 bytes a weight over the memory's bandwidth is the floor.
- Where the bracket fails (thousands of equal weights, say), the radix selection reads all the weights.

Every program owns one contiguous chunk of the weights, so that ties can be counted in order of position. Nothing
waits for the host but the look at the outcome at the end.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from membound.train.projection import NonFiniteError

SMALL = 1 << 16
SAMPLE = 1 << 14
DEVIATIONS = 5  # half the bracket's width, in standard deviations of a rank in the sample
PROGRAMS = 1056  # eight for each of a large GPU's 132 multiprocessors
BLOCK = 4096
DIGIT_BLOCK = 2048

BINS = tl.constexpr(2048)
DIGIT = tl.constexpr(11)
LEVELS = 3
MAGNITUDE = tl.constexpr(0x7FFF_FFFF)
INFINITE = tl.constexpr(0x7F80_0000)

# The selection's state on the device, one int32 each. Keys are counted from LOW, the bracket's lower end.
PREFIX = tl.constexpr(0)  # the threshold's digits found so far, in the end the threshold less LOW
RANK = tl.constexpr(1)  # how many of the keys with this prefix survive
TIES = tl.constexpr(2)  # how many keys have this prefix
CANDIDATES = tl.constexpr(3)  # how many keys the selection looks at
ABOVE = tl.constexpr(4)  # how many weights survive for sure
LOW = tl.constexpr(5)
HIGH = tl.constexpr(6)
BITS = tl.constexpr(7)  # how many bits the keys have, counted from LOW
OUTCOME = tl.constexpr(8)
STATE = 9
GOOD, NONFINITE, MISSED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # the outcomes


@triton.jit
def _small(weights, outcome, n, count, BLOCK: tl.constexpr):
    """The whole projection by one program: the largest threshold that at least `count` weights reach, bit by bit."""
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
def _bracket(weights, state, stride, count, high_rank, low_rank, SAMPLE: tl.constexpr):
    """Two keys between which the threshold lies, most likely: those of two ranks in a sample."""
    at = tl.arange(0, SAMPLE).to(tl.int64) * stride
    key = tl.load(weights + at) & MAGNITUDE
    high = 0
    low = 0
    for bit in range(30, -1, -1):
        higher = high | (1 << bit)
        if tl.sum((key >= higher).to(tl.int32)) >= high_rank:
            high = higher
        higher = low | (1 << bit)
        if tl.sum((key >= higher).to(tl.int32)) >= low_rank:
            low = higher
    high = tl.minimum(high, INFINITE - 1)
    low = tl.minimum(tl.maximum(low, 1), high)  # zeros never survive
    bits = 0
    for bit in range(31):
        bits += (((high - low) >> bit) > 0).to(tl.int32)
    tl.store(state + RANK, count)
    tl.store(state + HIGH, high)
    tl.store(state + LOW, low)
    tl.store(state + BITS, bits)


@triton.jit
def _collect(weights, keys, chunks, state, n, chunk, room, BLOCK: tl.constexpr):
    """Count the weights above the bracket; collect the keys within it, and the chunks that they come from."""
    start = tl.program_id(0).to(tl.int64) * chunk
    high = tl.load(state + HIGH)
    low = tl.load(state + LOW)
    above = tl.zeros((BLOCK,), dtype=tl.int32)
    largest = tl.zeros((BLOCK,), dtype=tl.int32)
    for offset in range(0, chunk, BLOCK):
        at = start + offset + tl.arange(0, BLOCK)
        key = tl.load(weights + at, mask=at < n, other=0) & MAGNITUDE
        largest = tl.maximum(largest, key)
        above += (key > high).to(tl.int32)
        within = (key >= low) & (key <= high)
        place = tl.cumsum(within.to(tl.int32))
        to = tl.atomic_add(state + CANDIDATES, tl.max(place)) + place - 1
        stored = within & (to < room)
        tl.store(keys + to, key - low, mask=stored)
        tl.store(chunks + to, tl.full((BLOCK,), tl.program_id(0), tl.int32), mask=stored)
    tl.atomic_add(state + ABOVE, tl.sum(above))
    if tl.max(largest) >= INFINITE:
        tl.atomic_max(state + OUTCOME, NONFINITE)


@triton.jit
def _check_bracket(state, room):
    """The rank among the candidates; the bracket has missed where the threshold lies outside it."""
    rank = tl.load(state + RANK) - tl.load(state + ABOVE)
    found = tl.load(state + CANDIDATES)
    if (rank <= 0) | (found > room) | ((rank > found) & (tl.load(state + LOW) > 1)):
        tl.atomic_max(state + OUTCOME, MISSED)
        tl.store(state + CANDIDATES, 0)
    tl.store(state + RANK, rank)


@triton.jit
def _shift(bits, LEVEL: tl.constexpr):
    """How many bits are left below the digits of `LEVEL` levels."""
    return tl.maximum(bits - DIGIT * LEVEL, 0)


@triton.jit
def _count_digit(keys, state, counts, LEVEL: tl.constexpr, RAW: tl.constexpr, BLOCK: tl.constexpr):
    """Add the histogram of one digit, over the keys with the chosen prefix, to `counts`."""
    n = tl.load(state + CANDIDATES)
    bits = tl.load(state + BITS)
    before = _shift(bits, LEVEL)
    shift = _shift(bits, LEVEL + 1)
    chunk = tl.cdiv(tl.cdiv(n, tl.num_programs(0)), BLOCK) * BLOCK
    start = tl.program_id(0).to(tl.int64) * chunk
    if (start >= n) | ((LEVEL > 0) & (before == 0)):
        return
    prefix = tl.load(state + PREFIX)
    total = tl.zeros((BINS,), dtype=tl.int32)
    for offset in range(0, chunk, BLOCK):
        at = start + offset + tl.arange(0, BLOCK)
        key = tl.load(keys + at, mask=at < n, other=0) & MAGNITUDE
        chosen = at < n
        if RAW:
            chosen = chosen & (key > 0)
        if LEVEL > 0:
            chosen = chosen & ((key >> before) == prefix)
        total += tl.histogram((key >> shift) & (BINS - 1), BINS, mask=chosen)
    bins = tl.arange(0, BINS)
    tl.atomic_add(counts + bins, total, mask=total > 0)


@triton.jit
def _choose_digit(state, counts, LEVEL: tl.constexpr):
    """Append the digit in which the wanted rank lies to the prefix; a rank beyond all keys keeps all nonzeros."""
    bits = tl.load(state + BITS)
    before = _shift(bits, LEVEL)
    shift = _shift(bits, LEVEL + 1)
    if (LEVEL > 0) & (before == 0):
        return
    bins = tl.arange(0, BINS)
    # A digit narrower than 11 bits shares its bins with bits of the prefix: only its own are counted.
    mine = bins < (1 << tl.minimum(before - shift, DIGIT))
    if LEVEL > 0:
        prefix = tl.load(state + PREFIX)
        wide = (prefix << (before - shift)) & (BINS - 1)
        count = tl.load(counts + (wide | bins), mask=mine, other=0)
    else:
        prefix = 0
        count = tl.load(counts + bins)
    at_least = tl.cumsum(count, reverse=True)
    rank = tl.load(state + RANK)
    digit = tl.max(tl.where(at_least >= rank, bins, -1))
    if (digit < 0) | (rank <= 0):
        tl.store(state + LOW, 0)
        tl.store(state + PREFIX, 0)
        tl.store(state + RANK, 0)
        tl.store(state + TIES, 0)
    else:
        above = tl.sum(tl.where(bins > digit, count, 0))
        tl.store(state + PREFIX, (prefix << (before - shift)) | digit)
        tl.store(state + RANK, rank - above)
        tl.store(state + TIES, tl.sum(tl.where(bins == digit, count, 0)))


@triton.jit
def _count_ties(keys, chunks, state, chunk_ties, chunk, RAW: tl.constexpr, BLOCK: tl.constexpr):
    """The ties in each chunk, where only some of them survive; where all do, nobody needs to know."""
    if tl.load(state + RANK) == tl.load(state + TIES):
        return
    n = tl.load(state + CANDIDATES)
    prefix = tl.load(state + PREFIX)
    start = tl.program_id(0).to(tl.int64) * BLOCK
    for offset in range(start, n, tl.num_programs(0) * BLOCK):
        at = offset + tl.arange(0, BLOCK)
        tie = ((tl.load(keys + at, mask=at < n, other=0) & MAGNITUDE) == prefix) & (at < n)
        if RAW:
            owner = (at // chunk).to(tl.int32)
        else:
            owner = tl.load(chunks + at, mask=tie, other=0)
        tl.atomic_add(chunk_ties + owner, 1, mask=tie)


@triton.jit
def _cut(weights, state, chunk_ties, n, chunk, BLOCK: tl.constexpr):
    """Write zero over everything that does not survive."""
    if tl.load(state + OUTCOME) != GOOD:
        return
    start = tl.program_id(0).to(tl.int64) * chunk
    threshold = tl.load(state + LOW) + tl.load(state + PREFIX)
    rank = tl.load(state + RANK)
    lowest = tl.maximum(threshold, 1)
    seen = 0
    allowed = 0  # of this chunk's ties: all, none, or in the one chunk where they run out, the first few
    ties_here = 0
    if rank != tl.load(state + TIES):
        all_chunks = tl.arange(0, BINS)
        seen = tl.sum(tl.load(chunk_ties + all_chunks, mask=all_chunks < tl.program_id(0), other=0))
        ties_here = tl.load(chunk_ties + tl.program_id(0))
        allowed = tl.minimum(tl.maximum(rank - seen, 0), ties_here)
        if allowed == 0:
            lowest = threshold + 1
    if (allowed == ties_here) | (allowed == 0):
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
            found = _select(bits, count, raw=False)
            if found == MISSED.value:
                found = _select(bits, count, raw=True)
    if found == NONFINITE.value:
        raise NonFiniteError


def _select(bits: Tensor, count: int, raw: bool) -> int:
    """The projection of many weights, among candidates or (raw) among all; its outcome."""
    n = len(bits)
    chunk = triton.cdiv(triton.cdiv(n, PROGRAMS), BLOCK) * BLOCK
    programs = triton.cdiv(n, chunk)
    # One allocation: the state, a histogram for each digit, and the ties of each chunk.
    memory = torch.zeros(STATE + LEVELS * BINS.value + PROGRAMS, dtype=torch.int32, device=bits.device)
    state, histograms, chunk_ties = torch.split(memory, [STATE, LEVELS * BINS.value, PROGRAMS])
    if raw:
        if not bool(bits.view(torch.float32).isfinite().all()):
            return int(NONFINITE.value)
        state[RANK.value], state[CANDIDATES.value], state[BITS.value] = count, n, 31
        keys, chunks = bits, bits
    else:
        keys, chunks = _candidates(bits, state, count, chunk)
    for level in range(LEVELS):
        counts = histograms[level * BINS.value :]
        _count_digit[(PROGRAMS,)](keys, state, counts, level, raw, DIGIT_BLOCK)
        _choose_digit[(1,)](state, counts, level)
    _count_ties[(PROGRAMS,)](keys, chunks, state, chunk_ties, chunk, raw, DIGIT_BLOCK)
    _cut[(programs,)](bits, state, chunk_ties, n, chunk, BLOCK, num_warps=8)
    return int(state[OUTCOME.value])


def _candidates(bits: Tensor, state: Tensor, count: int, chunk: int) -> tuple[Tensor, Tensor]:
    """The keys among which the threshold lies, and their chunks."""
    n = len(bits)
    sample, part = min(SAMPLE, n), count / n
    margin = DEVIATIONS * (sample * part * (1 - part)) ** 0.5 + 2
    high_rank, low_rank = max(int(sample * part - margin), 0), int(sample * part + margin) + 1
    _bracket[(1,)](bits, state, n // sample, count, high_rank, low_rank, sample, num_warps=32)
    room = n // 16
    keys, chunks = torch.empty(2, room, dtype=torch.int32, device=bits.device)
    _collect[(triton.cdiv(n, chunk),)](bits, keys, chunks, state, n, chunk, room, BLOCK, num_warps=8)
    _check_bracket[(1,)](state, room)
    return keys, chunks
