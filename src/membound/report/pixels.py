"""Segmentation: the mean IoU over the pixels of all images together, beside the score, which is a mean over images."""

from collections.abc import Mapping
from statistics import mean
from typing import Any

from membound.report.text import find_part, find_rows, find_text, show_own

Facts = Mapping[str, Any]


def find_ious(net: Facts) -> dict[int, float]:
    """The IoU of each class over all pixels, by the numbers of classes.

    >>> find_ious({"class_iou": [0.9, None, 0]})
    {0: 0.9, 2: 0.0}
    """
    each = net.get("class_iou")
    known = enumerate(each) if isinstance(each, list | tuple) else ()
    return {number: float(iou) for number, iou in known if isinstance(iou, int | float)}


def mean_over_pixels(net: Facts) -> float | None:
    """The mean of these; None of another task.

    >>> mean_over_pixels({"class_iou": [0.9, None, 0.3]}), mean_over_pixels({})
    (0.6, None)
    """
    ious = find_ious(net)
    return mean(ious.values()) if ious else None


def say_over_pixels(result: Facts) -> str | None:
    """Both means: they weigh classes and images differently, so one may be above dense and the other below.

    >>> net = {"name": "8KB", "class_iou": [0.9, 0.5]}
    >>> print(say_over_pixels({"finals": [net], "dense": {"class_iou": [0.9, 0.4]}}))
    The mean IoU above is a mean over images; over the pixels of all images together, it is 0.7000, dense 0.6500.
    >>> print(say_over_pixels({"finals": [net, {"name": "4KB", "class_iou": [0.8, 0.4]}]}))
    The mean IoU above is a mean over images; over the pixels of all images together, it is 0.7000 (8KB), 0.6000 (4KB).
    """
    finals, dense = find_rows(result, "finals"), mean_over_pixels(find_part(result, "dense"))
    named = [(find_text(final, "name"), mean_over_pixels(final)) for final in finals]
    known = [
        show_own(value) + (f" ({name})" if len(finals) > 1 else "")
        for name, value in named
        if value is not None
    ]
    if not known:
        return None
    known += [] if dense is None else [f"dense {show_own(dense)}"]
    seeds = find_part(finals[0], "seeds").get("seeds")
    of = f" (of seed {seeds[0]})" if seeds else ""
    return (
        "The mean IoU above is a mean over images; over the pixels of all images together, it is "
        f"{', '.join(known)}{of}."
    )
