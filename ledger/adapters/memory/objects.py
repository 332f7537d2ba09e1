"""An object store in memory."""

from __future__ import annotations

import threading

from ledger.archive.format.objects import ObjectStat, check_name, check_prefix, check_size, is_name
from ledger.errors import Unreachable


class MemoryObjects:
    """Implements `archive.format.objects.ObjectStore`. stored: name -> content; tests may tamper with it. up: if False,
    the store does not answer."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.up, self._creating = True, threading.Lock()

    def create(self, name: str, data: bytes) -> bool:
        check_name(name)
        self._must_be_up()
        with self._creating:
            if name in self.stored:
                return False
            self.stored[name] = bytes(data)
        return True

    def read(self, name: str) -> bytes | None:
        check_name(name)
        self._must_be_up()
        data = self.stored.get(name)
        check_size(name, len(data or b""))
        return data

    def stat(self, name: str) -> ObjectStat | None:
        check_name(name)
        self._must_be_up()
        return None if (data := self.stored.get(name)) is None else ObjectStat(len(data), None)

    def delete(self, name: str) -> None:
        check_name(name)
        self._must_be_up()
        with self._creating:
            self.stored.pop(name, None)

    def names(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        self._must_be_up()
        return sorted(name for name in self.stored if name.startswith(prefix) and is_name(name))

    def _must_be_up(self) -> None:
        if not self.up:
            raise Unreachable("The object store in memory is down.")
