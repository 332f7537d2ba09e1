"""kazoo's client with stricter rules: short time limits for connecting, no queue of requests while disconnected, and
never a new session in place of an expired one.

The client uses private parts of kazoo 2.11 (the connection handler and the queue), so that version is pinned."""

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

# kazoo logs a warning at every connection attempt, and prints credentials at level debug.
_log = logging.getLogger("ledger.zookeeper.kazoo")
_log.setLevel(logging.ERROR)


class Events(Protocol):
    """Callbacks of a client, called on the client's threads. An implementation must not block: it only records the
    event."""

    def connected(self, session_id: int, session_s: float, host: str, port: int) -> None: ...
    def disconnected(self) -> None: ...
    def ended(self, reason: str) -> None:
        """The client's session is over for `reason`, and the client can't be used any more."""


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Opens connections. kazoo's own code leaks sockets of failed attempts, and trusts more authorities than `tls_ca`.
    dial_timeout_s: time limit in seconds to connect, and again for the TLS handshake."""

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
        """Breaks the connection, as if the server had broken it. Shuts down the TCP socket, since a TLS shutdown would
        wait for the server."""
        if self._open is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._open, socket.SHUT_RDWR)

    def select(self, readable: Any, writable: Any, failed: Any, timeout: float | None = None) -> Any:
        """As `select`, but also returns TLS sockets with decrypted data that is not read yet. The operating system does
        not report these as readable, so an answer would stay unread."""
        pending = [one for one in readable if isinstance(one, ssl.SSLSocket) and one.pending()]
        ready, *others = super().select(readable, writable, failed, 0 if pending else timeout)
        return [*pending, *(one for one in ready if one not in pending)], *others


class ZooKeeperClient(KazooClient):  # type: ignore[misc]
    """A client with exactly one session: when the session is over, the client can't be used any more.

    members: the servers to connect to. fallback: the hosts of the settings, tried after one round over the members
    without success."""

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
            hosts="127.0.0.1:1",  # never used: `_Connection` connects to `members`
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
        """Queues a request only while connected, else it fails with ConnectionLoss. kazoo would queue it and send it
        after a reconnect, when it is outdated."""
        drops = self._drops
        if self._state != _CONNECTED:
            async_object.set_exception(ConnectionLoss())
            return False
        taken = super()._call(request, async_object)
        if drops != self._drops:  # disconnected meanwhile: the request missed the clearing of the queue
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
    """kazoo's thread that connects, reads and writes."""

    def __init__(self, client: ZooKeeperClient, *args: Any, **kwargs: Any) -> None:
        super().__init__(client, *args, **kwargs)
        self._rounds = 0  # rounds over all members since the last connection
        self._last: Address | None = None
        self._established = False
        self._session_s = client._session_timeout / 1000  # the requested timeout, then the granted one

    def _connect_loop(self, retry: Any) -> Any:
        self._rounds += 1
        return super()._connect_loop(retry)

    def _expand_client_hosts(self) -> list[Address]:
        """The addresses to try in this round, in random order, except that the address of the lost connection is
        last."""
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
            raise ForceRetryError("The list of members may be outdated after a connection: read it again.")
        return status

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        client: ZooKeeperClient = self.client
        read_timeout_ms, _ = super()._connect(host, hostip, port)  # kazoo returns two thirds of the session timeout granted
        session_ms = read_timeout_ms * 1.5
        self._session_s = session_ms / 1000
        self._rounds, self._last, self._established = 0, (host, hostip, port), True
        client.events.connected(client._session_id, self._session_s, host, port)
        # These values keep kazoo from pinging: only its owner's requests keep the session, and its nodes, alive.
        return 3 * session_ms, session_ms / 5

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        """As in kazoo, but with a shorter time limit for the first answer: a member may accept connections and not
        answer."""
        return super()._invoke(min(timeout, self.client.handler.dial_timeout_s), request, xid)

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        try:
            super()._authenticate_with_sasl(host, min(timeout, self.client.handler.dial_timeout_s))
        except AuthFailedError as error:
            if isinstance(error.__cause__, ConnectionDropped):  # a dying member causes this too: the session goes on
                raise ConnectionDropped("connection lost while authenticating") from error
            raise


def _tls(settings: ZooKeeperSettings) -> ssl.SSLContext | None:
    """The TLS context of the settings; None without TLS. Raises: OSError (also as ssl.SSLError) if a file is missing or
    invalid."""
    if not settings.tls:
        return None
    context = ssl.create_default_context(cafile=settings.tls_ca)
    context.check_hostname = settings.tls_verify_hostname
    if settings.tls_cert is not None:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, settings.tls_key_password or None)
    return context
