"""An archive for queries, and its records as the rows that a test expects."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ledger.adapters import avro, cloudevents
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format.decoding import decoded
from ledger.archive.format.lateness import sure_from_s
from ledger.archive.format.segments import store_segment
from ledger.archive.query.querying import opened
from ledger.archive.store.archive import Archive
from ledger.config.settings import TopicsSection
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    CheckpointKind,
    Fact,
    LeaderClaimed,
    Progress,
    RestorePoint,
)
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import OUTCOMES, Attempt, Checkpoint, Ended, Register, Running, Spec, claim_key, key_of
from ledger.ports import MemoryRecord
from ledger.util import times
from tests.support.archives.given import SPEC

TOPICS = TopicsSection()
BEGIN_MS = 1_700_000_000_000
PARTITIONS = 2
Rows = list[dict[str, Any]]


def epoch_header(epoch: int) -> tuple[tuple[str, bytes], ...]:
    return (("ledger_epoch", str(epoch).encode()),)


def recovery_records(partition: int, drawn: random.Random, number: int = 150) -> list[MemoryRecord]:
    """Records of leaders, zombies and vandals. Their times now and then go backwards."""
    offset, at_ms, epoch, found = 0, BEGIN_MS, 0, []
    for _ in range(number):
        offset += drawn.choice([1, 1, 1, 2, 4])
        at_ms += drawn.choice([0, 1, 7, 40, 1000, -300])
        job = f"job-{partition}-{drawn.randrange(6)}"
        written = max(0, epoch + drawn.choice([0, 0, 0, 0, -1, 1]))
        entry = RecoveryEntry(
            job, "ä", "default", "memory", drawn.choice([*JobState]), "0" * 64, drawn.randrange(9), epoch=written,
            as_of=offset, reason=drawn.choice(["", "it's \"quoted\""]), retiring=drawn.random() < 0.1,
        )  # fmt: skip
        whatever = drawn.randbytes(8)
        headers = drawn.choice([epoch_header(written)] * 9 + [(), (("ledger_epoch", b"x"),), epoch_header(0)])
        key, value = drawn.choice([
            *[(job.encode(), avro.encode(entry))] * 9,
            *[(job.encode(), None)] * 3,
            (job.encode(), whatever),
            (job.encode(), avro.encode(replace(entry, job_id="another"))),
            (job.encode(), avro.encode(Progress(partition, offset, written))),
            (b"~progress", avro.encode(Progress(partition, offset, written))),
            (b"~noop", None), (b"", b""), (b"\xff/\xfe", whatever), (f"{job}/running/1".encode(), avro.encode(entry)),
            (b"..", avro.encode(replace(entry, job_id=".."))), (None, whatever),
            *[(claim_key("projector", written + 1).encode(), avro.encode(LeaderClaimed("projector", 1, "p")))] * 2,
            (claim_key("projector", written + 7).encode(), None),
            (claim_key("reconciler", written + 7).encode(), b"x"), (b"~claim/projector/09", b"x"),
        ])  # fmt: skip
        if (key or b"").startswith(b"~claim/projector/") and value is not None and key != b"~claim/projector/09":
            epoch = max(epoch, written + 1)
        found.append(MemoryRecord(TOPICS.recovery, partition, offset, key, value, headers, at_ms))
    return found


def event_records(drawn: random.Random, number: int = 200) -> list[MemoryRecord]:
    """Attempts, checkpoints and ends in random order, some of them resent, pruned or corrupted."""
    offset, found = 0, list[MemoryRecord]()
    for _ in range(number):
        offset += drawn.choice([1, 1, 3])
        job, n = f"job-{drawn.randrange(4)}", drawn.randrange(1, 5)
        base = drawn.choice([None, RestorePoint(1, 2, "/x", 3)])
        choices: list[tuple[Register, Fact]] = [
            (Attempt(n, drawn.randrange(1, 12)), AttemptStarted("0" * 64, base, failures=drawn.randrange(3))),
            (Running(n), AttemptRunning(f"pid {n}")),
            (Checkpoint(n, drawn.randrange(5)), CheckpointCompleted("/c", offset, kind=drawn.choice([*CheckpointKind]))),
            (Ended(n, drawn.choice(OUTCOMES), drawn.choice(["agent-1", "reconciler-7"])), AttemptEnded(f"at {offset}")),
            (Spec(avro.spec_digest(SPEC)), SPEC),
        ]  # fmt: skip
        register, fact = drawn.choice(choices)
        key, value = key_of(job, register).encode(), avro.encode(fact)
        if again := [known for r in found if r.key() == key and (known := r.value())]:
            value = again[0]  # one key, one writer, one value
        spoiled = drawn.choice([value] * 12 + [None])
        found.append(MemoryRecord(TOPICS.events, 0, offset, key, spoiled, (), BEGIN_MS + offset))
    return found


def an_archive(*partitions: list[MemoryRecord], each: int = 23) -> Archive:
    archive = Archive(MemoryObjects(), "test", lambda: times.rfc3339(BEGIN_MS / 1000 + 60))
    for records in partitions:
        head = archive.head(records[0].topic(), records[0].partition())
        for i in range(0, len(records), each):
            run = records[i : i + each]
            stored = store_segment(archive.store, head.next, run, lambda record: decoded(record, avro, cloudevents))
            head = archive.seal(head, "topic-1", stored)
    return archive


@contextmanager
def asked(archive: Archive) -> Iterator[Callable[[str], Rows]]:
    with opened(archive, TOPICS, lambda found: sure_from_s(found, 3600.0, archive.leaves)) as queries:
        yield lambda sql: list(queries.ask(sql).rows)
