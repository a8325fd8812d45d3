"""Lines to copy: how to use the file in Python, on the command line and on a device, to the class, mask or number."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from membound.report.device import find_folder, is_micro, say_export, say_way
from membound.report.engines import gains_by_integers, say_which
from membound.report.guessing import is_guessing, say_guess
from membound.report.markup import Markup, code, join, tag
from membound.report.pixels import find_ious
from membound.report.text import find_part, find_rows, find_text, name_of_example, name_of_examples
from membound.units import R_SQUARED

Facts = Mapping[str, Any]

MASK = """from PIL import Image, ImageOps

import membound as mb

LOAD
picture = ImageOps.exif_transpose(Image.open("photo.jpg"))
x = net.preprocess(net.read(picture))  # resized, and its center
y = net(x)  # a score for each class at each pixel: [1, classes, H, W]
mask = y.argmax(1)[0].astype("uint8")  # the number of each pixel's class: [H, W]
for number in set(mask.flat):
    print(NAME, (mask == number).mean())  # a class, and its share of the pixels
# back to the picture's size; 255 is outside of the center
whole = ImageOps.pad(Image.fromarray(mask), picture.size, Image.Resampling.NEAREST, color=255)
whole.save("mask.png")"""
FIRMWARE = """/* with FOLDER/ on the include path, and its .c files compiled but for main.c and net_test.c */
#include "net.h"

static net_context context; /* all RAM but the stack */
net_start(&context);
while (!net_feed_row(&context, next_row(), 1, NET_CHANNELS)) {} /* next_row() is yours: a row of the EXAMPLE */
"""
OF_CLASSES = "uint32_t found = net_best(&context); /* the number of the class */"
OF_NUMBERS = (
    "float number = NET_OUTPUT_SCALE * (float)(net_output(&context, 0) - NET_OUTPUT_ZERO); /* in y's unit */"
)
OF_FLOATS = (
    "/* a row has NET_WIDTH * NET_CHANNELS bytes, each net_input(number, channel) of one of your numbers */"
)


def make_usage(result: Facts) -> Markup | None:
    """Lines to copy: the file in Python and on the command line."""
    files = [name for final in find_rows(result, "finals") if (name := find_text(final, "file"))]
    if not files:
        return None
    finals, data, micro = find_rows(result, "finals"), find_text(result, "data"), is_micro(result)
    literal = json.dumps(files[0], ensure_ascii=False)
    way = "micro" if micro else "int8" if gains_by_integers(finals[0]) else None
    engine = f', engine="{way}"' if way else ""
    option = f" --engine {way}" if way else ""
    save = f"fitted.save({literal})\n" if result.get("unsaved") else ""
    python = _say_python(
        finals[0], f"{save}net = mb.load({literal}{engine})", find_text(result, "score_name")
    )
    quoted = shlex.quote(files[0])
    evaluated = f" --data {shlex.quote(data)}" if data and not save else " --data DATA"
    evaluated += option
    if layout := re.search(r"--layout ([A-Z]+)", find_text(result, "command") or ""):
        evaluated += f" --layout {layout[1]}"
    first, several = finals[0], len(finals) > 1
    last = (
        "\n".join(say_export(final, several) for final in finals if find_text(final, "file"))
        if micro
        else f"membound bench {quoted}{' --int8' if way else ''}\n"
        f"membound export {quoted} --cpp app{option}  # C++ for an app"
    )
    about = say_way(first) if micro else ""
    shell = f"membound evaluate {quoted}{evaluated}\nmembound inspect {quoted}{about}\n{last}"
    others = "The others load in the same way: " + ", ".join(files[1:]) + "." if len(files) > 1 else None
    in_c = None
    if micro:
        floats = find_text(find_part(first, "micro"), "flash_not_included")
        called = FIRMWARE.replace("FOLDER", find_folder(first, several))
        called = called.replace("EXAMPLE", name_of_example(first))
        called += OF_NUMBERS if find_text(result, "score_name") else OF_CLASSES
        in_c = code(f"{called}\n{OF_FLOATS}" if floats else called)
    notes = [None if micro else say_which(first), others]
    guesses = None
    if all(map(is_guessing, finals)):
        rest = f" {'this network is' if not several else 'these networks are'} {say_guess(first)}."
        guesses = tag("p", tag("strong", "Train longer first:"), rest)
    return join(
        guesses,
        code(python),
        code(shell),
        in_c,
        *(tag("p", words, class_="note") for words in notes if words),
    )


def _say_python(final: Facts, load: str, score: str | None) -> str:
    """From a picture, or an array, to what was asked for.

    >>> print(_say_python({"input_shape": [3]}, 'net = mb.load("n.safetensors")', "R²"))
    import membound as mb
    <BLANKLINE>
    net = mb.load("n.safetensors")
    x = net.preprocess(examples)  # as in training: [N, 3], as the data was
    y = net(x)  # a row for each example: its numbers, in the units of the targets
    print(y[0])
    """
    if final.get("takes_pictures") and find_ious(final):
        return MASK.replace("LOAD", load).replace("NAME", _name("number", final))
    return f"import membound as mb\n\n{load}\n{_say_prepare(final)}\n{_say_call(final, score)}"


def _name(number: str, final: Facts) -> str:
    """The name of a class, where it has one."""
    return f"net.classes[{number}]" if final.get("class_names") else number


def _say_prepare(final: Facts) -> str:
    """
    >>> _say_prepare({"input_shape": [40, 49]})
    'x = net.preprocess(examples)  # as in training: [N, 40, 49], as the data was'
    """
    if final.get("takes_pictures"):
        return 'x = net.preprocess(net.read("photo.jpg"))  # or images as in training: uint8 [N, C, H, W]'
    name = name_of_examples(final)
    if name == "images":
        return "x = net.preprocess(images)  # as in training: [N, C, H, W], uint8 or as the data was"
    shape = ", ".join(map(str, ("N", *(final.get("input_shape") or ["..."]))))
    return f"x = net.preprocess({name})  # as in training: [{shape}], as the data was"


def _say_call(final: Facts, score: str | None) -> str:
    """The call, and what its numbers mean.

    >>> print(_say_call({"class_names": ["cat", "dog"], "classes": [{"name": "cat"}]}, None))
    y = net(x)  # a row for each image: a score for each class
    print(net.classes[y[0].argmax()])
    >>> print(_say_call({"class_iou": [0.5, 0.4], "input_shape": [4, 8, 8]}, "mean IoU"))
    y = net(x)  # [N, classes, ...]: a score for each class at each pixel
    mask = y.argmax(1)  # the number of each pixel's class
    >>> print(_say_call({}, "F1"))
    y = net(x)  # numpy in, numpy out
    """
    example = name_of_example(final)
    if find_ious(final):
        scores = "y = net(x)  # [N, classes, ...]: a score for each class at each pixel"
        return f"{scores}\nmask = y.argmax(1)  # the number of each pixel's class"
    if score == R_SQUARED:
        return (
            f"y = net(x)  # a row for each {example}: its numbers, in the units of the targets\nprint(y[0])"
        )
    if score is not None:  # of the user's own, who knows what the outputs are
        return "y = net(x)  # numpy in, numpy out"
    best = _name("y[0].argmax()", final)
    return f"y = net(x)  # a row for each {example}: a score for each class\nprint({best})"
