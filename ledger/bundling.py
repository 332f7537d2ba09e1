"""A bundle: the ledger up to a moment in one file, whole or of some jobs, that every reading verb opens without servers.

It is a zip that holds an archive (the same objects, with a chain of its own) and `bundle.json`, which says what it is.
Decision 32.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from ledger.archive.archive import Archive
from ledger.archive.decoding import Decoded
from ledger.archive.objects import ObjectStore
from ledger.archive.segments import runs, store_segment
from ledger.core.moment import Moment, Places, parse, vector
from ledger.errors import UsageError
from ledger.past import Archived, PastLog, Sealed, as_of
from ledger.ports import EventLog, Marks, Reader, Record, TopicPartition, Writer
from ledger.reading import Source, Tail

ABOUT = "bundle.json"
FORMAT = 1
TOPIC_ID = "bundle"
RESERVED = b"~"  # keys of the ledger's own; no job id begins so


@dataclass(frozen=True, slots=True)
class About:
    """What a bundle says of itself. made_at: RFC 3339. jobs: ids, empty = all. cut: as --as-of takes it. partitions: of
    either topic. sure_from_s: `topic[partition]` -> the oldest moment (seconds since the epoch) of which it holds all.
    config: the settings, without secrets. versions: name -> version, of what made it. format: of this file."""

    made_at: str
    made_by: str
    reason: str
    jobs: tuple[str, ...]
    events: str
    recovery: str
    rejects: str
    partitions: Mapping[str, int]
    keep: int
    cut: str
    sure_from_s: Mapping[str, float]
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def made_at_s(self) -> float:
        """Seconds since the epoch: `15m` of a bundle is that long before it was made. Raises: ValueError."""
        return datetime.fromisoformat(self.made_at).timestamp()

    def encode(self) -> bytes:
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode()


@dataclass(frozen=True, slots=True)
class Why:
    """What is not in the log: fields as those of About."""

    made_at: str
    made_by: str
    reason: str
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def write(
    store: ObjectStore, then: Source, cut: Places, jobs: Collection[str], why: Why, decoded: Callable[[Record], Decoded],
    archived: Archived, lag_s: Mapping[str, float], now_s: float,
) -> int:  # fmt: skip
    """Puts the ledger as it was (`past.as_of` gives `then` and `cut`) into an empty store; the number of records.
    archived, lag_s: as `past.as_of` takes them. now_s: seconds since the epoch.

    Raises: as reading; LedgerError."""
    archive = Archive(store, why.made_by, lambda: why.made_at)
    topics = {"events": then.topics.events, "recovery": then.topics.recovery}
    written, sure = 0, {}
    for (short, partition), _ in sorted(cut.items()):
        place = topics[short], partition
        seen = _Seen(archived.get(place), now_s - lag_s[place[0]])
        head = archive.head(*place)
        for run in runs(_wanted(seen.of(_records(then, *place)), set(jobs))):
            head = archive.seal(head, TOPIC_ID, store_segment(store, head.next, run, decoded))
            written += len(run)
        sure[f"{short}[{partition}]"] = seen.sure_from_s
    about = About(
        why.made_at, why.made_by, why.reason, tuple(jobs), topics["events"], topics["recovery"], then.topics.rejects,
        keep=then.keep,
        partitions={short: then.log.partitions(topic) for short, topic in topics.items()}, cut=vector(cut),
        sure_from_s=sure, config=why.config, versions=why.versions,
    )  # fmt: skip
    store.create(ABOUT, about.encode())
    return written


@dataclass
class _Seen:
    """The oldest moment of which a partition is known to be whole, once all its records went by. Of what compaction may
    have removed beyond the archive nobody knows."""

    sealed: Sealed | None
    by_topic_s: float
    sure_from_s: float = 0.0

    def of(self, records: Iterator[Record]) -> Iterator[Record]:
        begin = self.sealed.next if self.sealed else 0
        self.sure_from_s = self.sealed.sure_from_s if self.sealed else self.by_topic_s
        for record in records:
            if record.offset() >= begin and record.timestamp()[1] / 1000 < self.by_topic_s:
                self.sure_from_s = max(self.sure_from_s, self.by_topic_s)
            yield record


def _records(source: Source, topic: str, partition: int) -> Iterator[Record]:
    with Tail(source, [topic], partition) as tail:
        for records in tail.to_end():
            yield from (record for record in records if record.partition() == partition)


def _wanted(records: Iterator[Record], jobs: Collection[str]) -> Iterator[Record]:
    """Those of the jobs (none named: of all), and the ledger's own (claims, progress), without which no entry counts."""
    for record in records:
        key = record.key() or b""
        job_id = key.partition(b"/")[0].decode("utf-8", "replace")
        if not jobs or job_id in jobs or key.startswith(RESERVED):
            yield record


# -- opening -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bundle:
    """An open one. source: the ledger as the bundle has it."""

    about: About
    archive: Archive
    source: Source
    archived: Archived

    def as_of(self, moment: Moment) -> tuple[Source, Places]:
        """Raises: as `past.as_of`."""
        return as_of(self.source, moment, self.archived, {self.about.events: 0.0, self.about.recovery: 0.0})


def read(store: ObjectStore, source: Callable[[EventLog, About], Source]) -> Bundle:
    """source: makes what reads a log with the topics of a bundle. Raises: UsageError if it is no bundle of ours."""
    about = decode(store.read(ABOUT))
    archive = Archive(store)
    cut = parse(about.cut, 0.0).last or {}
    topics = {"events": about.events, "recovery": about.recovery}
    archived, ends = {}, {}
    for (short, partition), last in cut.items():
        place = topics[short], partition
        sure_from_s = about.sure_from_s.get(f"{short}[{partition}]", float("inf"))
        archived[place] = Sealed(last + 1, sure_from_s, partial(archive.records, *place))
        ends[place] = last + 1
    counts = {topics[short]: number for short, number in about.partitions.items()}
    return Bundle(about, archive, source(PastLog(Ended(ends, counts), {}, archived), about), archived)


def decode(data: bytes | None) -> About:
    """Raises: UsageError."""
    if data is None:
        raise UsageError(f"This is no bundle: there is no {ABOUT} in it.", hint="Made by: jobledger audit bundle")
    try:
        values = json.loads(data)
        if (number := values.get("format")) != FORMAT:
            raise UsageError(f"This bundle has the format {number!r}; this version reads {FORMAT}.",
                             hint="Use the version that made it: bundle.json tells which.")  # fmt: skip
        values["jobs"] = tuple(values["jobs"])
        about = About(**values)
        parse(about.cut, about.made_at_s)
        if set(about.partitions) != {"events", "recovery"}:
            raise ValueError("partitions of events and recovery are missing")
        return about
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{ABOUT} of this bundle can't be read: {error}.") from error


class Ended:
    """An EventLog in which nothing is left to come. ends: place -> its end. counts: topic -> partitions."""

    def __init__(self, ends: Mapping[TopicPartition, int], counts: Mapping[str, int]) -> None:
        self._ends, self._counts = ends, counts

    def reader(self, topics: Sequence[str], partition: int | None = None) -> Reader:
        if unknown := [topic for topic in topics if topic not in self._counts]:
            raise UsageError(f"A bundle holds no {unknown[0]}.")
        return _EndedReader({p: e for p, e in self._ends.items() if p[0] in topics and partition in (None, p[1])})

    def writer(self, transactional_id: str) -> Writer:  # noqa: ARG002
        raise UsageError("A bundle can't be written.")

    def partitions(self, topic: str) -> int:
        return self._counts[topic]


class _EndedReader:
    def __init__(self, ends: Marks) -> None:
        self._ends = dict(ends)

    def poll(self, records_max: int, timeout_s: float) -> Sequence[Record]:  # noqa: ARG002
        return []

    def position(self) -> Marks:
        return dict(self._ends)

    def high_watermarks(self) -> Marks:
        return dict(self._ends)

    def close(self) -> None: ...
