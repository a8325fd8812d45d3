"""Learning from a teacher: the loss against its definition in numpy, and a fit with it."""

import numpy as np
import pytest
import torch

import membound as mb
from membound.data import ArraySplit, subsample
from membound.errors import DataError, TrainingError
from membound.train.batches import Feeder
from membound.train.distill import distillation, mean_scores, teach


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def some(count=6, classes=4):
    rng = np.random.default_rng(0)
    split = ArraySplit(rng.integers(0, 256, (count, 1, 3, 3), np.uint8), rng.integers(0, classes, count))
    return split, rng.standard_normal((count, classes)).astype(np.float32) * 5


@torch.no_grad()
def test_the_loss_is_hintons():
    split, teacher = some()
    scores = np.random.default_rng(1).standard_normal(teacher.shape) * 3
    targets = torch.from_numpy(teach(split, teacher).labels)
    hard = -np.log(softmax(scores)[np.arange(6), split.labels]).mean()
    soft = -(softmax(teacher / 3) * np.log(softmax(scores / 3))).sum(1).mean()
    task = distillation(temperature=3.0, part=0.25)
    found = task.batch_loss(torch.from_numpy(scores), targets.double())
    assert float(found) == pytest.approx(0.75 * hard + 0.25 * 9 * soft, rel=1e-6)
    plain = task.batch_loss(torch.from_numpy(scores), torch.from_numpy(split.labels))
    assert float(plain) == pytest.approx(hard)


@pytest.mark.parametrize("shape", [(6,), (5, 4), (6, 2), (6, 4, 1)])
def test_scores_that_do_not_belong_to_the_images_are_refused(shape):
    split, _ = some()
    with pytest.raises(DataError, match=r"scores"):
        teach(split, np.zeros(shape, np.float32))


def test_what_cannot_be_learned_from_is_refused():
    split, scores = some()
    scores[2, 1] = np.nan
    with pytest.raises(DataError, match="not finite"):
        teach(split, scores.tolist())
    for wrong in ({"temperature": 0.0}, {"temperature": np.inf}, {"part": 1.5}, {"part": -0.1}):
        with pytest.raises(TrainingError, match="a temperature above 0 and a part from 0 to 1"):
            distillation(**wrong)


def test_scores_are_the_mean_over_teachers():
    split, _ = some()
    first, second = (torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, 4)) for _ in range(2))
    feeder = Feeder(split, mb.data.Preprocess(), torch.device("cpu"), torch.float32)
    x = torch.from_numpy(split.images).float()
    with torch.no_grad():
        expected = (first(x) + second(x)) / 2
    np.testing.assert_allclose(mean_scores([first, second], feeder), expected.numpy(), rtol=1e-5)


@pytest.mark.full
def test_a_network_is_fitted_to_what_a_teacher_says(tmp_path):
    """The teacher mistakes two digits for each other; its student, which is told to listen to it alone, does too."""
    mnist = mb.data.load("mnist")
    train, test = subsample(mnist.train, 1500), subsample(mnist.test, 200)
    said = train.labels.copy()
    said[train.labels == 0], said[train.labels == 1] = 1, 0
    task = distillation(temperature=1.0, part=1.0)
    images = teach(train, 10 * np.eye(10, dtype=np.float32)[said])
    fitted = mb.fit(
        mb.zoo.lenet, images, "60 KiB", test_data=test, loss=task.loss, score=task.score, steps=120,
        batch_size=32, dense=False, device="cpu",
    )  # fmt: skip
    assert fitted.file_bytes <= 60 * 1024
    feeder = Feeder(test, fitted.files.preprocess, torch.device("cpu"), torch.float32)
    found = mean_scores([fitted.model], feeder).argmax(1)
    swapped = np.isin(test.labels, (0, 1))
    assert (found[swapped] == 1 - test.labels[swapped]).mean() > 0.8
    assert (found[~swapped] == test.labels[~swapped]).mean() > 0.6
