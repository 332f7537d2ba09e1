"""The same laws on stored data: bytes from the codec, read through the projector's register table.

Every record that can be stored must fold into an entry that can be stored too and is equal when read again. Otherwise one
job's records could end the projector, or make it publish for ever.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from ledger.adapters import avro
from ledger.core.fold.fold import fold_job, prunable
from ledger.core.fold.job import Job
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    CheckpointKind,
    CheckpointRetention,
    GraphRef,
    IntentDeclared,
    IntentKind,
    JobAdmitted,
    JobResult,
    JobSubmitted,
    OnExhausted,
    RefusedRestorePoint,
    RestartKind,
    RestartPolicy,
    RestorePoint,
    SavepointAsked,
)
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import (
    NUMBER_MAX,
    Admitted,
    Ask,
    Attempt,
    Checkpoint,
    Ended,
    Intent,
    Register,
    Result,
    Running,
    Spec,
    key_of,
    register_name,
)
from ledger.core.model.table import RegisterTable
from ledger.ports import MemoryRecord
from tests.laws import book
from tests.support import seeds

pytestmark = pytest.mark.slow

JOB, OTHER = "job-a", "job-b"
LONG = st.one_of(st.integers(0, 4), st.sampled_from([-(2**63), -1, 2**31, NUMBER_MAX, 2**63 - 1]))
NUMBER = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([0.0, 1.0, -1.0, 1e308, 5e-324, 3600.0])
)
TEXT = st.one_of(st.sampled_from(["", "latest", "scratch", "1/1", "2/1", "0/0"]), st.text(max_size=6))
POINT = st.one_of(
    st.none(),
    st.builds(RestorePoint, st.integers(-1, 3), st.integers(-1, 3), TEXT, LONG, TEXT, st.sampled_from(CheckpointKind)),
)
POLICY = st.builds(
    RestartPolicy, st.sampled_from(RestartKind), LONG, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER,
    st.sampled_from(OnExhausted),
)  # fmt: skip
SPECS = st.builds(
    JobSubmitted, TEXT, TEXT, TEXT, st.builds(GraphRef, TEXT, TEXT, LONG), POLICY, st.integers(-1, 9), LONG,
    st.dictionaries(TEXT, TEXT, max_size=2), st.none() | TEXT, POINT, st.none() | TEXT,
    st.sampled_from(CheckpointRetention),
)  # fmt: skip
INTENTS = st.builds(IntentDeclared, st.sampled_from(IntentKind), LONG, TEXT, st.booleans(), TEXT, TEXT)
ATTEMPTS = st.builds(
    AttemptStarted, TEXT, POINT,
    st.lists(st.builds(RefusedRestorePoint, POINT.filter(bool), TEXT), max_size=1).map(tuple), LONG,
    st.lists(NUMBER, max_size=2).map(tuple),
)  # fmt: skip
N = st.sampled_from([1, 2, 3, NUMBER_MAX])
PAIRS = st.one_of(
    st.tuples(st.builds(Intent, N, st.sampled_from(["u1", "u2"])), INTENTS),
    st.tuples(st.builds(Attempt, N, N), ATTEMPTS),
    st.tuples(st.builds(Running, N), st.builds(AttemptRunning, TEXT)),
    st.tuples(
        st.builds(Checkpoint, N, st.sampled_from([0, 1, 2, 2**63 - 1])),
        st.builds(CheckpointCompleted, TEXT, LONG, TEXT, POINT, st.sampled_from(CheckpointKind), st.none() | TEXT),
    ),
    st.tuples(
        st.builds(
            Ended, N,
            st.sampled_from(["failed", "failed", "lost", "stopped", "failed-permanent", "canceled", "finished"]),
            st.sampled_from(["agent-1", "reconciler-1"]),
        ),
        st.builds(AttemptEnded, TEXT, st.none() | LONG, NUMBER),
    ),
    st.tuples(
        st.builds(Result, st.sampled_from(["FINISHED", "FAILED"])),
        st.builds(
            JobResult, TEXT, TEXT, TEXT, TEXT, TEXT, NUMBER, LONG, st.dictionaries(TEXT, TEXT, max_size=1), POINT
        ),
    ),
)  # fmt: skip
DAMAGED = st.one_of(
    st.none(), st.binary(max_size=12), st.binary(max_size=20).map(lambda tail: avro.MAGIC + tail),
    st.builds(lambda pair, cut: avro.encode(pair[1])[:cut], PAIRS, st.integers(10, 20)),
    st.builds(lambda pair, more: avro.encode(pair[1]) + more, PAIRS, st.binary(max_size=2)),
)  # fmt: skip
NAMES = st.one_of(st.binary(max_size=12), PAIRS.map(lambda pair: register_name(pair[0]).encode()))


def read(register: Register, held: Any) -> Any:
    return avro.read(register, held[0])


def table(records: list[tuple[bytes, bytes | None]]) -> RegisterTable:
    found = RegisterTable(1)
    found.apply([MemoryRecord("t", 0, offset, key, value) for offset, (key, value) in enumerate(records)])
    return found


def submitted(job_id: str, spec: JobSubmitted) -> list[tuple[bytes, bytes | None]]:
    digest = avro.spec_digest(spec)
    return [stored(job_id, Spec(digest), spec), stored(job_id, Admitted(), JobAdmitted(digest))]


def stored(job_id: str, register: Register, fact: Any) -> tuple[bytes, bytes | None]:
    return key_of(job_id, register).encode(), avro.encode(fact)


def entry_of(found: RegisterTable, job_id: str) -> RecoveryEntry | None:
    job = Job(job_id, found.registers(job_id.encode(), 0), read)
    prunable(job)
    return fold_job(job)


@seed(seeds.of("stored"))
@settings(book.CHECK, max_examples=book.examples())
@given(SPECS, st.lists(PAIRS, max_size=10))
def test_whatever_can_be_stored_folds_into_what_can_be_stored(spec, pairs):
    found = table(submitted(JOB, spec) + [stored(JOB, *pair) for pair in pairs])
    entry = entry_of(found, JOB)
    if entry is not None:
        assert avro.decode(RecoveryEntry, avro.encode(entry)) == entry


@seed(seeds.of("stored"))
@settings(book.CHECK, max_examples=book.examples())
@given(st.lists(PAIRS, max_size=6), st.lists(st.tuples(NAMES, DAMAGED), max_size=6), st.lists(st.binary(), max_size=4))
def test_damaged_bytes_change_no_other_job_and_raise_nowhere(pairs, damaged, foreign):
    good = submitted(JOB, JobSubmitted("etl", "prod", "subprocess", GraphRef("u", "s", 1)))
    good += [stored(JOB, *pair) for pair in pairs]
    bad = submitted(OTHER, JobSubmitted("bad", "prod", "subprocess", GraphRef("u", "s", 1)))
    bad += [(OTHER.encode() + b"/" + name, value) for name, value in damaged]
    bad += [(key, b"\xc3\x01") for key in foreign if not key.startswith(JOB.encode() + b"/")]
    mixed = [record for couple in zip(good, bad, strict=False) for record in couple]
    mixed += good[len(bad) :] + bad[len(good) :]
    assert entry_of(table(mixed), JOB) == entry_of(table(good), JOB)
    found = table(mixed)
    for job_id in found.jobs[0]:
        entry_of(found, job_id.decode())


@pytest.mark.parametrize("chars", [10_000, 60_000])
def test_long_values_and_many_registers_fold_into_an_entry_that_the_log_takes(chars):
    """Even longer values do not fit. For those the projector publishes an entry that reports it."""
    long = "x" * chars
    place = RestorePoint(1, 3, long)
    pairs: list[tuple[Register, Any]] = [
        (Intent(1, "u"), IntentDeclared(IntentKind.RETRY, 2, "latest", False, long, long[:100])),
        (Attempt(2, 1), AttemptStarted("d", place)),
        *[(Checkpoint(1, i), CheckpointCompleted(long)) for i in (1, 2, 3)],
        (Ended(2, "failed", "agent-1"), AttemptEnded(long)),
    ]
    spec = JobSubmitted("etl", "prod", "subprocess", GraphRef("u", "s", 1), labels={"a": long})
    records = submitted(JOB, spec) + [stored(JOB, *pair) for pair in pairs]
    entry = entry_of(table(records), JOB)
    assert entry is not None and len(entry.restore_points) == 3
    avro.encode(entry)
    asks = [stored(JOB, Ask(f"{i:060}"), SavepointAsked()) for i in range(20_000)]
    ended = stored(JOB, Ended(3, "canceled", "reconciler-1"), AttemptEnded(long))
    terminal = entry_of(table([*records, *asks, ended]), JOB)
    assert terminal is not None and terminal.terminal and terminal.registers
    avro.encode(terminal)
