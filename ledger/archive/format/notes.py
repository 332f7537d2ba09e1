"""Notes in a chain: manifests that seal no records but record an operation on the archive. They are as well proved as
any other manifest.

A note is an object, `notes/<topic>/<partition>/<digest>.json`, and its manifest names its hash. Kinds: `restored` (from
here on the topic is a new one, made from this archive), `joined` (a run of manifests and their data are now in other
objects), `rewritten` (records expired, or values were redacted), `pinned` and `unpinned` (`pins`), `sealed` (the last
note of each chain of a bundle: `sealing`). Source: docs/decisions/0030, 0031, 0032, 0035, 0036.
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
    """Stores a note and returns its name and digest. A repeated call stores nothing twice."""
    data = json.dumps({**body, "kind": kind}, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
    digest = sha256(data).hexdigest()
    name = f"notes/{topic}/{partition}/{digest[:32]}.json"
    if not store.create(name, data) and store.read(name) != data:
        raise LedgerError(f"{name} has other content than it should.",
                          hint="Something else writes into this archive, or its disk is damaged.")  # fmt: skip
    return name, digest


def read_note(store: ObjectStore, manifest: Manifest) -> dict[str, Any]:
    """The body of a note. Raises: LedgerError if the object is not the one that its manifest names."""
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
        raise LedgerError(f"{manifest.records} is not a note: {error}", hint="Run: jobledger audit verify") from error
    return body if isinstance(body, dict) else {}
