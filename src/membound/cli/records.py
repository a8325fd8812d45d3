"""A command takes records; the command line has an option for each of their fields."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from membound.search.option import Option, options_of

Command = Callable[..., None]


def spread(*requests: type) -> Callable[[Command], Command]:
    """Make a command of a function whose parameters may be records.

    A parameter that is a dataclass becomes an option for each of its fields. The parameter `asked`, if there is one,
    becomes the options that `requests` offer, and gets those that were given, by the names of their fields.

    >>> from membound.search.request import Choices
    >>> command = spread(Choices)(lambda asked: print(asked))
    >>> command(**dict.fromkeys(options_of(Choices)) | {"steps": 100, "dense": True})
    {'steps': 100, 'dense': False}
    """

    def decorate(function: Command) -> Command:
        offered = {name: option for request in requests for name, option in options_of(request).items()}
        flips = {each.name: not each.default for request in requests for each in fields(request)}
        records: dict[str, Any] = {}
        shown: dict[str, inspect.Parameter] = {}
        for name, parameter in inspect.signature(function).parameters.items():
            if name == "asked":
                shown |= {each: _offer(each, option) for each, option in offered.items()}
            elif is_dataclass(parameter.annotation):
                records[name] = parameter.annotation
                shown |= _spread_fields(parameter.annotation)
            else:
                shown[name] = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)

        def command(**given: Any) -> None:
            if offered:
                there = {name: given.pop(name) for name in offered}
                given["asked"] = {
                    name: flips[name] if value is True else value
                    for name, value in there.items()
                    if value is not None and value is not False and value != []
                }
            for name, record in records.items():
                given[name] = record(**{each.name: given.pop(each.name) for each in fields(record)})
            function(**given)

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__signature__ = inspect.Signature(list(shown.values()))  # type: ignore[attr-defined]
        command.__annotations__ = {name: parameter.annotation for name, parameter in shown.items()}
        return command

    return decorate


def _offer(name: str, option: Option) -> inspect.Parameter:
    """What is left out is None, and a flag False: the record has the default."""
    about = typer.Option(
        f"--{option.word or name.replace('_', '-')}",
        metavar=option.metavar,
        help=option.help,
        min=option.least,
        max=option.most,
        autocompletion=_completed(option) if option.words else None,
    )
    if option.reads is bool:
        return _keyword(name, Annotated[bool, about], False)
    return _keyword(name, Annotated[option.reads | None, about], None)


def _completed(option: Option) -> Callable[[str], list[str]]:
    return lambda incomplete: [word for word in option.words if word.startswith(incomplete)]


def _spread_fields(record: Any) -> dict[str, inspect.Parameter]:
    hints = get_type_hints(record, include_extras=True)
    return {
        each.name: _keyword(
            each.name,
            hints[each.name],
            inspect.Parameter.empty if each.default is MISSING else each.default,
        )
        for each in fields(record)
    }


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
