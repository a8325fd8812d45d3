"""Seeds side by side, a process each: for a GPU that one training does not fill."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

import torch

T = TypeVar("T")


def each_seed(work: Callable[[int], T], seeds: Iterable[int], processes: int) -> Iterator[T]:
    """What `work` makes of every seed, in the order in which they are done."""
    if processes == 1:
        yield from map(work, seeds)
        return
    cores = max(len(os.sched_getaffinity(0)) // processes, 1)
    context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
    with ProcessPoolExecutor(processes, context, torch.set_num_threads, (cores,)) as pool:
        for done in as_completed([pool.submit(work, seed) for seed in seeds]):
            yield done.result()
