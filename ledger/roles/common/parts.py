"""What roles are made of: their parts and settings. Identity, time and chance come in here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ledger.core.fold.fold import HISTORY
from ledger.core.fold.restore_points import RESTORE_POINTS
from ledger.core.model.recovery import RecoveryEntry
from ledger.ports import Clock, Codec, Envelope, EventLog, Leadership

#: Hears of an entry that stands in the log.
Told = Callable[[RecoveryEntry], None]


def unheard(_: RecoveryEntry) -> None: ...


@dataclass(frozen=True, slots=True)
class RoleTopics:
    """Full names of the three topics."""

    events: str
    recovery: str
    rejects: str


@dataclass(frozen=True, slots=True)
class Parts:
    """writer_name: this process among all of its role, for people. actor: who runs it (user@host). forced: its leadership
    leads without the lock, for one term."""

    log: EventLog
    leadership: Leadership
    clock: Clock
    codec: Codec
    envelope: Envelope
    new_id: Callable[[], str]
    topics: RoleTopics
    writer_name: str
    actor: str
    forced: bool = False


@dataclass(frozen=True, slots=True)
class ProjectorSettings:
    """records_max: per poll; it bounds a transaction too. commit_interval_s: how long a leader gathers changes.

    progress_interval_s: how soon readers hear that nothing changed. forget_after_s: a standby that was not at the end of
    the log for that long reads it anew, since it may have missed tombstones (half of delete.retention.ms).
    collect_unadmitted_after_s: registers of an id without a spec are removed this long after this leader saw them.
    result_retention_s: None = results are kept for ever.
    record_bytes_max: what a record's value may take. A spec may take half of it, so that an entry has room beside.
    """

    restore_points: int = RESTORE_POINTS
    history: int = HISTORY
    records_max: int = 5_000
    commit_interval_s: float = 0.1
    progress_interval_s: float = 0.5
    forget_after_s: float = 3.5 * 86_400
    collect_unadmitted_after_s: float = 86_400.0
    result_retention_s: float | None = None
    housekeeping_interval_s: float = 10.0
    record_bytes_max: int = 1_000_000
