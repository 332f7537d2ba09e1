"""The reader of ledger.recovery on the protocol page and the ledger's own reader accept the same records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.adapters import avro
from ledger.core.model.facts import LeaderClaimed, Progress
from ledger.core.model.published import Published
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import is_job_id
from ledger.ports import MemoryRecord
from tests.protocol import page

RecoveryRecord = tuple[str | None, int, bytes | None]
_KEYS = ["a", "a", "a", "b", "~progress", "~other", "not a job/x", None]


def entry(job_id: str, n: int) -> bytes:
    return avro.encode(RecoveryEntry(job_id, "n", "ns", "r", JobState.RUNNING, "d", attempt=n))


@st.composite
def recovery_records(draw: Callable[..., Any]) -> RecoveryRecord:
    """A record of ledger.recovery. Keys and epochs are few, so that records collide. Nobody claims epochs 0 and 3."""
    if draw(st.integers(0, 3)) == 0:
        role, epoch = draw(st.sampled_from(["projector", "projector", "reconciler"])), draw(st.integers(1, 2))
        value = avro.encode(LeaderClaimed(role, epoch, "w"))
        return f"~claim/{role}/{epoch}", epoch, draw(st.sampled_from([value, value, value, None]))
    key = draw(st.sampled_from(_KEYS))
    values = [entry(key or "a", 1), entry(key or "a", 2), avro.encode(Progress(0, 5, 1)), b"garbage", None, None]
    return key, draw(st.sampled_from([0, 1, 1, 2, 2, 2, 3])), draw(st.sampled_from(values))


def both_readers(records: list[RecoveryRecord]) -> dict[str, bytes]:
    """The effective records by the page's reader, job -> value. Fails if the ledger's own reader differs."""
    published = Published(avro.decode)
    for offset, (key, epoch, value) in enumerate(records):
        headers = (("ledger_epoch", str(epoch).encode()),) if epoch else ()
        published.apply(MemoryRecord("r", 0, offset, key.encode() if key else None, value, headers))
    last = page.function("recovery", "recovery")(records)
    jobs = {key: value for key, value in last.items() if is_job_id(key)}
    assert set(jobs) == set(published.entries) | published.unreadable
    for job_id, found in published.entries.items():
        assert avro.decode(RecoveryEntry, jobs[job_id]) == found
    return jobs


@given(st.lists(recovery_records(), max_size=25))
@settings(max_examples=300)
def test_the_pages_filter_is_the_ledgers(records: list[RecoveryRecord]) -> None:
    both_readers(records)


def claim(epoch: int) -> RecoveryRecord:
    return f"~claim/projector/{epoch}", epoch, avro.encode(LeaderClaimed("projector", epoch, "w"))


OLD, NEW = entry("a", 1), entry("a", 2)
HISTORIES: dict[str, tuple[list[RecoveryRecord], bytes | None]] = {
    "the last counts": ([claim(1), ("a", 1, OLD), ("a", 1, NEW)], NEW),
    "a tombstone removes": ([claim(1), ("a", 1, OLD), ("a", 1, None)], None),
    "a stale record is dropped though it is the last": ([claim(1), claim(2), ("a", 2, NEW), ("a", 1, OLD)], NEW),
    "a stale tombstone is dropped": ([claim(1), claim(2), ("a", 2, NEW), ("a", 1, None)], NEW),
    "what came before the claim stays": ([claim(1), ("a", 1, OLD), claim(2)], OLD),
    "a late claim of a lower epoch changes nothing": ([claim(2), ("a", 2, OLD), claim(1), ("a", 2, NEW)], NEW),
    "an epoch that nobody has claimed is dropped": ([claim(1), ("a", 1, OLD), ("a", 2, NEW)], OLD),
    "without an epoch it is dropped": ([claim(1), ("a", 1, OLD), ("a", 0, NEW)], OLD),
    "nothing counts before the first claim": ([("a", 0, OLD), ("a", 1, OLD)], None),
}


@pytest.mark.parametrize(("records", "counts"), HISTORIES.values(), ids=HISTORIES.keys())
def test_what_the_filter_lets_count(records: list[RecoveryRecord], counts: bytes | None) -> None:
    assert both_readers(records).get("a") == counts
