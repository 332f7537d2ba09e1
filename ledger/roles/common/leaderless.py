"""The alarm that no instance leads, as far as one instance can tell. Without a leader no job is restarted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from ledger.ports import Clock, Leadership
from ledger.roles.common.candidacy import Candidacy

AGAIN_S = 30.0


class LeaderlessAlarm:
    """Raises an alarm while no instance leads. Call `look` about once a second, from a thread other than the role's
    own, which may hang in a call.

    after_s: seconds without a leader before the first alarm. Another instance that holds the lock counts as leader. If
    this instance held the lock before and could not take over, another holder counts only once it has held the lock for
    after_s.
    """

    def __init__(
        self, role: str, instance: str, candidacy: Candidacy, leadership: Leadership, clock: Clock, after_s: float
    ) -> None:
        self._log = structlog.get_logger(role)
        self._role, self._instance = role, instance
        self._candidacy, self._leadership, self._clock, self._after_s = candidacy, leadership, clock, after_s
        self._since: float | None = None
        self._held_since: float | None = None
        self._tried = self._reported = False
        self._next = 0.0

    def look(self) -> Mapping[str, Any]:
        """The state of the election as plain values, for people; logs `leaderless` or `led_again` when due."""
        now, epoch, standing = self._clock.monotonic(), self._candidacy.epoch, self._leadership.standing()
        leads = epoch > 0 and standing.leads
        waits_for = "" if leads else self._candidacy.waits_for or standing.waits_for or "nothing that it knows of"
        leader = self._instance if leads else "" if standing.leads else standing.leader
        if self._is_led(now, leads, bool(leader)):
            self._is_over(now, leader)
        else:
            self._tried = self._tried or standing.leads
            if self._since is None:
                self._since, self._next = now, now + self._after_s
            if now >= self._next:
                self._next, self._reported = now + AGAIN_S, True
                self._log.error("leaderless", seconds=round(now - self._since, 1), waits_for=waits_for)
        return {
            "role": self._role, "who": self._instance, "leads": leads, "epoch": epoch or None,
            "since": self._candidacy.since, "terms": self._candidacy.terms, "lease_left_s": standing.lease_left_s,
            "leader": leader, "waits_for": waits_for, "because": standing.because,
            "leaderless_s": 0.0 if self._since is None else round(now - self._since, 1),
        }  # fmt: skip

    def _is_led(self, now: float, leads: bool, held: bool) -> bool:
        if leads:
            return True
        if not held:
            self._held_since = None
            return False
        if self._held_since is None:
            self._held_since = now
        return not self._tried or now - self._held_since >= self._after_s

    def _is_over(self, now: float, leader: str) -> None:
        if self._since is not None and self._reported:
            self._log.warning("led_again", leader=leader, leaderless_s=round(now - self._since, 1))
        self._since, self._tried, self._reported = None, False, False
