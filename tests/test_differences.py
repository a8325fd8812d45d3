"""What documents say of one accuracy against another: ± is the 95 % interval, and words follow the rule."""

import re
from pathlib import Path

import pytest
from paired_results import comparisons

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MADE = ("BENCHMARKS", "REPRODUCTION", "API")  # of results or of docstrings, by tools
SIGNED = re.compile(r"(?:[+−]|\bby )(\d+\.(\d+)\s±\s\d+\.\d+)(?!\d)")


def said(page: str) -> set[str]:
    """Differences with their uncertainty: a sign, or 'by', is before them."""
    return {re.sub(r"\s", " ", match[0].removeprefix("by ")) for match in SIGNED.finditer(page)}


def known() -> set[str]:
    """As documents may write them, with as many places as fit."""
    shown = set()
    for found in comparisons().values():
        sign = "+" if found.difference >= 0 else "−"
        for places in (2, 3, 4):
            both = f"{abs(found.difference):.{places}f} ± {found.uncertainty:.{places}f}"
            shown |= {f"{sign}{both}"} | ({both} if found.verdict != "within the spread" else set())
    return shown


@pytest.mark.parametrize(
    "path", [page for page in PAGES if page.stem not in MADE], ids=lambda page: page.stem
)
def test_a_difference_comes_with_its_95_percent_interval(path):
    assert said(path.read_text()) <= known()


def test_other_differences_are_found():
    assert said("+0.65 ± 0.29 seed by seed, better by 0.79 ± 0.22") == {"+0.65 ± 0.29", "0.79 ± 0.22"}
    assert "+0.65 ± 0.29" not in known()  # a standard deviation
    assert "+0.65 ± 0.72" in known()
    assert "0.65 ± 0.72" not in known()  # 'by' is for what is more than the spread
    assert "0.79 ± 0.22" in known()


def test_the_defaults_that_were_measured_are_called_what_the_rule_says():
    page = " ".join((ROOT / "docs" / "MEASURED.md").read_text().split())
    cases = ("resnet8-fashion28", "resnet8-imagenette32", "mobilenet-imagenette160")
    found = {
        name: each
        for name, each in comparisons().items()
        if name.startswith("recipes-test, ('") and any(case in name for case in cases)
    }
    assert len(found) == 4  # MobileNet for two lengths of training
    for each in found.values():
        sign = "+" if each.difference >= 0 else "−"
        assert f"{sign}{abs(each.difference):.2f} ± {each.uncertainty:.2f}, within the spread |" in page
    assert {each.verdict for each in found.values()} == {"within the spread"}
