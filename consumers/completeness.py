"""Checks that an archive is complete, without the ledger's code: a Kafka client, a Parquet reader, a list of ids.

    python -m consumers.completeness ACKNOWLEDGED ARCHIVE [BOOTSTRAP [PREFIX]]

ACKNOWLEDGED: a file with the id (ce_id) of every event that Kafka has acknowledged, one per line. ARCHIVE: its folder
or bucket (consumers/sealed.py). The program counts each id in the files that the manifests name. With BOOTSTRAP it also
reads ledger.events. Then every record of the log must be in the archive at its own offset. An id that the log holds
twice (a resend), or held twice before compaction, must be in the archive twice.

Exit code 0: the archive is complete. 1: events or records are missing, duplicate or different; stdout lists them. 2:
something can't be read, or no id was given. Memory: some 200 bytes per record.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from consumers.sealed import Objects, Unreadable, files

TIMEOUT_S = 60.0
LISTED_MAX = 1000
#: The id used for a record of the log whose headers this client can't read. No real id is a single character.
UNKNOWN = "?"


class RecordPosition(NamedTuple):
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"[{self.partition}]@{self.offset}"


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a comparison. missing: events and positions that the archive lacks. doubled: those that it holds
    too often. differing: positions at which the log holds another event. resent: resends in the log. Records that only
    the archive holds are no findings: they were compacted away, or arrived after the log was read."""

    acknowledged: int
    in_log: int | None
    in_archive: int
    resent: int
    missing: tuple[str, ...]
    doubled: tuple[str, ...]
    differing: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return not (self.missing or self.doubled or self.differing)


def compare(
    acknowledged: Sequence[str],
    archived: Sequence[tuple[RecordPosition, str]],
    logged: Mapping[RecordPosition, str] | None = None,
) -> Report:
    """The report on an archive. archived: all records that a manifest names. logged: all records of the log now; None
    if unknown.

    Without the log, each id must be archived exactly once. With the log, it must be archived as often as the log holds
    it, and once if compaction removed it. It may be archived more often if it was resent and compaction removed some
    copies: then all copies are in one partition, and the log holds no more of their positions than it holds copies of
    the id."""
    known = Counter(logged.values()) if logged is not None else Counter[str]()
    found = Counter(event for _, event in archived)
    positions = Counter(position for position, _ in archived)
    said = dict(archived)
    wanted = {event: max(1, known[event]) for event in acknowledged}
    missing = [f"event {event}" for event, count in wanted.items() if found[event] < count]
    often = {event for event, count in wanted.items() if found[event] > count}
    if logged is not None:
        often -= _compacted(often, archived, logged, wanted)
    doubled = [f"event {event}" for event in wanted if event in often]
    doubled += [f"place {position}" for position, count in positions.items() if count > 1]
    differing = []
    if logged is not None:
        missing += [f"place {position}" for position in logged if position not in positions]
        differing = [
            f"place {position}" for position, event in logged.items() if said.get(position, event) != event != UNKNOWN
        ]
    twice = Counter(acknowledged)
    doubled += [f"event {event}, acknowledged {count} times" for event, count in twice.items() if count > 1]
    return Report(
        len(wanted), None if logged is None else len(logged), len(archived), sum(count - 1 for count in known.values()),
        tuple(missing), tuple(doubled), tuple(differing),
    )  # fmt: skip


def _compacted(
    often: Set[str],
    archived: Sequence[tuple[RecordPosition, str]],
    logged: Mapping[RecordPosition, str],
    wanted: Mapping[str, int],
) -> set[str]:
    """Those ids in `often` whose excess copies compaction can explain. Compaction removes a record if its key was
    written again later, and all records of a key are in one partition."""
    positions = defaultdict[str, list[RecordPosition]](list)
    for position, event in archived:
        if event in often:
            positions[event].append(position)
    return {
        event for event, own in positions.items()
        if len({one.partition for one in own}) == 1 and sum(one in logged for one in own) <= wanted[event]
    }  # fmt: skip


# -- reading -----------------------------------------------------------------------------------------------------------


def read_archive(where: str, topic: str) -> Iterator[tuple[RecordPosition, str]]:
    """Position and event id of every sealed record. An object that no manifest names is not part of the archive.

    Raises: Unreadable if an object or the archive can't be read.
    """
    objects = Objects(where)
    for file in files(objects, topic):
        try:
            sealed = pq.ParquetFile(pa.BufferReader(objects.file(file)))
            table = sealed.read(columns=["offset", "headers"], use_threads=False)  # threads don't help with two columns
        except pa.ArrowException as error:
            raise Unreadable(f"{file.name} in {where}: {error}. Run: jobledger audit verify") from error
        for row in table.to_pylist():
            event = next((h["value"] for h in row["headers"] or () if h["name"] == "ce_id"), b"")
            yield RecordPosition(file.partition, row["offset"]), (event or b"").decode(errors="replace")


def read_log(bootstrap: str, topic: str) -> dict[RecordPosition, str]:
    """Maps the position of every committed record, up to the end at the time of the call, to its event id.

    Raises: Unreadable if the log can't be read.
    """
    setup = {"bootstrap.servers": bootstrap, "group.id": "completeness", "enable.auto.commit": False}
    consumer = Consumer({**setup, "isolation.level": "read_committed"})
    try:
        partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        positions = [TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions]
        if not positions:
            raise Unreadable(f"There is no topic {topic} at {bootstrap}.")
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), TIMEOUT_S)[1] for p in partitions}
        consumer.assign(positions)
        found: dict[RecordPosition, str] = {}
        last = time.monotonic()
        while any(at.offset < ends[at.partition] for at in consumer.position(positions) if ends[at.partition]):
            messages = consumer.consume(10_000, 1.0)
            for message in messages:
                if message.error() is not None:
                    raise Unreadable(f"{topic} at {bootstrap}: {message.error()}")
                found[RecordPosition(message.partition() or 0, message.offset() or 0)] = _event(message)
            last = time.monotonic() if messages else last
            if time.monotonic() - last > TIMEOUT_S:
                raise Unreadable(
                    f"{topic} at {bootstrap}: no record came for {TIMEOUT_S:.0f} s before the end was reached."
                )
        return found
    except KafkaException as error:
        raise Unreadable(f"{topic} at {bootstrap}: {error}") from error
    finally:
        consumer.close()


def _event(message: Message) -> str:
    try:  # called directly, `message.headers()` crashes the interpreter in hot code if a header's name is not UTF-8
        headers: Sequence[tuple[str, bytes | None]] = methodcaller("headers")(message) or ()
    except UnicodeDecodeError:
        return UNKNOWN
    return next(((value or b"").decode(errors="replace") for name, value in headers if name == "ce_id"), "")


def main(arguments: list[str]) -> int:
    if not 2 <= len(arguments) <= 4:
        print("usage: python -m consumers.completeness ACKNOWLEDGED ARCHIVE [BOOTSTRAP [PREFIX]]", file=sys.stderr)
        return 2
    ids, where, bootstrap, prefix = [*arguments, *["", ""][len(arguments) - 2 :]]
    topic = f"{prefix}ledger.events"
    try:
        if not (acknowledged := Path(ids).read_text(encoding="utf-8").split()):
            raise Unreadable(
                f"There is no id in {ids}. Write the ids (ce_id) of acknowledged events into it, one per line."
            )
        logged = read_log(bootstrap, topic) if bootstrap else None
        report = compare(acknowledged, list(read_archive(where, topic)), logged)
    except (Unreadable, OSError, UnicodeDecodeError) as error:
        print(error, file=sys.stderr)
        return 2
    tell(report)
    return 0 if report.complete else 1


def tell(report: Report) -> None:
    print(f"acknowledged: {report.acknowledged} events")
    if report.in_log is not None:
        print(f"in the log:     {report.in_log} records, {report.resent} of them resends")
    print(f"in the archive: {report.in_archive} records")
    for name, found in (("missing", report.missing), ("doubled", report.doubled), ("differing", report.differing)):
        print(f"{name}: {len(found)}")
        for one in found[:LISTED_MAX]:
            print(f"  {one}")
        if len(found) > LISTED_MAX:
            print(f"  and {len(found) - LISTED_MAX} more")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
