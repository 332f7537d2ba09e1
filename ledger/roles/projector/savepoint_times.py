"""When a running job is due for its next periodic savepoint, by the leader's clock. Source: decision 27."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ledger.core.model.periodic_savepoints import parse
from ledger.core.model.recovery import RecoveryEntry
from ledger.roles.projector.alarms import Alarms


class _Waiting(NamedTuple):
    savepoint_key: tuple[str, int, float]
    first_seen: float  # monotonic


class SavepointTimes:
    """Stamps `savepoint_at` and `savepoint_due` on entries of jobs that want periodic savepoints.

    `savepoint_at` is stamped once for each savepoint_key, which names the next request and the savepoint before it. The
    next leader keeps that stamp, so that no leader counts from zero again. `savepoint_due` is set when that time
    passes, or once this leader itself has waited as long: a wrong clock cannot delay it. `savepoint_due` is never unset
    for the same key; the request, or another savepoint, changes the key.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._alarms = Alarms()

    def stamp(self, entry: RecoveryEntry, before: RecoveryEntry | None, time_s: float, now: float) -> RecoveryEntry:
        """The entry with `savepoint_at` and `savepoint_due`. time_s: seconds since the epoch. now: monotonic seconds.
        before: the last effective entry of the job, None = there is none."""
        policy, ask = entry.savepoint_policy, parse(entry.next_ask)
        if policy is None or ask is None:
            self._waiting.pop(entry.job_id, None)
            return entry
        wait_s = ask.wait_s(policy)
        same = before is not None and before.savepoint_key == entry.savepoint_key
        savepoint_at = before.savepoint_at if same and before is not None else None
        if savepoint_at is None:
            savepoint_at = round(time_s + wait_s, 3)
        waiting = self._waiting.get(entry.job_id)
        if waiting is None or waiting.savepoint_key != entry.savepoint_key:
            waiting = _Waiting(entry.savepoint_key, now)
        waited_at = waiting.first_seen + wait_s
        due = (same and before is not None and before.savepoint_due) or time_s >= savepoint_at or now >= waited_at
        if due:
            self._waiting.pop(entry.job_id, None)
        else:
            if self._waiting.get(entry.job_id) != waiting:
                self._alarms.set(min(waited_at, now + savepoint_at - time_s), entry.job_id)
            self._waiting[entry.job_id] = waiting
        return replace(entry, savepoint_at=savepoint_at, savepoint_due=bool(due))

    def forget(self, job_id: str) -> None:
        self._waiting.pop(job_id, None)

    def passed(self, now: float) -> list[str]:
        """Jobs to fold again, because their time may have come."""
        return self._alarms.passed(now, self._waiting)
