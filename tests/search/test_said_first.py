"""What fit says of trouble that another message would hide, and of a stop from outside."""

import os
import signal

import pytest
import torch
from small import Small, digits
from torch import nn

import membound as mb
from membound.search.place import Watch

DATA = (digits().images, digits().labels)


class Spectrum(nn.Module):
    """No weights, and an operator that no file can hold."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.rfft(x.flatten(1)).abs()[:, :10]


class Bare(nn.Module):
    """No weights, but supported."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :10]


def test_an_operator_that_is_not_supported_comes_before_weights_that_are_missing():
    with pytest.raises(mb.ModelError, match="fft"):
        mb.fit(Spectrum(), DATA, budget="1KB", steps=2)
    with pytest.raises(mb.RuleError, match="matches no layer"):
        mb.fit(Bare(), DATA, budget="1KB", steps=2)


@pytest.mark.parametrize("kept", [False, True])
def test_a_stopped_fit_says_how_to_go_on(kept, tmp_path):
    where = {"run_dir": tmp_path} if kept else {}
    watch = Watch(show=lambda job, progress: os.kill(os.getpid(), signal.SIGTERM))
    says = (
        f"call fit again with run_dir='{tmp_path}' to go on"
        if kept
        else "nothing was saved: call it again; with run_dir='runs/a', an interrupted call can be resumed"
    )
    with pytest.raises(KeyboardInterrupt, match=says):
        mb.fit(Small, DATA, budget="6 KiB", dense=False, steps=20, batch_size=20, watch=watch, **where)
