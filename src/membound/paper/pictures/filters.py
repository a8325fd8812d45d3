"""The first layer's filters as small pictures."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from membound.paper.pictures.looks import Numbers, add_title, make_figure

CHANNELS, SIDE, COLUMNS = 3, 5, 8
Pixels = NDArray[np.float64]


def draw_kernels(numbers: Numbers) -> Figure:
    """Filters with l2 and with l1 shrinkage, and below them where they are not zero."""
    figure = make_figure(5.6, 7.6)
    columns = zip(figure.subplots(2, 2).T, (("l2", "l2"), ("shrink", "l1 shrinkage")), strict=True)
    for (colours, pattern), (method, title) in columns:
        filters = _read(numbers[method])
        _show(colours, _tile(_colour(filters)))
        add_title(colours, title, _describe(numbers[method]))
        # The more channels, the darker; all of one grey would hide that some have one left.
        _show(pattern, _tile(1 - np.count_nonzero(filters, axis=1)[:, None] / CHANNELS))
        add_title(pattern, f"{numbers[method]['all_zero']} of {len(filters)} filters all zero")
    figure.supxlabel("below: nonzero in all 3 channels black, in some grey, in none white", fontsize=10)
    return figure
