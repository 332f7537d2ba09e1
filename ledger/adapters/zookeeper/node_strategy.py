"""An election by nodes in ZooKeeper: each candidate has an ephemeral sequential node, and the first in line leads.

Each step reads everything again: the session, the candidate's own node, and the nodes before it. Steps follow each
event, and come every tenth of the session timeout. So a missed watch, answer or change of members is noticed that much
later at most."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from ledger.adapters.candidate_thread import ElectionNotes, ElectionStrategy, Lease, LeaseRequest
from ledger.adapters.zookeeper import recipe
from ledger.adapters.zookeeper.link import ConnectionLoss, Link, NoNodeError
from ledger.adapters.zookeeper.recipe import CandidateRecord, Node
from ledger.ports import Clock

log = logging.getLogger("ledger.zookeeper")
RETRY_S = 1.0  # the longest pause between two attempts to open a session


class NodeStrategy(ElectionStrategy):
    """Takes part in the election below one path. Decision 9.

    open_link: makes the link for a new session, given the members known last ([] = none). path: the parent of the
    nodes. who, pid: the candidate's name and process, for people. owner: a token in hex that is never used again; the
    name of each node of this candidate begins with it. silent_since: when the connection was lost (monotonic, seconds),
    None = it was not."""

    def __init__(
        self, open_link: Callable[[Sequence[tuple[str, int]]], Link], path: str, who: str, pid: int, owner: str,
        clock: Clock,
    ) -> None:  # fmt: skip
        super().__init__()
        self._open_link, self._path, self._owner, self._clock = open_link, path, owner, clock
        self._who, self._pid = who, pid
        self._link: Link | None = None
        self._members: list[tuple[str, int]] = []
        self._opened_at = float("-inf")
        self._node = ""  # the name of the candidate's node, "" = no node is known
        self._node_term = 0
        self._tries = 0
        self._unsure = False  # whether the last create had no answer
        self._since = 0.0
        self._because = ""  # why it leads, once it does
        self._written = ""  # the last waits_for in the node's data
        self.silent_since: float | None = None

    @property
    def members(self) -> str:
        link = self._link
        return recipe.host_list(self._members if link is None else link.members)

    def outlook(self, request: LeaseRequest) -> ElectionNotes:
        notes, silent_since = self.notes, self.silent_since
        if not request.wanted:
            return notes._replace(leader="")
        if silent_since is None:
            return notes._replace(waits_for=notes.waits_for or "its next renewal")
        waits_for = f"zookeeper: no answer from {self.members} for {self._clock.monotonic() - silent_since:.0f} s"
        return notes._replace(leader="", waits_for=waits_for)

    @property
    def has_left(self) -> bool:
        """Always True: the end of the session deletes the node, so no further step is needed."""
        return True

    def end(self) -> None:
        self.lease = None
        if self._link is not None:
            self._link.end()

    # -- the session ---------------------------------------------------------------------------------------------------

    def step(self, request: LeaseRequest) -> float:
        began = self._clock.monotonic()
        if self.lease is not None and self.lease.until <= began:
            self._lose("its lease ended before a renewal was answered", keep_node=True)
            self._because = "its session outlived its lease"
        try:
            link = self._session(began)
            if link is None:
                return RETRY_S
            if not link.is_connected:
                return recipe.renew_every_s(link.session_s)
            self.silent_since = None
            self._attend(link, request)
            return max(0.0, began + recipe.renew_every_s(link.session_s) - self._clock.monotonic())
        except ConnectionLoss:
            return 0.01 * RETRY_S if self._link is not None and self._link.is_connected else RETRY_S / 10

    def recover(self, error: Exception) -> None:
        """Ends the candidate's session after an error, since a candidate that can't keep its node must not block the
        others. The server refused a request, or the error was not foreseen."""
        self._lose(f"zookeeper: {type(error).__name__}: {error}")
        self.notes = self.notes._replace(waits_for=f"zookeeper: {type(error).__name__} {error}".rstrip())
        log.warning("lock_refused", extra={"path": self._path, "error": f"{type(error).__name__}: {error}"})
        self._discard()

    def _session(self, now: float) -> Link | None:
        """The link of the session, a new one if the session has ended; None if it is too soon for a new one."""
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
        """Gives up the lease, if there is one. keep_node: the node may still exist and be first; otherwise it is gone."""
        if self.lease is not None:
            log.warning("lock_lost", extra={"path": self._path, "reason": reason})
            self.notes = self.notes._replace(because=f"it lost the lead: {reason}", leader="")
        self.lease = None
        if not keep_node:
            self._node, self._unsure = "", False

    # -- the candidate's node ------------------------------------------------------------------------------------------

    def _attend(self, link: Link, request: LeaseRequest) -> None:
        if not request.wanted or self._node_term != request.term:
            # Also if no node is known: a create whose answer was lost may have been carried out late.
            self.lease = None
            self._withdraw(link)
        if request.wanted:
            if self.lease is not None:  # the renewal comes before all other requests
                self._renew(link, self.lease)
            self._stand(link, request)
        link.follow_members()

    def _withdraw(self, link: Link) -> None:
        try:
            line = recipe.in_line(link.children(self._path))
        except NoNodeError:
            line = []
        for node in recipe.orphans(line, self._owner, None):
            link.delete(f"{self._path}/{node.name}")
        self._node, self._unsure = "", False

    def _stand(self, link: Link, request: LeaseRequest) -> None:
        if not self._node:
            self._enter(link, request)
        line = recipe.in_line(link.children(self._path))
        orphans = recipe.orphans(line, self._owner, self._node)
        for node in orphans:
            link.delete(f"{self._path}/{node.name}")
        line = [node for node in line if node not in orphans]
        at = recipe.position(line, self._node)
        if at is None:
            self._lose("its node was deleted")
            self.wake()
        elif at > 0:
            self._wait_behind(link, line[0], line[at - 1])
        elif self.lease is None:
            self._renew(link, None)

    def _enter(self, link: Link, request: LeaseRequest) -> None:
        """Creates the node. Raises: ConnectionLoss: the node may exist all the same; the next call looks for it."""
        if self._unsure:
            adopted = recipe.created(recipe.in_line(link.children(self._path)), self._owner, self._tries)
            self._unsure = False
            if adopted is not None:
                self._node = adopted.name
                return
        self._tries += 1
        self._node_term, self._unsure, self._since = request.term, True, self._clock.time()
        self._because, self._written = "nobody was before it", ""
        data = self._record(link, ElectionNotes().waits_for)
        self._node = link.create_candidate(self._path, recipe.prefix(self._owner, self._tries), data)
        self._unsure = False

    def _renew(self, link: Link, lease: Lease | None) -> None:
        """Renews the lease by a write to the candidate's own node: only a living session can commit it (decision 9).
        lease: None = the node is first in line, and this write begins the lease."""
        began = self._clock.time()
        try:
            link.write(f"{self._path}/{self._node}", self._record(link, "", began if lease is None else lease.since))
        except NoNodeError:
            self._lose("its node was deleted")
            self.wake()
            return
        until = link.answered + recipe.lease_s(link.session_s)
        if lease is None:
            self.notes = ElectionNotes(self._who, "", self._because)
            log.info("lock_taken", extra={"path": self._path, "node": self._node, "because": self._because})
        self.lease = Lease(self._node_term, until, began if lease is None else lease.since)

    def _wait_behind(self, link: Link, leader: Node, before: Node) -> None:
        if self.lease is not None:
            self._lose("another candidate's node is before its own")
        try:
            # A node without children: this watch fires only when the node is deleted. A watch on its data would fire for
            # each renewal.
            link.children(f"{self._path}/{before.name}", watch=self._on_deleted)
            data, created_at = link.read(f"{self._path}/{leader.name}")
        except NoNodeError:
            self.wake()
            return
        first = recipe.decode(data)
        since = datetime.fromtimestamp(first.led_since or first.since or created_at, UTC)
        waits_for = recipe.behind(first, f"{since:%Y-%m-%d %H:%M:%S} UTC")
        self._because = f"gone: {waits_for}"
        self.notes = self.notes._replace(leader=first.who if first.led_since else "", waits_for=waits_for)
        if waits_for != self._written:
            link.write(f"{self._path}/{self._node}", self._record(link, waits_for))
            self._written = waits_for

    def _record(self, link: Link, waits_for: str, led_since: float | None = None) -> bytes:
        now, lease_s = self._clock.time(), recipe.lease_s(link.session_s)
        return recipe.encode(CandidateRecord(self._who, self._pid, self._since, led_since, waits_for, now, lease_s))

    def _on_deleted(self, _event: Any) -> None:
        self.wake()
