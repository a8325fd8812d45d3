"""Layers of torch that a microcontroller does not run, by their names: what a graph has of them is only their parts."""

from torch import nn

from membound.micro.ways_out import OVER_TIME

_NORM = "take BatchNorm, which is folded into the layer before it"
_END = "end the network before it, and do on the caller's side what it does"
UNROLLED = (nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.Transformer)  # tracing them takes a minute
INSTEAD: dict[tuple[type[nn.Module], ...], str] = {
    UNROLLED: OVER_TIME,
    (
        nn.ConvTranspose1d,
        nn.ConvTranspose2d,
        nn.ConvTranspose3d,
    ): f"take a convolution with a stride of 1, or {_END}",
    (nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.LocalResponseNorm): _NORM,
    (nn.Upsample, nn.PixelShuffle, nn.PixelUnshuffle, nn.Fold, nn.Unfold): _END,
    (nn.Conv3d, nn.MaxPool3d, nn.AvgPool3d): "take Conv2d, MaxPool2d or AvgPool2d",
    (nn.Embedding, nn.EmbeddingBag): "save the network behind it, which takes numbers",
    (nn.Bilinear, nn.PReLU, nn.GLU): "take Linear, and an activation of one input, such as ReLU",
}


def find_unsupported(model: nn.Module, kinds: tuple[type[nn.Module], ...] | None = None) -> str | None:
    """What to say of the first layer of these kinds, by default of all that do not run.

    >>> print(find_unsupported(nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2))))
    layer '1' (GroupNorm) does not run on a microcontroller: take BatchNorm, which is folded into the layer before it
    >>> find_unsupported(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    """
    for name, module in model.named_modules():
        for known, instead in INSTEAD.items():
            if isinstance(module, known) and (kinds is None or isinstance(module, kinds)):
                layer = f"layer {name!r}" if name else "the network"
                return f"{layer} ({type(module).__name__}) does not run on a microcontroller: {instead}"
    return None
