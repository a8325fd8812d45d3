"""AlexNet's normalisation, forward and backward, and its whole training step: torch's LocalResponseNorm against ours.

python benchmarks/normalisation.py --device cuda --out results/normalisation-cuda.json
"""

import time
from collections.abc import Callable

import torch
from _record import arguments, record
from _timing import wait
from torch import nn

import membound as mb
from membound.zoo.lrn import ChannelNorm

LAYERS = ((96, 55), (256, 27))  # channels, and pixels along a side


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--calls", type=int, default=20, help="in each of 3 rounds, of which the best counts")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    device, size = torch.device(options.device), options.batch_size
    found = {}
    for channels, side in LAYERS:
        x = torch.randn(size, channels, side, side, device=device, requires_grad=True)
        for name, module in (("torch", nn.LocalResponseNorm), ("ours", ChannelNorm)):
            layer = module(5, 1e-4, 0.75, 1.0)
            found[f"{name} {channels}x{side}"] = timed(
                lambda layer=layer, x=x: layer(x).backward(x.detach()), options.calls, device
            )
    images = torch.randn(size, 3, 227, 227, device=device)
    labels = torch.randint(0, 10, (size,), device=device)
    for name in ("torch", "ours"):
        model = mb.zoo.alexnet(10).to(device).train()
        if name == "torch":
            with_torchs_norms_(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=device.type == "cuda")

        def step(model=model, optimizer=optimizer) -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()

        found[f"{name} step"] = timed(step, options.calls, device)
    print(found)
    record(options.out, {"batch_size": size, "calls": options.calls, "ms": found})


def with_torchs_norms_(model: nn.Module) -> None:
    for name, layer in model.named_children():
        if isinstance(layer, ChannelNorm):
            setattr(model, name, nn.LocalResponseNorm(layer.size, layer.alpha, layer.beta, layer.k))
        else:
            with_torchs_norms_(layer)


def timed(work: Callable[[], None], calls: int, device: torch.device) -> float:
    """Milliseconds a call, the best of 3 rounds."""
    work()
    rounds = []
    for _ in range(3):
        wait(device)
        begun = time.perf_counter()
        for _ in range(calls):
            work()
        wait(device)
        rounds.append(1e3 * (time.perf_counter() - begun) / calls)
    return min(rounds)


if __name__ == "__main__":
    main()
