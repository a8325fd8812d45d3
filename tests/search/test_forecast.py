"""How long a whole fit takes: what is expected at its beginning is what it does."""

import pytest
import torch
from fit_kills import Tiny
from profiles import full
from small import digits

import membound as mb
from membound.search.forecast import Forecast
from membound.search.jobs import Job
from membound.search.place import Watch
from membound.search.progress import by_lines
from membound.search.work import BOUNDED, TAUGHT, Work
from membound.train.run import Progress

TRAIN = (digits().images, digits().labels)
HELD_OUT = (digits(300, 400).images, digits(300, 400).labels)
STEPS = 8


class Wide(torch.nn.Sequential):
    """A network that can be made wider."""

    def __init__(self, width: float = 1.0) -> None:
        units = int(12 * width)
        super().__init__(
            torch.nn.Flatten(), torch.nn.Linear(784, units), torch.nn.ReLU(), torch.nn.Linear(units, 10)
        )


class Recorder:
    """What a fit was expected to do, and what it did."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.jobs: list[tuple[Job, int]] = []

    def watch(self) -> Watch:
        def done(job, facts):
            self.jobs.append((job, facts["steps"]))

        return Watch(done=done, expect=self.works.append)

    def done(self, seed: int = 0) -> float:
        return sum(self.works[seed].of(job, 1.0, steps) for job, steps in self.jobs)


def fit(model=Tiny, **options):
    recorder = Recorder()
    # Choosing the bits takes half of the time of so short a fit, and is the same trainings.
    options = {
        "budget": 2000,
        "values": "f16",
        "val_data": HELD_OUT,
        "steps": STEPS,
        "batch_size": 20,
        **options,
    }
    mb.fit(model, TRAIN, **options, watch=recorder.watch())
    return recorder


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"values": "auto"}, STEPS * (1 + TAUGHT)),
        ({"teacher": "none"}, STEPS * (1 + BOUNDED)),
        ({"dense": False}, STEPS * BOUNDED),
        ({"val_data": None}, 2 * STEPS * (1 + TAUGHT)),
        ({"members": 2}, STEPS * (1 + 2 * TAUGHT)),
        full({"budget": [2000, 3000], "members": 2}, STEPS * (1 + 4 * TAUGHT)),
        ({"model": Wide, "budget": 3000, "widths": (1, 1.5, 2), "teacher": "none"}, None),
        ({"model": Wide, "budget": 3000, "teacher": "auto"}, STEPS * (2 + TAUGHT)),
    ],
)
def test_all_trainings_are_expected_at_the_beginning(options, steps):
    recorder = fit(**options)
    (work,) = recorder.works
    assert not work.open_ended
    assert steps is None or work.steps == pytest.approx(steps)
    assert recorder.done() == pytest.approx(work.steps, rel=0.05)  # short trials have whole steps


@pytest.mark.full
def test_the_sizes_that_are_tried_are_counted():
    recorder = fit(budget=None, within=30.0)
    assert recorder.done() == pytest.approx(recorder.works[0].steps, rel=0.35)  # about as many as there are


def test_rounds_of_the_greedy_search_are_not_counted():
    recorder = fit(budget=6000, strategy="greedy", candidate_steps=2)
    (work,) = recorder.works
    assert work.open_ended
    assert recorder.done() == pytest.approx(work.steps)
    assert any(job.about.get("round") for job, _ in recorder.jobs)


def test_every_seed_expects_those_that_follow():
    recorder = fit(seeds=2, dense=False)
    assert [work.steps for work in recorder.works] == pytest.approx([2 * STEPS * BOUNDED, STEPS * BOUNDED])


def test_what_is_finished_is_not_expected_again(tmp_path):
    first = fit(run_dir=tmp_path / "run")
    again = fit(run_dir=tmp_path / "run")
    assert again.jobs == []
    assert again.works[0].steps == pytest.approx(0, abs=1e-9)
    assert first.works[0].steps > 0


DENSE, SMALL = Job("dense", 0), Job("final-2KB-0", 0, limit=2000, about={"budget": "2KB"})


def test_lines_say_the_time_of_the_whole_fit_until_the_last_training():
    said, now = [], [0.0]
    watch = by_lines(said.append, lambda: now[0], hint="it can go on later")
    watch.expect(Work(100.0, 100, ruled=200.0, bounded=2.0))
    for job, pace in ((DENSE, 2), (SMALL, 1)):
        for step in range(0, 101, 25):
            now[0] += 25 / pace if step else 0.0
            watch.show(job, Progress(step, 100, 0.5))
        watch.done(
            job, {"accuracy": 90.0, "errors": 1, "size": 10, "size_in": "bytes", "seconds": 1.0, "steps": 100}
        )
    assert said == [
        "dense: step 25 of 100, loss 0.5000, about 37.5 s left, at least 1 min 28 s left in all",
        "it can go on later",
        "dense: step 50 of 100, loss 0.5000, about 25.0 s left, at least 1 min 15 s left in all",
        "dense: step 75 of 100, loss 0.5000, about 12.5 s left, at least 1 min 2 s left in all",
        "dense: trained, accuracy 90.00 % in torch, 1.0 s",
        "2KB: step 0 of 100, loss 0.5000",
        "2KB: step 25 of 100, loss 0.5000, about 1 min 15 s left",
        "2KB: step 50 of 100, loss 0.5000, about 50.0 s left",
        "2KB: step 75 of 100, loss 0.5000, about 25.0 s left",
        "2KB: trained, accuracy 90.00 % in torch, 10 of 2,000 bytes, 1.0 s",
    ]


def test_the_first_steps_say_nothing_of_the_time_that_is_left():
    """They are slow: libraries warm up. A tenth of a training counts, or half a minute of a long one."""
    now = [0.0]
    for steps, seconds, taken, known in (
        (300, 10.0, 15, False),
        (300, 10.0, 30, True),
        (10**6, 31.0, 15, True),
    ):
        forecast = Forecast(lambda: now[0])
        forecast.expect(Work(2.0 * steps, steps))
        forecast.note(DENSE, 0, steps)
        now[0] += seconds
        forecast.note(DENSE, taken, steps)
        assert bool(forecast.describe()) is known


def test_a_search_says_at_least():
    now = [0.0]
    forecast = Forecast(lambda: now[0])
    assert forecast.describe() == ""
    forecast.expect(Work(300.0, 100, open_ended=True))
    forecast.note(DENSE, 0, 100)
    assert forecast.describe() == "", "one look says nothing about the pace"
    now[0] = 10.0
    forecast.note(DENSE, 100, 100)
    assert forecast.describe() == "at least 20.0 s left in all"
    forecast.note(Job("r001-fc", 0, counts={"fc.weight": 3}, about={"round": 1}), 50, 100)
    assert forecast.describe().endswith("at least 20.0 s left in all"), "rounds are not counted"


def test_what_was_not_expected_says_nothing_of_the_whole():
    now = [0.0]
    forecast = Forecast(lambda: now[0])
    forecast.expect(Work(100.0, 100))
    forecast.note(DENSE, 0, 100)
    now[0] = 10.0
    forecast.note(DENSE, 100, 100)
    forecast.done(DENSE)
    forecast.note(SMALL, 10, 100)
    assert forecast.left() is None


def test_the_second_of_two_seeds_knows_how_much_longer_a_step_under_a_bound_takes():
    now = [0.0]
    forecast, one = Forecast(lambda: now[0]), Work(100.0, 100, ruled=140.0, bounded=1.4)

    def train(job, seconds, *steps):
        for before, step in zip((0, *steps), steps, strict=False):
            now[0] += seconds * (step - before)
            forecast.note(job, step, 100)

    forecast.expect(one.times(2))
    train(DENSE, 0.25, 0, 100)
    assert forecast.left() == pytest.approx(0.25 * (100 + 2 * 100)), "at least, at the pace of dense steps"
    assert forecast.describe().startswith("at least")
    train(SMALL, 0.75, 0, 50)
    assert forecast.left() == pytest.approx(0.75 * (50 + 100) + 0.25 * 100)
    now[0] += 0.75 * 50
    forecast.note(SMALL, 100, 100)
    forecast.expect(one)
    train(DENSE, 0.25, 0, 40)
    assert forecast.left() == pytest.approx(0.25 * 60 + 0.75 * 100)


def test_the_whole_is_not_told_before_a_training_under_a_bound_is_past_its_dear_beginning():
    now, said = [0.0], {}
    forecast = Forecast(lambda: now[0])
    forecast.expect(Work(100.0, 100, ruled=280.0, bounded=1.4))
    for job, seconds in (
        (DENSE, {}),
        (SMALL, {10: 20.0}),
    ):  # where bits are chosen, one step takes 20 seconds
        for step in range(101):
            now[0] += seconds.get(step, 0.1) if step else 0.0
            forecast.note(job, step, 100)
            said[job.key, step] = forecast.describe()
    assert said["dense", 50].endswith("at least 25.0 s left in all")
    assert not [step for step in range(25) if "in all" in said[SMALL.key, step]], (
        "neither too few nor too many"
    )
    assert "in all" in said[SMALL.key, 25]
    assert "at least" not in said[SMALL.key, 25]
