"""The heartbeat of a leader: metadata that the leader commits with the offset of its group. Other candidates read it.

No candidate asks the coordinator for the members of the group. If the coordinator fails during such a request of the
admin client, an assertion in librdkafka ends the whole process (its issues 3663 and 4605). Reading a committed offset
is safe."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ledger.adapters.kafka.errors import describe_error, error_of, made

log = logging.getLogger("ledger.kafka")
TEXT_MAX = 200  # characters of one value; a broker accepts 4096 bytes in all (offset.metadata.max.bytes)

#: Settings of consumers that only take part in elections. Errors show in `standing`, not as a log line per connection.
QUIET: dict[str, str | int] = {
    "group.protocol": "classic",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "allow.auto.create.topics": "false",
    "reconnect.backoff.max.ms": 1000,
    "log_level": 2,
}


class Heartbeat(NamedTuple):
    """One heartbeat of a leader: the metadata of an offset commit. member: the member id, new for each membership. who,
    pid: the leader, for people. since: when the leader joined the group; at: when the leader sent the heartbeat. Both
    times are seconds since the epoch by the leader's clock, for people and as a hint. left: the leader is leaving, so
    candidates need not wait for its session to end."""

    member: str
    who: str
    pid: int
    since: float
    at: float
    left: bool = False

    def encoded(self) -> str:
        return json.dumps(self._replace(who=self.who[:TEXT_MAX])._asdict())


def decoded(metadata: str | None) -> Heartbeat | None:
    """Returns the heartbeat in the metadata; None if the metadata holds none: other programs may commit to the same
    group."""
    try:
        found = json.loads(metadata or "")
        return Heartbeat(
            str(found["member"]), str(found["who"]), int(found["pid"]),
            float(found["since"]), float(found["at"]), bool(found["left"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError):
        return None


class Seen(NamedTuple):
    """The newest heartbeat as read. asked_at: when the read was sent (monotonic, seconds). heartbeat: None = the group
    has none. unchanged_s: for how many seconds reads have returned this same heartbeat; time without answers does not
    count."""

    asked_at: float
    heartbeat: Heartbeat | None
    unchanged_s: float


class HeartbeatWatch:
    """Reads the newest heartbeat of a group every `every_s` seconds, without joining the group."""

    def __init__(self, client: Mapping[str, str | int], topic: str, group: str, every_s: float, timeout_s: float) -> None:
        self._consumer = made(Consumer, {**client, **QUIET, "group.id": group}, log)
        self._tp, self._every_s, self._timeout_s = TopicPartition(topic, 0), every_s, timeout_s
        self._due_at = float("-inf")
        self._value: tuple[int, str] = (-1, "")
        self.seen: Seen | None = None
        """The last answer; None before the first one."""
        self.trouble = ""
        """Why the last read failed; "" = it did not, or there was none yet."""

    def look(self, now: float, *, at_once: bool = False) -> None:
        """Reads the heartbeat if a read is due, or at_once, and waits up to timeout_s for the answer. now: monotonic,
        in seconds."""
        if now < self._due_at and not (at_once and not self.trouble):
            return
        self._due_at = now + self._every_s
        try:
            self._take(now, self._ask())
            self.trouble = ""
        except KafkaException as exception:
            self.trouble = describe_error(error_of(exception))

    def drop(self) -> None:
        """Closes the consumer on another thread: without a broker that may take long. Do not use this object afterwards."""
        box = [self._consumer]
        del self._consumer
        threading.Thread(target=box.clear, name="drop-consumer", daemon=True).start()

    def _ask(self) -> TopicPartition:
        """Raises: KafkaException."""
        [answer] = self._consumer.committed([self._tp], self._timeout_s)
        if answer.error is not None:
            raise KafkaException(answer.error)
        return answer

    def _take(self, now: float, answer: TopicPartition) -> None:
        """A group that had an offset and now has none most likely means that its coordinator is still loading."""
        before, value = self.seen, (answer.offset, answer.metadata or "")
        if before is None or (value != self._value and value[0] >= 0):
            self._value = value
            self.seen = Seen(now, decoded(value[1]), 0.0)
        else:
            gap_s = min(now - before.asked_at, 2 * self._every_s)
            self.seen = Seen(now, before.heartbeat, before.unchanged_s + gap_s)
