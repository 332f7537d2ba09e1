"""A copy of topics in Kafka, aborted records included. Copy them before log compaction removes evidence.

librdkafka does not report which records of a read-uncommitted fetch were committed. So each partition is read twice: all
records, and the committed ones. Below the position of the committed reader, a record that only the other reader got was
aborted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicMetadata

from tests.simulation.copies import Copied
from tests.support.waiting import in_time, until

Partition = tuple[str, int]


class Mirror:
    """Copies topics from offset 0 on. `take` reads on, `to_end` reads up to the high watermark. In `with`, a thread reads.

    client: librdkafka settings, with bootstrap.servers.
    """

    def __init__(self, client: Mapping[str, str], topics: Sequence[str]) -> None:
        self._admin = AdminClient(dict(client))
        described = until(lambda: self._described(topics), "the broker knows the topics")
        self.tps: list[Partition] = [(topic, p) for topic in topics for p in sorted(described[topic].partitions)]
        self._all = _Reading(client, self.tps, "read_uncommitted")
        self._committed = _Reading(client, self.tps, "read_committed")
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._follow, name="mirror", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._all.close()
        self._committed.close()

    def take(self, timeout_s: float = 0.1) -> None:
        with self._lock:
            self._all.take(timeout_s)
            self._committed.take(0)

    def to_end(self, timeout_s: float = 30.0) -> Self:
        """Lets both readers read up to the current ends. Raises: AssertionError if an open transaction prevents it."""
        asked = self._admin.list_offsets(
            {
                TopicPartition(*tp): OffsetSpec.latest()  # type: ignore[no-untyped-call]
                for tp in self.tps
            }
        )
        ends = {(at.topic, at.partition): future.result(10).offset for at, future in asked.items()}
        deadline = time.monotonic() + timeout_s
        while behind := [(r.isolation, tp) for r in (self._all, self._committed) for tp in self.tps
                         if r.position[tp] < ends[tp]]:  # fmt: skip
            in_time(time.monotonic() < deadline, f"not within {timeout_s} s read to the end: {behind}")
            self.take()
        return self

    def raw(self, topic: str) -> list[Copied]:
        """All records, each partition in offset order."""
        return self._all.of(topic)

    def committed(self, topic: str) -> list[Copied]:
        return self._committed.of(topic)

    def aborted(self, topic: str) -> list[Copied]:
        """The aborted records, up to the position that both readers have reached."""
        stands = dict(self._committed.position)  # read first: records that come later must not count as aborted
        seen = {(record.partition, record.offset) for record in self.committed(topic)}
        return [
            record
            for record in self.raw(topic)
            if (record.partition, record.offset) not in seen and record.offset < stands[topic, record.partition]
        ]

    def _described(self, topics: Sequence[str]) -> Mapping[str, TopicMetadata] | None:
        """The topics' metadata; None until the broker knows all topics. The controller creates a topic first and informs
        the broker afterwards."""
        found = self._admin.list_topics(timeout=30).topics
        return found if all(topic in found and found[topic].partitions for topic in topics) else None

    def _follow(self) -> None:
        while not self._over.is_set():
            self.take()


class _Reading:
    """One reader of a partition. position: the offset below which everything was read, transaction markers included."""

    def __init__(self, client: Mapping[str, str], tps: Sequence[Partition], isolation: str) -> None:
        self.isolation = isolation
        self.position = dict.fromkeys(tps, 0)
        self._found: dict[Partition, list[Copied]] = {tp: [] for tp in tps}
        self._consumer = Consumer({
            **client, "group.id": "mirror", "isolation.level": isolation, "enable.partition.eof": True,
            "enable.auto.commit": False, "auto.offset.reset": "error", "fetch.wait.max.ms": 50, "log_level": 0,
        })  # fmt: skip
        self._consumer.assign([TopicPartition(*tp, 0) for tp in tps])

    def take(self, timeout_s: float) -> None:
        for message in self._consumer.consume(1, timeout_s) + self._consumer.consume(1000, 0):
            error = message.error()
            tp = str(message.topic()), int(message.partition() or 0)
            offset = int(message.offset() or 0)
            if error is None:
                self._found[tp].append(Copied.of(message))
                self.position[tp] = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self.position[tp] = max(self.position[tp], offset)
            else:
                assert error.retriable() or error.code() < 0, f"{tp}: {error}"

    def of(self, topic: str) -> list[Copied]:
        return [record for tp, found in self._found.items() if tp[0] == topic for record in found]

    def close(self) -> None:
        self._consumer.close()
