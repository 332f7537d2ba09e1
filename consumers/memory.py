"""Bounded tables for the memory of the rules. Standard library only."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from hashlib import sha256
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Table(Generic[K, V]):
    """Keeps the newest `limit` entries. `forgotten` counts the dropped entries under the table's name."""

    def __init__(self, name: str, limit: int, forgotten: Counter[str]) -> None:
        self._name, self._limit, self._forgotten = name, limit, forgotten
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)
            self._forgotten[self._name] += 1

    def drop(self, key: K) -> None:
        self._entries.pop(key, None)

    def items(self) -> list[tuple[K, V]]:
        return list(self._entries.items())

    def __len__(self) -> int:
        return len(self._entries)


def digest(*parts: str | bytes | None) -> bytes:
    """A digest of the parts, 16 bytes long. Each part is hashed with its length, so different parts never give the same
    input."""
    hashed = sha256()
    for part in parts:
        data = b"" if part is None else part.encode() if isinstance(part, str) else part
        hashed.update(b"-" if part is None else b"%d:" % len(data))
        hashed.update(data)
    return hashed.digest()[:16]
