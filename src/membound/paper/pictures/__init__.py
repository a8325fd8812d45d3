"""Pictures of the figures' numbers, each as SVG and as PNG."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from membound.paper.claims import say_small
from membound.paper.pictures.filters import draw_kernels
from membound.paper.pictures.looks import DPI, STYLE, add_note, settle
from membound.paper.pictures.searches import draw_layers, draw_memory
from membound.paper.pictures.stages import draw_imagenet
from membound.paper.pictures.sweeps import draw_frontier, draw_partial, draw_thresholding
from membound.paper.pictures.trainings import draw_ensembles, draw_optimization, draw_starvation
from membound.store.whole import replace_file

DRAWN: Mapping[str, Callable[[Mapping[str, Any]], Figure]] = {
    "memory": draw_memory,
    "layers": draw_layers,
    "thresholding": draw_thresholding,
    "partial": draw_partial,
    "kernels": draw_kernels,
    "optimization": draw_optimization,
    "ensembles": draw_ensembles,
    "starvation": draw_starvation,
    "frontier": draw_frontier,
    "imagenet": draw_imagenet,
}


def save(folder: Path, name: str, document: Mapping[str, Any]) -> None:
    """Draw `name.svg` and `name.png` into a folder; the same numbers give the same bytes."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # not the user's own settings; the context brings those back
        matplotlib.rcParams.update(STYLE)
        figure = DRAWN[name](document["numbers"])
        if (note := say_small(document)) is not None:
            add_note(figure, note)
        settle(figure)
        title = str(document.get("about") or name).splitlines()[0]
        # A date would make other bytes of the same numbers.
        drawn = {
            "svg": _render(figure, "svg", {"Title": title, "Date": None}),
            "png": _render(figure, "png", {"Title": title}),
        }
    for ending, content in drawn.items():
        replace_file(folder / f"{name}.{ending}", [content])


def _render(figure: Figure, ending: str, metadata: Mapping[str, Any]) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format=ending, dpi=DPI, metadata=dict(metadata))
    return content.getvalue()
