"""The acceptance program: the choice of the next slice, the count of passed runs, and a page that matches the records."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.acceptance import program
from tests.acceptance.program import (
    FAILED,
    PARTS,
    PASSED,
    ROOT,
    SKIPPED,
    Part,
    Record,
    choose,
    done,
    judged,
    seed_of,
    slices,
)

#: The variables and helpers that let a test run more repetitions.
SIZES = re.compile(r'os\.environ\.get\("(REPETITIONS|MUTATIONS|MOMENTS|EVENTS|LEDGER_SIMULATION_SEEDS)"')
DRAWS = re.compile(r"from tests\.support\.(repetitions|archives\.lives) import[^)]*?\b(SEEDS|seeds|count|DEEP)\b")
LITTLE = Part("little", "", ("a.py",), "runs", 10, 20, 100.0)
MUCH = Part("much", "", ("b.py",), "runs", 10, 1000, 100.0)


def record(part: str, count: int, outcome: str = PASSED, s: float = 100.0) -> Record:
    return Record(part, "c0ffee", 1, count, outcome, 1, s, "2026-11-23", [])


def test_the_page_says_what_the_records_say() -> None:
    text = program.PAGE.read_text()
    assert program.with_section(text, program.section(program.read_records())) == text, (
        "the page is out of date; rewrite it: python -m tests.acceptance.program --page"
    )


def test_every_record_is_of_a_part_that_there_is() -> None:
    assert {one.part for one in program.read_records()} <= {part.name for part in PARTS}


def test_every_test_that_can_do_more_has_a_part_that_makes_it() -> None:
    named = [ROOT / node.partition("::")[0] for part in PARTS for node in part.nodes]
    deeper = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.name != Path(__file__).name and (SIZES.search(text := path.read_text()) or DRAWS.search(text))
    ]
    assert len(deeper) > 12, "the search finds the tests"
    assert [str(path.relative_to(ROOT)) for path in deeper if path not in named] == []


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_what_a_part_names_is_there(part: Part) -> None:
    for node in part.nodes:
        path, _, name = node.partition("::")
        assert (ROOT / path).exists()
        assert not name or f"def {name}(" in (ROOT / path).read_text(), "use `only` to select a case of a test"
    assert part.goal >= part.each > 0
    assert not part.episodes or part.episodes == part.each


def test_names_of_parts_are_unique() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS)


@pytest.mark.parametrize("fault", program.FAULTS)
def test_each_fault_is_to_be_met_sixty_times(fault: str) -> None:
    assert sum(part.goal * part.faults.get(fault, 0) for part in PARTS) >= program.MEETINGS


def test_a_fault_is_met_by_each_unit_of_each_of_its_parts() -> None:
    once, twice = replace(LITTLE, faults={"F1": 1}), replace(MUCH, faults={"F1": 2, "F5": 1})
    records = [record("little", 10), record("much", 20)]
    assert program.met("F1", records, [once, twice]) == 10 + 2 * 20
    assert program.met("F5", records, [once, twice]) == 20
    assert program.met("F1", [*records, record("much", 0, FAILED)], [once, twice]) == 10


# -- the next slice ----------------------------------------------------------------------------------------------------


def test_the_part_that_is_furthest_from_its_goal_is_next() -> None:
    assert choose([LITTLE, MUCH], [], 1000) is LITTLE
    assert choose([LITTLE, MUCH], [record("little", 10)], 1000) is MUCH
    assert choose([LITTLE, MUCH], [record("little", 10), record("much", 900)], 1000) is LITTLE


def test_what_has_come_to_its_goal_is_not_run_again() -> None:
    assert choose([LITTLE], [record("little", 10), record("little", 10)], 1000) is None


def test_no_slice_is_begun_that_would_end_too_late() -> None:
    assert choose([LITTLE], [], 99) is None
    assert choose([LITTLE], [record("little", 10, s=50)], 99) is LITTLE
    assert choose([LITTLE], [], 1000, {"little"}) is None


def test_a_failure_begins_the_count_anew() -> None:
    """0 failures in n runs bound the rate. Runs before a failure show nothing about the code after it."""
    assert done(LITTLE, [record("little", 10), record("much", 10)]) == 10
    assert done(LITTLE, [record("little", 10), record("little", 0, FAILED)]) == 0
    assert done(LITTLE, [record("little", 0, FAILED), record("little", 10)]) == 10
    assert done(LITTLE, [record("little", 10), record("little", 0, SKIPPED)]) == 10


def test_seeds_follow_from_the_commit_and_no_two_slices_share_one() -> None:
    assert seed_of("c0ffee00", 0) == seed_of("c0ffee00", 0) != seed_of("c0ffee01", 0)
    assert seed_of("c0ffee00", 1) - seed_of("c0ffee00", 0) >= 10_000


def test_slices_are_counted_by_the_beginning_of_the_commit() -> None:
    """A comparison of full hashes found no record of the commit, and every slice drew the first seed."""
    records = [record("little", 10), record("much", 10), record("little", 0, FAILED)]
    assert slices(LITTLE, "c0ffee" + 34 * "0", records) == 2
    assert slices(LITTLE, "badcafe" + 33 * "0", records) == 0


# -- outcomes that count -----------------------------------------------------------------------------------------------


def report(*cases: str) -> str:
    inside = "".join(f'<testcase name="t{number}">{case}</testcase>' for number, case in enumerate(cases))
    return f"<testsuites><testsuite>{inside}</testsuite></testsuites>"


def test_a_slice_counts_only_if_every_test_passed() -> None:
    assert judged(report("", "")) == (PASSED, 2, [])
    assert judged(report("", "<failure/>")) == (FAILED, 1, ["t1"])
    assert judged(report("", "<error/>")) == (FAILED, 1, ["t1"])
    assert judged(report("", "<skipped/>")) == (SKIPPED, 1, ["t1"])
    assert judged(report("<skipped/>", "<failure/>"))[0] == FAILED


@pytest.mark.parametrize("nothing", ["", report()])
def test_a_slice_without_a_test_leaves_no_record(nothing: str) -> None:
    with pytest.raises(SystemExit, match="No test was run"):
        judged(nothing)
