"""The networks of architectures.csv: by name from libraries, or a few lines here; one tensor in, one out."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class First(nn.Module):
    """The first tensor of what a network returns."""

    def __init__(self, net: nn.Module, call: Callable[[nn.Module, Tensor], Any] | None = None) -> None:
        super().__init__()
        self.net, self.call = net, call

    def forward(self, x: Tensor) -> Tensor:
        out = self.net(x) if self.call is None else self.call(self.net, x)
        while not isinstance(out, Tensor):
            out = next(iter(out.values())) if isinstance(out, dict) else out[0]
        return out


def build(library: str, name: str, shape: tuple[int, ...]) -> nn.Module:
    torch.manual_seed(0)
    return First(globals()[f"_{library}"](name, shape)).eval()


def _pytorchcv(name: str, shape: tuple[int, ...]) -> nn.Module:
    from pytorchcv.model_provider import get_model

    try:
        return get_model(name, pretrained=False, in_size=shape[1:])
    except (TypeError, AssertionError):  # some take no size, or only that of ImageNet
        return get_model(name, pretrained=False)


def _timm(name: str, shape: tuple[int, ...]) -> nn.Module:
    import timm

    try:
        return timm.create_model(name, pretrained=False, img_size=shape[1:])
    except TypeError:
        return timm.create_model(name, pretrained=False)


def _torchvision(name: str, shape: tuple[int, ...]) -> nn.Module:
    import torchvision

    return torchvision.models.get_model(
        name, weights=None, **({"init_weights": True} if name == "googlenet" else {})
    )


def _smp(name: str, shape: tuple[int, ...]) -> nn.Module:
    import segmentation_models_pytorch as smp

    kind, encoder = name.split("-")
    return getattr(smp, kind)(encoder, encoder_weights=None)


def _monai(name: str, shape: tuple[int, ...]) -> nn.Module:
    from monai.networks import nets

    if name == "AttentionUnet2d":
        return nets.AttentionUnet(2, 1, 2, (8, 16, 32), (2, 2))
    if name == "BasicUNet2d":
        return nets.BasicUNet(2, 1, 2, features=(8, 8, 16, 16, 32, 8))
    if name == "SegResNet2d":
        return nets.SegResNet(2, init_filters=8, in_channels=1, out_channels=2)
    return nets.UNet(3, 1, 2, (4, 8, 16), (2, 2))


def _transformers(name: str, shape: tuple[int, ...]) -> nn.Module:
    import transformers as t

    size = shape[-1]
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    made: dict[str, Callable[[], nn.Module]] = {
        "EfficientNet": lambda: t.EfficientNetForImageClassification(t.EfficientNetConfig(image_size=size)),
        "HGNetV2": lambda: t.HGNetV2ForImageClassification(t.HGNetV2Config()),
        "RegNet": lambda: t.RegNetForImageClassification(t.RegNetConfig(depths=[1, 1, 2, 1])),
        "AST": lambda: t.ASTForAudioClassification(t.ASTConfig(**small, max_length=shape[0], num_mel_bins=shape[1])),
        "Whisper-encoder": lambda: t.models.whisper.modeling_whisper.WhisperEncoder(
            t.WhisperConfig(
                d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64,
                num_mel_bins=shape[0], max_source_positions=shape[1] // 2,
            )
        ),
        "ConvNextV2": lambda: t.ConvNextV2ForImageClassification(
            t.ConvNextV2Config(hidden_sizes=[16, 32, 64, 128], depths=[1, 1, 2, 1])
        ),
        "LeViT": lambda: t.LevitForImageClassification(t.LevitConfig(image_size=size)),
        "MobileViT": lambda: t.MobileViTForImageClassification(t.MobileViTConfig(image_size=size)),
        "MobileViT-DeepLab": lambda: t.MobileViTForSemanticSegmentation(t.MobileViTConfig(image_size=size)),
        "SwiftFormer": lambda: t.SwiftFormerForImageClassification(t.SwiftFormerConfig(image_size=size)),
        "BiT": lambda: t.BitForImageClassification(t.BitConfig(depths=[1, 1, 1, 1], hidden_sizes=[128, 128, 128, 128])),
        "YOLOS": lambda: t.YolosForObjectDetection(t.YolosConfig(**small, image_size=[size, size])),
        "Cvt": lambda: t.CvtForImageClassification(
            t.CvtConfig(embed_dim=[8, 16, 24], num_heads=[1, 2, 3], depth=[1, 2, 3])
        ),
        "BERT-tiny": lambda: t.BertModel(t.BertConfig(**small)),
        "BEiT": lambda: t.BeitForImageClassification(t.BeitConfig(**small, image_size=size)),
        "Dinov2": lambda: t.Dinov2ForImageClassification(
            t.Dinov2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=size, patch_size=8)
        ),
        "Swin": lambda: t.SwinForImageClassification(
            t.SwinConfig(image_size=size, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
        ),
        "Swinv2": lambda: t.Swinv2ForImageClassification(
            t.Swinv2Config(image_size=size, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
        ),
    }  # fmt: skip
    return made[name]()


def _own(name: str, shape: tuple[int, ...]) -> nn.Module:
    return OWN[name](shape)


def _conv(
    i: int, o: int, act: nn.Module | None = None, norm: nn.Module | None = None, **options: Any
) -> nn.Sequential:
    parts = [nn.Conv2d(i, o, 3, padding=1, **options), norm or nn.BatchNorm2d(o), act or nn.ReLU()]
    return nn.Sequential(*parts)


def _classifier(*parts: nn.Module, width: int = 16) -> nn.Sequential:
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


class UNet(nn.Module):
    def __init__(self, up: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.first, self.second, self.third = _conv(3, 8), _conv(8, 16), _conv(16, 32)
        self.up2, self.up1 = up(32), up(16)
        self.back2, self.back1, self.out = _conv(48, 16), _conv(24, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.first(x)
        two = self.second(F.max_pool2d(one, 2))
        three = self.third(F.max_pool2d(two, 2))
        two = self.back2(torch.cat([self.up2(three), two], 1))
        return self.out(self.back1(torch.cat([self.up1(two), one], 1)))


class Recurrent(nn.Module):
    def __init__(self, cell: nn.Module, width: int) -> None:
        super().__init__()
        self.rnn, self.head = cell, nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


class Crnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool = _conv(1, 8), nn.AdaptiveMaxPool2d((1, 16))
        self.rnn, self.head = nn.GRU(8, 8, batch_first=True, bidirectional=True), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(self.pool(self.conv(x)).squeeze(2).transpose(1, 2))[0])


class GluNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv1d(16, 32, 5), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.glu(self.conv(x), 1).amax(2))


OWN: dict[str, Callable[[tuple[int, ...]], nn.Module]] = {
    "ds-cnn-kws": lambda s: _classifier(
        _conv(1, 16), _conv(16, 16, groups=16), nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16), nn.ReLU()
    ),
    "m5-1d": lambda s: nn.Sequential(
        nn.Conv1d(1, 8, 80, 16), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(4), nn.Conv1d(8, 16, 3), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 5),
    ),
    "unet-pixelshuffle": lambda s: UNet(lambda n: nn.Sequential(nn.Conv2d(n, 4 * n, 1), nn.PixelShuffle(2))),
    "unet-bilinear": lambda s: UNet(lambda n: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)),
    "unet-nearest": lambda s: UNet(lambda n: nn.Upsample(scale_factor=2)),
    "conv3d": lambda s: nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 4)
    ),
    "mish-silu-cnn": lambda s: _classifier(_conv(3, 16, nn.Mish()), _conv(16, 16, nn.SiLU())),
    "glu-1d": lambda s: GluNet(),
    "mlp-autoencoder": lambda s: nn.Sequential(
        nn.Linear(64, 16), nn.Softplus(), nn.Linear(16, 4), nn.Softplus(), nn.Linear(4, 64), nn.Sigmoid()
    ),
    "groupnorm-cnn": lambda s: _classifier(
        _conv(3, 16, norm=nn.GroupNorm(4, 16)), _conv(16, 16, norm=nn.GroupNorm(8, 16))
    ),
    "instancenorm-cnn": lambda s: _classifier(_conv(3, 16, norm=nn.InstanceNorm2d(16, affine=True))),
    "layernorm-mlp": lambda s: nn.Sequential(nn.Linear(20, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 5)),
    "transformer-encoder": lambda s: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2, enable_nested_tensor=False
    ),
    "lstm": lambda s: Recurrent(nn.LSTM(10, 16, batch_first=True), 16),
    "bi-lstm": lambda s: Recurrent(nn.LSTM(10, 16, 2, batch_first=True, bidirectional=True), 32),
    "gru": lambda s: Recurrent(nn.GRU(10, 16, batch_first=True), 16),
    "rnn": lambda s: Recurrent(nn.RNN(10, 16, batch_first=True), 16),
    "crnn": lambda s: Crnn(),
}  # fmt: skip
