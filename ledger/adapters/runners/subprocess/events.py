"""Makes and stores the agent's events. An event is stored before it is sent, and each resend has the same bytes.

`jobs/<job_id>/events/<number>.json` holds the key, headers and value of the record that is or will be in the log. A
file is deleted only after its event is acknowledged *and* the state that must outlive the file is durable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ledger.adapters import avro, cloudevents
from ledger.adapters.runners.plain import event_from_json, event_to_json
from ledger.adapters.runners.subprocess.supervisor.files import numbered, read_json, to_json, write_durably
from ledger.core.model.facts import CheckpointCompleted, Fact
from ledger.core.model.registers import Ended, Register, key_of, parse_key, partition_of
from ledger.ports import Clock, RunnerEvent
from ledger.util.files import make_folder


@dataclass
class StoredEvent:
    """An event on disk. number: of its file. register: parsed from the key of the event."""

    number: int
    path: Path
    event: RunnerEvent
    register: Register
    acknowledged: bool = False


class Sequences:
    """The last `ce_sequence` of this agent in each partition: durable, without gaps or duplicates.

    `take` holds the lock until the file of the event is written. If the write fails, the next event gets the same
    number. Numbers in event files take precedence; the saved numbers matter once the event files are deleted."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        saved = read_json(str(path)) or {}
        self._last = {int(partition): int(last) for partition, last in saved.items()}
        self._saved = dict(self._last)

    def seen(self, partition: int, sequence: int) -> None:
        with self._lock:
            self._last[partition] = max(self._last.get(partition, 0), sequence)

    def take(self, partition: int, write: Callable[[int], None]) -> None:
        with self._lock:
            sequence = self._last.get(partition, 0) + 1
            write(sequence)
            self._last[partition] = sequence

    def save(self) -> None:
        """Makes the numbers durable. Call this method before event files are deleted."""
        with self._lock:
            if self._last != self._saved:
                write_durably(str(self._path), to_json({str(p): last for p, last in self._last.items()}))
                self._saved = dict(self._last)


@dataclass(frozen=True)
class EventMaker:
    """Makes the agent's events. writer: `agent-<id>`, the writer in the keys of the events. It is also their source, so
    its sequence numbers never start again."""

    writer: str
    partitions: int
    clock: Clock
    new_id: Callable[[], str]
    sequences: Sequences

    def make(self, job_id: str, register: Register, fact: Fact, time_s: float | None, sequence: int) -> RunnerEvent:
        key = key_of(job_id, register)
        headers = cloudevents.headers(
            type(fact).__name__, event_id=self.new_id(), source=f"/ledger/agent/{self.writer}", subject=job_id, key=key,
            time_s=self.clock.time() if time_s is None else time_s, sequence=sequence, actor=self.writer,
        )  # fmt: skip
        return RunnerEvent(key.encode(), headers, avro.encode(fact))

    def checkpoint(self, event: RunnerEvent) -> CheckpointCompleted:
        """The checkpoint fact in an event that this runner agent made. Raises: ValueError if the event is damaged."""
        return avro.decode(CheckpointCompleted, event.value or b"")


class JobEvents:
    """The events of one job that are on disk, in the order of their creation. Guarded by the job's lock."""

    def __init__(self, job_id: str, folder: Path, maker: EventMaker) -> None:
        self.job_id, self.folder, self._maker = job_id, folder, maker
        self.events: list[StoredEvent] = []
        self._next = 1

    def load(self) -> None:
        """Loads the events of the job from their files. Raises: OSError, ValueError, KeyError, TypeError if a file is
        damaged."""
        for number, path in numbered(str(self.folder)):
            stored = self._stored(number, Path(path), event_from_json(read_json(path) or {}))
            self._maker.sequences.seen(*self._partition_and_sequence(stored.event))
            self.events.append(stored)
        self._next = max((stored.number for stored in self.events), default=0) + 1

    def add(self, register: Register, fact: Fact, time_s: float | None = None) -> StoredEvent:
        """Persists and returns a new event, which never changes afterwards. time_s: when the fact happened, in seconds
        since the epoch; None = now. Raises: OSError if the event can't be written."""
        if not self.folder.is_dir():
            make_folder(self.folder)
        path = self.folder / f"{self._next:012d}.json"
        made: list[RunnerEvent] = []

        def write(sequence: int) -> None:
            made.append(self._maker.make(self.job_id, register, fact, time_s, sequence))
            write_durably(str(path), to_json(event_to_json(made[0])))

        self._maker.sequences.take(partition_of(self.job_id, self._maker.partitions), write)
        stored = self._stored(self._next, path, made[0])
        self._next += 1
        self.events.append(stored)
        return stored

    def unacknowledged(self) -> list[RunnerEvent]:
        return [stored.event for stored in self.events if not stored.acknowledged]

    def sendable(self) -> list[RunnerEvent]:
        """The events that may be sent now. The end of an attempt waits until all earlier events are in the log, because
        readers treat the end as the last record of its attempt."""
        events: list[RunnerEvent] = []
        for stored in self.events:
            if stored.acknowledged:
                continue
            if isinstance(stored.register, Ended):
                return events or [stored.event]
            events.append(stored.event)
        return events

    def drop_acknowledged(self) -> None:
        """Deletes acknowledged events. Call it only after the attempts' progress and the sequences are saved."""
        for stored in self.events:
            if stored.acknowledged:
                stored.path.unlink(missing_ok=True)
        self.events = [stored for stored in self.events if not stored.acknowledged]

    def _stored(self, number: int, path: Path, event: RunnerEvent) -> StoredEvent:
        named = parse_key(event.key)
        if named is None or named[0] != self.job_id:
            raise ValueError(f"{path} holds an event of another job: {event.key!r}")
        return StoredEvent(number, path, event, named[1])

    def _partition_and_sequence(self, event: RunnerEvent) -> tuple[int, int]:
        sequence = cloudevents.parse(event.headers).sequence
        return partition_of(self.job_id, self._maker.partitions), sequence or 0
