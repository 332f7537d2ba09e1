"""While a leader leads and nothing keeps it from that, it publishes what it has read: also in the middle of a walk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.simulation.checkers import Findings

SECONDS = 5.0  # a projector says once a second how far it has come
STEPS = 25


@dataclass
class _Lag:
    """as_of: what the leader had read of a partition when it was looked at first. since: monotonic seconds."""

    as_of: int
    since: float
    steps: int = 0


class Soon:
    """Of projectors. Call `stepped` after each step of one that was not held up in it."""

    def __init__(self) -> None:
        self._lags: dict[tuple[str, int, int], _Lag] = {}  # instance, epoch, partition

    def disturbed(self) -> None:
        """Something happened that may keep a leader from writing, or readers from seeing it."""
        self._lags.clear()

    def stepped(self, instance: Any, published: dict[int, int], events: str, now: float) -> Findings:
        """published: partition -> how far readers know that a projector has come. now: monotonic seconds."""
        found: Findings = []
        if not instance.part.epoch:
            return found
        for (topic, partition), at in instance.part._reader.position().items():
            if topic != events:
                continue
            key = (instance.who, instance.part.epoch, partition)
            lag = self._lags.setdefault(key, _Lag(at, now))
            lag.steps += 1
            if published.get(partition, 0) >= lag.as_of:
                self._lags[key] = _Lag(at, now)
            elif lag.steps > STEPS and now - lag.since > SECONDS:
                found.append(f"soon: {instance.who} has read up to {lag.as_of} of {partition}, "
                             f"and published up to {published.get(partition, 0)} for {now - lag.since:.1f} s")  # fmt: skip
        return found
