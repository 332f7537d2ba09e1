"""An election by a consumer group: a candidate watches the heartbeats of the leader and joins the group once they stop."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from ledger.adapters.candidate_thread import ElectionNotes, ElectionStrategy, Lease, LeaseRequest
from ledger.adapters.kafka.heartbeats import Heartbeat, HeartbeatWatch, Seen
from ledger.adapters.kafka.membership import Membership
from ledger.ports import Clock

log = logging.getLogger("ledger.kafka")
TICK_S = 0.05  # how long an event from librdkafka may wait, and how soon a release is seen
LEAVING_S = 3.0  # how long leaving the group may take; after that the coordinator must notice it by the session timeout


class GroupStrategy(ElectionStrategy):
    """Takes part in the election of one consumer group. Decision 10.

    session_timeout_s: the session timeout of the group's members. A lease ends two thirds of the session timeout after
    the last answered renewal was sent."""

    def __init__(
        self, client: Mapping[str, str | int], topic: str, group: str, who: str, session_timeout_s: float, clock: Clock
    ) -> None:
        super().__init__()
        self._client = {**client, "client.id": f"{who}/{os.getpid()}"}
        self._topic, self._group, self._who, self._clock = topic, group, who, clock
        self._session_timeout_s = session_timeout_s
        self._watch: HeartbeatWatch | None = None
        self._membership: Membership | None = None
        self._known, self._term, self._member_id = LeaseRequest(), 0, ""
        self._heartbeat_age_s = 0.0
        self._changed_at = self._answered_at = clock.monotonic()

    def step(self, request: LeaseRequest) -> float:
        membership = self._membership
        if request != self._known:
            self._known = request
            if membership is None:  # a heartbeat seen before the request may be too old to decide by
                self._changed_at = self._clock.monotonic()
        if membership is None or not (membership.holds or membership.leaving):
            self._look()
        if membership is None:
            if self._may_join(request):
                self._join(request)
        else:
            membership.serve(TICK_S, self._clock.monotonic)
            self._member_id = membership.id or self._member_id
            if membership.leaving:
                self._finish_leaving(membership)
            elif self._must_leave(membership, request):
                self._lose(membership.over)
                membership.leave()
                self._changed_at = self._clock.monotonic()
        self._take_notes()
        return TICK_S if membership is None and self._membership is None else 0.0

    def recover(self, error: Exception) -> None:
        log.exception("election_step_failed", extra={"group": self._group})
        self.notes = self.notes._replace(waits_for=f"its next try, after: {error}")
        self._drop()

    def outlook(self, request: LeaseRequest) -> ElectionNotes:  # noqa: ARG002 -- the notes hold for any request
        return self.notes

    @property
    def has_left(self) -> bool:
        return self._membership is None

    def end(self) -> None:
        self.lease = None
        if self._watch is not None:
            self._watch.drop()

    def _look(self) -> None:
        if self._watch is None:
            every_s = self._session_timeout_s / 10
            self._watch = HeartbeatWatch(self._client, self._topic, self._group, every_s, timeout_s=min(1.0, 2 * every_s))
        self._watch.look(self._clock.monotonic(), at_once=self._seen is None)
        seen = self._watch.seen
        if seen is not None and seen.heartbeat is not None and seen.unchanged_s == 0:
            self._heartbeat_age_s = abs(self._clock.time() - seen.heartbeat.at)

    @property
    def _seen(self) -> Seen | None:
        """The heartbeat as read after this candidate's own last change; None before the first such read."""
        seen = self._watch.seen if self._watch is not None else None
        return seen if seen is not None and seen.asked_at > self._changed_at else None

    # -- the membership ------------------------------------------------------------------------------------------------

    def _may_join(self, request: LeaseRequest) -> bool:
        """Whether the lease is wanted and no leader sends heartbeats.

        A candidate joins shortly before the session of a dead leader ends: a group that is not empty yet saves the broker's
        group.initial.rebalance.delay.ms. A candidate that joins by mistake takes the partition from nobody."""
        seen = self._seen
        if not request.wanted or seen is None:
            return False
        heartbeat = seen.heartbeat
        if heartbeat is None or heartbeat.left or seen.unchanged_s >= 0.9 * self._session_timeout_s:
            return True
        # Read twice without a change, and old already at the first read: its leader died before this candidate looked.
        return seen.unchanged_s > 0 and self._heartbeat_age_s > 3 * self._session_timeout_s

    def _join(self, request: LeaseRequest) -> None:
        seen, now, since = self._seen, self._clock.monotonic(), self._clock.time()
        before = seen.heartbeat if seen is not None else None
        why = "nobody led before"
        if before is not None:
            why = f"{before.who} left" if before.left else f"{before.who} sent no more heartbeats"

        def renewed(sent_at: float) -> None:
            if self.lease is None or self.lease.term != request.term:
                self.notes = self.notes._replace(because=why)
            elif self.lease.until <= self._clock.monotonic():
                because = "Kafka answered again, and the group had given the partition to nobody else"
                self.notes = self.notes._replace(because=because)
            self._answered_at = sent_at
            self.lease = Lease(request.term, sent_at + self._session_timeout_s * 2 / 3, since)

        def heartbeat(member: str, left: bool) -> Heartbeat:
            return Heartbeat(member, self._who, os.getpid(), since, self._clock.time(), left)

        self._term, self._member_id, self._changed_at, self._answered_at = request.term, "", now, now
        self._membership = Membership(
            self._client, self._topic, self._group, session_timeout_s=self._session_timeout_s,
            heartbeat=heartbeat, renewed=renewed, lost=self._lose,
        )  # fmt: skip

    def _must_leave(self, membership: Membership, request: LeaseRequest) -> bool:
        if membership.over or not request.wanted or request.term != self._term:
            return True
        return self._lost_the_race(membership)

    def _lost_the_race(self, membership: Membership) -> bool:
        """Whether another candidate joined at the same time, and sends heartbeats now."""
        seen = self._seen
        if membership.holds or seen is None or seen.heartbeat is None or seen.heartbeat.left:
            return False
        return seen.heartbeat.member != self._member_id and seen.unchanged_s < self._session_timeout_s / 3

    def _finish_leaving(self, membership: Membership) -> None:
        if not membership.id or self._clock.monotonic() >= self._changed_at + LEAVING_S:
            membership.serve(TICK_S, self._clock.monotonic)  # lets librdkafka send its last requests
            self._drop()

    def _lose(self, why: str) -> None:
        """Gives up the lease, whatever request is still open."""
        if self.lease is not None:
            self.lease = None
            self.notes = self.notes._replace(because=why or "it released the lead")

    def _drop(self) -> None:
        membership, self._membership = self._membership, None
        self._lose("")
        self._changed_at = self._clock.monotonic()
        if membership is not None:
            membership.drop()

    # -- for people ----------------------------------------------------------------------------------------------------

    def _take_notes(self) -> None:
        leader, waits_for = self._state()
        self.notes = self.notes._replace(leader=leader, waits_for=waits_for)

    def _state(self) -> tuple[str, str]:
        """The leader as far as known, and what this candidate waits for."""
        membership, now = self._membership, self._clock.monotonic()
        if membership is not None and membership.holds:
            silent_s = now - self._answered_at
            return "", f"kafka: an answer to its renewals, for {silent_s:.0f} s{_after(membership.trouble)}"
        watch, seen = self._watch, self._watch.seen if self._watch is not None else None
        silent_s = now - (seen.asked_at if seen is not None else self._changed_at)
        if seen is None or (watch is not None and watch.trouble and silent_s > self._session_timeout_s / 5):
            trouble = _after(watch.trouble if watch is not None else "")
            return "", f"kafka: no answer about group {self._group} for {silent_s:.0f} s{trouble}"
        if membership is not None:
            return "", f"kafka: group {self._group} to assign the partition{_after(membership.trouble)}"
        heartbeat = seen.heartbeat
        if heartbeat is None or heartbeat.left:
            return "", f"kafka: its entry into group {self._group}"
        dead = seen.unchanged_s >= self._session_timeout_s
        silent = f", silent for {seen.unchanged_s:.0f} s" if seen.unchanged_s > self._session_timeout_s / 3 else ""
        waits_for = f"the lead by group {self._group}, which {heartbeat.who} (pid {heartbeat.pid}) has{silent}"
        return "" if dead else heartbeat.who, waits_for


def _after(trouble: str) -> str:
    return f" ({trouble})" if trouble else ""
