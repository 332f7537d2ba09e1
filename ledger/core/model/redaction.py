"""What stands in the place of a value that was redacted, for whoever reads the record.

It is framed as Avro and names a schema that there is none of, so every reader takes it for what it can't read: not for a
tombstone, and not for nothing. It tells the hash of what was there.
"""

from __future__ import annotations

_FRAME = b"\xc3\x01REDACTED"  # single-object encoding: two bytes of magic, eight of fingerprint (tests: nobody's)
_SHA256_BYTES = 32


def stand_in(value_sha256: bytes) -> bytes:
    """value_sha256: of the value that was there."""
    return _FRAME + value_sha256


def is_redacted(value: bytes | None) -> bool:
    """Whether this is what `stand_in` gives. Anybody can write such bytes: the archive's notes say what was redacted."""
    return value is not None and len(value) == len(_FRAME) + _SHA256_BYTES and value.startswith(_FRAME)
