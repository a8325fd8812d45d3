"""Solvers: what Caffe's prototxt files say."""

import dataclasses
import pickle

import pytest

from membound.zoo.alexnet import AlexNet
from membound.zoo.cifar10_quick import Cifar10Quick
from membound.zoo.lenet import LeNet
from membound.zoo.solver import Solver, inv, multistep, step


@pytest.mark.parametrize("it", [0, 1, 99, 5000, 9999])
def test_lenet_rate(it):
    assert LeNet.caffe_solver.lr(it) == pytest.approx(0.01 * (1 + 0.0001 * it) ** -0.75, rel=1e-14)


@pytest.mark.parametrize(("it", "rate"), [(0, 1e-3), (3999, 1e-3), (4000, 1e-4), (4999, 1e-4)])
def test_quick_rate(it, rate):
    assert Cifar10Quick.caffe_solver.lr(it) == rate


@pytest.mark.parametrize(
    ("it", "rate"), [(0, 1e-2), (99_999, 1e-2), (100_000, 1e-3), (200_000, 1e-4), (449_999, 1e-6)]
)
def test_alexnet_rate(it, rate):
    assert AlexNet.caffe_solver.lr(it) == pytest.approx(rate, rel=1e-12)


def test_what_the_solver_files_say():
    def facts(s):
        return s.batch_size, s.steps, s.momentum, s.weight_decay, s.bias_lr_mult, s.bias_decay_mult

    assert facts(LeNet.caffe_solver) == (64, 10_000, 0.9, 5e-4, 2.0, 1.0)
    assert facts(Cifar10Quick.caffe_solver) == (100, 5_000, 0.9, 0.004, 2.0, 1.0)
    assert facts(AlexNet.caffe_solver) == (256, 450_000, 0.9, 5e-4, 2.0, 0.0)
    inputs = [
        (s.scale, s.mean, s.crop, s.mirror) for s in (n.caffe_solver for n in (LeNet, Cifar10Quick, AlexNet))
    ]
    assert inputs == [(1 / 256, None, None, False), (1.0, "image", None, False), (1.0, "image", 227, True)]


def test_the_old_name_of_steps_still_works():
    given = {"batch_size": 4, "lr": multistep(0.1, {}), "momentum": 0.9, "weight_decay": 0.0}
    with pytest.warns(FutureWarning, match=r"Solver\(steps=N\)"):
        old = Solver(iterations=7, **given)
    assert old.iterations == old.steps == Solver(steps=7, **given).steps == 7


@pytest.mark.parametrize(
    "schedule", [inv(0.1, 0.01, 0.5), step(0.1, 0.5, 7), multistep(0.1, {20: 0.01, 5: 0.05})]
)
def test_schedules_pickle(schedule):
    again = pickle.loads(pickle.dumps(schedule))
    assert [again(i) for i in range(30)] == [schedule(i) for i in range(30)]


def test_multistep_takes_its_steps_in_any_order():
    assert [multistep(0.1, {20: 0.01, 5: 0.05})(i) for i in (4, 5, 19, 20)] == [0.1, 0.05, 0.05, 0.01]


def test_solvers_are_frozen_and_pickle():
    solver = pickle.loads(pickle.dumps(AlexNet.caffe_solver))
    assert solver.lr(150_000) == AlexNet.caffe_solver.lr(150_000)
    with pytest.raises(dataclasses.FrozenInstanceError):
        solver.batch_size = 1
    assert dataclasses.replace(solver, batch_size=128).batch_size == 128
