"""kazoo's client, with what it leaves open closed: short patience when dialling, no request while nobody is there to take
it, a session that is never silently exchanged for another.

It reaches into kazoo 2.11 (the connection handler and the queue are no public parts), which is why that is pinned.
"""

from __future__ import annotations

import logging
import random
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped, ConnectionLoss
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import STOP_CONNECTING, ConnectionHandler
from kazoo.protocol.states import KeeperState
from kazoo.retry import ForceRetryError, KazooRetry

from ledger.adapters.zookeeper.names import Address, ResolvedNames
from ledger.adapters.zookeeper.recipe import dial_timeout_s
from ledger.adapters.zookeeper.settings import ZooKeeperSettings

_OVER = {
    KeeperState.EXPIRED_SESSION: "its session expired",
    KeeperState.AUTH_FAILED: "zookeeper refused the credentials",
    KeeperState.CLOSED: "its client ended",
}
_CONNECTED = KeeperState.CONNECTED

# kazoo warns at every dial, and prints credentials at level debug.
_log = logging.getLogger("ledger.zookeeper.kazoo")
_log.setLevel(logging.ERROR)


class Events(Protocol):
    """What a client reports, on its own threads: whoever listens only takes notes."""

    def connected(self, session_id: int, session_s: float, host: str, port: int) -> None: ...
    def disconnected(self) -> None: ...
    def ended(self, reason: str) -> None:
        """This client will not come back, nor its session."""


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """dial_timeout_s: to connect, and again for TLS. kazoo's own dialling leaks what fails and trusts too many."""

    def __init__(self, dial_timeout_s: float, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self.dial_timeout_s, self._tls = dial_timeout_s, tls
        self._open: socket.socket | None = None

    def create_connection(self, address: tuple[str, int], hostname: str | None = None, **_: Any) -> socket.socket:
        made = socket.create_connection(address, self.dial_timeout_s)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                made = self._tls.wrap_socket(made, server_hostname=hostname)
        except BaseException:
            made.close()
            raise
        self._open = made
        return made

    def drop(self) -> None:
        """Breaks the connection, as if the server had. Beneath TLS: that would have to wait for the other side."""
        if self._open is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._open, socket.SHUT_RDWR)

    def select(self, readable: Any, writable: Any, failed: Any, timeout: float | None = None) -> Any:
        """What TLS has decrypted already does not make its socket readable again: without this an answer waits there."""
        pending = [one for one in readable if isinstance(one, ssl.SSLSocket) and one.pending()]
        ready, *others = super().select(readable, writable, failed, 0 if pending else timeout)
        return [*pending, *(one for one in ready if one not in pending)], *others


class ZooKeeperClient(KazooClient):  # type: ignore[misc]
    """One client has one session. When that is over, so is the client.

    members: who to dial; the hosts of the settings are dialled too once a round over the members has found nobody."""

    def __init__(
        self, settings: ZooKeeperSettings, members: Sequence[tuple[str, int]], fallback: Sequence[tuple[str, int]],
        names: ResolvedNames, events: Events,
    ) -> None:  # fmt: skip
        self.events, self._drops = events, 0
        self.members, self.fallback, self.names = members, fallback, names
        handler = Handler(dial_timeout_s(settings.session_timeout_s, len(members)), _tls(settings))
        # The longest pause is the delay with all of its jitter: 0.98 s.
        retry = KazooRetry(max_tries=-1, delay=0.1, max_delay=0.7, max_jitter=0.4, sleep_func=handler.sleep_func)
        sasl = {"mechanism": "DIGEST-MD5", "username": settings.username, "password": settings.password}
        super().__init__(
            hosts="127.0.0.1:1",  # never dialled: `_Connection` asks `members`
            timeout=settings.session_timeout_s,
            handler=handler,
            connection_retry=retry,
            auth_data=[("digest", f"{settings.username}:{settings.password}")] if settings.auth == "digest" else None,
            logger=_log,
        )
        self._connection = _Connection(
            self, self._conn_retry.copy(), logger=_log, sasl_options=sasl if settings.auth == "sasl" else None
        )

    def drop(self) -> None:
        self.handler.drop()

    def _call(self, request: Any, async_object: Any) -> Any:
        """kazoo keeps what is asked while nobody is connected and sends it later, when nobody means it any more."""
        drops = self._drops
        if self._state != _CONNECTED:
            async_object.set_exception(ConnectionLoss())
            return False
        taken = super()._call(request, async_object)
        if drops != self._drops:  # dropped just now: then this came too late to be cleared away with the others
            with suppress(ValueError):
                self._queue.remove((request, async_object))
                async_object.set_exception(ConnectionLoss())
        return taken

    def _session_callback(self, state: Any) -> None:
        if state != _CONNECTED:
            self._drops += 1
            self.events.disconnected()
        super()._session_callback(state)
        if state in _OVER:
            self.events.ended(_OVER[state])


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """The thread that dials, reads and writes."""

    def __init__(self, client: ZooKeeperClient, *args: Any, **kwargs: Any) -> None:
        super().__init__(client, *args, **kwargs)
        self._rounds = 0  # over all members, since the last connection
        self._last: Address | None = None
        self._established = False
        self._session_s = client._session_timeout / 1000  # what was asked for, then what was granted

    def _connect_loop(self, retry: Any) -> Any:
        self._rounds += 1
        return super()._connect_loop(retry)

    def _expand_client_hosts(self) -> list[Address]:
        """Whom to dial in this round, in random order, but the one that was just lost last."""
        client: ZooKeeperClient = self.client
        members = [*client.members, *(client.fallback if self._rounds > 1 else ())]
        found = client.names.addresses(members, self._session_s / 20)
        random.shuffle(found)
        found.sort(key=lambda one: one == self._last)
        client.handler.dial_timeout_s = dial_timeout_s(self._session_s, len(found), self._rounds - 1)
        return found

    def _connect_attempt(self, host: str, hostip: str, port: int, retry: Any) -> Any:
        self._established = False
        status = super()._connect_attempt(host, hostip, port, retry)
        if self.client._state in _OVER:
            return STOP_CONNECTING
        if self._established and status is not STOP_CONNECTING:
            raise ForceRetryError("The list of members is as old as the connection was: make it anew.")
        return status

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        client: ZooKeeperClient = self.client
        read_timeout_ms, _ = super()._connect(host, hostip, port)  # two thirds of what the servers granted
        session_ms = read_timeout_ms * 1.5
        self._session_s = session_ms / 1000
        self._rounds, self._last, self._established = 0, (host, hostip, port), True
        client.events.connected(client._session_id, self._session_s, host, port)
        # No pings of kazoo's own: a session lives exactly as long as its owner asks for it, and so does a node.
        return 3 * session_ms, session_ms / 5

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        """The first answer of a member that accepts connections and is otherwise silent."""
        return super()._invoke(min(timeout, self.client.handler.dial_timeout_s), request, xid)

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        try:
            super()._authenticate_with_sasl(host, min(timeout, self.client.handler.dial_timeout_s))
        except AuthFailedError as error:
            if isinstance(error.__cause__, ConnectionDropped):  # so does a member that dies: no reason to end the session
                raise ConnectionDropped("connection lost while authenticating") from error
            raise


def _tls(settings: ZooKeeperSettings) -> ssl.SSLContext | None:
    """Raises: OSError (also as ssl.SSLError) if a file is not there or is not what it should be."""
    if not settings.tls:
        return None
    context = ssl.create_default_context(cafile=settings.tls_ca)
    context.check_hostname = settings.tls_verify_hostname
    if settings.tls_cert is not None:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, settings.tls_key_password or None)
    return context
