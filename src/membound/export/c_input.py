"""The part of net.h that turns numbers into the bytes that a network is fed: floats, and integers in a unit."""

from collections.abc import Iterable
from textwrap import fill

from membound.micro.numbers import FixedInput, Steps

WIDE, SHORT = 118, 70  # columns of a line, and of an array that stays behind its name


def input_macros(known: Steps, fixed: FixedInput | None = None) -> str:
    """How floats become bytes, and what integers count.

    >>> print(input_macros(Steps((1.0,), (124.0,))).splitlines()[2])
    #define NET_INPUT_SCALE 1.0f
    """
    alike = _alike(known.steps, known.offsets)
    shown = [
        c_float(numbers[0]) if alike else _array(map(c_float, numbers))
        for numbers in (known.steps, known.offsets)
    ]
    unit = ""
    if fixed is not None:
        units = [c_float(each) for each in fixed.units]
        counted = units[0] if len(units) == 1 else _array(units)
        unit = f"#define NET_INPUT_UNIT {counted} /* what an integer counts that net_input_fixed() takes */\n"
    return f"""\
/* net_input() turns a number{" that is prepared" if known.prepared else ""} into a byte: number / scale + offset, \
rounded, limited to 0 to 255.
 * {"All channels share scale and offset." if alike else "Each channel has its own scale and offset."} */
#define NET_INPUT_SCALE {shown[0]}
#define NET_INPUT_OFFSET {shown[1]}
{unit}"""


def input_functions(known: Steps, fixed: FixedInput | None) -> str:
    """net_input, and net_input_fixed where units are known."""
    body = _ALIKE if _alike(known.steps, known.offsets) else _EACH
    return _FLOAT.format(body) + ("" if fixed is None else _fixed_function(known, fixed))


def c_float(number: float) -> str:
    """As C writes a float.

    >>> c_float(1.0), c_float(0.25), c_float(1e-9)
    ('1.0f', '0.25f', '1e-09f')
    """
    text = f"{number:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


_FLOAT = """
/* Converts a number of this channel to the byte to feed. */
static inline uint8_t net_input(float number, uint32_t channel) {{
{0}
  if (!(byte > 0.0f)) return 0;
  return byte < 255.0f ? (uint8_t)byte : 255;
}}
"""
_ALIKE = """\
  const float byte = number / NET_INPUT_SCALE + NET_INPUT_OFFSET + 0.5f;
  (void)channel;"""
_EACH = """\
  static const float scale[NET_CHANNELS] = NET_INPUT_SCALE;
  static const float offset[NET_CHANNELS] = NET_INPUT_OFFSET;
  const float byte = number / scale[channel] + offset[channel] + 0.5f;"""


def _fixed_function(known: Steps, fixed: FixedInput) -> str:
    if _alike(fixed.factors, fixed.offsets):
        body = f"  const int64_t byte = (int64_t)number * {fixed.factors[0]} + {fixed.offsets[0]}LL;\n  (void)channel;"
    else:
        offsets = _array(f"{offset}LL" for offset in fixed.offsets)
        body = (
            f"  static const int32_t factor[NET_CHANNELS] = {_lines(_array(map(str, fixed.factors)))};\n"
            f"  static const int64_t offset[NET_CHANNELS] = {_lines(offsets)};\n"
            "  const int64_t byte = (int64_t)number * factor[channel] + offset[channel];"
        )
    counted = ", ".join(f"{unit:g}" for unit in fixed.units)
    each = "" if len(fixed.units) == 1 else " (one for each channel)"
    return f"""
/* The same without floating point, for an integer. A count of 1 stands for {counted}{each}
 * in the unit of the training data{", prepared" if known.prepared else ""}. The byte is the same on every CPU. */
static inline uint8_t net_input_fixed(int32_t number, uint32_t channel) {{
{body}
  if (byte < 0) return 0;
  return byte >> {fixed.shift} < 255 ? (uint8_t)(byte >> {fixed.shift}) : 255;
}}
"""


def _lines(array: str) -> str:
    """Behind the name of an array; what is long begins a line of its own."""
    if len(array) < SHORT:
        return array
    return "\n" + fill(array, WIDE, initial_indent="      ", subsequent_indent="      ")


def _alike(*numbers: tuple[float, ...]) -> bool:
    return len(set(zip(*numbers, strict=True))) == 1


def _array(numbers: Iterable[str]) -> str:
    return "{" + ", ".join(numbers) + "}"
