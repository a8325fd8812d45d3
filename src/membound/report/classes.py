"""Which classes a network gets wrong, and which of them dense gets right: those that lost the most first."""

from collections.abc import Mapping, Sequence
from typing import Any

from membound.report.markup import Markup, join, tag
from membound.report.pixels import find_ious, mean_over_pixels
from membound.report.tables import draw_table, fold
from membound.report.text import (
    ABSENT,
    find_number,
    find_part,
    find_rows,
    find_text,
    name_of_examples,
    show_count,
)

Facts = Mapping[str, Any]
MOST = 50  # classes that are listed
FEW = 30  # images of a class, below which a single one is several points


def make_classes(result: Facts) -> Markup | None:
    """A table, folded away; None where classes were not counted."""
    finals = find_rows(result, "finals")
    first, dense = _accuracies(finals[0]), _accuracies(find_part(result, "dense"))
    if len(first) < 2:
        return None
    networks = [(find_text(each, "name") or "final", _accuracies(each)) for each in finals]
    images = {
        str(row.get("name")): find_number(row, "images") or 0 for row in find_rows(finals[0], "classes")
    }
    ranked = sorted(first, key=lambda name: (first[name] - dense.get(name, 0.0), first[name]))
    beside = [("dense", dense)] if dense else []
    rows = [
        [
            name,
            *(_cell(found.get(name), dense.get(name)) for _, found in networks),
            *(_cell(found.get(name)) for _, found in beside),
            show_count(images[name]),
        ]
        for name in ranked[:MOST]
    ]
    what = name_of_examples(finals[0])
    head = ["class", *(name for name, _ in networks + beside), what]
    on = find_text(finals[0], "accuracy_on") or "test"
    order = "The class that lost the most against dense comes first" if dense else "The worst comes first"
    note = f"In percent of the {on} {what} of a class. {order}."
    if find_part(finals[0], "seeds"):
        note += " All are of the first seed."
    if min(images.values()) < FEW:
        note += f" A class of few {what} says little: one of 20 is 5 points."
    left = f", the first {MOST}" if len(ranked) > MOST else ""
    table = draw_table(head, rows, "classes")
    return fold(f"{len(ranked)} classes{left}", join(table, tag("p", note, class_="note")))


def make_class_iou(result: Facts) -> Markup | None:
    """The IoU of each class of pixels: a class that is rare may be lost while the mean looks well."""
    finals, dense = find_rows(result, "finals"), find_part(result, "dense")
    first, theirs = find_ious(finals[0]), find_ious(dense)
    if len(first) < 2:
        return None
    networks = [(find_text(each, "name") or "final", find_ious(each)) for each in finals]
    beside = [("dense", theirs)] if theirs else []
    ranked = sorted(first, key=lambda number: (first[number] - theirs.get(number, 0.0), first[number]))
    names = finals[0].get("class_names") or ()
    rows = [
        _iou_row(
            str(names[number]) if number < len(names) else str(number),
            [found.get(number) for _, found in networks],
            theirs.get(number),
            bool(theirs),
        )
        for number in ranked[:MOST]
    ]
    means = [mean_over_pixels(final) for final in finals]
    rows.append(_iou_row("mean of the classes", means, mean_over_pixels(dense), bool(theirs)))
    order = "The class that lost the most against dense comes first" if theirs else "The worst comes first"
    on = find_text(finals[0], "accuracy_on") or "test"
    note = (
        f"Intersection over union, over all pixels of the {on} images: pixels that are this class and are predicted "
        f"so, divided by pixels that are either. {order}. A class with 0 is never found. The mean IoU at the top of "
        "the page is a mean over images, of the classes in each."
    )
    table = draw_table(["class", *(name for name, _ in networks + beside)], rows, "classes")
    return join(table, tag("p", note, class_="note"))


def _iou_row(
    name: str, values: Sequence[float | None], dense: float | None, beside: bool
) -> list[Markup | str]:
    """A class, or their mean: of each network, and of dense where there is one."""
    cells = [_cell(value, dense, digits=3) for value in values]
    return [name, *cells, *([_cell(dense, digits=3)] if beside else [])]


def _accuracies(net: Facts) -> dict[str, float]:
    """In percent, by the names of classes.

    >>> _accuracies({"classes": [{"name": "cat", "images": 50, "errors": 2}, {"name": "dog"}]})
    {'cat': 96.0}
    """
    found = {}
    for row in find_rows(net, "classes"):
        images, errors = find_number(row, "images"), find_number(row, "errors")
        if images and errors is not None:
            found[str(row.get("name"))] = 100 * (images - errors) / images
    return found


def _cell(value: float | None, dense: float | None = None, digits: int = 1) -> Markup | str:
    """A score, and how far it is from dense."""
    if value is None:
        return ABSENT
    shown = f"{value:.{digits}f}"
    if dense is None or round(value - dense, digits) == 0:
        return shown
    gap = f"{value - dense:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
    return join(shown, tag("small", gap, class_="better" if value > dense else "worse"))
