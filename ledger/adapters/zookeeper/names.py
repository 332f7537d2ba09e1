"""Resolves host names at every round of connection attempts, within a time limit."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterable

Address = tuple[str, str, int]
"""The host name as given, the IP address to connect to, the port."""


def _resolve(host: str) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, None, 0, 0, socket.IPPROTO_TCP)]


class ResolvedNames:
    """Resolves host names, and remembers the last result of each, which is used while DNS is down or slow."""

    def __init__(self, resolve: Callable[[str], list[str]] = _resolve) -> None:
        self._resolve = resolve
        self._known: dict[str, list[str]] = {}
        self._running: dict[str, threading.Event] = {}

    def addresses(self, members: Iterable[tuple[str, int]], timeout_s: float) -> list[Address]:
        """All addresses of all members, in the members' order, without duplicates. Waits at most timeout_s for all
        lookups together."""
        members = list(dict.fromkeys(members))
        asked = [self._ask(host) for host in {host for host, _ in members if not _is_address(host)}]
        deadline = time.monotonic() + timeout_s
        for answered in asked:
            answered.wait(max(0.0, deadline - time.monotonic()))
        return list(dict.fromkeys((host, ip, port) for host, port in members for ip in self._found(host)))

    def _found(self, host: str) -> list[str]:
        return [host] if _is_address(host) else list(self._known.get(host, ()))

    def _ask(self, host: str) -> threading.Event:
        """An event that is set when the lookup of a host ends. Each lookup has a thread, since it can take half a
        minute and can't be interrupted."""
        running = self._running.get(host)
        if running is not None and not running.is_set():
            return running
        answered = self._running[host] = threading.Event()
        threading.Thread(target=self._look_up, args=(host, answered), name=f"resolve {host}", daemon=True).start()
        return answered

    def _look_up(self, host: str, answered: threading.Event) -> None:
        try:
            found = self._resolve(host)
        except OSError:  # unknown name, or DNS is down: the last result is still worth a try
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
