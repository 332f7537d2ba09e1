"""An archive as a whole: the chains in a store, sealing what is stored, and reading it back.

No election and no lock: a manifest is created under the number that follows its predecessor's, and a store lets only one
create it. Of two archivers at work the slower one finds its number taken, and begins again from the new head (decision 25).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from hashlib import sha256

from ledger.archive import parquet
from ledger.archive.objects import ObjectStore
from ledger.archive.segments import Segment, manifest_name, manifests_prefix
from ledger.core.chain import Head, Manifest, decode, head_of
from ledger.errors import LedgerError
from ledger.ports import MemoryRecord


class Overtaken(LedgerError):
    """Another archiver has sealed this place: begin again from the head that is there now. Nothing is lost."""


class Archive:
    """The chains of manifests in a store. written_by, now: who seals, and the time (RFC 3339) that a manifest tells."""

    def __init__(self, store: ObjectStore, written_by: str = "", now: Callable[[], str] = str) -> None:
        self.store, self._written_by, self._now = store, written_by, now

    def places(self) -> list[tuple[str, int]]:
        """(topic, partition) of every chain, in order."""
        parts = (name.split("/") for name in self.store.names("manifests/"))
        return sorted({(part[1], int(part[2])) for part in parts if len(part) == 4 and part[2].isdecimal()})

    def head(self, topic: str, partition: int) -> Head:
        """Where sealing goes on. Raises: LedgerError if the last manifest can't be read."""
        names = self.store.names(manifests_prefix(topic, partition))
        return head_of(self._manifest(names[-1])) if names else Head(topic, partition)

    def manifests(self, topic: str, partition: int) -> Iterator[Manifest]:
        """In sequence. Raises: LedgerError at one that can't be read."""
        return map(self._manifest, self.store.names(manifests_prefix(topic, partition)))

    def seal(self, head: Head, topic_id: str, segment: Segment) -> Head:
        """Makes what was stored part of the archive; the new head. Sealing the same a second time changes nothing.

        Raises: Overtaken. LedgerError if the topic is not the one whose records lie below."""
        if head.topic_id and head.topic_id != topic_id:
            raise LedgerError(
                f"{head.topic} was made anew: the archive holds records of the topic with the id {head.topic_id}, and that "
                f"of the topic there now is {topic_id}.", hint="Name another folder or prefix for its archive.",
            )  # fmt: skip
        manifest = Manifest(
            topic=head.topic, topic_id=topic_id, partition=head.partition, sequence=head.sequence + 1,
            previous=head.sha256, missing=segment.next - segment.first - segment.count,
            written_by=self._written_by, written_at=self._now(), **asdict(segment),
        )  # fmt: skip
        name = manifest_name(head.topic, head.partition, manifest.sequence)
        if not self.store.create(name, manifest.encode()):
            found = self._manifest(name)
            if {**asdict(found), **asdict(segment)} != asdict(found) or found.previous != head.sha256:
                raise Overtaken(f"{name} was sealed by {found.written_by or 'another archiver'}.")
            manifest = found  # our own, whose answer was lost; or that of another who had stored the very same
        return head_of(manifest)

    def records(self, topic: str, partition: int, first: int = 0, end: int | None = None) -> Iterator[MemoryRecord]:
        """Those at offsets from `first` up to, not including, `end`, in order.

        Raises: LedgerError if an object is not what its manifest says."""
        for manifest in self.manifests(topic, partition):
            if manifest.next <= first or (end is not None and manifest.first >= end):
                continue
            for record in self.segment(manifest):
                if record.offset() >= first and (end is None or record.offset() < end):
                    yield record

    def segment(self, manifest: Manifest) -> list[MemoryRecord]:
        """The records that one manifest seals. Raises: as `records`."""
        return parquet.read(self.data(manifest), manifest.topic, manifest.partition)

    def data(self, manifest: Manifest) -> bytes:
        """The object itself, as it was sealed. Raises: as `records`."""
        data = self.store.read(manifest.records)
        if data is None or sha256(data).hexdigest() != manifest.records_sha256:
            wrong = "is missing" if data is None else "is not what its manifest says"
            raise LedgerError(f"{manifest.records} {wrong}.", hint="Run: jobledger audit verify")
        return data

    def _manifest(self, name: str) -> Manifest:
        try:
            return decode(self.store.read(name) or b"")
        except ValueError as error:
            raise LedgerError(f"{name} can't be read: {error}", hint="Run: jobledger audit verify") from error
