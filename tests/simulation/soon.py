"""An undisturbed leading projector publishes the records that it has read within bounded time, also during a walk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.simulation.checkers import Findings

SECONDS = 5.0  # a projector publishes its progress once a second
STEPS = 25


@dataclass
class _Lag:
    """A position that is not published yet. as_of: the leader's offset in a partition when it was first seen. since:
    monotonic seconds."""

    as_of: int
    since: float
    steps: int = 0


class Soon:
    """Watches projectors. Call `stepped` after each step in which the projector was not paused."""

    def __init__(self) -> None:
        self._lags: dict[tuple[str, int, int], _Lag] = {}  # instance, epoch, partition

    def disturbed(self) -> None:
        """Starts anew: something happened that may keep a leader from writing, or readers from seeing its records."""
        self._lags.clear()

    def stepped(self, instance: Any, published: dict[int, int], events: str, now: float) -> Findings:
        """The findings after a step. published: partition -> the offset that readers know to be reflected. now: monotonic
        seconds."""
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
