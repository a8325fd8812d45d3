"""When a device has done what it was told."""

import torch


def wait(device: torch.device | str) -> None:
    """Until the GPU has finished, where there is one: it works on while Python goes on."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
