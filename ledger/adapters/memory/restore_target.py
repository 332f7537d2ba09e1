"""The topics of a log in memory as the target of a restore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledger.adapters.memory.log import MemoryLog
from ledger.errors import LedgerError
from ledger.ports import Event, MemoryRecord, TopicPartition


class MemoryTarget:
    """Implements `archive.restore.restoring.RestoreTarget`. restoring: the topics on which no role may start yet. The
    caller stores this set, as a cluster stores the settings of its topics."""

    def __init__(self, log: MemoryLog, topics: Sequence[str], partitions: int, restoring: set[str]) -> None:
        self._log, self._topics, self._partitions, self.restoring = log, topics, partitions, restoring

    def begin(self) -> Mapping[TopicPartition, int]:
        for topic in self._topics:
            self._log.create(topic, self._partitions)
        ends = {partition.tp: partition.end for topic in self._topics for partition in self._log.partitions_of(topic)}
        if used := sorted({topic for (topic, _), end in ends.items() if end and topic not in self.restoring}):
            raise LedgerError(f"{used[0]} holds records.", hint="Restore into empty topics.")
        self.restoring.update(self._topics)
        return ends

    def write(self, record: MemoryRecord) -> None:
        event = Event(record.topic(), record.partition(), record.key(), record.value(), record._headers)  # type: ignore[arg-type]
        offset = self._log.partitions_of(record.topic())[record.partition()].append(event, record.timestamp()[1])
        if offset != record.offset():
            raise LedgerError(f"Another program writes to {record.topic()}[{record.partition()}].")

    def flush(self) -> None: ...

    def topic_id(self, topic: str) -> str:
        return f"restored {topic}"

    def finish(self) -> None:
        self.restoring.difference_update(self._topics)
