"""The glossary matches the code: its states, outcomes and topics exist, and each word of the vocabulary is explained."""

from __future__ import annotations

import re

import pytest

from ledger.config.settings import TopicsSection
from ledger.core.model.recovery import RECOVERY_SET, TERMINAL, JobState
from ledger.core.model.registers import OUTCOMES
from tests.support.pages import ROOT, Command, problems_of

TEXT = (ROOT / "docs" / "GLOSSARY.md").read_text()
SECTIONS = dict(section.split("\n", 1) for section in TEXT.split("\n## ")[1:])
#: The agreed vocabulary of the project: one word, one meaning.
VOCABULARY = """
    event register fold projection entry epoch attempt checkpoint savepoint tombstone retire observed plan action reconcile
    runner role leader lease quarantine supersede archive replay as-of fact diff decide admit step run claim fence settle
    base agent supervisor spec intent result reject graph pass flow job publish region cut
"""


def words(section: str) -> list[str]:
    return re.findall(r"^- \*\*(.+?)\*\*: ", section, re.MULTILINE)


def listed(section: str) -> list[str]:
    """The code spans at the beginning of a section's list items."""
    return re.findall(r"^- `(.+?)`: ", section, re.MULTILINE)


def test_the_vocabulary_is_explained() -> None:
    explained = set(words(SECTIONS["Words"]))
    wanted = {"recovery set", "restore point", *VOCABULARY.split()}
    assert sorted(wanted - explained) == []


def test_words_stand_in_order_and_once() -> None:
    found = [word.lower() for word in words(SECTIONS["Words"])]
    assert found == sorted(set(found))
    lines = [line for line in SECTIONS["Words"].splitlines() if line.startswith("- ")]
    assert len(lines) == len(found), "every line explains one word"


def test_states_are_those_of_the_fold() -> None:
    in_set, waiting, over = re.findall(r"(?:^(?:- |  ).+\n)+", SECTIONS["States of a job"], re.MULTILINE)
    assert set(listed(in_set)) == RECOVERY_SET
    assert set(listed(over)) == TERMINAL
    assert set(listed(waiting)) == set(JobState) - RECOVERY_SET - TERMINAL - {JobState.UNKNOWN}


def test_ends_are_those_of_the_core_from_weakest_to_strongest() -> None:
    assert tuple(listed(SECTIONS["Ends of an attempt"])) == OUTCOMES


def test_topics_are_those_of_the_settings() -> None:
    topics = TopicsSection()
    assert listed(SECTIONS["Topics"]) == [topics.events, topics.recovery, topics.rejects, topics.anchors]


@pytest.mark.parametrize("code", sorted(set(re.findall(r"`([^`]+)`", TEXT))))
def test_what_stands_in_code_exists(code: str) -> None:
    if code.startswith("jobledger "):
        assert problems_of(Command(code, False)) == []
    elif "/" in code and not code.startswith("~"):
        assert (ROOT / code).exists()
    else:
        sources = (path.read_text() for path in (ROOT / "ledger").rglob("*.py"))
        assert any(re.search(rf"(?<![\w.-]){re.escape(code)}(?![\w-])", source) for source in sources), code
