"""A callback for Lightning: the Trainer's own optimizer trains under rules. Only this module needs Lightning.

from membound.train.lightning import MemoryBound

trainer = Trainer(callbacks=[MemoryBound({"*": mb.l0_project(mb.ramp(1.0, 0.05), every=100)})])
"""

import math
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from membound.errors import RuleError
from membound.train.regularizer import Regularizer, attach
from membound.train.rules import check_rules
from membound.train.tensorboard import report_scalars
from membound.train.updates import Update

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        try:
            from pytorch_lightning import Callback  # the same under its older name
        except ImportError:
            raise ModuleNotFoundError(
                "membound.train.lightning needs Lightning: pip install 'lightning>=2.5'", name="lightning"
            ) from None


class MemoryBound(Callback):
    """Attach rules to the optimizer of a Trainer; `reg` is the handle that attach() returns.

    Steps are the optimizer's, so accumulated gradients count once. `total_steps` is what the Trainer is going to take
    if left out. Validation sees the network at its present bound; after the last step every bound holds exactly, in the
    checkpoint of that step, too. Other checkpoints hold the weights as they are in training, between projections dense.
    """

    def __init__(self, rules: Mapping[str, Update], total_steps: int | None = None) -> None:
        check_rules(rules)
        self.rules, self.total_steps = dict(rules), total_steps
        self.reg: Regularizer | None = None
        self._saved: dict[str, Any] | None = None  # of a checkpoint, until there is a handle to load it
        self._last = math.inf  # the Trainer's last step
        self._logged = 0
        self._projected = ExitStack()

    # From the first step to the last

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuse what cannot be attached to, before anything is trained."""
        if not pl_module.automatic_optimization:
            raise RuleError(
                "MemoryBound needs automatic optimization, which has one optimizer; this module is set to manual "
                f"optimization and has {len(trainer.optimizers)}: in its configure_optimizers, call "
                "membound.attach(optimizer, model, rules) for each, and finish() after training"
            )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Here the optimizer has its state back, and the Trainer knows how many batches there are."""
        steps = trainer.estimated_stepping_batches
        self._logged = 0
        self._last = steps if steps > 0 else math.inf  # -1 or infinite: nobody knows
        scheduled = any(update.scheduled for update in self.rules.values())
        total = self.total_steps
        if total is None and scheduled:
            if self._last == math.inf:
                raise RuleError(
                    "a rule has a schedule, and the Trainer cannot tell how many steps it will take: "
                    "give it max_steps, or MemoryBound total_steps"
                )
            total = int(self._last)
        self.reg = attach(trainer.optimizers[0], pl_module, self.rules, total)
        if self._saved is not None:
            # Who trains on after the end wants the bound to go on, too.
            self.reg.load_state_dict({**self._saved, "finished": False})
            self._saved = None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        assert self.reg is not None
        last = trainer.global_step >= self._last
        if (
            last
        ):  # before Lightning's own callback, which comes after all others, writes this step's checkpoint
            self.reg.finish()
        if last or trainer.global_step % max(trainer.log_every_n_steps, 1) == 0:
            self._log(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Also where it was stopped early."""
        if self.reg is not None and not self.reg.finished:
            self.reg.finish()
            self._log(trainer)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._let_go()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._let_go()

    def _let_go(self) -> None:
        """Of the weights, which are as in training again, and of the optimizer, so that another fit can attach."""
        self._projected.close()
        if self.reg is not None:
            self.reg.detach()

    def _log(self, trainer: Any) -> None:
        assert self.reg is not None
        if trainer.global_step == self._logged:  # a batch whose gradients are only added up
            return
        self._logged = trainer.global_step
        report = self.reg.report()  # in every process: weights may be sharded
        for logger in trainer.loggers:
            logger.log_metrics(report_scalars(report), step=trainer.global_step)

    # Validation

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self.reg is not None and not self.reg.finished:
            self._projected.enter_context(self.reg.projected())

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._projected.close()

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        return (self._saved or {}) if self.reg is None else self.reg.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved, self.reg = state_dict, None
