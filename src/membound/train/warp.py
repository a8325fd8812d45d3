"""Augmentation on the device: images and random numbers in, varied images out; work that can be recorded in a graph."""

import math

import torch
from torch import Tensor

from membound.data.augment import Augment


@torch.no_grad()
def warp(how: Augment, x: Tensor, numbers: Tensor) -> Tensor:
    """Prepared images [n, C, H, W], each varied as its row of `numbers` (from 0 to 1, see `Augment.numbers`) says.

    >>> images, numbers = torch.arange(6.0).reshape(1, 1, 2, 3), torch.zeros(1, 7)
    >>> warp(Augment(mirror=True), images, numbers).tolist()
    [[[[2.0, 1.0, 0.0], [5.0, 4.0, 3.0]]]]
    """
    numbers = numbers.to(x.dtype)
    x = _sampled(how, x, numbers) if how.turn or how.zoom else _moved(how, x, numbers)
    return _cut(how.cutout, x, numbers[:, 5], numbers[:, 6]) if how.cutout else x


def variant_of(how: Augment, numbers: Tensor) -> Tensor:
    """Which of its variants `warp` makes of each image, counted from 0, where there is an end to them."""
    side = 2 * how.shift + 1
    down, right = (_pixels(numbers[:, at], how.shift)[:, 0] + how.shift for at in (1, 2))
    found = down * side + right
    return 2 * found + (numbers[:, 0] < 0.5) if how.mirror else found


def numbers_of(how: Augment, variant: int) -> Tensor:
    """A row of numbers that make `warp` give this variant.

    >>> how = Augment(mirror=True, shift=2)
    >>> [int(variant_of(how, numbers_of(how, at)[None])) for at in (0, 17, 49)]
    [0, 17, 49]
    """
    side = 2 * how.shift + 1
    place, mirrored = divmod(variant, 2) if how.mirror else (variant, 0)
    down, right = divmod(place, side)
    return torch.tensor([0.25 if mirrored else 0.75, (down + 0.5) / side, (right + 0.5) / side, 0, 0, 0, 0])


def _moved(how: Augment, x: Tensor, numbers: Tensor) -> Tensor:
    """Mirrored and shifted by whole pixels: each pixel is one of the image."""
    if not (how.mirror or how.shift):
        return x
    height, width = x.shape[2:]
    rows = torch.arange(height, device=x.device) + _pixels(numbers[:, 1], how.shift)
    columns = torch.arange(width, device=x.device) + _pixels(numbers[:, 2], how.shift)
    rows, columns = _reflected(rows, height), _reflected(columns, width)
    if how.mirror:
        columns = torch.where(numbers[:, :1] < 0.5, width - 1 - columns, columns)
    image = torch.arange(len(x), device=x.device)[:, None, None]
    found = x[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    # On a CPU the channels stay last, as the batches have them.
    return found if x.device.type == "cpu" else found.contiguous()


def _pixels(number: Tensor, most: int) -> Tensor:
    """A whole number from -most to most."""
    return (number * (2 * most + 1)).long().clamp(max=2 * most)[:, None] - most


def _reflected(at: Tensor, size: int) -> Tensor:
    """Places outside of an image, reflected at its outermost pixels."""
    return (size - 1) - ((size - 1) - at.abs()).abs()


def _sampled(how: Augment, x: Tensor, numbers: Tensor) -> Tensor:
    """Rotated and scaled about the center, moved and mirrored in the same go, interpolated between pixels."""
    height, width = x.shape[2:]
    spread = 2 * numbers[:, :5, None, None] - 1  # from -1 to 1
    angle, size = spread[:, 3] * math.radians(how.turn), 1 + spread[:, 4] * how.zoom
    side = torch.where(spread[:, 0] < 0, -1.0, 1.0) if how.mirror else torch.ones_like(angle)
    rows = torch.arange(height, device=x.device, dtype=x.dtype) - (height - 1) / 2
    columns = torch.arange(width, device=x.device, dtype=x.dtype) - (width - 1) / 2
    down = (rows[None, :, None] - spread[:, 1] * how.shift) / size
    right = (side * columns[None, None, :] - spread[:, 2] * how.shift) / size
    sine, cosine = angle.sin(), angle.cos()
    # From pixels to the coordinates of grid_sample, where an image reaches from -1 to 1.
    grid = torch.stack(
        [
            (cosine * right - sine * down) * (2 / width),
            (sine * right + cosine * down) * (2 / height),
        ],
        -1,
    )
    found = torch.nn.functional.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    return found.to(memory_format=torch.channels_last) if x.device.type == "cpu" else found


def _cut(size: int, x: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """A square around a random pixel is zero; near the edges less of it is inside."""
    height, width = x.shape[2:]
    rows = _inside(torch.arange(height, device=x.device), (down * height).long(), size)
    columns = _inside(torch.arange(width, device=x.device), (right * width).long(), size)
    hole = rows[:, None, :, None] & columns[:, None, None, :]
    return x.masked_fill(hole, 0.0)


def _inside(at: Tensor, center: Tensor, size: int) -> Tensor:
    begin = center[:, None] - size // 2
    return (at >= begin) & (at < begin + size)
