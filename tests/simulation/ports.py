"""The ports of one instance. Every call has a point before or after it, where the stage may pause the instance.

A pause comes *after* the answer to a query (the lease was valid, the log ended here) and *before* an action. So every
answer may be outdated when the instance acts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.leadership import MemoryElection, MemoryLeadership
from ledger.errors import Fenced, TemporaryError
from ledger.ports import NOWHERE, Event, EventLog, Marks, Reader, Record, Writer
from tests.simulation.baton import Stage
from tests.simulation.evidence import Evidence


class WrongClock:
    """The clock of one process. Its wall clock is wrong by some seconds, its monotonic clock is right."""

    def __init__(self, clock: ManualClock, off_s: float = 0.0) -> None:
        self._clock, self.off_s = clock, off_s

    def time(self) -> float:
        return self._clock.time() + self.off_s

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


class Lease(MemoryLeadership):
    """A lease whose end may go unnoticed. late: the lease has ended, but the instance does not know it yet (incident
    001)."""

    def __init__(self, election: MemoryElection, who: str, stage: Stage, evidence: Evidence, role: str) -> None:
        super().__init__(election, who=who)
        self.election, self.who, self.late = election, who, False
        self._stage, self._evidence, self._role = stage, evidence, role

    def acquire(self) -> bool:
        leads = super().acquire()
        self._stage.hears("acquire", leads)
        if leads:
            self._evidence.lease(self._role, self.who, True)
            self._stage.point("acquired")
        return leads

    def valid(self) -> bool:
        leads = self.late or super().valid()
        if not leads:
            self._evidence.lease(self._role, self.who, False)
        self._stage.hears("valid", leads)
        self._stage.point("valid")
        return leads

    def release(self) -> None:
        self.late = False
        self._evidence.lease(self._role, self.who, False)
        super().release()

    def believes(self) -> bool:
        return self.late or self.election.holder is self


class SimLog:
    def __init__(self, log: EventLog, stage: Stage, evidence: Evidence, who: str) -> None:
        self._log, self._stage, self._evidence, self._who = log, stage, evidence, who

    def reader(self, topics: Sequence[str], partition: int | None = None, begin: Marks = NOWHERE) -> SimReader:
        return SimReader(self._log.reader(topics, partition, begin), self._stage)

    def writer(self, transactional_id: str) -> SimWriter:
        return SimWriter(self._log.writer(transactional_id), self._stage, self._evidence, self._who)

    def partitions(self, topic: str) -> int:
        return self._log.partitions(topic)

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        return self._log.topic_ids(topics)


class SimReader:
    def __init__(self, reader: Reader, stage: Stage) -> None:
        self._reader, self._stage = reader, stage

    def poll(self, records_max: int, timeout_s: float) -> Sequence[Record]:
        self._stage.point("poll")
        found = self._reader.poll(records_max, 0)
        self._stage.hears(_seen(found), *self._reader.position().values())
        if not found:
            self._stage.wait("idle")
        return found

    def position(self) -> Marks:
        return self._reader.position()

    def high_watermarks(self) -> Marks:
        marks = self._reader.high_watermarks()
        self._stage.hears("end", *marks.values())
        self._stage.point("high_watermarks")
        return marks

    def close(self) -> None:
        self._reader.close()


class SimWriter:
    def __init__(self, writer: Writer, stage: Stage, evidence: Evidence, who: str) -> None:
        self._writer, self._stage, self._evidence, self._who = writer, stage, evidence, who

    def init(self) -> None:
        self._stage.point("init")
        self._writer.init()
        self._stage.point("inited")

    def commit(self, events: Sequence[Event], offsets: Marks | None = None) -> list[int]:
        self._stage.point(_kind_of(events))
        try:
            written = self._writer.commit(events, offsets)
            self._stage.hears("written", *written)
        except Fenced:
            self._stage.hears("fenced")
            self._evidence.told("info", self._who, events)
            raise
        except TemporaryError:
            self._evidence.told("fail", self._who, events)
            raise
        self._evidence.told("ok", self._who, events, written)
        return written

    def close(self) -> None:
        self._writer.close()


def _seen(records: Sequence[Record]) -> int:
    return hash(tuple((r.topic(), r.partition(), r.offset(), r.key(), r.value()) for r in records))


def _kind_of(events: Sequence[Event]) -> str:
    """The point before a transaction: "claim", "noop" (it only ends an earlier open transaction), or "commit"."""
    if any(event.key.startswith(b"~claim") for event in events):
        return "claim"
    return "noop" if all(event.key == b"~noop" for event in events) else "commit"


class SimStream:
    """A RecoveryStream that may fail."""

    def __init__(self, log: EventLog, topic: str, stage: Stage) -> None:
        self._log, self._topic, self._stage = log, topic, stage
        self.broken = False
        self._reader = log.reader([topic])

    def open(self, epoch: int) -> None:
        self._reader = self._log.reader([self._topic])
        self.broken = False

    def take(self, timeout_s: float) -> Sequence[Any]:
        self._stage.point("take")
        if self.broken:
            raise TemporaryError("the stream broke")
        found = self._reader.poll(10_000, 0)
        self._stage.hears(_seen(found))
        return found

    def close(self) -> None:
        """Closes the stream, even if it was never opened."""


class SimRunner:
    """A runner as the reconciler's driver sees it, with a point after `observe`."""

    def __init__(self, runner: Any, stage: Stage) -> None:
        self._runner, self._stage = runner, stage

    def observe(self) -> Any:
        answer = self._runner.observe()
        self._stage.hears("observed", *answer)
        self._stage.point("observed")
        return answer

    def only(self, instance: str) -> SimRunner:
        return SimRunner(self._runner.only(instance), self._stage)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)
