"""Leadership without ZooKeeper: a consumer group per role, a topic with one partition; who is assigned it leads.

A candidate enters the group only when nobody leads. For as long as a rebalance lasts, whoever holds the partition gets no
answer to its renewals: they queue behind its JoinGroup, which waits until the sessions of members that have died are over.
So a leader is alone in its group, and others come, go and are killed without disturbing it (decision 10).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import NamedTuple

from ledger.adapters.clock import SystemClock
from ledger.adapters.kafka.heartbeats import SignWatch
from ledger.adapters.kafka.seeking import KafkaCandidate, LeaseRequest
from ledger.config.topics import LEADERS
from ledger.errors import Unreachable
from ledger.ports import Candidate, Clock, Standing

CLOSE_S = 1.0


class ElectionNames(NamedTuple):
    """What an election is about. All elections of a ledger share the topic; nothing is ever written to it."""

    topic: str
    group: str

    @classmethod
    def of(cls, prefix: str, role: str) -> ElectionNames:
        return cls(f"{prefix}{LEADERS}", f"{prefix}ledger.leader-{role}")


class KafkaLeadership:
    """Implements `ports.Leadership`. The lease counts from the sending of the last renewal that was answered and ends at
    two thirds of session_timeout_s, so before the coordinator can give the partition to another. A rebalance, a connection
    that is lost, a broker that is away end nothing by themselves. Nothing here waits: the seeker's thread does.

    session_timeout_s: not below the broker's group.min.session.timeout.ms (6 s by default): it would refuse us, and
    `standing` says so. who: for people; with the pid it is the client.id.
    """

    def __init__(
        self, client: Mapping[str, str | int], names: ElectionNames, *, who: str = "", session_timeout_s: float = 10.0,
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._clock = clock or SystemClock()
        self._who, self._pid = who, os.getpid()
        self._seeker = KafkaCandidate(client, names.topic, names.group, who, session_timeout_s, self._clock)
        self._thread = threading.Thread(target=self._seeker.run, name=f"leadership {names.group}", daemon=True)
        self._started = False

    def acquire(self) -> bool:
        seeker = self._seeker
        if seeker.closing or os.getpid() != self._pid:
            return False
        if not seeker.wish.wanted:
            seeker.wish = LeaseRequest(True, seeker.wish.term)
            seeker.wake()
        if not self._started:
            self._started = True
            self._thread.start()
        return self.valid()

    def valid(self) -> bool:
        """Never in a forked child: it has no thread that renews."""
        held, wish = self._seeker.held, self._seeker.wish
        return wish.wanted and held.term == wish.term and self._clock.monotonic() < held.until and os.getpid() == self._pid

    def release(self) -> None:
        seeker = self._seeker
        if seeker.wish.wanted:
            # The term goes first: from here on no answer can make it lead again.
            seeker.wish = LeaseRequest(False, seeker.wish.term + 1)
            seeker.wake()

    def standing(self) -> Standing:
        seeker = self._seeker
        left_s = seeker.held.until - self._clock.monotonic()
        if self.valid():
            return Standing(True, max(0.0, left_s), self._who, "", seeker.because)
        waits_for = seeker.waits_for if seeker.wish.wanted else "nothing: it is no candidate now"
        return Standing(False, None, seeker.leader, waits_for, seeker.because)

    def close(self) -> None:
        self.release()
        self._seeker.closing = True
        self._seeker.wake()
        if self._started and os.getpid() == self._pid:
            self._thread.join(CLOSE_S)


def candidates(
    client: Mapping[str, str | int], names: ElectionNames, *, session_timeout_s: float = 10.0, clock: Clock | None = None,
    timeout_s: float = 5.0,
) -> list[Candidate]:  # fmt: skip
    """Who leads, as it says itself; nobody else is known to Kafka. One whose signs are too old is told of as no leader.

    Raises: Unreachable."""
    clock = clock or SystemClock()
    watch = SignWatch(client, names.topic, names.group, 0.0, timeout_s)
    try:
        watch.look(clock.monotonic())
        if watch.seen is None:
            where = client.get("bootstrap.servers")
            raise Unreachable(f"No answer from Kafka at {where} about group {names.group}: {watch.trouble}.")
        sign = watch.seen.sign
    finally:
        watch.drop()
    if sign is None or sign.left:
        return []
    left_s = sign.at + session_timeout_s * 2 / 3 - clock.time()
    if left_s <= 0:
        waits_for = f"an answer from Kafka, or its restart: its lease ended {-left_s:.0f} s ago"
        return [Candidate(sign.who, sign.pid, sign.since, False, waits_for)]
    return [Candidate(sign.who, sign.pid, sign.since, True, "", left_s)]
