"""Makes the events that a leader writes: its epoch in every header, one sequence per partition of a topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ledger.core.model.facts import FACT_OF, LeaderClaimed
from ledger.core.model.registers import NOOP_KEY, NUMBER_MAX, Register, claim_key, key_of, partition_of
from ledger.errors import ConfigError
from ledger.ports import Clock, Codec, Envelope, Event

NOBODY: Mapping[str, str] = {}
#: Half of all epochs there are: no leader comes so far.
STRAY_EPOCH_MAX = NUMBER_MAX // 2


def epoch_after(highest: int, topic: str) -> int:
    """Raises: ConfigError if that is the last one there is: readers take nothing of a higher one."""
    if highest >= NUMBER_MAX:
        raise ConfigError(
            f"Epoch {highest} is claimed in {topic}, and none is above it: no leader wrote that claim.",
            hint="Stop the ledger, and make the topic anew from what is in it, without that claim.",
        )
    return highest + 1


class EventFactory:
    """Events of one leader of one epoch. With a new epoch begins a new source, and its sequences at 1.

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
        """`kind`: class of what the key holds. `fact` None = a tombstone, whose headers alone say who and when."""
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
        """The claim of this epoch, for every partition of the topic. instance: who claims; reason: why; reaches: runner ->
        instance of it; all for people."""
        claim = LeaderClaimed(self.role, self.epoch, instance, reason, dict(reaches))
        key = claim_key(self.role, self.epoch)
        return [self.write(topic, p, key, self.role, LeaderClaimed, claim) for p in range(self._partitions)]


def noops(partitions: Mapping[str, int]) -> list[Event]:
    """A no-op for every partition of each topic (topic -> number of partitions).

    What a leader commits first, in every partition that it writes to. A broker that was killed may come back and leave out
    the end of a transaction that it called committed: then every reader stands still before it, for ever. The next
    transaction of the same transactional id ends it; `init` alone does not. Source: decision 14, tests/adapters/
    test_lost_markers.py.
    """
    return [Event(topic, p, NOOP_KEY.encode(), None) for topic, count in partitions.items() for p in range(count)]
