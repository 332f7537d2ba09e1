"""One session with the ensemble, for the candidate's thread: one request at a time, with a timeout of a fifth of the
session timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, KazooException, NoNodeError, SessionExpiredError
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from ledger.adapters.zookeeper.client import ZooKeeperClient
from ledger.adapters.zookeeper.names import ResolvedNames
from ledger.adapters.zookeeper.recipe import host_list, hosts, members, silence_s
from ledger.adapters.zookeeper.settings import ZooKeeperSettings
from ledger.ports import Clock

__all__ = ["ConnectionLoss", "KazooException", "Link", "NoNodeError"]

CONFIG = "/zookeeper/config"


class Link:
    """A session with the ensemble, and its connection. known: the members to dial first. wake: called on any thread
    after each change of the session, the connection or the members.

    Threads of kazoo write the public attributes, the candidate's thread reads them."""

    def __init__(
        self, settings: ZooKeeperSettings, known: Sequence[tuple[str, int]], names: ResolvedNames, clock: Clock,
        wake: Callable[[], None],
    ) -> None:  # fmt: skip
        self._clock, self._wake = clock, wake
        self.session_s = settings.session_timeout_s
        """The session timeout T, in seconds; once connected, as the servers granted it."""
        self.session_id: int | None = None
        self.is_connected = False
        self.over = ""
        """Why the session has ended; "" = it has not, as far as known."""
        self.server = ""
        self.answered = clock.monotonic()
        """When the last answered request was sent (monotonic, seconds). The session existed then."""
        self._acl = CREATOR_ALL_ACL if settings.auth else OPEN_ACL_UNSAFE
        self._config_changed = True
        configured = hosts(settings.hosts)
        self._client = ZooKeeperClient(settings, list(known) or configured, configured, names, self)

    # -- kazoo's threads: they set attributes, no more ------------------------------------------------------------------

    def connected(self, session_id: int, session_s: float, host: str, port: int) -> None:
        if self.session_id not in (None, session_id):
            self.over = self.over or "the server gave it a new session unasked"
        self.session_id, self.session_s, self.server = session_id, session_s, host_list([(host, port)])
        self._config_changed = True  # no watch fires for a change during the disconnection
        self.is_connected = True
        self._wake()

    def disconnected(self) -> None:
        self.is_connected = False
        self._wake()

    def ended(self, reason: str) -> None:
        self.is_connected = False
        self.over = self.over or reason
        self._wake()

    # -- the candidate's thread ----------------------------------------------------------------------------------------

    def start(self) -> None:
        self._client.start_async()

    @property
    def members(self) -> list[tuple[str, int]]:
        return list(self._client.members)

    def ask(self, request: Callable[[ZooKeeperClient], Any]) -> Any:
        """The answer to one request. Without a connection the request is neither sent nor queued.

        Raises: ConnectionLoss if no answer came: the server may have carried out the request, and the session may be
        `over`. Other KazooExceptions: the server's answer, such as NoNodeError."""
        if not self.is_connected:
            raise ConnectionLoss
        sent = self._clock.monotonic()
        result = request(self._client)
        if not result.wait(silence_s(self.session_s)):
            self.is_connected = False
            self._client.drop()
            raise ConnectionLoss
        try:
            answer = result.get()
        except (ConnectionLoss, SessionExpiredError, ConnectionClosedError) as error:
            raise ConnectionLoss from error
        except KazooException:
            self.answered = sent
            raise
        self.answered = sent
        return answer

    def children(self, path: str, watch: Callable[[Any], None] | None = None) -> list[str]:
        """The names of a node's children. watch: called once, on another thread, when a child is created or deleted, or
        when the node itself is deleted."""
        found: list[str] = self.ask(lambda client: client.get_children_async(path, watch=watch))
        return found

    def read(self, path: str) -> tuple[bytes, float]:
        """A node's data, and when the node was created, in seconds since the epoch by the servers' clock."""
        data, stat = self.ask(lambda client: client.get_async(path))
        return data, stat.ctime / 1000

    def write(self, path: str, data: bytes) -> None:
        self.ask(lambda client: client.set_async(path, data))

    def delete(self, path: str) -> None:
        """Deletes a node; a missing one is no error."""
        with suppress(NoNodeError):
            self.ask(lambda client: client.delete_async(path))

    def create_candidate(self, folder: str, begin: str, data: bytes) -> str:
        """Creates an ephemeral sequential node below `folder`, and the folder if missing. Returns the name that the
        server gave the node."""

        def create(client: ZooKeeperClient) -> Any:
            return client.create_async(f"{folder}/{begin}", data, acl=self._acl, ephemeral=True, sequence=True)

        try:
            made = self.ask(create)
        except NoNodeError:
            self.ask(lambda client: client.ensure_path_async(folder, acl=self._acl))
            made = self.ask(create)
        return str(made).rpartition("/")[2]

    def follow_members(self) -> None:
        """Reads the members again, if they may have changed. Raises: ConnectionLoss."""
        if not self._config_changed:
            return
        self._config_changed = False
        try:
            data, _ = self.ask(lambda client: client.get_async(CONFIG, watch=self._on_config))
        except ConnectionLoss:
            self._config_changed = True
            raise
        except KazooException:  # not readable or not there: only the members of the settings are known
            return
        if found := members(data):
            self._client.members = found

    def _on_config(self, _event: Any) -> None:
        self._config_changed = True
        self._wake()

    def end(self) -> None:
        """Closes the session. If no member answers within about a fifth of the session timeout, the session is left to
        expire. Never raises."""
        giving_up = threading.Timer(silence_s(self.session_s), self._client.drop)
        giving_up.daemon = True
        giving_up.start()
        with suppress(Exception):
            self._client.stop()
            self._client.close()
        giving_up.cancel()
