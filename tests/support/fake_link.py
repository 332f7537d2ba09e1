"""ZooKeeper as `NodeStrategy` sees it, without a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kazoo.exceptions import ConnectionLoss, NoAuthError, NoNodeError

from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.zookeeper import recipe

T = 10.0
PATH = "/leaders/projector"


@dataclass
class Servers:
    """The state of the ensemble. nodes: name -> (data, session that owns the node). late: see below."""

    clock: ManualClock
    nodes: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    sequence: int = 0
    sessions: int = 0
    up: bool = True
    late: list[Callable[[], object]] = field(default_factory=list)
    """Requests in flight. The test carries them out."""

    def end_session(self, session: int) -> None:
        self.nodes = {name: node for name, node in self.nodes.items() if node[1] != session}

    @property
    def line(self) -> list[str]:
        return [node.owner[0] for node in recipe.in_line(self.nodes)]


@dataclass
class FakeLink:
    """A `Link` to `Servers`. fail: request name -> when its connection is lost, once: "before" or "after" the request is
    carried out, or "late" (it is carried out later). refuse: names of requests that always fail. takes_s: request name ->
    seconds until its answer."""

    servers: Servers
    session_s: float = T
    session_id: int | None = None
    is_connected: bool = False
    over: str = ""
    answered: float = 0.0
    members: list[tuple[str, int]] = field(default_factory=lambda: [("zk1", 2181)])
    fail: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    refuse: str = ""
    takes_s: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        self.answered = self.servers.clock.monotonic()
        self.connect()

    def connect(self) -> None:
        if self.servers.up:
            if self.session_id is None:
                self.servers.sessions += 1
                self.session_id = self.servers.sessions
            self.is_connected = True

    def _ask(self, what: str, do: Callable[[], Any]) -> Any:
        self.asked.append(what)
        fault = self.fail.pop(what, "" if self.servers.up and self.is_connected else "before")
        if fault:
            if fault == "late":
                self.servers.late.append(do)
            if fault == "after":
                do()
            self.is_connected = False
            raise ConnectionLoss
        sent = self.servers.clock.monotonic()
        self.servers.clock.advance(self.takes_s.get(what, 0.0))
        self.answered = sent
        if self.refuse == what:
            raise NoAuthError
        return do()

    def children(self, path: str, watch: Any = None) -> list[str]:
        def do() -> list[str]:
            name = path.removeprefix(PATH).strip("/")
            if name and name not in self.servers.nodes:
                raise NoNodeError
            return [] if name else list(self.servers.nodes)

        return self._ask("children", do)  # type: ignore[no-any-return]

    def _node(self, path: str) -> str:
        name = path.rpartition("/")[2]
        if name not in self.servers.nodes:
            raise NoNodeError
        return name

    def read(self, path: str) -> tuple[bytes, float]:
        return self._ask("read", lambda: (self.servers.nodes[self._node(path)][0], 0.0))  # type: ignore[no-any-return]

    def write(self, path: str, data: bytes) -> None:
        def do() -> None:
            name = self._node(path)
            self.servers.nodes[name] = (data, self.servers.nodes[name][1])

        self._ask("write", do)

    def delete(self, path: str) -> None:
        self._ask("delete", lambda: self.servers.nodes.pop(path.rpartition("/")[2], None))

    def create_candidate(self, folder: str, begin: str, data: bytes) -> str:
        def do() -> str:
            self.servers.sequence += 1
            name = f"{begin}{self.servers.sequence:010}"
            self.servers.nodes[name] = (data, self.session_id or 0)
            return name

        return self._ask("create", do)  # type: ignore[no-any-return]

    def follow_members(self) -> None:
        pass

    def end(self) -> None:
        if self.servers.up and self.session_id is not None:
            self.servers.end_session(self.session_id)
