"""Evaluation: counts for classification, means of the score for other tasks, and what does not fit."""

import numpy as np
import pytest
import torch
from torch import nn

from membound.data import ArraySplit, Preprocess
from membound.errors import DataError, TrainingError
from membound.train.batches import Feeder
from membound.train.evaluation import Score, check_fits, evaluate
from membound.train.parallel import World
from membound.train.task import Task
from membound.train.user_data import as_split

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((23, 1, 2, 3)).astype(np.float32)
CLASSES = RNG.integers(0, 4, 23)
TARGETS = RNG.standard_normal((23, 2)).astype(np.float32)


def feed(y, x=IMAGES) -> Feeder:
    return Feeder(as_split((x, y)), Preprocess(), torch.device("cpu"), torch.float32)


def net(outputs: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, outputs))


def hits(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()


def test_classification_counts_whole_images():
    model = net(4)
    score = evaluate(model, feed(CLASSES), batch_size=5)
    with torch.no_grad():
        outputs = model(torch.from_numpy(IMAGES))
    right = int((outputs.argmax(1).numpy() == CLASSES).sum())
    assert (score.images, score.correct, score.errors, score.value) == (23, right, 23 - right, None)
    assert isinstance(score.correct, int)
    assert score.accuracy == 100.0 * right / 23
    assert score.loss == pytest.approx(float(nn.functional.cross_entropy(outputs, torch.from_numpy(CLASSES))))


@pytest.mark.parametrize("batch_size", [1, 5, 500])
def test_a_score_is_averaged_over_images_whatever_the_batches(batch_size):
    usual = evaluate(net(4), feed(CLASSES))
    score = evaluate(net(4), feed(CLASSES), batch_size, task=Task(score=hits))
    assert score.accuracy == pytest.approx(usual.accuracy / 100)
    assert score.loss == pytest.approx(usual.loss)
    assert (score.correct, score.errors) == (None, None)


@pytest.mark.parametrize("batch_size", [5, 500])
def test_without_a_score_it_is_minus_the_mean_loss(batch_size):
    model = net(2)
    score = evaluate(model, feed(TARGETS), batch_size, task=Task(loss=nn.functional.mse_loss))
    with torch.no_grad():
        wanted = float((model(torch.from_numpy(IMAGES)) - torch.from_numpy(TARGETS)).square().mean())
    assert score.loss == pytest.approx(wanted)
    assert score.accuracy == -score.loss


def test_a_loss_and_a_score():
    task = Task(loss=nn.functional.mse_loss, score=lambda outputs, targets: 7)
    assert evaluate(net(2), feed(TARGETS), 5, task=task).accuracy == 7


def test_outputs_may_be_tuples_also_in_bf16():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = net(2)

        def forward(self, x):
            return self.body(x), x

    kinds = set()

    def loss(outputs, targets):
        kinds.add(outputs[0].dtype)
        return (outputs[0] - targets).abs().mean() + outputs[1].mean() * 0

    model = Two()
    check_fits(model, feed(TARGETS), Task(loss=loss))
    assert evaluate(model, feed(TARGETS), bf16=True, task=Task(loss=loss)).loss > 0
    assert kinds == {torch.float32}


def test_shares_of_several_processes_sum_to_the_whole(monkeypatch):
    task = Task(loss=nn.functional.l1_loss, score=lambda o, t: -(o - t).abs().mean())
    whole = evaluate(net(2), feed(TARGETS), 4, task=task)
    sums = []
    monkeypatch.setattr(World, "sum", lambda self, *values: sums.append(values) or list(values))
    for rank in range(3):
        evaluate(net(2), feed(TARGETS), 4, World(rank, 3), task=task)
    gained, loss, _ = (sum(values) / 23 for values in zip(*sums, strict=True))
    assert (gained, loss) == (pytest.approx(whole.accuracy), pytest.approx(whole.loss))


def test_classification_wants_class_numbers():
    for y in (TARGETS, CLASSES.astype(np.float32), np.eye(4, dtype=np.float32)[CLASSES]):
        with pytest.raises(
            DataError, match=r"targets are float32 .*class numbers.*for another task pass its loss"
        ):
            check_fits(net(4), feed(y))
        with pytest.raises(DataError, match="class numbers"):
            check_fits(net(4), feed(y), Task(score=hits))


def test_labels_are_checked_only_for_the_default_loss():
    with pytest.raises(
        DataError,
        match=r"1 output, .* 4 classes \(labels up to 3\): make its last layer give 4, or .* parameter `classes`",
    ):
        check_fits(net(1), feed(CLASSES))
    with pytest.raises(DataError, match="labels begin at 1, so subtract 1 if they count from 1; else make"):
        check_fits(net(4), feed(CLASSES + 1))
    check_fits(net(1), feed(CLASSES), Task(loss=lambda o, t: (o[:, 0] - t).abs().mean()))


def test_a_loss_that_fails_is_said_before_training():
    with pytest.raises(TrainingError, match=r"the loss failed with .*outputs: float32 \[1, 4\]"):
        check_fits(net(4), feed(TARGETS), Task(loss=nn.functional.cross_entropy))
    with pytest.raises(TrainingError, match="the loss of one example is nan"):
        check_fits(net(2), feed(TARGETS), Task(loss=lambda o, t: (o * torch.nan).mean()))
    with pytest.raises(TrainingError, match="cannot be differentiated"):
        check_fits(net(2), feed(TARGETS), Task(loss=lambda o, t: o.detach().mean()))
    check_fits(net(2).requires_grad_(False), feed(TARGETS), Task(loss=nn.functional.mse_loss))


def test_the_check_leaves_no_gradients_and_every_mode():
    model = net(2).train()
    check_fits(model, feed(TARGETS), Task(loss=nn.functional.mse_loss))
    assert all(weight.grad is None for weight in model.parameters())
    assert all(module.training for module in model.modules())


def test_a_network_that_does_not_take_the_data_is_refused_for_every_task():
    for task in (Task(), Task(loss=nn.functional.mse_loss)):
        y = CLASSES if task.classifies else TARGETS
        with pytest.raises(
            DataError, match=r"does not take images of shape \(1, 2, 3\): a layer takes 5 features"
        ):
            check_fits(nn.Linear(5, 4), feed(y), task)


class Own(nn.Module):
    """A network whose own code fails, not one of its layers."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.body = nn.Identity()
        self.error = error

    def forward(self, x):
        raise self.error


@pytest.mark.parametrize(
    ("network", "why", "about"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 1)),
         "layer '0' takes 3 channels and gets 1; Conv2d takes [channels, height, width]: give x.transpose(0, 3, 1, 2)",
         ()),
        (nn.Sequential(nn.Conv2d(5, 4, 1)), "layer '0' takes 5 channels and gets 1; change that layer", ()),
        (nn.Sequential(nn.Conv2d(1, 4, 3)), "nothing is left for layer '0'; give larger inputs", ("size",)),
        (nn.Sequential(nn.MaxPool2d(7)), "nothing is left for layer '0'; give larger inputs", ("size",)),
        (nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(2048, 4))),
         "layer '1.0' takes 2,048 features and gets 6; give inputs of the size", ("size",)),
        (Own(KeyError("mask")), "KeyError: 'mask'", ("size",)),
        (Own(RuntimeError("first line\nsecond line")), "first line", ("size",)),
        (Own(RuntimeError("")), "no message", ("size",)),
        (Own(RuntimeError("a long tale " * 40)), "a long tale a long tale", ("size",)),
    ],
)  # fmt: skip
def test_a_refused_shape_is_said_in_one_short_line(network, why, about):
    with pytest.raises(DataError) as refused:
        check_fits(network, feed(CLASSES), Task())
    text = str(refused.value)
    assert f"the network does not take images of shape (1, 2, 3): {why}" in text
    assert len(text) < 230
    assert not any(raw in text for raw in ("\n", "mat1", "second"))
    assert refused.value.about == about


def test_a_score_of_counts_needs_no_value():
    assert Score(4, 3, 0.5).accuracy == 75
    assert Score(4, None, 0.5, -0.5).accuracy == -0.5


def test_preprocessing_that_does_not_fit_is_said_for_images():
    feeder = Feeder(
        ArraySplit(IMAGES, CLASSES), Preprocess(mean=np.zeros(3)), torch.device("cpu"), torch.float32
    )
    with pytest.raises(DataError, match="images have 1 channels but mean has 3"):
        check_fits(net(4), feeder)
