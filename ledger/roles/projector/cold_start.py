"""Where a projector's reading begins: at the beginning of the topics, or behind what a snapshot of them holds.

Beginning from a snapshot is coming back to the log after one was last at its end when the snapshot was made: whoever may
do the one may do the other. So one that is too old is refused, since tombstones may have gone since; and a projector that
did begin from one counts its age as time in which it was not at the end (`ProjectorSettings.forget_after_s`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from ledger.errors import LedgerError
from ledger.ports import NOWHERE, Clock, Marks, Record, TopicPartition

log = structlog.get_logger("projector")


class StartSnapshot(NamedTuple):
    """A snapshot of a partition. next: the first offset that is not in it. newest_s: append time of the newest record that
    it covers, seconds since the epoch. records: reads what it keeps, in offset order."""

    next: int
    newest_s: float
    records: Callable[[], Iterable[Record]]


#: What there is to begin from; a partition without one is read from its beginning. Raises: LedgerError.
ColdStart = Callable[[], Mapping[TopicPartition, StartSnapshot]]


def from_the_log() -> Mapping[TopicPartition, StartSnapshot]:
    return {}


class StartPosition(NamedTuple):
    """begin: from where on the topics are to be read. records: what is to be applied before, a run for each partition.
    age_s: how long ago the oldest of them was at the end of the log, 0 if all is read from the log."""

    begin: Marks = NOWHERE
    records: Sequence[Sequence[Record]] = ()
    age_s: float = 0.0


def begun(cold_start: ColdStart, age_max_s: float, clock: Clock) -> StartPosition:
    """What can't be begun from is read from the log, and that is told: it takes longer, and is never wrong.

    age_max_s: a snapshot that covers nothing younger than that is refused: what was tombstoned since might come back."""
    try:
        offered = cold_start()
    except LedgerError as error:
        log.warning("reads_the_log", why=str(error))
        return StartPosition()
    begin: dict[TopicPartition, int] = {}
    runs: list[Sequence[Record]] = []
    age_s = 0.0
    for place, kept in offered.items():
        old_s = clock.time() - kept.newest_s
        if old_s > age_max_s:
            log.warning("snapshot_too_old", topic=place[0], partition=place[1], age_s=round(old_s), age_max_s=age_max_s)
            continue
        try:
            runs.append(list(kept.records()))
        except LedgerError as error:
            log.warning("snapshot_unreadable", topic=place[0], partition=place[1], why=str(error))
            continue
        begin[place], age_s = kept.next, max(age_s, old_s)
    if begin:
        told = {f"{topic}[{partition}]": at for (topic, partition), at in sorted(begin.items())}
        log.info("begins_from_snapshots", begin=told, records=sum(map(len, runs)), age_s=round(age_s))
    return StartPosition(begin, runs, age_s)
