"""From a model file to a microcontroller: calibrate, write C, measure what int8 costs."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from membound.data import Dataset
from membound.data.pictures import Size
from membound.errors import MemboundError, ModelError, check_path_like
from membound.export.c_project import check_micro_prefix, check_target, write_project
from membound.export.cpp_source import renamed
from membound.export.folder import read_options
from membound.export.hub_folder import check_folder
from membound.micro.cost import say_flash, say_speed
from membound.micro.numbers import fix_input, read_units, say_not_included
from membound.run.calibration import INPUTS, calibrate_activations, say_few, with_activations
from membound.run.evaluation import check_fits, evaluate_file, image_size, load_like, open_for_evaluation
from membound.run.files import find_model_file, prepare
from membound.run.micro_net import MicroNet, describe_plan
from membound.run.net import Net
from membound.signatures import known_keywords
from membound.store.file import read
from membound.store.model import StoredModel
from membound.store.whole import write_whole
from membound.units import CLOCK, LEVELS, parse_clock, parse_level


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A network in integers, how many images it was calibrated on, and its accuracy in both arithmetics, if known."""

    net: MicroNet
    calibrated_on: int = 0
    accuracy: float | None = None
    float_accuracy: float | None = None
    images: int = 0


@dataclass(frozen=True)
class Way:
    """At which clock a device runs, and how its C is compiled: what times and flash are said for."""

    clock: str | float | None = None
    compiled: str | None = None

    def __post_init__(self) -> None:
        self.hz, self.level  # noqa: B018 (what cannot be read is said here)

    @property
    def hz(self) -> float | None:
        return None if self.clock is None else parse_clock(self.clock)

    @property
    def level(self) -> str:
        return LEVELS[0] if self.compiled is None else parse_level(self.compiled)


@known_keywords
def export_c(
    net: Net | MicroNet | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    images: npt.ArrayLike | None = None,
    calibrate: npt.ArrayLike | None = None,
    maps: str = "auto",
    prefix: str = "net",
    clock: str | float | None = None,
    compiled: str | None = None,
    input_unit: float | Sequence[float] | None = None,
) -> MicroNet:
    """Write a network as plain C into a folder, and give it as the device runs it.

    `net` is a model file, or a network that `load` gave, of either engine. The folder is new or empty, or holds an
    earlier export, which is replaced: a `main.c` or `CMakeLists.txt` that you edited stays, and so do your own files.
    `net_test.c` in it is a self test: one input, and the outputs that the device must give for it, bit for bit.

    `images` are a few hundred training inputs, as they are (uint8) or prepared (float32): a network that does not
    say how its values are rounded to int8 is calibrated on them. `calibrate` is the same, under the name that it
    has in `save`. `maps` is "rows" (line buffers), "whole" or "auto", which takes less RAM.

    `prefix` begins the names of functions and files, the runtime's included, so that a program can have several
    networks: `kws` makes `kws.h` with `kws_start`.

    The folder's README.md says how long an example takes at this `clock` ('80 MHz' where none is given), and flash and
    time as `compiled` with '-Os' or '-O2' first ('-Os' where nothing is given). Weights are stored in the form that
    takes the least flash at this level, with the code that reads them, but at '-O2' in none that would be slower than
    at '-Os'; outputs are the same. `memory()` and `speed()` of what comes back are for this level, too, unless you name
    another.

    `input_unit` is for a network that takes numbers (float32), where firmware has them as integers: what an integer
    counts, or one such unit for each channel. With 0.01, the integer 981 is 9.81 in the training data. Then `net.h` has
    `net_input_fixed`, which makes the byte that the network is fed without floating point.

    Over an earlier export, `clock`, `compiled` and `input_unit` stay as they were where you leave them out, and a
    warning says so.
    """
    asked = Way(clock, compiled)
    units = None if input_unit is None else read_units(input_unit)
    if images is not None and calibrate is not None:
        raise ModelError(
            "images= and calibrate= mean the same: give one of them", about=("images", "calibrate")
        )
    images = calibrate if images is None else images
    check_micro_prefix(prefix)
    if maps not in ("auto", "rows", "whole"):
        raise ModelError(f"there are no maps {maps!r}: choose auto, rows or whole", about="maps")
    if not isinstance(net, Net | MicroNet):
        check_path_like(net, "net")
    check_path_like(folder, "folder")
    check_target(Path(folder), prefix)
    way, notes = _way_before(Path(folder), asked)
    model = net.model if isinstance(net, Net | MicroNet) else read(net)
    scales = net.activations if isinstance(net, MicroNet) else model.activations
    if images is None and not scales:
        raise ModelError(
            f"{'this network' if isinstance(net, Net) else net} does not say how its values are rounded to int8: give "
            "images=, a few hundred training examples",
            about="images",
        )
    if images is not None:
        inputs = _inputs_of(model, images)
        scales = calibrate_activations(model, inputs)
        if (few := say_few(inputs)) is not None:
            warnings.warn(few, stacklevel=3)  # of the caller of export_c, which checks its keywords first
    made = MicroNet(model, activations=scales, maps=maps, compiled=way.level)
    units, more = _units_before(Path(folder), made, units, prefix)
    for note in [*notes, *more]:
        warnings.warn(note, stacklevel=3)
    write_project(folder, made, prefix, way.hz, way.level, units)
    return made


def _inputs_of(model: StoredModel, images: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Images that a caller gives, prepared."""
    try:
        found = np.asarray(images)
    except ValueError:  # lists of different lengths
        found = np.empty(0, object)
    if found.dtype != np.uint8 and found.dtype.kind != "f":
        raise ModelError(
            f"images= holds {found.dtype}: give training examples, [batch, ...], as they are (uint8) or prepared "
            "(float32)",
            about="images",
        )
    try:
        return np.asarray(prepare(Net(model, max_batch=32), found), np.float32)
    except MemboundError as error:
        raise ModelError(f"images= are {found.dtype} {found.shape}: {error}", about="images") from None


def calibrate(
    source: str,
    data: str | None,
    layout: str | None,
    size: Size | None,
    *,
    again: bool = False,
    level: str = LEVELS[0],
) -> Calibrated:
    """The network of a file in integers; with data it is calibrated where that is needed (or `again`), and measured."""
    file = find_model_file(Path(source))
    model = read(file)
    if data is None:
        if layout or size:
            raise MemboundError(
                "layout and size go with data, and there is none: add it or leave them out",
                about=("layout", "size", "data"),
            )
        if not model.activations:
            raise MemboundError(
                f"{source} is not calibrated: it does not say how its values are rounded to int8: name data to "
                "calibrate it on, such as what it was trained on",
                about="data",
            )
        return Calibrated(MicroNet(model, compiled=level))
    float_net = open_for_evaluation(file)
    side = size or image_size(float_net, data)
    dataset = load_like(float_net.input_shape, data, layout=layout, size=side)
    check_fits(float_net, dataset)
    scales, count = dict(model.activations), 0
    if again or not scales:
        inputs = _calibration_inputs(float_net, dataset)
        scales, count = calibrate_activations(model, inputs), len(inputs)
    net = MicroNet(replace(model, activations=scales), compiled=level)
    before = evaluate_file(float_net, dataset)
    after = evaluate_file(net, dataset)
    return Calibrated(net, count, after["accuracy"], before["accuracy"], after["images"])


def _calibration_inputs(net: Net, dataset: Dataset) -> npt.NDArray[np.float32]:
    """Training images, evenly spread, prepared."""
    count = min(INPUTS, len(dataset.train))
    rows = np.linspace(0, len(dataset.train) - 1, count).astype(np.int64)
    return np.asarray(prepare(net, dataset.train.read(np.unique(rows))), np.float32)


@dataclass(frozen=True, eq=False)
class Project:
    """C in a folder: how it was written, which files were edited, and stay, and what an earlier export decided."""

    found: Calibrated
    way: Way
    has_units: bool
    kept: list[str]
    notes: list[str]


def write_c(
    folder: Path,
    source: str,
    data: str | None,
    layout: str | None,
    size: Size | None,
    prefix: str = "net",
    way: Way = Way(),
    input_unit: str | None = None,
) -> Project:
    """The folder with C, refused before the work if it holds anything else."""
    units = None if input_unit is None else read_units(input_unit)
    check_micro_prefix(prefix)
    check_target(folder, prefix)
    way, notes = _way_before(folder, way)
    found = calibrate(source, data, layout, size, level=way.level)
    units, more = _units_before(folder, found.net, units, prefix)
    kept = write_project(folder, found.net, prefix, way.hz, way.level, units)
    return Project(found, way, units is not None, kept, [*notes, *more])


def _way_before(folder: Path, way: Way) -> tuple[Way, list[str]]:
    """With the clock and the level of the last export into this folder where none is given; and notes of that."""
    before, notes = read_options(folder), []
    level = before.get("compiled", LEVELS[0][1:])
    if way.compiled is None and parse_level(level) != LEVELS[0]:
        way = replace(way, compiled=level)
        notes.append(
            f'the export before had compiled="{level}", and so has this one; for -Os give compiled="Os"'
        )
    clock = before.get("clock")
    if way.clock is None and clock is not None and parse_clock(clock) != CLOCK:
        way = replace(way, clock=clock)
        notes.append(
            f"the export before had clock={clock.replace(' ', '')}, and so has this one; give another to change it"
        )
    return way, notes


def _units_before(
    folder: Path, net: MicroNet, units: tuple[float, ...] | None, prefix: str
) -> tuple[tuple[float, ...] | None, list[str]]:
    """The same of what integers count, where that suits this network, too."""
    before = read_options(folder).get("input_unit")
    if units is not None or before is None or net.plan.net.takes_pixels:
        return units, []
    had, function = f"the export before had input_unit={before}", f"{prefix}_input_fixed"
    try:
        fix_input(net.plan, net.model.preprocess, read_units(before))
    except ModelError:
        return None, [f"{had}, which does not suit this network: {function} is gone; give another to have it"]
    return read_units(before), [f"{had}, and so has this one; give another to change it"]


def write_web(
    folder: Path, source: str, data: str | None, layout: str | None, size: Size | None
) -> tuple[Calibrated, dict[str, int]]:
    """The folder with the page, and the bytes of its files."""
    from membound.export.web import compiler, write_page

    check_folder(folder)
    compiler()
    found = calibrate(source, data, layout, size)
    return found, write_page(folder, found.net)


def write_int8(target: Path, source: str, data: str, layout: str | None, size: Size | None) -> Calibrated:
    """The model file with scales of its values."""
    found = calibrate(source, data, layout, size, again=True)
    write_whole(
        target, with_activations(read(find_model_file(Path(source))), dict(found.net.model.activations))
    )
    return found


def facts_of(found: Calibrated, way: Way = Way(), has_units: bool = False) -> dict[str, Any]:
    """What is said of an export; `has_units` where its net.h has net_input_fixed."""
    beside = say_not_included(found.net.plan, has_units)
    return {
        **describe_plan(found.net.plan, way.hz, way.level),
        **({} if beside is None else {"flash_not_included": beside}),
        "accuracy": found.accuracy,
        "float_accuracy": found.float_accuracy,
        "images": found.images,
        "calibrated_on": found.calibrated_on,
    }


def lines_of(found: Calibrated, way: Way = Way(), prefix: str = "net", has_units: bool = False) -> list[str]:
    memory, facts = found.net.memory(way.level), facts_of(found, way, has_units)
    lines = [
        f"id        {facts['identity']} ({prefix.upper()}_ID)",
        f"flash     {say_flash(facts)}",
        f"ram       {memory.ram:,} bytes: {memory.context:,} of context, {memory.stack} of stack; arena: "
        f"{memory.rows:,} with line buffers, {memory.whole:,} with whole maps",
        f"speed     {say_speed(facts)}",
    ]
    if (beside := facts.get("flash_not_included")) is not None:
        lines.insert(2, f"          {renamed(beside, prefix)}")
    if found.accuracy is not None:
        lines.append(
            f"accuracy  {found.accuracy:.2f} % in integers, {found.float_accuracy:.2f} % in floating point, of "
            f"{found.images:,} test examples"
        )
    if found.calibrated_on:
        lines.append(
            f"data      calibrated on {found.calibrated_on:,} training examples without their labels"
        )
    return lines
