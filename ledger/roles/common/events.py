"""Makes the events that a leader writes, each with its epoch, and a sequence number per partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ledger.core.model.facts import FACT_OF, LeaderClaimed
from ledger.core.model.registers import NOOP_KEY, NUMBER_MAX, Register, claim_key, key_of, partition_of
from ledger.errors import ConfigError
from ledger.ports import Clock, Codec, Envelope, Event

NOBODY: Mapping[str, str] = {}
#: Half of the highest epoch. No leader gets this far, so a record with a higher epoch was not written by a leader.
FORGED_EPOCH_MIN = NUMBER_MAX // 2


def epoch_after(highest: int, topic: str) -> int:
    """The next epoch. Raises: ConfigError if `highest` is the last valid one: readers would drop a higher one."""
    if highest >= NUMBER_MAX:
        raise ConfigError(
            f"Epoch {highest} is claimed in {topic}, and none is above it: no leader wrote that claim.",
            hint="Stop the ledger, and make the topic anew from what is in it, without that claim.",
        )
    return highest + 1


class EventFactory:
    """Makes the events of one leader in one epoch. Each epoch is a CloudEvents source of its own, with sequences from 1.

    writer: name of the writer in keys, e.g. `reconciler-7`. actor: who runs the process.
    """

    def __init__(
        self, *, role: str, epoch: int, writer: str, actor: str, partitions: int,
        clock: Clock, new_id: Callable[[], str], codec: Codec, envelope: Envelope,
    ) -> None:  # fmt: skip
        self.role, self.epoch, self.writer = role, epoch, writer
        self._actor, self._partitions = actor, partitions
        self._clock, self._new_id, self._codec, self._envelope = clock, new_id, codec, envelope
        self._source = f"/ledger/{role}/{epoch}"
        self._sequence: Counter[tuple[str, int]] = Counter()

    def write(self, topic: str, partition: int, key: str, subject: str, kind: type, fact: Any) -> Event:
        """The event that writes a fact under a key. kind: the class of the fact. fact: None = a tombstone; its headers
        still name writer and time."""
        self._sequence[topic, partition] += 1
        headers = self._envelope.headers(
            kind.__name__,
            event_id=self._new_id(), source=self._source, subject=subject, key=key, time_s=self._clock.time(),
            sequence=self._sequence[topic, partition], actor=self._actor, epoch=self.epoch,
        )  # fmt: skip
        value = None if fact is None else self._codec.encode(fact)
        return Event(topic, partition, key.encode(), value, headers)

    def register(self, topic: str, job_id: str, register: Register, fact: Any) -> Event:
        partition, key = partition_of(job_id, self._partitions), key_of(job_id, register)
        return self.write(topic, partition, key, job_id, FACT_OF[type(register)], fact)

    def claims(
        self, topic: str, instance: str, reason: str, reaches: Mapping[str, str] = NOBODY
    ) -> list[Event]:  # fmt: skip
        """Claims of this epoch, one for each partition of the topic. instance: the candidate; reason: why it leads;
        reaches: runner -> instance. All three are for people."""
        claim = LeaderClaimed(self.role, self.epoch, instance, reason, dict(reaches))
        key = claim_key(self.role, self.epoch)
        return [self.write(topic, p, key, self.role, LeaderClaimed, claim) for p in range(self._partitions)]


def noops(partitions: Mapping[str, int]) -> list[Event]:
    """A no-op for every partition of each topic (topic -> number of partitions).

    A leader commits them first, in every partition that it writes to. A broker that was killed may come back without the
    end marker of a transaction that it had acknowledged as committed; readers then wait before it for ever. The next
    transaction of the same transactional id ends it; `init` alone does not. Source: decision 14,
    tests/adapters/test_lost_markers.py.
    """
    return [Event(topic, p, NOOP_KEY.encode(), None) for topic, count in partitions.items() for p in range(count)]
