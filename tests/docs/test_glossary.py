"""The glossary matches the code: its states, outcomes and topics exist, and each word of the vocabulary is explained."""

from __future__ import annotations

import ast
import re
from functools import cache

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

#: Words of the glossary that name no part of the code: people use them about it.
PROSE_ALONE = {"audit consumer", "budget", "projection"}
#: Words that identifiers used before, each with the word to use.
REPLACED = {
    "place": "tp, CheckpointKey, RecordPosition or offset",
    "places": "tps, partitions or positions",
    "told": "reported, described or named",
    "stray": "orphan",
    "strays": "orphans",
    "heard": "report",
    "reign": "leadership",
    "sparing": "pin guard",
    "lying": "item, present or stored",
    "foreign": "malformed",
    "wish": "request",
    "seeker": "candidate",
    "burial": "orphan processes",
    "weave": "apply replacements",
    "cleaner": "log compaction",
}


@cache
def identifiers(*folders: str) -> frozenset[str]:
    """Every module, class, function, parameter, variable and attribute in the folders, in snake_case."""
    found = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        found.add(path.stem)
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.arg(arg=name):
                    found.add(name)
                case ast.Attribute(attr=name) | ast.Name(id=name):
                    found.add(name)
    return frozenset(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_") for name in found)


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


@pytest.mark.parametrize("word", [word for word in words(SECTIONS["Words"]) if word not in PROSE_ALONE])
def test_a_word_names_a_part_of_the_code(word: str) -> None:
    stem = re.sub(r"(e|y)$", "", re.sub(r"[ -]", "_", word.lower()))
    form = re.compile(rf"(^|_){re.escape(stem)}(e|y|s|es|ies|ed|ing|ion|ions|er|al|ment)?(_|$)")
    assert any(form.search(name) for name in identifiers("ledger", "consumers"))


@pytest.mark.parametrize("word", sorted(REPLACED))
def test_no_identifier_uses_a_word_that_was_replaced(word: str) -> None:
    found = sorted(name for name in identifiers("ledger") if word in name.split("_"))
    assert found == [], f"use {REPLACED[word]}"


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
