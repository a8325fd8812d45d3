"""Augmentation: each part against the same thing done by numpy or by hand; seeded, resumed bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from membound.data import ArraySplit, Augment, Dataset, Preprocess
from membound.data.augment import BLOCK, NUMBERS, choose, standard
from membound.errors import DataError, MemboundError, TrainingError
from membound.train import checkpoint
from membound.train.loop import train
from membound.train.recipe import modern
from membound.train.run import Settings
from membound.train.warp import warp


def draw(images, seed=0):
    return torch.from_numpy(next(Augment().numbers(images, seed)))


@examples(60)
@given(st.integers(0, 4), st.booleans(), st.integers(0, 1000), st.integers(5, 9), st.integers(5, 9))
def test_mirrored_and_shifted_as_numpy_pads(shift, mirror, seed, height, width):
    how = Augment(mirror=mirror, shift=shift)
    x = torch.randn(6, 2, height, width, generator=torch.Generator().manual_seed(seed))
    numbers = draw(6, seed)
    found = warp(how, x, numbers).numpy()
    for image, row, seen in zip(x.numpy(), numbers.numpy(), found, strict=True):
        down, right = (min(int(value * (2 * shift + 1)), 2 * shift) for value in row[1:3])
        padded = np.pad(image, ((0, 0), (shift, shift), (shift, shift)), mode="reflect")
        if mirror and row[0] < 0.5:
            padded = padded[:, :, ::-1]
        np.testing.assert_array_equal(seen, padded[:, down : down + height, right : right + width])


def test_shifts_reach_every_place_evenly():
    x = torch.zeros(4000, 1, 11, 11)
    x[:, :, 5, 5] = 1
    found = warp(Augment(shift=2), x, draw(4000)).sum((0, 1))
    assert found[3:8, 3:8].min() > 100
    assert found.sum() == 4000
    assert found[3:8, 3:8].sum() == 4000


@pytest.mark.parametrize("at", [(0.0, 0.0), (0.5, 0.5), (0.99, 0.2)])
def test_cutout_is_a_square_of_zeros(at):
    x, numbers = torch.ones(1, 3, 10, 12), torch.full((1, NUMBERS), 0.5)
    numbers[0, 5], numbers[0, 6] = at
    expected = np.ones((3, 10, 12))
    top, left = int(at[0] * 10) - 2, int(at[1] * 12) - 2
    expected[:, max(top, 0) : top + 4, max(left, 0) : left + 4] = 0
    np.testing.assert_array_equal(warp(Augment(cutout=4), x, numbers)[0].numpy(), expected)


def test_a_turn_by_90_degrees_is_numpys():
    x, numbers = torch.randn(1, 2, 8, 8), torch.full((1, NUMBERS), 0.5)
    numbers[0, 3] = 1.0
    found = warp(Augment(turn=90), x, numbers)[0].numpy()
    by_numpy = np.rot90(x[0].numpy(), axes=(1, 2))
    other = np.rot90(x[0].numpy(), 3, axes=(1, 2))
    assert min(np.abs(found - by_numpy).max(), np.abs(found - other).max()) < 1e-5


def test_a_turn_of_an_image_that_is_not_square_keeps_its_angles():
    """The point at 3 pixels to the right of the center goes 3 pixels down or up."""
    x, numbers = torch.zeros(1, 1, 9, 15), torch.full((1, NUMBERS), 0.5)
    x[0, 0, 4, 10] = 1
    numbers[0, 3] = 1.0
    found = warp(Augment(turn=90), x, numbers)[0, 0]
    assert found[1, 7] > 0.99 or found[7, 7] > 0.99


def test_zoom_and_mirror_in_one_go():
    x, numbers = torch.zeros(1, 1, 21, 21), torch.full((1, NUMBERS), 0.5)
    x[0, 0, 10, 14] = 1
    numbers[0, 4] = 1.0  # half as large again
    far = warp(Augment(zoom=0.5), x, numbers)[0, 0]
    assert far[10, 16] == far.max() > 0.9
    numbers[0, 0] = 0.0
    assert warp(Augment(zoom=0.5, mirror=True), x, numbers)[0, 0].argmax() == 10 * 21 + 4


def test_numbers_follow_from_seed_and_step():
    stream = Augment().numbers(3, seed=5)
    many = [next(stream) for _ in range(BLOCK + 3)]
    for start in (0, 1, BLOCK - 1, BLOCK, BLOCK + 2):
        np.testing.assert_array_equal(next(Augment().numbers(3, seed=5, start=start)), many[start])
    assert not np.array_equal(many[0], many[1])
    assert not np.array_equal(many[0], many[BLOCK])
    assert not np.array_equal(many[0], next(Augment().numbers(3, seed=6)))
    assert min(map(np.min, many)) >= 0
    assert max(map(np.max, many)) < 1


def test_digits_are_never_mirrored():
    assert not standard((1, 28, 28), photos=False).mirror
    assert standard((3, 32, 32), photos=True) == Augment(mirror=True, shift=4)
    digits = ArraySplit(np.zeros((4, 1, 8, 8), np.uint8), np.array([0, 1, 0, 1]))
    assert not Dataset("mine", digits, digits, ("0", "1")).photos


def test_what_is_asked_for():
    shape = (3, 32, 32)
    assert choose(None, shape) == choose("none", shape, photos=True) == Augment()
    assert choose(None, shape, photos=True) == choose("standard", shape, photos=True)
    assert not choose(None, shape, photos=True, has_own=True)
    assert not choose(None, (40,), photos=True)
    assert choose("cutout, shift=2", shape) == Augment(cutout=8, shift=2)
    assert choose(Augment(turn=5), shape) == Augment(turn=5)
    for text in ("mirror,shift=4,cutout=8,turn=10,zoom=0.25", "none", "mirror"):
        assert str(Augment.parse(text, shape)) == text


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "flip",
        "shift=x",
        "shift=-1",
        "shift=40",
        "cutout=32",
        "turn=200",
        "zoom=1",
        "none,mirror",
        "zoom=nan",
        3,
    ],
)
def test_what_cannot_be_asked_for(bad):
    with pytest.raises(DataError) as error:
        choose(bad, (3, 32, 32))
    assert "augment" in error.value.about
    assert "\n" not in str(error.value)


def test_only_images_are_augmented():
    with pytest.raises(DataError, match="are not images"):
        choose("standard", (40,))


def small(seed=0):
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (40, 1, 8, 8), dtype=np.uint8)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
    )
    return model, ArraySplit(images, random.integers(0, 3, 40))


def trained(how, run_dir=None, steps=12, seconds=1e9, show=None):
    model, split = small()
    settings = Settings(device="cpu", run_dir=run_dir, checkpoint_seconds=seconds, evaluate_every=1)
    train(
        model, split, modern("sgd", steps, 10, warmup=2), preprocess=Preprocess(scale=1 / 255), settings=settings,
        augment=how, show=show,
    )  # fmt: skip
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def test_a_resumed_run_sees_the_same_images(tmp_path):
    how = Augment(mirror=True, shift=2, cutout=3)
    whole = trained(how)
    assert not torch.equal(whole, trained(Augment()))
    assert torch.equal(whole, trained(how))

    def stop(progress):
        if progress.step == 5:
            raise checkpoint_left

    checkpoint_left = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        trained(how, tmp_path, seconds=0, show=stop)
    assert any(checkpoint.read_tensors(tmp_path / "checkpoint.safetensors")[0])
    with pytest.raises(TrainingError, match="augment"):
        trained(Augment(mirror=True), tmp_path)
    assert torch.equal(trained(how, tmp_path), whole)


def test_a_misspelled_field_is_answered_with_the_right_one():
    with pytest.raises(MemboundError, match="Augment has no keyword 'shfit': did you mean shift"):
        Augment(shfit=2)
    with pytest.raises(MemboundError, match="Preprocess has no keyword 'deviation': there are"):
        Preprocess(deviation=2)
