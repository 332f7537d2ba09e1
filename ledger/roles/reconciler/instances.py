"""The instance of each runner that a reconciler reaches, and whether its predecessor reached another instance.

Reconcilers of one ledger may reach different agents. While one of them leads, jobs held by agents of the others wait.
Operators are warned, since that may be a mistake. Source: decision 40.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from ledger.core.model.facts import LeaderClaimed

#: The predecessor of the first leader.
NO_CLAIM = LeaderClaimed("reconciler", 0, "")
log = structlog.get_logger("reconciler")


class Instances:
    """The instances of one term. reached: runner -> the instance that answered last, for runners that have instances."""

    def __init__(self, predecessor: LeaderClaimed) -> None:
        self._predecessor = predecessor
        self.reached: dict[str, str] = {}

    def see(self, answered: Mapping[str, str]) -> None:
        """Notes the instances that answered; warns if an instance changed. answered: runner -> instance, "" = it has
        none."""
        for runner, instance in answered.items():
            known = self.reached.get(runner)
            if not instance or instance == known:
                continue
            before = self._predecessor.reaches.get(runner, instance)
            if known is not None:
                log.warning("instance_changed", runner=runner, before=known, now=instance)
            elif before != instance:
                log.warning(
                    "reaches_other_instance", runner=runner, before=before, now=instance,
                    predecessor=self._predecessor.writer,
                    effect=f"what {before} holds waits until a reconciler leads that reaches it",
                )  # fmt: skip
            self.reached[runner] = instance
