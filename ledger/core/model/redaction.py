"""The value that replaces a redacted value.

The replacement has Avro framing and the fingerprint of no schema. Every reader therefore treats it as unreadable, and
not as a tombstone. It holds the hash of the redacted value.
"""

from __future__ import annotations

_FRAME = b"\xc3\x01REDACTED"  # single-object encoding: two bytes of magic, eight of fingerprint (tests: nobody's)
_SHA256_BYTES = 32


def stand_in(value_sha256: bytes) -> bytes:
    """The replacement for a redacted value. value_sha256: the hash of that value."""
    return _FRAME + value_sha256


def is_redacted(value: bytes | None) -> bool:
    """Whether a value has the form of `stand_in`. Anybody can write such bytes; the archive's notes list the real ones."""
    return value is not None and len(value) == len(_FRAME) + _SHA256_BYTES and value.startswith(_FRAME)
