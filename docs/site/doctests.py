"""Examples in docstrings are shown as code: Markdown would take their `>>>` for quotations."""

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"(?:^ *>>> .*\n?)(?:^.+\n?)*", re.MULTILINE)  # up to the next empty line


def fence(text: str) -> str:
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)


class FencedExamples(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)
