"""A proof that one record is in the archive. Anybody can check the proof against an anchor without this library.

The proof holds the record, the path from its leaf to the root in its manifest, and all manifests from that one up to
the head. Each manifest names the hash of the one before. docs/check_proof.py checks the proof. For a redacted record,
the proof holds the hash of the value in place of the value.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

from ledger.archive.format import merkle
from ledger.archive.format.redacted import RedactedRecord
from ledger.archive.format.segments import leaves_of
from ledger.archive.removal.redacting import RecordPosition, missing, must_be_id, unknown_event
from ledger.archive.store.archive import Archive
from ledger.core.model.published import headers_of
from ledger.ports import Record


def prove(archive: Archive, named: str | RecordPosition, id_of: Callable[[Record], str]) -> dict[str, Any]:
    """The proof as plain values for JSON; bytes are in base64. named: the id of an event, or a position. If an id
    occurs twice (a resend), its first record is proved.

    Raises: NotFound if there is no such record, or it has expired. UsageError if the id is empty. LedgerError if an
    object is not what its manifest says."""
    if isinstance(named, str):
        must_be_id(named)
    for topic, partition in archive.partitions():
        manifests = list(archive.manifests(topic, partition))
        for number, manifest in enumerate(manifests):
            if isinstance(named, RecordPosition) and not manifest.first <= named.offset < manifest.next:
                continue
            records = archive.segment(manifest)
            for record in records:
                if is_named(record, named, id_of):
                    leaves = leaves_of(records) if len(records) == manifest.count else archive.leaves(manifest)
                    index = [leaf.offset for leaf in leaves].index(record.offset())
                    path = merkle.proof([leaf.hash for leaf in leaves], index)
                    return {
                        "topic": topic,
                        "partition": partition,
                        "record": plain(record),
                        "index": index,
                        "size": len(leaves),
                        "path": [hashed.hex() for hashed in path],
                        "manifests": [one.encode().decode() for one in manifests[number:]],
                        "head": manifests[-1].sha256,
                    }
    raise missing(archive, named) if isinstance(named, RecordPosition) else unknown_event(archive, named)


def is_named(record: Record, named: str | RecordPosition, id_of: Callable[[Record], str]) -> bool:
    """Whether this is the record at the named position, or the record of the named event."""
    if isinstance(named, RecordPosition):
        return named == (record.topic(), record.partition(), record.offset())
    return named == id_of(record)


def plain(record: Record) -> dict[str, Any]:
    hashed = record.value_sha256 if isinstance(record, RedactedRecord) else None
    return {
        "offset": record.offset(),
        "timestamp_ms": record.timestamp()[1],
        "key": _text(record.key()),
        **({"value": _text(record.value())} if hashed is None else {"value_sha256": hashed.hex()}),
        "headers": [[name, _text(value)] for name, value in headers_of(record)],
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()
