"""How pixels became the floats that a network was trained on: said when its file is saved."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from membound.data.preprocess import Preprocess, check_pixels
from membound.errors import MemboundError
from membound.search.measure import FileBytes, State


def with_pixels(
    files: FileBytes, state: State, pixels: Preprocess, facts: Mapping[str, Any], limit: int | None
) -> FileBytes:
    """How a file is written with a preprocessing of pixels, where it has none; `limit` is what its budget allows."""
    shape = facts["input_shape"]
    check_pixels(pixels, None if shape is None else tuple(shape))
    if "micro" in facts or files.preprocess != Preprocess(takes="float32"):
        other = "is for a microcontroller" if "micro" in facts else "says already how examples are prepared"
        raise MemboundError(
            f"pixels is for networks for CPUs that were trained on floats as they are: this file {other}",
            about="pixels",
        )
    prepared = replace(files, preprocess=pixels)
    if limit is not None and (taken := prepared(state)) > limit:
        raise MemboundError(
            f"with pixels the file takes {taken:,} bytes, and the budget is {limit:,}: give pixels to mb.fit, which "
            "makes room for it",
            about="pixels",
        )
    return prepared
