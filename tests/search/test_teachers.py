"""Teachers: the loss written out by hand, the same lessons from a table and on the fly, files, ensembles, 'auto'."""

import gc
import pickle

import numpy as np
import pytest
import torch
from profiles import full
from small import Small, digits, small_problem
from torch import nn

import membound as mb
from membound.data import Preprocess
from membound.data.augment import Augment
from membound.errors import MemboundError
from membound.search.ensemble import Ensemble
from membound.search.jobs import Job, Order, carry_out
from membound.search.place import Watch
from membound.search.teachers import DENSE_TEACHES, StoredNetwork, make_teaching, multiplications
from membound.store.file import read
from membound.train.loop import train
from membound.train.recipe import modern
from membound.train.run import Run, Settings
from membound.train.stepping import make_stepper
from membound.train.teaching import Teaching, input_change

CPU = torch.device("cpu")


class Wide(nn.Module):
    """A network with a width."""

    def __init__(self, width=4):
        super().__init__()
        self.conv = nn.Conv2d(1, width, 5, stride=3)
        self.fc = nn.Linear(width * 64, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).flatten(1))


def wide(width=4):
    return Wide(width)


def begun(teaching, augment=Augment()):  # noqa: B008
    torch.manual_seed(0)
    model = Small()
    recipe = modern("sgd", 3, 20, lr=0.05, warmup=0)
    return Run(
        model,
        digits(0, 60),
        recipe,
        Preprocess(scale=1 / 256),
        Settings(device="cpu"),
        CPU,
        augment=augment,
        teaching=teaching,
    )


def gradient_by_hand(run, teacher, heat, part):
    """Of the first step, with the images that the stepper is about to take."""
    x, y, *_ = make_stepper(run).__self__.next_batch()
    scores = run.model(x)
    soft = -((teacher(x) / heat).softmax(1) * (scores / heat).log_softmax(1)).sum(1).mean()
    loss = (1 - part) * nn.functional.cross_entropy(scores, y) + part * heat**2 * soft
    return torch.autograd.grad(loss, list(run.model.parameters()))


@pytest.mark.parametrize("augment", [Augment(), Augment(shift=2)], ids=["asked once", "on the fly"])
def test_the_first_step_follows_the_loss(augment):
    torch.manual_seed(1)
    teacher = Small().eval()
    run = begun(Teaching(teacher, 2.0, 0.7), augment)
    expected = gradient_by_hand(run, teacher, 2.0, 0.7)
    run = begun(Teaching(teacher, 2.0, 0.7), augment)
    stepper = make_stepper(run).__self__
    assert (stepper.table is None) == bool(augment)
    stepper.backward(*stepper.next_batch())
    for found, wanted in zip(run.model.parameters(), expected, strict=True):
        torch.testing.assert_close(found.grad, wanted)


@pytest.mark.parametrize(
    "augment", [Augment(mirror=True, shift=2), Augment(mirror=True), Augment(shift=1)], ids=str
)
def test_all_variants_asked_before_are_those_of_each_step(augment):
    """Where pupils see every image more often than it has variants; the teacher itself is the reference."""
    torch.manual_seed(1)
    teacher = Small().eval()
    run = begun(Teaching(teacher, 2.0, 0.7, passes=50), augment)
    stepper = make_stepper(run).__self__
    assert stepper.table.shape == (60 * augment.variants, 10)
    for _ in range(3):
        x, _, hints = stepper.next_batch()
        torch.testing.assert_close(hints, teacher(x).detach(), rtol=2e-3, atol=2e-3)
    rarely = make_stepper(begun(Teaching(teacher, passes=augment.variants - 1), augment)).__self__
    assert rarely.table is None
    without_end = Augment(mirror=True, cutout=4)
    assert without_end.variants is None
    assert make_stepper(begun(Teaching(teacher, passes=1e9), without_end)).__self__.table is None


def test_the_teacher_stays_as_it_is_and_is_told_apart():
    torch.manual_seed(1)
    teacher = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(784, 10))
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    stepper = make_stepper(begun(Teaching(teacher, 2.0, 0.7), Augment(shift=1)))
    stepper()
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert Teaching(teacher).describe() != Teaching(teacher, part=0.4).describe()
    assert Teaching(teacher).describe() != Teaching(Small()).describe()
    mine = Small().train()
    make_teaching(mine, small_problem(), 3.0, 0.5)
    assert mine.training
    assert all(weight.requires_grad for weight in mine.parameters())


def test_bounded_networks_are_taught_and_dense_ones_not():
    torch.manual_seed(1)
    plain, taught = small_problem(steps=6), small_problem(steps=6, teaching=Teaching(Small()))

    def weights(problem, **job):
        ((_, outcome),) = carry_out(problem, [Order(Job("a", 0, **job))], CPU)
        return torch.cat([value.flatten() for value in outcome.state.values()])

    assert torch.equal(weights(plain), weights(taught))
    assert not torch.equal(weights(plain, limit=6000), weights(taught, limit=6000))


def test_a_model_file_teaches_as_the_network_that_it_was_made_from(tmp_path):
    torch.manual_seed(0)
    nets = [mb.zoo.resnet8(width=4).eval(), Ensemble([Small(), Small()]).eval()]
    for number, (net, shape) in enumerate(zip(nets, [(3, 32, 32), (1, 28, 28)], strict=True)):
        path = tmp_path / f"{number}.safetensors"
        mb.save(net, path, torch.zeros(1, *shape))
        x = torch.randn(3, *shape)
        found = StoredNetwork(read(path))
        torch.testing.assert_close(found(x), net(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(3, 4, 4), (3, 5), (3,)])
def test_examples_for_another_preparation(shape):
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (2, *shape), dtype=np.uint8)
    ways = [
        Preprocess(),
        Preprocess(scale=1 / 255),
        Preprocess(mean=np.array([1.0, 20.0, 40.0]), std=np.array([3.0, 50.0, 9.0])),
        Preprocess(scale=0.1, mean=np.array([5.0, 5.0, 5.0])),
    ]
    for mine in ways:
        for other in ways:
            change = input_change(mine, other)
            assert (change is None) == (mine is other)
            taught = Teaching(nn.Identity(), factor=None, offset=None)
            if change is not None:
                taught = Teaching(nn.Identity(), factor=change[0], offset=change[1])
            torch.testing.assert_close(
                taught.scores(torch.from_numpy(mine(images))),
                torch.from_numpy(other(images)),
                rtol=1e-4,
                atol=1e-3,
            )
    image = Preprocess(mean=np.zeros((3, 4, 4), np.float32))
    assert input_change(image, image) is None
    with pytest.raises(MemboundError, match="mean image"):
        input_change(image, ways[0])
    with pytest.raises(MemboundError, match="crops of 3"):
        input_change(ways[0], Preprocess(crop=3))


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        (3, "is an int"),
        ([], "is a list"),
        (nn.Linear(3, 10), "cannot take images"),
        (nn.Sequential(nn.Flatten(), nn.Linear(784, 3)), "the same classes"),
        ("nothing.safetensors", "nothing.safetensors"),
    ],
)
def test_what_cannot_teach(teacher, message):
    with pytest.raises(MemboundError, match=message) as error:
        make_teaching(teacher, small_problem(), 3.0, 0.5)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("temperature", "part"), [(0, 0.5), (-1, 0.5), (3, 1.5), (3, -0.1), (float("nan"), 0.5)]
)
def test_numbers_that_cannot_be(temperature, part):
    with pytest.raises(MemboundError, match="a temperature above 0 and a part from 0 to 1 are needed"):
        make_teaching(Small(), small_problem(), temperature, part)


def test_numbers_without_a_teacher_are_refused():
    with pytest.raises(MemboundError, match="without a teacher"):
        mb.fit(Small, digits(0, 60), 6000, teacher="none", temperature=2.0)
    with pytest.raises(MemboundError, match="leave out dense=False"):
        mb.fit(Small, digits(0, 60), 6000, dense=False, temperature=2.0)
    with pytest.raises(
        MemboundError, match="temperature=-2: a finite number above 0"
    ):  # before anything is trained
        mb.fit(Small, digits(0, 60), 6000, temperature=-2.0)


def test_other_tasks_have_no_teacher():
    data = (np.zeros((40, 6), np.float32), np.zeros((40, 1), np.float32))
    net = nn.Linear(6, 1)
    for teacher in (net, "auto"):
        with pytest.raises(MemboundError, match="classification"):
            mb.fit(net, data, "50%", loss=nn.functional.mse_loss, teacher=teacher, steps=2)


def test_workers_elsewhere_get_the_teacher_without_what_it_has_said():
    torch.manual_seed(1)
    teaching = Teaching(Small(), 2.0, 0.7)
    run = begun(teaching)
    make_stepper(run)
    assert len(teaching.tables) == 1
    problem = pickle.loads(pickle.dumps(small_problem(teaching=teaching)))
    assert len(problem.teaching.tables) == 0
    assert problem.teaching.describe() == teaching.describe()
    del run
    gc.collect()
    assert len(teaching.tables) == 0, "the images of a run that is over are kept"


def test_multiplications_grow_with_the_width():
    assert multiplications(wide(8), (1, 28, 28)) == 2 * multiplications(wide(), (1, 28, 28))
    assert multiplications(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), (1, 28, 28)) == 7840


def test_auto_trains_a_wider_one_at_no_more_cost(tmp_path):
    """And a fit that goes on finds it; another part of the loss is another fit."""
    asked = {
        "budget": 4000,
        "steps": 12,
        "batch_size": 20,
        "device": "cpu",
        "dense": False,
        "run_dir": tmp_path,
    }
    fitted = mb.fit(wide, digits(0, 60), test_data=digits(60, 90), teacher="auto", **asked)
    lines = (tmp_path / "log.txt").read_text()
    assert lines.index("teacher:") < lines.index("final")
    assert fitted.file_bytes <= 4000
    weights = sorted((tmp_path / "weights").iterdir())
    assert any("teacher" in path.name for path in weights)
    again = mb.fit(wide, digits(0, 60), test_data=digits(60, 90), teacher="auto", **asked)
    assert all(
        torch.equal(a, b) for a, b in zip(fitted.model.parameters(), again.model.parameters(), strict=True)
    )
    with pytest.raises(MemboundError, match="teacher"):
        mb.fit(wide, digits(0, 60), test_data=digits(60, 90), teacher="auto", teacher_part=0.9, **asked)


def test_a_pupil_learns_what_its_teacher_knows():
    """From labels that are all alike, with the teacher's scores alone."""
    torch.manual_seed(0)
    split, scale = digits(0, 200), Preprocess(scale=1 / 256)
    teacher = Small()
    train(
        teacher,
        split,
        modern("sgd", 150, 20, lr=0.05, warmup=5),
        preprocess=scale,
        settings=Settings(device="cpu"),
    )
    blind = mb.data.ArraySplit(split.images, np.zeros_like(split.labels))
    pupil = Small()
    run = Run(
        pupil, blind, modern("sgd", 150, 20, lr=0.05, warmup=5), scale, Settings(device="cpu"), CPU,
        teaching=Teaching(teacher, 3.0, 1.0),
    )  # fmt: skip
    take = make_stepper(run)
    for _ in range(150):
        take()
        run.step += 1
    x = torch.from_numpy(scale(split.images))
    assert (pupil(x).argmax(1) == teacher(x).argmax(1)).float().mean() > 0.9


ASKED = {"budget": 4000, "values": "f16", "steps": 40, "batch_size": 20, "device": "cpu"}


def fit_small(**more):
    return mb.fit(wide, digits(0, 60), test_data=digits(60, 90), **{**ASKED, **more})


def weights_of(fitted):
    return torch.cat([weight.detach().flatten() for weight in fitted.model.parameters()])


def test_the_dense_network_teaches_by_default(tmp_path):
    """It is trained first, and is the same network that a fit without a teacher is compared with."""
    taught, alone = (
        fit_small(values="auto", **more) for more in ({"run_dir": tmp_path}, {"teacher": "none"})
    )
    lines = (tmp_path / "log.txt").read_text()
    assert lines.index("dense:") < lines.index("final")
    assert taught.dense["accuracy"] == alone.dense["accuracy"]
    assert not torch.equal(weights_of(taught), weights_of(alone))
    assert DENSE_TEACHES in taught.facts["tried"]
    assert DENSE_TEACHES not in alone.facts["tried"]
    assert torch.equal(weights_of(taught), weights_of(fit_small(values="auto", teacher="dense")))
    with pytest.raises(MemboundError, match="teacher"):  # another fit, in the same directory
        fit_small(values="auto", run_dir=tmp_path, teacher="none")


def test_a_dense_network_given_as_teacher_is_the_same_lesson():
    """The loss of the default is the given teacher's, in proportion: no pull is harder than that of labels."""
    torch.manual_seed(0)
    outputs, labels, hints = torch.randn(5, 10), torch.arange(5), torch.randn(5, 10)
    given = Teaching(Small(), 3.0, 0.5)
    steady = Teaching(Small(), 3.0, 0.5, steady=True)
    assert torch.allclose(steady.loss(outputs, labels, hints) * 2, given.loss(outputs, labels, hints))
    sharp = 100 * nn.functional.one_hot(labels, 10).float()  # a pupil that is as wrong as can be
    outputs = (100.0 * nn.functional.one_hot(labels + 5, 10)).requires_grad_()
    (pull,) = torch.autograd.grad(steady.loss(outputs, labels, sharp), outputs)
    (labels_pull,) = torch.autograd.grad(nn.functional.cross_entropy(outputs, labels), outputs)
    assert pull.abs().max() <= labels_pull.abs().max() + 1e-6


def test_without_test_images_the_teacher_has_not_seen_those_that_judge():
    """The networks that are judged on held-out images learn from a dense one that has not seen them either."""
    told = []
    data = digits(0, 90)
    mb.fit(wide, data, validation=30, watch=Watch(done=lambda job, facts: told.append(job)), **ASKED)
    keys = [job.key for job in told]
    estimate = next(key for key in keys if key.startswith("estimate"))
    final = next(key for key in keys if key.startswith("final"))
    everything = [job.everything for job in told]
    assert keys[1:] == [estimate, "dense", final]
    assert everything == [False, False, True, True]


@pytest.mark.parametrize(
    "more",
    [{"dense": False}, {"strategy": "greedy", "budget": 9000}, full({"budget": None, "within": 50.0})],
)
def test_where_no_dense_network_is_trained_first_nobody_teaches(more):
    fitted = fit_small(**{**more, "steps": 6})
    assert DENSE_TEACHES not in fitted.facts["tried"]
    with pytest.raises(MemboundError, match="needs the dense network, trained before"):
        fit_small(**{**more, "steps": 6, "teacher": "dense"})


def test_members_and_widths_learn_from_the_one_dense_network():
    told = []
    watch = Watch(done=lambda job, facts: told.append(job.key))
    fit_small(budget=8000, members=2, steps=6, watch=watch)
    assert told[0] == "dense"
    assert len(told) == 3
    assert told.count("dense") == 1
    fitted = fit_small(widths="1,2", steps=6)
    assert DENSE_TEACHES in fitted.facts["tried"]


def test_other_losses_have_no_teacher():
    x, y = np.zeros((40, 1, 28, 28), np.float32), np.zeros((40, 10), np.float32)
    x[0] = 1
    fitted = mb.fit(wide, (x, y), 4000, steps=2, batch_size=20, device="cpu", loss=nn.MSELoss())
    assert DENSE_TEACHES not in fitted.facts["tried"]
