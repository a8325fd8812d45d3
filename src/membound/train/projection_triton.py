"""The l0 projection on a GPU: a radix selection over the float's bits, three digits of 11, 10 and 10 bits.

Each digit is one histogram over the weights that share the digits chosen so far; a last pass writes. The weights
are read four times and written once: 20 bytes a weight over the memory bandwidth is the floor. Nothing waits for
the host but the check for NaN at the end.

Every program owns one contiguous chunk of the weights, so that ties can be counted in order of position.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from membound.train.projection import NonFiniteError

BINS = tl.constexpr(2048)
MAGNITUDE = tl.constexpr(0x7FFF_FFFF)
FIRST_INFINITE_BIN = tl.constexpr(0x7F80_0000 >> 20)
BLOCK = 2048
PROGRAMS = 1056  # eight for each of a large GPU's 132 multiprocessors

# The selection's state on the device, one int32 each.
PREFIX = tl.constexpr(0)  # the threshold's digits found so far, in the end the threshold itself
RANK = tl.constexpr(1)  # how many of the weights with this prefix survive
TIES = tl.constexpr(2)  # how many weights have this prefix
NONFINITE = tl.constexpr(3)


@triton.jit
def _count_digit(
    weights, state, counts, n, chunk, SHIFT: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Add the histogram of one digit, over the nonzero weights with the chosen prefix, to `counts`."""
    start = tl.program_id(0).to(tl.int64) * chunk
    prefix = tl.load(state + PREFIX)
    total = tl.zeros((BINS,), dtype=tl.int32)
    for offset in range(0, chunk, BLOCK):
        at = start + offset + tl.arange(0, BLOCK)
        key = tl.load(weights + at, mask=at < n, other=0) & MAGNITUDE
        chosen = key > 0
        if SHIFT + WIDTH < 31:
            chosen = chosen & ((key >> (SHIFT + WIDTH)) == prefix)
        digit = (key >> SHIFT) & ((1 << WIDTH) - 1)
        total += tl.histogram(digit, BINS, mask=chosen)
    bins = tl.arange(0, BINS)
    tl.atomic_add(counts + bins, total, mask=total > 0)


@triton.jit
def _choose_digit(state, counts, WIDTH: tl.constexpr):
    """Append the digit in which the wanted rank lies to the prefix; a rank beyond all nonzeros gives zero."""
    bins = tl.arange(0, BINS)
    count = tl.load(counts + bins)
    at_least = tl.cumsum(count, reverse=True)
    rank = tl.load(state + RANK)
    digit = tl.max(tl.where(at_least >= rank, bins, -1))
    if WIDTH == 11:  # the first digit sees every weight
        tl.store(state + NONFINITE, tl.sum(tl.where(bins >= FIRST_INFINITE_BIN, count, 0)))
    prefix = tl.load(state + PREFIX)
    if (digit < 0) | (rank <= 0):  # fewer nonzeros than wanted: all of them survive
        tl.store(state + PREFIX, 0)
        tl.store(state + RANK, 0)
        tl.store(state + TIES, 0)
    else:
        here = tl.sum(tl.where(bins == digit, count, 0))
        above = tl.sum(tl.where(bins > digit, count, 0))
        tl.store(state + PREFIX, (prefix << WIDTH) | digit)
        tl.store(state + RANK, rank - above)
        tl.store(state + TIES, here)


@triton.jit
def _count_ties(weights, state, chunk_ties, n, chunk, BLOCK: tl.constexpr):
    """The ties in each chunk, where only some of them survive; where all do, nobody needs to know."""
    if tl.load(state + RANK) == tl.load(state + TIES):
        return
    start = tl.program_id(0).to(tl.int64) * chunk
    threshold = tl.load(state + PREFIX)
    ties = 0
    for offset in range(0, chunk, BLOCK):
        at = start + offset + tl.arange(0, BLOCK)
        key = tl.load(weights + at, mask=at < n, other=0) & MAGNITUDE
        ties += tl.sum((key == threshold).to(tl.int32))
    tl.store(chunk_ties + tl.program_id(0), ties)


@triton.jit
def _cut(weights, state, chunk_ties, n, chunk, BLOCK: tl.constexpr):
    """Write zero over everything that does not survive."""
    if tl.load(state + NONFINITE) > 0:
        return
    start = tl.program_id(0).to(tl.int64) * chunk
    threshold = tl.load(state + PREFIX)
    rank = tl.load(state + RANK)
    if rank == tl.load(state + TIES):
        lowest = tl.maximum(threshold, 1)
        for offset in range(0, chunk, BLOCK):
            at = start + offset + tl.arange(0, BLOCK)
            bits = tl.load(weights + at, mask=at < n, other=0)
            tl.store(weights + at, tl.where((bits & MAGNITUDE) >= lowest, bits, 0), mask=at < n)
    else:
        chunks = tl.arange(0, BINS)
        earlier = tl.load(chunk_ties + chunks, mask=chunks < tl.program_id(0), other=0)
        seen = tl.sum(earlier)
        for offset in range(0, chunk, BLOCK):
            at = start + offset + tl.arange(0, BLOCK)
            bits = tl.load(weights + at, mask=at < n, other=0)
            key = bits & MAGNITUDE
            tie = (key == threshold) & (at < n)
            place = seen + tl.cumsum(tie.to(tl.int32))
            keep = (key > threshold) | (tie & (place <= rank))
            tl.store(weights + at, tl.where(keep, bits, 0), mask=at < n)
            seen += tl.sum(tie.to(tl.int32))


def project_triton_(flat: Tensor, count: int) -> None:
    """Set all but the `count` largest magnitudes of a float32 vector on a GPU to zero."""
    n = flat.numel()
    if count <= 0:
        if not bool(flat.isfinite().all()):
            raise NonFiniteError
        flat.zero_()
        return
    bits = flat.view(torch.int32)
    programs = min(triton.cdiv(n, BLOCK), PROGRAMS)
    chunk = triton.cdiv(triton.cdiv(n, programs), BLOCK) * BLOCK
    programs = triton.cdiv(n, chunk)
    # One allocation: the state, a histogram for each digit, and the ties of each chunk.
    memory = torch.zeros(4 + 3 * 2048 + PROGRAMS, dtype=torch.int32, device=flat.device)
    state, histograms, chunk_ties = memory[:4], memory[4 : 4 + 3 * 2048].view(3, 2048), memory[4 + 3 * 2048 :]
    state[1:2].fill_(min(count, n))
    with torch.cuda.device(flat.device):
        for digit, (shift, width) in enumerate(((20, 11), (10, 10), (0, 10))):
            _count_digit[(programs,)](bits, state, histograms[digit], n, chunk, shift, width, BLOCK)
            _choose_digit[(1,)](state, histograms[digit], width)
        _count_ties[(programs,)](bits, state, chunk_ties, n, chunk, BLOCK)
        _cut[(programs,)](bits, state, chunk_ties, n, chunk, BLOCK)
    if int(state[3]) > 0:
        raise NonFiniteError
