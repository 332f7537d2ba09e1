"""Every row of docs/FAILURES.md is complete and names the test that checks it. Its times are the settings' defaults."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ledger.config.config import Config
from tests.support.pages import ROOT, missing_tests

TEXT = (ROOT / "docs" / "FAILURES.md").read_text()
COLUMNS = ["what dies", "what else stops", "what restarts", "from where", "how long", "held by"]
#: Everything that can fail: the first words of each row.
WANTED = (
    "the process of a job", "a job that is in a region", "the supervisor", "the agent", "the projector that leads",
    "a projector that stands by", "the reconciler (Spark's driver)", "a process of Spark's executor", "`up`", "the broker",
    "all of the ledger at once", "the host", "one ZooKeeper server of three", "the quorum of ZooKeeper", "S3",
)  # fmt: skip


def rows(text: str) -> list[list[str]]:
    """The cells of each row of each table, without the header and the rule below it."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row != COLUMNS and set(row[0]) != {"-"} and row[0] != "---"]


def problems(row: list[str]) -> list[str]:
    if len(row) != len(COLUMNS):
        return [f"{row[0]}: {len(row)} cells"]
    found = [f"{row[0]}: {COLUMNS[i]} is empty" for i in (0, 1, 2, 5) if not row[i]]
    tests = re.findall(r"`(tests/[^`]+::[^`]+)`", row[5])
    return found + ([] if tests else [f"{row[0]}: no test"]) + missing_tests(row[5])


def defaults(text: str) -> list[tuple[str, float, Any]]:
    """(name, default on the page, default in the code) for each setting that the page names with its default."""
    config = Config()
    found = re.findall(r"`([a-z]+)\.([a-z_]+)` \((\d+(?:\.\d+)?)\)", text)
    return [(f"{s}.{k}", float(said), getattr(getattr(config, s), k)) for s, k, said in found]


def test_everything_that_can_die_has_a_row() -> None:
    named = [row[0] for row in rows(TEXT)]
    assert [name for name in WANTED if not any(row.startswith(name) for row in named)] == []


@pytest.mark.parametrize("row", rows(TEXT), ids=lambda row: row[0])
def test_a_row_is_whole_and_its_tests_exist(row: list[str]) -> None:
    assert problems(row) == []


def test_what_is_said_of_settings_is_so() -> None:
    found = defaults(TEXT)
    assert len({name for name, _, _ in found}) >= 3
    assert [one for one in found if one[1] != one[2]] == []


def test_a_row_without_a_test_is_found() -> None:
    assert problems(["x", "a", "b", "", "", "a belief"]) == ["x: no test"]
    gone = "tests/docs/test_failures.py::test_nothing"
    assert problems(["x", "a", "b", "", "", f"`{gone}`"]) == [gone]
    assert problems(["x", "a"]) == ["x: 2 cells"]
    assert defaults("`leadership.session_timeout_s` (11)") == [("leadership.session_timeout_s", 11.0, 10.0)]
