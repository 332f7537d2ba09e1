"""Names to addresses, anew at every round of dialling, and never longer than the round can afford."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterable

Address = tuple[str, str, int]
"""The name as given, the address to dial, the port."""


def _resolve(host: str) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, None, 0, 0, socket.IPPROTO_TCP)]


class ResolvedNames:
    """Remembers what each name last stood for: that is what counts while the name service is away or slow."""

    def __init__(self, resolve: Callable[[str], list[str]] = _resolve) -> None:
        self._resolve = resolve
        self._known: dict[str, list[str]] = {}
        self._running: dict[str, threading.Event] = {}

    def addresses(self, members: Iterable[tuple[str, int]], timeout_s: float) -> list[Address]:
        """Every address of every member, in their order, each once. Waits timeout_s at most, for all names together."""
        members = list(dict.fromkeys(members))
        asked = [self._ask(host) for host in {host for host, _ in members if not _is_address(host)}]
        deadline = time.monotonic() + timeout_s
        for answered in asked:
            answered.wait(max(0.0, deadline - time.monotonic()))
        return list(dict.fromkeys((host, ip, port) for host, port in members for ip in self._found(host)))

    def _found(self, host: str) -> list[str]:
        return [host] if _is_address(host) else list(self._known.get(host, ()))

    def _ask(self, host: str) -> threading.Event:
        """A thread of its own for each: a lookup can take half a minute, and can't be interrupted."""
        running = self._running.get(host)
        if running is not None and not running.is_set():
            return running
        answered = self._running[host] = threading.Event()
        threading.Thread(target=self._look_up, args=(host, answered), name=f"resolve {host}", daemon=True).start()
        return answered

    def _look_up(self, host: str, answered: threading.Event) -> None:
        try:
            found = self._resolve(host)
        except OSError:  # unknown, or nobody to ask: what it was before is still worth a try
            found = []
        if found:
            self._known[host] = found
        answered.set()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
