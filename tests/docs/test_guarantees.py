"""Each guarantee names a mutant that breaks it, and a test that it names fails on that mutant (tests/mutation)."""

from __future__ import annotations

import re

import pytest

from tests.mutation.lists.guarantees import GUARANTEES
from tests.mutation.results import read
from tests.support.pages import ROOT

#: Guarantees about all other guarantees; they have no mutant.
WITHOUT = {"The effects of each failure are documented, row by row"}
PAGE = (ROOT / "docs" / "GUARANTEES.md").read_text()
PROMISED = PAGE.partition("## The guarantees")[2].partition("## The limits")[0]
SECTIONS = {part.partition("\n")[0]: part for part in PROMISED.split("\n### ")[1:]}


def test_every_guarantee_has_a_mutant() -> None:
    assert SECTIONS.keys() - WITHOUT == GUARANTEES.keys()


@pytest.mark.parametrize("heading", GUARANTEES)
def test_a_test_that_the_guarantee_names_goes_red(heading: str) -> None:
    section, mutant = SECTIONS[heading], GUARANTEES[heading]
    assert re.findall(r"^\*Goes red with\*: `([^`]+)`\.$", section, re.MULTILINE) == [mutant.name]
    killer = read("guarantees")[mutant.name].killer.partition("[")[0]
    named = re.findall(r"`(tests/[^`]+)`", section)
    assert any(killer == test or killer.startswith((f"{test}::", test if test.endswith("/") else "-")) for test in named)
