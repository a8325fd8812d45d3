"""Networks whose weights Brevitas quantizes in training, and what such a network takes when it is stored.

Each convolution and matrix has weights of few bits, symmetric, with one scale for an output channel, which follows the
largest weight; gradients go straight through the rounding. As is usual, the first layer, the last and depthwise
convolutions keep 8 bits. Activations stay in float32: that costs the peer no byte, and can only help its accuracy.
Batch norm stays as it is in training; folding it changes scales and biases alone, so that what is counted is folded.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from membound.errors import MemboundError
from membound.zoo.efficientnet_lite0 import Same

SCALE_BYTES, BIAS_BYTES = 2, 4  # of an output channel: a half, and a float
MANY = 8  # bits of the layers that few bits would hurt most

try:
    from brevitas.nn import QuantConv2d, QuantLinear
    from brevitas.quant import Int8WeightPerChannelFloat
except ImportError as error:
    raise MemboundError(
        f"quantized training is Brevitas's, which cannot be imported ({error}): pip install brevitas"
    ) from None


class QuantSame(Same, QuantConv2d):
    """A quantized convolution that pads as TensorFlow does: Same pads, then the next in line convolves."""

    def __init__(self, *given: Any, **options: Any) -> None:
        QuantConv2d.__init__(self, *given, **options)


def layers_of(model: nn.Module) -> dict[str, nn.Conv2d | nn.Linear]:
    """Convolutions and matrices by name, in order."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d | nn.Linear)}


def bits_of(model: nn.Module, bits: int) -> dict[str, int]:
    """How many bits the weights of each layer have."""
    layers = layers_of(model)
    ends = (next(iter(layers)), next(reversed(layers)))
    return {
        name: max(bits, MANY) if name in ends or _is_depthwise(layer) else bits
        for name, layer in layers.items()
    }


def _is_depthwise(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Conv2d) and 1 < layer.groups == layer.in_channels


def quantize_(model: nn.Module, bits: int) -> nn.Module:
    """Let Brevitas's layers take the place of torch's, with the same weights under the same names."""
    for name, width in bits_of(model, bits).items():
        plain = model.get_submodule(name)
        above, _, own = name.rpartition(".")
        setattr(model.get_submodule(above), own, _quantized(plain, width))
    return model


def _quantized(plain: nn.Module, bits: int) -> nn.Module:
    given: dict[str, Any] = {"weight_quant": Int8WeightPerChannelFloat, "weight_bit_width": bits}
    layer: nn.Module
    if isinstance(plain, nn.Linear):
        layer = QuantLinear(plain.in_features, plain.out_features, bias=plain.bias is not None, **given)
    else:
        assert isinstance(plain, nn.Conv2d)
        kind = QuantSame if isinstance(plain, Same) else QuantConv2d
        layer = kind(
            plain.in_channels, plain.out_channels, plain.kernel_size, plain.stride, plain.padding,
            plain.dilation, plain.groups, bias=plain.bias is not None, **given,
        )  # fmt: skip
    layer.load_state_dict(plain.state_dict())  # in place: its scales watch its own weight
    return layer.to(next(plain.parameters()).device).train(plain.training)


def stored_bytes(model: nn.Module, bits: int | None) -> int:
    """Weights packed at their bits, a scale and a bias for each output channel; no header. None is float32."""
    widths = dict.fromkeys(layers_of(model), 32) if bits is None else bits_of(model, bits)
    scale = 0 if bits is None else SCALE_BYTES
    return sum(
        -(-layer.weight.numel() * widths[name] // 8) + (scale + BIAS_BYTES) * layer.weight.shape[0]
        for name, layer in layers_of(model).items()
    )
