"""What `make test` runs of tests with many examples or cases: few of them; `make test-full` runs all."""

from collections.abc import Iterable

import pytest
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
