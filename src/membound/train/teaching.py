"""A teacher for a training: another network, whose scores of the same images are learned from beside the labels.

It is asked about all images at once where they are not augmented, or where its pupils together see them more often than
there are ways to mirror and shift them; else it sees each of them as its pupil does, in every step.
"""

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from membound.data import Preprocess
from membound.data.augment import NONE, Augment
from membound.data.preprocess import beside
from membound.errors import TrainingError
from membound.modules import explain_refusal
from membound.train.batches import Feeder, whole
from membound.train.distill import PART, TEMPERATURE, check_numbers, taught_loss
from membound.train.fingerprints import network_digest
from membound.train.warp import numbers_of, warp

TOGETHER = 1000  # images that it is asked about at once
LARGEST_TABLE = 1 << 30  # bytes of scores that are kept


@dataclass(frozen=True, eq=False)
class Teaching:
    """A network that gives class scores, and how much its pupils listen.

    `part` of the loss compares with its probabilities, both softened by `temperature`. `factor` and `offset` [C]
    turn images as the pupil takes them into those that the teacher takes. Its pupils go through all images `passes`
    times, together.
    """

    network: nn.Module
    temperature: float = TEMPERATURE
    part: float = PART
    factor: Tensor | None = None
    offset: Tensor | None = None
    passes: float = 0.0
    bf16: bool = False  # it computes as its pupils do
    steady: bool = (
        False  # it pulls no harder than the labels alone would: a learning rate made for them still holds
    )
    # By feeder, as long as there is one: those of bagged images go when their members are trained.
    tables: WeakKeyDictionary[Feeder, Tensor] = field(default_factory=WeakKeyDictionary, repr=False)

    def __post_init__(self) -> None:
        check_numbers(self.temperature, self.part)
        self.network.eval().requires_grad_(False)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "tables"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in (state | {"tables": WeakKeyDictionary()}).items():  # each worker asks for itself
            object.__setattr__(self, name, value)

    def describe(self) -> list[Any]:
        """What tells it apart, as JSON."""
        same = self.factor is None
        return [
            network_digest(self.network),
            self.temperature,
            self.part,
            *([] if same else ["other inputs"]),
            *(["steady"] if self.steady else []),
        ]

    def to(self, device: torch.device) -> "Teaching":
        """On a device, the network moved there in place."""
        # Faster, as for its pupils.
        self.network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        for name in ("factor", "offset"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, value.to(device))
        return self

    @torch.no_grad()
    def scores(self, x: Tensor) -> Tensor:
        """Of images as the pupil takes them, on the device where both are; work that can be recorded."""
        inputs = x.float()
        if self.factor is not None and self.offset is not None:
            inputs = inputs * beside(self.factor, inputs.dim()) + beside(self.offset, inputs.dim())
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            found: Tensor = self.network(inputs)
        return found.to(x.dtype)

    def has_table(self, feeder: Feeder, augment: Augment) -> bool:
        """Whether all that its pupils will ask is asked before: where that is less work, and there is room for it."""
        variants = augment.variants
        if variants is None or not feeder.chooses_on_device:
            return False
        if variants == 1:
            return True
        scores = variants * len(feeder.split) * (int(feeder.labels.max()) + 1)
        return variants <= self.passes and 2 * scores <= LARGEST_TABLE

    def table(self, feeder: Feeder, augment: Augment = NONE) -> Tensor:
        """The scores of all variants of all images of a feeder, in their order, computed once."""
        if feeder not in self.tables:
            variants = augment.variants or 1
            rows = [numbers_of(augment, at).to(feeder.device) for at in range(variants)]
            found = []
            for x, _ in feeder.batches(whole(feeder.split, TOGETHER)):
                if variants == 1:
                    found.append(self.scores(x))
                else:  # rounded to 16 bits: there are many of them
                    varied = (warp(augment, x, row.expand(len(x), -1)) for row in rows)
                    found.append(torch.stack([self.scores(y).half() for y in varied], 1).flatten(0, 1))
            self.tables[feeder] = torch.cat(found)
            if feeder.device.type == "cuda":  # others of a population use it on streams of their own
                torch.cuda.current_stream(feeder.device).synchronize()
        return self.tables[feeder]

    def loss(self, outputs: Tensor, labels: Tensor, hints: Tensor, smoothing: float = 0.0) -> Tensor:
        """Of a batch, of which the teacher gives the scores `hints`."""
        loss = taught_loss(outputs, labels, hints, self.temperature, self.part, smoothing)
        # A softened score is pulled with up to the temperature's force, one of the labels with up to 1.
        return loss / (1 - self.part + self.part * max(self.temperature, 1.0)) if self.steady else loss

    def check(self, x: Tensor, outputs: Any, labels: Tensor) -> None:
        """Whether it teaches what a network with these outputs for `x` is to learn."""
        try:
            found = self.scores(x)
        except Exception as error:
            raise TrainingError(
                f"the teacher cannot take images of shape {tuple(x.shape[1:])}: {explain_refusal(error, self.network)}",
                about="teacher",
            ) from error
        fits = isinstance(outputs, Tensor) and outputs.dim() == 2 and not labels.is_floating_point()
        if not fits or labels.dim() != 1:
            raise TrainingError(
                "a teacher is for classification, with one row of class scores for each image: leave it out",
                about="teacher",
            )
        if found.shape != outputs.shape:
            raise TrainingError(
                f"the teacher gives {list(found.shape[1:])} scores for an image, its pupil {list(outputs.shape[1:])}: "
                "both must know the same classes",
                about="teacher",
            )
        if not bool(found.isfinite().all()):
            raise TrainingError("a score of the teacher is not finite", about="teacher")


def input_change(pupil: Preprocess, teacher: Preprocess) -> tuple[Tensor, Tensor] | None:
    """By which factor and offset what is prepared for the pupil becomes what the teacher takes; None if it is the same.

    >>> import numpy as np
    >>> factor, offset = input_change(Preprocess(scale=0.5), Preprocess(mean=np.array([4.0])))
    >>> float(factor), float(offset)
    (2.0, -4.0)
    """
    if pupil.mean_image is not None or teacher.mean_image is not None:
        if pupil == teacher:
            return None
        raise TrainingError(
            "the teacher and its pupil prepare images differently, one of them with a mean image: train both with the "
            "mean of each channel",
            about="teacher",
        )
    if teacher.crop is not None and teacher.crop != pupil.crop:
        raise TrainingError(
            f"the teacher takes crops of {teacher.crop} pixels, its pupil of {pupil.crop}", about="teacher"
        )
    mine, other = _affine(pupil), _affine(teacher)
    if all(torch.equal(a, b) for a, b in zip(mine, other, strict=True)):
        return None
    # x' = (x - mean) * gain, so x = x' / gain + mean
    factor = other[1] / mine[1]
    return factor, (mine[0] - other[0]) * other[1]


def _affine(preprocess: Preprocess) -> tuple[Tensor, Tensor]:
    mean = torch.zeros(1) if preprocess.mean is None else torch.from_numpy(preprocess.mean)
    std = torch.ones(1) if preprocess.std is None else torch.from_numpy(preprocess.std)
    return mean, preprocess.scale / std
