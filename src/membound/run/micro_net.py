"""A network as a microcontroller computes it: the same C sources, in integers, bit for bit."""

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from membound.data import Preprocess
from membound.errors import ModelError
from membound.micro.arithmetic import Quantization
from membound.micro.code import COMPILER, SMALL, STACK_BYTES
from membound.micro.cost import Estimate, speed_of
from membound.micro.identity import identify
from membound.micro.integers import make_integers
from membound.micro.numbers import say_not_included, say_range
from membound.micro.plan import MicroPlan, make_plan, net_record, op_record, value_record
from membound.micro.tables import TABLE_BYTES, tables_of
from membound.micro.used import code_of, constants_of
from membound.run.common import compiled_core, narrowed, stated_preprocess
from membound.store.model import StoredModel
from membound.units import CLOCK, LEVELS, parse_level

if TYPE_CHECKING:
    from PIL.Image import Image

TINY = 0.02  # of the input's range: a few steps of int8
RECORDED = "recorded sizes"  # where no compiler is installed
BEYOND = 0.1  # of an input: more numbers than calibration would leave out


@dataclass(frozen=True, repr=False)
class MicroMemory:
    """Bytes on the device, all that a fit's `budget` and `ram` count.

    Startup code is not included, nor are memcpy and memset (about 470 bytes, unless your firmware has them).

    - `constants`: weights, biases, tables, records; `weights` are the codes, positions and palettes among them. `code`:
      the runtime on a Cortex-M4 at the `level` -Os or -O2; `code_from` names the compiler that was run for it, or says
      that these are recorded sizes. `flash` is constants and code.
    - `not_included`: of a network that takes floats, what `net_input` or `net_input_fixed` adds to flash, in words;
      else None.
    - `context`: the `arena`, which holds activations, and the counters of rows. `stack`: at most. `ram` is context and
      stack.
    - `rows`, `whole`: the arena with line buffers, and with whole maps.
    """

    constants: int
    code: int
    context: int
    stack: int
    rows: int
    whole: int
    weights: int
    arena: int
    code_from: str = RECORDED
    not_included: str | None = None
    level: str = SMALL

    @property
    def compiled(self) -> bool:
        """Whether the code was compiled here; else its size is a recorded one."""
        return self.code_from == COMPILER[0]

    @property
    def flash(self) -> int:
        """Constants and code."""
        return self.constants + self.code

    @property
    def ram(self) -> int:
        """Context and stack."""
        return self.context + self.stack

    def __repr__(self) -> str:
        parts = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "not_included"}
        shown = {"flash": self.flash, "ram": self.ram, **parts}
        return f"MicroMemory({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def to_json(self) -> dict[str, Any]:
        """As `membound` prints it everywhere."""
        return {
            "flash_bytes": self.flash,
            "constant_bytes": self.constants,
            "weight_bytes": self.weights,
            "code_bytes": self.code,
            "code_from": self.code_from,
            "compiled_with": self.level,
            **({} if self.not_included is None else {"flash_not_included": self.not_included}),
            "ram_bytes": self.ram,
            "context_bytes": self.context,
            "arena_bytes": self.arena,
            "stack_bytes": self.stack,
            "arena_bytes_rows": self.rows,
            "arena_bytes_whole": self.whole,
        }


def describe_plan(plan: MicroPlan, clock: float | None = None, level: str = SMALL) -> dict[str, Any]:
    """Bytes and an estimate of the time, as `membound` prints them everywhere: first as compiled at `level`."""
    hz = CLOCK if clock is None else clock
    plans = {each: plan.at(each) for each in LEVELS}
    ways = {each: (memory_of(made, each), speed_of(made, each).to_json(hz)) for each, made in plans.items()}
    memory, speed = ways[level]
    others = {
        f"at_{each[1:]}": {"flash_bytes": taken.flash, "code_bytes": taken.code, **time}
        for each, (taken, time) in ways.items()
    }
    tables = tables_of(plan.net.ops)
    return {
        "identity": f"0x{identify(plan.net)}",
        **memory.to_json(),
        **({"table_bytes": TABLE_BYTES * sum(tables.values()), "tables": tables} if tables else {}),
        "clock_hz": round(hz),
        **speed,
        **others,
    }


def memory_of(plan: MicroPlan, level: str = SMALL) -> MicroMemory:
    """What a planned network takes on the device."""
    code = code_of(plan, level)
    return MicroMemory(
        constants=constants_of(plan, level),
        code=code.nbytes,
        context=plan.context_bytes,
        stack=STACK_BYTES,
        rows=plan.rows_bytes,
        whole=plan.whole_bytes,
        weights=sum(packed.nbytes for packed in plan.weights.values()),
        arena=plan.layout.nbytes,
        code_from=COMPILER[0] if code.compiled else RECORDED,
        not_included=say_not_included(plan),
        level=level,
    )


def core_of(plan: MicroPlan) -> Any:
    """The C of the runtime with a planned network, in this process."""
    return compiled_core().Micro(
        net_record(plan),
        [value_record(plan, value) for value in range(len(plan.net.images))],
        [op_record(plan, number) for number in range(len(plan.net.ops))],
        plan.layout.nbytes,
    )


class MicroNet:
    """A network that runs in integers: `net(x)` takes pixels as they are (uint8 [batch, C, H, W]), or prepared float32.

    Pixels take the device's way, so that every number is the device's. Float32 is rounded to the input's int8,
    q = floor(x / scale + 1/2) + zero within -128 and 127. What comes out is scale * (q - zero), float32; `integers` has
    the q. A softmax at the end is left out: outputs are its input.
    """

    def __init__(
        self,
        model: StoredModel,
        *,
        activations: Mapping[int, tuple[float, int]] | None = None,
        maps: str = "auto",
        compiled: str = SMALL,
    ) -> None:
        self._remake: Callable[[], MicroNet] = partial(
            MicroNet, model, activations=activations, maps=maps, compiled=compiled
        )
        self.model = model
        self.activations = model.activations if activations is None else activations
        self.level = parse_level(compiled)
        self.plan: MicroPlan = make_plan(make_integers(model, activations), maps, self.level)
        self.input_shape = model.shapes[0]
        self.output_shape = _output_shape(self.plan, model)
        self._core = core_of(self.plan)

    def __call__(self, x: npt.ArrayLike) -> npt.NDArray[np.float32]:
        if np.asarray(x).dtype in (np.uint8, np.int8) and not self.plan.net.takes_pixels:
            raise ModelError(
                "this file does not say what bytes stand for: give float32, prepared as in training; integers() takes "
                "the bytes that the device is fed with, which net_input makes of numbers"
            )
        return self.scores(self._run(x))

    def scores(self, integers: npt.NDArray[np.int8]) -> npt.NDArray[np.float32]:
        """What the device's outputs stand for: scale * (q - zero)."""
        last = self.plan.net.quantizations[self.plan.net.output]
        return ((integers.astype(np.float64) - last.zero) * last.scale).astype(np.float32)

    def integers(self, x: npt.ArrayLike) -> npt.NDArray[np.int8]:
        """The outputs as the device has them, int8 [batch, ...].

        - uint8 is what the device is fed with: pixels; or, where the network was trained on floating point, the bytes
          that `net_input` of net.h makes of numbers. int8 is the same less 128: the input's q.
        - float32 has to be prepared as in training: `net.integers(net.preprocess(features))`. Raw features give wrong
          outputs; where more than a tenth of them are beyond what int8 holds of prepared ones, a warning says so.
        """
        return self._run(x)

    def _run(self, x: npt.ArrayLike) -> npt.NDArray[np.int8]:
        """The same; only what a user calls calls this, so that warnings name the user's line."""
        images = narrowed(np.asarray(x))
        if images.dtype not in (np.uint8, np.int8, np.float32):
            raise ModelError(
                f"the input has the type {images.dtype}: this network takes what the device is fed with "
                "(uint8, or int8, the same less 128), or prepared float32: save numbers of other types as "
                "x.astype('float32')"
            )
        pixels = images.dtype == np.uint8 and self.plan.net.takes_pixels
        if pixels:
            images = self._pixels(images)
        if images.ndim != len(self.input_shape) + 1 or images.shape[1:] != self.input_shape:
            from membound.run.pictures import advice_for

            wanted = ", ".join(map(str, ("batch", *self.input_shape)))
            advice = advice_for(self.model, self.input_shape, images.shape)
            raise ModelError(f"the input has the shape {images.shape}: this network takes ({wanted}){advice}")
        if images.dtype == np.int8:
            images = (images.astype(np.int16) + 128).astype(np.uint8)
        elif images.dtype == np.float32:
            if not np.isfinite(images).all():
                raise ModelError("the input has values that are not finite: they cannot be rounded to int8")
            rounding = self.plan.net.quantizations[0]
            _warn_if_beyond(images, rounding, say_range(self.plan, self.model.preprocess))
            images = (rounding.round(images).astype(np.int16) + 128).astype(np.uint8)
        out = np.empty((len(images), *self.output_shape), np.int8)
        if len(images):
            flat = np.ascontiguousarray(images).reshape(len(images), -1)
            self._core.run(flat, out.reshape(len(images), -1), pixels)
        return out

    def _pixels(self, images: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Images as the device is fed with them: the centre, where the file has a crop."""
        crop = (self.model.preprocess or {}).get("crop")
        if crop is None or images.ndim != 4 or min(images.shape[2:]) < crop:
            return images
        top, left = ((side - crop) // 2 for side in images.shape[2:])
        return images[:, :, top : top + crop, left : left + crop]

    def __reduce__(self) -> tuple[Callable[[], "MicroNet"], tuple[()]]:
        return self._remake, ()

    @property
    def classes(self) -> list[str] | None:
        """The names of the classes, where the file has them."""
        return self.model.classes

    @property
    def preprocess(self) -> Preprocess:
        """What turns examples, as training had them, into prepared float32; pixels may be given as they are, too."""
        return stated_preprocess(self.model)

    def read(
        self, *pictures: "str | os.PathLike[str] | Image | npt.NDArray[np.uint8]"
    ) -> npt.NDArray[np.uint8]:
        """Pictures and frames as the network takes them, uint8 [batch, C, H, W]: as `Net.read`."""
        from membound.run.pictures import read_pictures  # most programs have arrays

        return read_pictures(self.model, self.input_shape, pictures)

    def speed(self, compiled: str | None = None) -> Estimate:
        """About how many instructions and cycles one example takes on a Cortex-M4; `.ms("80 MHz")` is the time.

        `.longest_ms("80 MHz")` is that of the longest call of net_feed_row.

        `compiled` is how: "-Os" or "-O2"; without it, as the network was exported, else "-Os". These are estimates
        (docs/MICRO_MEASURED.md).
        """
        level = self._level(compiled)
        return speed_of(self.plan.at(level), level)

    def memory(self, compiled: str | None = None) -> MicroMemory:
        """Bytes of flash and RAM on the device; `compiled` is how, as in `speed`."""
        level = self._level(compiled)
        return memory_of(self.plan.at(level), level)

    def _level(self, compiled: str | None) -> str:
        return self.level if compiled is None else parse_level(compiled)

    def __repr__(self) -> str:
        memory = self.memory()
        return (
            f"MicroNet({self.input_shape} -> {self.output_shape}, {memory.flash:,} bytes of flash at {self.level}, "
            f"{memory.ram:,} of RAM)"
        )


def _warn_if_beyond(numbers: npt.NDArray[np.float32], rounding: Quantization, before: str | None) -> None:
    """Numbers that were prepared as in training seldom saturate: raw ones are what usually does.

    `before` is the range of numbers before they are prepared.
    """
    low, high = rounding.low - rounding.scale / 2, rounding.high + rounding.scale / 2
    share = float(((numbers < low) | (numbers > high)).mean()) if numbers.size else 0.0
    if share > BEYOND:
        known = "" if before is None else f" (before preparation {before})"
        warnings.warn(
            f"{share:.0%} of the input is beyond {low:.3g} to {high:.3g}{known}, the range that its int8 holds, and is "
            "cut off there: if these numbers are not prepared yet, give net.preprocess(x)",
            stacklevel=4,
        )
    elif 0 < (used := float(np.abs(numbers).max(initial=0))) < TINY * max(abs(low), abs(high)):
        warnings.warn(
            f"the input goes up to {used:.3g}, where its int8 holds {low:.3g} to {high:.3g}: nearly all of it is "
            "rounded away; if these numbers are in another unit, or were divided, give them as they were in training",
            stacklevel=4,
        )


def _output_shape(plan: MicroPlan, model: StoredModel) -> tuple[int, ...]:
    image = plan.net.images[plan.net.output]
    shape = model.shapes[model.graph.output]
    return shape if int(np.prod(shape)) == int(np.prod(image)) else image
