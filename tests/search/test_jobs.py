"""Jobs: the same one gives the same network, and everything that a job says changes what it should."""

import json
import pickle
from dataclasses import replace

import pytest
import torch
from small import small_problem

from membound.data import bag
from membound.errors import Diverged
from membound.search.jobs import Job, Order, carry_out
from membound.search.ledger import open_run
from membound.search.measure import Nonzeros
from membound.search.workshop import Workshop, this_process
from membound.train.updates import l0_project, l1_shrink

CPU = torch.device("cpu")
COUNTS = {"conv1.weight": 40, "conv2.weight": 200, "fc1.weight": 300, "fc2.weight": 90}


@pytest.fixture(scope="module")
def problem():
    return small_problem(steps=30)


@pytest.fixture(scope="module")
def plain(problem):
    return done(problem, Job("plain", 0))


def done(problem, job, start=None, show=None):
    ((same, outcome),) = carry_out(problem, [Order(job, start)], CPU, show)
    assert same is job
    return outcome


def timeless(facts):
    history = [{key: value for key, value in entry.items() if key != "seconds"} for entry in facts["history"]]
    return {**facts, "history": history, "seconds": None}


def assert_same_state(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def differs(one, other):
    return any(not torch.equal(one.state[name], other.state[name]) for name in one.state)


@pytest.mark.parametrize(
    "job",
    [
        Job("a", 3),
        Job("a", 3, limit=5_000),
        Job("a", 3, limit=5_000, score="uniform", bag=4),
        Job("a", 3, counts=COUNTS, lr_scale=0.5, everything=True),
    ],
    ids=["dense", "limit", "uniform-bag", "counts"],
)
@pytest.mark.one_in(3)
def test_the_same_job_gives_the_same_network_and_the_same_facts(problem, job):
    first = done(problem, job)
    torch.manual_seed(7)
    second = done(pickle.loads(pickle.dumps(problem)), job)  # as a worker elsewhere has it
    assert_same_state(first.state, second.state)
    assert timeless(first.facts) == timeless(second.facts)


def test_jobs_done_together_are_as_they_are_alone(problem):
    jobs = [Job("a", 0, limit=6_000), Job("b", 1), Job("c", 0, bag=2)]
    together = {job.key: found for job, found in carry_out(problem, [Order(job) for job in jobs], CPU)}
    for job in jobs:
        alone = done(problem, job)
        assert_same_state(together[job.key].state, alone.state)
        assert timeless(together[job.key].facts) == timeless(alone.facts)


@pytest.mark.parametrize(
    "job",
    [
        Job("a", 0),
        Job("b", 0, limit=5_000, about={"budget": "5 KB"}),
        Job("c", 0, counts=COUNTS, everything=True),
    ],
    ids=["dense", "limit", "counts"],
)
def test_facts_are_json_and_true(problem, job):
    outcome = done(problem, job)
    facts = outcome.facts
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["job"] == json.loads(json.dumps(job.describe()))
    assert Job(**{**facts["job"], "also": ()}) == job
    assert facts["size"] == problem.measure(outcome.state)
    assert facts["nonzeros"] == Nonzeros(problem.make(0))(outcome.state)
    biases = sum(int(value.count_nonzero()) for name, value in outcome.state.items() if name.endswith("bias"))
    assert facts["weight_nonzeros"] == facts["nonzeros"] - biases == sum(facts["counts"].values())
    assert facts["steps"] == 30
    assert facts["images"] == (50 if job.everything else 100)
    assert facts["accuracy"] == pytest.approx(100 * (1 - facts["errors"] / facts["images"]))
    assert facts["history"][-1]["accuracy"] == facts["accuracy"]
    assert all(value.device.type == "cpu" and not value.requires_grad for value in outcome.state.values())


def test_a_dense_job_is_dense(problem, plain):
    assert plain.facts["counts"] == problem.sizes


def test_the_seed_changes_the_start_and_the_order(problem, plain):
    other = done(problem, Job("a", 1))
    assert differs(other, plain)
    one, two = (done(problem, Job("a", seed), start=plain.state) for seed in (0, 1))
    assert differs(one, two)  # from the same weights: images in another order


def test_a_bag_changes_the_images_and_nothing_else(problem, plain):
    bagged = done(problem, Job("a", 0, bag=5))
    assert differs(bagged, plain)
    assert differs(bagged, done(problem, Job("a", 0, bag=6)))
    assert bagged.facts["images"] == plain.facts["images"]
    by_hand = replace(problem, data=replace(problem.data, part=bag(problem.data.part, seed=5)))
    assert_same_state(done(by_hand, Job("a", 0)).state, bagged.state)


def test_the_learning_rate_is_scaled(problem, plain):
    assert differs(done(problem, Job("a", 0, lr_scale=2.0)), plain)
    still = done(problem, Job("a", 0, lr_scale=0.0))
    assert_same_state(still.state, problem.make(0).state_dict())


def test_everything_trains_on_the_images_that_choices_are_made_on_too(problem, plain):
    all_of_it = done(problem, Job("a", 0, everything=True))
    assert differs(all_of_it, plain)
    by_hand = replace(
        problem, data=replace(problem.data, part=problem.data.train, validation=problem.data.test)
    )
    expected = done(by_hand, Job("a", 0))
    assert_same_state(expected.state, all_of_it.state)
    assert expected.facts["accuracy"] == all_of_it.facts["accuracy"]


@pytest.mark.parametrize("tuning", [False, True])
def test_counts_hold_exactly(problem, plain, tuning):
    found = done(problem, Job("a", 0, tuning=tuning, counts=COUNTS), start=plain.state if tuning else None)
    assert found.facts["counts"] == COUNTS
    assert found.facts["steps"] == (10 if tuning else 30)


def test_a_limit_holds_and_scores_matter(problem):
    found = {score: done(problem, Job("a", 0, limit=5_000, score=score)) for score in ("lamp", "uniform")}
    for outcome in found.values():
        assert 0.97 * 5_000 <= outcome.facts["size"] <= 5_000
    parts = [count / problem.sizes[name] for name, count in found["uniform"].facts["counts"].items()]
    assert max(parts) < 1.1 * min(parts)
    assert found["lamp"].facts["counts"] != found["uniform"].facts["counts"]
    assert done(problem, Job("a", 0, limit=3_000)).facts["size"] <= 3_000


def test_counts_beside_a_limit_are_proportions(problem):
    found = done(problem, Job("a", 0, limit=5_000, counts=COUNTS))
    assert 0.97 * 5_000 <= found.facts["size"] <= 5_000
    ratios = [
        count / COUNTS[name] for name, count in found.facts["counts"].items() if count < problem.sizes[name]
    ]
    assert len(ratios) >= 3
    assert max(ratios) < 1.05 * min(ratios)


def test_a_job_goes_on_from_the_weights_of_another(problem, plain):
    still = replace(problem.training.tuning, lr=lambda step: 0.0)
    frozen = replace(problem, training=replace(problem.training, tuning=still))
    found = done(frozen, Job("a", 9, start="plain", tuning=True), start=plain.state)
    assert_same_state(found.state, plain.state)
    assert found.facts["accuracy"] == plain.facts["accuracy"]
    assert differs(done(problem, Job("a", 9, start="plain", tuning=True), start=plain.state), plain)


def test_whoever_watches_is_told(problem):
    told = []
    job = Job("a", 0)
    done(problem, job, show=lambda which, progress: told.append((which, progress.step)))
    assert told[-1] == (job, 30)
    assert len(told) > 5


def test_a_workshop_does_what_is_not_done_and_keeps_it(problem, tmp_path):
    calls = []

    def workers(problem, orders, show):
        calls.append([order.job.key for order in orders])
        return this_process(CPU)(problem, orders, show)

    first, second = Job("first", 0), Job("second", 1, start="first", tuning=True, counts=COUNTS)
    with open_run(tmp_path / "run", {}) as run:
        told = []
        shop = Workshop(problem, run, workers, tell=lambda job, facts: told.append((job.key, facts["size"])))
        (facts,) = shop.do([first])
        both = shop.do([second, first])
        assert both[1] == facts
        assert told == [("first", facts["size"]), ("second", both[0]["size"])]
        assert both[0]["counts"] == COUNTS
        shop.forget(["second"])
    with open_run(tmp_path / "run", {}) as run:
        again = Workshop(problem, run, workers)
        assert again.do([first, second]) == [facts, both[0]]
        assert problem.measure(again.state("first")) == facts["size"]
    assert calls == [["first"], ["second"]]


def test_a_job_that_may_fail_comes_back_with_its_failure(problem):
    hopeless = Job("bad", 0, lr_scale=1e9, may_fail=True)
    orders = [Order(hopeless), Order(Job("good", 0))]
    facts = {job.key: outcome.facts for job, outcome in carry_out(problem, orders, CPU)}
    assert "diverged" in facts["bad"]["failure"]
    assert facts["bad"]["accuracy"] is None
    assert "failure" not in facts["good"]


def test_a_job_that_must_not_fail_is_told_when_the_others_are_done(problem):
    found = carry_out(problem, [Order(Job("bad", 0, lr_scale=1e9)), Order(Job("good", 0))], CPU)
    (job, _) = next(found)
    assert job.key == "good"
    with pytest.raises(Diverged, match="diverged"):
        next(found)


def test_a_job_can_have_rules_a_recipe_and_few_images_of_its_own(problem):
    rules = {"fc1": l0_project(50, 5), "conv1": l1_shrink(10.0)}
    recipe = replace(problem.training.recipe, steps=12)
    job = Job(
        "own", 1, rules=rules, recipe=recipe, images=200, everything=True, also=("train", "test"), looks=3
    )
    outcome = done(problem, job)
    assert outcome.facts["steps"] == 12
    assert outcome.facts["counts"]["fc1.weight"] == 50
    assert outcome.facts["counts"]["conv1.weight"] < outcome.state["conv1.weight"].numel()
    assert [entry["iteration"] for entry in outcome.facts["history"]] == [4, 8, 12]
    assert outcome.facts["test_accuracy"] == outcome.facts["accuracy"]
    assert 0 <= outcome.facts["train_accuracy"] <= 100
    assert json.loads(json.dumps(outcome.facts)) == outcome.facts
    assert differs(outcome, done(problem, replace(job, images=100)))
