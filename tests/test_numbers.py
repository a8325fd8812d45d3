"""Every number in a document that looks measured is in a result: one that its row or paragraph names, if it names any.

That results are in the documents is what test_docs.py checks; this is the other way round. Pages that are made of
results as a whole (BENCHMARKS, REPRODUCTION) are compared there.
"""

import json
import re
from bisect import bisect_left
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = (
    "MEASURED",
    "FITTING",
    "RESEARCH",
    "TRAINING",
    "DEPLOYING",
    "INT8",
    "HOWTO",
    "APP",
    "CLUSTER",
    "TUTORIAL",
    "YOUR_OWN_MODEL",
    "GALLERY",
    "MICRO",
    "MICRO_REFERENCE",
    "MICRO_MEASURED",
    "MICRO_ARITHMETIC",
    "INSTALL",
    "LIMITS",
)
UNITS = {"KB": 1e3, "MB": 1e6, "KiB": 2.0**10, "MiB": 2.0**20}
# Three digits or more, or some behind a point, and a unit: what is shorter is rounded, or a budget.
MEASURED = re.compile(
    r"(?<![\w.,=-])(\d[\d,]*\.\d+|\d{1,3}(?:,\d{3})+|\d{3,})(?:\s±\s\d+\.\d+)?\s(%|ms|us|KB|MB|KiB|MiB|bytes)(?!\w)"
)
PEERS = ("few-bits", "quantized")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
GIVEN = {  # numbers of others, or of arithmetic, by page
    "MEASURED": {
        "87.02 %": "what MLPerf Tiny says of its network",
        "98,496 bytes": "its file",
        "74.60 %": "the paper's",
    },
    "MICRO": dict.fromkeys(("57.1 ms", "33.8 ms"), "estimated cycles at 80 MHz, which test_docs.py checks"),
    "MICRO_MEASURED": {"87.0 %": "what MLPerf Tiny says of its network"},
}


def numbers(value: object) -> set[float]:
    """All numbers in a result, those in texts included."""
    if isinstance(value, str):
        found = re.findall(r"\d[\d,]*(?:\.\d+)?", value)
        return {float(each.replace(",", "")) for each in found}
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return set().union(*map(numbers, value))
    return {float(value)} if isinstance(value, int | float) else set()


@cache
def known(names: tuple[str, ...]) -> list[float]:
    """The numbers of some results, of all for no name, in order."""
    paths = [ROOT / "results" / name for name in names] or sorted((ROOT / "results").rglob("*.json"))
    return sorted(set().union(*(numbers(json.loads(path.read_text())) for path in paths)))


def is_known(text: str, unit: str, names: tuple[str, ...]) -> bool:
    """Whether a number that rounds to this text is there; of a percentage also as a fraction, or its rest to 100."""
    number, half = float(text.replace(",", "")), 0.5 * 10.0 ** -len(text.partition(".")[2])
    ways = [((number - half) * UNITS.get(unit, 1.0), (number + half) * UNITS.get(unit, 1.0))]
    if unit == "%":
        ways += [((number - half) / 100, (number + half) / 100), (100 - number - half, 100 - number + half)]
    there = known(names)
    return any(
        (at := bisect_left(there, low - 1e-9)) < len(there) and there[at] <= high + 1e-9 for low, high in ways
    )


def pieces(page: str) -> list[str]:
    """Rows of tables, and paragraphs."""
    parts = CODE.sub("", page).split("\n\n")
    return [piece for part in parts for piece in (part.splitlines() if part.startswith("|") else [part])]


@pytest.mark.parametrize("name", ["README", *PAGES])
def test_every_number_of_a_document_was_measured(name):
    path = ROOT / "README.md" if name == "README" else ROOT / "docs" / f"{name}.md"
    missing = []
    for piece in pieces(path.read_text()):
        named = set(re.findall(r"results/([\w/-]+\.json)", piece))
        # Each of the two is shown beside the other.
        peers = {each.replace(*two) for each in named for two in (PEERS, PEERS[::-1])}
        named |= {each for each in peers if (ROOT / "results" / each).exists()}
        for text, unit in MEASURED.findall(piece):
            said = f"{text} {unit}"
            if said not in GIVEN.get(name, ()) and not is_known(text, unit, tuple(sorted(named))):
                missing.append((said, named))
    assert missing == []


def test_a_number_that_was_not_measured_is_found():
    assert is_known("99.17", "%", ("few-bits-lenet.json",))
    assert not is_known("99.18", "%", ("few-bits-lenet.json",))
    assert not is_known("34.987", "ms", ())
