"""The restore points from which the next attempt may start, and those that are kept for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.core.fold.fold import prunable
from ledger.core.model.facts import CheckpointKind, RestorePoint
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Checkpoint, register_name
from tests.support.offered import offered
from tests.support.registers import DIGEST, UNREADABLE, checkpoint, entry, given, intent, point, spec, started

SPEC = f"spec/{DIGEST}"
A = "agent-a"
OUTSIDE = RestorePoint(0, 0, "s3://elsewhere/sav-9", kind=CheckpointKind.SAVEPOINT)
FROM_OUTSIDE = spec(restore_from=OUTSIDE)
SAV = CheckpointKind.SAVEPOINT


def chk(*places: str, base: str | None = None) -> dict:
    return {f"checkpoint/{place}": checkpoint(place, base) for place in places}


def offer(*names: str, facts: dict | None = None) -> list[str]:
    return [str(p) for p in offered(given(*names, facts=facts))]


def kept(job, **limits) -> set[str]:
    gone = {f"{r.n}/{r.id}" for r in prunable(job, **limits) if isinstance(r, Checkpoint)}
    return {f"{c.n}/{c.id}" for checkpoints in job.checkpoints.values() for c in checkpoints} - gone


# -- offered restore points --------------------------------------------------------------------------------------------


def test_nothing_yet():
    assert offer() == []
    assert offer(facts={SPEC: FROM_OUTSIDE}) == [OUTSIDE.location]
    assert entry(facts={SPEC: FROM_OUTSIDE}).restore_from_named
    assert not entry().restore_from_named


def test_the_highest_attempts_own_newest_first_then_down_from_base_to_base():
    facts = {
        SPEC: FROM_OUTSIDE,
        "attempt/3/1": started("2/5"),
        "checkpoint/1/2": replace(checkpoint("1/2"), base=OUTSIDE),
        "checkpoint/1/1": replace(checkpoint("1/1"), base=OUTSIDE),
        **chk("1/9"),  # newer than the restore point that attempt 2 started from, so not in the lineage
        **chk("2/5", "2/4", "2/10", base="1/2"),
        **chk("3/7", "3/6", base="2/5"),
    }
    assert offer(facts=facts) == ["3/7", "3/6", "2/5", "2/4", "1/2", "1/1", OUTSIDE.location]


def test_ids_are_numbers_and_not_words():
    assert offer("attempt/1/1", facts=chk("1/9", "1/10", "1/100")) == ["1/100", "1/10", "1/9"]


def test_an_attempt_without_checkpoints_begins_where_it_began():
    facts = {"attempt/2/1": started("1/2"), **chk("1/1", "1/2", "1/3")}
    assert offer(facts=facts) == ["1/2", "1/1"]
    assert entry(facts=facts).base == point("1/2")


def test_at_most_so_many_are_published():
    facts = chk("1/1", "1/2", "1/3", "1/4", "1/5")
    assert [str(p) for p in entry("attempt/1/1", facts=facts).restore_points] == ["1/5", "1/4", "1/3"]
    assert [str(p) for p in entry("attempt/1/1", facts=facts, keep=1).restore_points] == ["1/5"]


def test_a_restore_point_tells_where_it_lies():
    fact = replace(checkpoint("1/3", kind=SAV), location="s3://b/c", size=12, digest="sha256:ab")
    assert entry("attempt/1/1", facts={"checkpoint/1/3": fact}).restore_points == (
        RestorePoint(1, 3, "s3://b/c", 12, "sha256:ab", SAV),
    )


@pytest.mark.parametrize("numbers", [(0, 0), (3, 7), (1, 1)])
def test_a_restore_point_from_outside_is_none_of_the_jobs_own_whatever_numbers_it_bears(numbers):
    """A restore point taken over from another job bears that job's numbers. The fold must not look for them among this
    job's checkpoints."""
    elsewhere = replace(OUTSIDE, attempt=numbers[0], id=numbers[1])
    first = entry(facts={SPEC: spec(restore_from=elsewhere)})
    assert first.restore_points == (OUTSIDE,)
    recorded = replace(started(), base=first.restore_points[0])
    facts = {SPEC: spec(restore_from=elsewhere), "attempt/1/1": recorded, **chk("3/7")}
    failed = entry(f"ended/1/failed/{A}", facts={k: v for k, v in facts.items() if k != "checkpoint/3/7"})
    assert (failed.state, failed.restore_points) == (JobState.RESTARTING, (OUTSIDE,))


def test_only_the_specs_own_restore_point_from_outside_is_taken_on_trust():
    stranger = replace(OUTSIDE, location="s3://strange/sav-1")
    assert offer(facts={"attempt/1/1": replace(started(), base=stranger)}) == []
    assert offer(facts={SPEC: FROM_OUTSIDE, "attempt/1/1": replace(started(), base=stranger)}) == [OUTSIDE.location]


# -- contradicting bases -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "expect"),
    [
        # the base is of a higher attempt: the lineage ends there
        (chk("1/1", base="2/1") | chk("2/1", base="1/1"), ["2/1", "1/1"]),
        (chk("2/1", base="2/1"), ["2/1"]),
        (chk("2/2", base="3/1") | chk("3/1", base="2/2"), ["3/1", "2/2"]),
        (chk("2/1", base="9/9"), ["2/1"]),
        ({"checkpoint/2/1": replace(checkpoint("2/1"), base=RestorePoint(-1, 0, "x"))}, ["2/1"]),
        ({"checkpoint/2/1": replace(checkpoint("2/1"), base=RestorePoint(1, -5, "x")), **chk("1/1")}, ["2/1"]),
        ({"attempt/2/1": started("2/1")}, []),
        ({"attempt/2/1": started("7/1")}, []),
    ],
)
def test_a_base_that_leads_nowhere_below_ends_the_way(facts, expect):
    assert offer(facts=facts) == expect


# -- records that count despite pruning and late duplicates ------------------------------------------------------------


def test_scratch_is_not_undone_by_a_verdict():
    """Attempt 3 was ordered to start from scratch; attempt 4 has a verdict but no record."""
    facts = {SPEC: FROM_OUTSIDE, "attempt/3/1": started(None), **chk("1/1", "2/1", base=None)}
    names = ("attempt/1/1", "attempt/2/1", "ended/3/failed/agent-a", "ended/4/failed-permanent/reconciler-1")
    assert offer(*names, facts=facts) == []
    retried = entry(*names, facts={**facts, "intent/1/u": intent("RETRY", 4)})
    assert (retried.state, retried.restore_points, retried.restore_from_named) == (JobState.RESTARTING, (), False)


def test_a_savepoint_off_the_lineage_that_was_chosen_is_offered_again():
    """Attempt 3 started from 1/2, unlike attempt 2, and failed before its first checkpoint."""
    facts = {
        **chk("1/1"),
        "checkpoint/1/2": checkpoint("1/2", kind=SAV),
        "attempt/2/1": started("1/1"),
        **chk("2/3", base="1/1"),
        "attempt/3/1": started("1/2"),
    }
    assert offer("attempt/1/1", f"ended/3/failed/{A}", facts=facts) == ["1/2", "1/1"]


def test_the_base_is_not_pruned_under_an_attempt_that_has_no_checkpoint_yet():
    """Attempt 2 was forced to start, from 1/1. Attempt 1, given up but still alive, writes newer checkpoints."""
    facts = {"attempt/2/1": started("1/1"), **chk("1/1", "1/2", "1/3", "1/4")}
    job = given("attempt/1/1", facts=facts)
    assert kept(job, keep=2) == {"1/1", "1/4", "1/3"}
    assert [str(p) for p in entry("attempt/1/1", facts=facts, keep=2).restore_points] == ["1/1"]


def test_the_newest_attempt_record_is_not_pruned():
    """Without that record, a late checkpoint of attempt 1 would bring back what a start from scratch had excluded."""
    names = ["attempt/1/1", *[f"ended/{n}/failed-permanent/reconciler-1" for n in (3, 4, 5)]]
    job = given(*names, facts={"attempt/2/1": started(None), "attempt/2/2": started(None)})
    gone = {register_name(r) for r in prunable(job, history=2)}
    assert gone == {"attempt/1/1", "ended/3/failed-permanent/reconciler-1"}


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ({"attempt/2/1": started("1/1")}, True),  # the base is gone
        ({"attempt/2/1": started(None)}, False),  # the attempt was to start from scratch
        ({"attempt/2/1": started(None), **chk("1/1")}, False),
        ({SPEC: FROM_OUTSIDE, "attempt/2/1": started(None)}, False),
        ({**chk("2/1", base="1/1")}, True),
        ({"attempt/1/1": started("0/0"), SPEC: spec()}, True),
    ],
)
def test_nothing_offered_is_no_start_from_scratch_where_something_was_named(facts, named):
    got = entry(f"ended/2/failed/{A}", facts=facts)
    assert got.restore_from_named is named


# -- retries that name a restore point ---------------------------------------------------------------------------------

HISTORY = {
    **chk("1/1", "1/2"),
    "checkpoint/1/3": checkpoint("1/3", kind=SAV),
    "attempt/2/1": started("1/2"),
    **chk("2/4", "2/5", base="1/2"),
}


@pytest.mark.parametrize(
    ("from_", "expect", "named"),
    [
        ("latest", ["2/5", "2/4", "1/2", "1/1"], True),
        ("scratch", [], False),
        ("1/3", ["1/3", "1/2", "1/1"], True),
        ("2/4", ["2/4", "1/2", "1/1"], True),
        ("1/9", [], True),  # no such restore point: then no attempt may start
        ("", [], True),
        ("nonsense", [], True),
        ("1/2/3", [], True),
        ("1/0x", [], True),
        ("é/1", [], True),
    ],
)
def test_a_retry_chooses_where_to_begin(from_, expect, named):
    facts = {**HISTORY, "intent/1/u": intent("RETRY", 2, from_=from_)}
    assert offer(f"ended/2/failed/{A}", facts=facts) == expect
    got = entry(f"ended/2/failed/{A}", facts=facts)
    assert (got.state, got.restore_from_named) == (JobState.RESTARTING, named)


@pytest.mark.parametrize(
    "case",
    [
        {"names": (), "attempt": 2},  # attempt 2 has not ended
        {"names": (f"ended/2/failed/{A}",), "attempt": 1},  # the retry names another attempt
        {"names": (f"ended/2/failed/{A}", "running/3"), "attempt": 2},  # the retry is spent
    ],
)
def test_a_retry_that_does_not_count_chooses_nothing(case):
    facts = {**HISTORY, "intent/1/u": intent("RETRY", case["attempt"], from_="scratch")}
    assert offer(*case["names"], facts=facts) == ["2/5", "2/4", "1/2", "1/1"]


# -- pruning -----------------------------------------------------------------------------------------------------------


def test_pruned_is_what_is_neither_offered_nor_newest_on_the_lineage():
    facts = {**chk("1/1", "1/2", "1/3"), **chk("2/4", "2/5", "2/6", "2/7", base="1/2")}
    assert kept(given("attempt/1/1", "attempt/2/1", facts=facts), keep=3) == {"2/7", "2/6", "2/5"}


def test_savepoints_and_what_is_of_unknown_kind_or_unreadable_is_never_pruned():
    facts = {
        "checkpoint/1/1": checkpoint("1/1", kind=SAV),
        "checkpoint/1/2": checkpoint("1/2", kind=CheckpointKind.UNKNOWN),
        "checkpoint/1/3": UNREADABLE,
        **chk("1/4", "1/5", "1/6"),
    }
    assert kept(given(facts=facts), keep=1) == {"1/1", "1/2", "1/3", "1/6"}


@pytest.mark.parametrize("attempt", [2, 3, 9])
@pytest.mark.parametrize("ended", [True, False])
def test_what_a_pending_retry_names_is_kept_also_before_it_counts(attempt, ended):
    """The intent may arrive before the end of the attempt that it names, even before that attempt itself."""
    facts = {**chk("1/1", "1/2", "2/4", "2/5", "2/6", "2/7"), "intent/1/u": intent("RETRY", attempt, from_="1/2")}
    job = given("attempt/2/1", *([f"ended/2/failed/{A}"] if ended else []), facts=facts)
    assert kept(job, keep=2) == {"1/1", "1/2", "2/6", "2/7"}


def test_what_a_spent_or_losing_retry_names_is_not_kept():
    facts = {**chk("1/1", "1/2"), **chk("2/4", "2/5", "2/6", "2/7"), "intent/1/u": intent("RETRY", 1, from_="1/2")}
    assert kept(given("attempt/2/1", facts=facts), keep=2) == {"2/6", "2/7"}
    facts |= {"intent/1/u": intent("RETRY", 2, from_="1/2"), "intent/2/u": intent("RUN")}
    assert kept(given("attempt/2/1", facts=facts), keep=2) == {"2/6", "2/7"}


def test_a_pending_retry_from_scratch_leaves_the_others_standing():
    """Another intent may still supersede the retry."""
    facts = {**chk("2/4", "2/5", "2/6"), "intent/1/u": intent("RETRY", 2, from_="scratch")}
    assert kept(given("attempt/2/1", f"ended/2/failed/{A}", facts=facts), keep=2) == {"2/5", "2/6"}
