"""A record of the archive whose value was redacted."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.ports import MemoryRecord


@dataclass(frozen=True, slots=True)
class RedactedRecord(MemoryRecord):
    """A record with a replacement as its value (`core.model.redaction`), which no reader can decode. value_sha256: the
    hash of the removed value."""

    value_sha256: bytes = b""
