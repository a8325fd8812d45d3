"""The first screen: bytes, accuracy, latency, memory, each beside dense and 8 bits; worse as large as better.

A network for a microcontroller has flash and RAM instead of latency and memory, and the time that is estimated.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from membound.report.device import (
    find_flash,
    find_level,
    find_limit,
    find_other,
    find_ram,
    find_time,
    is_micro,
    say_clock,
    unbroken,
)
from membound.report.elsewhere import fastest_elsewhere
from membound.report.engines import SAME, gains_by_integers, noise_between
from membound.report.guessing import is_guessing, say_guess, say_share
from membound.report.markup import Markup, join, keep_options, tag
from membound.report.paired import BETTER, WORSE, say_verdict
from membound.report.spread import compare, say_rule
from membound.report.text import (
    Score,
    divide,
    find_number,
    find_part,
    find_rows,
    find_text,
    name_of_example,
    show_count,
    show_milliseconds,
    show_threads,
)
from membound.report.verdict import (
    say_seeds,
    say_uncertainty,
    show_score,
    show_seeds,
)
from membound.units import R_SQUARED, show_bytes, show_ms

Facts = Mapping[str, Any]
MOST_LARGE = 14  # letters of a large number
MOST_COUNTED = 1_000_000  # bytes that are shown one by one
NOISY = 1.25  # times as fast or as slow that may be chance: beyond this the card says so
EVEN = "even"
LITTLE = 1.2  # times smaller or larger: said, but not in color
FLOATS = "in floats (the default)"
MEANT = {
    R_SQUARED: "the part of the variance of the training targets that is explained; 1 is perfect; always predicting "
    "the mean scores 0",
    "mean IoU": "how well masks overlap, the pixels in both divided by the pixels in either, for each class; 1 is "
    "perfect",
}
Show = Callable[[float | None], str]
Told = tuple[str, str]  # how it compares, in words and as better, worse or even


def make_tiles(result: Facts, score: Score) -> Markup | None:
    """Four numbers of a single network; None where there are several, or nothing to compare a file with."""
    finals, dense = find_rows(result, "finals"), find_part(result, "dense")
    if len(finals) != 1 or not (dense or is_micro(result)):
        return None
    (final,), int8 = finals, find_part(dense, "int8")
    size = partial(find_number, key="file_bytes")
    file = _tile("file", _size, size, final, dense, int8, base="dense file")
    accuracy = _score_tile(final, dense, int8, score)
    if is_micro(result):
        tiles = [
            _tile("flash", _size, find_flash, final, dense, int8, _say_flash(final)), accuracy,
            _tile("RAM", _size, find_ram, final, dense, int8, _say_ram(final)),
            _time_tile(final, int8) or file,
        ]  # fmt: skip
    else:
        memory = partial(find_number, key="memory_bytes")
        tiles = [
            file, accuracy, _latency_tile(final, dense, int8),
            _tile("memory to run", _room, memory, final, dense, int8, _in_integers(final),
                  way=_say_room(final)),
        ]  # fmt: skip
    known = [tile for tile in tiles if tile is not None]
    if not known:
        return None
    told = say_seeds(final, dense, score)
    notes = filter(
        None, (None if told else say_uncertainty(final, score, dense), told, say_rule(final, dense))
    )
    paragraphs = [say_names(result, score), join(" ".join(notes))]
    said = (tag("p", words, class_="note") for words in paragraphs if words)
    look = "tiles guessing" if is_guessing(final) else "tiles"  # then less is no better
    return join(tag("div", *known, class_=look), *said)


def say_names(result: Facts, score: Score) -> Markup:
    """What dense, 8 bits and the score are, for who was sent the page.

    >>> print(say_names({"dense": {"int8": {"accuracy": 0.9}}}, Score("R²", percent=False)))
    <strong>Dense</strong>: the same network with all of its weights, in float32, trained the same way. \
<strong>8 bits</strong>: dense with its weights rounded to 8 bits. <strong>R²</strong>: the part of the variance of \
the training targets that is explained; 1 is perfect; always predicting the mean scores 0.
    """
    dense = find_part(result, "dense")
    names = {
        "Dense": "the same network with all of its weights, in float32, trained the same way"
        if dense
        else None,
        "8 bits": "dense with its weights rounded to 8 bits" if find_part(dense, "int8") else None,
        score.name[:1].upper() + score.name[1:]: MEANT.get(score.name),
    }
    known = [join(tag("strong", name), f": {said}.") for name, said in names.items() if said]
    return Markup(" ".join(known))


def compare_amounts(ours: float, theirs: float, words: tuple[str, str], noise: float = SAME) -> Told:
    """How many times less or more, where less is better.

    >>> compare_amounts(2.0, 5.0, ("as fast", "as slow")), compare_amounts(5.0, 2.0, ("as fast", "as slow"))
    (('2.5 times as fast', 'better'), ('2.5 times as slow', 'worse'))
    >>> compare_amounts(900, 1000, ("smaller", "larger"))
    ('1.1 times smaller', 'even')
    """
    times = divide(theirs, ours) or 1.0
    if ours == theirs and noise == SAME:  # counted, not timed
        return "the same", EVEN
    if 1 / noise <= times <= noise:
        return "about the same", EVEN
    shown = max(times, 1 / times)
    digits = 0 if shown >= 10 else 1
    kind = EVEN if shown < LITTLE else BETTER if times > 1 else WORSE
    return f"{shown:.{digits}f} times {words[times < 1]}", kind


def compare_scores(ours: Facts, theirs: Facts, score: Score) -> Told | None:
    """The verdict, and by how much; without a spread only above or below.

    >>> net = {"accuracy": 99.0, "errors": 100, "images": 10000}
    >>> compare_scores(net, {**net, "accuracy": 99.1, "errors": 90}, Score())
    ('within the spread (0.10 points below)', 'even')
    >>> compare_scores({"accuracy": 0.86551}, {"accuracy": 0.86547}, Score("R²", percent=False))
    ('about the same', 'even')
    """
    found = compare(ours, theirs)
    if found is None:
        return None
    words = say_verdict(found, score, brief=True)
    if found.verdict is None:
        shown = [score.show(find_number(net, "accuracy")) for net in (ours, theirs)]
        if shown[0] == shown[1]:
            return "about the same", EVEN
        return words, EVEN if found.difference == 0 else BETTER if found.difference > 0 else WORSE
    return words, found.verdict if found.verdict in (BETTER, WORSE) else EVEN


def _size(value: float | None) -> str:
    """Exact: a budget of 8 KB is not 7.8 KiB to who reads it.

    >>> _size(7976), _size(None)
    ('7,976 bytes', '')
    """
    return "" if value is None else f"{show_count(value)} bytes"


def _room(value: float | None) -> str:
    """Exact as long as that is short.

    >>> _room(723528), _room(1725280)
    ('723,528 bytes', '1.73 MB')
    """
    return _size(value) if value is None or value < MOST_COUNTED else show_bytes(value)


def _tile(
    head: str,
    show: Show,
    find: Callable[[Facts], float | None],
    final: Facts,
    dense: Facts,
    int8: Facts,
    *notes: str | None,
    base: str = "dense",
    way: str | None = None,
) -> Markup | None:
    ours = find(final)
    if ours is None:
        return None
    lines = [tag("p", way, class_="against")] if way else []
    lines += [
        _line(*compare_amounts(ours, theirs, ("smaller", "larger")), name, _room(theirs))
        for name, net in ((base, dense), ("8 bits", int8))
        if (theirs := find(net)) is not None
    ]
    lines += [
        note if isinstance(note, Markup) else tag("p", note, class_="against") for note in notes if note
    ]
    return _draw(head, show(ours), lines)


def _say_way(final: Facts) -> str | None:
    """In which engine, and on how many threads; None where nothing was timed.

    >>> _say_way({"latency_ms": 0.2, "threads": 2}), _say_way({})
    ('in floats (the default), on 2 threads', None)
    """
    if find_number(final, "latency_ms") is None:
        return None
    return f"{FLOATS}, on {show_threads(find_number(final, 'threads') or 1)}"


def _say_room(final: Facts) -> str:
    """What is counted, for one thread as bounds count it. Kernels of wider vectors need more room: the most of all CPUs
    is said, unless a bound names one.

    >>> _say_room({"memory_isa": "every"}), _say_room({"memory_isa": "neon"}), _say_room({})
    ('on 1 thread, file included, on any CPU', 'on 1 thread, file included, with neon', 'on 1 thread')
    >>> _say_room({"latency_ms": 0.2, "engine_int8": {"latency_ms": 0.1, "memory_bytes": 54332}})
    'in floats (the default), on 1 thread'
    """
    isa, integers = find_text(final, "memory_isa"), find_part(final, "engine_int8")
    known = [
        FLOATS if find_number(integers, "memory_bytes") is not None and gains_by_integers(final) else None,
        "on 1 thread",
        isa and f"file included, {'on any CPU' if isa == 'every' else f'with {isa}'}",
    ]
    return ", ".join(filter(None, known))


def _in_integers(final: Facts) -> Markup | None:
    """The memory of the engine that the page tells to use, where that is not floats, the engine of the cards.

    >>> integers = {"latency_ms": 0.1, "memory_bytes": 54332}
    >>> print(_in_integers({"latency_ms": 0.2, "engine_int8": integers}))
    <p class="against part">in int8: <span class="whole">54,332 bytes</span></p>
    >>> _in_integers({"latency_ms": 0.2})
    """
    memory = find_number(find_part(final, "engine_int8"), "memory_bytes")
    return None if memory is None or not gains_by_integers(final) else _integers_line(_room(memory))


def _integers_line(shown: str) -> Markup:
    """Below it may be what int8 is compared with."""
    return tag("p", "in int8: ", tag("span", shown, class_="whole"), class_="against part")


def _latency_tile(final: Facts, dense: Facts, int8: Facts) -> Markup | None:
    """In floats, as on the other cards, beside dense in floats; then engine int8, where that is faster, beside others.

    Without that engine, floats are what is compared with others.
    """
    ours, theirs = find_number(final, "latency_ms"), find_number(dense, "latency_ms")
    if ours is None:
        return None
    gains, peer = gains_by_integers(final), fastest_elsewhere(dense)
    used = find_part(final, "engine_int8") if gains else final
    lines, noise = [tag("p", _say_way(final), class_="against")], noise_between(final, dense)
    if theirs is not None:
        lines.append(_timed(ours, theirs, noise, "dense in floats" if gains else "dense"))
    if gains:
        lines.append(_integers_line(show_milliseconds(find_number(used, "latency_ms"))))
    if peer is not None:
        net, kind, by = peer
        mine, taken = (find_number(each, "latency_ms") or 0.0 for each in (used, net))
        lines.append(_timed(mine, taken, noise_between(used, net), f"{kind}, {by}"))
        noise = max(noise, noise_between(used, net))
    elif int8:  # float32 on 8-bit weights says nothing of int8 kernels
        lines.append(
            tag("p", "8 bits: not timed here; run ", _command("membound bench --int8"), class_="against")
        )
    if noise > NOISY:
        lines.append(
            tag("p", f"times vary by up to {noise - 1:.0%} here".replace("%", " %"), class_="against")
        )
    return _draw(f"latency of one {name_of_example(final)}", show_milliseconds(ours), lines)


def _timed(ours: float, theirs: float, noise: float, name: str) -> Markup:
    return _line(
        *compare_amounts(ours, theirs, ("as fast", "as slow"), noise), name, show_milliseconds(theirs)
    )


def _command(text: str) -> Markup:
    """Code that wraps in a narrow tile, but not within an option."""
    return tag("code", *keep_options(text))


def _time_tile(final: Facts, int8: Facts) -> Markup | None:
    """On a microcontroller, as estimated: dense runs there in 8 bits only."""
    ours, theirs = find_time(final), find_time(int8)
    if ours is None:
        return None
    lines = []
    if theirs is not None:
        lines.append(_line(*compare_amounts(ours, theirs, ("as fast", "as slow")), "8 bits", show_ms(theirs)))
    allowed = find_number(find_part(final, "latency_bound"), "bound_ms")
    within = "" if allowed is None else f"of {allowed:g} ms allowed, on "
    lines.append(
        tag(
            "p",
            unbroken(f"{within}{say_clock(final)}, at {find_level(final)}"),
            class_="against",
        )
    )
    if (other := find_other(final)) is not None:
        lines.append(tag("p", unbroken(f"{show_ms(other[2])} at {other[0]}"), class_="against"))
    if (longest := find_number(find_part(final, "micro"), "longest_call_ms")) is not None:
        lines.append(tag("p", unbroken(f"longest call {show_ms(longest)}"), class_="against"))
    return _draw(f"time of one {name_of_example(final)}, estimated", show_ms(ours), lines)


def _say_ram(final: Facts) -> str | None:
    allowed = find_number(final, "memory_limit")
    return None if allowed is None else f"of {show_count(allowed)} bytes allowed"


def _say_flash(final: Facts) -> str:
    """What the budget allows, and what the other way to compile takes."""
    other, limit = find_other(final), find_limit(final)
    within = "" if limit is None else f"of {show_count(limit)} bytes allowed, "
    beside = "" if other is None else f"; at {other[0]} it takes {show_count(other[1])}"
    return unbroken(f"{within}at {find_level(final)}{beside}")


def _score_tile(final: Facts, dense: Facts, int8: Facts, score: Score) -> Markup | None:
    if find_number(final, "accuracy") is None:
        return None
    on = final.get("accuracy_on")
    head = f"{score.name} on {on}" if on else score.name
    others = (("dense", dense), ("8 bits", int8))
    seeds = find_part(final, "seeds")
    integers = find_part(final, "engine_int8")
    both = not seeds and find_number(integers, "accuracy") is not None  # known where it is faster
    lines = [tag("p", FLOATS, class_="against")] if both else []
    lines += [
        _line(*told, name, _show_beside(net, score, bool(seeds)))
        for name, net in others
        if (told := compare_scores(final, net, score)) is not None
    ]
    if both:
        lines.append(_integers_line(show_score({"images": final.get("images"), **integers}, score)))
    if is_guessing(final):
        words = tag("strong", say_guess(final), class_=WORSE)
        lines.insert(
            0, tag("p", words, f" {say_share(final)}", class_="against")
        )  # the words are a line alone
    if seeds:
        head, shown = f"{head}, {show_count(find_number(seeds, 'count'))} seeds", show_seeds(seeds, score)
        return _draw(head, shown, lines)
    return _draw(head, show_score(final, score), lines)


def _show_beside(net: Facts, score: Score, over_seeds: bool) -> str:
    """What ours is compared with, with the ± that decides."""
    seeds = find_part(net, "seeds")
    return show_seeds(seeds, score) if over_seeds and seeds else show_score(net, score)


def _draw(head: str, value: str, lines: list[Markup]) -> Markup:
    size = "number long" if len(value) > MOST_LARGE else "number"
    return tag("div", tag("h2", head), tag("p", value, class_=size), *lines, class_="tile")


def _line(words: str, kind: str, name: str, shown: str) -> Markup:
    return tag(
        "p",
        tag("strong", words, class_=kind),
        f" {name}: ",
        tag("span", shown, class_="whole"),
        class_="against",
    )
