"""What to do about a network that came out poorly: a sentence each, for the page and the command."""

from collections.abc import Mapping, Sequence
from typing import Any

from membound.report.device import say_binding, say_more_room
from membound.report.eight_bits import TAKEN, uncertainty
from membound.report.guessing import BEYOND_CHANCE, is_guessing, points_far_below, predicts_numbers
from membound.report.paired import BETTER, WITHIN, WORSE
from membound.report.spread import compare
from membound.report.text import find_number, find_part, find_rows, name_of_example, show_count

Facts = Mapping[str, Any]
SHORT = 0.1  # of the usual steps
HALF = 0.5  # of the usual steps: short where the network is below dense
FEW_BYTES = 1000  # of a file: little but its header
KEYWORDS = {
    "widths=[1, 1.5, 2]": "--widths 1,1.5,2",
    "give layout ": "give --layout ",
    'compiled="O2"': "--compiled O2",
    'compiled="Os"': "--compiled Os",
    "(lr=0.005)": "(--lr 0.005)",
    "had clock=": "had --clock ",
    "had input_unit=": "had --input-unit ",
}
FALLING = 0.9  # of the loss a quarter before the end


def say_advice(result: Facts) -> list[str]:
    """Why a network predicts one class for everything or only guesses, or else that its training was too short.

    >>> training = {"steps": 60, "usual_steps": 5000, "batch_size": 16}
    >>> curves = [{"iteration": 30, "loss": 0.9}, {"iteration": 60, "loss": 0.5}]
    >>> final = {"training": training, "curves": curves}
    >>> for line in say_advice({"finals": [final | {"collapsed": 0}]}):
    ...     print(line)
    It predicts class 0 for every image: it has not learned to tell classes apart.
    Why: it was trained for 60 steps, and 5,000 are usual. Train longer: steps=5000.
    >>> print(*say_advice({"finals": [final], "command": "membound fit"}))
    The loss was still falling after 60 steps, and 5,000 are usual. Train longer: --steps 5000.
    >>> final = {"training": training | {"steps": 600}, "accuracy": 97.0, "errors": 300, "images": 10000}
    >>> print(*say_advice({"finals": [final], "dense": {"accuracy": 98.0}}))
    It was trained for 600 steps, and 5,000 are usual: that may be why it is below dense. Train longer: steps=5000.
    """
    finals = find_rows(result, "finals")
    for final in finals:
        if (number := final.get("collapsed")) is not None:
            it = f"{final.get('name')}" if len(finals) > 1 else "It"
            name = name_class(int(number), final.get("class_names"))
            what = name_of_example(final) if final.get("class_iou") is None else "pixel"
            return [
                f"{it} predicts class {name} for every {what}: it has not learned to tell classes apart.",
                f"Why: {_why(final, result)}",
            ]
    if guessing := [final for final in finals if is_guessing(final)]:
        return [f"Why: {_why(guessing[0], result)}"]
    if far := _say_far(finals, result):
        return [far]
    short = [final for final in finals if _is_short(final) and _still_falls(final)]
    if not short:
        return [*_say_few_steps(finals, result), *_say_binding(finals, result)]
    steps, usual = map(show_count, _steps(short[0]))
    return [
        f"The loss was still falling after {steps} steps, and {usual} are usual. {_longer(short[0], result)}",
        *_say_binding(finals, result),
    ]


def has_collapsed(result: Facts) -> bool:
    """Whether a network predicts one class for everything: said before its score, which says little then.

    >>> has_collapsed({"finals": [{"collapsed": 0}]}), has_collapsed({"finals": [{}]})
    (True, False)
    """
    return any(final.get("collapsed") is not None for final in find_rows(result, "finals"))


def say_taken(result: Facts) -> str | None:
    """Where dense in 8 bits is what was written: said before all else.

    >>> say_taken({"finals": [{"name": "8 KB", "is_dense_in_8_bits": True}]})
    'The dense network in 8 bits fits and has learned more: it is the file. Fitting pays off in smaller budgets, or \
with longer training.'
    """
    finals = find_rows(result, "finals")
    taken = [str(final.get("name")) for final in finals if final.get("is_dense_in_8_bits")]
    if not taken:
        return None
    what = f"{TAKEN[0].upper()}{TAKEN[1:]}" if len(finals) == 1 else f"{', '.join(taken)}: {TAKEN}"
    if any(map(is_guessing, finals)):  # of which nothing follows for other budgets
        return f"{what}."
    return f"{what}. Fitting pays off in smaller budgets, or with longer training."


def says_too_short(line: str, result: Facts) -> bool:
    """Whether this is why the score says little: it belongs beside the verdict, as large.

    >>> final = {"training": {"steps": 60, "usual_steps": 5000}}
    >>> [says_too_short(each, {"finals": [final]}) for each in ("Train longer: --steps 5000.", "Flash is the bound.")]
    [True, False]
    """
    return "Train longer:" in line and any(map(_is_short, find_rows(result, "finals")))


def say_note(note: str, command: object) -> str:
    """A note in the words of who asked: a command has options where Python has keywords.

    >>> say_note("a wider network may be more accurate (widths=[1, 1.5, 2])", "membound fit lenet")
    'a wider network may be more accurate (--widths 1,1.5,2)'
    """
    return in_options(note) if is_command(command) else note


def in_options(note: str) -> str:
    """
    >>> in_options("if that is wrong, give layout NCHW")
    'if that is wrong, give --layout NCHW'
    """
    for keyword, option in KEYWORDS.items():
        note = note.replace(keyword, option)
    return note


def is_command(command: object) -> bool:
    """Whether a command line asked for the fit, and not Python."""
    return str(command or "").startswith("membound fit")


def _say_few_steps(finals: list[Facts], result: Facts) -> list[str]:
    """Said where a training shorter than usual leaves a network below dense, or far shorter where dense says nothing.

    >>> final = {"training": {"steps": 100, "usual_steps": 5000}, "accuracy": 0.239}
    >>> _say_few_steps([final], {})
    ['It was trained for 100 steps, and 5,000 are usual. Train longer: steps=5000.']
    >>> _say_few_steps([final], {"dense": {"accuracy": 0.2}})
    []
    >>> _say_few_steps([final | {"steps": 100}], {"dense": {"steps": 100}})  # which explains no difference
    ['It was trained for 100 steps, as dense was, and 5,000 are usual. Train longer: steps=5000.']
    """
    dense = find_part(result, "dense")
    below = [final for final in finals if _is_short(final, HALF) and _is_below(final, dense)]
    chosen = below or [final for final in finals if _is_short(final) and not _keeps_up(final, dense)]
    if not chosen:
        return []
    alike = [final for final in chosen if _steps(final) == _steps(chosen[0])]
    steps, usual = map(show_count, _steps(chosen[0]))
    many = len(alike) > 1
    who = " and ".join(str(final.get("name")) for final in alike) if len(finals) > 1 else "It"
    if len(alike) == len(finals) and len(alike) > 2:
        who = f"All {len(finals)} networks"
    as_dense = all(find_number(final, "steps") == find_number(dense, "steps") is not None for final in alike)
    why = f": that may be why {'they are' if many else 'it is'} below dense" if below and not as_dense else ""
    beside = ", as dense was," if as_dense else ","
    said = f"{who} {'were' if many else 'was'} trained for {steps} steps{beside} and {usual} are usual{why}."
    return [f"{said} {_longer(chosen[0], result)}"]


def _is_below(final: Facts, dense: Facts) -> bool:
    """Whether it is worse than dense: by the verdict, or else by more than chance."""
    found = compare(final, dense)
    if found is None:
        return False
    if found.verdict is not None:
        return found.verdict == WORSE
    chance = uncertainty(final)
    return chance is not None and -found.difference > BEYOND_CHANCE * chance


def _keeps_up(final: Facts, dense: Facts) -> bool:
    """Whether nothing shows it to be less than it could be: it has no errors, or is about as good as dense."""
    found = compare(final, dense)
    if find_number(final, "errors") == 0:
        return True
    if found is None:
        return False
    return found.difference >= 0 if found.verdict is None else found.verdict in (BETTER, WITHIN)


def _say_binding(finals: list[Facts], result: Facts) -> list[str]:
    """Which bound of a microcontroller leaves a network below dense.

    >>> micro = {"flash_bytes": 7950, "compiled_with": "-O2"}
    >>> final = {"accuracy": 90.0, "errors": 100, "images": 1000, "limit": 8000, "micro": micro}
    >>> print(*_say_binding([final], {"dense": {"accuracy": 93.0}, "command": "membound fit"}))
    Flash is the limiting bound (7,950 of 8,000 bytes): allow more (--budget), or compile for size (--compiled Os).
    """
    said = []
    for final in finals:
        if find_part(final, "micro") and _is_below(final, find_part(result, "dense")):
            name = f"{final.get('name')}: " if len(finals) > 1 else ""
            if binds := say_binding(final, is_command(result.get("command"))):
                said.append(f"{name}{binds}." if name else f"{binds[:1].upper()}{binds[1:]}.")
    return said


def _say_far(finals: list[Facts], result: Facts) -> str | None:
    """What to try where a microcontroller's network is far below dense: it has collapsed, or has too little room.

    >>> micro = {"flash_bytes": 3852, "compiled_with": "-Os"}
    >>> final = {"accuracy": 60.0, "errors": 400, "images": 1000, "limit": 3900, "micro": micro}
    >>> dense = {"accuracy": 98.0, "errors": 20, "images": 1000}
    >>> print(_say_far([final], {"dense": dense, "command": "membound fit"}))
    Try more room, since flash is the limiting bound (3,852 of 3,900 bytes): allow more (--budget); or train for \
longer (--steps), search for longer (--effort best), or train at a lower rate (--lr).
    >>> final["training"] = {"steps": 300, "usual_steps": 5000}
    >>> print(_say_far([final], {"dense": dense, "command": "membound fit"}))
    It was trained for 300 steps, and 5,000 are usual. Train longer: --steps 5000. If that is not enough, try more \
room, since flash is the limiting bound (3,852 of 3,900 bytes): allow more (--budget); or search for longer (--effort \
best), or train at a lower rate (--lr).
    """
    for final in finals:
        if points_far_below(final, find_part(result, "dense")) is None or not find_part(final, "micro"):
            continue
        with_options = is_command(result.get("command"))
        dashes, effort = ("--", "--effort best") if with_options else ("", 'effort="best"')
        first, room, longer = "", "Try more room", f"train for longer ({dashes}steps), "
        if _is_short(final, 1.0):  # what helps first, and costs no flash
            steps, usual = map(show_count, _steps(final))
            first = f"It was trained for {steps} steps, and {usual} are usual. {_longer(final, result)} "
            room, longer = "If that is not enough, try more room", ""
        which = (
            f"{final.get('name')} is far below dense. " if len(finals) > 1 else ""
        )  # said of one as the verdict
        return (
            f"{which}{first}{room}, since {say_more_room(final, with_options)}; or {longer}search for longer "
            f"({effort}), or train at a lower rate ({dashes}lr)."
        )
    return None


def name_class(number: int, names: Sequence[str] | None = None) -> str:
    """
    >>> name_class(1, ["apple", "pear"]), name_class(1, ["0", "1"]), name_class(1)
    ('1 (pear)', '1', '1')
    """
    name = str(names[number]) if names and number < len(names) else ""
    return f"{number} ({name})" if name not in ("", str(number)) else str(number)


def _why(final: Facts, result: Facts) -> str:
    if _is_short(final):
        steps, usual = map(show_count, _steps(final))
        return (
            f"it was trained for {steps} steps, and {usual} are usual. {_longer(final, result)}"
            f"{_say_room(final, result)}"
        )
    ours, theirs = find_number(final, "accuracy"), find_number(find_part(result, "dense"), "accuracy")
    if predicts_numbers(final) and (theirs is None or theirs <= 0):
        return _say_standardize(theirs is not None, result)
    if ours is None or theirs is None:
        return "the dense network, trained beside it, would tell whether the budget is too small or training fails."
    if theirs > 1.05 * ours:
        if final.get("micro"):
            more = say_more_room(final, is_command(result.get("command")))
            return f"the dense network learned more, so this one has too little room: {more}."
        return "the dense network learned more, so this budget is too small for it. Raise the budget."
    if _is_short(final, HALF):
        steps, usual = map(show_count, _steps(final))
        few = f"{steps} steps are few: {usual} are usual"
        return f"the dense network did no better, and {few}. {_longer(final, result)}"
    return "the dense network did no better. Look at the labels, the learning rate, and how often each class occurs."


def _say_standardize(beside_dense: bool, result: Facts) -> str:
    """What to look at where numbers are not predicted at all.

    >>> _say_standardize(True, {"command": "membound fit"})
    'the dense network did no better. Standardize targets and inputs (mean 0, deviation 1), or try another --lr.'
    """
    dense = (
        "the dense network did no better" if beside_dense else "training fails, or the budget is too small"
    )
    rate = "--lr" if is_command(result.get("command")) else "lr"
    return f"{dense}. Standardize targets and inputs (mean 0, deviation 1), or try another {rate}."


def _say_room(final: Facts, result: Facts) -> str:
    """Said where next to nothing is left of a network: of a microcontroller's, the file says nothing.

    >>> _say_room({"file_bytes": 412}, {})
    ' 412 bytes may also be too few: raise the budget.'
    >>> micro = {"weight_bytes": 66, "flash_bytes": 3852, "compiled_with": "-Os"}
    >>> _say_room({"file_bytes": 404, "limit": 3900, "micro": micro}, {})
    ' 66 bytes of weights may also be too few. Flash is the limiting bound (3,852 of 3,900 bytes): allow more (budget).'
    """
    if micro := find_part(final, "micro"):
        small = find_number(micro, "weight_bytes") or FEW_BYTES
        more = say_more_room(final, is_command(result.get("command")))
        return (
            f" {show_count(small)} bytes of weights may also be too few. {more[:1].upper()}{more[1:]}."
            if small < FEW_BYTES
            else ""
        )
    small = find_number(final, "file_bytes") or FEW_BYTES
    return f" {show_count(small)} bytes may also be too few: raise the budget." if small < FEW_BYTES else ""


def _longer(final: Facts, result: Facts) -> str:
    steps = f"{_steps(final)[1]:.0f}"
    return f"Train longer: {'--steps ' if is_command(result.get('command')) else 'steps='}{steps}."


def _steps(final: Facts) -> tuple[float, float]:
    training = find_part(final, "training")
    return find_number(training, "steps") or 0, find_number(training, "usual_steps") or 0


def _is_short(final: Facts, part: float = SHORT) -> bool:
    steps, usual = _steps(final)
    return 0 < steps < part * usual


def _still_falls(final: Facts) -> bool:
    """Whether the loss at the end is clearly below that of a quarter before."""
    points = [
        (step, loss)
        for point in find_rows(final, "curves")
        if (step := find_number(point, "iteration")) is not None
        and (loss := find_number(point, "loss")) is not None
    ]
    if len(points) < 2:
        return False
    last, loss = points[-1]
    before = [at for at in points if at[0] <= 0.75 * last]
    return bool(before) and 0 < loss < FALLING * before[-1][1]
