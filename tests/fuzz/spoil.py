"""Corrupts bytes and plain values, as faulty or malicious senders do."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

HUGE = (2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -1, -2, -(2**62), -(2**63), 10**30)
TEXTS = (
    "", "\0", "/", "~", "..", "-1", "01", "9007199254740992", "9007199254740993", "9" * 19, "9" * 400, "\x1b[2J", "ü✓",
    "\ud800", "None", "true", "{}", "[]", "a" * 128, "a" * 129, " ", "\n",
)  # fmt: skip


def varint(n: int) -> bytes:
    """A long as Avro encodes it. Readers reject one of more than 64 bits."""
    n, out = (n << 1) ^ (n >> 63 if -(2**63) <= n < 2**63 else 0), bytearray()
    while abs(n) > 0x7F and len(out) < 12:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n & 0x7F])


def spoiled(rng: Random, value: bytes, others: Sequence[bytes] = ()) -> bytes:
    """The bytes with one to four changes: flipped bits, bytes, lengths, cuts, repetitions, parts of `others`."""
    out = bytearray(value)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(9):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(out):
                out[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del out[at:]
            case 3:
                del out[at : at + rng.randrange(1, 9)]
            case 4:
                out[at:at] = out[at : at + rng.randrange(1, 65)] * rng.choice((1, 1, 2, 20))
            case 5:
                out[at : at + rng.randrange(3)] = varint(rng.choice(HUGE) + rng.randrange(-1, 2))
            case 6:
                out[at : at + rng.randrange(9)] = rng.randbytes(rng.randrange(9))
            case 7 if others:
                other = rng.choice(others)
                there = rng.randrange(len(other) + 1)
                out[at : at + rng.randrange(17)] = other[there : there + rng.randrange(1, 65)]
            case _:
                out += rng.choice((b"\0", b"/", b"\n", b"\xff\xfe", bytes(out[:16])))
    return bytes(out)


def spoiled_plain(rng: Random, value: Any, depth: int = 0) -> Any:
    """The JSON value with one part changed."""
    if rng.random() < 0.25 or not isinstance(value, dict | list) or not value:
        return noise(rng, depth)
    if isinstance(value, dict):
        key = rng.choice(list(value))
        changed = {**value, key: spoiled_plain(rng, value[key], depth + 1)}
        if rng.random() < 0.1:
            del changed[key]
        return changed
    at = rng.randrange(len(value))
    return [*value[:at], spoiled_plain(rng, value[at], depth + 1), *value[at + 1 :]]


def noise(rng: Random, depth: int = 0) -> Any:
    match rng.randrange(8 if depth < 4 else 6):
        case 0:
            return None
        case 1:
            return rng.random() < 0.5
        case 2:
            return rng.choice(HUGE)
        case 3:
            return rng.choice((0, 1, 0.5, 1e308, float("nan"), float("inf"), -1.5))
        case 4 | 5:
            return rng.choice(TEXTS)
        case 6:
            return [noise(rng, depth + 1) for _ in range(rng.randrange(4))]
        case _:
            return {rng.choice(TEXTS): noise(rng, depth + 1) for _ in range(rng.randrange(4))}
