"""The thread of a candidate: it alone talks to ZooKeeper. What the role asks is answered from notes that it leaves.

Each step, every T/10 and whenever something happens, looks at everything anew: is there a session, is our node there, who
stands before it. So nothing that was missed (a watch, an answer, a member's change) is missed for longer than that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ledger.adapters.zookeeper import recipe
from ledger.adapters.zookeeper.link import ConnectionLoss, Link, NoNodeError
from ledger.adapters.zookeeper.recipe import CandidateRecord, Node
from ledger.ports import Clock

log = logging.getLogger("ledger.zookeeper")
RETRY_S = 1.0  # the longest pause between two tries to have a session


class ElectionRequest(NamedTuple):
    """What the role wants. term rises whenever it stops wanting: a node made for an earlier one must not lead."""

    wanted: bool
    term: int


class ZooKeeperLease(NamedTuple):
    """It leads, in `term`, until `until` (monotonic) unless renewed; since: seconds since the epoch."""

    term: int
    until: float
    since: float


class Notes(NamedTuple):
    """For people. leader: who leads as far as known. waits_for, because: as in `ports.Standing`."""

    leader: str = ""
    waits_for: str = "its first look at the candidates"
    because: str = ""


class ZooKeeperCandidate:
    """open_link: makes the link of a new session, with the members as last known, [] = not at all. who: what the candidate
    is called. owner: its token, in hex, never used by another. path: where the candidates stand.

    `wish` and `closing` are the role's to set, with `wake`; `held`, `notes` and `silent_since` are the keeper's. Each is
    one value, replaced whole, so that nobody waits for anybody."""

    def __init__(
        self, open_link: Callable[[Sequence[tuple[str, int]]], Link], path: str, who: str, pid: int, owner: str,
        clock: Clock,
    ) -> None:  # fmt: skip
        self._open_link, self._path, self._owner, self._clock = open_link, path, owner, clock
        self._who, self._pid = who, pid
        self._woken = threading.Event()
        self._link: Link | None = None
        self._members: list[tuple[str, int]] = []
        self._opened_at = float("-inf")
        self._node = ""  # our candidate's name, "" = none that we know of
        self._node_term = 0
        self._tries = 0
        self._unsure = False  # whether the last create had no answer
        self._since = 0.0
        self._came = ""  # why it leads, once it does
        self._written = ""  # the last waits_for that stands in the node
        self.wish = ElectionRequest(False, 0)
        self.closing = False
        self.held: ZooKeeperLease | None = None
        self.notes = Notes()
        self.silent_since: float | None = None

    def wake(self) -> None:
        self._woken.set()

    def run(self) -> None:
        while not self.closing:
            self._woken.clear()
            self._woken.wait(self.step())
        self.held = None
        if self._link is not None:
            self._link.end()

    @property
    def members(self) -> str:
        link = self._link
        return recipe.host_list(self._members if link is None else link.members)

    # -- the session ---------------------------------------------------------------------------------------------------

    def step(self) -> float:
        """Looks at everything once. How long to wait before the next, in seconds, unless woken."""
        began = self._clock.monotonic()
        if self.held is not None and self.held.until <= began:
            self._lose("its lease ended before a renewal was answered", keep_node=True)
            self._came = "its session outlived its lease"
        try:
            link = self._session(began)
            if link is None:
                return RETRY_S
            if not link.is_connected:
                return recipe.renew_every_s(link.session_s)
            self.silent_since = None
            self._attend(link)
            return max(0.0, began + recipe.renew_every_s(link.session_s) - self._clock.monotonic())
        except ConnectionLoss:
            return 0.01 * RETRY_S if self._link is not None and self._link.is_connected else RETRY_S / 10
        except Exception as error:
            # Refused, or not foreseen: what we can't keep up must not stand in the way of the others.
            self._lose(f"zookeeper: {type(error).__name__}: {error}")
            self.notes = self.notes._replace(waits_for=f"zookeeper: {type(error).__name__} {error}".rstrip())
            log.warning("lock_refused", extra={"path": self._path, "error": f"{type(error).__name__}: {error}"})
            self._discard()
            return RETRY_S

    def _session(self, now: float) -> Link | None:
        """The link, a new one where the old is of no use any more; None: it is too soon for another."""
        link = self._link
        if link is not None:
            if not link.is_connected and self.silent_since is None:
                self.silent_since = link.answered
            if link.over:
                self._lose(link.over)
                self.notes = self.notes._replace(waits_for=f"a new session: {link.over}")
                self._discard()
            elif link.session_id is not None and not recipe.session_may_live(link.session_s, link.answered, now):
                self._lose(f"no answer for {now - link.answered:.1f} s")
                self._discard()
            else:
                return link
        if now - self._opened_at < RETRY_S:
            return None
        self._opened_at = now
        self._link = self._open_link(self._members)
        self._link.start()
        return self._link

    def _discard(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._members = link.members
            threading.Thread(target=link.end, name="zookeeper end", daemon=True).start()

    def _lose(self, reason: str, keep_node: bool = False) -> None:
        """The lead is lost, if it was ours. keep_node: it may still be there, and first; else it is as good as gone."""
        if self.held is not None:
            log.warning("lock_lost", extra={"path": self._path, "reason": reason})
            self.notes = self.notes._replace(because=f"it lost the lead: {reason}", leader="")
        self.held = None
        if not keep_node:
            self._node, self._unsure = "", False

    # -- the candidate -------------------------------------------------------------------------------------------------

    def _attend(self, link: Link) -> None:
        wish = self.wish
        if not wish.wanted or self._node_term != wish.term:
            # Also when we know of no node: a create whose answer was lost may have been carried out late.
            self.held = None
            self._withdraw(link)
        if wish.wanted:
            if self.held is not None:  # first things first
                self._renew(link, self.held)
            self._stand(link, wish)
        link.follow_members()

    def _withdraw(self, link: Link) -> None:
        try:
            line = recipe.in_line(link.children(self._path))
        except NoNodeError:
            line = []
        for node in recipe.orphans(line, self._owner, None):
            link.delete(f"{self._path}/{node.name}")
        self._node, self._unsure = "", False

    def _stand(self, link: Link, wish: ElectionRequest) -> None:
        if not self._node:
            self._enter(link, wish)
        line = recipe.in_line(link.children(self._path))
        orphans = recipe.orphans(line, self._owner, self._node)
        for node in orphans:
            link.delete(f"{self._path}/{node.name}")
        line = [node for node in line if node not in orphans]
        at = recipe.place(line, self._node)
        if at is None:
            self._lose("its node was deleted")
            self.wake()
        elif at > 0:
            self._wait_behind(link, line[0], line[at - 1])
        elif self.held is None:
            self._renew(link, None)

    def _enter(self, link: Link, wish: ElectionRequest) -> None:
        """Becomes a candidate. Raises: ConnectionLoss: perhaps it has."""
        if self._unsure:
            adopted = recipe.created(recipe.in_line(link.children(self._path)), self._owner, self._tries)
            self._unsure = False
            if adopted is not None:
                self._node = adopted.name
                return
        self._tries += 1
        self._node_term, self._unsure, self._since = wish.term, True, self._clock.time()
        self._came, self._written = "nobody was before it", ""
        data = self._told(link, Notes().waits_for)
        self._node = link.create_candidate(self._path, recipe.prefix(self._owner, self._tries), data)
        self._unsure = False

    def _renew(self, link: Link, held: ZooKeeperLease | None) -> None:
        """A write to our own node, which only a living session can have committed (decision 9). held: None = it is first
        in line and begins to lead by it."""
        began = self._clock.time()
        try:
            link.write(f"{self._path}/{self._node}", self._told(link, "", began if held is None else held.since))
        except NoNodeError:
            self._lose("its node was deleted")
            self.wake()
            return
        until = link.answered + recipe.lease_s(link.session_s)
        if held is None:
            self.notes = Notes(self._who, "", self._came)
            log.info("lock_taken", extra={"path": self._path, "node": self._node, "because": self._came})
        self.held = ZooKeeperLease(self._node_term, until, began if held is None else held.since)

    def _wait_behind(self, link: Link, leader: Node, before: Node) -> None:
        if self.held is not None:
            self._lose("another candidate's node is before its own")
        try:
            # Of a node without children this watch tells of its end alone; one on its data would tell of each renewal.
            link.children(f"{self._path}/{before.name}", watch=self._on_gone)
            data, made = link.read(f"{self._path}/{leader.name}")
        except NoNodeError:
            self.wake()
            return
        told = recipe.decode(data)
        since = datetime.fromtimestamp(told.led_since or told.since or made, UTC)
        waits_for = recipe.behind(told, f"{since:%Y-%m-%d %H:%M:%S} UTC")
        self._came = f"gone: {waits_for}"
        self.notes = self.notes._replace(leader=told.who if told.led_since else "", waits_for=waits_for)
        if waits_for != self._written:
            link.write(f"{self._path}/{self._node}", self._told(link, waits_for))
            self._written = waits_for

    def _told(self, link: Link, waits_for: str, led_since: float | None = None) -> bytes:
        now, lease = self._clock.time(), recipe.lease_s(link.session_s)
        return recipe.encode(CandidateRecord(self._who, self._pid, self._since, led_since, waits_for, now, lease))

    def _on_gone(self, _event: Any) -> None:
        self.wake()
