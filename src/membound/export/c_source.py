"""A planned network as C: net.c with its constants, net.h with its sizes, and what the runtime has to have for it."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np

from membound.export.c_input import c_float, input_functions, input_macros
from membound.export.c_readme import example_of, says_class
from membound.micro.code import CONFIG
from membound.micro.identity import identify
from membound.micro.numbers import FixedInput, steps_of
from membound.micro.plan import MicroPlan, net_record, op_record, value_record
from membound.micro.used import features

_TYPES = {"int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "int32": "int32_t"}
_POINTERS = {"stream", "palette", "bias", "multiplier", "shift", "table"}
_PARTS = {"weight": "mb_weight", "scale": "mb_scale", "sum": "mb_sum", "pool": "mb_pool"}
_PER_LINE = 24
ABOUT_BYTES = {"image": "pixels, 0 to 255", "example": "uint8, as the training data has them"}
FIRST_LINE = (
    "/* A network that membound wrote: include this header, and compile net.c and the runtime next to it. */"
)
MOST_NAMES = 100  # classes that are listed
WIDE = 118  # columns


def header_text(
    plan: MicroPlan,
    preprocess: Mapping[str, Any] | None = None,
    fixed: FixedInput | None = None,
    classes: list[str] | None = None,
) -> str:
    """net.h: sizes, scales, and the functions; `preprocess` is how numbers are prepared, as a file says it.

    With `fixed` numbers may come as integers, too. Names of classes are a comment.
    """
    net = plan.net
    channels, height, width = net.images[0]
    outputs = net.images[net.output]
    last = net.quantizations[net.output]
    made_by = "made by net_input" if fixed is None else "made by net_input_fixed"
    about = ABOUT_BYTES[example_of(plan)] if net.takes_pixels else made_by
    arena = plan.layout.nbytes
    macros, functions = "", ""
    if not net.takes_pixels:
        known = steps_of(plan, preprocess)
        macros, functions = input_macros(known, fixed), input_functions(known, fixed)
    return f"""{FIRST_LINE}
/* For every input: net_start, then net_feed_row for each row until it returns 1, then net_best or net_output.
 * README.md shows the loop. */
#ifndef NET_H
#define NET_H

#include "membound_micro.h"

#ifdef __cplusplus
extern "C" {{
#endif

#define NET_ID 0x{identify(net)}u /* which network it is, a hash: `membound inspect FILE` prints it */
#define NET_CHANNELS {channels}
#define NET_HEIGHT {height}
#define NET_WIDTH {width}
{macros}\
#define NET_OUTPUTS {outputs[0] * outputs[1] * outputs[2]}
#define NET_CLASSES {outputs[0] if says_class(plan, classes) else 0} /* 0 if outputs are \
numbers, not class scores */
#define NET_OUTPUT_SCALE {c_float(last.scale)} /* output q stands for NET_OUTPUT_SCALE * (q - NET_OUTPUT_ZERO) */
#define NET_OUTPUT_ZERO ({last.zero})
#define NET_ARENA_BYTES {arena}
#define NET_COUNTERS {plan.counters}

/* The state of one inference: all the RAM that it takes, except for the stack. Make it static. Inferences that run at
 * the same time need one each. */
typedef struct {{
  uint32_t arena[NET_ARENA_BYTES / 4];
  uint16_t counters[NET_COUNTERS];
}} net_context;
{functions}
/* Start a new input: call it before the first row. */
void net_start(net_context *context);

/* Feed the next row: {channels} x {width} bytes ({about}). The byte for channel c and column x is
 * row[c * channel_step + x * pixel_step]; if the channels of each column are next to each other, call
 * net_feed_row(context, row, 1, NET_CHANNELS). Returns 1 with the last row, when the outputs are ready, else 0. Until
 * you call net_start, rows that you feed after the last one are dropped, with 1 as well.
 * The row is copied: you can reuse its buffer as soon as the call returns. */
int net_feed_row(net_context *context, const uint8_t *row, uint32_t channel_step, uint32_t pixel_step);

/* Output `index`, from 0 to NET_OUTPUTS - 1. Valid only after net_feed_row has returned 1, and until the next
 * net_start. */
int8_t net_output(const net_context *context, uint32_t index);

{_say_best(says_class(plan, classes))}
{_name_classes(classes)}\
uint32_t net_best(const net_context *context);

#ifdef __cplusplus
}}
#endif
#endif
"""


def _say_best(of_classes: bool) -> str:
    """What net_best gives.

    >>> _say_best(False)
    '/* The index of the largest output. These outputs are numbers, not class scores: use net_output. */'
    """
    if of_classes:
        return "/* The class: the index of the largest output, the first of equal ones. Valid when net_output is. */"
    return (
        "/* The index of the largest output. These outputs are numbers, not class scores: use net_output. */"
    )


def _name_classes(classes: Sequence[str] | None) -> str:
    """A comment, where they have names that are no numbers.

    >>> print(_name_classes(["at rest", "*/ walking"]), end="")
    /* Classes: 0 at rest, 1 __ walking. */
    >>> _name_classes(["0", "1"]), _name_classes(None)
    ('', '')
    """
    if classes is None or all(name == str(number) for number, name in enumerate(classes)):
        return ""
    named = ", ".join(f"{number} {_plain(name)}" for number, name in enumerate(classes[:MOST_NAMES]))
    more = f", and {len(classes) - MOST_NAMES:,} more" if len(classes) > MOST_NAMES else ""
    return (
        fill(f"/* Classes: {named}{more}.", WIDE, subsequent_indent=" * ", break_on_hyphens=False) + " */\n"
    )


def source_text(plan: MicroPlan) -> str:
    """net.c."""
    net = plan.net
    parts = [
        '/* The constants of a network: made by membound, not meant to be edited. */\n#include "net.h"\n',
        _needs(plan),
    ]
    ops = []
    for number, op in enumerate(net.ops):
        record = op_record(plan, number)
        fields = []
        for key, value in record.items():
            if key not in _PARTS:
                fields.append(str(value))
                continue
            if value is None:
                fields.append("0")
                continue
            name = f"{key}_{number}"
            parts.append(_record(name, _PARTS[key], value))
            fields.append(f"&{name}")
        ops.append(f"    /* {number}: {_plain(op.name)} */\n    {{{', '.join(fields)}}},")
    values = [_braces(value_record(plan, value)) for value in range(len(net.images))]
    record = net_record(plan)
    parts.append(array_text("input", record.pop("input")))
    parts.append("static const mb_value values[] = {\n" + "".join(f"    {v},\n" for v in values) + "};\n")
    parts.append("static const mb_op ops[] = {\n" + "\n".join(ops) + "\n};\n")
    parts.append(
        f"static const mb_net net_network = {{ops, values, input, {', '.join(map(str, record.values()))}}};\n"
    )
    rows, columns = net.images[net.output][1:]
    functions = FUNCTIONS.replace(_OF_MAP, _OF_VECTOR) if rows == columns == 1 else FUNCTIONS
    parts.append(functions.format(rows=rows, columns=columns))
    return "\n".join(parts)


_OF_VECTOR = "  return mb_output(&net_network, context->arena, index, 0, 0);"
_OF_MAP = """  const uint32_t channel = index / ({rows}u * {columns}u);
  return mb_output(&net_network, context->arena, channel, index / {columns}u % {rows}u, index % {columns}u);"""
FUNCTIONS = (
    """void net_start(net_context *context) {{ mb_start(&net_network, context->counters); }}

int net_feed_row(net_context *context, const uint8_t *row, uint32_t channel_step, uint32_t pixel_step) {{
  return mb_feed_row(&net_network, context->counters, context->arena, row, channel_step, pixel_step);
}}

int8_t net_output(const net_context *context, uint32_t index) {{
"""
    + _OF_MAP
    + """
}}

uint32_t net_best(const net_context *context) {{
  uint32_t best = 0, index;
  for (index = 1; index < NET_OUTPUTS; index++)
    if (net_output(context, index) > net_output(context, best)) best = index;
  return best;
}}
"""
)


def _needs(plan: MicroPlan) -> str:
    """A runtime without what the network uses would run, and do something else: the compiler stops before."""
    missing = " || ".join(f"!MB_HAS_{name}" for name in features(plan))
    if not missing:
        return ""
    return (
        f'#if {missing}\n#error "{CONFIG} is of another network: it leaves out what this one uses"\n#endif\n'
    )


def _record(name: str, kind: str, record: dict[str, Any]) -> str:
    """A structure, behind the arrays that it points to."""
    arrays, fields = [], []
    for key, value in record.items():
        if key not in _POINTERS or isinstance(value, int):
            fields.append(str(value))
        elif value is None or not len(value):
            fields.append("0")
        else:
            arrays.append(array_text(f"{name}_{key}", value))
            fields.append(f"{name}_{key}")
    return "".join(arrays) + f"static const {kind} {name} = {{{', '.join(fields)}}};\n"


def array_text(name: str, values: Any, kind: str = "static const") -> str:
    """A definition of an array."""
    numbers = [_number(value, values.dtype.name) for value in values.tolist()]
    lines = [", ".join(numbers[i : i + _PER_LINE]) for i in range(0, len(numbers), _PER_LINE)]
    return (
        f"{kind} {_TYPES[values.dtype.name]} {name}[{len(numbers)}] = {{\n    "
        + ",\n    ".join(lines)
        + "};\n"
    )


def _number(value: int, kind: str) -> str:
    return "(-2147483647 - 1)" if kind == "int32" and value == np.iinfo(np.int32).min else str(value)


def _braces(record: dict[str, Any]) -> str:
    return f"{{{', '.join(map(str, record.values()))}}}"


def _plain(text: str) -> str:
    """A name as it may stand in a comment."""
    return "".join(c if c.isalnum() or c in " ._-" else "_" for c in text)[:60]
