"""The work of `serve archiver`: a stream stores records as segments, and the archiver seals one segment after the
other.

A stream may store segments that are never sealed, or store a segment again: only the chain defines the content of the
archive. So reading resumes at the head of each chain, with no other state. A killed archiver leaves at most objects
that no manifest names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from ledger.archive.format.chain import Head
from ledger.archive.format.decoding import Decoded
from ledger.archive.format.segments import Segment, runs, store_segment
from ledger.archive.store.archive import Archive, Overtaken
from ledger.errors import LedgerError, TemporaryError, Unreachable
from ledger.ports import Clock, EventLog, Reader, Record, TopicPartition
from ledger.util.loggers import Logger

log = Logger("ledger.archive")
TAKE_S = 0.5
PAUSE_S = 2.0
FAILURES_MAX = 30  # in a row; then the process ends, and its supervisor restarts it
CHORE_FAILURES = 3  # in a row; from then on, a failure is logged as an error, before as a warning


class PartitionShape(NamedTuple):
    """A partition as it is now. begin: the offset of its first record. end: the offset behind its last record."""

    topic_id: str
    begin: int
    end: int


class Stored(NamedTuple):
    topic: str
    partition: int
    segment: Segment


class Beginning(NamedTuple):
    """Where a stream starts in a partition. sealed: the offset up to which the partition is sealed. read: the first
    offset to read; it is later than `sealed` if the topic no longer has the records in between."""

    sealed: int
    read: int


class SegmentStream(Protocol):
    """Reads partitions from given offsets on, and stores the records as segments.

    Raises: TemporaryError or Unreachable; call `open` again then."""

    def open(self, begin: Mapping[TopicPartition, Beginning]) -> None:
        """Starts reading at these offsets. A second call restarts the stream there."""

    def take(self, timeout_s: float) -> Sequence[Stored]:
        """The segments stored since the last call, in order and without gaps within each partition; [] if none."""

    def close(self) -> None: ...


class Chore(NamedTuple):
    """A periodic task of an archiver. every_s: seconds from the end of one run to the start of the next one."""

    name: str
    every_s: float
    do: Callable[[], object]


class Archiver:
    """One archiver. shapes: returns all partitions to archive, as they are now. chores: run one after the other while
    archiving succeeds. A chore that fails is logged and does not stop the archiving.

    Any thread may read: heads (the head of each chain; {} while unknown), records, newest_s, failing."""

    def __init__(
        self, archive: Archive, stream: SegmentStream, shapes: Callable[[], Mapping[TopicPartition, PartitionShape]],
        clock: Clock, chores: Sequence[Chore] = (),
    ) -> None:  # fmt: skip
        self._archive, self._stream, self._shapes, self._clock = archive, stream, shapes, clock
        self._chores = {chore: clock.monotonic() for chore in chores}  # when each is due
        self.failing: dict[str, int] = {chore.name: 0 for chore in chores}  # how often each failed, in a row
        self.records = Counter[TopicPartition]()  # number of records that this archiver has sealed
        self.newest_s: dict[TopicPartition, float] = {}  # append time of the newest of them, seconds since the epoch
        self._topic_ids: dict[TopicPartition, str] = {}
        self.heads: dict[TopicPartition, Head] = {}

    def run(self, stopped: Callable[[], bool]) -> None:
        """Archives until `stopped`. After a temporary error, it pauses and starts again from the heads of the chains.

        Raises: LedgerError if a topic was created again or truncated, or a chain can't be read; the last temporary
        error after FAILURES_MAX of them in a row."""
        failures, begun = 0, dict[TopicPartition, Head]()
        try:
            while not stopped():
                try:
                    if not self.heads:
                        self.begin()
                        if self.heads != begun:  # the archive has grown since the last start, by any archiver
                            failures, begun = 0, dict(self.heads)
                    self.step()
                    failures = 0
                    self._do_chores()
                except (Overtaken, TemporaryError, Unreachable) as error:
                    failures += 1
                    if isinstance(error, Overtaken):
                        log.info("overtaken", why=str(error), times=failures)
                    else:
                        log.warning("not_archived", why=str(error), times=failures)
                    if failures >= FAILURES_MAX:
                        raise
                    self.heads = {}
                    self._clock.sleep(PAUSE_S)
        finally:
            self._stream.close()

    def begin(self) -> None:
        """Reads the head of each chain, and starts the stream there. Raises: LedgerError as `run`."""
        shapes = self._shapes()
        heads = {tp: self._archive.head(*tp) for tp in shapes}
        for tp, head in heads.items():
            _must_be_the_same(head, shapes[tp])
        self._topic_ids = {tp: shape.topic_id for tp, shape in shapes.items()}
        self._stream.open({p: Beginning(head.next, max(head.next, shapes[p].begin)) for p, head in heads.items()})
        self.heads = heads
        log.info("archiving", begin={f"{topic}[{n}]": head.next for (topic, n), head in heads.items()})

    def step(self) -> int:
        """Seals the segments that the stream has stored. Returns the number of records."""
        count = 0
        for topic, partition, segment in self._stream.take(TAKE_S):
            tp = topic, partition
            if segment.first != self.heads[tp].next:
                raise Overtaken(f"{topic}[{partition}] was read from offset {segment.first} on, but is sealed up to "
                                f"{self.heads[tp].next}.")  # fmt: skip
            self.heads[tp] = self._archive.seal(self.heads[tp], self._topic_ids[tp], segment)
            self.records[tp] += segment.count
            self.newest_s[tp] = segment.greatest_timestamp_ms / 1000
            count += segment.count
        if count:
            log.info("sealed", records=count)
        return count

    def _do_chores(self) -> None:
        for chore, due in self._chores.items():
            if self._clock.monotonic() < due:
                continue
            times = self.failing[chore.name]
            try:
                chore.do()
            except LedgerError as error:
                times = self.failing[chore.name] = times + 1
                tell = log.error if times >= CHORE_FAILURES else log.warning
                tell("chore_failed", chore=chore.name, times=times, why=str(error))
            else:
                self.failing[chore.name] = 0
                if times:
                    log.warning("chore_done_again", chore=chore.name, times=times)
            self._chores[chore] = self._clock.monotonic() + chore.every_s


def _must_be_the_same(head: Head, shape: PartitionShape) -> None:
    """Raises: LedgerError if the partition is not the one that was archived, or is shorter than the archive."""
    where = f"{head.topic}[{head.partition}]"
    if head.topic_id and head.topic_id != shape.topic_id:
        raise LedgerError(
            f"{head.topic} was created again: the archive holds the records of another topic of that name "
            f"(id {head.topic_id}, now {shape.topic_id}).",
            hint="Use another folder or prefix for the archive of the new topic. If you meant to restore the topic from "
            "this archive: jobledger archive restore --adopt",
        )
    if shape.end < head.next:
        raise LedgerError(
            f"{where} ends at {shape.end}, but is archived up to {head.next}: it was truncated.",
            hint="The brokers have lost acknowledged records; the archive has them. Find the cause before you go on.",
        )


class ReaderSegments:
    """A SegmentStream over an EventLog, in this process. It reads the log from offset 0 and skips the sealed records.

    For ledgers in memory, and for small ledgers without Spark.
    """

    def __init__(self, log: EventLog, archive: Archive, decoded: Callable[[Record], Decoded], records_max: int = 10_000):
        self._log, self._archive, self._decoded, self._records_max = log, archive, decoded, records_max
        self._reader: Reader | None = None
        self._next: dict[TopicPartition, int] = {}

    def open(self, begin: Mapping[TopicPartition, Beginning]) -> None:
        self.close()
        self._next = {tp: beginning.sealed for tp, beginning in begin.items()}
        self._reader = self._log.reader(sorted({topic for topic, _ in begin}))

    def take(self, timeout_s: float) -> Sequence[Stored]:
        if self._reader is None:
            raise TemporaryError("the stream is not open")
        tps: dict[TopicPartition, list[Record]] = {}
        for record in self._reader.poll(self._records_max, timeout_s):
            tp = record.topic(), record.partition()
            if record.offset() >= self._next.get(tp, 0):
                tps.setdefault(tp, []).append(record)
        return [stored for tp, records in tps.items() for stored in self._store(tp, records)]

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _store(self, tp: TopicPartition, records: Sequence[Record]) -> Iterator[Stored]:
        for stored in store_all(self._archive, self._next[tp], records, self._decoded):
            self._next[tp] = stored.segment.next
            yield stored


def store_all(
    archive: Archive, first: int, records: Sequence[Record] | Iterator[Record], decoded: Callable[[Record], Decoded]
) -> Iterator[Stored]:
    """Stores records of one partition as segments, and yields them in order. first: where the first segment begins; the
    records begin there or later."""
    for run in runs(records):
        segment = store_segment(archive.store, first, run, decoded)
        yield Stored(run[0].topic(), run[0].partition(), segment)
        first = segment.next
