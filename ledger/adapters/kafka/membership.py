"""One membership of a candidate in the consumer group of its role, from joining to leaving.

librdkafka sends heartbeats by itself and does not report their answers. So the member that holds the partition renews
its lease by a separate request: an offset commit, which carries member id and generation. The coordinator accepts the
commit only while that member is in the group, and counts it as a heartbeat (Kafka's ClassicGroup.validateOffsetCommit
and OffsetMetadataManager.commitOffset)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ledger.adapters.kafka.errors import PASSING, describe_error, made
from ledger.adapters.kafka.heartbeats import QUIET, Heartbeat

log = logging.getLogger("ledger.kafka")

#: Errors that mean: this member is no longer in the group.
EXPELLED = frozenset({KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL})
SILENT = "the group no longer knows this member: it sent no heartbeat for a whole session timeout"
#: Errors of a commit during a rebalance. A rebalance alone changes nothing.
REBALANCING = frozenset({KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION})


def settings(session_timeout_s: float) -> dict[str, str | int]:
    """Returns the consumer's settings, which no user may override. session_timeout_s: the session timeout of the
    group's members.

    The group protocol is classic: with KIP-848 the broker sets the session timeout (45 s), not the client."""
    session_ms = round(session_timeout_s * 1000)
    return {
        **QUIET,
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": max(1, session_ms // 10),
        # The process lives, but its polling thread has stopped: free the partition. At least the session timeout.
        "max.poll.interval.ms": 3 * session_ms,
        # The member that holds the partition keeps it when others join or leave.
        "partition.assignment.strategy": "cooperative-sticky",
        # A connection that is silent for T/5 is closed. The timeout must exceed fetch.wait.max.ms by a second, or
        # librdkafka warns; nothing is ever fetched.
        "fetch.wait.max.ms": 10,
        "socket.timeout.ms": max(1100, session_ms // 5),
    }


class Membership:
    """One membership in a consumer group. Call `serve` again and again; callbacks of librdkafka run within `serve` and
    only set flags.

    heartbeat: makes the heartbeat to commit, from the member id and whether the member is leaving. renewed: called once
    a renewal was answered, with the time at which it was sent (monotonic, seconds). lost: called with the reason when
    the group has taken the partition from this member."""

    def __init__(
        self, client: Mapping[str, str | int], topic: str, group: str, *, session_timeout_s: float,
        heartbeat: Callable[[str, bool], Heartbeat], renewed: Callable[[float], None], lost: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._topic, self._heartbeat, self._renewed, self._lost = topic, heartbeat, renewed, lost
        self._every_s = session_timeout_s / 10
        self.holds = self.leaving = False
        self.over = ""
        """Why this membership has ended; "" = it has not."""
        self.trouble = ""
        """The last error that librdkafka reported, for people."""
        self._number = 0
        self._open: float | None = None
        self._next = float("-inf")
        own = {**settings(session_timeout_s), "group.id": group, "on_commit": self._answered}
        self._consumer: Consumer | None = made(Consumer, {**client, **own}, log)
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._expelled)

    @property
    def id(self) -> str:
        """The member id that the coordinator gave; "" before this member has joined and after it has left."""
        return (self._consumer.memberid() or "") if self._consumer is not None else ""

    def serve(self, timeout_s: float, now: Callable[[], float]) -> None:
        """Runs librdkafka's callbacks, and sends a renewal when one is due. Waits up to timeout_s."""
        if self._consumer is None:
            return
        if self.holds and self._open is None and now() >= self._next:
            # One renewal at a time. The lease counts from this moment, even if librdkafka delays the request.
            self._open = now()
            self._next = self._open + self._every_s
            self._commit(self._consumer, left=False)
        message = self._consumer.poll(timeout_s)
        error = message.error() if message is not None else None
        if error is not None:
            self._take(error)

    def leave(self) -> None:
        """Asks to leave the group; `serve` sends the request. `id` is "" once the coordinator has received it."""
        if self._consumer is None or self.leaving:
            return
        if self.holds:
            self._commit(self._consumer, left=True)  # librdkafka leaves after this commit is answered or has failed
        self.leaving, self.holds = True, False
        self._consumer.unsubscribe()

    def drop(self) -> None:
        """Closes the consumer on another thread: without a broker, closing takes librdkafka up to a session timeout."""
        self.holds = False
        box, self._consumer = [self._consumer], None
        threading.Thread(target=box.clear, name="drop-consumer", daemon=True).start()

    def _commit(self, consumer: Consumer, *, left: bool) -> None:
        self._number += 1
        metadata = self._heartbeat(consumer.memberid() or "", left).encoded()
        consumer.commit(offsets=[TopicPartition(self._topic, 0, self._number, metadata)], asynchronous=True)

    # -- callbacks, all within poll ------------------------------------------------------------------------------------

    def _answered(self, error: KafkaError | None, tps: list[TopicPartition]) -> None:
        sent_at, self._open = self._open, None
        error = error or next((tp.error for tp in tps if tp.error), None)
        if error is None:
            self.trouble = ""
            if self.holds and sent_at is not None:
                self._renewed(sent_at)
        elif error.code() in EXPELLED:
            self._end(SILENT)
        elif error.code() not in REBALANCING:
            self.trouble = describe_error(error)

    def _assigned(self, consumer: Consumer, tps: list[TopicPartition]) -> None:
        mine = [TopicPartition(tp.topic, tp.partition, 0) for tp in tps]
        consumer.incremental_assign(mine)
        consumer.pause(mine)  # there is nothing to read
        if any(tp.partition == 0 for tp in mine) and not self.leaving:
            self.holds = True

    def _revoked(self, _consumer: Consumer, tps: list[TopicPartition]) -> None:
        if any(tp.partition == 0 for tp in tps):
            self._end("the group took the partition back")

    def _expelled(self, _consumer: Consumer, _tps: list[TopicPartition]) -> None:
        self._end(SILENT)

    def _end(self, why: str) -> None:
        held, self.holds = self.holds, False
        self.over = self.over or why
        if held:
            self._lost(why)

    def _take(self, error: KafkaError) -> None:
        before, self.trouble = self.trouble, describe_error(error)
        if error.code() == KafkaError.INVALID_SESSION_TIMEOUT:
            self.trouble += "; the broker's group.min.session.timeout.ms (6 s by default) exceeds session_timeout_s"
        if error.code() not in PASSING and self.trouble != before:
            log.error("election_trouble", extra={"reason": self.trouble})
        if error.fatal() or error.code() == KafkaError._MAX_POLL_EXCEEDED:
            self._end(f"librdkafka gave up: {self.trouble}")
