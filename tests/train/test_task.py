"""Tasks: the loss that is lowered, the score that is reported, and what is refused in a line."""

from collections import namedtuple

import pytest
import torch
from torch import nn

from membound.errors import DataError, TrainingError
from membound.train.task import CLASSIFICATION, Task, widen

OUTPUTS = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
CLASSES = torch.tensor([0, 1, 2, 0, 1, 2])


def test_the_default_is_the_mean_cross_entropy():
    loss = CLASSIFICATION.batch_loss(OUTPUTS, CLASSES)
    assert torch.equal(loss, nn.functional.cross_entropy(OUTPUTS, CLASSES))
    assert loss.requires_grad


def test_the_default_score_is_accuracy_in_percent():
    right = int((OUTPUTS.argmax(1) == CLASSES).sum())
    assert float(CLASSIFICATION.batch_score(OUTPUTS, CLASSES)) == pytest.approx(100 * right / 6)


def test_a_loss_of_its_own_gets_what_the_network_gives():
    Pair = namedtuple("Pair", "scores extra")

    def loss(outputs, targets):
        assert isinstance(outputs, Pair)
        return outputs.scores.square().mean() + outputs.extra["a"].sum() * 0 + targets.float().mean()

    outputs = Pair(OUTPUTS.bfloat16(), {"a": torch.ones(2)})
    value = Task(loss=loss).batch_loss(outputs, CLASSES)
    assert (value.dtype, value.shape) == (torch.float32, ())


def test_one_number_in_a_tensor_of_one_dimension_is_a_scalar():
    assert Task(loss=lambda o, t: o.mean().reshape(1)).batch_loss(OUTPUTS, CLASSES).shape == ()


def test_modules_are_losses_too():
    value = Task(loss=nn.CrossEntropyLoss()).batch_loss(OUTPUTS, CLASSES)
    assert torch.equal(value, nn.functional.cross_entropy(OUTPUTS, CLASSES))


def fails(outputs, targets):
    raise ValueError("no such thing\nand more")


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda o, t: o.mean().item(), r"gives a float: .*without \.item\(\)"),
        (lambda o, t: None, "gives None"),
        (lambda o, t: o.mean(1), r"gives float32 \[6\] for a batch: .*loss\.mean\(\)"),
        (lambda o, t: t.sum(), r"gives int64 \[\] for a batch"),
        (lambda o, t: o.detach().mean(), "cannot be differentiated"),
        (fails, r"the loss failed with ValueError: no such thing \(outputs: float32 \[6, 3\]; targets: int64 \[6\]\)"),
        (nn.functional.mse_loss, "the loss failed with RuntimeError"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_loss_that_cannot_be_lowered_is_refused(loss, said):
    with pytest.raises(TrainingError, match=said) as caught:
        Task(loss=loss).batch_loss(OUTPUTS, CLASSES)
    assert "\n" not in str(caught.value)


def test_errors_of_ours_pass_through_a_loss():
    def loss(outputs, targets):
        raise DataError("said already")

    with pytest.raises(DataError, match=r"^said already$"):
        Task(loss=loss).batch_loss(OUTPUTS, CLASSES)


def test_without_gradients_a_loss_need_not_be_differentiable():
    with torch.no_grad():
        assert float(Task(loss=lambda o, t: o.sum() * 0 + 2).batch_loss(OUTPUTS, CLASSES)) == 2


@pytest.mark.parametrize(
    "score", [lambda o, t: 0.25, lambda o, t: torch.tensor([0.25]), lambda o, t: o[0, 0] * 0 + 0.25]
)
def test_a_score_is_a_number(score):
    value = Task(score=score).batch_score(OUTPUTS, CLASSES)
    assert (float(value), value.dtype, value.requires_grad) == (0.25, torch.float64, False)


@pytest.mark.parametrize("score", [lambda o, t: o[0], lambda o, t: "good", lambda o, t: None])
def test_a_score_that_is_no_number_is_refused(score):
    with pytest.raises(TrainingError, match=r"the score gives .*: it must give one number"):
        Task(score=score).batch_score(OUTPUTS, CLASSES)
    with pytest.raises(TrainingError, match="the score failed with ValueError: no such thing"):
        Task(score=fails).batch_score(OUTPUTS, CLASSES)


def test_without_a_score_minus_the_loss_is_the_score():
    task = Task(loss=lambda o, t: o.square().mean())
    assert float(task.batch_score(OUTPUTS, CLASSES)) == -float(task.batch_loss(OUTPUTS, CLASSES).detach())


def test_a_class_or_a_name_is_no_loss():
    with pytest.raises(TrainingError, match=r"loss is the class MSELoss: pass an instance, MSELoss\(\)"):
        Task(loss=nn.MSELoss)
    with pytest.raises(TrainingError, match="score is 'accuracy': it must be a function"):
        Task(score="accuracy")


def test_what_is_not_half_precision_stays_as_it_is():
    values = (torch.zeros(2, dtype=torch.int8), [torch.zeros(2)], "text", None)
    widened = widen(values)
    assert widened[0] is values[0]
    assert widened[1][0] is values[1][0]
    assert widened[2:] == values[2:]
