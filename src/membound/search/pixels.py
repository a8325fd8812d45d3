"""How pixels became the floats that a network was trained on: said when its file is saved."""

from dataclasses import replace
from typing import TYPE_CHECKING

from membound.data.preprocess import Preprocess, check_pixels
from membound.errors import MemboundError
from membound.search.measure import FileBytes

if TYPE_CHECKING:
    from membound.search.deployed import Fitted


def with_pixels(fitted: "Fitted", pixels: Preprocess) -> FileBytes:
    """How its file is written with a preprocessing of pixels, where it has none, and the budget has room for it."""
    shape = fitted.facts["input_shape"]
    check_pixels(pixels, None if shape is None else tuple(shape))
    if "micro" in fitted.facts or fitted.files.preprocess != Preprocess(takes="float32"):
        other = (
            "is for a microcontroller"
            if "micro" in fitted.facts
            else "says already how examples are prepared"
        )
        raise MemboundError(
            f"pixels is for networks for CPUs that were trained on floats as they are: this file {other}",
            about="pixels",
        )
    files = replace(fitted.files, preprocess=pixels)
    taken = files(fitted.model.state_dict())
    if fitted.size == fitted.file_bytes <= fitted.limit < taken:
        raise MemboundError(
            f"with pixels the file takes {taken:,} bytes, and the budget is {fitted.limit:,}: give pixels to mb.fit, "
            "which makes room for it",
            about="pixels",
        )
    return files
