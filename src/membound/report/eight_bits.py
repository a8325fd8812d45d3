"""Where dense in 8 bits fits the same budget and is better: said plainly, with the command that writes it."""

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from membound.report.text import Score, find_number, find_numbers, find_part, find_rows
from membound.units import standard_error

Facts = Mapping[str, Any]
TAKEN = "the dense network in 8 bits fits and has learned more: it is the file"
WANTED = {"--values": "p8", "--teacher": "none"}  # all weights, trained as the dense network is
OF_THE_FITTED = ("--run-dir", "--report", "--hub", "--teacher-init", "--teacher-part", "--temperature")
NOT_OF_DENSE = ("--members", "--average", "--widths", "--strategy", "--greedy-step", "--candidate-steps")
LEFT_OUT = {*WANTED, *OF_THE_FITTED, *NOT_OF_DENSE}


def uncertainty(net: Facts) -> float | None:
    """The standard error: in points, of counting `errors` of so many `images`; or of the mean of `image_scores`.

    Without errors that formula says 0, and all is not known: then it is the end of Wilson's interval, 1 of n + 1.

    >>> round(uncertainty({"image_scores": [0.5, 0.7, 0.6, 0.6]}), 4)
    0.0408
    >>> round(uncertainty({"errors": 100, "images": 10000}), 3), round(uncertainty({"errors": 0, "images": 400}), 3)
    (0.099, 0.249)
    """
    if each := find_numbers(net, "image_scores"):
        return standard_error(each)
    errors, images = find_number(net, "errors"), find_number(net, "images")
    if errors is None or not images:
        return None
    if errors in (0, images):
        return 100 / (images + 1)
    part = errors / images
    return 100 * math.sqrt(part * (1 - part) / images)


def least_accuracy(images: float) -> float:
    """What no error in so many images shows, with 95 % confidence: at least so many percent, rounded down.

    >>> least_accuracy(400), least_accuracy(10000)
    (99.25, 99.97)
    """
    return math.floor(1e4 * math.pow(0.05, 1 / images)) / 100


def gap_to_8_bits(final: Facts, int8: Facts) -> float | None:
    """How much better the dense network in 8 bits is, where it fits the budget and that is more than chance.

    >>> final = {"accuracy": 95.17, "errors": 483, "images": 10000, "fits_in_8_bits": True}
    >>> gap_to_8_bits(final, {"accuracy": 99.0}), gap_to_8_bits(final, {"accuracy": 95.3})
    (3.83, None)
    """
    ours, theirs = find_number(final, "accuracy"), find_number(int8, "accuracy")
    if not final.get("fits_in_8_bits") or ours is None or theirs is None:
        return None
    chance = uncertainty(final)
    gap = round(theirs - ours, 6)
    return gap if gap > (abs(ours) / 100 if chance is None else chance) else None


def say_beaten(result: Facts, score: Score, words: Sequence[str] | None = None) -> tuple[str, ...]:
    """Of networks that dense in 8 bits beats in their own budget: a sentence and a command; `words` are those given.

    >>> final = {"accuracy": 95.17, "errors": 483, "images": 10000, "fits_in_8_bits": True}
    >>> dense = {"int8": {"accuracy": 99.0}}
    >>> facts = {"finals": [final], "dense": dense, "command": "membound fit lenet --out a"}
    >>> print(*say_beaten(facts, Score()), sep="\\n")
    The dense network in 8 bits fits this budget, too, and is 3.83 points better here. Train longer, lower the budget, \
or write that network instead:
    membound fit lenet --out a-8bit --values p8 --teacher none
    """
    finals = find_rows(result, "finals")
    int8 = find_part(find_part(result, "dense"), "int8")
    beaten = [(final, gap) for final in finals if (gap := gap_to_8_bits(final, int8)) is not None]
    if not beaten:
        return ()
    gap = max(gap for _, gap in beaten)
    shown = f"{gap:.2f} points" if score.percent else f"{gap:.3g}"
    names = ", ".join(str(final.get("name")) for final, _ in beaten)
    where = "this budget" if len(finals) == 1 else f"some of these budgets ({names})"
    most = "" if len(beaten) == 1 else "up to "
    words = shlex.split(str(result.get("command") or "")) if words is None else words
    return (
        f"The dense network in 8 bits fits {where}, too, and is {most}{shown} better here. Train longer, lower the "
        "budget, or write that network instead:",
        write_instead(words),
    )


def write_instead(words: Sequence[str]) -> str:
    """The fit that keeps all weights in 8 bits, and learns as the dense network did.

    >>> write_instead(["membound", "fit", "lenet", "--teacher=auto", "--run-dir", "r", "--out", "a.safetensors"])
    'membound fit lenet --out a-8bit.safetensors --values p8 --teacher none'
    >>> write_instead(["mb.fit(model,", "data)"])
    "fit again with values='p8' and teacher='none'"
    """
    if list(words[:2]) != ["membound", "fit"]:
        return "fit again with values='p8' and teacher='none'"
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in LEFT_OUT:
            if not equals:
                next(rest, None)
        elif option == "--out":
            out = Path(value if equals else next(rest, ""))
            kept += ["--out", str(out.with_name(f"{out.stem}-8bit{out.suffix}"))]
        else:
            kept.append(word)
    return shlex.join(kept + [word for pair in WANTED.items() for word in pair])
