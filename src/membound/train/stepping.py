"""How the steps of a run are taken: call by call, or, on a GPU, recorded once and replayed.

Several steps in one recording are not faster: with many networks side by side it is the GPU that has to be waited for.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from membound.train.batches import Indices, Rows, index_stream, order_of
from membound.train.graphed import Recorded, draws_random_numbers, record
from membound.train.recipe import set_learning_rate_
from membound.train.run import Run
from membound.train.warp import variant_of, warp

Numbers = Iterator[npt.NDArray[np.float32]]
Batch = tuple[Tensor, ...]  # images, targets, and a teacher's scores where there is one


def make_stepper(run: Run) -> Callable[[], None]:
    """A function that takes the next step.

    On a GPU it is recorded, unless processes or random numbers have a part in it; whole, where the images are chosen on
    the device and the optimizer's step can be recorded, too.
    """
    eager = Eager(run)
    if run.device.type != "cuda" or run.world.size > 1 or draws_random_numbers(run.model):
        return eager.take
    # A learning rate on the device is a float32.
    whole = (run.reg is None or run.reg.recordable) and run.settings.precision != "float64"
    if whole and run.feeder.chooses_on_device:
        return Whole(run, eager).take
    return Passes(run, eager).take


def rounds(run: Run) -> bool:
    """Whether values inside the network are rounded by now."""
    return run.rounded is not None and run.rounded.begun


class Eager:
    """Steps launched one by one."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.network = run.world.parallel(run.model, run.device)
        size, seed = run.recipe.batch_size, run.settings.seed
        indices = index_stream(len(run.split), size, seed, run.step, order_of(run.split))
        numbers = run.augment.numbers(size, seed, run.step) if run.augment else None
        self.rows: Rows | None = None
        self.numbers: Rows | None = None  # that images are augmented by
        self.batches: Iterator[Batch] = iter(())
        self.table: Tensor | None = (
            None  # of the teacher's scores, where there is an end to what it can be asked
        )
        if run.teaching is not None and run.teaching.has_table(run.feeder, run.augment):
            self.table = run.teaching.table(run.feeder, run.augment)
        if run.device.type == "cuda" and run.world.size == 1 and run.feeder.chooses_on_device:
            self.rows = Rows(indices, run.device)
            self.numbers = None if numbers is None else Rows(numbers, run.device)
        elif self.table is not None:
            self.batches = self._looked_up(indices, numbers)
        else:
            plain = run.feeder.augmented(indices, seed, run.step, run.world.share())
            self.batches = self._varied(plain, numbers)

    def _looked_up(self, indices: Iterator[Indices], numbers: Numbers | None) -> Iterator[Batch]:
        """Batches of images that are in memory, with what the teacher says of them."""
        run = self.run
        for chosen in indices:
            mine = self._share(chosen)
            yield self._finish(
                *run.feeder.at(mine), mine, None if numbers is None else self._share(next(numbers))
            )

    def _varied(self, batches: Iterator[tuple[Tensor, Tensor]], numbers: Numbers | None) -> Iterator[Batch]:
        """Augmented; each process draws the numbers of the whole batch and takes those of its share."""
        for x, y in batches:
            yield self._finish(x, y, numbers=None if numbers is None else self._share(next(numbers)))

    def _share(self, batch: npt.NDArray[Any]) -> Tensor:
        """What is this process's of something that a batch has for each image, on the device."""
        return torch.from_numpy(np.ascontiguousarray(batch[self.run.world.share()])).to(self.run.device)

    def _finish(
        self, x: Tensor, y: Tensor, indices: Tensor | None = None, numbers: Tensor | None = None
    ) -> Batch:
        """The batch, augmented by the numbers, and the teacher's scores of it, where there is one."""
        run = self.run
        if numbers is not None:
            numbers = numbers.to(x.dtype)
            x = warp(run.augment, x, numbers)
        if run.teaching is None:
            return x, y
        if self.table is None or indices is None:
            return x, y, run.teaching.scores(x)
        if numbers is not None:
            indices = indices * (run.augment.variants or 1) + variant_of(run.augment, numbers)
        return x, y, self.table[indices].to(x.dtype)

    @property
    def places(self) -> list[Tensor]:
        """Where the device is in what was sent to it."""
        return [rows.at for rows in (self.rows, self.numbers) if rows is not None]

    def expect(self) -> None:
        """Make sure that the device has all that the next batch is made from."""
        for rows in (self.rows, self.numbers):
            if rows is not None:
                rows.expect()

    def make_batch(self) -> Batch:
        """The next batch as work for the device alone, which can be recorded: `expect` it first, every time."""
        assert self.rows is not None
        indices = self.rows.take()
        numbers = None if self.numbers is None else self.numbers.take()
        return self._finish(*self.run.feeder.at(indices), indices, numbers)

    def next_batch(self) -> Batch:
        if self.rows is None:
            return next(self.batches)
        self.expect()
        return self.make_batch()

    def backward(self, *batch: Tensor) -> None:
        """Leave the gradients of the next step."""
        self.run.optimizer.zero_grad(set_to_none=True)
        self.run.backward(self.network, *batch)

    def take(self) -> None:
        run = self.run
        set_learning_rate_(run.optimizer, run.recipe.lr(run.step))
        self.backward(*self.next_batch())
        run.optimizer.step()


class Passes:
    """Forward and backward passes recorded; the optimizer's steps launched one by one."""

    def __init__(self, run: Run, eager: Eager) -> None:
        self.run, self.eager = run, eager
        self.taken = 0
        self.recorded: Recorded | None = None
        self.rounds = False  # in the recording

    def take(self) -> None:
        run, eager = self.run, self.eager
        set_learning_rate_(run.optimizer, run.recipe.lr(run.step))
        batch = eager.next_batch()
        if self.taken == 1 or (self.recorded is not None and rounds(run) != self.rounds):
            kept, self.rounds = [run.running], rounds(run)
            self.recorded = record(eager.backward, batch, model=run.model, kept=kept, warm_up=eager.backward)
        (self.recorded or eager.backward)(*batch)
        run.optimizer.step()
        self.taken += 1


class Whole:
    """Whole steps recorded, the optimizer's included; which images and which learning rate is known on the device.

    The first step is not recorded: what an optimizer makes at its first step is there when the others are.
    """

    def __init__(self, run: Run, eager: Eager) -> None:
        assert eager.rows is not None
        self.run, self.eager = run, eager
        self.taken = 0
        self.recorded: Recorded | None = None
        self.state = (0, False)  # of the run, in the recording
        steps = range(run.recipe.steps)
        self.rates = torch.tensor([run.recipe.lr(number) for number in steps], device=run.device)
        self.number = torch.zeros(1, dtype=torch.int64, device=run.device)

    def take(self) -> None:
        # The first step after a palette or rounding has begun is recorded anew: then steps are the same again.
        if self.taken == 1 or (self.recorded is not None and self._state() != self.state):
            self.recorded = None  # its memory goes first
            self.recorded, self.state = self._record(), self._state()
        self.taken += 1
        if self.recorded is None:
            self.eager.take()
            return
        run = self.run
        self.eager.expect()
        self.recorded()
        set_learning_rate_(run.optimizer, run.recipe.lr(run.step))
        if run.reg is not None:
            run.reg.step_taken()

    def _state(self) -> tuple[int, bool]:
        """What steps are like: how many palettes there are, and whether values are rounded."""
        return 0 if self.run.reg is None else self.run.reg.palettes, rounds(self.run)

    def _record(self) -> Recorded | None:
        run = self.run
        self.number.fill_(run.step)

        def passes() -> None:
            self.eager.backward(*self.eager.make_batch())

        def work() -> None:
            passes()
            self._update()

        kept = [run.running, *self.eager.places, self.number]
        recorded = record(work, (), model=run.model, kept=kept, warm_up=passes)
        set_learning_rate_(run.optimizer, run.recipe.lr(run.step))  # numbers again, which can be saved
        return recorded

    def _update(self) -> None:
        """The optimizer's step with the learning rate from the device."""
        run = self.run
        rate = self.rates.index_select(0, self.number)[0]
        self.number += 1
        for group in run.optimizer.param_groups:
            group["lr"] = rate * group["lr_mult"]
        with nullcontext() if run.reg is None else run.reg.recording():
            run.optimizer.step()
