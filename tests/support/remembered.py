"""A history of a ledger, drawn from a seed, with a full copy of its log."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ledger.adapters import avro, cloudevents
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format.decoding import decoded
from ledger.archive.format.lateness import sure_from_s
from ledger.archive.snapshots import snapshots
from ledger.archive.store.archive import Archive
from ledger.archive.store.archiving import Archiver, PartitionShape, ReaderSegments
from ledger.core.fold.fold import fold
from ledger.core.model.facts import AttemptEnded, AttemptRunning, AttemptStarted, CheckpointCompleted, Fact
from ledger.core.model.published import Published
from ledger.core.model.registers import Attempt, Checkpoint, Ended, Outcome, Register, Running
from ledger.history import historical_log
from ledger.history.moment import parse, vector
from ledger.history.resolve_moment import as_of
from ledger.ports import Record, TopicPartition
from ledger.reader.reading import Source, all_registers
from ledger.util import times
from tests.support.archives.unpacked import unpack_once
from tests.support.operated import EVENTS, RECOVERY, Operated

unpack_once()
LAG_S = {EVENTS: 100.0, RECOVERY: 100.0}
Copy = dict[tuple[str, int, int], Record]


class Remembered(Operated):
    """A ledger with a copy of every record, and with an archive."""

    def __init__(self, folder: Path) -> None:
        self.copy: Copy = {}
        self._unpacked: dict[tuple[TopicPartition, int], list[Record]] = {}
        super().__init__(folder)
        archive = Archive(MemoryObjects(), "test", lambda: times.rfc3339(self.clock.time()))
        stream = ReaderSegments(self.log, archive, lambda record: decoded(record, avro, cloudevents))
        self.archive, self.archiver = archive, Archiver(archive, stream, self.shapes, self.clock)
        self.archiver.begin()

    def shapes(self) -> dict[TopicPartition, PartitionShape]:
        ends = self.log.reader([EVENTS, RECOVERY]).high_watermarks()
        return {place: PartitionShape("id", 0, end) for place, end in ends.items()}

    def remember(self) -> None:
        for topic in (EVENTS, RECOVERY):
            for p in (0, 1):
                self.copy |= {(topic, p, record.offset()): record for record in self.log.records(topic, p)}

    def seal(self) -> None:
        while self.archiver.step():
            pass

    def clean(self) -> None:
        """Compacts both topics: removes everything older than their minimum compaction lag that may be removed."""
        self.remember()
        for topic in (EVENTS, RECOVERY):
            self.log.compact(topic, min_lag_s=LAG_S[topic])

    def archived(self) -> dict[TopicPartition, historical_log.SealedRecords]:
        found = {}
        for place in self.archive.partitions():
            manifests = list(self.archive.manifests(*place))
            sure = sure_from_s(manifests, LAG_S[place[0]], self.archive.leaves)
            spans = [historical_log.Span(one.next, one.greatest_timestamp_ms / 1000) for one in manifests]
            read = partial(self.unpacked, place, manifests[-1].next)
            found[place] = historical_log.SealedRecords(manifests[-1].next, sure, read, spans)
        return found

    def snapshot(self) -> None:
        """Makes a snapshot of every partition from the sealed records."""
        for topic, partition in self.archive.partitions():
            recovery = topic == RECOVERY
            thin = partial(snapshots.thin_recovery, decode=avro.decode) if recovery else snapshots.thin_events
            same = partial(snapshots.same_entries, decode=avro.decode) if recovery else snapshots.same_registers
            snapshots.make(self.archive, topic, partition, thin, lambda r: decoded(r, avro, cloudevents), same)

    def with_snapshots(self) -> dict[TopicPartition, historical_log.SealedRecords]:
        def snapshot(place: TopicPartition, end: int) -> Any:
            found = snapshots.latest(self.archive, *place, end)
            return found and (found.next, found.records)

        return {place: replace(one, snapshot=partial(snapshot, place)) for place, one in self.archived().items()}

    def unpacked(self, place: TopicPartition, sealed: int, first: int, end: int) -> Iterator[Record]:
        """The archived records from first to end. They are unpacked once, because hundreds of reads of small files would
        take long."""
        if (place, sealed) not in self._unpacked:
            self._unpacked[place, sealed] = list(self.archive.records(*place, end=sealed))
        return (record for record in self._unpacked[place, sealed] if first <= record.offset() < end)

    def then(
        self, text: str, archived: Mapping[TopicPartition, historical_log.SealedRecords] | None = None
    ) -> tuple[Source, str]:
        moment = parse(text, self.clock.time())
        source, cut = as_of(self.source(), moment, self.archived() if archived is None else archived, LAG_S)
        return source, vector(cut)


def live(world: Remembered, drawn: random.Random, jobs: list[str]) -> None:
    """Submits a job, or writes a random fact of one."""
    if not jobs or drawn.random() < 0.2:
        jobs.append(world.started(f"job-{len(jobs)}"))
        return
    job, n = drawn.choice(jobs), drawn.randrange(1, 4)
    choices: list[tuple[Register, Fact]] = [
        (Attempt(n, 1), AttemptStarted("0" * 64)),
        (Running(n), AttemptRunning("pid 1")),
        (Checkpoint(n, drawn.randrange(6)), CheckpointCompleted("/x", 1, "0" * 32)),
        (Ended(n, drawn.choice([Outcome.FAILED, Outcome.STOPPED, Outcome.FINISHED]), "runner"), AttemptEnded()),
    ]  # fmt: skip
    register, fact = drawn.choice(choices)
    world.record(job, register, fact)


def a_life(folder: Path, seed: int, turns: int = 120) -> tuple[Remembered, list[float]]:
    """A ledger after half an hour (120 turns) of events, with log compaction and sealing in between, and the moments
    between the events."""
    drawn, world = random.Random(seed), Remembered(folder)
    jobs: list[str] = []
    moments = []
    for turn in range(turns):
        live(world, drawn, jobs)
        world.step()
        moments.append(world.clock.time())
        world.clock.advance(drawn.uniform(1.0, 30.0))
        if turn % 3 == 0:  # at most 90 s apart; compaction keeps records younger than 100 s
            world.seal()
        if turn % 20 == 0:
            world.snapshot()
        if drawn.random() < 0.3:
            world.clean()
    world.seal()
    world.remember()
    return world, moments


def refolded(world: Remembered, time_s: float) -> dict[str, Any]:
    """The expected entries: a fold of the last record of each key in the full copy up to that time."""
    jobs: dict[str, dict[bytes, tuple[bytes, int]]] = {}
    for (topic, _, offset), record in sorted(world.copy.items()):
        key = record.key() or b""
        if topic == EVENTS and record.timestamp()[1] <= time_s * 1000 and not key.startswith(b"~"):
            job_id, _, name = key.partition(b"/")
            registers = jobs.setdefault(job_id.decode(), {})
            registers.pop(name, None)
            if (value := record.value()) is not None:
                registers[name] = value, offset
    folded = {job: fold(job, registers, lambda r, held: avro.read(r, held[0])) for job, registers in jobs.items()}
    return {job: entry for job, entry in folded.items() if entry is not None}


def republished(world: Remembered, time_s: float) -> dict[str, Any]:
    view = Published(avro.decode)
    for (topic, _, _), record in sorted(world.copy.items()):
        if topic == RECOVERY and record.timestamp()[1] <= time_s * 1000:
            view.apply(record)
    return view.entries


def folded_from(source: Source) -> dict[str, Any]:
    table, found = all_registers(source), {}
    for jobs in table.jobs:
        for job, registers in jobs.items():
            if entry := fold(job.decode(), registers, lambda r, held: avro.read(r, held[0])):
                found[job.decode()] = entry
    return found
