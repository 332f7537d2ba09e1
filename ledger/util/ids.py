"""Ids of jobs, events and intents: UUID version 7, so that ids sort by creation time.

Python has `uuid.uuid7` only from 3.14 on. Source: RFC 9562, sections 5.7 and 6.2.
"""

from __future__ import annotations

from uuid import UUID

RANDOM_BYTES = 10
_TIME_MAX_MS = (1 << 48) - 1


def uuid7(time_s: float, random_bytes: bytes) -> str:
    """The UUIDv7 made of a time and random bytes, in its canonical text form (36 characters, lower case).

    time_s: seconds since the epoch; the first 48 bits hold its whole milliseconds. random_bytes: 10 or more; 74 bits
    are used. Raises: ValueError if there are fewer bytes, or the time does not fit in 48 bits.
    """
    if len(random_bytes) < RANDOM_BYTES:
        raise ValueError(f"uuid7 needs {RANDOM_BYTES} random bytes, got {len(random_bytes)}")
    time_ms = int(time_s * 1000)
    if not 0 <= time_ms <= _TIME_MAX_MS:
        raise ValueError(f"uuid7 can't hold the time {time_s}")
    chance = int.from_bytes(random_bytes[:RANDOM_BYTES], "big")
    rand_a, rand_b = (chance >> 62) & 0xFFF, chance & ((1 << 62) - 1)
    return str(UUID(int=time_ms << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b))
