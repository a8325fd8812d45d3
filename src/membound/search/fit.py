"""fit(): from a budget to a network.

Choices, where there are any (the rounds of the greedy search, the smallest size within some points of dense), are made
on validation images that no candidate was trained on. Then the final networks and the dense one beside them are
trained on all training images, as one population where that is possible, and judged through the deployed runtime.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack, overload

from torch import nn

from membound.data import Preprocess
from membound.data.npz import reading_notes
from membound.data.several import inputs_of
from membound.data.varied import check_varied
from membound.errors import MemboundError, ModelError
from membound.search import teachers
from membound.search.bounds import Amount, Bound, Several
from membound.search.budget import (
    Limit,
    Plan,
    make_plans,
    named_by_time,
    resolve_limits,
    with_memory,
    with_time,
)
from membound.search.collapse import with_collapse
from membound.search.deployed import Fitted
from membound.search.effort import describe_training, describe_work, with_effort
from membound.search.fitting import Fitting
from membound.search.forecast import expected_work, left_to_do
from membound.search.input_scale import note_constant, note_scales
from membound.search.integers import note_memory, with_integers_judged
from membound.search.latencies import with_latencies
from membound.search.latency import TRIES, LatencyBound, smaller, told
from membound.search.left_alone import note_left_alone
from membound.search.micro import MicroBytes, describe_dense
from membound.search.place import Place, Watch
from membound.search.problem import Problem, Target
from membound.search.progress import tell_resumed, watch_of
from membound.search.ranks import open_together
from membound.search.request import TEACHERS, Choices, Examples, Keywords, split_keywords
from membound.search.same_fit import describe_fit, differing_options
from membound.search.seeds import describe_call, fit_seeds
from membound.search.setup import make_problem
from membound.search.stages import Stages
from membound.search.targets import note_numbering, note_outputs, note_targets
from membound.search.wider import WIDER, widened
from membound.search.widths import SHARE, check_width, of_width
from membound.search.within import check_searchable
from membound.search.workshop import Workshop, this_process
from membound.signatures import show_fields_
from membound.train.loop import Interrupted
from membound.train.parallel import choose_device, join
from membound.train.population import trains_together
from membound.train.tensorboard import check_installed
from membound.units import LEVELS, parse_latency, show_latency

Model = nn.Module | Callable[[], nn.Module]
One = Amount | None


@overload
def fit(
    model: Model,
    train_data: Any,
    budget: One = ...,
    *,
    ram: One = ...,
    nonzeros: One = ...,
    **more: Unpack[Keywords],
) -> Fitted: ...
@overload
def fit(model: Model, train_data: Any, budget: Several, **more: Unpack[Keywords]) -> list[Fitted]: ...
@overload
def fit(model: Model, train_data: Any, *, ram: Several, **more: Unpack[Keywords]) -> list[Fitted]: ...
@overload
def fit(model: Model, train_data: Any, *, nonzeros: Several, **more: Unpack[Keywords]) -> list[Fitted]: ...
def fit(
    model: Model,
    train_data: Any,
    budget: Amount | Several | None = None,
    *,
    ram: Amount | Several | None = None,
    nonzeros: Amount | Several | None = None,
    **more: Unpack[Keywords],
) -> Fitted | list[Fitted]:
    """The most accurate network that fits: a Fitted, or a list of them for several budgets.

    - `model` is a network, or a function that makes one (then every member of an ensemble starts from its own weights).
      It is told the numbers of `classes` and `channels` of the data if it has these parameters.
    - `train_data`, `val_data`, `test_data`: a torch Dataset or DataLoader, a pair (x, y) of arrays, or a membound
      Dataset, which brings its test images with it. A DataLoader's batch size, order, workers and collate_fn are
      followed, or refused (docs/YOUR_OWN_MODEL.md). Choices are made on `val_data`, or on images held out of
      `train_data`; test images only judge.
    - In a pair (x, y), the first axis of both counts the examples, and the rest of x is what the network takes:
      [n, C, H, W] for images (gray ones are [n, 1, H, W]), [n, C, L] for sequences, [n, k] for features. uint8 means
      pixels from 0 to 255, which `fit` normalizes: images by mean and deviation of each channel, other shapes by
      1 / 255. Floats of any width become float32 and are used as they are, so normalize them first: mean 0 and
      deviation 1, or a range from 0 to 1. Other integers are refused in x. y is class numbers from 0 on, integers [n];
      floats [n] or [n, k] are numbers to predict; integers [n, H, W] are masks.
    - One bound is given, or `budget` with `ram` or `latency`. `budget`: bytes of the file, as '40 KiB', 40960, or '10%'
      of the dense file. `ram`: file and working memory at `batch` images on one thread, on every instruction set or on
      `isa` alone ('avx2', 'avx512', 'neon', 'scalar'). `latency`: the time of one image on `threads` threads of this
      machine, as '5 ms', or a number of milliseconds. Alone, it allows a file as large as the dense one; with one
      `budget`, both hold. No other bound may stand beside it (on a microcontroller, `ram` may), and it takes a single
      network, no ensemble. `nonzeros`: parameters that are not zero. `within`: the smallest file within so many points
      of dense. `stages`: the nonzeros of layers, tightened as long as accuracy allows (a `Stages`, or its file). A list
      of budgets gives a list of results. With `target='micro'`, `budget` bounds the flash of a microcontroller, code
      included ('10%' is of the flash that the dense network takes in 8 bits), and `latency` the time that is estimated
      at its `clock`, '80 MHz' where none is given: give one of them or both, and `ram`, which bounds its RAM, beside
      them. Flash and time are those of C `compiled` with 'Os', or 'O2': faster, and more code.
    - `values` are stored in 'p1' to 'p8' (so many bits each), 'f16', 'f32', or 'auto': in few bits, as many in each
      layer as pay there, unless that costs accuracy. `prefer='speed'` stores them in formats that run faster and take
      more bytes, so that fewer weights fit.
    - `members` above 1 make an ensemble in one file, which averages 'scores' or 'probabilities' (`average`).
    - `strategy` says which layer keeps how much: 'global' (the default), 'greedy' (the paper's), 'magnitude' or
      'uniform', or a function that scores weights: the highest of the whole network stay. `steps`, `batch_size`,
      `lr`, `seed`, `loss`, `score`, `dense` and the other fields of Choices say how networks are trained; or `effort`,
      'quick', 'normal' or 'best'. `augment`, `teacher` and `widths` are among them; so is `seeds`, which repeats the
      fit to say mean and spread.
    - `device`, `run_dir`, `tensorboard`, `workers` and `watch`, the fields of Place, say where it runs and who is told.
    - `preprocess` and `classes` go into the file; what is left out is taken from the data. Where examples are floats
      that were prepared before, `pixels` says how pixels became them: then the file takes pixels, too.
    """
    given = {"train_data": train_data, "budget": budget, "ram": ram, "nonzeros": nonzeros, **more}
    bound, choices, place, examples = split_keywords(given)
    try:
        results = fit_all(model, examples, bound, choices, place)
    except Interrupted:
        raise Interrupted(_say_kept(place.run_dir)) from None
    return results if bound.is_list else results[0]


show_fields_(fit, (Bound, Choices, Place, Examples))


def _say_kept(run_dir: str | Path | None) -> str:
    """What is left of a fit that somebody has stopped."""
    if run_dir is None:
        return (
            "fit was interrupted and nothing was saved: call it again; with run_dir='runs/a', an interrupted call can "
            "be resumed"
        )
    return f"fit was interrupted: call fit again with run_dir={str(run_dir)!r} to go on"


def fit_all(model: Model, examples: Examples, bound: Bound, choices: Choices, place: Place) -> list[Fitted]:
    """A network for each amount of the bound."""
    call = describe_call(model, examples, bound, choices)
    return fit_seeds(partial(_fit_once, model, examples, bound), call, bound, choices, place)


def _fit_once(model: Model, examples: Examples, bound: Bound, choices: Choices, place: Place) -> list[Fitted]:
    """The same for one seed; under torchrun all of its processes train each network together."""
    if place.tensorboard:
        check_installed()
    device = choose_device(place.device or "auto")
    world = join(device)
    if isinstance(model, nn.Module):
        world.share_weights(model)
    if isinstance(bound.stages, str | Path):
        bound = replace(bound, stages=Stages.read(bound.stages))
    watch = watch_of(place, choices)
    if not world.leads:
        watch = Watch(warn=lambda text: None)
    choices = with_effort(choices, model, bound)
    problem = _pose(model, examples, bound, choices, watch)
    check_varied(problem.data.train)
    allowed_ms = None if bound.latency is None else parse_latency(bound.latency)
    latency = None
    if bound.latency is not None and allowed_ms is not None and not bound.is_micro:
        latency = LatencyBound(allowed_ms, bound.threads, show_latency(bound.latency))
    limits = [] if bound.searches else resolve_limits(problem, bound.amounts)
    if bound.memory is not None:
        problem = with_memory(problem, limits[0], bound.memory)
    if allowed_ms is not None and bound.is_micro:
        limits = [named_by_time(limits[0], allowed_ms)]
        problem = with_time(problem, limits[0], allowed_ms)
    widths = choices.widths if isinstance(choices.widths, tuple) else (1.0,)
    narrowest = of_width(problem, min(widths))  # what this one cannot be brought under, none can
    plans = make_plans(narrowest, limits, bound.members, bound.average, choices.seed)
    run_dir = None if place.run_dir is None else Path(place.run_dir)
    described, differing = describe_fit(problem, bound, choices), partial(differing_options, bound.name)
    with open_together(world, run_dir, described, differing) as directory:
        if run_dir is not None:
            tell_resumed(directory, watch)
        workers = place.workers or this_process(device)
        workshop = Workshop(problem, directory, workers, watch.show, watch.done, place.tensorboard)
        reading = [
            *reading_notes(examples.train_data),
            *_note_floats(problem),
            *note_constant(problem),
            *note_scales(problem),
            *note_targets(problem),
            *note_outputs(problem),
            *note_left_alone(problem, choices),
            *note_memory(problem, bound, limits),
        ]
        for note in reading:
            watch.note(note)
        tried = [*reading, *note_numbering(problem), *describe_training(problem, choices)]
        watch.note(describe_work(problem, bound, choices))
        if isinstance(problem.measure, MicroBytes):
            watch.note(
                describe_dense(
                    problem.measure,
                    problem.weights,
                    problem.target.clock,
                    [] if bound.is_time_alone else [limit.number for limit in limits],
                )
            )
        together = place.workers is not None or trains_together(problem.make(choices.seed), device)
        at_once = 7 if together and world.size == 1 else 1
        dense_teaching = None
        if teachers.dense_teaches(problem, bound, choices):
            numbers, passes = teachers.teaching_numbers(choices), _passes(problem, bound, choices)
            dense_teaching = partial(teachers.dense_teaching, problem.make, numbers, passes)
            tried.append(teachers.DENSE_TEACHES)
        taught = (
            dense_teaching is not None or problem.teaching is not None or choices.teacher == teachers.AUTO
        )
        watch.expect(left_to_do(expected_work(problem, bound, choices, taught, at_once), directory))
        if choices.teacher == teachers.AUTO:
            watch.say("training the teacher")
            teaching, facts = teachers.train_teacher(
                workshop, choices.seed, *teachers.teaching_numbers(choices), _passes(problem, bound, choices)
            )
            workshop.problem = workshop.problem.changed(teaching=teaching)
            tried.append(teachers.describe_teacher(facts))
        if latency is not None:
            asked = limits[0]
            limit, notes = latency.limit(workshop.problem, directory, asked, world)
            for note in notes:
                watch.note(note)
            tried, limits = [*tried, *notes], [limit]
            plans = make_plans(workshop.problem, limits, bound.members, bound.average, choices.seed)
        fitting = Fitting(workshop, bound, choices, watch, at_once, world, dense_teaching)
        fitting.finals.tried += tried
        run = fitting.run if choices.widths is None else fitting.run_widths

        def run_and_time(plans: list[Plan]) -> list[Fitted]:
            results = with_collapse(run(plans), workshop.problem)
            finals, problem = fitting.finals, workshop.problem
            rounded = None if finals.eight_bits is None else finals.eight_bits.stored
            timed = with_latencies(results, finals.dense_file, rounded, bound.threads, problem.target, world)
            return with_integers_judged(timed, problem, world)

        if latency is None:
            return run_and_time(plans)
        return _run_fast_enough(run_and_time, plans, asked, latency, workshop.problem, choices.seed, watch)


def _note_floats(problem: Problem) -> list[str]:
    """What an app must know of a network that was trained on pictures which were prepared elsewhere."""
    data = problem.data
    shape = tuple(data.train.shape)
    pictures = len(shape) == 3 and shape[0] in (1, 3) and shape[1] == shape[2]
    if not pictures or data.pixels is not None or data.preprocess != Preprocess(takes="float32"):
        return []
    return [
        "the images are floats, so the file takes floats, too, and an app must prepare pictures in just the same way: "
        "pixels=mb.data.Preprocess(...), in fit or in the save of its result, puts that into the file"
    ]


def _run_fast_enough(
    run: Callable[[list[Plan]], list[Fitted]],
    plans: list[Plan],
    asked: Limit,
    latency: LatencyBound,
    problem: Problem,
    seed: int,
    watch: Watch,
) -> list[Fitted]:
    """The network under its limit; smaller ones, as long as that is too slow."""
    for left in reversed(range(TRIES)):
        (fitted,) = run(plans)
        taken = fitted.facts["latency_ms"]
        if taken <= latency.ms:
            return [told(fitted, plans[0].limit, asked, latency)]
        if not left:
            break
        limit = smaller(plans[0].limit, fitted.file_bytes, taken, latency)
        watch.say(
            f"it takes {taken:.3g} ms, more than the {latency.shown} allowed: training again, in "
            f"{limit.number:,} bytes"
        )
        plans = make_plans(problem, [limit], 1, "scores", seed)
    raise MemboundError(
        f"the network takes {taken:.3g} ms on this machine after {TRIES} trainings, more than the {latency.shown} "
        "allowed: allow more time, or try again when the machine is idle",
        about="latency",
    )


def _pose(model: Model, examples: Examples, bound: Bound, choices: Choices, watch: Watch) -> Problem:
    """The problem that is asked for; what is wrong with it is said before anything is trained."""
    if bound.searches and (bound.members > 1 or choices.is_greedy):
        raise MemboundError(
            f"{bound.name} takes a single network, and no greedy strategy: leave out members or strategy='greedy'",
            about=(bound.name, "members", "strategy"),
        )
    chooses = bound.searches or choices.is_greedy or choices.widths is not None
    if choices.widths is not None:
        check_width(model)
        if bound.searches or choices.is_greedy or choices.pretrained:
            raise MemboundError(
                "widths needs a budget and an untrained network: leave out within, stages, the greedy strategy and "
                "trained weights",
                about="widths",
            )
    values = "f16" if bound.may_widen and bound.kind == "nonzeros" else bound.values
    target = Target(
        bound.kind,
        values,
        bound.batch,
        bound.isa,
        micro=bound.is_micro or None,
        activations=bound.activations if bound.is_micro else None,
        clock=bound.clock_hz,
        compiled=None if bound.level == LEVELS[0] else bound.level,
        prefer=bound.prefer,
    )
    problem = make_problem(model, examples, choices, target, hold_out=chooses, warn=watch.warn)
    if bound.members > 1 and inputs_of(problem.data.train) is not None:
        raise MemboundError(
            "members makes an ensemble, which takes networks with one input, and these examples have several: leave it "
            "out",
            about="members",
        )
    if bound.may_widen:
        problem = _storable(problem)
    if choices.teacher == teachers.AUTO:
        teachers.check_classifies(problem)
        problem = teachers.with_wider(problem)
    elif choices.teacher not in (None, *TEACHERS):
        numbers = teachers.teaching_numbers(choices)
        teaching = teachers.make_teaching(
            choices.teacher, problem, *numbers, _passes(problem, bound, choices)
        )
        problem = problem.changed(teaching=teaching)
    if bound.within is not None:
        check_searchable(problem)
    if isinstance(bound.stages, Stages):
        bound.stages.resolve(problem)
    return problem


def _passes(problem: Problem, bound: Bound, choices: Choices) -> float:
    """Through the images, that all networks under the bound take, at least."""
    recipe = problem.training.recipe
    trainings = 1.0 if choices.widths is None or len(choices.widths) < 2 else 1.0 + SHARE
    networks = max(len(bound.amounts), 1) * bound.members
    return trainings * networks * recipe.steps * recipe.batch_size / len(problem.data.train)


def _storable(problem: Problem) -> Problem:
    """With wider values, where these cannot hold the network as it starts."""
    while True:
        try:
            problem.least()
            return problem
        except ModelError:
            if problem.target.values not in WIDER:
                raise  # something else is wrong
            problem = widened(problem)
