"""How many random examples a property test tries: few in `make test`, as many as it asks for in `make test-full`."""

from hypothesis import settings

FEW = 20


def examples(count: int, **options) -> settings:
    """Settings for a property test: `count` examples in `make test-full`, at most twenty in `make test`.

    A plain `settings(max_examples=...)` would overrule the profile that conftest.py loads.
    """
    return settings(max_examples=count if settings.default.max_examples > FEW else min(count, FEW), **options)
