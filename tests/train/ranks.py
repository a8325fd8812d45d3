"""Processes that train together, forked from one that has loaded torch: loading it takes longer than what they do."""

import multiprocessing
from functools import partial

import torch.multiprocessing

multiprocessing.set_forkserver_preload(
    [
        "pytest",
        "torch.distributed.fsdp",
        "torch.distributed.optim",
        "torch.distributed.tensor",
        "torch.nn.parallel",
        "membound.train.loop",
    ]
)
start = partial(torch.multiprocessing.start_processes, start_method="forkserver")
