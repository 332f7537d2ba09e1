"""Notes in a chain: manifests that seal no record, but say what was done to the archive, and so are as sure as any other.

The note itself is an object, `notes/<topic>/<partition>/<digest>.json`, that its manifest names by hash. Kinds: `restored`
(the topic is another one from here on, made anew from this archive), `joined` (a run of manifests and what they seal lies
in other objects now), `rewritten` (records expired, or values were redacted), `pinned` and `unpinned` (`pins`), `sealed`
(the last one of each chain of a bundle: `sealing`). Source: docs/decisions/0030, 0031, 0032, 0035, 0036.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ledger.archive.format.chain import Manifest
from ledger.archive.format.objects import ObjectStore
from ledger.errors import LedgerError, UsageError

RESTORED, JOINED, REWRITTEN = "restored", "joined", "rewritten"
PINNED, UNPINNED = "pinned", "unpinned"
SEALED = "sealed"


def store_note(store: ObjectStore, topic: str, partition: int, kind: str, body: Mapping[str, Any]) -> tuple[str, str]:
    """Name and digest. Repeated, it stores nothing twice."""
    data = json.dumps({**body, "kind": kind}, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
    digest = sha256(data).hexdigest()
    name = f"notes/{topic}/{partition}/{digest[:32]}.json"
    if not store.create(name, data) and store.read(name) != data:
        raise LedgerError(f"{name} holds something else than it should.",
                          hint="Something else writes into this archive, or its disk is damaged.")  # fmt: skip
    return name, digest


def read_note(store: ObjectStore, manifest: Manifest) -> dict[str, Any]:
    """What a note says. Raises: LedgerError if it is not what its manifest names."""
    try:
        data = store.read(manifest.records)
    except UsageError:
        data = None
    if data is None or sha256(data).hexdigest() != manifest.records_sha256:
        wrong = "is missing" if data is None else "is not what its manifest says"
        raise LedgerError(f"{manifest.records} {wrong}.", hint="Run: jobledger audit verify")
    try:
        body = json.loads(data)
    except (RecursionError, ValueError) as error:
        raise LedgerError(f"{manifest.records} is no note: {error}", hint="Run: jobledger audit verify") from error
    return body if isinstance(body, dict) else {}
