"""Numbers as people read them, and what is absent as a dash."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat

from membound.units import name_examples

ABSENT = "–"


def json_values(value: Any) -> Any:
    """The same in lists, dictionaries and numbers that JSON has; NaN and infinity, which it has not, are None.

    >>> json_values({"a": (1, float("nan")), "b": None})
    {'a': [1, None], 'b': None}
    """
    if isinstance(value, Mapping):
        return {str(key): json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(item) for item in value]
    if hasattr(value, "tolist"):  # of numpy
        return json_values(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def find_number(facts: Mapping[str, Any], key: str) -> float | None:
    """The finite number under `key`, or None: a NaN is as absent as a missing key.

    >>> find_number({"a": 3, "b": float("nan")}, "a"), find_number({"b": float("nan")}, "b")
    (3.0, None)
    """
    value = facts.get(key)
    if value is None or isinstance(value, str | bool) or not isinstance(value, SupportsFloat):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def find_part(facts: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The mapping under `key`; an empty one where there is none."""
    value = facts.get(key)
    return value if isinstance(value, Mapping) else {}


def find_rows(facts: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The mappings in the list under `key`; an empty list where there is none."""
    value = facts.get(key)
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list | tuple) else []


def find_numbers(facts: Mapping[str, Any], key: str) -> list[float]:
    """The numbers in the list under `key`; an empty list where there is none.

    >>> find_numbers({"a": [1, 0.5]}, "a"), find_numbers({"a": None}, "a")
    ([1.0, 0.5], [])
    """
    value = facts.get(key)
    return [float(each) for each in value] if isinstance(value, list | tuple) else []


def find_text(facts: Mapping[str, Any], key: str) -> str | None:
    """What is under `key` as text, or None where there is nothing to show."""
    value = facts.get(key)
    return None if value is None or str(value) == "" else str(value)


def name_layer(layer: Mapping[str, Any]) -> str:
    """A layer is called by its own name, not by that of its weight.

    >>> name_layer({"name": "conv1.weight"}), name_layer({"name": "conv1.bias"}), name_layer({"name": "weight"})
    ('conv1', 'conv1.bias', 'weight')
    """
    return (find_text(layer, "name") or "").removesuffix(".weight")


def find_size(layer: Mapping[str, Any]) -> float | None:
    """How many weights a layer had before dead units were dropped.

    >>> find_size({"size": 180, "original_size": 200}), find_size({"size": 180})
    (200.0, 180.0)
    """
    return find_number(layer, "original_size") or find_number(layer, "size")


def weights_first(layers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Layers in their order, but those of one dimension, such as biases, after all others.

    >>> [layer["name"] for layer in weights_first([{"name": "b", "shape": [4]}, {"name": "w", "shape": [4, 2]}])]
    ['w', 'b']
    """
    return sorted(layers, key=lambda layer: len(layer.get("shape") or "ab") < 2)


def show_count(value: float | None) -> str:
    """
    >>> show_count(20412), show_count(None)
    ('20,412', '–')
    """
    return ABSENT if value is None else f"{value:,.0f}"


def show_share(share: float | None) -> str:
    """A fraction as a percentage.

    >>> show_share(0.0118), show_share(0.997), show_share(0.00012), show_share(1.0)
    ('1.2 %', '99.7 %', '0.012 %', '100 %')
    """
    if share is None:
        return ABSENT
    percent = share * 100
    if percent in (0, 100):
        return f"{percent:.0f} %"
    return f"{percent:.1f} %" if abs(percent) >= 1 else f"{percent:.2g} %"


def show_milliseconds(value: float | None) -> str:
    """
    >>> show_milliseconds(0.0712), show_milliseconds(26.61)
    ('0.071 ms', '26.6 ms')
    """
    if value is None:
        return ABSENT
    digits = 3 if value < 1 else 2 if value < 10 else 1
    return f"{value:,.{digits}f} ms"


def show_threads(count: float) -> str:
    """
    >>> show_threads(1), show_threads(2.0)
    ('1 thread', '2 threads')
    """
    return f"{show_count(count)} thread{'' if count == 1 else 's'}"


def show_duration(seconds: float | None) -> str:
    """
    >>> show_duration(0.8512), show_duration(12.34), show_duration(251), show_duration(7530)
    ('0.85 s', '12.3 s', '4 min 11 s', '2 h 05 min')
    """
    if seconds is None:
        return ABSENT
    if round(seconds) < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


WORTH_SAYING = 0.02  # of the weights, cut after training


def say_cut(net: Mapping[str, Any]) -> str | None:
    """Said of a network that met its bound only by a cut after training, from which it did not recover.

    >>> say_cut({"cut_after_training": 0.126}), say_cut({"cut_after_training": 0.01})
    ('13 % of the weights were cut after training', None)
    """
    part = find_number(net, "cut_after_training") or 0.0
    return f"{100 * part:.0f} % of the weights were cut after training" if part > WORTH_SAYING else None


def divide(part: float | None, whole: float | None) -> float | None:
    """part / whole, or None where there is no answer.

    >>> divide(1, 4), divide(1, 0), divide(None, 2)
    (0.25, None, None)
    """
    return None if part is None or not whole else part / whole


def shorten(text: str, length: int, tail: int | None = None) -> str:
    """At most `length` characters, `tail` of them (or half) from the end: the middle goes.

    >>> shorten("features.12.conv.weight", 12)
    'featu…weight'
    """
    if len(text) <= length:
        return text
    tail = length // 2 if tail is None else tail
    return f"{text[: length - tail - 1]}…{text[-tail:]}"


def shorten_names(names: Sequence[str], length: int) -> list[str]:
    """Every name in at most `length` characters, cut where most of them stay different.

    >>> shorten_names(["block.1.convolution.weight", "block.2.convolution.weight"], 12)
    ['block.1.c…ht', 'block.2.c…ht']
    """
    cuts = [[shorten(name, length, tail) for name in names] for tail in (length // 2, 2, length - 2)]
    return max(cuts, key=lambda cut: len(set(cut)))


@dataclass(frozen=True)
class Score:
    """What the networks are judged by: accuracy in percent, or a score that has a name of its own."""

    name: str = "accuracy"
    percent: bool = True

    @property
    def axis(self) -> str:
        """The name of an axis of it."""
        return f"{self.name}, %" if self.percent else self.name

    def show(self, value: float | None) -> str:
        """
        >>> Score().show(98.971), Score("F1", percent=False).show(1.0)
        ('98.97 %', '1.000')
        """
        if value is None:
            return ABSENT
        return f"{value:.2f} %" if self.percent else show_own(value)

    def show_named(self, value: float) -> str:
        """Where nothing beside it says what the number is; a percentage says it by itself.

        >>> Score().show_named(98.971), Score("F1", percent=False).show_named(1.0)
        ('98.97 %', 'F1 1.000')
        """
        return self.show(value) if self.percent else f"{self.name} {self.show(value)}"

    def show_gap(self, value: float, dense: float) -> str:
        """
        >>> Score().show_gap(98.97, 99.12), Score("F1", percent=False).show_gap(0.9, 0.85)
        ('−0.15 points', '+0.0500')
        >>> Score("F1", percent=False).show_gap(0.93184, 0.93185)
        'the same'
        """
        gap = value - dense
        if self.percent:
            return f"{gap:+.2f} points".replace("-", "\N{MINUS SIGN}")
        shown = f"{gap:+.{len(show_own(dense).partition('.')[2])}f}".replace("-", "\N{MINUS SIGN}")
        return shown if any(digit in shown for digit in "123456789") else "the same"

    def compare(self, value: float, dense: float) -> str:
        """
        >>> Score().compare(98.97, 99.12), Score("F1", percent=False).compare(0.9, 0.85)
        ('0.15 points below dense', '0.05 above dense')
        >>> Score("R²", percent=False).compare(0.86551, 0.86547)
        'as good as dense'
        """
        gap = abs(value - dense)
        shown = f"{gap:.2f}" if self.percent else f"{gap:.3g}"
        if float(shown) == 0 or self.show(value) == self.show(dense):
            return "as good as dense"
        points = " points" if self.percent else ""
        return f"{shown}{points} {'below' if value < dense else 'above'} dense"


def show_own(value: float) -> str:
    """A score that is no percentage, in four digits: a perfect one as exactly as any.

    >>> show_own(0.87312), show_own(1), show_own(-1234)
    ('0.8731', '1.000', '-1234')
    """
    return f"{value:#.4g}".removesuffix(".")


def name_of_examples(net: Mapping[str, Any]) -> str:
    """Images, unless a network takes something else.

    >>> name_of_examples({"input_shape": [40, 49]}), name_of_examples({})
    ('examples', 'images')
    """
    shape = net.get("input_shape", ())
    return name_examples(None if shape == () else shape or (0,))  # of several inputs, None


def name_of_example(net: Mapping[str, Any]) -> str:
    return name_of_examples(net).removesuffix("s")


def find_score(result: Mapping[str, Any]) -> Score:
    """The score of `result`: its own name, where it has one, and then no percent sign."""
    name = find_text(result, "score_name")
    return Score() if name is None else Score(name, percent=False)
