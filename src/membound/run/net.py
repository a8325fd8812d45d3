"""A loaded network: numpy in, numpy out."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from membound.data import Preprocess
from membound.errors import ModelError, check_path_like
from membound.notebook import html_block, show_shape
from membound.run.common import compiled_core, give_back, stated_preprocess
from membound.run.hub import fetch, is_address
from membound.run.layers import list_layers, show_layers
from membound.run.micro_net import MicroNet
from membound.run.plan import Planned, flat, plan
from membound.run.ports import give, inputs_of, outputs_of, take
from membound.run.resized import resized
from membound.signatures import known_keywords
from membound.store.file import read
from membound.store.formats import Encoded
from membound.store.model import StoredModel
from membound.store.other_files import refuse_other_kinds

if TYPE_CHECKING:
    from PIL.Image import Image

FAST = ("float", "int8")  # the engines of a Net
ENGINES = (*FAST, "micro")
EVERY = "every"  # instruction set: what holds for all of them


@dataclass(frozen=True, repr=False)
class Memory:
    """Where the bytes of a loaded network are.

    - `total`: all of it, `weights`, `tables` and `arena`.
    - `weights`: the file, mapped and shared between processes, or read into memory if it is small.
    - `tables`: made at load from the weights: where rows start, where kernels reach, dense biases.
    - `arena`: activations and working room, for as many calls at once as were asked for.
    - `threads`, `max_batch`, `concurrency`: what this is for; more of each needs more room. `load` takes every CPU
      unless told otherwise; a fit's bounds, its report and `membound inspect` count one thread.

    >>> Memory(20412, 1024, 4096, threads=2)
    Memory(total=25532, weights=20412, tables=1024, arena=4096, threads=2, max_batch=1, concurrency=1)
    """

    weights: int
    tables: int
    arena: int
    threads: int = 1
    max_batch: int = 1
    concurrency: int = 1

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.tables + self.arena

    @property
    def working(self) -> int:
        """What is needed beside the file: tables and arena."""
        return self.tables + self.arena

    def __repr__(self) -> str:
        shown = {"total": self.total, **asdict(self)}
        return f"Memory({', '.join(f'{name}={value}' for name, value in shown.items())})"


class Net:
    """A network that runs: `net(x)` takes preprocessed float32 [batch, ...] and gives float32 [batch, ...].

    One of several inputs is called with them in order or by their names, and gives a tuple or a dict if it did in
    torch: `inputs` and `outputs` say what there is. Inputs of whole numbers, as embeddings have them, take any integer
    type. `input_shape` and `output_shape` are those of one example, of the first of each. `load` makes a Net of a file.

    Calls are safe from many threads: up to `concurrency` run at once, the others wait. The GIL is released. A child
    process of fork() may go on using the network. Pickled, a network that was loaded is its path, to be loaded
    again; one made from a model takes the model along.
    """

    def __init__(
        self,
        model: StoredModel,
        *,
        threads: int = 0,
        max_batch: int = 1,
        concurrency: int = 1,
        isa: str | None = None,
        engine: str = "float",
    ) -> None:
        _check_counts(threads=(threads, 0), max_batch=(max_batch, 1), concurrency=(concurrency, 1))
        self._remake: Callable[[], Net] = partial(
            Net, model, threads=threads, max_batch=max_batch, concurrency=concurrency, isa=isa, engine=engine
        )
        self.engine = chosen_engine(engine)
        self._asked = (int(threads) or _usable_cpus(), int(max_batch), int(concurrency))
        self.model, self._graph = model, model.graph  # calls go on where somebody lets the model go
        self.input_shape = model.shapes[0]
        self.output_shape = model.shapes[model.graph.output]
        self.inputs = inputs_of(model.graph, model.shapes)
        self.outputs = outputs_of(model.graph, model.shapes)
        try:
            self._core = compiled_core().Network(
                [_for_core(each) for each in plan(model, engine)],
                list(self.input_shape),
                list(model.graph.given),
                int(max_batch),
                int(threads),
                int(concurrency),
                isa,
            )
        except ValueError as error:
            raise ModelError(f"this network cannot be run: {error}") from None

    def __call__(self, *given: npt.ArrayLike, **named: npt.ArrayLike) -> npt.NDArray[np.float32]:
        # A type checker is told of the usual case: a network of several outputs gives a tuple or a dict.
        found: Any = give(self._graph, self._run(given, named)[0])
        return found  # type: ignore[no-any-return]

    def time(self, *given: npt.ArrayLike, **named: npt.ArrayLike) -> list[float]:
        """Run the network, and say how many seconds each of its operators took, in the graph's order."""
        return self._run(given, named, timed=True)[1]

    def _run(
        self, given: Sequence[Any], named: Mapping[str, Any], timed: bool = False
    ) -> tuple[list[npt.NDArray[np.float32]], list[float]]:
        arrays = take(self.inputs, given, named, self._advise)
        batch = len(arrays[0])
        out = [np.empty((batch, *port.shape), np.float32) for port in self.outputs]
        try:
            seconds = (self._core.time if timed else self._core.run)(arrays, out, batch)
        except IndexError as error:
            raise ModelError(f"an input is out of range: {error}") from None
        except MemoryError:
            raise ModelError(
                f"there is no memory for the arena of {self.memory().arena:,} bytes: "
                "take a smaller max_batch or concurrency"
            ) from None
        return out, seconds

    def _advise(self, shape: Sequence[int]) -> str:
        from membound.run.pictures import advice_for

        if (
            len(self.input_shape) == 3
            and self.input_shape[0] == 1
            and tuple(shape[1:]) == self.input_shape[1:]
        ):
            return "; add the axis of the one channel, as x[:, None] does"
        return advice_for(self.model, self.input_shape, shape)

    def __reduce__(self) -> tuple[Callable[[], "Net"], tuple[()]]:
        return self._remake, ()

    @property
    def classes(self) -> list[str] | None:
        """The names of the classes, where the file has them."""
        return self.model.classes

    @property
    def preprocess(self) -> Preprocess:
        """What turns images as they are, [batch, C, H, W] of the type that it `takes`, into what the network takes.

        Where that is pixels, floats from 0 to 255 are taken as such. Images that were divided by 255 or prepared
        already (all from 0 to 1, or some below 0) are refused.
        """
        return stated_preprocess(self.model)

    def read(
        self, *pictures: "str | os.PathLike[str] | Image | npt.NDArray[np.uint8]"
    ) -> npt.NDArray[np.uint8]:
        """Pictures as `preprocess` takes them, uint8 [batch, C, H, W], read as `membound run` reads them.

        Each is a path, a PIL image or a uint8 array [H, W], [H, W, 1], [H, W, 3] or [H, W, 4], such as a camera's
        frame. Colors are RGB: OpenCV's frames are BGR, so give `frame[..., ::-1]`; membound cannot tell the two apart.

        A picture is resized to cover the size that the network was trained at (bilinear, antialiased), then its center
        is taken: of squares, the shorter side is resized to that size. Colors become gray where the network takes one
        channel, and alpha is dropped. Needs Pillow.
        """
        from membound.run.pictures import read_pictures  # most programs have arrays

        return read_pictures(self.model, self.input_shape, pictures)

    def memory(
        self, isa: str | None = None, *, threads: int | None = None, max_batch: int | None = None
    ) -> Memory:
        """Bytes of weights, load-time tables and arenas, as loaded here or for another machine.

        - `isa`: an instruction set of `known_isas()`, which need not be this machine's; 'every' is the most that any of
          them takes.
        - `threads` and `max_batch`: other than those that it was loaded with. A report counts `threads=1`, for any CPU:
          `net.memory("every", threads=1).total`.

        The numbers follow from the file alone: every machine gives the same.
        """
        _check_counts(threads=(threads, 1), max_batch=(max_batch, 1))
        if isa == EVERY:
            found = [self.memory(name, threads=threads, max_batch=max_batch) for name in known_isas()]
            return max(found, key=lambda memory: memory.total)
        if isa is not None:
            check_isa(isa)
        own_threads, own_batch, concurrency = self._asked
        threads, max_batch = int(threads or own_threads), int(max_batch or own_batch)
        tables, arena, arenas = self._core.memory(isa, max_batch, threads)
        return Memory(self.model.file_bytes, tables, arena * arenas, threads, max_batch, concurrency)

    def __repr__(self) -> str:
        engine = "" if self.engine == "float" else f", {self.engine}"
        return f"Net({self.input_shape} -> {self.output_shape}, {self.model.file_bytes:,} bytes{engine})"

    def _repr_html_(self) -> str:
        memory = self.memory()
        return html_block(
            f"Net: {show_shape(self.input_shape)} → {show_shape(self.output_shape)}",
            show_layers(list_layers(self.model)),
            note=f"{memory.total:,} bytes of memory (threads {memory.threads}, batch {memory.max_batch}): "
            f"weights {memory.weights:,}, tables {memory.tables:,}, arena {memory.arena:,}",
        )


@overload
def load(
    path: str | os.PathLike[str],
    *,
    threads: int = 0,
    max_batch: int = 1,
    concurrency: int = 1,
    mmap: bool | None = None,
    isa: str | None = None,
    engine: Literal["float", "int8"] = "float",
    input_shape: Sequence[int] | None = None,
) -> Net: ...


@overload
def load(path: str | os.PathLike[str], *, mmap: bool | None = None, engine: Literal["micro"]) -> MicroNet: ...


@known_keywords
def load(
    path: str | os.PathLike[str],
    *,
    threads: int = 0,
    max_batch: int = 1,
    concurrency: int = 1,
    mmap: bool | None = None,
    isa: str | None = None,
    engine: str = "float",
    input_shape: Sequence[int] | None = None,
) -> Net | MicroNet:
    """Load a model file, or `hf://org/name` from the Hugging Face Hub; all of it is validated before it is used.

    - `threads`: how many work on one call; 0 takes every CPU that the process may use.
    - `max_batch`: examples that the working memory has room for; larger batches run in slices of that many.
    - `concurrency`: calls that run at once, each with working memory of its own.
    - `mmap`: None maps files from 1 MiB on, False reads the file into memory, True always maps.
    - `isa` forces an instruction set, as the environment variable MEMBOUND_ISA does.
    - `engine`: "float"; "int8" computes convolutions that keep many of their weights in 8-bit integers, which is faster
      on CPUs with dot products of bytes and changes results a little; "micro" gives a `MicroNet`, which computes in
      integers what a microcontroller would, bit for bit, and takes no other option but `mmap`.
    - `input_shape`: another shape of one example than the file says, such as (3, 320, 320) for a network of
      convolutions; `net.memory()` then tells what it takes. A network that is bound to its size is refused, with the
      reason.
    """
    if engine not in ENGINES:
        raise ModelError(
            f"there is no engine {engine!r}: choose {', '.join(ENGINES[:-1])} or {ENGINES[-1]}",
            about="engine",
        )
    check_path_like(path, "path")
    file = fetch(path) if is_address(path) else Path(path)
    refuse_other_kinds(file)
    model = read(file, mmap)
    if engine == "micro":
        if (threads, max_batch, concurrency, isa, input_shape) != (0, 1, 1, None, None):
            raise ModelError("the engine micro has no threads, batches or instruction sets: leave them out")
        return MicroNet(model)
    if input_shape is not None:
        model = resized(model, input_shape)
    net = Net(model, threads=threads, max_batch=max_batch, concurrency=concurrency, isa=isa, engine=engine)
    net._remake = partial(
        load,
        file.absolute(),
        threads=threads,
        max_batch=max_batch,
        concurrency=concurrency,
        mmap=mmap,
        isa=isa,
        engine=engine,
        input_shape=input_shape,
    )
    give_back()  # what checking the file took
    return net


def chosen_engine(asked: str | None, usual: str = "float") -> str:
    """An engine of a Net, where one is asked for."""
    if asked is not None and asked not in FAST:
        raise ModelError(f"there is no engine {asked!r}: choose {' or '.join(FAST)}", about="engine")
    return asked or usual


def in_integers(net: Net, threads: int = 1) -> Net | None:
    """A network in floats with the engine int8; None if no layer keeps enough for it: then the memory is the same."""
    other = Net(net.model, threads=threads, engine="int8")
    floats, integers = (each.memory(threads=1, max_batch=1) for each in (net, other))
    return None if floats == integers else other


def known_isas() -> list[str]:
    """The instruction sets that there are kernels for, on this machine or another."""
    names: list[str] = compiled_core().known_isas()
    return names


def check_isa(name: str) -> None:
    """Whether memory can be told for it: the name of one, or 'every'."""
    if name != EVERY and name not in known_isas():
        raise ModelError(f"there is no instruction set {name!r}: choose {', '.join(known_isas())} or {EVERY}")


def _usable_cpus() -> int:
    """As the core counts them; `machine` would make this module slow to import."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(found, _MOST["threads"])


_MOST = {"threads": 256, "max_batch": 65536, "concurrency": 1024}


def _check_counts(**given: tuple[Any, int]) -> None:
    """Each is None or a whole number from a least one on."""
    for name, (value, least) in given.items():
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if value is not None and not (whole and least <= value <= _MOST[name]):
            raise ModelError(
                f"{name}={value!r}: a whole number from {least} to {_MOST[name]} is needed", about=name
            )


def _for_core(plan: Planned) -> Any:
    """A plan as the compiled core takes it."""
    core, weight = compiled_core(), plan.weight
    stored = None
    if weight is not None:
        matrix = weight.matrix
        stored = core.Matrix(
            layout=weight.format,
            values_type=weight.type_name,
            rows=matrix.rows,
            columns=matrix.columns,
            entries=matrix.entries,
            values=weight.values,
            arrays=weight.arrays,
            **_few_bits(weight),
        )
    name, *numbers = plan.act
    return core.OpPlan(
        op=plan.op,
        inputs=plan.inputs,
        input_shapes=plan.input_shapes,
        output_shape=plan.output_shape,
        activation=name,
        activation_numbers=numbers,
        numbers={name: flat(value) for name, value in plan.numbers.items()},
        weight=stored,
        tables=plan.tables,
    )


def _few_bits(weight: Encoded) -> dict[str, Any]:
    """What a weight has that is packed: the numbers that its codes stand for, scales of rows, a layout's parameter."""
    palette = None if weight.palette is None else weight.palette.entries
    if palette is not None and not len(palette):  # of a weight without nonzeros; the core wants one entry
        palette = np.zeros(1, np.float32)
    numbers = {
        "palette": palette,
        "scales": None if weight.scales is None else weight.scales.astype(np.float32),
    }
    found: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
    return found | ({"parameter": weight.parameter} if weight.parameter else {})
