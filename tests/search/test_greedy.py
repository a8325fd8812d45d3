"""The greedy search: the paper's protocol, to the letter, with accuracies from a table; then a real one."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from profiles import full
from small import small_problem

from membound.errors import MemboundError, TrainingError
from membound.search.greedy import Greedy, Search, fewest_rounds, search, search_together
from membound.search.jobs import Outcome
from membound.search.ledger import open_run
from membound.search.measure import Nonzeros
from membound.search.workshop import Workshop, this_process
from membound.train.projection import project_

LAYERS = ("conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight")
Table = Callable[
    [dict[str, Any]], tuple[float | None, float | None]
]  # accuracy and loss, by what the job is about


class Clerk:
    """Workers that do not train: they cut to the counts, look the accuracy up, and remember every order."""

    def __init__(self, table: Table, stop_after: int | None = None) -> None:
        self.table, self.stop_after = table, stop_after
        self.orders: list[Any] = []

    def __call__(self, problem, orders, show):
        for order in orders:
            if len(self.orders) == self.stop_after:
                raise KeyboardInterrupt
            self.orders.append(order)
            state = dict(problem.make(order.job.seed).state_dict() if order.start is None else order.start)
            for name, count in (order.job.counts or {}).items():
                state[name] = state[name].clone()
                project_(state[name], count)
            accuracy, loss = self.table(dict(order.job.about))
            yield order.job, Outcome(facts_of(problem, order.job, state, accuracy, loss), state)

    @property
    def keys(self) -> list[str]:
        return [order.job.key for order in self.orders]


def facts_of(problem, job, state, accuracy, loss) -> dict[str, Any]:
    return {
        "job": job.describe(),
        "accuracy": accuracy,
        "loss": loss,
        "size": problem.measure(state),
        "nonzeros": Nonzeros(problem.make(0))(state),
        "counts": {name: int(state[name].count_nonzero()) for name in problem.weights},
        "weight_nonzeros": sum(int(state[name].count_nonzero()) for name in problem.weights),
        "steps": 1,
        "seconds": 0.1,
    }


def by_turns(about: dict[str, Any]) -> tuple[float, float]:
    """Another layer wins every round: fc1, fc2, conv1, conv2, fc1, ..."""
    if not about["round"]:
        return 99.0, 0.1
    return (95.0 if about["layer"] == LAYERS[(about["round"] + 1) % 4] else 90.0), 0.5


def always(layer: str) -> Table:
    return lambda about: (95.0 if about.get("layer") == layer else 90.0, 0.5)


@pytest.fixture(scope="module")
def problem():
    return small_problem(kind="nonzeros")


def test_the_fewest_rounds_are_those_of_the_layer_that_takes_the_most_away(problem):
    """Nearly all weights are in fc1: a search that cuts it alone is the shortest there is, and none is shorter."""
    for limit, table in ((6000, always("fc1.weight")), (5000, by_turns)):
        with open_run(None, {}) as run:
            first, *rest = search(Workshop(problem, run, Clerk(table)), [limit], 0)
        fewest = fewest_rounds(problem, first.winner, limit)
        assert 0 < fewest <= len(rest)
        assert fewest == len(rest) or table is by_turns
    assert fewest_rounds(problem, first.winner, first.winner["size"]) == 0


def rounds_of(problem, table, limits, options=None, seed=0):
    clerk = Clerk(table)
    with open_run(None, {}) as run:
        return list(search(Workshop(problem, run, clerk), limits, seed, options)), clerk


# The protocol


def test_each_round_cuts_a_fifth_of_one_layer_in_a_candidate_for_each(problem):
    rounds, clerk = rounds_of(problem, by_turns, [5_500])
    assert [found.number for found in rounds] == list(range(len(rounds)))
    assert len(rounds[0].candidates) == 1
    assert rounds[0].winner["counts"] == problem.sizes
    assert rounds[0].winner["job"]["counts"] is None
    for before, found in pairwise(rounds):
        needed = before.winner["size"] - 5_500
        assert [facts["job"]["about"]["layer"] for facts in found.candidates] == list(problem.weights)
        for facts in found.candidates:
            layer, had = facts["job"]["about"]["layer"], before.winner["counts"]
            left = max(round(0.8 * had[layer]), had[layer] - needed)
            assert facts["counts"] == {**had, layer: left}
            assert facts["job"]["start"] == before.winner["job"]["key"]
            assert facts["job"]["tuning"]
        assert found.winner in found.candidates
    assert [found.winner["job"]["about"]["layer"] for found in rounds[1:5]] == [
        "fc1.weight",
        "fc2.weight",
        "conv1.weight",
        "conv2.weight",
    ]
    assert rounds[-2].winner["size"] > 5_500 >= rounds[-1].winner["size"]
    assert clerk.keys[:3] == ["dense-part", "r001-conv1", "r001-conv2"]


def test_every_candidate_goes_on_from_the_weights_of_the_last_winner(problem):
    states: dict[str, Any] = {}
    clerk = Clerk(by_turns)
    with open_run(None, {}) as run:
        shop = Workshop(problem, run, clerk)
        for found in search(shop, [6_500], 0):
            states[found.winner["job"]["key"]] = shop.state(found.winner["job"]["key"])
    assert len(states) >= 3
    for order in clerk.orders[1:]:
        for name, value in states[order.job.start].items():
            assert torch.equal(order.start[name], value)


def test_candidates_of_one_round_see_the_same_images_and_the_next_round_others(problem):
    rounds, _ = rounds_of(problem, by_turns, [6_000], seed=40)
    seeds = [{facts["job"]["seed"] for facts in found.candidates} for found in rounds]
    assert all(len(found) == 1 for found in seeds)
    assert len(set.union(*seeds)) == len(rounds)
    assert seeds[0] == {40}


@pytest.mark.parametrize(
    ("scores", "winner"),
    [
        ({"conv1": (90.0, 0.5), "conv2": (91.0, 0.9), "fc1": (90.5, 0.1), "fc2": (90.0, 0.1)}, "conv2"),
        ({"conv1": (91.0, 0.5), "conv2": (91.0, 0.3), "fc1": (91.0, 0.4), "fc2": (80.0, 0.1)}, "conv2"),
        ({"conv1": (91.0, 0.3), "conv2": (91.0, 0.3), "fc1": (91.0, 0.3), "fc2": (80.0, 0.1)}, "fc1"),
        ({"conv1": (91.0, None), "conv2": (91.0, 7.5), "fc1": (None, 0.3), "fc2": (None, None)}, "conv2"),
        ({"conv1": (None, None), "conv2": (0.0, 7.5), "fc1": (None, 0.3), "fc2": (None, None)}, "conv2"),
    ],
    ids=["accuracy", "loss", "name", "no-loss", "no-accuracy"],
)
def test_the_best_accuracy_wins_then_the_loss_then_the_name(problem, scores, winner):
    def table(about):
        return scores[about["layer"].removesuffix(".weight")] if about["round"] else (99.0, 0.1)

    rounds, _ = rounds_of(problem, table, [8_400])
    assert rounds[1].winner["job"]["about"]["layer"] == f"{winner}.weight"


def test_losers_are_forgotten_and_winners_are_there(problem, tmp_path):
    with open_run(tmp_path / "run", {}) as run:
        shop = Workshop(problem, run, Clerk(by_turns))
        rounds = list(search(shop, [6_000], 0))
        for found in rounds:
            for facts in found.candidates:
                key = facts["job"]["key"]
                if facts is found.winner:
                    assert problem.measure(shop.state(key)) == facts["size"]
                else:
                    with pytest.raises(TrainingError, match="keeps no weights"):
                        shop.state(key)
    kept = {path.stem for path in (tmp_path / "run" / "weights").iterdir()}
    assert kept == {found.winner["job"]["key"] for found in rounds}


@pytest.mark.parametrize("limit", [8_473, 8_400, 7_000, 5_001])
def test_the_last_round_cuts_only_what_is_needed(problem, limit):
    rounds, _ = rounds_of(problem, always("fc1.weight"), [limit])
    assert rounds[-1].winner["size"] == limit
    for facts in rounds[-1].candidates:  # those whose fifth would not be enough cut a fifth
        layer, had = facts["job"]["about"]["layer"], rounds[-2].winner["counts"]
        needed = rounds[-2].winner["size"] - limit
        assert facts["counts"][layer] == max(round(0.8 * had[layer]), had[layer] - needed)


def test_a_limit_that_dense_meets_needs_no_round(problem):
    rounds, clerk = rounds_of(problem, by_turns, [problem.measure.dense(), 10**6])
    assert len(rounds) == 1
    assert clerk.keys == ["dense-part"]


def test_several_limits_share_their_rounds(problem):
    limits = [7_500, 5_000, 6_300]
    rounds, clerk = rounds_of(problem, always("fc1.weight"), limits)
    sizes = [found.winner["size"] for found in rounds]
    assert sizes == sorted(sizes, reverse=True)
    assert {7_500, 6_300, 5_000} <= set(sizes)
    assert sizes[-1] == 5_000
    alone, first = rounds_of(problem, always("fc1.weight"), [7_500])
    assert [found.winner for found in alone] == [found.winner for found in rounds[: len(alone)]]
    assert clerk.keys[: len(first.keys)] == first.keys
    apart = [rounds_of(problem, always("fc1.weight"), [limit])[1].keys for limit in limits]
    assert len(clerk.keys) < sum(map(len, apart))


def test_a_layer_at_one_weight_is_not_cut_any_more(problem):
    rounds, _ = rounds_of(problem, always("conv1.weight"), [8_250], Greedy(step=0.85))
    counts = [found.winner["counts"]["conv1.weight"] for found in rounds]
    assert counts[:4] == [150, 23, 3, 1]
    for found in rounds[4:]:
        assert all(facts["job"]["about"]["layer"] != "conv1.weight" for facts in found.candidates)
        assert all(facts["counts"]["conv1.weight"] == 1 for facts in found.candidates)
    assert rounds[-1].winner["size"] == 8_250


def test_only_the_layers_that_may_be_cut_are(problem):
    options = Greedy(step=0.5, layers=("fc1.weight", "fc2.weight"))
    rounds, _ = rounds_of(problem, by_turns, [3_000], options)
    assert rounds[-1].winner["size"] == 3_000
    for found in rounds[1:]:
        assert [facts["job"]["about"]["layer"] for facts in found.candidates] == ["fc1.weight", "fc2.weight"]
        assert found.winner["counts"]["conv2.weight"] == 1_800


# Bytes


@pytest.mark.parametrize("limit", [2_500, full(9_000)])
def test_bytes_are_met_by_real_files(limit):
    """The estimate of the last cut may be some bytes off, or more where channels die; then a round more cuts these."""
    files = small_problem()
    rounds, _ = rounds_of(files, by_turns, [limit], Greedy(step=0.4))
    assert 0.85 * limit <= rounds[-1].winner["size"] <= limit
    assert rounds[-2].winner["size"] > limit
    assert sum(found.winner["size"] < 1.01 * limit for found in rounds) <= 4


# What cannot be


def test_a_limit_below_what_one_weight_a_layer_takes_is_refused_after_the_dense_network(problem):
    clerk = Clerk(by_turns)
    with open_run(None, {}) as run:
        rounds = search(Workshop(problem, run, clerk), [5_000, 63], 0)
        with pytest.raises(
            TrainingError, match="cannot get to 63: with one weight a layer it takes 64; raise the budget"
        ):
            list(rounds)
    assert clerk.keys == ["dense-part"]


def test_a_limit_that_the_layers_never_reach_is_said(problem):
    """Biases that grow: what was possible for the dense network no longer is."""

    class Growing(Clerk):
        def __call__(self, problem, orders, show):
            for job, outcome in super().__call__(problem, orders, show):
                yield job, replace(outcome, facts={**outcome.facts, "size": outcome.facts["size"] + 10})

    with open_run(None, {}) as run:
        rounds = search(Workshop(problem, run, Growing(by_turns)), [65], 0, Greedy(step=0.97))
        with pytest.raises(
            TrainingError, match="cannot go below 74: every layer is down to one weight; raise the budget"
        ):
            list(rounds)


@pytest.mark.parametrize("step", [0, 1, -0.2, 1.5])
def test_steps_that_cannot_be(step):
    with pytest.raises(MemboundError, match="greedy_step must be a fraction between 0 and 1, got"):
        Greedy(step=step)


def test_layers_that_are_not_there(problem):
    with pytest.raises(
        MemboundError, match=r"'fc9.weight' cannot be cut: the weights under the bound are conv1"
    ):
        rounds_of(problem, by_turns, [5_000], Greedy(layers=["fc1.weight", "fc9.weight"]))


def test_without_validation_images_there_is_nothing_to_choose_by(problem):
    blind = replace(problem, data=replace(problem.data, validation=None))
    with pytest.raises(MemboundError, match="there are none: hold some of the training images out"):
        rounds_of(blind, by_turns, [5_000])


# Going on


@pytest.mark.parametrize("stop", [full(0), 1, full(3), 5, full(11)])
def test_a_search_that_was_stopped_goes_on_where_it_was(problem, tmp_path, stop):
    whole, clerk = rounds_of(problem, by_turns, [6_000])
    first, second, third = Clerk(by_turns, stop), Clerk(by_turns), Clerk(by_turns)
    with open_run(tmp_path / "run", {}) as run, pytest.raises(KeyboardInterrupt):
        list(search(Workshop(problem, run, first), [6_000], 0))
    with open_run(tmp_path / "run", {}) as run:
        rounds = list(search(Workshop(problem, run, second), [6_000], 0))
    assert first.keys + second.keys == clerk.keys
    assert rounds == whole
    with open_run(tmp_path / "run", {}) as run:
        assert list(search(Workshop(problem, run, third), [6_000], 0)) == whole
    assert third.keys == []


def test_a_real_search(tmp_path):
    problem = small_problem(kind="nonzeros", steps=30)
    workers = this_process(torch.device("cpu"))
    with open_run(tmp_path / "run", {}) as run:
        shop = Workshop(problem, run, workers)
        steps = search(shop, [4_500], 0, Greedy(step=0.5, layers=("conv2.weight", "fc1.weight")))
        rounds = [next(steps), next(steps)]  # and then it is stopped
    with open_run(tmp_path / "run", {}) as run:
        shop = Workshop(problem, run, workers)
        options = Greedy(step=0.5, layers=("conv2.weight", "fc1.weight"))
        again = list(search(shop, [4_500], 0, options))
        final = shop.state(again[-1].winner["job"]["key"])
    assert again[:2] == rounds
    assert 3 <= len(again) <= 5
    assert again[-1].winner["size"] == problem.measure(final) == 4_500
    for found in again[1:]:
        assert len(found.candidates) == 2
        assert found.winner["accuracy"] == max(facts["accuracy"] for facts in found.candidates)
        for facts in found.candidates:
            assert facts["counts"] == facts["job"]["counts"]
    assert not list((tmp_path / "run" / "jobs").iterdir())


@pytest.mark.full
def test_searches_side_by_side_are_the_searches_one_by_one():
    problem = small_problem(steps=12, kind="nonzeros")
    limit = 7_000

    def rounds_of(found):
        return [(r.number, r.winner["job"]["about"], r.winner["counts"], r.winner["accuracy"]) for r in found]

    with open_run(None, {}) as directory:
        workshop = Workshop(problem, directory, this_process(torch.device("cpu")))
        searches = [Search(workshop, [limit], seed, prefix=f"s{seed}-", also=("test",)) for seed in (0, 50)]
        together = search_together(workshop, searches)
    assert all("test_accuracy" in facts for r in together[0] for facts in r.candidates)
    for seed, rounds in zip((0, 50), together, strict=True):
        with open_run(None, {}) as directory:
            alone = Workshop(problem, directory, this_process(torch.device("cpu")))
            assert rounds_of(search(alone, [limit], seed)) == rounds_of(rounds)
