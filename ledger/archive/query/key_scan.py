"""Reads the records of some keys from an archive.

Every object that may hold such a record is read and verified as a whole, but only matching records are decoded. So reading
the history of one job is cheap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ledger.archive.format import parquet
from ledger.archive.store.archive import Archive, RecordFile
from ledger.errors import LedgerError
from ledger.ports import MemoryRecord


def picked(
    archive: Archive, topic: str, partition: int, first: int, end: int, keys: Sequence[bytes]
) -> Iterator[MemoryRecord]:
    """Yields the records at offsets from `first` up to, not including, `end` whose key begins with one of `keys`, in offset
    order.

    Raises: as `Archive.records`; TemporaryError if an object was joined with others meanwhile."""
    chain, done = archive.chain(topic, partition), set[RecordFile]()
    for sequence, manifest in enumerate(chain.manifests):
        if manifest is None:
            hint = "Run: jobledger audit verify"
            raise LedgerError(f"Manifest {sequence} of {topic}[{partition}] is missing or can't be read.", hint=hint)
        if manifest.is_note or manifest.next <= first or manifest.first >= end:
            continue
        file = RecordFile(topic, partition, *chain.object_of(manifest))
        if file in done:
            continue
        done.add(file)
        try:
            rows_max = chain.rows_max(manifest)
            yield from parquet.picked(archive.file(file), topic, partition, first, end, keys, rows_max)
        except ValueError as error:
            raise LedgerError(f"{file.name} can't be read: {error}.", hint="Run: jobledger audit verify") from error
