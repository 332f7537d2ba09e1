"""A record of the archive whose value is gone."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.ports import MemoryRecord


@dataclass(frozen=True, slots=True)
class RedactedRecord(MemoryRecord):
    """Its value is what stands in for it (`core.redaction`), which nobody can read. value_sha256: of what was there."""

    value_sha256: bytes = b""
