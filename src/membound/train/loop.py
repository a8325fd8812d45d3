"""The loop for one network: train under rules, evaluate what would be deployed, survive being killed."""

import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any

from torch import nn

from membound.data import Preprocess, Split
from membound.data.augment import NONE, Augment
from membound.errors import Diverged, MemboundError, ModelError, TrainingError
from membound.train import checkpoint as files
from membound.train.divergence import LOST, WORSE, loss_of_some, not_finite
from membound.train.ending import StaleStatistics
from membound.train.evaluation import Score, evaluate
from membound.train.parallel import World, choose_device, join, lost_another
from membound.train.recipe import Recipe
from membound.train.resume import resume, save
from membound.train.run import Progress, Result, Run, Settings
from membound.train.stepping import make_stepper
from membound.train.updates import Update

LOOK_EVERY = 50  # steps between looks at the loss, each of which waits for the device


class Interrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C or SIGTERM after saving what is needed to go on."""


def train(
    model: nn.Module,
    split: Split,
    recipe: Recipe,
    rules: Mapping[str, Update] | None = None,
    *,
    preprocess: Preprocess,
    held_out: Split | None = None,
    settings: Settings | None = None,
    augment: Augment = NONE,
    show: Callable[[Progress], None] | None = None,
) -> Result:
    """Train `model` in place on `split`; `held_out` is only looked at, to report.

    With a `run_dir` an interrupted or killed run is resumed by the same call, bit for bit on the CPU.
    """
    settings = settings or Settings()
    device = choose_device(settings.device)
    world = join(device)
    with graceful_interrupt(world) as interrupted, run_folder(settings, world):
        run = Run(
            model, split, recipe, preprocess, settings, device, world, dict(rules or {}), held_out,
            augment=augment, show=show,
        )  # fmt: skip
        for _ in take_steps(run, interrupted):
            pass
        return run.result()


def run_folder(settings: Settings, world: World) -> AbstractContextManager[None]:
    """The run's directory, held against other processes."""
    if settings.run_dir is None or not world.leads:
        return nullcontext()
    return files.locked(settings.run_dir)


def take_steps(run: Run, interrupted: Callable[[], bool]) -> Iterator[None]:
    """From where it is to the end: each time it goes on, one step is taken."""
    try:
        if run.path is not None and run.world.agree(run.path.exists()):
            resume(run, run.path)
        if not run.finished:
            yield from _train(run, interrupted)
        if run.judge is not None and run.score is None:
            run.score = _score(run)
    finally:
        if run.reg is not None:
            run.reg.detach()
        if run.curves is not None:
            run.curves.close()


def _train(run: Run, interrupted: Callable[[], bool]) -> Iterator[None]:
    started, saved = time.monotonic() - run.seconds, time.monotonic()
    run.model.train()
    take = make_stepper(run)
    while run.step < run.recipe.steps:
        with _named_failure(run, f"step {run.step + 1}"):
            if run.rounded is not None and run.rounded.due(run.step):
                with nullcontext() if run.reg is None else run.reg.projected():
                    run.rounded.calibrate(run.model, run.feeder)
            take()
        run.step += 1
        last = run.step == run.recipe.steps
        evaluating = last or run.step % run.evaluate_every == 0
        stopping = interrupted()
        if evaluating or stopping or run.step % LOOK_EVERY == 0:
            with _named_failure(run, f"what comes after step {run.step}"):
                _check_loss(run)
                run.seconds = time.monotonic() - started
                if last:
                    _finish(run)
                if evaluating:
                    _evaluate(run)
                else:
                    _tell(run)
                due = time.monotonic() - saved > run.settings.checkpoint_seconds
                if stopping or last or run.world.agree(due):
                    save(run)
                    saved = time.monotonic()
        if stopping and not last:
            raise Interrupted
        yield


@contextmanager
def _named_failure(run: Run, what: str) -> Iterator[None]:
    try:
        yield
    except ModelError:  # it may be that nothing else than infinities cannot be stored
        _check_finite(run)
        raise
    except MemboundError:
        raise
    except Exception as error:
        if run.world.size > 1 and lost_another(error):
            again = "the same command goes on from the last checkpoint"
            if run.path is None:
                again = "with a run directory the same command would go on from a checkpoint"
            raise TrainingError(
                f"another process of this run is gone, at step {run.step}: {again}"
            ) from error
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no message"
        raise TrainingError(f"{what} failed with {type(error).__name__}: {reason}") from error


def _check_loss(run: Run) -> None:
    """Where the loss is read anyway: no step waits for the device because of this."""
    loss = run.world.sum(float(run.running))[0] / (run.step - _evaluated(run))
    if not math.isfinite(loss):
        raise _diverged(run, f"the loss is not finite at step {run.step}")
    if loss > LOST * run.highest_loss:
        raise _diverged(
            run, f"the loss is {loss:.3g} at step {run.step}, over a billion times that at the start"
        )


def _finish(run: Run) -> None:
    """Make the bounds hold; refuse a network that is no use, whatever the losses on the way were."""
    _check_finite(run)
    if run.reg is not None:
        with warnings.catch_warnings():  # of batch norms, which is for loops of one's own
            warnings.simplefilter("ignore", StaleStatistics)
            run.reg.finish()
    loss = run.world.sum(loss_of_some(run.model, run.feeder, run.task))[0] / run.world.size
    if not loss <= run.highest_loss:  # nor NaN
        raise _diverged(
            run,
            f"the loss is {loss:.3g} at the end, over {WORSE:g} times that at the start and that of outputs of zero",
        )


def _check_finite(run: Run) -> None:
    if (name := not_finite(run.model)) is not None:
        raise _diverged(run, f"'{name}' has a value that is NaN or infinite")


def _diverged(run: Run, found: str) -> Diverged:
    return Diverged(
        f"{found}: training has diverged; lower the learning rate (its peak is {run.recipe.peak_lr:g}), or scale "
        "inputs and targets to about 1"
    )


def _evaluate(run: Run) -> None:
    loss = run.world.sum(float(run.running))[0] / (run.step - _evaluated(run))
    run.running.zero_()
    entry: dict[str, Any] = {"iteration": run.step, "loss": loss, "seconds": round(run.seconds, 2)}
    score = None
    if run.judge is not None:
        score = _score(run)
        entry |= {"accuracy": score.accuracy, "test_loss": score.loss}
        if run.finished:
            if not math.isfinite(score.loss):
                raise _diverged(run, "the loss on held-out data is not finite")
            run.score = score
    report = None if run.reg is None else run.reg.report()
    if report is not None:
        entry["nonzeros"] = report.at_bound().nonzeros
    run.history.append(entry)
    if run.curves is not None:
        drawn = ("loss", "accuracy", "test_loss")
        scalars: dict[str, float] = {name: entry[name] for name in drawn if name in entry}
        scalars["learning_rate"] = run.recipe.lr(run.step - 1)  # of the step just taken
        run.curves.add(run.step, scalars, report)
    _tell(run, score, loss)


def _evaluated(run: Run) -> int:
    """The step of the last evaluation, from which on losses are summed."""
    return run.history[-1]["iteration"] if run.history else 0


def _score(run: Run) -> Score:
    """Of the network as it would be deployed now: at the present bound."""
    judge = run.judge if run.finished else run.watch
    assert judge is not None
    run.world.share_buffers(run.model)
    bf16 = run.settings.precision == "bf16"
    if run.reg is None or run.reg.finished:
        return evaluate(run.model, judge, None, run.world, bf16, run.task, run.forward)
    with run.reg.projected():
        return evaluate(run.model, judge, None, run.world, bf16, run.task, run.forward)


def _tell(run: Run, score: Score | None = None, loss: float | None = None) -> None:
    if run.show is not None and run.world.leads:
        if loss is None:
            done = run.step - _evaluated(run)
            loss = float(run.running) / done if done else math.nan
        run.show(Progress(run.step, run.recipe.steps, loss, score, run.teaching is not None))


@contextmanager
def graceful_interrupt(world: World) -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM wait for the end of the step; a second Ctrl-C does not.

    Processes of one torchrun see a signal at different steps, so there the last checkpoint has to do.
    """
    if threading.current_thread() is not threading.main_thread() or world.size > 1:
        yield lambda: False
        return
    asked = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in before:
        signal.signal(number, ask)
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
