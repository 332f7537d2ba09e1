"""A proof that one record lies in the archive, which anybody can check against an anchor without this library.

It holds the record, the way from its leaf to the root that its manifest swears, and the manifests from that one up to the
head of its chain, each of which names the hash of the one before. docs/check_proof.py checks it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

from ledger.archive.archive import Archive
from ledger.archive.segments import leaves_of
from ledger.core import merkle
from ledger.core.published import headers_of
from ledger.errors import NotFound
from ledger.ports import Record


def prove(archive: Archive, event_id: str, id_of: Callable[[Record], str]) -> dict[str, Any]:
    """The proof as plain values for JSON; bytes are in base64. An id that lies there twice (a resend) is proved for its
    first record.

    Raises: NotFound. LedgerError: an object is not what its manifest says."""
    for topic, partition in archive.places():
        manifests = list(archive.manifests(topic, partition))
        for number, manifest in enumerate(manifests):
            records = archive.segment(manifest)
            for index, record in enumerate(records):
                if id_of(record) == event_id:
                    path = merkle.proof([leaf.hash for leaf in leaves_of(records)], index)
                    return {
                        "topic": topic,
                        "partition": partition,
                        "record": _plain(record),
                        "index": index,
                        "size": len(records),
                        "path": [hashed.hex() for hashed in path],
                        "manifests": [one.encode().decode() for one in manifests[number:]],
                        "head": manifests[-1].sha256,
                    }
    hint = "Is it archived yet? See: jobledger archive status"
    raise NotFound(f"No record of the event {event_id[:200]!r} is in the archive.", hint=hint)


def _plain(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset(),
        "timestamp_ms": record.timestamp()[1],
        "key": _text(record.key()),
        "value": _text(record.value()),
        "headers": [[name, _text(value)] for name, value in headers_of(record)],
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()
