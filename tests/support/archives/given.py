"""Archives for tests: records drawn from a seed, sealed in a store in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from ledger.adapters import avro, cloudevents
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format.chain import Head
from ledger.archive.format.decoding import Decoded, decoded
from ledger.archive.format.segments import store_segment
from ledger.archive.store.archive import Archive
from ledger.core.model.facts import AttemptRunning, GraphRef, JobAdmitted, JobSubmitted
from ledger.core.model.registers import Admitted, Running, Spec, key_of
from ledger.ports import MemoryRecord, Record
from tests.support.archives.unpacked import unpack_once

unpack_once()
TOPIC, TOPIC_ID = "ledger.events", "topic-1"
SPEC = JobSubmitted("job é", "default", "subprocess", GraphRef("graphs/job-1/x", "0" * 64, 10))


def read_out(record: Record) -> Decoded:
    return decoded(record, avro, cloudevents)


def id_of(record: Record) -> str:
    return cloudevents.parse(record.headers()).id


def records(number: int, seed: int = 1, partition: int = 0, begin: int = 0) -> list[MemoryRecord]:
    """Facts, tombstones and garbage, with gaps between the offsets as log compaction leaves them."""
    drawn, offset, found = random.Random(seed), begin, []
    spec, admitted, digest = avro.encode(SPEC), avro.encode(JobAdmitted("0" * 64)), avro.spec_digest(SPEC)
    for count in range(number):
        offset += drawn.choice([1, 1, 1, 2, 5]) if count else 0
        job = f"job-{drawn.randrange(20)}"
        n = drawn.randrange(1, 9)
        key, value = drawn.choice([
            (key_of(job, Running(n)), avro.encode(AttemptRunning(f"pid {offset}"))),
            (key_of(job, Running(n)), None),
            (key_of(job, Spec(digest)), spec),
            (key_of(job, Admitted()), admitted),
            ("garbage", drawn.randbytes(20)),
        ])  # fmt: skip
        headers = cloudevents.headers(
            "AttemptRunning", event_id=f"event-{partition}-{offset}", source="test", subject=job, key=key,
            time_s=1_700_000_000 + offset, sequence=count + 1,
        )  # fmt: skip
        at_ms = 1_700_000_000_000 + offset * 10
        found.append(MemoryRecord(TOPIC, partition, offset, key.encode(), value, headers, at_ms))
    return found


def sealed(archive: Archive, found: Sequence[MemoryRecord], *, each: int = 10) -> list[Head]:
    """Seals records of one partition, `each` to a segment. Returns the heads in sequence."""
    head = archive.head(TOPIC, found[0].partition())
    heads = []
    for i in range(0, len(found), each):
        head = archive.seal(head, TOPIC_ID, store_segment(archive.store, head.next, found[i : i + each], read_out))
        heads.append(head)
    return heads


def an_archive(number: int = 100, each: int = 10, partitions: int = 2) -> tuple[Archive, MemoryObjects, list[Head]]:
    """An archive, its store, and the last head of each partition."""
    store = MemoryObjects()
    archive = Archive(store, "test", lambda: "2026-01-01T00:00:00Z")
    return archive, store, [sealed(archive, records(number, p, p), each=each)[-1] for p in range(partitions)]


class Interrupted(MemoryObjects):
    """A store that calls `before_change` before each change."""

    def before_change(self) -> None:
        raise NotImplementedError

    def create(self, name: str, data: bytes) -> bool:
        self.before_change()
        return super().create(name, data)

    def delete(self, name: str) -> None:
        self.before_change()
        super().delete(name)


class Between(Interrupted):
    """A store where another actor (`other`) runs before each change."""

    def __init__(self) -> None:
        super().__init__()
        self.other: Callable[[], object] = lambda: None
        self._under_way = False

    def before_change(self) -> None:
        if not self._under_way:
            self._under_way = True
            self.other()
            self._under_way = False


class Dying(Interrupted):
    """A store whose user is killed (KeyboardInterrupt) after `left` more changes."""

    left = 10**9

    def before_change(self) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
