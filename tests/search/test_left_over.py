"""A file that is smaller than its budget says why."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from small import Small, digits

from membound.search.budget import Limit, Plan, describe_left_over, with_memory, with_time
from membound.search.problem import Target
from membound.search.request import Choices, Examples
from membound.search.setup import make_problem

PLAN = Plan(Limit("10 KB", 10_000), 10_000)
PROBLEM = SimpleNamespace(target=Target(values="auto"), plain_bytes=50_000, dense=lambda: 90_000)


def notes(
    file_bytes: int,
    types: set[str],
    memory_bytes: int = 0,
    parameters: int = 90_000,
    dead: bool = False,
    **target: object,
) -> list[str]:
    problem = SimpleNamespace(**{**vars(PROBLEM), "target": replace(PROBLEM.target, **target)})
    about = {"file_bytes": file_bytes, "memory_bytes": memory_bytes, "parameters": parameters}
    about["layers"] = [{"size": 80, "original_size": 100 if dead else 80}]
    return describe_left_over(problem, PLAN, types, about)


def test_of_few_bits_that_were_asked_for_all_must_fit_to_bind_nothing():
    """A file that dead channels made smaller does not show that nothing had to go."""
    (note,) = notes(9_000, set(), values="p4", dead=True)
    assert note.startswith("the file takes 9,000 of 10,000 bytes: channels that died")
    (note,) = notes(9_000, set(), parameters=17_000, values="p4")
    assert note == "the budget is larger than the whole network (9,000 bytes), so no weights were removed"


@pytest.mark.parametrize("values", ["auto", "p4"])
def test_on_a_microcontroller_the_flash_of_all_weights_is_compared(values):
    """A bound on RAM or on time is never the number that is said, but keeps a budget from binding nothing."""
    target = Target(values=values, micro=True)
    problem = make_problem(
        Small, Examples(train_data=(digits().images, digits().labels)), Choices(steps=1), target
    )
    about = {"file_bytes": 464, "memory_bytes": 0, "parameters": 1_236}
    whole = problem.measure(problem.measure.dense_state(), None if values == "auto" else problem.types)
    for ram in (None, 2_000):
        for allowed, binds in ((whole, False), (whole - 1, True)):
            limit = Limit(str(allowed), allowed)
            bound = problem if ram is None else with_memory(problem, limit, ram)
            notes = describe_left_over(bound, Plan(limit, allowed), set(), about)
            assert bool(notes) is not binds
            assert all(f"larger than the whole network ({whole:,} bytes of flash)" in note for note in notes)
    slow = with_time(problem, (limit := Limit("64KB", 64_000)), 0.5)
    assert describe_left_over(slow, Plan(limit, 64_000), set(), about) == []


def test_a_budget_that_is_used_says_nothing():
    assert notes(9_900, {"p4"}) == []
    assert notes(9_900, {"p4"}, 50_000, memory=50_000) == []


@pytest.mark.parametrize(
    ("types", "dead", "why"),
    [
        ({"p8"}, False, "all weights in 8 bits"),
        (
            {"p4"},
            False,
            "rounded to zero take less than was planned for them; a budget of 11,494 bytes would",
        ),
        (set(), True, "channels that died in training"),
        (set(), False, "the weights that are left take less"),
    ],
)
def test_without_another_bound_it_is_the_network(types, dead, why):
    (note,) = notes(8_700, types, dead=dead)
    assert note.startswith("the file takes 8,700 of 10,000 bytes: ")
    assert why in note


def test_beside_a_bound_on_memory_it_is_that():
    (note,) = notes(4_000, {"p4"}, 49_000, memory=50_000)
    assert note == (
        "the file takes 4,000 of 10,000 bytes: the bound on memory allows no more (49,000 of 50,000 bytes)"
    )
    (note,) = notes(4_000, {"p4"}, 30_000, memory=50_000)
    assert "memory grows in steps, and the next one is beyond its bound (30,000 of 50,000" in note
