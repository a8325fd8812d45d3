"""What a network takes is planned, not probed: every machine gives the same numbers, for every instruction set."""

import numpy as np
import pytest
from nets import ISAS, check, normal, stored

from membound.errors import ModelError
from membound.machine import available_cores
from membound.run import Net
from membound.run.net import EVERY, known_isas
from membound.store.graph import Graph, Node
from membound.store.model import Model


def pattern(keep, *shape):
    """The same weight on every machine: one of `keep` elements is not zero."""
    places = np.arange(np.prod(shape)) * 7919 % 104729
    return np.where(places % keep == 0, 1 + places % 5, 0).astype(np.float32).reshape(shape) / 8


def network() -> Model:
    """A dense layer, sparse ones of every shape that is laid out in a way of its own, a skip, and linear layers."""
    pad = {"pad": (1, 1, 1, 1), "act": ("relu",)}
    nodes = (
        Node("conv", (0,), {"stride": (2, 2), **pad}, {"w": "stem"}),  # 15 x 15
        Node("conv", (1,), {"act": ("clip", 0.0, 6.0)}, {"w": "wide"}),
        Node("conv", (2,), {"groups": 48, **pad}, {"w": "deep"}),
        Node("conv", (3,), {}, {"w": "narrow"}),
        Node("add", (1, 4), {}),
        Node("conv", (5,), {"stride": (2, 2), **pad}, {"w": "down"}),
        Node("maxpool", (6,), {"kernel": (3, 3), "stride": (2, 2)}),
        Node("reshape", (7,), {"shape": (32 * 3 * 3,)}),
        Node("linear", (8,), {"act": ("relu",)}, {"w": "first"}),
        Node("linear", (9,), {}, {"w": "last"}),
    )
    tensors = {
        "stem": pattern(1, 16, 3, 3, 3),
        "wide": pattern(5, 48, 16, 1, 1),
        "deep": pattern(1, 48, 1, 3, 3),
        "narrow": pattern(10, 16, 48, 1, 1),
        "down": pattern(8, 32, 16, 3, 3),
        "first": pattern(20, 64, 288),
        "last": pattern(2, 10, 64),
    }
    return Model(Graph((3, 30, 30), nodes, len(nodes)), tensors)


FORMATS = {
    "stem": "dense",
    "wide": "bitmask",
    "deep": "dense",
    "narrow": "csr",
    "down": "delta",
    "first": "delta",
    "last": "indexed",
}


def in_formats():
    return stored(network(), FORMATS)


# Of arenas: by instruction set, for one image on one thread and for batches of 8 on two. They change with the planner,
# and with nothing else.
ARENAS = {
    "scalar": (103168, 215616),
    "avx2": (101952, 213184),
    "avx512": (118912, 247104),
    "neon": (101952, 213184),
}


@pytest.mark.parametrize("isa", sorted(ARENAS))
def test_the_plan_is_the_same_on_every_machine(isa):
    net = Net(in_formats(), threads=1)
    few, many = net.memory(isa), net.memory(isa, threads=2, max_batch=8)
    assert (few.arena, many.arena) == ARENAS[isa]


def test_instruction_sets_that_run_here_are_known():
    assert set(ISAS) <= set(known_isas()) == set(ARENAS)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("threads", "max_batch"), [(1, 1), (3, 1), (2, 8), (8, 3)])
def test_what_is_planned_is_what_is_taken(isa, threads, max_batch):
    """Planned from a network that was loaded in another way, and taken by one that was loaded so."""
    model = in_formats()
    planned = Net(model, threads=1).memory(isa, threads=threads, max_batch=max_batch)
    assert planned == Net(model, threads=threads, max_batch=max_batch, isa=isa).memory()


def test_every_is_the_most_that_any_takes():
    net = Net(in_formats(), threads=1)
    assert net.memory(EVERY).total == max(net.memory(isa).total for isa in known_isas())


def test_scratch_lies_where_no_value_does():
    """Results are right with all of it in one arena, whichever order the images come in."""
    check(in_formats(), normal(3, 9, 3, 30, 30), max_batch=4, threads=(1, 2, 3, 8))


@pytest.mark.parametrize("concurrency", [1, 3])
def test_calls_at_once_have_an_arena_each(concurrency):
    model = in_formats()
    one = Net(model, threads=1).memory("neon").arena
    assert Net(model, threads=1, concurrency=concurrency).memory("neon").arena == concurrency * one


@pytest.mark.parametrize(
    ("isa", "options", "said"),
    [
        ("sse2", {}, "there is no instruction set 'sse2': choose scalar, avx2, avx512, neon or every"),
        (None, {"threads": 0}, "threads=0: a whole number from 1 to 256 is needed"),
        ("avx2", {"max_batch": 1.5}, "max_batch=1.5: a whole number from 1 to 65536 is needed"),
    ],
)
def test_what_cannot_be_planned_for(isa, options, said):
    with pytest.raises(ModelError) as raised:
        Net(in_formats()).memory(isa, **options)
    assert str(raised.value) == said


def test_memory_says_what_it_is_for():
    """The total first; every CPU is counted where nobody says how many threads."""
    net = Net(in_formats(), threads=2, max_batch=4, concurrency=3)
    for memory, asked in ((net.memory(), (2, 4, 3)), (net.memory("neon", threads=1, max_batch=1), (1, 1, 3))):
        assert (memory.threads, memory.max_batch, memory.concurrency) == asked
        assert repr(memory).startswith(f"Memory(total={memory.total}, weights={memory.weights}, ")
        assert repr(memory).endswith("threads={}, max_batch={}, concurrency={})".format(*asked))
    every = Net(in_formats())
    assert every.memory() == every.memory(threads=available_cores())
    assert f"(threads {available_cores()}, batch 1)" in every._repr_html_()
