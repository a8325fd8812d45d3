"""How the steps of a run are taken: call by call, or, on a GPU, recorded and replayed, several at a time."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from membound.train.batches import Rows, index_stream
from membound.train.graphed import Recorded, draws_random_numbers, record
from membound.train.recipe import set_learning_rate_

if TYPE_CHECKING:
    from membound.train.loop import Run

BURST = 10  # steps that are recorded together


def make_stepper(run: "Run") -> Callable[[int], int]:
    """A function that takes a step, or several but at most so many, and says how many.

    A step is recorded on a GPU unless processes or random numbers have a part in it. Where images are chosen on the
    device and the optimizer's step can be recorded too, so can be several steps.
    """
    eager = Eager(run)
    if run.device.type != "cuda" or run.world.size > 1 or draws_random_numbers(run.model):
        return eager.take
    # A learning rate on the device is a float32.
    whole = (run.reg is None or run.reg.recordable) and run.settings.precision != "float64"
    if whole and run.feeder.chooses_on_device:
        return Whole(run, eager).take
    return Passes(run, eager).take


class Eager:
    """Steps launched one by one."""

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.network = run.world.parallel(run.model, run.device)
        indices = index_stream(len(run.split), run.recipe.batch_size, run.settings.seed, run.iteration)
        self.rows: Rows | None = None
        self.batches: Iterator[tuple[Tensor, Tensor]] = iter(())
        if run.device.type == "cuda" and run.world.size == 1 and run.feeder.chooses_on_device:
            self.rows = Rows(indices, run.device)
        else:
            self.batches = run.feeder.augmented(indices, run.settings.seed, run.iteration, run.world.share())

    def next_batch(self) -> tuple[Tensor, Tensor]:
        return next(self.batches) if self.rows is None else self.run.feeder.at(self.rows.take(1)[0])

    def backward(self, x: Tensor, y: Tensor) -> None:
        """Leave the gradients of the next step."""
        self.run.optimizer.zero_grad(set_to_none=True)
        self.run.backward(self.network, x, y)

    def take(self, most: int) -> int:
        run = self.run
        set_learning_rate_(run.optimizer, run.recipe.lr(run.iteration))
        self.backward(*self.next_batch())
        run.optimizer.step()
        return 1


class Passes:
    """Forward and backward passes recorded; the optimizer's steps launched one by one."""

    def __init__(self, run: "Run", eager: Eager) -> None:
        self.run, self.eager = run, eager
        self.taken = 0
        self.recorded: Recorded | None = None

    def take(self, most: int) -> int:
        run, eager = self.run, self.eager
        set_learning_rate_(run.optimizer, run.recipe.lr(run.iteration))
        batch = eager.next_batch()
        if self.taken == 1:
            kept = [run.running]
            self.recorded = record(eager.backward, batch, model=run.model, kept=kept, warm_up=eager.backward)
        (self.recorded or eager.backward)(*batch)
        run.optimizer.step()
        self.taken += 1
        return 1


class Whole:
    """Whole steps recorded: one, and a burst of them for wherever nothing is to be done in between.

    The first step is not: what an optimizer makes at its first step is there when the others are recorded.
    """

    def __init__(self, run: "Run", eager: Eager) -> None:
        assert eager.rows is not None
        self.run, self.eager, self.rows = run, eager, eager.rows
        self.taken = 0
        self.single: Recorded | None = None
        self.burst: Recorded | None = None
        iterations = range(run.recipe.iterations)
        self.rates = torch.tensor([run.recipe.lr(number) for number in iterations], device=run.device)

    def take(self, most: int) -> int:
        if self.taken == 0:
            self.taken = 1
            return self.eager.take(1)
        first = self.run.iteration
        if self.single is None and self.taken == 1:
            self.taken = 2
            self.single = self._record(1)
        if self.single is None:  # it cannot be recorded
            return self.eager.take(1)
        count = 1 if most < BURST else BURST
        if count == BURST and self.burst is None:
            self.burst = self._record(BURST)
        recorded = self.single if count == 1 or self.burst is None else self.burst
        count = count if recorded is self.burst else 1
        recorded(self.rows.take(count), self.rates[first : first + count])
        set_learning_rate_(self.run.optimizer, self.run.recipe.lr(first + count - 1))
        if self.run.reg is not None:
            for _ in range(count):
                self.run.reg.step_taken()
        return count

    def _record(self, count: int) -> Recorded | None:
        run = self.run
        rows = self.rows.peek().expand(count, -1)
        values = (rows, self.rates[:1].expand(count))

        def warm_up(rows: Tensor, rates: Tensor) -> None:
            self.eager.backward(*run.feeder.at(rows[0]))

        def work(rows: Tensor, rates: Tensor) -> None:
            for row, rate in zip(rows.unbind(), rates.unbind(), strict=True):
                self.eager.backward(*run.feeder.at(row))
                self._update(rate)

        recorded = record(
            work, values, model=run.model, kept=[run.running], shares=self.single,
            warm_up=warm_up if self.single is None else None,
        )  # fmt: skip
        set_learning_rate_(run.optimizer, run.recipe.lr(run.iteration))  # numbers again, which can be saved
        return recorded

    def _update(self, rate: Tensor) -> None:
        """The optimizer's step with the learning rate from the device."""
        run = self.run
        for group in run.optimizer.param_groups:
            group["lr"] = rate * group["lr_mult"]
        with nullcontext() if run.reg is None else run.reg.recording():
            run.optimizer.step()
