"""Many networks trained at once: on a GPU side by side, each on a stream of its own, elsewhere one after another.

Every member is an ordinary training run with its own network, data order, learning rate, bounds and seed; only the
order in which the host launches their steps is shared, so that each ends with the weights that it would have alone,
and any network will do. What makes it fast is that a step is one recorded graph (see `graphed`) and that the kernels of
one small network leave most of a GPU to the others. On a CPU nothing is to be won by taking turns.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from membound.errors import Diverged
from membound.train.graphed import draws_random_numbers
from membound.train.loop import Interrupted, graceful_interrupt, run_folder, take_steps
from membound.train.parallel import World
from membound.train.run import Run

MOST = 32  # members at once: more gain nothing
SPARE = 0.8  # of the free memory that members may take
STAGGER = 20  # steps between the first members and the last
FIRST_STEPS = 2  # that show what memory a member needs: the second is recorded


def trains_together(model: nn.Module, device: torch.device) -> bool:
    """Whether several such networks train side by side, not one after another."""
    return device.type == "cuda" and not draws_random_numbers(model)


def train_all(
    members: Sequence[Callable[[], Run]], device: torch.device, world: World | None = None
) -> Iterator[tuple[int, Run]]:
    """Train every member; each comes back, with its number, when it is done.

    A member is a function that begins its run: it is called when its turn has come and there is memory for it. One that
    diverges does not disturb the others: it comes back with its `failure`. The processes of a `world` of several take
    the steps of one member together, so there its members train one after another.
    """
    world = world or World()
    with graceful_interrupt(world) as interrupted:
        waiting = list(enumerate(members))
        while waiting:
            chunk = _Chunk(device, interrupted)
            while waiting and (chunk.is_empty or (world.size == 1 and chunk.has_room())):
                chunk.add(*waiting.pop(0))
            yield from chunk.train()
            del chunk  # and its members: the next one counts what memory is free
            if interrupted():  # at the last step of the last member: it is done, what comes after is not
                raise Interrupted


class _Chunk:
    """Members that train at the same time."""

    def __init__(self, device: torch.device, interrupted: Callable[[], bool]) -> None:
        self.device, self.interrupted = device, interrupted
        self.stack = contextlib.ExitStack()
        self.lanes: list[_Lane] = []
        if (
            device.type == "cuda"
        ):  # torch keeps what members before took for their streams, which these will not have
            torch.cuda.empty_cache()
        self.free = self._free()

    def _free(self) -> int:
        return torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else 0

    @property
    def is_empty(self) -> bool:
        return not self.lanes

    def has_room(self) -> bool:
        """Whether one more member fits: it is taken to need as much memory as those before it."""
        if len(self.lanes) >= MOST or not trains_together(self.lanes[0].model, self.device):
            return False
        taken = (self.free - self._free()) / len(self.lanes)
        return (len(self.lanes) + 1) * taken <= SPARE * self.free

    def add(self, number: int, begin: Callable[[], Run]) -> None:
        """Begin a member and take its first steps, which show what memory it needs."""
        lane = _Lane(number, self.device)
        self.lanes.append(lane)
        with lane.turn():
            run = begin()
            self.stack.enter_context(run_folder(run.settings, run.world))
            lane.start(run, self.interrupted)

    def train(self) -> Iterator[tuple[int, Run]]:
        """Take turns to the end."""
        going = list(self.lanes)
        with self.stack:
            try:
                self._stagger()
                while going:
                    going, done = self._round(going)
                    for lane in done:
                        assert lane.run is not None
                        yield lane.number, lane.run
            finally:
                for lane in self.lanes:
                    lane.stop()

    def _stagger(self) -> None:
        """Let members be at different steps: where one has to wait for its stream, the others have work."""
        if self.device.type == "cuda":
            for number, lane in enumerate(self.lanes):
                with lane.turn():
                    for _ in range(number % STAGGER):
                        lane.take_turn()

    def _round(self, going: list["_Lane"]) -> tuple[list["_Lane"], list["_Lane"]]:
        """A step of every member: those that have more, and those that are done."""
        more: list[_Lane] = []
        done: list[_Lane] = []
        stopped = False
        with going[0].turn():  # afterwards the stream is what it was
            for lane in going:
                lane.switch()
                try:
                    (more if lane.take_turn() else done).append(lane)
                except Interrupted:
                    stopped = True  # when all have saved where they are
        if stopped:
            raise Interrupted
        return more, done


class _Lane:
    """A member's run and its stream."""

    def __init__(self, number: int, device: torch.device) -> None:
        self.number, self.device = number, device
        self.stream: Any = None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.run: Run | None = None
        self.steps: Iterator[None] = iter(())
        self.done = False

    @property
    def model(self) -> nn.Module:
        assert self.run is not None
        return self.run.model

    def turn(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def start(self, run: Run, interrupted: Callable[[], bool]) -> None:
        self.run, self.steps = run, take_steps(run, interrupted)
        if self.stream is not None:
            self.stream.synchronize()  # what it shares with others, such as the images, is there
            for _ in range(FIRST_STEPS):
                self._step()

    def switch(self) -> None:
        """Work goes to its stream from now on: a turn without an end, which takes the host less time."""
        if self.stream is not None:
            torch.cuda.set_stream(self.stream)

    def take_turn(self) -> bool:
        """One step; False when there is none left."""
        return not self.done and self._step()

    def _step(self) -> bool:
        try:
            self.done = next(self.steps, StopIteration) is StopIteration
        except Diverged as failure:
            assert self.run is not None
            self.run.failure, self.done = failure, True
        if self.done and self.stream is not None:
            self.stream.synchronize()
        return not self.done

    def stop(self) -> None:
        close = getattr(self.steps, "close", None)
        if close is not None:
            close()
        self.run, self.steps = None, iter(())
