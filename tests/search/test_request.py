"""A fit's keywords, its records and its options on the command line are the same words for the same things."""

import inspect
import pickle
from dataclasses import FrozenInstanceError, fields
from typing import get_overloads, get_type_hints

import numpy as np
import pytest
import typer
from torch import nn

import membound as mb
from membound.cli import app
from membound.data import Augment, Preprocess
from membound.errors import MemboundError
from membound.search import bounds, place, request
from membound.search import fit as module
from membound.search.bounds import Bound
from membound.search.jobs import Job
from membound.search.option import options_of
from membound.search.place import Place, Watch
from membound.search.request import Choices, Examples, Keywords, split_keywords
from membound.search.stages import Stages
from membound.search.workshop import Workers

RECORDS = (Bound, Choices, Place, Examples)
EXPLICIT = {"train_data", "budget", "ram", "nonzeros"}  # in the signature itself


def test_keywords_are_the_fields_of_the_records_with_their_types(monkeypatch):
    for each in (Stages, Augment, Preprocess, Job):  # which the module names to type checkers alone
        for named in (request, place, bounds):
            monkeypatch.setattr(named, each.__name__, each, raising=False)
            monkeypatch.setattr(named, "Workers", Workers, raising=False)
    declared = {name: hint for record in RECORDS for name, hint in get_type_hints(record).items()}
    assert len(declared) == sum(len(fields(record)) for record in RECORDS), "a name stands for one thing"
    keywords = get_type_hints(Keywords)
    assert keywords == {name: hint for name, hint in declared.items() if name not in EXPLICIT}
    shown = inspect.signature(module.fit).parameters
    defaults = {each.name: each.default for record in RECORDS for each in fields(record)}
    assert {name: each.default for name, each in shown.items() if name in keywords} == {
        name: defaults[name] for name in keywords
    }, "help(mb.fit) shows each with its default"
    assert set(shown) == EXPLICIT | {"model"} | set(keywords)


def test_fit_is_typed_for_one_budget_and_for_several():
    returned = [get_type_hints(each)["return"] for each in get_overloads(module.fit)]
    assert returned == [module.Fitted] + [list[module.Fitted]] * 3
    source = inspect.getsource(module)
    signature = source[source.index("@overload") : source.index('"""The most accurate network')]
    assert signature.count("\n") <= 40, "it fits a screen"


def test_the_command_line_has_an_option_for_every_field_that_offers_one():
    command = typer.main.get_command(app).commands["fit"]
    there = {parameter.name: parameter for parameter in command.params}
    for record in RECORDS:
        for name, option in options_of(record).items():
            assert there[name].opts == [f"--{option.word or name.replace('_', '-')}"]
            assert there[name].help == option.help
            assert " --" not in option.help, "the library does not know the command line"


def test_records_do_not_change_and_travel():
    bound, choices, place, examples = split_keywords({"train_data": 1, "ram": ["5 KiB"], "layers": "fc*"})
    assert (bound.name, bound.kind, bound.amounts, bound.is_list) == ("ram", "ram", ("5 KiB",), True)
    assert choices.layers == ("fc*",)
    assert examples.train_data == 1
    with pytest.raises(FrozenInstanceError):
        place.device = "cpu"
    assert pickle.loads(pickle.dumps(choices)) == choices


def test_an_error_keeps_what_it_is_about_when_it_travels():
    error = pickle.loads(pickle.dumps(MemboundError("steps=0", about="steps")))
    assert (str(error), error.about) == ("steps=0", ("steps",))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"classes": "ab"}, "classes='ab': a list of different names is needed"),
        ({"classes": 5}, "classes=5: a list of different names"),
        ({"classes": [1, 2]}, r"classes=\[1, 2\]: a list of different names"),
        ({"classes": ["a", "a"]}, "a list of different names"),
        ({"classes": {"a", "b"}}, "a list of different names"),
        ({"classes": []}, "a list of different names"),
        ({"dense": "no"}, "dense='no': True or False is needed"),
        ({"depthwise": 1}, "depthwise=1: True or False is needed"),
        ({"pretrained": "yes"}, "pretrained='yes': True or False"),
        ({"progress": "no"}, "progress='no': True or False"),
        ({"tensorboard": "yes", "run_dir": "r"}, "tensorboard='yes': True or False"),
        (
            {"validation": 2.0},
            "validation=2.0: a fraction between 0 and 1, or a whole number from 1, is needed",
        ),
        ({"validation": 0}, "validation=0: a fraction"),
        ({"validation": True}, "validation=True: a fraction"),
        ({"validation": "some"}, "validation='some': a fraction"),
        ({"lr": 0}, "lr=0: a finite number above 0 is needed"),
        ({"lr": float("nan")}, "lr=nan: a finite number above 0"),
        ({"weight_decay": -1}, "weight_decay=-1: a finite number of at least 0 is needed"),
        ({"temperature": 0}, "temperature=0: a finite number above 0"),
        ({"teacher_part": 2}, "teacher_part=2: a number from 0 to 1 is needed"),
        ({"seed": 2**32}, "seed=4294967296: a whole number from 0 to 4,294,967,295 is needed"),
        ({"seeds": 101}, "seeds=101: a whole number from 1 to 100 is needed"),
        ({"layers": []}, r"layers=\[\]: a list of patterns of layer names is needed, such as"),
        ({"workers": 5}, r"workers=5: give mb\.ray_cluster"),
        ({"watch": 5}, "watch=5: give a membound"),
        ({"stages": 5, "budget": None}, "stages=5: a path is needed"),
        ({"train_data": 5}, "data of type int is not understood"),
        ({"preprocess": 5}, r"preprocess=5: give mb\.data\.Preprocess"),
        ({"device": 5}, "there is no device '5'"),
        (
            {"classes": ["a"]},
            "classes has 1 names, and labels go from 0 to 1: give each class its name, 2 of them",
        ),
    ],
)
def test_what_an_argument_cannot_be_is_said_in_one_line_before_anything_is_trained(given, says):
    data = (np.zeros((8, 4), np.float32), [0, 1] * 4)
    trained = []
    how = {"budget": "70%", "steps": 2, "batch_size": 4, "device": "cpu", "test_data": data} | given
    with pytest.raises(MemboundError, match=says) as refused:
        mb.fit(nn.Linear(4, 2), how.pop("train_data", data), **({"watch": Watch(done=trained.append)} | how))
    assert "\n" not in str(refused.value)
    assert not trained
