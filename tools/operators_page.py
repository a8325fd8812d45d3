"""docs/OPERATORS.md: what a network may contain, made of the table by which networks are captured.

python tools/operators_page.py            writes it

LAYERS has a small example of each layer that the page names; `tests/capture/test_operators_page.py` runs them.
"""

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import fill

from torch import nn

from membound.capture.export import SPECIAL
from membound.capture.operators import CONVERSIONS
from membound.micro.layers import READERS
from membound.store.operators import OPERATORS

ROOT = Path(__file__).parents[1]
PAGE, COVERAGE = ROOT / "docs" / "OPERATORS.md", ROOT / "results" / "coverage.json"
OTHER, WIDTH = "Other", 118
IMAGE, VECTOR, SEQUENCE, VOLUME, LINE = (4, 8, 8), (8,), (5, 8), (2, 4, 6, 6), (4, 12)
Example = tuple[Callable[[], nn.Module], tuple[int, ...]]

# Kinds of operators as people look for them: what aten calls them, and what is to be known.
KINDS: dict[str, tuple[str, str]] = {
    "Convolutions": (
        "conv1d conv2d conv3d convolution conv_transpose1d conv_transpose2d conv_transpose3d",
        "Grouped, depthwise, dilated and strided ones; padding by zeros, reflection, replication or around the edge. "
        "Volumes are unrolled over their depth.",
    ),
    "Linear layers and products": (
        "linear matmul mm bmm addmm baddbmm",
        "Also products of two computed values.",
    ),
    "Attention": (
        "scaled_dot_product_attention",
        "Any number of heads, self and cross attention, masks that are constants or inputs.",
    ),
    "Recurrent layers": (
        "",
        "Unrolled over the steps of a sequence of fixed length: long ones make large graphs.",
    ),
    "Normalization": (
        "batch_norm _native_batch_norm_legit_no_training layer_norm native_layer_norm group_norm instance_norm "
        "rms_norm linalg_vector_norm",
        "Batch norm is folded into its neighbor, where it has one. Local response normalization is recognized as a "
        "whole.",
    ),
    "Pooling": (
        "max_pool1d max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices avg_pool1d avg_pool2d "
        "avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool3d "
        "adaptive_max_pool1d adaptive_max_pool2d",
        "Over volumes: windows that lie side by side.",
    ),
    "Resizing": (
        "upsample_nearest1d upsample_nearest2d _upsample_nearest_exact1d _upsample_nearest_exact2d upsample_linear1d "
        "upsample_bilinear2d upsample_bicubic2d pixel_shuffle pixel_unshuffle channel_shuffle "
        "native_channel_shuffle",
        "To a size or by a factor, with or without `align_corners`.",
    ),
    "Activations": (
        "relu relu6 leaky_relu silu gelu sigmoid tanh hardswish hardsigmoid elu selu celu prelu clamp clamp_min "
        "clamp_max hardtanh mish softplus log_sigmoid softsign glu",
        "Joined to the layer before them, where they follow one.",
    ),
    "Arithmetic": (
        "add sub rsub mul div true_divide maximum minimum sqrt rsqrt exp abs addcmul addcdiv lerp neg square pow "
        "reciprocal",
        "Between values, with numbers and with constant tensors. Exponents are 0.5, 1, 2, 3, 4, or these negated.",
    ),
    "Comparison and choice": (
        "eq ne gt ge lt le logical_not bitwise_not logical_and bitwise_and logical_or bitwise_or where masked_fill",
        "",
    ),
    "Reductions": (
        "mean sum var var_mean std std_mean amax amin max min softmax _softmax log_softmax _log_softmax cumsum",
        "Along axes that you name, never along the batch.",
    ),
    "Embeddings": ("embedding", "Indices are integer inputs."),
    "Moving values": (
        "cat stack pad constant_pad_nd permute roll flip repeat tril triu index_select index transpose t slice narrow "
        "select unbind split split_with_sizes chunk unsafe_split unsafe_split_with_sizes unsafe_chunk select_scatter "
        "slice_scatter copy view reshape _unsafe_view flatten unflatten unsqueeze squeeze expand expand_as",
        "Reshapes cost nothing, indices are constants, and values may be written into parts of others: `y[:, 0] = x`.",
    ),
    "Nothing to do": (
        "clone contiguous detach alias to _to_copy type_as dropout feature_dropout alpha_dropout zeros_like ones_like "
        "full_like fill zero zeros ones full new_zeros new_ones new_full",
        "Left out of the file, or constants.",
    ),
}

LAYERS: dict[str, dict[str, Example]] = {
    "Convolutions": {
        "Conv1d": (lambda: nn.Conv1d(4, 6, 3), LINE),
        "Conv2d": (lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2), IMAGE),
        "Conv3d": (lambda: nn.Conv3d(2, 3, 2), VOLUME),
        "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 3, 2, stride=2), LINE),
        "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 3, 2, stride=2), IMAGE),
        "ConvTranspose3d": (lambda: nn.ConvTranspose3d(2, 3, 2), VOLUME),
    },
    "Linear layers and products": {"Linear": (lambda: nn.Linear(8, 3), VECTOR)},
    "Attention": {
        "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), SEQUENCE),
    },
    "Recurrent layers": {
        "LSTM": (lambda: _First(nn.LSTM(8, 6, batch_first=True)), SEQUENCE),
        "GRU": (lambda: _First(nn.GRU(8, 6, batch_first=True)), SEQUENCE),
    },
    "Normalization": {
        "BatchNorm1d": (lambda: nn.BatchNorm1d(8), VECTOR),
        "BatchNorm2d": (lambda: nn.BatchNorm2d(4), IMAGE),
        "LayerNorm": (lambda: nn.LayerNorm(8), SEQUENCE),
        "RMSNorm": (lambda: nn.RMSNorm(8), SEQUENCE),
        "GroupNorm": (lambda: nn.GroupNorm(2, 4), IMAGE),
        "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4), IMAGE),
        "LocalResponseNorm": (lambda: nn.LocalResponseNorm(3), IMAGE),
    },
    "Pooling": {
        "MaxPool1d": (lambda: nn.MaxPool1d(2), LINE),
        "MaxPool2d": (lambda: nn.MaxPool2d(3, 2, 1), IMAGE),
        "MaxPool3d": (lambda: nn.MaxPool3d(2), VOLUME),
        "AvgPool1d": (lambda: nn.AvgPool1d(2), LINE),
        "AvgPool2d": (lambda: nn.AvgPool2d(3, 2), IMAGE),
        "AvgPool3d": (lambda: nn.AvgPool3d(2), VOLUME),
        "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(3), IMAGE),
        "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(2), IMAGE),
    },
    "Resizing": {
        "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
        "PixelShuffle": (lambda: nn.PixelShuffle(2), IMAGE),
        "PixelUnshuffle": (lambda: nn.PixelUnshuffle(2), IMAGE),
        "ChannelShuffle": (lambda: nn.ChannelShuffle(2), IMAGE),
    },
    "Activations": {
        name: (getattr(nn, name), VECTOR)
        for name in (
            "ReLU", "ReLU6", "LeakyReLU", "SiLU", "GELU", "Sigmoid", "Tanh", "Hardswish", "Hardsigmoid", "ELU", "SELU",
            "CELU", "PReLU", "Hardtanh", "Mish", "LogSigmoid", "Softsign", "GLU",
        )
    } | {"Softplus": (nn.Softplus, VECTOR)},
    "Reductions": {
        "Softmax": (lambda: nn.Softmax(1), VECTOR),
        "LogSoftmax": (lambda: nn.LogSoftmax(1), VECTOR),
    },
    "Moving values": {
        "Flatten": (nn.Flatten, IMAGE),
        "Unflatten": (lambda: nn.Unflatten(1, (2, 4)), VECTOR),
        "ZeroPad2d": (lambda: nn.ZeroPad2d(1), IMAGE),
        "ReflectionPad2d": (lambda: nn.ReflectionPad2d(1), IMAGE),
        "ReplicationPad2d": (lambda: nn.ReplicationPad2d(1), IMAGE),
    },
    "Nothing to do": {
        name: (lambda make=make: nn.Sequential(make(), nn.ReLU()), VECTOR)  # alone they would leave nothing to run
        for name, make in (("Dropout", nn.Dropout), ("Identity", nn.Identity))
    },
}  # fmt: skip


class _First(nn.Module):
    """The first of a layer's results."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.layer(x)[0]


TEXT = """# Supported operators

`torch.export` captures a network, so only what it computes counts, not how its classes are written. Your own modules,
residual connections, functions of `torch.nn.functional` and Python control flow that does not depend on values all
work. The layers in the second column are examples that the tests run against torch. Every other layer works if it uses
only operators of the third column. An unsupported operator is refused by its name, with the module and the line that
call it.

{table}

For all of them: values are float32 (inputs and the indices of embeddings may be integers), all shapes but the batch are
fixed, no shape and no branch depends on values, and nothing mixes the images of a batch.

{coverage}

To try a network without training it, call `mb.save(model, "net.safetensors", example_input)`: it writes the file, or
says in one line what is not supported. Write the refused part with other operators, or compute it before or after the
network.

## What a file, ONNX and a microcontroller take

All of the above become a few operators in the file ([FORMAT.md](FORMAT.md) has their attributes):
{stored}. All of them run on every instruction set, and `membound export --onnx` writes all of them. There,
upsampling becomes `Resize` (nearest by whole factors, and linear, with `align_corners` or without); nearest by other
factors becomes `Gather`, and cubic two matrix products.

A microcontroller ([what runs](MICRO_REFERENCE.md#what-runs)) runs {micro} (of these, `mul` and `div` by one
number, and `pad` by zeros before a convolution), and leaves a softmax at the very end to the caller. A network
with any other is refused by `export --c`, `export --web` and `fit --target micro`, by the operator's name.

<!-- This page is made by tools/operators_page.py from the table of conversions. -->"""


def rows() -> dict[str, list[str]]:
    """The operators of each kind that the table of conversions has; a new one that nobody has sorted is another."""
    known = {*CONVERSIONS, *SPECIAL} - {"sym_size"}  # a number of the batch is no value
    found = {kind: [name for name in names.split() if name in known] for kind, (names, _) in KINDS.items()}
    sorted_in = {name for names in found.values() for name in names}
    return found | {OTHER: sorted(known - sorted_in)}


def coverage() -> str:
    """How many public architectures run with torch's answer, and which do not."""
    networks = json.loads(COVERAGE.read_text())["networks"]
    right = sum(each["result"] == "right" for each in networks)
    sparse = sum(each["sparse"] == "True" for each in networks)
    text = (
        f"Of {len(networks)} public architectures (timm, torchvision, transformers, pytorchcv, "
        f"segmentation-models-pytorch, MONAI and small ones of our own), {sparse} of them 90 % sparse, {right} run "
        "within 1e-4 of torch in float64 ([each of them](../results/coverage.json))."
    )
    for each in networks:
        if each["result"] == "unstable":
            text += (
                f" `{each['name']}` is {each['off']} off, and torch in float32 is {each['torch_off']} off."
            )
        elif each["result"] != "right":
            text += f" `{each['name']}` is {each['result']}."
    return text + f" {on_arm()}"


def on_arm() -> str:
    """The same list on another instruction set."""
    networks = json.loads(COVERAGE.with_name("coverage-arm.json").read_text())["networks"]
    right = sum(each["result"] == "right" for each in networks)
    others = " and ".join(
        f"`{each['name']}` {each['off']} off (torch in float32 {each['torch_off']})"
        for each in networks
        if each["result"] != "right"
    )
    return f"On aarch64 {right} do, with {others} ([each](../results/coverage-arm.json))."


def make_page() -> str:
    lines = ["| kind | layers of `torch.nn` | operators of torch (aten) | note |", "|---|---|---|---|"]
    for kind, names in rows().items():
        if not names and kind not in LAYERS:
            continue
        layers = ", ".join(f"`{layer}`" for layer in LAYERS.get(kind, ()))
        shown = ", ".join(f"`{name}`" for name in names if not name.startswith("_"))
        lines.append(f"| {kind} | {layers} | {shown} | {KINDS[kind][1] if kind in KINDS else ''} |")
    text = TEXT.format(
        table="\n".join(lines),
        coverage=coverage(),
        stored=", ".join(f"`{name}`" for name in OPERATORS),
        micro=", ".join(f"`{name}`" for name in READERS),
    )
    return (
        "\n\n".join(part if part.startswith("|") else fill(part, WIDTH) for part in text.split("\n\n")) + "\n"
    )


if __name__ == "__main__":
    PAGE.write_text(make_page())
