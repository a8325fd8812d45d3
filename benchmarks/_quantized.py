"""Networks whose weights are quantized in training, as Brevitas does it, and what such a network takes when stored.

Each convolution and matrix has weights of few bits, symmetric, with one scale for an output channel, which follows the
largest weight; gradients go straight through the rounding, and to the scale:

    s = max |w| / (2^(bits - 1) - 1);  q = s round(w / s)

That is Brevitas's Int8WeightPerChannelFloat with `weight_bit_width`, in a quarter of its kernels: on a GPU, small
networks wait for little else. `by_brevitas` takes the library's own layers; tests/test_quantized_peers.py holds both
together. As is usual, the first layer, the last and depthwise convolutions keep 8 bits. Activations stay in float32:
that costs the peer no byte, and can only help its accuracy. Batch norm stays as it is in training; folding it changes
scales and biases alone, so that what is counted is folded.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import linear

from membound.errors import MemboundError
from membound.zoo.efficientnet_lite0 import Same

SCALE_BYTES, BIAS_BYTES = 2, 4  # of an output channel: a half, and a float
MANY = 8  # bits of the layers that few bits would hurt most
LEAST_SCALE = 1e-10


def fake_quantized(weight: Tensor, bits: int, training: bool) -> Tensor:
    """The weight as it is stored; differentiable in training."""
    largest = weight.abs().flatten(1).max(1).values / (2 ** (bits - 1) - 1)
    scale = largest.clamp_min(LEAST_SCALE).view(-1, *[1] * (weight.dim() - 1))
    if not training:
        return (weight / scale).round() * scale
    wanted = (weight / scale).detach()
    return weight + (wanted.round() - wanted) * scale


class QuantizedConv2d(nn.Conv2d):
    """A convolution with a weight of few bits."""

    bits = MANY

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(input, fake_quantized(weight, self.bits, self.training), bias)


class QuantizedSame(Same, QuantizedConv2d):
    """One that pads as TensorFlow does: Same pads, then the next in line convolves."""


class QuantizedLinear(nn.Linear):
    """A matrix of few bits."""

    bits = MANY

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, fake_quantized(self.weight, self.bits, self.training), self.bias)


QUANTIZED = {nn.Conv2d: QuantizedConv2d, Same: QuantizedSame, nn.Linear: QuantizedLinear}


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


def quantize_(model: nn.Module, bits: int, by_brevitas: bool = False) -> nn.Module:
    """Let quantized layers take the place of torch's, with the same weights under the same names."""
    for name, width in bits_of(model, bits).items():
        layer = model.get_submodule(name)
        if by_brevitas:
            above, _, own = name.rpartition(".")
            setattr(model.get_submodule(above), own, _brevitas_layer(layer, width))
        else:
            layer.__class__ = QUANTIZED[type(layer)]
            layer.bits = width  # type: ignore[assignment]
    return model


def _brevitas_layer(plain: nn.Module, bits: int) -> nn.Module:
    try:
        from brevitas.nn import QuantConv2d, QuantLinear
        from brevitas.quant import Int8WeightPerChannelFloat
    except ImportError as error:
        raise MemboundError(f"Brevitas cannot be imported ({error}): pip install brevitas") from None
    given: dict[str, Any] = {"weight_quant": Int8WeightPerChannelFloat, "weight_bit_width": bits}
    layer: nn.Module
    if isinstance(plain, nn.Linear):
        layer = QuantLinear(plain.in_features, plain.out_features, bias=plain.bias is not None, **given)
    else:
        assert isinstance(plain, nn.Conv2d)
        kind = QuantConv2d
        if isinstance(plain, Same):
            own = {"__init__": QuantConv2d.__init__}
            kind = type("BrevitasSame", (Same, QuantConv2d), own)
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
