"""What `serve archiver` does: records are stored as segments by a stream, and sealed one after the other.

A stream may store what is never sealed, and store it again: only the chain says what is in the archive. So the place where
reading goes on is the head of each chain and nothing else, and whoever is killed at whatever moment leaves at most objects
that nobody names.
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
FAILURES_MAX = 30  # in a row; then the process ends and its supervisor begins anew
CHORE_FAILURES = 3  # in a row; then it is an error, and no more a warning


class PartitionShape(NamedTuple):
    """A partition as it is now. begin, end: the offsets of its first record and beyond its last."""

    topic_id: str
    begin: int
    end: int


class Stored(NamedTuple):
    topic: str
    partition: int
    segment: Segment


class Beginning(NamedTuple):
    """sealed: the offset up to which a partition is sealed. read: from where on there are records to be read, which is
    later if the first ones are gone."""

    sealed: int
    read: int


class SegmentStream(Protocol):
    """Reads partitions from given offsets on, and stores what it reads.

    Raises: TemporaryError, Unreachable: open it again."""

    def open(self, begin: Mapping[TopicPartition, Beginning]) -> None:
        """Called again, it begins anew from there."""

    def take(self, timeout_s: float) -> Sequence[Stored]:
        """What was stored since, of each partition in order and without gaps; [] if nothing was."""

    def close(self) -> None: ...


class Chore(NamedTuple):
    """What an archiver does beside its work. every_s: seconds from the end of one time to the next."""

    name: str
    every_s: float
    do: Callable[[], object]


class Archiver:
    """One archiver. shapes: asks for all partitions that are to be archived. chores: done one after the other, while all is
    well; what goes wrong there is told, and keeps nothing from being archived.

    To be seen from any thread: heads (where each chain ends; {} while it does not know), records, newest_s,
    failing."""

    def __init__(
        self, archive: Archive, stream: SegmentStream, shapes: Callable[[], Mapping[TopicPartition, PartitionShape]],
        clock: Clock, chores: Sequence[Chore] = (),
    ) -> None:  # fmt: skip
        self._archive, self._stream, self._shapes, self._clock = archive, stream, shapes, clock
        self._chores = {chore: clock.monotonic() for chore in chores}  # when each is due
        self.failing: dict[str, int] = {chore.name: 0 for chore in chores}  # how often each failed, in a row
        self.records = Counter[TopicPartition]()  # that this one has sealed
        self.newest_s: dict[TopicPartition, float] = {}  # append time of the newest of them, seconds since the epoch
        self._topic_ids: dict[TopicPartition, str] = {}
        self.heads: dict[TopicPartition, Head] = {}

    def run(self, stopped: Callable[[], bool]) -> None:
        """Until `stopped`. What passes by itself is waited out.

        Raises: LedgerError: a topic was made anew or cut off, a chain can't be read; or nothing goes right for long."""
        failures, begun = 0, dict[TopicPartition, Head]()
        try:
            while not stopped():
                try:
                    if not self.heads:
                        self.begin()
                        if self.heads != begun:  # the archive has gone on, by whomever
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
        """Reads where each chain ends, and lets the stream begin there."""
        shapes = self._shapes()
        heads = {place: self._archive.head(*place) for place in shapes}
        for place, head in heads.items():
            _must_be_the_same(head, shapes[place])
        self._topic_ids = {place: shape.topic_id for place, shape in shapes.items()}
        self._stream.open({p: Beginning(head.next, max(head.next, shapes[p].begin)) for p, head in heads.items()})
        self.heads = heads
        log.info("archiving", begin={f"{topic}[{n}]": head.next for (topic, n), head in heads.items()})

    def step(self) -> int:
        """Seals what was stored; the number of records."""
        count = 0
        for topic, partition, segment in self._stream.take(TAKE_S):
            place = topic, partition
            if segment.first != self.heads[place].next:
                raise Overtaken(f"{topic}[{partition}] was read from {segment.first} on, and is sealed up to "
                                f"{self.heads[place].next}.")  # fmt: skip
            self.heads[place] = self._archive.seal(self.heads[place], self._topic_ids[place], segment)
            self.records[place] += segment.count
            self.newest_s[place] = segment.greatest_timestamp_ms / 1000
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
    """Raises: LedgerError."""
    where = f"{head.topic}[{head.partition}]"
    if head.topic_id and head.topic_id != shape.topic_id:
        raise LedgerError(
            f"{head.topic} was made anew: the archive holds the records of another topic of that name "
            f"(id {head.topic_id}, now {shape.topic_id}).",
            hint="Name another folder, or prefix, for the archive of the new one. If it was to be restored from this "
            "archive: jobledger archive restore --adopt",
        )
    if shape.end < head.next:
        raise LedgerError(
            f"{where} ends at {shape.end}, but is archived up to {head.next}: it was cut off.",
            hint="The brokers have lost acknowledged records; the archive has them. Do not go on before you know why.",
        )


class ReaderSegments:
    """A SegmentStream over an EventLog, in this process: it reads from the beginning and passes over what is sealed.

    For ledgers in memory, and where no Spark is wanted for a small one."""

    def __init__(self, log: EventLog, archive: Archive, decoded: Callable[[Record], Decoded], records_max: int = 10_000):
        self._log, self._archive, self._decoded, self._records_max = log, archive, decoded, records_max
        self._reader: Reader | None = None
        self._next: dict[TopicPartition, int] = {}

    def open(self, begin: Mapping[TopicPartition, Beginning]) -> None:
        self.close()
        self._next = {place: beginning.sealed for place, beginning in begin.items()}
        self._reader = self._log.reader(sorted({topic for topic, _ in begin}))

    def take(self, timeout_s: float) -> Sequence[Stored]:
        if self._reader is None:
            raise TemporaryError("the stream is not open")
        places: dict[TopicPartition, list[Record]] = {}
        for record in self._reader.poll(self._records_max, timeout_s):
            place = record.topic(), record.partition()
            if record.offset() >= self._next.get(place, 0):
                places.setdefault(place, []).append(record)
        return [stored for place, records in places.items() for stored in self._store(place, records)]

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _store(self, place: TopicPartition, records: Sequence[Record]) -> Iterator[Stored]:
        for stored in store_all(self._archive, self._next[place], records, self._decoded):
            self._next[place] = stored.segment.next
            yield stored


def store_all(
    archive: Archive, first: int, records: Sequence[Record] | Iterator[Record], decoded: Callable[[Record], Decoded]
) -> Iterator[Stored]:
    """Stores a run of one partition's records, that begins at or beyond offset `first`, as one segment after the other."""
    for run in runs(records):
        segment = store_segment(archive.store, first, run, decoded)
        yield Stored(run[0].topic(), run[0].partition(), segment)
        first = segment.next
