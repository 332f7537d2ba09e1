"""The parts and settings of roles. Identity, time and randomness come in here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ledger.core.fold.fold import HISTORY
from ledger.core.fold.restore_points import RESTORE_POINTS
from ledger.core.model.recovery import RecoveryEntry
from ledger.ports import Clock, Codec, Envelope, EventLog, Leadership

#: Called with an entry that is in the log.
EntryListener = Callable[[RecoveryEntry], None]


def ignore_entry(_: RecoveryEntry) -> None: ...


@dataclass(frozen=True, slots=True)
class RoleTopics:
    """Full names of the topics of facts, entries and rejects."""

    events: str
    recovery: str
    rejects: str


@dataclass(frozen=True, slots=True)
class Parts:
    """The ports and the identity of a role. writer_name: the name of this process, for people. actor: who runs it
    (user@host). forced: lead one term without the lock."""

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
    """The settings of a projector. restore_points, history: as in `core.fold.fold`. records_max: records per poll;
    bounds a transaction too. commit_interval_s: how long a leader gathers changes for one transaction.
    progress_interval_s: between two `~progress` records. forget_after_s: a standby that was not at the end of the log
    for this long reads it from the start, since it may have missed tombstones (half of delete.retention.ms).
    collect_unadmitted_after_s: registers of a job id without a spec are removed so long after this leader saw them.
    result_retention_s: None = results are kept for ever. housekeeping_interval_s: between two removals.
    record_bytes_max: the largest value of a record. A spec may take half of it, so that the job's entry fits."""

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
