"""Networks for microcontrollers: what a budget of flash and a bound on RAM count, and how values become int8."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from membound.data import Preprocess, Split
from membound.errors import MemboundError, ModelError
from membound.micro.code import SMALL, STACK_BYTES
from membound.micro.cost import estimate
from membound.micro.integers import make_integers
from membound.micro.layer_table import list_beside, list_layers
from membound.micro.layers import find_layers, quantized_values
from membound.micro.layout import sum_bytes
from membound.micro.plan import MicroPlan, make_plan
from membound.micro.used import code_of, constants_of
from membound.run.calibration import INPUTS, calibrate_activations
from membound.run.micro_net import describe_plan
from membound.search.allocation import score_curves
from membound.search.bits import MOST, Types
from membound.search.measure import FileBytes, State
from membound.search.unsupported import UNROLLED, find_unsupported
from membound.store.choice import layer_weights, value_types
from membound.store.file import assemble
from membound.store.formats import Encoded, encode
from membound.store.model import Model, StoredModel
from membound.store.values import value_type
from membound.units import CLOCK, LEVELS, show_clock, show_ms

FINEST = 0.02  # of the weights: how closely it is said before training how many a bound leaves,
THRESHOLDS = 1000  # and of how many thresholds of their scores
SHORT = 100  # bytes: nobody asks for so few, so a unit is missing
WITHOUT_NAMES = {"sum": "addition", "pool": "pool", "mean": "mean", "table": "activation"}


@dataclass(frozen=True, eq=False)
class MicroBytes(FileBytes):
    """Bytes of flash: constants, and the code of the runtime on a Cortex-M4, compiled at `level`; no startup code.

    While a network is trained, its weights have not the values that they will have: as many different ones are counted
    as their types allow. With `spare`, the RAM less it is counted where that is more: with `spare` = M - B that is at
    most B just where flash is within B and RAM within M. With `timed` = (B, C), so are the cycles that one image
    takes, as estimated, times B / C; RAM then counts only where it is beyond its bound, since it hardly changes with
    the weights, and would look like a budget that is used up.
    """

    spare: int | None = field(default=None, kw_only=True)
    timed: tuple[int, int] | None = field(default=None, kw_only=True)
    level: str = field(default=SMALL, kw_only=True)

    def __call__(self, state: State | None = None, types: Types | None = None) -> int:
        plan = self.plan(state, types)
        return _largest(plan, self.spare, self.timed)

    def plan(self, state: State | None = None, types: Types | None = None) -> MicroPlan:
        """The network with weights that take the most room, and any scales."""
        model = self._model(state)
        chosen = self._types(model, types)
        stored = _fullest(model, value_types(model, chosen) if isinstance(chosen, str) else chosen)
        return _plan_of(stored, self.level)


def _fullest(model: Model, types: Mapping[str, str]) -> StoredModel:
    """The same network with as many different weights as their types allow, and scales of rows where any may be."""
    weights = layer_weights(model.graph)
    tensors = {
        name: _full(array, types[name], name in model.scales)
        if name in weights
        else encode((array != 0).astype(np.float32), "dense", "f32")
        for name, array in model.tensors.items()
    }
    return assemble(replace(model, scales={}, activations={}), tensors)[1]


def _full(array: npt.NDArray[Any], kind: str, scaled: bool) -> Encoded:
    found = value_type(kind)
    there = (array != 0).reshape(-1)
    numbers = np.cumsum(there)
    if found.coded and found.bits <= MOST:
        values = numbers % (1 << found.bits) + 1
    else:
        kind, scaled = "p8", True
        values = numbers % 254 - 127
        values += values >= 0
    full = np.where(there, values, 0).reshape(array.shape).astype(np.float32)
    scales = np.linspace(0.25, 0.5, len(array), dtype=np.float32) if scaled else None
    return encode(full, "indexed", kind, scales)


def _plan_of(stored: StoredModel, level: str) -> MicroPlan:
    """The plan of a network; with any scales where it is not calibrated."""
    unknown = dict.fromkeys(quantized_values(find_layers(stored)), (1.0, 0))
    return make_plan(make_integers(stored, stored.activations or unknown), level=level)


def exported_bytes(
    stored: StoredModel, spare: int | None, timed: tuple[int, int] | None = None, level: str = SMALL
) -> int:
    """The same of a network with all of its numbers."""
    return _largest(_plan_of(stored, level), spare, timed)


def _largest(plan: MicroPlan, spare: int | None, timed: tuple[int, int] | None) -> int:
    """Flash, RAM and time, each as bytes of flash: what is within the budget is within all bounds."""
    flash = constants_of(plan, plan.level) + code_of(plan, plan.level).nbytes
    ram = 0 if spare is None else ram_of(plan) - spare
    if timed is None:
        return max(flash, ram)
    budget, cycles = timed
    return max(
        flash, ram if ram > budget else 0, math.ceil(budget * estimate(plan, plan.level).cycles / cycles)
    )


def ram_of(plan: MicroPlan) -> int:
    """The context (arena and counters) and the stack; the input is fed by rows."""
    return plan.context_bytes + STACK_BYTES


def check_ram(measure: MicroBytes, allowed: int) -> None:
    """Whether a network runs in so much RAM with all of its channels: which of them will die is not known yet."""
    plan = measure.plan(measure.dense_state())
    needed = ram_of(plan)
    if allowed <= STACK_BYTES:
        meant = f" (did you mean {allowed}KB?)" if allowed < SHORT else ""
        raise MemboundError(
            f"ram of {allowed:,} bytes{meant} cannot be met by any network: {STACK_BYTES} are reserved for the stack",
            about="ram",
        )
    if needed > allowed:
        taken, advice = _say_largest(plan)
        raise MemboundError(
            f"ram of {allowed:,} bytes cannot be met: with all its channels, this network takes {needed:,} "
            f"({STACK_BYTES} of them stack); {taken}. Allow at least that, or {advice}. {say_examples(measure)}",
            about=("ram", *about_reading(measure)),
        )


def _say_largest(plan: MicroPlan) -> tuple[str, str]:
    """Which value takes most of the RAM, by the layer that gives it; and what makes it smaller."""
    net, layout = plan.net, plan.layout
    sizes = [buffer.nbytes for buffer in layout.buffers]
    for op in (net.ops[number] for number in layout.states):  # a mean has sums of 4 bytes beside it
        sizes[op.output] += sum_bytes(op)
    value = max(range(len(sizes)), key=sizes.__getitem__)
    (channels, height, width), rows = net.images[value], layout.buffers[value].rows
    many = f"{rows} of {height} rows" if height > 1 else "one row"
    added = ["padding"] if layout.buffers[value].pitch > channels * width else []
    added += ["32-bit sums"] if sizes[value] > layout.buffers[value].nbytes else []
    taken = f"{sizes[value]:,} bytes for {many} of {channels} x {width}"
    taken += f", {' and '.join(added)} included" if added else ""
    writers = [number for number, op in enumerate(net.ops) if op.output == value]
    if not writers:
        return f"its input takes the most ({taken})", "take smaller examples"
    stride = " or a larger stride" if net.ops[writers[0]].kind in ("conv", "pool") else ""
    return (
        f"the output of {_name_op(plan, writers[0])} takes the most ({taken})",
        f"take fewer channels{stride} there",
    )


def _name_op(plan: MicroPlan, number: int) -> str:
    """A layer by its name; what has none by the layer that it comes after."""
    ops = plan.net.ops
    if ops[number].weight is not None:
        return f"layer {ops[number].name!r}"
    before = [op.name for op in ops[:number] if op.weight is not None]
    return f"the {WITHOUT_NAMES[ops[number].kind]}" + (f" after layer {before[-1]!r}" if before else "")


def refuse_unrolled(model: nn.Module) -> None:
    """Before it is traced: that unrolls every step of time, which takes a minute."""
    if said := find_unsupported(model, UNROLLED):
        raise ModelError(said)


def refuse_layers(model: nn.Module, stored: StoredModel, origins: Callable[[], Mapping[int, str]]) -> None:
    """What cannot run, by the layer that a person wrote: of its parts in the graph nobody has heard.

    A layer that the graph does not need, such as a norm that is folded away, is no reason. Where no layer is to blame,
    `origins` finds the module and the line of code.
    """
    try:
        find_layers(stored)
    except ModelError:
        if said := find_unsupported(model):
            raise ModelError(said) from None
        find_layers(stored, origins())


def say_examples(measure: MicroBytes) -> str:
    """How examples were read, which a message adds; sequences are easily read as pictures of one channel."""
    channels, height, width = measure.plan(measure.dense_state()).net.images[0]
    if _takes_sequences(measure):
        return f"Examples are read as {channels} x {height} (channels, time)"
    text = f"Examples are read as {channels} x {height} x {width} (channels, height, width)"
    if about_reading(measure):
        sequences = f"sequences of {height} channel{'s' if height > 1 else ''}"
        text += f"; if these are {sequences}, the layout NCHW reads {height} x {width} x 1"
    return text


def about_reading(measure: MicroBytes) -> tuple[str, ...]:
    """What else an error is about where sequences may have been read as pictures: data of pixels have no layout."""
    net = measure.plan(measure.dense_state()).net
    channels, height, width = net.images[0]
    is_one = channels == 1 and height != width and not _takes_sequences(measure)
    return ("layout",) if is_one and not net.takes_pixels else ()


def _takes_sequences(measure: MicroBytes) -> bool:
    return len(measure.stored(measure.dense_state()).shapes[0]) == 2


def alike(preprocess: Preprocess, channels: int) -> Preprocess:
    """The same for all channels, with a whole mean, so that int8 holds every pixel exactly.

    >>> alike(Preprocess(mean=np.array([125.3, 123.0, 113.9]), std=np.array([60.0, 62.0, 64.0])), 3).to_json()
    {'mean': [121.0, 121.0, 121.0], 'std': [62.0, 62.0, 62.0]}
    """
    if preprocess.takes != "uint8" or preprocess.mean_image is not None:
        return preprocess
    mean, std = preprocess.mean, preprocess.std
    whole = 0.0 if mean is None else float(np.clip(np.rint(np.mean(mean)), 0, 255))
    same = {each.name: getattr(preprocess, each.name) for each in fields(preprocess)} | {
        "mean": None if mean is None else np.full(channels, whole, np.float32),
        "std": None if std is None else np.full(channels, np.mean(std), np.float32),
    }
    return Preprocess.measured(**same)


def calibrated(files: FileBytes, state: State, train: Split, preprocess: Preprocess) -> FileBytes:
    """The same file with how its values are rounded to int8, found on training images."""
    rows = np.unique(np.linspace(0, len(train) - 1, min(INPUTS, len(train))).astype(np.int64))
    inputs = np.asarray(preprocess(train.read(rows)), np.float32)
    return replace(files, activations=calibrate_activations(files.stored(state), inputs))


def flash_of(plan: MicroPlan) -> int:
    return constants_of(plan, plan.level) + code_of(plan, plan.level).nbytes


def plan_whole(measure: MicroBytes, weights: Sequence[str]) -> MicroPlan:
    """The network with all of its weights, in 8 bits, whatever is bounded."""
    free = replace(measure, spare=None, timed=None)
    return free.plan(free.dense_state(), dict.fromkeys(weights, "p8"))


def describe_dense(
    measure: MicroBytes, weights: Sequence[str], clock: float | None, budgets: Sequence[int] = ()
) -> str:
    """Said before training: what all weights take in 8 bits, and how many of them the bounds leave.

    `budgets` are those of flash that somebody asked for; any one of them may be tighter than a bound on time.
    """
    free, state = replace(measure, spare=None, timed=None), measure.dense_state()
    plan, hz = plan_whole(measure, weights), CLOCK if clock is None else clock
    flash, whole = flash_of(plan), estimate(plan, plan.level)
    other = next(level for level in LEVELS if level != plan.level)
    said = (
        f"dense in 8 bits, this network takes {flash:,} bytes of flash, {ram_of(plan):,} of RAM and about "
        f"{show_ms(whole.ms(hz))} on a Cortex-M4 at {show_clock(hz)}, compiled with {plan.level} "
        f"({show_ms(estimate(plan.at(other), other).ms(hz))} with {other})"
    )
    if measure.timed is not None:
        cycles = measure.timed[1]
        allowed = show_ms(1e3 * cycles / hz)
        if whole.cycles <= cycles:
            said += f"; {allowed} is enough for all of its weights"
        else:
            part, _ = _part_within(free, state, weights, lambda at: estimate(at, at.level).cycles <= cycles)
            said += f"; {allowed} leaves time for {_say_part(part)} of its weights"
    for budget in budgets:
        said += f"; {budget:,} bytes of flash "
        if flash <= budget:
            said += "are enough for all of its weights in 8 bits"
            continue
        part, least = _part_within(free, state, weights, partial(_is_within, budget))
        code = " and ".join(
            f"{code_of(at, at.level).nbytes:,} with {at.level}" for at in (least, least.at(other))
        )
        taken, beside = (
            show_ms(estimate(at, at.level).ms(hz)) for at in (least, least.at(other))
        )  # speed that the dense network gains may be lost with the weights
        said += (
            f"leave room for {_say_part(part)} of its weights ({taken}, or {beside} with {other}): code takes about "
            f"{code}"
        )
    return said


def _is_within(budget: int, plan: MicroPlan) -> bool:
    return flash_of(plan) <= budget


def _say_part(part: float) -> str:
    return f"less than {100 * FINEST:.0f} %" if part == 0 else f"about {100 * part:.0f} %"


def _part_within(
    measure: MicroBytes, state: State, weights: Sequence[str], is_within: Callable[[MicroPlan], bool]
) -> tuple[float, MicroPlan]:
    """The largest part of the weights that is within a bound, shared by layers as the usual score shares them.

    And the network with so many.
    """
    scored = {name: state[name] for name in weights}
    curves, thresholds = score_curves(scored, "lamp"), np.logspace(0, -12, THRESHOLDS)
    counts = {name: curve.counts_above(thresholds) for name, curve in curves.items()}
    parts = np.sum(list(counts.values()), 0) / sum(weight.numel() for weight in scored.values())

    def plan_at(place: int) -> MicroPlan:
        kept = {name: _largest_of(weight, int(counts[name][place])) for name, weight in scored.items()}
        return measure.plan({**state, **kept})

    least, most = 0, THRESHOLDS - 1  # as few weights, and all of them
    while parts[most] - parts[least] > FINEST and most - least > 1:
        middle = int(np.searchsorted(parts[least + 1 : most], (parts[least] + parts[most]) / 2)) + least + 1
        middle = min(middle, most - 1)
        least, most = (middle, most) if is_within(plan_at(middle)) else (least, middle)
    return (float(parts[least]) if least else 0.0), plan_at(least)


def _largest_of(weight: torch.Tensor, count: int) -> torch.Tensor:
    """The same with zeros for all but `count` weights.

    >>> _largest_of(torch.tensor([1.0, -3.0, 2.0]), 2).tolist()
    [0.0, -3.0, 2.0]
    """
    flat = weight.flatten()
    kept = torch.zeros_like(flat)
    places = flat.abs().topk(count).indices
    kept[places] = flat[places]
    return kept.reshape(weight.shape)


def describe_micro(stored: StoredModel, clock: float | None, level: str) -> dict[str, Any]:
    """What a network takes on the device, part by part; the time of one image is an estimate."""
    plan = _plan_of(stored, level)
    return {
        **describe_plan(plan, clock, level),
        "layers": list_layers(plan, level),
        "beside_layers": list_beside(plan),
    }
