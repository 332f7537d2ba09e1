"""An archive of ten days with records of jobs, leaders, zombies and vandals, and views of it."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ledger.adapters import avro, cloudevents
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format.removals import expired_of
from ledger.archive.format.segments import store_segment
from ledger.archive.removal.expiring import expire, plan
from ledger.archive.store.archive import Archive
from ledger.config.settings import TopicsSection
from ledger.core.model.facts import AttemptEnded, JobResult
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Ended, Outcome, Result, Running, Spec, key_of
from ledger.history import bundling, historical_log
from ledger.history.historical_runner import ThenClock
from ledger.history.moment import Cut, parse
from ledger.history.resolve_moment import as_of
from ledger.ports import MemoryRecord, TopicPartition
from ledger.reader.reading import Source
from tests.support.archives.given import SPEC, TOPIC_ID, read_out
from tests.support.repetitions import seeds

TOPICS = TopicsSection()
EVENTS, RECOVERY = TOPICS.events, TOPICS.recovery
BEGIN_S = 1_700_000_000
DAY_S = 86_400
BY, AT = "tester@host", "2026-02-01T00:00:00Z"
NAMESPACES = ["prod", "test", "kept"]
RETENTION = {"prod": 5.0 * DAY_S, "test": 2.0 * DAY_S, "*": None}
NOW_S = BEGIN_S + 10 * DAY_S
SEEDS = seeds(6)


def namespace_of(job: str) -> str:
    return NAMESPACES[int(job.partition("-")[2]) % 3]


def spec_of(job: str) -> tuple[str, bytes]:
    spec = replace(SPEC, namespace=namespace_of(job), name=job)
    return key_of(job, Spec(avro.spec_digest(spec))), avro.encode(spec)


class Life:
    """Ten days of two topics with one partition each: records of jobs, leaders, zombies and vandals."""

    def __init__(self, seed: int, number: int = 400) -> None:
        drawn = random.Random(seed)
        self.events: list[MemoryRecord] = []
        self.recovery: list[MemoryRecord] = []
        self.epoch, self.at_ms = 1, BEGIN_S * 1000
        self._append(self.recovery, b"~claim/projector/1", b"x")
        for _ in range(number):
            self.at_ms += 10 * DAY_S * 1000 // number + drawn.choice([0, 0, 5, -5])
            job = f"job-{drawn.randrange(12)}"
            n = drawn.randrange(1, 4)
            spec_key, spec = spec_of(job)
            match drawn.randrange(12):
                case 0 | 1:
                    self._append(self.events, spec_key.encode(), spec)
                case 2 | 3 | 4:
                    self._append(self.events, key_of(job, Running(n)).encode(), avro.encode(AttemptEnded()))
                case 5 | 6:
                    key = drawn.choice([key_of(job, Running(n)), key_of(job, Ended(n, Outcome.FAILED, "w")), spec_key])
                    self._append(self.events, key.encode(), None)
                case 7:
                    self._append(self.events, *drawn.choice([(b"garbage", b"x"), (b"~noop", None), (None, b"y")]))
                case 8:
                    self.epoch += drawn.randrange(2)
                    self._append(self.recovery, f"~claim/projector/{self.epoch}".encode(), b"x")
                case 9:
                    self._append(self.recovery, job.encode(), None, self._drawn_epoch(drawn))
                case _:
                    epoch = self._drawn_epoch(drawn)
                    entry = RecoveryEntry(job, job, namespace_of(job), "memory", JobState.RUNNING, "0" * 64, n, epoch=epoch)
                    value = drawn.choice([avro.encode(entry)] * 8 + [b"garbage"])
                    self._append(self.recovery, job.encode(), value, epoch)

    def _drawn_epoch(self, drawn: random.Random) -> int:
        return max(1, self.epoch + drawn.choice([0, 0, 0, 0, -1]))

    def _append(self, to: list[MemoryRecord], key: bytes | None, value: bytes | None, epoch: int = 0) -> None:
        topic = EVENTS if to is self.events else RECOVERY
        headers = (("ledger_epoch", str(epoch).encode()),) if epoch else ()
        to.append(MemoryRecord(topic, 0, len(to) * 2, key, value, headers, self.at_ms))

    def archive(self) -> Archive:
        archive = Archive(MemoryObjects(), "test", lambda: "2023-11-15T00:00:00Z")
        for records in (self.events, self.recovery):
            head = archive.head(records[0].topic(), 0)
            for i in range(0, len(records), 40):
                head = archive.seal(head, TOPIC_ID, store_segment(archive.store, head.next, records[i : i + 40], read_out))
        return archive


def run(archive: Archive, now_s: float = NOW_S, **given: Any) -> int:
    return expire(archive, plan(archive, TOPICS, RETENTION, now_s, avro, **given), BY, AT)


def jobs_archive(*facts: tuple[str, bytes | None, float]) -> Archive:
    """An archive of ledger.events. facts: (key, value, days since the beginning), in order."""
    archive = Archive(MemoryObjects(), "test", lambda: AT)
    records = [
        MemoryRecord(EVENTS, 0, offset, key.encode(), value, (), int((BEGIN_S + days * DAY_S) * 1000))
        for offset, (key, value, days) in enumerate(facts)
    ]
    archive.seal(archive.head(EVENTS, 0), TOPIC_ID, store_segment(archive.store, 0, records, read_out))
    return archive


def left(archive: Archive, **given: Any) -> list[int]:
    run(archive, **given)
    return [record.offset() for record in archive.records(EVENTS, 0)]


KEY, VALUE = spec_of("job-0")
RUNNING = key_of("job-0", Running(1)), avro.encode(AttemptEnded())
RESULT = key_of("job-0", Result("FINISHED")), avro.encode(JobResult("job-0", "prod", "memory", "0" * 64, "", 1.0, 1))

# -- queries about the past --------------------------------------------------------------------------------------------


def archived_of(archive: Archive) -> dict[TopicPartition, historical_log.SealedRecords]:
    return {
        place: historical_log.SealedRecords(
            archive.head(*place).next, 0.0, partial(archive.records, *place), expired=expired_of(archive.expired(*place))
        )
        for place in archive.partitions()
    }  # fmt: skip


def asked(archive: Archive, text: str) -> tuple[Source, Cut]:
    archived = archived_of(archive)
    log = bundling.BundleLog({place: one.next for place, one in archived.items()}, {EVENTS: 1, RECOVERY: 1})
    clock = ManualClock()
    source = historical_log.HistoricalSource(
        historical_log.HistoricalLog(log, {}, archived), TOPICS, avro, cloudevents, ThenClock(clock, NOW_S)
    )
    return as_of(source, parse(text, NOW_S), archived, {EVENTS: 0.0, RECOVERY: 0.0})


def then(archive: Archive, text: str) -> Source:
    return asked(archive, text)[0]


def moment(days: float) -> str:
    return datetime.fromtimestamp(BEGIN_S + days * DAY_S, UTC).isoformat()
