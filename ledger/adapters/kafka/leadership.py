"""Leadership without ZooKeeper: a consumer group per role, and a topic with one partition. The member that holds the
partition leads.

A candidate joins the group only when no leader sends heartbeats. During a rebalance the leader's renewals get no
answer: they queue behind the leader's JoinGroup request, which waits until the sessions of dead members are over. So a
leader is alone in its group, and other candidates come, go and die without disturbing it (decision 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ledger.adapters.candidate_thread import CandidateThread
from ledger.adapters.clock import SystemClock
from ledger.adapters.kafka.group_strategy import GroupStrategy
from ledger.adapters.kafka.heartbeats import HeartbeatWatch
from ledger.config.topics import LEADERS
from ledger.errors import Unreachable
from ledger.ports import Candidate, Clock


class ElectionNames(NamedTuple):
    """The topic and the consumer group of an election. All elections of a ledger share the topic, which stays empty."""

    topic: str
    group: str

    @classmethod
    def of(cls, prefix: str, role: str) -> ElectionNames:
        return cls(f"{prefix}{LEADERS}", f"{prefix}ledger.leader-{role}")


class KafkaLeadership(CandidateThread):
    """Implements `ports.Leadership` with a consumer group.

    A lease counts from the moment when the last answered renewal was sent. It ends after two thirds of
    session_timeout_s, so before the coordinator can give the partition to another member. A rebalance, a lost
    connection or a dead broker alone does not end a lease.

    session_timeout_s: at least the broker's group.min.session.timeout.ms (6 s by default). Otherwise the broker refuses
    the member, and `standing` shows the refusal. who: the candidate's name, for people; who and pid make the client.id.
    """

    def __init__(
        self, client: Mapping[str, str | int], names: ElectionNames, *, who: str = "", session_timeout_s: float = 10.0,
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        clock = clock or SystemClock()
        strategy = GroupStrategy(client, names.topic, names.group, who, session_timeout_s, clock)
        super().__init__(strategy, f"leadership {names.group}", who, clock)


def candidates(
    client: Mapping[str, str | int], names: ElectionNames, *, session_timeout_s: float = 10.0, clock: Clock | None = None,
    timeout_s: float = 5.0,
) -> list[Candidate]:  # fmt: skip
    """Returns the leader as its newest heartbeat describes it; Kafka knows no other candidates. If the heartbeat is
    older than a lease, the candidate is returned with `leads` False.

    Raises: Unreachable."""
    clock = clock or SystemClock()
    watch = HeartbeatWatch(client, names.topic, names.group, 0.0, timeout_s)
    try:
        watch.look(clock.monotonic())
        if watch.seen is None:
            where = client.get("bootstrap.servers")
            raise Unreachable(f"No answer from Kafka at {where} about group {names.group}: {watch.trouble}.")
        heartbeat = watch.seen.heartbeat
    finally:
        watch.drop()
    if heartbeat is None or heartbeat.left:
        return []
    left_s = heartbeat.at + session_timeout_s * 2 / 3 - clock.time()
    if left_s <= 0:
        waits_for = f"an answer from Kafka, or its restart: its lease ended {-left_s:.0f} s ago"
        return [Candidate(heartbeat.who, heartbeat.pid, heartbeat.since, False, waits_for)]
    return [Candidate(heartbeat.who, heartbeat.pid, heartbeat.since, True, "", left_s)]
