"""Examples of a wrong shape: the advice, followed to the letter, gives examples that the network takes."""

import re

import numpy as np
import pytest
from profiles import at_once
from torch import nn

import membound as mb
from membound.errors import DataError
from membound.train.evaluation import takes_shape

IMAGES, OVER_TIME, ALONG = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, (5, 1)), nn.Conv1d(3, 4, 3)


def network(first):
    pool = nn.AdaptiveAvgPool1d if isinstance(first, nn.Conv1d) else nn.AdaptiveAvgPool2d
    return nn.Sequential(first, nn.ReLU(), pool(1), nn.Flatten(), nn.Linear(4, 2))


def refused(model, data):
    with pytest.raises(DataError) as raised:
        mb.fit(model, data, "12 KB", steps=2)
    return str(raised.value), raised.value.about


@at_once(
    "first, shape, advice",
    [
        (nn.Conv2d(1, 4, 3), (28, 28), "gray images are [n, 1, 28, 28]: give x[:, None]"),
        (nn.Conv2d(1, 4, (5, 1)), (64, 7), "gray images are [n, 1, 64, 7]: give x[:, None]"),
        (nn.Conv2d(1, 4, 3), (28, 28, 1), "give x.transpose(0, 3, 1, 2)"),
        (IMAGES, (28, 28), "Conv2d takes images: give x of [n, 3, height, width]"),
        (IMAGES, (32, 32, 3), "give x.transpose(0, 3, 1, 2)"),
        (IMAGES, (32, 3, 32), "give x.transpose(0, 2, 1, 3)"),
        (IMAGES, (784,), "Conv2d takes images: give x of [n, channels, height, width]"),
        (OVER_TIME, (3, 64), "Conv2d of (k, 1) takes a sequence as [channels, time, 1]: give x[..., None]"),
        (OVER_TIME, (64, 3), "give x.transpose(0, 2, 1)[..., None]"),
        (OVER_TIME, (64, 7), "give x of [n, 3, time, 1]"),
        (OVER_TIME, (64, 1, 3), "give x.transpose(0, 3, 1, 2)"),
        (OVER_TIME, (64, 3, 1), "give x.transpose(0, 2, 1, 3)"),
        (OVER_TIME, (1, 3, 64), "give x.transpose(0, 2, 3, 1)"),
        (OVER_TIME, (1, 64, 3), "give x.transpose(0, 3, 2, 1)"),
        (OVER_TIME, (3, 1, 64), "give x.transpose(0, 1, 3, 2)"),
        (ALONG, (64, 3), "Conv1d takes [channels, time]: give x.transpose(0, 2, 1)"),
        (ALONG, (3, 64, 1), "give x[..., 0]"),
        (ALONG, (1, 3, 64), "give x[:, 0]"),
        (nn.Conv1d(1, 4, 3), (64,), "give x[:, None]"),
    ],
)
def test_arrays_are_told_what_to_give_and_no_layout(first, shape, advice):
    x, model = np.zeros((4, *shape), np.float32), network(first)
    said, about = refused(model, (x, np.arange(4) % 2))
    assert said.endswith(advice)
    assert "layout" not in said
    assert not about
    if found := re.search(r"give (x[.\[].*)", said):
        assert takes_shape(model, eval(found[1], {"x": x}).shape[1:])


@at_once(
    "first, shape, layout, advice",
    [
        (nn.Conv2d(1, 4, 3), (28, 28), "NCL", "for gray images, leave out the layout"),
        (nn.Conv2d(1, 4, 3), (28, 28, 1), "NCHW", "read as NCHW: give the layout NHWC"),
        (IMAGES, (32, 3, 32), "NCHW", "read as NCHW: save x.transpose(0, 2, 1, 3)"),
        (IMAGES, (32, 3, 32), "NHWC", "save x.transpose(0, 2, 1, 3), and give the layout NCHW"),
        (OVER_TIME, (3, 64), None, "save x[..., None], and give the layout NCHW"),
        (OVER_TIME, (3, 64), "NCL", "save x[..., None], and give the layout NCHW"),
        (OVER_TIME, (64, 3), None, "save x[:, :, None], and give the layout NHWC"),
        (OVER_TIME, (64, 3), "NCL", "save x[:, :, None], and give the layout NHWC"),
        (OVER_TIME, (64, 3, 1), None, "save x.transpose(0, 2, 1, 3), and give the layout NCHW"),
        (ALONG, (64, 3), "NCL", "save x.transpose(0, 2, 1)"),
        (ALONG, (64, 3), None, "save x.transpose(0, 2, 1), and give the layout NCL"),
        (nn.Conv1d(1, 4, 3), (64,), None, "save x[:, None], and give the layout NCL"),
    ],
)
def test_files_are_told_what_to_save_and_which_layout(tmp_path_factory, first, shape, layout, advice):
    path = tmp_path_factory.mktemp("file") / "data.npz"
    x, y, model = np.zeros((4, *shape), np.float32), np.arange(4) % 2, network(first)
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    said, about = refused(model, mb.data.load(path, layout=layout))
    assert advice in said
    saved, given = (
        re.search(r"save (x[.\[].*?)(?:, and|;|$)", said),
        re.search(r"give the layout (\w+)", said),
    )
    x = eval(saved[1], {"x": x}) if saved else x
    layout = given[1] if given else None if "leave out" in said else layout
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    assert takes_shape(model, mb.data.load(path, layout=layout).train.shape)
    assert (about == ("layout",)) == ("layout" in said)


def test_a_function_that_is_told_its_channels_is_told_so_too():
    def made(channels=1):
        return network(nn.Conv2d(channels, 4, 3))

    said, _ = refused(made, (np.zeros((4, 28, 28), np.uint8), np.arange(4) % 2))
    assert said.endswith("of shape (28, 28): gray images are [n, 1, 28, 28]: give x[:, None]")


def test_images_of_another_size_than_a_linear_layer_takes_are_told_the_size():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 28 * 28, 2))
    said, about = refused(model, (np.zeros((4, 3, 32, 32), np.uint8), np.arange(4) % 2))
    assert (
        "layer '1' takes 2,352 features and gets 3,072; the images are 3 x 32 x 32; 2,352 = 3 x 28 x 28"
        in said
    )
    assert said.endswith("did you mean images of 28 x 28 (size=28)? Or change that layer")
    assert about == (), "size is named already"
