"""The thread of a candidate: looks whether somebody leads, enters the group when nobody does, renews, leaves."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import NamedTuple

from ledger.adapters.kafka.heartbeats import Heartbeat, Seen, SignWatch
from ledger.adapters.kafka.membership import Membership
from ledger.ports import Clock

log = logging.getLogger("ledger.kafka")
TICK_S = 0.05  # how long news from librdkafka may wait, and how soon a release is seen
LEAVING_S = 3.0  # how long leaving may take before the coordinator is left to find out by itself
RETRY_S = 1.0
NEVER = float("-inf")


class LeaseRequest(NamedTuple):
    """What the role wants. term: grows with each release, so that nothing proved before it counts afterwards."""

    wanted: bool = False
    term: int = 0


class KafkaLease(NamedTuple):
    """The lease: the term it belongs to, and when it ends (monotonic, seconds)."""

    term: int = 0
    until: float = NEVER


class KafkaCandidate:
    """`wish` and `closing` are set by the role's thread and read here; the rest is set here and read there. Each is one
    value that is replaced as a whole, so nobody ever waits for a lock."""

    def __init__(
        self, client: Mapping[str, str | int], topic: str, group: str, who: str, session_timeout_s: float, clock: Clock
    ) -> None:
        self._client = {**client, "client.id": f"{who}/{os.getpid()}"}
        self._topic, self._group, self._who, self._clock = topic, group, who, clock
        self._session_timeout_s = session_timeout_s
        self.wish, self.held, self.closing = LeaseRequest(), KafkaLease(), False
        self.leader, self.because, self.waits_for = "", "", "its first look at who leads"
        self._wake = threading.Event()
        self._watch: SignWatch | None = None
        self._stay: Membership | None = None
        self._known, self._term, self._id = self.wish, 0, ""
        self._age_s = 0.0
        self._changed_at = self._answered_at = clock.monotonic()

    def wake(self) -> None:
        self._wake.set()

    def run(self) -> None:
        """Until closed. Whatever goes wrong ends a stay in the group, never the thread: another stay comes after it."""
        while not (self.closing and self._stay is None):
            self._wake.clear()
            try:
                self._step()
            except Exception as error:
                log.exception("seeking the lead by group %s failed", self._group)
                self.waits_for = f"its next try, after: {error}"
                self._drop()
                self._wake.wait(0.0 if self.closing else RETRY_S)
        if self._watch is not None:
            self._watch.drop()

    def _step(self) -> None:
        stay, wish = self._stay, self.wish
        if wish != self._known:
            self._known = wish
            if stay is None:  # what was seen earlier may be too old to enter by
                self._changed_at = self._clock.monotonic()
        if stay is None or not (stay.holds or stay.leaving):
            self._look()
        if stay is None:
            if self._may_enter(wish):
                self._enter(wish)
            else:
                self._wake.wait(TICK_S)
        else:
            stay.serve(TICK_S, self._clock.monotonic)
            self._id = stay.id or self._id
            if stay.leaving:
                if not stay.id or self._clock.monotonic() >= self._changed_at + LEAVING_S:
                    stay.serve(TICK_S, self._clock.monotonic)  # what was told to librdkafka last goes out
                    self._drop()
            elif stay.over or not wish.wanted or wish.term != self._term or self._lost_the_race(stay):
                self._lose(stay.over)
                stay.leave()
                self._changed_at = self._clock.monotonic()
        self._tell()

    def _look(self) -> None:
        if self._watch is None:
            every_s = self._session_timeout_s / 10
            self._watch = SignWatch(self._client, self._topic, self._group, every_s, timeout_s=min(1.0, 2 * every_s))
        self._watch.look(self._clock.monotonic(), at_once=self._seen is None)
        seen = self._watch.seen
        if seen is not None and seen.sign is not None and seen.unchanged_s == 0:
            self._age_s = abs(self._clock.time() - seen.sign.at)

    @property
    def _seen(self) -> Seen | None:
        """What was seen since our own last change."""
        seen = self._watch.seen if self._watch is not None else None
        return seen if seen is not None and seen.asked_at > self._changed_at else None

    # -- the stay ------------------------------------------------------------------------------------------------------

    def _may_enter(self, wish: LeaseRequest) -> bool:
        """Nobody gives signs. A little before the session of one who died is over: a group that is not empty yet saves the
        broker's group.initial.rebalance.delay.ms. Whoever enters in error takes nothing from anyone."""
        seen = self._seen
        if not wish.wanted or seen is None:
            return False
        sign = seen.sign
        if sign is None or sign.left or seen.unchanged_s >= 0.9 * self._session_timeout_s:
            return True
        # Seen twice, and long past when it was seen first: left behind by one who ended before anyone looked.
        return seen.unchanged_s > 0 and self._age_s > 3 * self._session_timeout_s

    def _enter(self, wish: LeaseRequest) -> None:
        seen, now, since = self._seen, self._clock.monotonic(), self._clock.time()
        before = seen.sign if seen is not None else None
        why = "nobody led before"
        if before is not None:
            why = f"{before.who} left" if before.left else f"{before.who} gave no sign any more"

        def renewed(sent_at: float) -> None:
            if self.held.term != wish.term or self.held.until == NEVER:
                self.because = why
            elif self.held.until <= self._clock.monotonic():
                self.because = "Kafka answered again, and the group had given the partition to nobody else"
            self._answered_at = sent_at
            self.held = KafkaLease(wish.term, sent_at + self._session_timeout_s * 2 / 3)

        def sign(member: str, left: bool) -> Heartbeat:
            return Heartbeat(member, self._who, os.getpid(), since, self._clock.time(), left)

        self._term, self._id, self._changed_at, self._answered_at = wish.term, "", now, now
        self._stay = Membership(
            self._client, self._topic, self._group, session_timeout_s=self._session_timeout_s,
            sign=sign, renewed=renewed, lost=self._lose,
        )  # fmt: skip

    def _lose(self, why: str) -> None:
        """The lease is over, whatever is still under way."""
        if self.held.until > NEVER:
            self.held = KafkaLease(self.held.term, NEVER)
            self.because = why or "it released the lead"

    def _lost_the_race(self, stay: Membership) -> bool:
        """Several entered, and another gives signs now."""
        seen = self._seen
        if stay.holds or seen is None or seen.sign is None or seen.sign.left:
            return False
        return seen.sign.member != self._id and seen.unchanged_s < self._session_timeout_s / 3

    def _drop(self) -> None:
        stay, self._stay = self._stay, None
        self._lose("")
        self._changed_at = self._clock.monotonic()
        if stay is not None:
            stay.drop()

    # -- for people ----------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        stay, now = self._stay, self._clock.monotonic()
        if stay is not None and stay.holds:
            silent_s = now - self._answered_at
            self.leader = ""
            self.waits_for = f"kafka: an answer to its renewals, for {silent_s:.0f} s{_after(stay.trouble)}"
            return
        watch, seen = self._watch, self._watch.seen if self._watch is not None else None
        silent_s = now - (seen.asked_at if seen is not None else self._changed_at)
        if seen is None or (watch is not None and watch.trouble and silent_s > self._session_timeout_s / 5):
            trouble = _after(watch.trouble if watch is not None else "")
            self.leader, self.waits_for = "", f"kafka: no answer about group {self._group} for {silent_s:.0f} s{trouble}"
        elif stay is not None:
            self.leader, self.waits_for = "", f"kafka: group {self._group} to assign the partition{_after(stay.trouble)}"
        elif seen.sign is None or seen.sign.left:
            self.leader, self.waits_for = "", f"kafka: its entry into group {self._group}"
        else:
            sign, gone = seen.sign, seen.unchanged_s >= self._session_timeout_s
            self.leader = "" if gone else sign.who
            silent = f", silent for {seen.unchanged_s:.0f} s" if seen.unchanged_s > self._session_timeout_s / 3 else ""
            self.waits_for = f"the lead by group {self._group}, which {sign.who} (pid {sign.pid}) has{silent}"


def _after(trouble: str) -> str:
    return f" ({trouble})" if trouble else ""
