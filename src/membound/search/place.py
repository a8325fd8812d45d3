"""Where the work of a fit runs, where it is kept, and who is told what happens."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from membound.errors import MemboundError, TrainingError, check_path_like, shown
from membound.search.checks import check_flags
from membound.search.option import Option

if TYPE_CHECKING:
    from membound.search.jobs import Show
    from membound.search.work import Work
    from membound.search.workshop import Finished, Workers


@dataclass(frozen=True)
class Watch:
    """Functions that are told what happens: steps under way, jobs done, what the fit is about to do, and warnings.

    `note` gets what is worth reading before and during the fit, such as how much there is to do; `expect` gets that as
    numbers.
    """

    show: "Show | None" = None
    done: "Finished | None" = None
    say: Callable[[str], None] = field(default=lambda text: None)
    warn: Callable[[str], None] = field(default=lambda text: print(text, file=sys.stderr))
    note: Callable[[str], None] = field(default=lambda text: None)
    expect: "Callable[[Work], None]" = field(default=lambda work: None)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the work runs, where it is kept, and who is told.

    With a `run_dir` a fit that was killed goes on when the same call is made again; with `tensorboard` the curves of
    every network that it trains are there, too. `workers` train elsewhere than on `device`, such as a `ray_cluster`.
    Lines on stderr say how far it is, unless `progress` is False; a `watch` is told instead, where there is one.
    """

    device: Annotated[
        str | None,
        Option("auto (default), cpu, cuda, or cuda:N.", "DEVICE", words=("auto", "cpu", "cuda")),
    ] = None
    run_dir: Annotated[
        str | Path | None,
        Option("Save progress here; run the same command again to resume.", "DIR", Path),
    ] = None
    tensorboard: Annotated[
        bool, Option("Write curves for TensorBoard into the run directory.", reads=bool)
    ] = False
    workers: "Workers | None" = None
    watch: Watch | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        check_flags(self, ("tensorboard", "progress"))
        if self.device is not None and not isinstance(self.device, str):
            object.__setattr__(self, "device", str(self.device))  # a torch.device
        if self.workers is not None and not callable(self.workers):
            raise MemboundError(
                f"workers={shown(self.workers)}: give mb.ray_cluster(...), or leave it out to train here; the workers "
                "of a DataLoader are its num_workers",
                about="workers",
            )
        if self.watch is not None and not isinstance(self.watch, Watch):
            raise MemboundError(
                f"watch={shown(self.watch)}: give a membound.search.place.Watch, or leave it out",
                about="watch",
            )
        if self.run_dir is not None:
            check_path_like(self.run_dir, "run_dir", TrainingError)
        if self.tensorboard and self.run_dir is None:
            raise MemboundError(
                "curves for TensorBoard are kept in the run directory: name one as run_dir",
                about=("run_dir", "tensorboard"),
            )
