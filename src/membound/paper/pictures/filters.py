"""The first layer's filters as small pictures."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from membound.paper.claims import show
from membound.paper.pictures.looks import Numbers, add_title, make_figure

CHANNELS, SIDE, COLUMNS = 3, 5, 8
BORDER = 0.87  # a light grey around every filter, also around white ones
Pixels = NDArray[np.float64]


def draw_kernels(numbers: Numbers) -> Figure:
    """Filters with l2 and with l1 shrinkage, and below them where they are not zero."""
    figure = make_figure(5.2, 7.6)
    columns = zip(figure.subplots(2, 2).T, (("l2", "l2"), ("shrink", "l1 shrinkage")), strict=True)
    for (colours, pattern), (method, title) in columns:
        row = numbers[method]
        filters = np.array(row["filters"], float).reshape(-1, CHANNELS, SIDE, SIDE)
        _show(colours, _tile(_colour(filters)))
        add_title(colours, title, _describe(row))
        _show(pattern, _tile(_shade(filters)))
        add_title(pattern, f"{row['all_zero']} of {len(filters)} filters all zero")
    figure.supxlabel("above: each filter's weights as red, green and blue; zero is grey\n"
                     "below: black where all 3 channels are nonzero, grey where some are, white where none is",
                     fontsize=10)  # fmt: skip
    return figure


def _describe(row: Numbers) -> str:
    """Accuracy, over seeds or of this one network, and how strong the shrinkage is."""
    value = row["accuracy"]
    if value is None:
        return ""
    shown = show(dict(value)) if isinstance(value, Mapping) else f"{value:.2f}"
    accuracy = f"test accuracy {shown} %"
    return accuracy if row["strength"] is None else f"strength {row['strength']:g}, {accuracy}"


def _colour(filters: Pixels) -> Pixels:
    """Each filter by its own largest weight, as [filters, height, width, rgb]: zero is in the middle, grey."""
    largest = np.abs(filters).max(axis=(1, 2, 3), keepdims=True)
    scaled = filters / np.where(largest > 0, largest, 1)
    return np.moveaxis(0.5 + 0.5 * scaled, 1, -1)


def _shade(filters: Pixels) -> Pixels:
    """The more channels are nonzero at a place, the darker."""
    left = np.count_nonzero(filters, axis=1) / CHANNELS
    return np.repeat(1.0 - left[..., None], 3, axis=-1)


def _tile(tiles: Pixels) -> Pixels:
    """All tiles in one picture, row by row."""
    step = SIDE + 1
    rows = -(-len(tiles) // COLUMNS)
    picture = np.full((rows * step + 1, COLUMNS * step + 1, 3), BORDER)
    for number, tile in enumerate(tiles):
        top, left = number // COLUMNS * step + 1, number % COLUMNS * step + 1
        picture[top : top + SIDE, left : left + SIDE] = tile
    return picture


def _show(axes: Axes, picture: Pixels) -> None:
    axes.imshow(picture, interpolation="none")
    axes.set_axis_off()
