"""What came of a fit in a few sentences: for the page's first screen, and the last lines of a command."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from membound.report.advice import has_collapsed, say_advice, say_taken
from membound.report.device import find_flash, find_ram, is_micro
from membound.report.eight_bits import least_accuracy, say_beaten, uncertainty
from membound.report.elsewhere import OURS
from membound.report.engines import gains_by_integers, say_engines
from membound.report.guessing import is_guessing, points_far_below, say_guess, say_share
from membound.report.paired import show_difference
from membound.report.pixels import say_over_pixels
from membound.report.spread import brief_rule, compare, say_against_dense
from membound.report.text import (
    Score,
    divide,
    find_number,
    find_numbers,
    find_part,
    find_rows,
    find_text,
    name_of_examples,
    show_count,
    show_share,
    show_threads,
)

Facts = Mapping[str, Any]
LITERT = "ai-edge-litert"  # on the package index
MOST_NAMED = 5  # networks of one bound that a sentence lists


def make_verdict(result: Facts, score: Score) -> str:
    """One sentence that says what came out.

    >>> dense = {"accuracy": 99.12, "file_bytes": 1724320}
    >>> make_verdict({"finals": [{"accuracy": 98.97, "file_bytes": 20412}], "dense": dense}, Score())
    '98.97 % in 20,412 bytes: 1.2 % of the dense file, 0.15 points below dense.'
    >>> classes = [{"images": 25}, {"images": 75}]
    >>> make_verdict({"finals": [{"accuracy": 75.0, "errors": 25, "images": 100, "classes": classes}]}, Score())
    'No better than guessing (75 % of the test images are of one class): 75.00 ± 4.33 %.'
    """
    finals = find_rows(result, "finals")
    dense = find_part(result, "dense")
    if len(finals) > 1:
        return _say_several(finals, dense, score)
    (final,) = finals
    members = final.get("members")
    together = f", {show_count(len(members))} networks together" if members else ""
    if is_guessing(final):  # however dense compares
        return f"{_say_guessing(final)}: {_say_one(final, score)}{together}.{_say_dense(dense, score)}"
    size = find_number(final, "file_bytes")
    share = None if is_micro(result) else divide(size, find_number(dense, "file_bytes"))
    against = [
        f"{show_share(share)} of the dense file" if share is not None else None,
        say_against_dense(final, dense, score),
        _say_unequal(find_number(final, "steps"), find_number(dense, "steps")),
    ]
    known = [words for words in against if words]
    far = "Far below dense: " if is_micro(result) and points_far_below(final, dense) is not None else ""
    return f"{far}{_say_one(final, score)}{together}" + (f": {', '.join(known)}." if known else ".")


def _say_guessing(final: Facts) -> str:
    said = say_guess(final)
    return f"{said[0].upper()}{said[1:]} ({say_share(final)})"


def _say_dense(dense: Facts, score: Score) -> str:
    return "" if find_number(dense, "accuracy") is None else f" Dense: {_say_one(dense, score)}."


def _say_unequal(ours: float | None, theirs: float | None) -> str | None:
    """Said where the two cannot be compared: a greedy search trains its winners on, and dense is trained once.

    >>> _say_unequal(780, 120), _say_unequal(120, 120)
    ('trained for 780 steps, dense for 120', None)
    """
    if ours is None or theirs is None or ours == theirs:
        return None
    return f"trained for {show_count(ours)} steps, dense for {show_count(theirs)}"


def make_lines(result: Facts, score: Score, words: Sequence[str] | None = None) -> list[str]:
    """The verdict, and beside it what int8 would give and how fast it is, good or bad; `words` are the command's.

    >>> dense = {"latency_ms": 0.1, "int8": {"accuracy": 99.1, "file_bytes": 434000}}
    >>> for line in make_lines({"finals": [{"accuracy": 98.97, "latency_ms": 0.14}], "dense": dense}, Score()):
    ...     print(line)
    98.97 %.
    Dense in 8 bits: 99.10 % in 434,000 bytes.
    0.140 ms an image, 1.4 times as slow as dense (0.100 ms).
    >>> several = [{"name": "20KiB", "latency_ms": 0.1}, {"name": "10KiB", "latency_ms": 0.05}]
    >>> make_lines({"finals": several, "dense": {"latency_ms": 0.1}}, Score())[-2:]
    ['20KiB: 0.100 ms an image, about as fast as dense (0.100 ms).', \
'10KiB: 0.050 ms an image, 2.0 times as fast as dense (0.100 ms).']
    """
    scores = [make_verdict(result, score), *filter(None, [say_over_pixels(result)])]
    advice = say_advice(result)
    lines = [*advice, *scores] if has_collapsed(result) else [*scores, *advice]
    finals, dense = find_rows(result, "finals"), find_part(result, "dense")
    int8 = find_part(dense, "int8")
    if given := say_given(dense, score):
        lines.append(given)
    if chosen := say_taken(result):
        lines.append(chosen)
    elif int8:
        lines.append(f"Dense in 8 bits: {_say_one(int8, score)}.")
    lines += say_beaten(result, score, words)
    if finals and (said := say_estimate(finals[0])):
        lines.append(said)
    lines += [line for final in finals if (line := say_seeds(final, dense, score, len(finals) > 1))]
    if is_micro(result):  # the latency of this machine says nothing of its time, which is beside its flash
        return lines
    named = [f"{final.get('name')}: " if len(finals) > 1 else "" for final in finals]
    pairs = zip(named, (say_engines(final, dense, score) for final in finals), strict=True)
    return [*lines, *(f"{name}{speed}" for name, speed in pairs if speed)]


def make_legend(result: Facts, score: Score) -> list[str]:
    """What ± and the words of the verdict mean, in a line of a terminal; the page says it in sentences.

    >>> net = {"accuracy": 98.6, "errors": 140, "images": 10000}
    >>> make_legend({"finals": [net], "dense": net | {"errors": 90, "accuracy": 99.1}}, Score())
    ['after a score: standard error; after a difference: half its 95 % interval; another seed may differ']
    """
    finals, dense = find_rows(result, "finals"), find_part(result, "dense")
    if not finals:
        return []
    of_seeds = bool(find_part(finals[0], "seeds"))
    sure = None if of_seeds or _error_in(finals[0], score) is None else _say_no_error(finals[0], dense)
    scored = not of_seeds and _error_in(finals[0], score) is not None and not _are_all_right(finals[0], dense)
    found = compare(finals[0], dense)
    brief = [
        "after a score: standard error" if scored else None,
        brief_rule(finals[0], dense),
        "another seed may differ" if scored or (found is not None and found.by_image) else None,
    ]
    return [*filter(None, ["; ".join(filter(None, brief)), sure])]


def say_given(dense: Facts, score: Score) -> str | None:
    """How good the network was before the fit, where it came with trained weights.

    >>> say_given({"given_accuracy": 98.5}, Score())
    'The network as you gave it: 98.50 %. "Dense" is that network after more training.'
    """
    given = find_number(dense, "given_accuracy")
    return (
        None
        if given is None
        else f'The network as you gave it: {score.show(given)}. "Dense" is that network after more training.'
    )


def say_timed(result: Facts) -> str | None:
    """Whose latencies these are: only int8 runs in another runtime than the file.

    >>> int8 = {"latency_ms": 0.1, "latency_by": "ONNX Runtime"}
    >>> say_timed({"finals": [{"latency_ms": 0.1, "threads": 2}], "dense": {"latency_ms": 0.2, "int8": int8}})
    'Latencies: 2 threads of this machine, interleaved. Dense also runs in membound; dense int8 runs in ONNX Runtime.'
    >>> say_timed({"finals": [{"latency_ms": 0.1}]})
    'Latencies: 1 thread of this machine.'
    """
    first, dense = find_rows(result, "finals")[0], find_part(result, "dense")
    if is_micro(result) or find_number(first, "latency_ms") is None:
        return None
    engines = (
        "Numbers are in floats, the engine that a file runs in by default, unless int8 (engine int8) is named. "
        if gains_by_integers(first)
        else ""
    )
    words = f"{engines}Latencies: {show_threads(find_number(first, 'threads') or 1)} of this machine"
    if find_number(dense, "latency_ms") is None:
        return f"{words}."
    by = find_part(dense, "int8").get("latency_by")
    return (
        f"{words}, interleaved. Dense also runs in membound"
        f"{', in floats and in int8' if by == OURS else f'; dense int8 runs in {by}' if by else ''}."
    )


def say_untimed(result: Facts) -> str | None:
    """The runtimes that people use and that were not raced beside dense, and how to race them.

    >>> int8 = {"latency_ms": 0.1, "latency_by": "membound"}
    >>> say_untimed({"finals": [{"latency_ms": 0.1}], "dense": {"latency_ms": 0.2, "int8": int8}})
    'ONNX Runtime and LiteRT were not timed: pip install onnxruntime onnx ai-edge-litert, then membound bench FILE \
--int8 --tflite yours.tflite.'
    """
    first, dense = find_rows(result, "finals")[0], find_part(result, "dense")
    if is_micro(result) or any(find_number(net, "latency_ms") is None for net in (first, dense)):
        return None
    if find_part(dense, "floats_elsewhere") or find_part(dense, "int8").get("latency_by", OURS) != OURS:
        return f"LiteRT was not timed: pip install {LITERT}, then membound bench FILE --tflite yours.tflite."
    return (
        f"ONNX Runtime and LiteRT were not timed: pip install onnxruntime onnx {LITERT}, then membound bench FILE "
        "--int8 --tflite yours.tflite."
    )


def say_uncertainty(final: Facts, score: Score, dense: Facts | None = None) -> str | None:
    """What ± means after a score, and what the images show of networks without an error.

    >>> say_uncertainty({"errors": 100, "images": 10000}, Score())
    'After a score, ± is its standard error over 10,000 test images. Another seed may give another result.'
    >>> say_uncertainty({"errors": 0, "images": 400}, Score())
    'With no errors in 400 test images, accuracy is at least 99.25 % (95 % confidence). Another seed may give another \
result.'
    """
    if _error_in(final, score) is None:
        return None
    images, on = find_number(final, "images") or 0, _say_judges(final)
    said = f"After a score, ± is its standard error over {show_count(images)} {on}."
    known = [None if _are_all_right(final, dense) else said, _say_no_error(final, dense)]
    return " ".join([*filter(None, known), "Another seed may give another result."])


def _judged(final: Facts, dense: Facts | None) -> list[Facts]:
    return [final, dense or {}, find_part(dense or {}, "int8")]


def _are_all_right(final: Facts, dense: Facts | None) -> bool:
    """Whether none makes an error: then no score has a ±."""
    known = [net for net in _judged(final, dense) if find_number(net, "errors") is not None]
    return bool(known) and all(map(_has_no_error, known))


def _say_no_error(final: Facts, dense: Facts | None) -> str | None:
    """How good a network is at least that makes no error, where there is one."""
    if not any(map(_has_no_error, _judged(final, dense))):
        return None
    images = find_number(final, "images") or 0
    counted = ""
    if dense and not _are_paired(final, dense):
        error = uncertainty({"errors": 0, "images": images}) or 0.0
        counted = f"; for the comparison, its standard error counts as {error:.2f}"
    return (
        f"With no errors in {show_count(images)} {_say_judges(final)}, accuracy is at least "
        f"{least_accuracy(images):.2f} % (95 % confidence){counted}."
    )


def _are_paired(final: Facts, dense: Facts) -> bool:
    """Whether it is known which examples both get wrong: then they are compared by these."""
    found = compare(final, dense)
    return found is not None and found.by_image


def _say_judges(final: Facts) -> str:
    """What a network was judged on.

    >>> _say_judges({}), _say_judges({"accuracy_on": "validation", "input_shape": [40]})
    ('test images', 'validation examples')
    """
    return f"{final.get('accuracy_on') or 'test'} {name_of_examples(final)}"


def _has_no_error(net: Facts) -> bool:
    return find_number(net, "errors") == 0


def say_estimate(final: Facts) -> str | None:
    """Said where the images that judged were held out of the training images: the file's network was not judged.

    >>> print(say_estimate({"is_estimate": True, "images": 60}))
    No test images: this is the accuracy of a copy, trained without the 60 images that measure it; the network in \
the file was trained on all.
    """
    if not final.get("is_estimate"):
        return None
    name, count = name_of_examples(final), find_number(final, "images")
    held_out = f"the {name}" if count is None else f"the {show_count(count)} {name}"
    return (
        f"No test {name}: this is the accuracy of a copy, trained without {held_out} that measure it; the network in "
        "the file was trained on all."
    )


def show_seeds(seeds: Facts, score: Score) -> str:
    """Mean and standard deviation over seeds.

    >>> show_seeds({"mean": 99.17, "std": 0.114}, Score())
    '99.17 ± 0.11 %'
    """
    average, deviation = find_number(seeds, "mean") or 0.0, find_number(seeds, "std") or 0.0
    return f"{average:.2f} ± {deviation:.2f} %" if score.percent else f"{average:.4g} ± {deviation:.2g}"


def say_seeds(final: Facts, dense: Facts, score: Score, named: bool = False) -> str | None:
    """What several seeds gave, where there were several: mean, standard deviation, and each.

    >>> seeds = {"count": 2, "seeds": [0, 1], "mean": 99.17, "std": 0.11, "accuracies": [99.1, 99.24]}
    >>> print(say_seeds({"seeds": seeds}, {"seeds": seeds | {"mean": 99.3}}, Score()))
    Mean ± standard deviation over 2 seeds: 99.17 ± 0.11 %, dense 99.30 ± 0.11 %. Seed 0 (the saved file): 99.10 %; \
seed 1: 99.24 %.
    """
    seeds, theirs = find_part(final, "seeds"), find_part(dense, "seeds")
    if not seeds:
        return None
    name = f"{final.get('name')}: mean" if named else "Mean"
    known = zip(seeds.get("seeds") or (), seeds.get("accuracies") or (), strict=False)
    first = next(iter(seeds.get("seeds") or [0]))
    each = "; ".join(
        f"seed {seed}{_say_saved(final, score) if seed == first else ''}: {score.show(find_number({'': value}, ''))}"
        for seed, value in known
    )
    listed = f" {each[0].upper()}{each[1:]}." if each else f" The saved file is of seed {first}."
    beside = f", dense {show_seeds(theirs, score)}" if theirs else ""
    return (
        f"{name} ± standard deviation over {show_count(find_number(seeds, 'count'))} seeds: "
        f"{show_seeds(seeds, score)}{beside}.{listed}"
    )


def _say_saved(final: Facts, score: Score) -> str:
    """Of the seed whose network was saved, also how much the images that there are leave to chance.

    >>> _say_saved({"accuracy": 99.0, "errors": 100, "images": 10000}, Score())
    ' (the saved file; standard error over 10,000 test images: 0.10 points)'
    """
    error = uncertainty(final)
    if error is None or not score.percent:
        return " (the saved file)"
    count, on = show_count(find_number(final, "images")), _say_judges(final)
    if _has_no_error(final):
        return f" (the saved file; no errors in {count} {on})"
    return f" (the saved file; standard error over {count} {on}: {error:.2f} points)"


def show_score(net: Facts, score: Score) -> str:
    """The score with its standard error, where it has one; without an error, no ± would be true on both sides.

    >>> show_score({"accuracy": 99.0, "errors": 100, "images": 10000}, Score())
    '99.00 ± 0.10 %'
    >>> show_score({"accuracy": 100.0, "errors": 0, "images": 400}, Score())
    '100.00 %'
    >>> show_score({"accuracy": 0.6, "image_scores": [0.5, 0.7, 0.6, 0.6]}, Score("mean IoU", percent=False))
    '0.600 ± 0.041'
    """
    value, error = find_number(net, "accuracy"), _error_in(net, score)
    if value is None or not error or _has_no_error(net):
        return score.show(value)
    return f"{value:.2f} ± {error:.2f} %" if score.percent else show_difference(value, error)


def show_error(net: Facts, score: Score) -> str | None:
    """The same ± alone, where there is no room beside the score.

    >>> show_error({"accuracy": 99.0, "errors": 100, "images": 10000}, Score()), show_error({}, Score())
    ('± 0.10', None)
    """
    _, sign, error = show_score(net, score).removesuffix(" %").partition(" ± ")
    return f"± {error}" if sign else None


def _error_in(net: Facts, score: Score) -> float | None:
    """The standard error in the unit of the score: counted errors say nothing of one that is no percentage."""
    return uncertainty(net) if score.percent or find_numbers(net, "image_scores") else None


def _say_one(final: Facts, score: Score) -> str:
    """Score and size; of several seeds the mean leads."""
    accuracy, size = find_number(final, "accuracy"), find_number(final, "file_bytes")
    shown = show_score(final, score) if score.percent else f"{score.name} {show_score(final, score)}"
    if seeds := find_part(final, "seeds"):
        named = "" if score.percent else f"{score.name} "
        shown = f"{named}{show_seeds(seeds, score)} over {show_count(find_number(seeds, 'count'))} seeds"
    elif accuracy is None:
        shown = f"{score.name} unknown"
    flash, ram = find_flash(final), find_ram(final)
    if flash is not None and ram is not None:  # what a microcontroller has to hold; the file stays behind
        return f"{shown} in {show_count(flash)} bytes of flash and {show_count(ram)} of RAM"
    return shown if size is None else f"{shown} in {show_count(size)} bytes"


def _say_several(finals: list[Facts], dense: Facts, score: Score) -> str:
    """Those of one bound by name, the best first; else from the lowest score to the best, the smaller of equals first.

    >>> of = {"limit": 8000, "seeds": {"count": 3, "mean": 55.7, "std": 4.3}}
    >>> _say_several([of | {"name": "A"}, of | {"name": "B"}], {"accuracy": 80.0}, Score())
    '2 networks: B 55.70 ± 4.30 %, A 55.70 ± 4.30 %, dense 80.00 %; 3 seeds.'
    """
    ranked = sorted(finals, key=_rank)
    low, best = (_say_one(final, score) for final in (ranked[0], ranked[-1]))
    limits = {find_number(final, "limit") for final in finals}
    words, last = f"{len(finals)} networks, from {low} to {best}", f"; dense: {_say_one(dense, score)}."
    if len(limits) == 1 and None not in limits and len(finals) <= MOST_NAMED:
        named = f"{len(finals)} networks{'' if score.percent else f', {score.name}'}: "
        shown = [f"{find_text(each, 'name')} {_show_known(each, score)}" for each in reversed(ranked)]
        counts = {find_number(find_part(each, "seeds"), "count") for each in finals}
        seeds = f"; {show_count(counts.pop())} seeds" if len(counts) == 1 and None not in counts else ""
        words, last = f"{named}{', '.join(shown)}", f", dense {_show_known(dense, score)}{seeds}."
        if not dense:
            words = f"{words}{seeds}"
    if guessing := [find_text(final, "name") or "" for final in finals if is_guessing(final)]:
        which = "all" if len(guessing) == len(finals) else ", ".join(guessing)
        words = f"{_say_guessing(ranked[0])}: {which}. {words}"
    return words + (last if dense else ".")


def _show_known(net: Facts, score: Score) -> str:
    """Its score, the mean where there are seeds."""
    seeds = find_part(net, "seeds")
    return show_seeds(seeds, score) if seeds else show_score(net, score)


def _rank(final: Facts) -> tuple[float, float]:
    """Its score, the mean where there are seeds, and its bytes."""
    value = find_number(find_part(final, "seeds"), "mean")
    if value is None:
        value = find_number(final, "accuracy")
    return (-math.inf if value is None else value, find_number(final, "file_bytes") or 0.0)
