"""The sign that a leader gives with each renewal: what it commits beside the offset of its group. Others look at it.

Nobody asks the coordinator who is in the group: a request of the admin client to a coordinator that is just then lost ends
the whole process (an assertion in librdkafka: its issues 3663 and 4605). To read a committed offset is harmless.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ledger.adapters.kafka.errors import error_of, made, told

log = logging.getLogger("ledger.kafka")
TEXT_MAX = 200  # of one value, in characters; a broker takes 4096 bytes in all (offset.metadata.max.bytes)

#: Of consumers that only take part in elections. What goes wrong is told by `standing`, not by a line per connection.
QUIET: dict[str, str | int] = {
    "group.protocol": "classic",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "allow.auto.create.topics": "false",
    "reconnect.backoff.max.ms": 1000,
    "log_level": 2,
}


class Heartbeat(NamedTuple):
    """member: its name in the group, new for every stay there. since: when it entered; at: when it gave the sign (seconds
    since the epoch, by its own clock: for people, and as a hint). left: it leaves, nobody need wait for its end."""

    member: str
    who: str
    pid: int
    since: float
    at: float
    left: bool = False

    def encoded(self) -> str:
        return json.dumps(self._replace(who=self.who[:TEXT_MAX])._asdict())


def decoded(metadata: str | None) -> Heartbeat | None:
    """Anything that is no sign is None: others may write there too."""
    try:
        found = json.loads(metadata or "")
        return Heartbeat(
            str(found["member"]), str(found["who"]), int(found["pid"]),
            float(found["since"]), float(found["at"]), bool(found["left"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError):
        return None


class Seen(NamedTuple):
    """asked_at: monotonic, seconds. unchanged_s: for how long the same sign was seen again and again; time without
    answers does not count."""

    asked_at: float
    sign: Heartbeat | None
    unchanged_s: float


class SignWatch:
    """Reads the newest sign of a group every `every_s` seconds, without ever being in the group."""

    def __init__(self, client: Mapping[str, str | int], topic: str, group: str, every_s: float, timeout_s: float) -> None:
        self._consumer = made(Consumer, {**client, **QUIET, "group.id": group}, log)
        self._place, self._every_s, self._timeout_s = TopicPartition(topic, 0), every_s, timeout_s
        self._due_at = float("-inf")
        self._value: tuple[int, str] = (-1, "")
        self.seen: Seen | None = None
        """As answered last; None if nothing was yet."""
        self.trouble = ""
        """Why the last question was not answered; "" = it was, or none was asked yet."""

    def look(self, now: float, *, at_once: bool = False) -> None:
        """Asks if it is time to, and then waits for the answer, timeout_s at most."""
        if now < self._due_at and not (at_once and not self.trouble):
            return
        self._due_at = now + self._every_s
        try:
            self._take(now, self._ask())
            self.trouble = ""
        except KafkaException as exception:
            self.trouble = told(error_of(exception))

    def drop(self) -> None:
        """Not to be used any more. Nobody waits for the consumer's end: without a broker that may take long."""
        box = [self._consumer]
        del self._consumer
        threading.Thread(target=box.clear, name="drop-consumer", daemon=True).start()

    def _ask(self) -> TopicPartition:
        """Raises: KafkaException."""
        [answer] = self._consumer.committed([self._place], self._timeout_s)
        if answer.error is not None:
            raise KafkaException(answer.error)
        return answer

    def _take(self, now: float, answer: TopicPartition) -> None:
        """A group without any offset, where there was one, is most likely a coordinator that is just coming up."""
        before, value = self.seen, (answer.offset, answer.metadata or "")
        if before is None or (value != self._value and value[0] >= 0):
            self._value = value
            self.seen = Seen(now, decoded(value[1]), 0.0)
        else:
            gap_s = min(now - before.asked_at, 2 * self._every_s)
            self.seen = Seen(now, before.sign, before.unchanged_s + gap_s)
