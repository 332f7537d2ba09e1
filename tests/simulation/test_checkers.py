"""Each checker has no findings on the evidence of a walk, and has findings on corrupted evidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from ledger.adapters import avro
from ledger.core.fold import job as view
from ledger.core.model.facts import IntentDeclared, IntentKind
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Intent, parse_key
from tests.simulation import checkers, copies
from tests.simulation.copies import Copied, Delivery, Leased, Ran, Taken, says
from tests.simulation.evidence import Evidence
from tests.simulation.world import EVENTS, RECOVERY


@pytest.fixture
def rng() -> Iterator[Random]:
    return Random(1)


def first(records: list[Copied], word: str) -> Copied:
    return next(r for r in records if (p := parse_key(r.key)) and p[1].word == word and r.value is not None)


def intent(rev: int, uuid: str, kind: IntentKind) -> tuple[bytes, bytes]:
    return f"/intent/{rev}/{uuid}".encode(), avro.encode(IntentDeclared(kind))


def job_of(record: Copied) -> bytes:
    return (record.key or b"").partition(b"/")[0]


def live_job(events: list[Copied]) -> Copied:
    """The spec of a job that is not over."""
    jobs = copies.folded(events)
    return next(r for r in events if r.value and b"/spec/" in (r.key or b"") and job_of(r).decode() in jobs)


def test_what_a_walk_left_is_in_order(walked: Evidence, rng: Random) -> None:
    events, recovery = walked.copies[EVENTS], walked.copies[RECOVERY]
    assert checkers.compaction_stable(events, events) == []
    assert checkers.idempotent(events, rng) == checkers.order_free(events, rng) == []
    assert checkers.no_resurrection(events, recovery, walked.taken, walked.ran) == []
    assert checkers.projection_exact(events, recovery) == []
    assert len(events) > 50
    assert len(recovery) > 40


def test_i4_sees_a_job_that_vanishes_without_a_result(events: list[Copied]) -> None:
    assert checkers.never_vanishes(events) == []
    over = first(events, "result")
    (at,) = (i for i, r in enumerate(events) if r is over)
    assert says(checkers.never_vanishes(events[:at] + events[at + 1 :]), f"I4 {job_of(over).decode()}")
    later = next(i for i, r in enumerate(events) if r.key == job_of(over) + b"/admitted" and r.value is None)
    assert later > at, "the result comes first"
    behind = [*events[:at], *events[at + 1 : later + 1], over, *events[later + 1 :]]
    assert says(checkers.never_vanishes(behind), f"I4 {job_of(over).decode()}"), "the finding is at that record, not later"


def test_i1_sees_a_register_that_compaction_took(events: list[Copied]) -> None:
    spec = live_job(events)
    assert says(checkers.compaction_stable(events, [r for r in events if r.key != spec.key]), "I1")


def test_i2_sees_a_key_with_two_values(events: list[Copied], rng: Random) -> None:
    spec = live_job(events)
    name, suspend = intent(99, "one", IntentKind.SUSPEND)
    key, run = job_of(spec) + name, intent(99, "one", IntentKind.RUN)[1]
    two = [spec._replace(key=key, value=value, offset=10_000 + i) for i, value in enumerate((suspend, run))]
    # The records are so few that chance repeats the first value without the second.
    admitted = next(r for r in events if r.key == job_of(spec) + b"/admitted")
    assert checkers.idempotent([spec, admitted], rng, 20) == []
    assert says(checkers.idempotent([spec, admitted, *two], rng, 20), "I2")


def test_i3_sees_that_order_counts(events: list[Copied], rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = live_job(events)
    for uuid, kind in (("a", IntentKind.SUSPEND), ("b", IntentKind.RUN)):
        name, value = intent(99, uuid, kind)
        events.append(spec._replace(key=job_of(spec) + name, value=value))
    assert checkers.order_free(events, rng) == []

    def last_read(job: Any) -> Any:
        found = [(i, fact) for i in job.intents if (fact := job.fact(i, IntentDeclared)) is not None]
        return found[-1] if found else None

    monkeypatch.setattr(view.Job, "intent", property(last_read), raising=False)
    assert says(checkers.order_free(events, rng, 20), "I3")


def test_i4_sees_what_comes_back(walked: Evidence, events: list[Copied], recovery: list[Copied]) -> None:
    over = next(t for t in walked.taken if t.entry and t.entry.terminal)
    assert over.entry is not None
    back = over._replace(entry=replace(over.entry, state=JobState.RUNNING, retiring=False))
    assert says(checkers.no_resurrection(events, recovery, [*walked.taken, back], walked.ran), "I4")
    result = first(events, "result")
    late = Ran("start", job_of(result).decode(), 9, result.time_s + 1)
    assert says(checkers.no_resurrection(events, recovery, walked.taken, [*walked.ran, late]), "I4")
    entry = avro.decode(RecoveryEntry, next(r for r in recovery if checkers._is_entry(r)).value or b"")
    lived = [entry, replace(entry, state=JobState.FINISHED), replace(entry, state=JobState.CREATED)]
    assert says(checkers._terminal_then_live("I4", ((e.job_id, e) for e in lived)), "I4")


def test_i5_sees_what_is_lost_and_what_should_not_be_there(walked: Evidence, events: list[Copied]) -> None:
    told = [t for t in walked.told_by if t.topic == EVENTS]
    assert checkers.acked_is_durable(told, events) == []
    ok = next(t for t in told if t.kind == "ok" and copies.header(t, "ce_id"))
    others = [r for r in events if (r.partition, r.offset) != (ok.partition, ok.offset)]
    assert says(checkers.acked_is_durable(told, others), "I5")
    assert says(checkers.acked_is_durable([ok._replace(kind="fail")], events), "I5")
    assert says(checkers.acked_is_durable([Delivery("ok", "x", EVENTS, 0, b"nowhere", b"")], events), "I5")


def claim(epoch: int, offset: int, who: str, time_s: float) -> Copied:
    headers = (
        ("ce_id", f"{who}-{epoch}".encode()), ("ledger_actor", who.encode()), ("ledger_epoch", str(epoch).encode()),
        ("ce_source", f"/ledger/projector/{epoch}".encode()), ("ce_sequence", b"1"),
    )  # fmt: skip
    return Copied(RECOVERY, 0, offset, f"~claim/projector/{epoch}".encode(), b"x", headers, time_s)


def test_i6_sees_two_writers() -> None:
    claims = [claim(1, 0, "a", 1.0), claim(2, 3, "b", 2.0)]
    assert checkers.one_writer_per_epoch([*claims, claims[0]._replace(offset=5)], []) == []  # a copy of the same claim
    assert says(checkers.one_writer_per_epoch([*claims, claim(2, 4, "c", 3.0)], []), "I6a")
    assert says(checkers.one_writer_per_epoch(claims, [Taken("job", 0, 4, 1, None)]), "I6c")
    taken = [Taken("job", 0, 4, 2, None), Taken("job", 0, 5, 1, None)]
    assert "I6b" in str(checkers.one_writer_per_epoch(claims, taken))
    leases = [Leased("projector", "a", 0.0, 1.5), Leased("projector", "b", 1.5, 9.0)]
    assert checkers.one_writer_per_epoch(claims, [], leases) == []
    assert says(checkers.one_writer_per_epoch([*claims, claim(3, 6, "a", 3.0)], [], leases), "I6d")


def test_i7_sees_an_entry_that_the_log_does_not_say(events: list[Copied], recovery: list[Copied]) -> None:
    at = next(i for i, r in enumerate(recovery) if checkers._is_entry(r))
    entry = avro.decode(RecoveryEntry, recovery[at].value or b"")
    other = recovery[at]._replace(value=avro.encode(replace(entry, attempt=entry.attempt + 1)))
    assert says(checkers.projection_exact(events, [*recovery[:at], other, *recovery[at + 1 :]]), "I7")
    view_ = copies.folded(events)
    assert checkers.view_exact(view_, events, "a reader") == []
    assert says(checkers.view_exact({**view_, "nobody": entry}, events, "a reader"), "I7")
    assert says(checkers.view_faithful({"nobody": entry}, []), "I7")


def test_i8_sees_what_runs_twice_or_unasked(walked: Evidence, events: list[Copied]) -> None:
    assert checkers.started_once(walked.ran, events) == []
    start = next(run for run in walked.ran if run.kind == "start")
    assert "started twice" in str(checkers.started_once([*walked.ran, start], events))
    assert "before it was recorded" in str(checkers.started_once([start._replace(n=77)], events))
    beside = [start, start._replace(n=start.n + 1)]
    assert " ran" in str(checkers.started_once(beside, events))
    assert "I12" in str(checkers.started_once([start._replace(place=(1, 99))], events))


def test_a_copy_is_made_of_any_record(walked: Evidence) -> None:
    register = Intent(1, "u")
    assert parse_key(b"job/intent/1/u") == ("job", register)
    assert copies.epoch_of(next(r for r in walked.copies[RECOVERY] if copies.claim_of(r))) >= 1
