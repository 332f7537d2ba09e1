"""An archive as a whole: the chains in a store, sealing of stored records, and reading.

It needs no election and no lock. A manifest is created under the number after its predecessor's, and a store lets only
one writer create an object. If two archivers run, the slower one finds its number taken and starts again from the new
head (decision 25).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from ledger.archive.format import merkle, notes, parquet
from ledger.archive.format.chain import NOTE, Head, Manifest, decode, head_of
from ledger.archive.format.objects import ObjectStore
from ledger.archive.format.removals import EXPIRED, Gone
from ledger.archive.format.segments import Leaf, Segment, manifest_name, unpack
from ledger.archive.store import chains
from ledger.archive.store.chains import Chain, Missing, Named
from ledger.errors import LedgerError, TemporaryError
from ledger.ports import MemoryRecord


class Overtaken(LedgerError):
    """Another writer has sealed a manifest under the same number. Start again from the current head; nothing is
    lost."""


class RecordFile(NamedTuple):
    """A Parquet file of one partition's records, and its SHA-256."""

    topic: str
    partition: int
    name: str
    sha256: str


class Archive:
    """The chains of manifests in a store. For new manifests, written_by is the writer's name, and now returns the
    current time (RFC 3339)."""

    def __init__(self, store: ObjectStore, written_by: str = "", now: Callable[[], str] = str) -> None:
        self.store, self._written_by, self._now = store, written_by, now
        self._chains: dict[tuple[str, int], Chain] = {}
        self._opened: tuple[str, parquet.Opened] | None = None  # the joined object that was read last

    def partitions(self) -> list[tuple[str, int]]:
        """(topic, partition) of every chain, in order."""
        parts = (name.split("/") for name in self.store.names("manifests/"))
        return sorted({(part[1], int(part[2])) for part in parts if len(part) == 4 and part[2].isdecimal()})

    def head(self, topic: str, partition: int) -> Head:
        """The head of the chain, where sealing continues. Raises: LedgerError if the last manifest can't be read, or
        belongs to another partition or number."""
        numbers = chains.numbers(self.store, topic, partition)
        if not numbers:
            return Head(topic, partition)
        name = manifest_name(topic, partition, numbers[-1])
        head = head_of(self._manifest(name))
        if head[:3] != (topic, partition, numbers[-1]):
            raise LedgerError(f"{name} holds manifest {head.sequence} of {head.topic}[{head.partition}] instead.",
                              hint="Run: jobledger audit verify")  # fmt: skip
        return head

    def manifests(self, topic: str, partition: int) -> Iterator[Manifest]:
        """Yields the manifests of a chain, in sequence. Raises: LedgerError at one that can't be read."""
        for sequence, manifest in enumerate(self.chain(topic, partition).manifests):
            yield manifest or self._manifest(manifest_name(topic, partition, sequence))

    def chain(self, topic: str, partition: int) -> Chain:
        """The chain of a partition, as the store holds it now."""
        chain = self._chains[topic, partition] = chains.load(self.store, topic, partition)
        return chain

    def seal(self, head: Head, topic_id: str, segment: Segment) -> Head:
        """Makes a stored segment part of the archive. Returns the new head. Sealing the same segment again changes
        nothing.

        Raises: Overtaken. LedgerError if the chain belongs to a topic with another id."""
        if head.topic_id and head.topic_id != topic_id:
            raise LedgerError(
                f"{head.topic} was created again: the archive holds records of the topic with the id {head.topic_id}, and "
                f"the current topic has the id {topic_id}.", hint="Use another folder or prefix for its archive.",
            )  # fmt: skip
        manifest = Manifest(
            topic=head.topic, topic_id=topic_id, partition=head.partition, sequence=head.sequence + 1,
            previous=head.sha256, missing=segment.next - segment.first - segment.count,
            written_by=self._written_by, written_at=self._now(), **asdict(segment),
        )  # fmt: skip
        while (found := self._seal(manifest)) is not None:
            if {**asdict(found), **asdict(segment)} == asdict(found) and found.previous == manifest.previous:
                return head_of(found)  # our own manifest (the store's answer was lost), or another's of the same segment
            beside = found.is_note and (found.topic_id, found.next) == (topic_id, manifest.first)
            if not beside or found.previous != manifest.previous:
                raise Overtaken(f"{manifest_name(*head[:2], found.sequence)} was sealed by "
                                f"{found.written_by or 'another archiver'}.")  # fmt: skip
            manifest = replace(manifest, sequence=found.sequence + 1, previous=found.sha256)
        return head_of(manifest)

    def note(self, head: Head, kind: str, body: Mapping[str, Any], *, topic_id: str = "", next_: int | None = None) -> Head:
        """Seals a note (`notes`) after `head`. Returns the new head. topic_id, next_: for a chain that continues with
        another topic, or at a later offset.

        Raises: Overtaken."""
        name, digest = notes.store_note(self.store, head.topic, head.partition, kind, body)
        end = head.next if next_ is None else next_
        manifest = Manifest(
            topic=head.topic, topic_id=topic_id or head.topic_id, partition=head.partition, sequence=head.sequence + 1,
            previous=head.sha256, first=head.next, next=end, count=0, missing=end - head.next, root=merkle.root([]).hex(),
            least_timestamp_ms=0, greatest_timestamp_ms=0, records=name, records_sha256=digest, leaves="",
            leaves_sha256="", written_by=self._written_by, written_at=self._now(), format=NOTE,
        )  # fmt: skip
        found = self._seal(manifest)
        if found is not None and (not found.is_note or found.records_sha256 != digest or found.previous != head.sha256):
            raise Overtaken(
                f"{manifest_name(*head[:2], found.sequence)} was sealed by {found.written_by or 'another writer'}."
            )
        return head_of(found or manifest)

    def _seal(self, manifest: Manifest) -> Manifest | None:
        """Stores a manifest. None = done; else the manifest that already has this number."""
        name = manifest_name(manifest.topic, manifest.partition, manifest.sequence)
        return None if self.store.create(name, manifest.encode()) else self._manifest(name)

    def records(self, topic: str, partition: int, first: int = 0, end: int | None = None) -> Iterator[MemoryRecord]:
        """Yields the records at offsets from `first` up to, not including, `end`, in order.

        Raises: LedgerError if an object does not match its manifest."""
        for manifest in self.manifests(topic, partition):
            if manifest.next <= first or (end is not None and manifest.first >= end):
                continue
            for record in self.segment(manifest):
                if record.offset() >= first and (end is None or record.offset() < end):
                    yield record

    def segment(self, manifest: Manifest) -> list[MemoryRecord]:
        """The records that one manifest seals. Raises: as `records`."""
        if manifest.is_note:
            return []
        tp = manifest.topic, manifest.partition
        known = self._chains.get(tp)
        opened = self._open(known, manifest) if known is not None else None
        if opened is None:  # it may have been joined or rewritten since the chain was read
            chain = self.chain(*tp)
            opened = self._open(chain, manifest)
            if opened is None:
                raise LedgerError(f"{chain.object_of(manifest).name} is missing.", hint=chains.VERIFY)
        try:
            return opened.records(*tp, manifest.first, manifest.next)
        except ValueError as error:
            raise _unreadable(self._chains[tp].object_of(manifest).name, error) from error

    def leaves(self, manifest: Manifest) -> list[Leaf]:
        """The leaves that a manifest seals, one for each record, including records that have expired since. Raises: as
        `records`."""
        if manifest.is_note:
            return []
        tp = manifest.topic, manifest.partition
        named = (self._chains.get(tp) or self.chain(*tp)).leaves_of(manifest)
        try:
            data = chains.read_as(self.store, named)
        except Missing:  # it may have been joined since the chain was read
            named = self.chain(*tp).leaves_of(manifest)
            data = chains.read_as(self.store, named)
        try:
            leaves = unpack(data)
        except ValueError as error:
            raise _unreadable(named.name, error) from error
        return [leaf for leaf in leaves if manifest.first <= leaf.offset < manifest.next]

    def expired(self, topic: str, partition: int) -> list[Gone]:
        """The removals of expired records, as notes declare them, in the order of the notes; one removal for each
        object and namespace."""
        return [gone for note in self.chain(topic, partition).rewritten for gone in note.gone if gone.why == EXPIRED]

    def files(self, topic: str, partition: int) -> list[RecordFile]:
        """The Parquet files that hold the records of a partition, each once, in order of their offsets.

        Raises: LedgerError at a manifest that can't be read."""
        chain, found = self.chain(topic, partition), dict[RecordFile, None]()
        for sequence, manifest in enumerate(chain.manifests):
            one = manifest or self._manifest(manifest_name(topic, partition, sequence))
            if not one.is_note:
                found[RecordFile(topic, partition, *chain.object_of(one))] = None
        return list(found)

    def file(self, file: RecordFile) -> bytes:
        """The bytes of a record file. Raises: LedgerError if its hash differs; TemporaryError if the file was joined or
        rewritten meanwhile."""
        try:
            return chains.read_as(self.store, Named(file.name, file.sha256))
        except Missing as error:
            if file in self.files(file.topic, file.partition):
                raise
            gone = f"{file.name} was joined with others meanwhile, or rewritten."
            raise TemporaryError(gone, hint="Try again.") from error

    def _open(self, chain: Chain, manifest: Manifest) -> parquet.Opened | None:
        """The object that holds a manifest's records; None if it is missing. A joined object stays open, because the
        next manifest to read is most likely in it too."""
        named = chain.object_of(manifest)
        if self._opened is not None and self._opened[0] == named.sha256:
            return self._opened[1]
        try:
            opened = parquet.Opened(chains.read_as(self.store, named), chain.rows_max(manifest))
        except Missing:
            return None
        except ValueError as error:
            raise _unreadable(named.name, error) from error
        if chain.joined_of(manifest.sequence) is not None:
            self._opened = named.sha256, opened
        return opened

    def _manifest(self, name: str) -> Manifest:
        try:
            return decode(self.store.read(name) or b"")
        except ValueError as error:
            raise _unreadable(name, error) from error


def _unreadable(name: str, error: ValueError) -> LedgerError:
    return LedgerError(f"{name} can't be read: {error}", hint=chains.VERIFY)
