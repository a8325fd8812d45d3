"""Warnings of the library as notes: a person at a terminal has no use for the line of source that gave them."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
IN_WORDS = {  # what a Python caller does, and what somebody does who has a file
    "if these numbers are not prepared yet, give net.preprocess(x)": "give numbers on the scale of the training data",
}


@contextmanager
def as_notes() -> Iterator[None]:
    """Within it, a UserWarning from membound is a line on stderr, said once; others stay as they are."""
    shown, said = warnings.showwarning, set()

    def show(message: Any, category: type[Warning], filename: str, *rest: Any, **more: Any) -> None:
        if category is not UserWarning or PACKAGE not in Path(filename).parents:
            shown(message, category, filename, *rest, **more)
            return
        text = str(message)
        for python, command in IN_WORDS.items():
            text = text.replace(python, command)
        if text not in said:
            said.add(text)
            sys.stderr.write(f"note: {text}\n")

    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning, module=r"membound\b")
        warnings.showwarning = show
        yield
