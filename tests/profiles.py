"""What `make test` runs of tests with many examples or cases: few of them; `make test-full` runs all."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

FEW = 10


def examples(count: int, few: int = FEW, **options) -> settings:
    """Settings for a property test: `count` examples in `make test-full`, at most `few` in `make test`.

    A plain `settings(max_examples=...)` would overrule the profile that conftest.py loads.
    """
    return settings(max_examples=count if settings.default.max_examples > FEW else min(count, few), **options)


def full(*values: object, id: str | None = None):
    """A case of `parametrize` that is left to `make test-full`."""
    return pytest.param(*values, marks=pytest.mark.full, id=id)


def chiefly(chosen: Iterable[object], cases: Iterable[object]) -> list:
    """All cases for `parametrize`, of which `make test` runs the chosen ones."""
    chosen, cases = list(chosen), list(cases)
    assert all(case in cases for case in chosen), f"{chosen} are not all among {cases}"
    return [case if case in chosen else full(case) for case in cases]


def at_once(names: str, cases: Iterable[object]):
    """As `parametrize`, for cases that take less than to set up a test: one test runs all, and names those that fail.

    Fixtures are the same for all cases.
    """
    given = [name.strip() for name in names.split(",")]
    rows = [
        case if isinstance(case, ParameterSet) else pytest.param(*(case if given[1:] else [case]))
        for case in cases
    ]
    assert rows, "no cases"
    assert not any(case.marks for case in rows), "cases with marks are for parametrize"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(**fixtures: object) -> None:
            failed: list[BaseException] = []
            for values, _, label in rows:
                try:
                    test(**dict(zip(given, values, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception, BaseExceptionGroup) as error:
                    error.add_note(f"with {label or ', '.join(map(repr, values))}")
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(rows)} cases", failed)

        asked = inspect.signature(test).parameters
        run.__signature__ = inspect.Signature([asked[name] for name in asked if name not in given])
        return run

    return decorate
