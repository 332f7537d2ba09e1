"""When a restart is due, by the leader's clock. Neither the fold nor any reader needs timers."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ledger.core.model.recovery import RecoveryEntry
from ledger.roles.projector.alarms import Alarms


class _Waiting(NamedTuple):
    start_key: tuple[int, float]
    first_seen: float  # monotonic


class DueTimes:
    """Stamps `due_at` and `due` on entries. `due_at` is stamped once for each (next_attempt, restart_delay_s), and the
    next leader keeps that stamp. `due` is set when that time passes, or restart_delay_s after this leader first saw the
    entry, whichever is first: a wrong clock cannot delay a job. `due` is never unset for the same (next_attempt,
    restart_delay_s)."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._alarms = Alarms()

    def stamp(self, entry: RecoveryEntry, before: RecoveryEntry | None, time_s: float, now: float) -> RecoveryEntry:
        """The entry with `due_at` and `due`. time_s: seconds since the epoch. now: monotonic seconds. before: the last
        effective entry of the job, None = there is none."""
        if entry.next_attempt == 0:
            self._waiting.pop(entry.job_id, None)
            return entry
        taken_over = before is not None and before.start_key == entry.start_key and before.due_at is not None
        due_at = before.due_at if taken_over and before is not None else round(time_s + entry.restart_delay_s, 3)
        assert due_at is not None
        waiting = self._waiting.get(entry.job_id)
        if waiting is None or waiting.start_key != entry.start_key:
            waiting = _Waiting(entry.start_key, now)
        due = (
            (taken_over and before is not None and before.due)
            or time_s >= due_at
            or now >= waiting.first_seen + entry.restart_delay_s
        )
        if due:
            self._waiting.pop(entry.job_id, None)
        else:
            self._waiting[entry.job_id] = waiting
            wake = min(waiting.first_seen + entry.restart_delay_s, now + due_at - time_s)
            self._alarms.set(wake, entry.job_id)
        return replace(entry, due_at=due_at, due=bool(due))

    def forget(self, job_id: str) -> None:
        self._waiting.pop(job_id, None)

    def passed(self, now: float) -> list[str]:
        """Jobs to fold again, because their time may have come."""
        return self._alarms.passed(now, self._waiting)
