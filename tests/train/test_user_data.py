"""Data as people have it: what becomes a split, how it is read and prepared, and what is refused in a line."""

import threading

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils import data as torch_data

import membound as mb
from membound.data import ArraySplit, Preprocess, bag, channel_moments, load, subsample
from membound.data import Dataset as MemboundDataset
from membound.data.several import Inputs, SeveralSplit
from membound.errors import DataError
from membound.train.batches import Feeder, index_stream, order_of, size_together, whole
from membound.train.items import ItemSplit
from membound.train.preprocessing import preprocess_for
from membound.train.user_data import ExampleSplit, as_split, hold_out, preprocess_of

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (20, 3, 6, 5)).astype(np.uint8)
VECTORS = RNG.standard_normal((20, 7))
CLASSES = np.arange(20) % 4


class Items(torch_data.Dataset):
    """Counts what is read, and by whom."""

    def __init__(self, x, y, **attributes):
        self.x, self.y, self.reads = x, y, []
        self.__dict__.update(attributes)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        self.reads.append((index, threading.get_ident()))
        return self.x[index], self.y[index]


# Arrays


def test_splits_and_sets_of_membound_stay_as_they_are():
    split, other = ArraySplit(PIXELS, CLASSES), ArraySplit(PIXELS[:2], CLASSES[:2])
    assert as_split(split) is split
    assert as_split(MemboundDataset("pair", split, other, tuple("abcd"))) is split


@pytest.mark.parametrize("convert", [lambda a: a, torch.from_numpy])
@pytest.mark.parametrize("x", [PIXELS, VECTORS, VECTORS.reshape(20, 7, 1), VECTORS.astype(np.float16)])
def test_a_pair_of_any_shape(x, convert):
    split = as_split((convert(x), convert(CLASSES)))
    wanted = x if x.dtype == np.uint8 else x.astype(np.float32)
    assert (len(split), tuple(split.shape)) == (20, x.shape[1:])
    assert split.images.dtype == wanted.dtype
    assert np.array_equal(split.read([3, 3, 0]), wanted[[3, 3, 0]])
    assert split.labels.dtype == np.int64
    assert np.array_equal(split.take([5, 1]).labels, CLASSES[[5, 1]])


def test_images_with_class_numbers_are_an_array_split():
    assert isinstance(as_split((PIXELS, CLASSES)), ArraySplit)
    assert isinstance(as_split([PIXELS, CLASSES]), ArraySplit)


def test_targets_of_other_tasks():
    floats = as_split((PIXELS, VECTORS)).labels
    assert floats.dtype == np.float32
    assert np.array_equal(floats, VECTORS.astype(np.float32))
    assert as_split((PIXELS, VECTORS[:, :1])).labels.shape == (20, 1)
    masks = as_split((PIXELS, np.full((20, 6, 5), -100))).labels
    assert (masks.dtype, masks.shape) == (np.int64, (20, 6, 5))


def test_integer_columns_are_class_numbers():
    assert np.array_equal(as_split((VECTORS, CLASSES[:, None].astype(np.uint8))).labels, CLASSES)


def test_tensors_that_numpy_does_not_take_as_they_are():
    x = torch.from_numpy(VECTORS).bfloat16().requires_grad_()
    assert np.array_equal(as_split((x, CLASSES)).images, x.detach().float().numpy())


def test_read_only_and_foreign_byte_orders_reach_the_device(tmp_path):
    np.save(tmp_path / "x.npy", PIXELS)
    pixels = np.load(tmp_path / "x.npy", mmap_mode="r")
    labels = np.broadcast_to(np.int64(2), 20)
    split = as_split((pixels, labels))
    assert isinstance(split, ArraySplit)
    Feeder(split, Preprocess(), torch.device("cpu"), torch.float32)  # torch would warn of read-only memory
    assert np.array_equal(as_split((VECTORS.astype(">f8"), CLASSES)).images, VECTORS.astype(np.float32))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((PIXELS, CLASSES[:-1]), "x has 20 examples and y 19"),
        ((PIXELS[:0], CLASSES[:0]), r"x has shape \[0, 3, 6, 5\]: it is empty"),
        ((VECTORS[:, :0], CLASSES), "it is empty"),
        ((np.array([[1], [1, 2]], object), [0, 1]), "x is object: .*different lengths"),
        ((np.where(VECTORS > 2, np.nan, VECTORS), CLASSES), "x holds values that are not finite"),
        ((np.where(VECTORS > 1, 1e300, VECTORS), CLASSES), "x holds values that are not finite"),
        ((VECTORS + 0j, CLASSES), "x is complex128"),
        ((torch.zeros(3, 2, dtype=torch.complex64).conj(), [0, 1, 0]), "x is complex64"),
        ((VECTORS.astype(np.int64), CLASSES), 'x is int64: .*astype\\("float32"\\)'),
        ((VECTORS.astype(str), CLASSES), "x is <U"),
        ((CLASSES.astype(float), CLASSES), r"x has shape \[20\]: it must be \[n, \.\.\.\]"),
        ((np.float32(1), CLASSES), r"x has shape \[\]"),
        ((torch.eye(3).to_sparse(), [0, 1, 2]), "x is a Tensor that is not an array"),
        ((VECTORS, CLASSES - 1), "label -1 is negative"),
        ((VECTORS, np.eye(4, dtype=int)[CLASSES]), r"one-hot: for classes, give their numbers, y\.argmax\(1\)"),
        ((VECTORS, np.where(CLASSES > 2, np.nan, 1)), "y holds values that are not finite"),
        ((VECTORS, ["cat"] * 20), "labels are texts, such as 'cat': number the classes"),
        ((VECTORS, CLASSES > 1), "y is bool"),
        ((VECTORS, [[1], [2, 3]]), "y is a list that is not an array"),
        ((VECTORS, np.int64(3)), "y is a single number"),
        ((VECTORS, CLASSES, VECTORS), "a tuple of 3"),
        ((VECTORS, None), "a pair of ndarray and NoneType"),
        ((Items(VECTORS, CLASSES), Items(VECTORS, CLASSES)), "a pair of Items and Items"),
        (VECTORS, "one ndarray without targets"),
        (torch.zeros(3, 2), "one Tensor without targets"),
        (None, r"no data \(None\)"),
        ("mnist", r"mb\.data\.load\('mnist'\)"),
        (((x, y) for x, y in zip(VECTORS, CLASSES, strict=True)), "a generator can be read only once"),
        ({"x": VECTORS}, "type dict is not understood"),
        (7, "type int is not understood"),
        (ArraySplit(PIXELS[:0], CLASSES[:0]), "no examples"),
    ],
)  # fmt: skip
def test_malformed_data_is_said_in_one_line(data, said):
    with pytest.raises(DataError, match=said) as caught:
        as_split(data)
    assert "\n" not in str(caught.value)


# Datasets of torch


def test_a_tensor_dataset_and_its_subset_are_held_in_memory():
    tensors = torch_data.TensorDataset(torch.from_numpy(PIXELS), torch.from_numpy(CLASSES))
    assert isinstance(as_split(tensors), ArraySplit)
    some = as_split(torch_data.Subset(tensors, [4, 2]))
    assert isinstance(some, ArraySplit)
    assert np.array_equal(some.images, PIXELS[[4, 2]])
    with pytest.raises(DataError, match="a tuple of 1"):
        as_split(torch_data.TensorDataset(torch.from_numpy(PIXELS)))


def test_items_are_read_on_demand():
    items = Items(VECTORS, CLASSES.tolist())
    split = as_split(items)
    assert isinstance(split, ItemSplit)
    assert np.array_equal(split.labels, CLASSES)
    items.reads.clear()
    chosen = split.take([7, 3, 3]).take([2, 0])
    assert not items.reads
    assert np.array_equal(chosen.read([0, 1, 1]), VECTORS[[3, 7, 7]].astype(np.float32))
    assert [index for index, _ in items.reads] == [3, 7, 7]


def test_a_feeder_streams_items_from_threads():
    items = Items(PIXELS, torch.from_numpy(CLASSES))
    split = as_split(items)
    items.reads.clear()
    feeder = Feeder(split, Preprocess(), torch.device("cpu"), torch.float32)
    batches = list(feeder.batches(whole(split, 8)))
    assert np.array_equal(torch.cat([x for x, _ in batches]).numpy(), PIXELS.astype(np.float32))
    assert torch.cat([y for _, y in batches]).tolist() == CLASSES.tolist()
    assert threading.get_ident() not in {thread for _, thread in items.reads}


def test_random_augmentation_gives_other_inputs_each_time():
    class Noisy(Items):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return torch.from_numpy(x) + torch.rand(7), y

    split = as_split(Noisy(VECTORS, CLASSES))
    assert not np.array_equal(split.read([0]), split.read([0]))


def test_targets_that_a_dataset_holds_are_not_read_item_by_item():
    items = Items(VECTORS, CLASSES.tolist(), targets=CLASSES.tolist())
    many = torch_data.Subset(torch_data.Subset(items, list(range(20)) * 50), list(range(999, -1, -1)))
    split = as_split(many)
    assert np.array_equal(split.labels, np.tile(CLASSES, 50)[::-1])
    assert len(items.reads) < 20


@pytest.mark.parametrize("attributes", [{"target_transform": lambda y: 3 - y}, {}])
def test_targets_that_items_do_not_confirm_are_not_believed(attributes):
    items = Items(VECTORS, 3 - CLASSES, targets=CLASSES, **attributes)
    assert np.array_equal(as_split(items).labels, 3 - CLASSES)


def test_targets_that_change_are_refused():
    items = Items(VECTORS, CLASSES.tolist())
    split = as_split(items)
    items.y[5] = 2
    with pytest.raises(
        DataError, match=r"item 5 of the data has another target than before \(2, and 1 before\)"
    ):
        split.read([4, 5])


def test_pictures_are_channels_first():
    pictures = [Image.fromarray(pixels.transpose(1, 2, 0)) for pixels in PIXELS]
    split = as_split(list(zip(pictures, CLASSES.tolist(), strict=True)))
    assert split.shape == (3, 6, 5)
    assert np.array_equal(split.read(np.arange(20)), PIXELS)
    assert as_split([(pictures[0].convert("L"), 0)]).shape == (1, 6, 5)
    assert as_split([(pictures[0].convert("P"), 0)]).shape == (3, 6, 5)
    with pytest.raises(DataError, match="picture of mode F"):
        as_split([(pictures[0].convert("F"), 0)])


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([], "no examples"),
        ([(VECTORS[0], 0), (VECTORS[0, :3], 1)], r"item 1 of the data is float32 \[3\], the first is float32 \[7\]"),
        ([(VECTORS[0], 0), (PIXELS[0], 1)], "item 1 of the data is uint8"),
        ([(VECTORS[0], 0), (VECTORS[0] * np.nan, 1)], "x in item 1 of the data holds values that are not finite"),
        ([(VECTORS[0], 0), (VECTORS[0], -1)], "label -1 is negative"),
        ([(VECTORS[0], "cat"), (VECTORS[0], "horse")], "number the classes"),
        ([(VECTORS[0], [0.0, 1.0]), (VECTORS[0], [0.0])], r"targets of some items have shape \[1\], of others \[2\]"),
        ([(VECTORS[0], [0, 1]), (VECTORS[0], [1, 0])], "one-hot"),
        ([VECTORS[0], VECTORS[1], VECTORS[2]], "item 0 of the data is a ndarray: it must be a pair"),
        ([(VECTORS[0], 0, 0)], "item 0 of the data is a tuple of 3"),
        ([{"x": VECTORS[0]}], "item 0 of the data is a dict"),
        ([(1.0, 0)], "x in item 0 of the data is a single number"),
        ([("text", 0)], "x in item 0 of the data is <U4"),
        (Items(VECTORS[:5], CLASSES), "item (5|6|7) of the data cannot be read: IndexError"),
    ],
)  # fmt: skip
def test_malformed_items_are_named(items, said):
    with pytest.raises(DataError, match=said) as caught:
        as_split(items)
    assert "\n" not in str(caught.value)


class Stream(torch_data.IterableDataset):
    def __iter__(self):
        return iter([(torch.full((3,), float(number)), number % 2) for number in range(10)])


def test_a_loader_of_a_stream_keeps_its_batch_size():
    split = as_split(torch_data.DataLoader(Stream(), batch_size=4))
    assert (split.batch_size, len(split), split.images.shape) == (4, 10, (10, 3))
    assert len(as_split(torch_data.DataLoader(Stream(), batch_size=4, drop_last=True))) == 8
    assert not hasattr(as_split(Stream()), "batch_size")
    fitted = mb.fit(
        torch.nn.Linear(3, 2), torch_data.DataLoader(Stream(), batch_size=4), 1000, steps=2, dense=False,
        test_data=Stream(), device="cpu", progress=False,
    )  # fmt: skip
    assert fitted.facts["training"]["batch_size"] == 4


class Ragged(torch_data.IterableDataset):
    def __iter__(self):
        yield VECTORS[0], 0
        yield VECTORS[0][:2], 1


def test_an_iterable_dataset_of_different_shapes_is_refused():
    with pytest.raises(DataError, match="all must be alike"):
        as_split(Ragged())


# Loaders


def test_a_loader_gives_its_dataset_and_batch_size():
    items = Items(VECTORS, CLASSES)
    split = as_split(torch_data.DataLoader(items, batch_size=3, shuffle=True, drop_last=True))
    assert split.inner.dataset is items
    assert (len(split), split.batch_size, size_together(split.take([4, 2]))) == (20, 3, 3)
    assert order_of(split).describe() == [True, True, None]
    held = as_split(
        torch_data.DataLoader(torch_data.TensorDataset(torch.from_numpy(PIXELS), torch.from_numpy(CLASSES)))
    )
    assert np.array_equal(held.images, PIXELS)


def batches_of(loader, count, seed=0, start=0):
    """The first targets that a training would see; targets of these items are their numbers."""
    split = as_split(loader)
    stream = index_stream(len(split), split.batch_size, seed, start, order_of(split))
    return [split.labels[next(stream)].tolist() for _ in range(count)]


def test_the_order_of_a_loader_is_followed():
    numbered = Items(VECTORS, np.arange(20))
    loader = torch_data.DataLoader
    assert batches_of(loader(numbered, 8), 3) == [
        list(range(8)),
        list(range(8, 16)),
        [*range(16, 20), 0, 1, 2, 3],
    ]
    assert batches_of(loader(numbered, 8, drop_last=True), 3)[2] == list(range(8))
    shuffled = batches_of(loader(numbered, 8, shuffle=True, drop_last=True), 4)
    assert len(set(shuffled[0] + shuffled[1])) == len(set(shuffled[2] + shuffled[3])) == 16
    assert shuffled[0] != shuffled[2]
    weights = torch.zeros(20)
    weights[5], weights[7] = 1.0, 3.0
    drawn = batches_of(loader(numbered, 20, sampler=torch_data.WeightedRandomSampler(weights, 20)), 20)
    assert {*np.concatenate(drawn)} == {5, 7}
    assert 240 < np.concatenate(drawn).tolist().count(7) < 360
    twice = torch_data.RandomSampler(numbered, replacement=True)
    assert len(set(batches_of(loader(numbered, 20, sampler=twice), 1)[0])) < 20


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True},
        {"shuffle": True, "drop_last": True},
        {},
        {"drop_last": True},
        {"sampler": torch_data.WeightedRandomSampler(range(20), 20)},
    ],
)
def test_every_order_goes_on_where_it_was(options):
    loader = torch_data.DataLoader(Items(VECTORS, np.arange(20)), 6, **options)
    assert batches_of(loader, 9, seed=3)[5:] == batches_of(loader, 4, seed=3, start=5)


def test_examples_that_are_left_out_take_their_weights_along():
    sampler = torch_data.WeightedRandomSampler([0.0] * 10 + [1.0] * 10, 20)
    split = as_split(torch_data.DataLoader(Items(VECTORS, np.arange(20)), 4, sampler=sampler))
    some = split.take([3, 12, 15])
    assert order_of(some).weights.tolist() == [0.0, 1.0, 1.0]
    with pytest.raises(DataError, match="are 0: none of them can be drawn"):
        next(index_stream(2, 2, 0, order=order_of(split.take([0, 1]))))


def double(items):
    """A collate_fn that works on pairs and makes float32 of them."""
    return 2 * torch.tensor(np.stack([x for x, _ in items]), dtype=torch.float32), torch.tensor(
        [y for _, y in items]
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_examples_are_read_as_the_loader_reads_them(workers):
    """By its collate_fn and its workers, in whole batches; without workers in this thread."""
    items = Items(VECTORS, CLASSES)
    batches = []

    def collate(found):
        batches.append(len(found))
        return double(found)

    split = as_split(torch_data.DataLoader(items, 8, collate_fn=collate, num_workers=workers))
    items.reads.clear(), batches.clear()
    feeder = Feeder(split, Preprocess(takes="float32"), torch.device("cpu"), torch.float32)
    before = torch.get_rng_state()
    found = list(feeder.batches(whole(split, 8)))
    assert torch.equal(torch.get_rng_state(), before)  # dropout draws what it would have drawn
    assert np.array_equal(torch.cat([x for x, _ in found]).numpy(), 2 * VECTORS.astype(np.float32))
    assert torch.cat([y for _, y in found]).tolist() == CLASSES.tolist()
    if workers:
        assert not items.reads  # they were read elsewhere
    else:
        assert {thread for _, thread in items.reads} == {threading.get_ident()}
        assert batches == [8, 8, 4]


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_wrong_with_an_item_is_said_in_one_line_by_workers_too(workers):
    class Broken(Items):
        def __getitem__(self, index):
            if index == 13:
                raise OSError("gone")
            return super().__getitem__(index)

    with pytest.raises(DataError, match=r"^item 13 of the data cannot be read: OSError: gone$"):
        as_split(torch_data.DataLoader(Broken(VECTORS, CLASSES), 4, num_workers=workers))


def test_a_worker_that_cannot_be_started_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr(
        torch_data._utils, "MP_STATUS_CHECK_INTERVAL", 0.5
    )  # how long torch waits for its end

    def fail(number):
        raise RuntimeError("no more room\nand more")

    with pytest.raises(DataError, match=r"^a worker of the DataLoader failed: RuntimeError: .*$"):
        as_split(torch_data.DataLoader(Items(VECTORS, CLASSES), 4, num_workers=1, worker_init_fn=fail))


@pytest.mark.parametrize(
    ("collate", "said"),
    [
        (lambda items: items, "is a list of 1: it must be a pair"),
        (lambda items: (np.zeros((2, 3)), np.zeros(2)), r"has x \[2, 3\], y \[2\] for 1 items"),
        (lambda items: 1 / 0, "failed with ZeroDivisionError"),
        (lambda items: ({"ids": 3}, np.zeros(1)), "input ids is a single number"),
    ],
)
def test_a_collate_fn_that_makes_no_pairs_is_refused(collate, said):
    with pytest.raises(DataError, match=said):
        as_split(torch_data.DataLoader(Items(VECTORS, CLASSES), collate_fn=collate))


def test_a_collate_fn_that_mixes_targets_is_refused():
    def mixed(items):
        x, y = double(items)
        return x, y.flip(0)

    split = as_split(torch_data.DataLoader(Items(VECTORS, CLASSES), collate_fn=mixed))
    with pytest.raises(DataError, match="has another target than before"):
        split.read([0, 1])


def test_a_loader_of_a_subset_never_shows_the_rest():
    items = Items(VECTORS, CLASSES)
    sampler = torch_data.SubsetRandomSampler(torch.tensor([3, 11, 6]))
    for loader in (
        torch_data.DataLoader(items, sampler=sampler),
        torch_data.DataLoader(items, batch_sampler=torch_data.BatchSampler(sampler, 2, False)),
    ):
        assert np.array_equal(as_split(loader).read([0, 1, 2]), VECTORS[[3, 11, 6]].astype(np.float32))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": None}, "batch_size=None"),
        ({"batch_sampler": [[0, 1], [2]]}, "batch_sampler of its own"),
        ({"sampler": list(range(20))}, "has a list, which cannot be asked"),
        ({"sampler": torch_data.WeightedRandomSampler([1.0] * 19, 20)}, r"weights of shape \[19\] for 20"),
        ({"sampler": torch_data.WeightedRandomSampler([1.0] * 20, 9, False)}, "without replacement"),
        ({"sampler": torch_data.RandomSampler(range(20), num_samples=9)}, "draws 9 of 20"),
        ({"sampler": torch_data.DistributedSampler(range(20), 2, 0)}, "one of 2 processes"),
    ],
)
def test_a_loader_that_cannot_be_followed_is_refused(options, said):
    with pytest.raises(DataError, match=said):
        as_split(torch_data.DataLoader(Items(VECTORS, CLASSES), **options))


# Preparing and choosing


def test_pixels_are_normalised_per_channel_however_they_come():
    pictures = [Image.fromarray(pixels.transpose(1, 2, 0)) for pixels in PIXELS]
    mean, std = channel_moments(ArraySplit(PIXELS, CLASSES))
    for data in ((PIXELS, CLASSES), (PIXELS, VECTORS), Items(pictures, CLASSES), ArraySplit(PIXELS, CLASSES)):
        preprocess = preprocess_of(data, as_split(data))
        assert preprocess == Preprocess(mean=mean, std=std)


def test_floats_are_taken_as_prepared_but_for_a_membound_set():
    data = (PIXELS / 255, CLASSES)
    assert preprocess_of(data, as_split(data)) == Preprocess(takes="float32")
    assert preprocess_of(VECTORS, as_split((VECTORS, CLASSES))) == Preprocess(takes="float32")
    split = as_split(data)
    own = preprocess_of(MemboundDataset("set", split, split, tuple("abcd")), split)
    assert own.std is not None
    assert own.takes == "float32"


@pytest.mark.parametrize("shape", [(3,), (3, 6)])
def test_features_and_sequences_of_a_membound_set_are_standardized_by_channel(shape):
    """A third is constant, and keeps a deviation of 1. The feeder, which trains, does as the file will."""
    units = np.array([[2.6, 0.05], [-4e6, 1e3], [7.25, 0]]).reshape(3, 2, *[1] * (len(shape) - 1))
    noise = np.random.default_rng(0).normal(size=(500, *shape))
    split = as_split(((units[:, 0] + units[:, 1] * noise).astype(np.float32), np.arange(500) % 2))
    data = MemboundDataset("set", split, split, tuple("ab"))
    how = preprocess_of(data, split)
    assert preprocess_for(torch.nn.Flatten(), split) == how
    prepared = how(split.images)
    around = (0, *range(2, prepared.ndim))
    assert np.abs(prepared.mean(around)).max() < 0.01
    assert np.allclose(prepared.std(around), [1, 1, 0], atol=0.01)
    assert how.std[2] == 1
    assert len(str(how.to_json())) < 100  # few digits
    fed, _ = next(Feeder(split, how, torch.device("cpu"), torch.float32).batches([np.arange(9)]))
    assert np.array_equal(fed.numpy(), prepared[:9])
    assert preprocess_for(torch.nn.Flatten(), split, "channel") == how
    assert preprocess_for(torch.nn.Flatten(), split, "none") == Preprocess(takes="float32")
    with pytest.raises(DataError, match="choose channel or none"):
        preprocess_for(torch.nn.Flatten(), split, "image")


def test_several_inputs_of_a_membound_set_are_taken_as_they_are():
    inputs = Inputs.of({"ids": np.zeros((1, 2), int), "x": np.zeros((1, 3))})
    rows = np.arange(20, dtype=np.float32).reshape(4, 5)
    split = SeveralSplit(rows, np.arange(4), inputs)
    assert preprocess_of(MemboundDataset("set", split, split, tuple("abcd")), split) == Preprocess(
        takes="float32"
    )


def test_a_channel_that_does_not_vary_can_be_divided_by():
    data = (np.full((4, 1, 2, 2), 9, np.uint8), [0, 1, 0, 1])
    prepared = preprocess_of(data, as_split(data))(data[0])
    assert np.array_equal(prepared, np.zeros((4, 1, 2, 2)))


@pytest.mark.parametrize("data", [(VECTORS, CLASSES), (VECTORS, VECTORS), Items(VECTORS, CLASSES)])
def test_every_way_to_choose_examples_works(data):
    split = as_split(data)
    train, validation = hold_out(split, 4, seed=1, stratified=True)
    assert (len(train), len(validation)) == (16, 4)
    rows = np.concatenate([half.read(np.arange(len(half))) for half in (train, validation)])
    assert np.array_equal(np.unique(rows, axis=0), np.unique(VECTORS.astype(np.float32), axis=0))
    if validation.labels.ndim == 1:
        assert sorted(validation.labels) == [0, 1, 2, 3]
    assert len(bag(split)) == 20
    assert len(subsample(split, 5)) == 5
    again, _ = hold_out(split, 0.2, seed=1)
    assert np.array_equal(again.labels, train.labels)


def test_real_images_as_arrays_are_the_set_itself():
    mnist = load("mnist").train
    split = as_split((mnist.images, mnist.labels))
    assert isinstance(split, ArraySplit)
    assert np.shares_memory(split.images, mnist.images) or not mnist.images.flags.writeable
    assert preprocess_of(mnist, mnist) == preprocess_of(None, split)


def test_examples_of_any_shape_are_an_example_split():
    assert isinstance(as_split((VECTORS, CLASSES)), ExampleSplit)
    assert isinstance(as_split((PIXELS, VECTORS)), ExampleSplit)
