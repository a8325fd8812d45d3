"""A fit's keywords, its records and its options on the command line are the same words for the same things."""

import inspect
import pickle
from dataclasses import FrozenInstanceError, fields
from typing import get_overloads, get_type_hints

import pytest
import typer

from membound.cli import app
from membound.data import Augment, Preprocess
from membound.errors import MemboundError
from membound.search import bounds, place, request
from membound.search import fit as module
from membound.search.bounds import Bound
from membound.search.jobs import Job
from membound.search.option import options_of
from membound.search.place import Place
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
    assert EXPLICIT | {"model", "more"} == set(inspect.signature(module.fit).parameters)


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
