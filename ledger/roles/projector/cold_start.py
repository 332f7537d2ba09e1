"""The start position of a projector: the beginning of the topics, or the end of a snapshot.

A projector that starts from a snapshot counts as a standby that was last at the end of the log when the snapshot was
made. `ProjectorSettings.forget_after_s` limits how long that may be ago: a snapshot that is older is refused, since
tombstones written after it may be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from ledger.errors import LedgerError
from ledger.ports import NOWHERE, Clock, Marks, Record, TopicPartition

log = structlog.get_logger("projector")


class StartSnapshot(NamedTuple):
    """A snapshot of a partition. next: the first offset behind it. newest_s: append time of the newest record in it, in
    seconds since the epoch. records: reads its records in offset order."""

    next: int
    newest_s: float
    records: Callable[[], Iterable[Record]]


#: Returns the available snapshots; a partition without one is read from offset 0. Raises: LedgerError.
ColdStart = Callable[[], Mapping[TopicPartition, StartSnapshot]]


def from_the_log() -> Mapping[TopicPartition, StartSnapshot]:
    return {}


class StartPosition(NamedTuple):
    """The start position of a projector. begin: start offsets of the topics. records: the snapshots' records to apply
    before, one run for each partition. age_s: of the oldest snapshot that is used, in seconds; 0 = none is used."""

    begin: Marks = NOWHERE
    records: Sequence[Sequence[Record]] = ()
    age_s: float = 0.0


def begun(cold_start: ColdStart, age_max_s: float, clock: Clock) -> StartPosition:
    """The start position of a projector. A partition whose snapshot is unusable is read from the log, with a warning.

    age_max_s: a snapshot that is older is refused, since registers that were tombstoned after it might come back.
    """
    try:
        offered = cold_start()
    except LedgerError as error:
        log.warning("reads_the_log", why=str(error))
        return StartPosition()
    begin: dict[TopicPartition, int] = {}
    runs: list[Sequence[Record]] = []
    age_s = 0.0
    for tp, kept in offered.items():
        old_s = clock.time() - kept.newest_s
        if old_s > age_max_s:
            log.warning("snapshot_too_old", topic=tp[0], partition=tp[1], age_s=round(old_s), age_max_s=age_max_s)
            continue
        try:
            runs.append(list(kept.records()))
        except LedgerError as error:
            log.warning("snapshot_unreadable", topic=tp[0], partition=tp[1], why=str(error))
            continue
        begin[tp], age_s = kept.next, max(age_s, old_s)
    if begin:
        starts = {f"{topic}[{partition}]": at for (topic, partition), at in sorted(begin.items())}
        log.info("begins_from_snapshots", begin=starts, records=sum(map(len, runs)), age_s=round(age_s))
    return StartPosition(begin, runs, age_s)
