"""A trained network in few bits without more training, and what that costs: bytes and accuracy, before and after."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from membound.data import Dataset, subsample
from membound.run.evaluation import BATCH, evaluate_file
from membound.run.files import prepare
from membound.run.net import Net
from membound.store.choice import Values
from membound.store.file import read_bytes, to_bytes
from membound.store.formats import Prefer, decode
from membound.store.model import Model, StoredModel
from membound.store.whole import write_whole

BEFORE = "f32"


@dataclass(frozen=True)
class Rounded:
    """A network in few bits: the file, and what it and the one before it are worth on test images."""

    content: bytes
    stored: StoredModel
    calibrated_on: int  # training images
    before: dict[str, Any]
    after: dict[str, Any]

    def write(self, path: Path) -> None:
        """The file, whole or not at all."""
        write_whole(path, [self.content])


def rounded_tensors(model: Model, stored: StoredModel) -> list[str]:
    """The tensors of few bits whose stored values are not, up to their scales in f16, those that the network has."""
    whole = model.scaled().tensors
    few = {name: decode(tensor) for name, tensor in stored.tensors.items() if tensor.palette is not None}
    return [name for name, found in few.items() if not np.allclose(found, whole[name], rtol=1e-3, atol=0)]


def round_trained(model: Model, values: Values, dataset: Dataset, prefer: Prefer = "bytes") -> Rounded:
    """Round a captured network to values of few bits, calibrated on some hundred training images; no label is read.

    Accuracy is that of the deployed runtime on the test images. Importing this does not import torch; calling it does.
    """
    from membound.capture.calibrate import calibrate, inputs_for

    whole = Net(read_bytes(to_bytes(model, BEFORE, prefer)), max_batch=BATCH)
    before = evaluate_file(whole, dataset)  # first, as it says what does not fit
    images = subsample(dataset.train, min(inputs_for(model), len(dataset.train)))
    inputs = prepare(whole, images.read(np.arange(len(images))))
    content = to_bytes(calibrate(model, values, inputs, prefer), values, prefer)
    stored = read_bytes(content)
    after = evaluate_file(Net(stored, max_batch=BATCH), dataset)
    return Rounded(content, stored, len(images), before, after)
