"""What people pass to fit by mistake, answered in one line before anything is trained."""

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from small import Small, digits
from torch import nn

import membound as mb
from membound.errors import DataError, MemboundError, ModelError, TrainingError
from membound.search.left_alone import note_left_alone
from membound.search.place import Watch
from membound.search.problem import Target
from membound.search.request import Choices, Examples
from membound.search.setup import make_problem
from membound.search.targets import note_outputs
from membound.train.user_data import as_split

IMAGES, LABELS = digits(0, 40).images, digits(0, 40).labels


class NeedsClasses(Small):
    def __init__(self, classes: int, channels: int, width: float = 1.0) -> None:
        super().__init__()
        self.fc2 = torch.nn.Linear(32, classes + channels - 1)


class NeedsDepth(Small):
    def __init__(self, classes: int, depth: int) -> None:
        super().__init__()


def test_one_hot_targets_are_not_taken_for_numbers():
    rows = np.eye(10, dtype=np.float32)[LABELS]
    with pytest.raises(DataError, match=r"targets \[40, 10\] are one-hot: for classes, give their numbers"):
        mb.fit(Small, (IMAGES, rows), "4 KB", steps=2)


@pytest.mark.parametrize("change", [lambda rows: rows * 0.5, lambda rows: 1 - rows, lambda rows: rows[:, :1]])
def test_other_rows_of_numbers_are(change):
    rows = change(np.eye(10, dtype=np.float32)[LABELS])
    said = []

    class Numbers(Small):
        def forward(self, x):
            return super().forward(x)[:, : rows.shape[1]]

    watch = Watch(note=said.append)
    fitted = mb.fit(Numbers, (IMAGES, rows), "4 KB", steps=2, batch_size=8, device="cpu", watch=watch)
    assert fitted.facts["score_name"] == "R²"
    assert any("to test, to predict numbers" in text or "to predict numbers;" in text for text in said)


def test_inputs_and_targets_that_are_exchanged_are_told():
    with pytest.raises(
        DataError, match=r"x is int64 \[40\] and y is uint8 \[40, 1, 28, 28\]: .* exchanged\?"
    ):
        as_split((LABELS, IMAGES))


def test_test_data_that_is_the_training_data_is_said():
    for test, said in (
        ((IMAGES, LABELS), 1),
        ((IMAGES, LABELS[::-1].copy()), 0),
        ((IMAGES[:20], LABELS[:20]), 0),
    ):
        warned = []
        examples = Examples(train_data=(IMAGES, LABELS), test_data=test)
        make_problem(Small, examples, Choices(), Target("file"), warn=warned.append)
        assert len([text for text in warned if "the test data is the training data" in text]) == said


def test_what_holds_of_every_seed_is_said_once():
    warned, noted = [], []
    watch = Watch(warn=warned.append, note=noted.append)
    how = {"budget": "4 KB", "values": "f16", "steps": 1, "batch_size": 8, "device": "cpu", "dense": False}
    same = IMAGES, LABELS
    mb.fit(Small, same, val_data=same, test_data=same, seeds=2, watch=watch, **how)
    assert [text.split(":")[0] for text in warned] == ["the test and validation data are the training data"]
    assert len(noted) == len(set(noted))


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (
            IMAGES.astype(np.float32),
            ["the images are floats from 0 to 255, which look like pixels from 0 to 255"],
        ),
        (IMAGES.astype(np.float32) / 255, []),
        (IMAGES.astype(np.float32) - 128, []),
        (IMAGES.astype(np.float32) * 30, []),
        (IMAGES, []),
    ],
)
def test_floats_that_look_like_pixels_are_told(images, said):
    warned = []
    make_problem(Small, Examples(train_data=(images, LABELS)), Choices(), Target("file"), warn=warned.append)
    assert [text.partition(" that are")[0] for text in warned] == said
    assert all("give them as uint8" in text and "pixels=mb.data.Preprocess(...)" in text for text in warned)


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (
            lambda outputs, targets: {}["f1"],
            r"^the score failed with KeyError: 'f1' \(outputs: float32 \[40, 10\]",
        ),
        (
            lambda outputs: 1.0,
            "^the score failed with TypeError: .* takes 1 positional argument but 2 were given",
        ),
        (
            lambda outputs, targets: outputs.argmax(1) == targets,
            r"^the score gives bool \[40\] for a batch: .* mean",
        ),
        (lambda outputs, targets: None, "^the score gives None"),
    ],
)
def test_a_score_that_does_not_work_is_refused_before_training(score, said):
    trained = []
    watch = Watch(show=lambda job, progress: trained.append(job))
    with pytest.raises(TrainingError, match=said):
        mb.fit(Small, (IMAGES, LABELS), "4 KB", test_data=(IMAGES, LABELS), score=score, steps=2, watch=watch)
    assert trained == []


def test_a_class_that_needs_arguments_is_named_with_them():
    with pytest.raises(MemboundError, match=r"made by NeedsDepth, which needs depth: .* NeedsDepth\(depth="):
        mb.fit(NeedsDepth, (IMAGES, LABELS), "4 KB", steps=2)


@pytest.mark.parametrize(
    ("make", "y", "test", "names", "outputs"),
    [
        (NeedsClasses, LABELS % 3, None, None, 3),
        (NeedsClasses, LABELS % 3, LABELS % 7, None, 7),
        (NeedsClasses, LABELS % 3, None, list("abcde"), 5),
        (NeedsClasses, (LABELS[:, None] * np.ones(4)).astype(np.float32), None, None, 4),
        (partial(NeedsClasses, classes=12), LABELS % 3, None, None, 12),
        (Small, LABELS % 3, None, None, 10),
    ],
)
def test_a_function_is_told_the_classes_as_on_the_command_line(make, y, test, names, outputs):
    tests = None if test is None else (IMAGES, test)
    examples = Examples(train_data=(IMAGES, y), test_data=tests, classes=names)
    problem = make_problem(make, examples, Choices(), Target("file"))
    assert problem.make(0).fc2.out_features == outputs
    pickle.loads(pickle.dumps(problem.make))  # as workers get it


def test_a_dict_of_one_input_is_a_pair():
    split = as_split({"images": IMAGES, "labels": LABELS})
    assert split.shape == (1, 28, 28)
    np.testing.assert_array_equal(split.read([3]), IMAGES[3:4])
    assert as_split({"ids": IMAGES, "labels": LABELS}).shape != split.shape  # by its name, to the network


@pytest.mark.parametrize(
    ("name", "said"),
    [("net.onnx", "is an ONNX model, not a model file: make one with the command membound export"),
     ("net.tflite", "is a TensorFlow Lite model, which membound does not read"),
     ("net.pth", "is a torch checkpoint, not a model file")],
)  # fmt: skip
def test_files_of_others_are_told_apart(tmp_path, name, said):
    (tmp_path / name).write_bytes(b"\x08\x07\x12" * 50)
    with pytest.raises(ModelError, match=said):
        mb.load(tmp_path / name)


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MemboundError, match="file is a file, not a folder"):
        mb.save(Small(), tmp_path / "file" / "net.safetensors", np.zeros((1, 1, 28, 28), np.float32))


@pytest.mark.parametrize(("given", "kind"), [([], "list"), ({}, "dict"), ((), "tuple")])
def test_a_report_of_nothing_says_that_it_is_empty(tmp_path, given, kind):
    says = f"^there is no network to report on, the {kind} is empty: give a Fitted, a list of them, or a dict such as"
    with pytest.raises(MemboundError, match=says):
        mb.write_report(given, tmp_path / "r.html")
    with pytest.raises(MemboundError, match=r"not of int: give a Fitted, a list of them, or a dict"):
        mb.write_report({"a": 1}, tmp_path / "r.html")


def test_a_missing_folder_is_said_alike_by_all_that_write(tmp_path):
    file = tmp_path / "net.safetensors"
    mb.save(torch.nn.Linear(4, 2), file, torch.zeros(1, 4))
    where = tmp_path / "missing" / "deeper"
    fitted = mb.fit(Small, (IMAGES, LABELS), "6 KiB", steps=2, batch_size=8, dense=False, progress=False)
    for write in (
        lambda: mb.save(torch.nn.Linear(4, 2), where / "net.safetensors", torch.zeros(1, 4)),
        lambda: fitted.save(where / "net.safetensors"),
        lambda: fitted.report(where / "page.html"),
        lambda: mb.export_cpp(file, where / "app"),
        lambda: mb.export_cpp_file(file, where / "net.h"),
    ):
        with pytest.raises(
            MemboundError, match=f": there is no folder {where}: create it with mkdir -p {where}$"
        ):
            write()
    assert not (tmp_path / "missing").exists()


def test_outputs_that_no_class_has_are_noted_first_and_at_the_end():
    few = (IMAGES, LABELS % 4)
    said = []
    keywords = {
        "steps": 2,
        "batch_size": 8,
        "device": "cpu",
        "dense": False,
        "watch": Watch(note=said.append),
    }
    note = "the network has 10 outputs, and the data 4 classes: outputs 4 to 9 have no examples"
    fitted = mb.fit(Small, few, "4 KB", **keywords)
    assert [text for text in (*said, *fitted.facts["tried"]) if "outputs" in text] == [
        f"{note}; give your function a parameter `classes`"
    ] * 2

    def noted(model, data, **more):
        examples = Examples(train_data=data, **more)
        return note_outputs(make_problem(model, examples, Choices(steps=2), Target(), hold_out=False))

    assert noted(Small(), few) == [note], "there is no function"
    assert noted(NeedsClasses, few) == [], "it is told its number"
    assert noted(Small, few, classes=tuple("abcdefghij")) == [], "as many as the data names"
    gaps = LABELS % 4 * 2
    assert noted(Small, (IMAGES, gaps)) == [], "that no example has a class is said already"


@pytest.mark.parametrize(
    ("layers", "noted"), [(("*",), True), (("*", "position"), False), (("head",), False)]
)
def test_large_parameters_outside_of_layers_are_noted(layers, noted):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.position, self.head = nn.Parameter(torch.zeros(8, 9)), nn.Linear(9, 2)

        def forward(self, x):
            return self.head((x[:, None] + self.position).mean(1))

    choices = Choices(layers=layers)
    data = Examples(train_data=(np.eye(9, dtype=np.float32), np.arange(9) % 2))
    notes = note_left_alone(make_problem(Own(), data, choices, Target("file", "f16")), choices)
    said = "72 of 92 parameters are in 'position', outside of torch's layers, and stay dense: "
    assert (len(notes) == 1 and notes[0].startswith(said)) if noted else not notes
