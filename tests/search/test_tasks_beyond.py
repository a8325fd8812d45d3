"""Tasks beyond classes: segmentation, regression, features along time; fitted and evaluated, from files and folders."""

import html
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils import data as torch_data

import membound as mb
from membound.cli import main
from membound.data.examples import IGNORED, check_masks
from membound.data.numbering import check_numbering
from membound.errors import DataError, MemboundError
from membound.run.scores import NumberScore, SegmentScore, variance_of
from membound.train.tasks import Explained, image_iou, inferred_task, pixel_loss
from membound.train.user_data import as_split

EXAMPLES = Path(__file__).parents[2] / "examples"


def said(capsys, *arguments: object) -> dict:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in (*arguments, "--json")])
    captured = capsys.readouterr()
    assert stopped.value.code == 0, captured.err
    return json.loads(captured.out)


# Scores


def iou_by_hand(scores, mask):
    """One image, pixel by pixel."""
    found = []
    pixels = [(row, column) for row, column in np.ndindex(mask.shape) if mask[row, column] != IGNORED]
    for number in range(len(scores)):
        mine = {place for place in pixels if scores[:, place[0], place[1]].argmax() == number}
        theirs = {place for place in pixels if mask[place] == number}
        if mine | theirs:
            found.append(len(mine & theirs) / len(mine | theirs))
    return np.mean(found) if found else 1.0


def test_mean_iou_in_torch_and_in_numpy_is_the_one_by_hand():
    random = np.random.default_rng(0)
    scores = random.normal(size=(7, 4, 5, 6)).astype(np.float32)
    masks = random.integers(0, 4, (7, 5, 6)).astype(np.uint8)
    masks[random.random(masks.shape) < 0.2] = IGNORED
    masks[3] = IGNORED
    by_hand = np.mean([iou_by_hand(*pair) for pair in zip(scores, masks, strict=True)])
    assert float(image_iou(torch.from_numpy(scores), torch.from_numpy(masks))) == pytest.approx(by_hand)
    score = SegmentScore(4)
    for part in (slice(0, 3), slice(3, 7)):
        score.add(scores[part], masks[part])
    facts = score.facts()
    assert facts["score"] == pytest.approx(by_hand)
    assert facts["collapsed"] is None
    each = [iou_by_hand(*pair) for pair in zip(scores, masks, strict=True)]
    assert score.each == pytest.approx(each)
    assert facts["standard_error"] == pytest.approx(np.std(each, ddof=1) / np.sqrt(7))
    together = iou_by_hand(np.concatenate(list(scores), 1), np.concatenate(list(masks)))
    assert facts["mean_class_iou"] == pytest.approx(together)
    known = masks != IGNORED
    assert facts["pixels_right"] == pytest.approx((scores.argmax(1) == masks)[known].mean())


def test_pairs_are_for_what_their_targets_are():
    pictures = np.zeros((4, 1, 5, 6), np.float32)
    for y, name in (
        (np.arange(120).reshape(4, 5, 6) % 2, "mean IoU"),
        (np.arange(4.0), "R²"),
        (torch.rand(4, 2), "R²"),
        ([0, 1, 2, 1], "accuracy"),
    ):
        task = inferred_task(as_split((pictures, y)))
        assert task.classifies == (name == "accuracy")
        assert task.classifies or task.name == name


def test_the_loss_of_pixels_leaves_out_what_is_ignored():
    scores = torch.randn(2, 3, 4, 4)
    masks = torch.randint(0, 3, (2, 4, 4), dtype=torch.uint8)
    masks[0, :2] = IGNORED
    kept = (masks != IGNORED).flatten()
    each = nn.functional.cross_entropy(
        scores.permute(0, 2, 3, 1).reshape(-1, 3)[kept], masks.flatten()[kept].long()
    )
    assert float(pixel_loss(scores, masks)) == pytest.approx(float(each))
    with pytest.raises(MemboundError, match=r"\[n, classes, H, W\]"):
        pixel_loss(torch.zeros(2, 3), masks)


def test_explained_variance_in_torch_and_in_numpy_is_that_of_its_definition():
    random = np.random.default_rng(1)
    train, y, found = (random.normal(size=(size, 2)) for size in (50, 9, 9))
    by_hand = 1 - ((y - found) ** 2).mean() / train.var(0).mean()
    score = NumberScore(variance_of(train))
    for part in (slice(0, 4), slice(4, 9)):
        score.add(found[part], y[part])
    facts = score.facts()
    assert facts["score"] == pytest.approx(by_hand)
    assert facts["mean_absolute_error"] == pytest.approx(np.abs(y - found).mean())
    each = 1 - ((y - found) ** 2).mean(1) / train.var(0).mean()
    assert facts["standard_error"] == pytest.approx(np.std(each, ddof=1) / 3)
    ours = Explained(variance_of(train)).each(torch.from_numpy(found), torch.from_numpy(y))
    assert ours.numpy() == pytest.approx(each)
    ours = Explained(variance_of(train))(torch.from_numpy(found), torch.from_numpy(y))
    assert float(ours) == pytest.approx(by_hand)


# Fitted and evaluated


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return tmp_path


def fit_and_evaluate(capsys, net, data, *more, steps="40", lr="0.02", batch="32", solver="sgd"):
    """What fit says of its file, and what evaluate says of it: the same score."""
    asked = (
        "fit",
        net,
        "--data",
        data,
        "--budget",
        "50%",
        "--out",
        "n.safetensors",
        "--device",
        "cpu",
        "--lr",
        lr,
    )
    layout = [word for word in more if word in ("--layout", "NCL")]
    summary = said(capsys, *asked, "--steps", steps, "--batch-size", batch, "--solver", solver, *more)
    return summary, said(capsys, "evaluate", "n.safetensors", "--data", data, *layout)


def test_segmentation_from_a_folder_of_images_and_masks(here, capsys):
    import segmentation

    (here / "digits").mkdir()
    segmentation.write_folder(here / "digits", 80)
    summary, found = fit_and_evaluate(
        capsys, "segmentation:small_unet", "digits", steps="60", lr="0.01", batch="8", solver="adamw"
    )
    (final,) = summary["finals"]
    assert summary["score_name"] == found["score_name"] == "mean IoU"
    assert final["accuracy"] == pytest.approx(found["score"], abs=1e-6)
    assert final["accuracy"] > 0.7, "ground alone is 0.45"
    assert final["class_iou"] == pytest.approx(found["class_iou"], abs=1e-6)
    assert len(found["class_iou"]) == 2
    assert np.mean(final["image_scores"]) == pytest.approx(final["accuracy"], abs=1e-6)
    assert len(final["image_scores"]) == len(summary["dense"]["image_scores"]) == final["images"]
    assert final["against_dense"]["uncertainty"] > 0
    page = Path("n.report.html").read_text()
    for said_there in (
        "IoU of each class",
        "mean IoU",
        "mean of the classes",
        "After a score, ± is its standard error over 16 test images.",
    ):
        assert said_there in page
    assert list(mb.load("n.safetensors").classes) == ["ground", "digit"]
    check_that_the_snippet_writes_a_mask(capsys)
    with pytest.raises(SystemExit):
        main(["evaluate", "n.safetensors", "--data", "digits"])
    assert "digit 0." in capsys.readouterr().out


def check_that_the_snippet_writes_a_mask(capsys):
    """Of a picture that is wider than high: its mask has its size, and nothing beside the center that was seen."""
    picture = np.zeros((60, 100), np.uint8)
    picture[:, 45:55] = 255  # a bar
    Image.fromarray(picture).save("photo.jpg")
    lines = run_snippet(capsys).splitlines()
    mask = np.asarray(Image.open("mask.png"))
    assert mask.shape == picture.shape
    assert (mask[:, :20] == 255).all()
    assert (mask[:, 80:] == 255).all()
    seen = mask[:, 20:80]
    assert set(np.unique(seen)) == {0, 1}
    assert seen[:, 27:33].mean() > 0.5 > seen[:, :15].mean(), "the bar stays where it is"
    shares = {line.split()[0]: float(line.split()[1]) for line in lines}
    assert shares == pytest.approx({"ground": (seen == 0).mean(), "digit": (seen == 1).mean()}, abs=0.02)


def run_snippet(capsys, **given):
    """What the report's lines print of these examples."""
    (snippet,) = (code for code in codes_of(Path("n.report.html").read_text()) if "import membound" in code)
    capsys.readouterr()
    exec(compile(snippet, "snippet", "exec"), given)
    return capsys.readouterr().out.strip()


def codes_of(page):
    return [
        html.unescape(re.sub("<[^>]*>", "", code))
        for code in re.findall(r"<pre><code>(.*?)</code>", page, re.S)
    ]


@pytest.mark.full
def test_regression_from_an_npz(here, capsys):
    import regression

    regression.write_places(here / "places.npz", 400)
    summary, found = fit_and_evaluate(capsys, "regression:locator", "places.npz", steps="120")
    (final,) = summary["finals"]
    assert summary["score_name"] == "R²"
    assert final["accuracy"] == pytest.approx(found["score"], abs=1e-5)
    assert final["accuracy"] > 0.5
    assert found["root_mean_square_error"] > found["mean_absolute_error"] > 0
    test = np.load("places.npz")
    Image.fromarray(test["x_test"][0, 0]).save("photo.jpg", quality=100)
    place = np.fromstring(run_snippet(capsys).strip("[]"), sep=" ")
    assert place == pytest.approx(test["y_test"][0], abs=1)


def test_keywords_from_features_along_time(here, capsys):
    import keywords

    keywords.write_words(here / "words.npz", 400)
    summary, found = fit_and_evaluate(capsys, "keywords:spotter", "words.npz", "--layout", "NCL", lr="0.05")
    (final,) = summary["finals"]
    assert summary["score_name"] is None
    assert final["errors"] == found["errors"]
    assert final["accuracy"] > 40, "chance is 17"
    words = np.load("words.npz")["x_test"]
    names = {run_snippet(capsys, examples=words[[number]]) for number in range(20)}
    assert 1 < len(names) <= 6
    assert names <= set(mb.load("n.safetensors").classes)


@pytest.mark.full
@pytest.mark.parametrize("name", ["segmentation", "regression", "keywords"])
def test_the_examples_run(name, tmp_path):
    command = [sys.executable, EXAMPLES / f"{name}.py", "--steps", "20"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert " bytes, dense " in done.stdout


# What is refused


def write_pair(folder, name, mask):
    image = np.full((*np.shape(mask)[:2], 3), zlib.crc32(name.encode()) % 256, np.uint8)
    for kind, array in (("images", image), ("masks", mask)):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        if array is not None:
            Image.fromarray(np.asarray(array, np.uint8)).save(folder / kind / f"{name}.png")


def test_a_mask_is_read_as_its_image_is_and_keeps_its_classes(tmp_path):
    for number in range(5):
        mask = np.zeros((8, 12), np.uint8)
        mask[:, 6:] = 7
        write_pair(tmp_path, f"{number}", mask)
    data = mb.data.load(tmp_path, size=4)
    assert data.task == "segmentation"
    assert len(data.classes) == 8
    assert set(np.unique(data.train.labels)) == {0, 7}, "no classes between them"
    assert data.train.shape == (3, 4, 4)
    assert data.train.labels.shape[1:] == (4, 4)


def test_folders_of_masks_that_cannot_be_used(tmp_path):
    write_pair(tmp_path / "a", "one", np.zeros((4, 4)))
    (tmp_path / "a" / "masks" / "one.png").rename(tmp_path / "a" / "masks" / "two.png")
    with pytest.raises(DataError, match="one is in images/ alone"):
        mb.data.load(tmp_path / "a")
    write_pair(tmp_path / "b", "one", np.zeros((4, 4, 3)))
    with pytest.raises(DataError, match="its mode is RGB"):
        mb.data.load(tmp_path / "b")
    write_pair(tmp_path / "c", "one", np.full((4, 4), IGNORED))
    with pytest.raises(DataError, match="every pixel of the masks"):
        mb.data.load(tmp_path / "c")
    write_pair(tmp_path / "d" / "train", "one", np.zeros((4, 4)))
    with pytest.raises(DataError, match="no test/"):
        mb.data.load(tmp_path / "d")
    write_pair(tmp_path / "e", "one", np.full((4, 4), 3))
    (tmp_path / "e" / "classes.txt").write_text("ground\n")
    with pytest.raises(DataError, match="names 1 classes, and masks have numbers up to 3"):
        mb.data.load(tmp_path / "e")
    write_pair(tmp_path / "f", "one", np.eye(4))
    Image.new("RGB", (4, 6)).save(tmp_path / "f" / "images" / "one.png")
    with pytest.raises(
        DataError, match=r"one\.png is 4 x 4 \(height x width\) and its image 6 x 4: a mask must have"
    ):
        mb.data.load(tmp_path / "f")
    write_pair(tmp_path / "g", "one", np.eye(4))
    (tmp_path / "g" / "masks" / "one.png").unlink()
    Image.new("L", (4, 4)).save(tmp_path / "g" / "masks" / "one.jpg")
    with pytest.raises(DataError, match=r"one\.jpg is a JPEG, .* save masks as PNG"):
        mb.data.load(tmp_path / "g")


def test_masks_of_one_class_are_refused_wherever_they_come_from(tmp_path):
    binary = np.uint8([[0, 255], [255, 0]])
    only = "masks hold only 0 and 255, and 255 is ignored: if it is the second class, write 1 in its place"
    for number in range(5):
        write_pair(tmp_path / "a", f"{number}", binary)
    (tmp_path / "a" / "classes.txt").write_text("ground\nroad\n")  # which names do not change
    with pytest.raises(DataError, match=only):
        mb.data.load(tmp_path / "a")
    x, y = np.zeros((4, 3, 2, 2), np.uint8), np.stack([binary] * 4)
    np.savez(tmp_path / "b.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.raises(DataError, match=only):
        mb.data.load(tmp_path / "b.npz")
    with pytest.raises(DataError, match=only):
        mb.fit(nn.Conv2d(3, 2, 1), (x, y), budget="1 KB")
    with pytest.raises(DataError, match="masks hold only 3: segmentation takes two classes or more"):
        check_masks("x", np.full((1, 2, 2), 3))


def test_a_class_without_a_training_pixel_is_noted(tmp_path, capsys):
    for number in range(5):
        write_pair(tmp_path / "roads", f"{number}", np.eye(4))
    (tmp_path / "roads" / "classes.txt").write_text("ground\nroad\nsign\n")
    wanted = "no training pixel is of class sign (2): check the numbers in the masks"
    assert wanted in mb.data.load(tmp_path / "roads").notes
    with pytest.raises(SystemExit):
        main(["data", str(tmp_path / "roads")])
    said = capsys.readouterr()
    assert f"note: {wanted}" in said.out
    assert "training pixels" in said.out
    assert "--size gives another: smaller ones train faster, and HEIGHTxWIDTH keeps all" in said.err
    net = nn.Conv2d(3, 3, 1)
    told = mb.fit(net, mb.data.load(tmp_path / "roads"), budget="1 KB", steps=1, dense=False, progress=False)
    assert wanted in told.facts["tried"]


def test_masks_that_leave_out_most_numbers_are_refused_until_classes_are_listed(tmp_path, capsys):
    for number in range(5):
        write_pair(tmp_path / "odd", f"{number}", np.diag([0, 1, 2, 200]))
    wanted = (
        "odd: mask values are 0, 1, 2 and 200, so there would be 201 classes, 197 of them without a pixel: renumber "
        "them, or list all classes in classes.txt to confirm"
    )
    x, y = np.uint8(np.arange(240).reshape(5, 3, 4, 4)), np.stack([np.diag(np.uint8([0, 1, 2, 200]))] * 5)
    with pytest.raises(SystemExit):
        main(["data", str(tmp_path / "odd")])
    assert "3 to 199" in capsys.readouterr().out
    with pytest.raises(DataError, match=wanted):
        mb.fit(
            lambda classes: nn.Conv2d(3, classes, 1), mb.data.load(tmp_path / "odd"), budget="9 KB", steps=1
        )
    with pytest.raises(
        DataError, match=r"200, .* give classes=\[\.\.\.\], a name for each number, to confirm"
    ):
        mb.fit(lambda classes: nn.Conv2d(3, classes, 1), (x, y), budget="9 KB", steps=1)
    (tmp_path / "odd" / "classes.txt").write_text("\n".join(map(str, range(201))))
    check_numbering(mb.data.load(tmp_path / "odd"))
    names = [f"kind {number}" for number in range(201)]
    asked = {"budget": "9 KB", "steps": 1, "dense": False, "progress": False}
    told = mb.fit(lambda classes: nn.Conv2d(3, classes, 1), (x, y), classes=names, **asked)
    assert told.model.weight.shape[0] == 201


def test_masks_of_arrays_have_the_size_of_their_images():
    images, masks = torch.rand(6, 3, 8, 8), torch.zeros(6, 4, 4, dtype=torch.long)
    with pytest.raises(MemboundError, match="masks are 4 x 4 and images 8 x 8"):
        mb.fit(nn.Conv2d(3, 2, 1), (images, masks), budget="1 KB", steps=1)


def test_masks_are_not_augmented(tmp_path):
    for number in range(6):
        write_pair(tmp_path, f"{number}", np.eye(4))
    net = nn.Conv2d(3, 2, 1)
    with pytest.raises(MemboundError, match="masks would not"):
        mb.fit(net, mb.data.load(tmp_path), budget="1 KB", augment="mirror")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_test": np.zeros((5, 3), np.float32)}, "they must be alike"),
        ({"y_train": np.full((5, 2), np.nan)}, "not finite"),
        ({"x_train": np.zeros((4, 1, 6, 6), np.uint8)}, "there must be one each"),
    ],
)
def test_targets_that_cannot_be_used(change, message, tmp_path):
    arrays = {f"x_{half}": np.zeros((5, 1, 6, 6), np.uint8) for half in ("train", "test")}
    arrays |= {f"y_{half}": np.zeros((5, 2), np.float32) for half in ("train", "test")}
    np.savez(tmp_path / "n.npz", **(arrays | change))
    with pytest.raises(DataError, match=message):
        mb.data.load(tmp_path / "n.npz")


# Loaders


class Stream(torch_data.IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        random = np.random.default_rng(0)
        for number in range(self.count):
            yield (random.normal(size=12) + 3 * (number % 2)).astype(np.float32), number % 2


def pad(items):
    """A collate function: items of any length become rows of 12."""
    x = torch.zeros(len(items), 12)
    for row, (values, _) in zip(x, items, strict=True):
        row[: len(values)] = torch.as_tensor(values)
    return x, torch.tensor([label for _, label in items])


@pytest.mark.parametrize("kind", ["dataset", "loader", "collated"])
def test_iterables_are_read_once_and_trained_on(kind):
    data = Stream(60)
    if kind == "loader":
        data = torch_data.DataLoader(data, batch_size=7)
    elif kind == "collated":
        ragged = [(values[: 8 + number % 4], label) for number, (values, label) in enumerate(Stream(60))]
        data = torch_data.DataLoader(ragged, batch_size=7, collate_fn=pad, shuffle=True)
    split = as_split(data)
    assert (len(split), tuple(split.shape)) == (60, (12,))
    net = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))
    fitted = mb.fit(net, data, budget="60%", steps=60, lr=0.05, dense=False, device="cpu", progress=False)
    assert fitted.accuracy > 80


def test_a_stream_without_an_end_is_refused():
    from membound.train.iterables import read_all

    with pytest.raises(DataError, match="has not ended after"):
        read_all(Stream(10**9), most=10_000)
    with pytest.raises(DataError, match="no examples"):
        as_split(Stream(0))
