"""The upkeep of an archive: taking snapshots, compacting small objects, expiring old records.

The archiver does this work on a schedule, and `jobledger archive` on request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ledger.adapters import avro, cloudevents
from ledger.config.config import Config
from ledger.ports import Clock, Record
from ledger.util import times
from ledger.util.identity import instance

if TYPE_CHECKING:
    from ledger.archive.anchors.anchoring import Anchoring
    from ledger.archive.format.decoding import Decoded
    from ledger.archive.removal.expiring import Expiry
    from ledger.archive.store.archive import Archive
    from ledger.archive.store.archiving import Chore

#: Called with the step that begins, for people.
Report = Callable[[str], object]


def chores(config: Config, archive: Archive, clock: Clock, anchoring: Anchoring | None = None) -> list[Chore]:
    """The upkeep of `serve archiver`, at the intervals of the settings. anchoring: None = the archiver anchors no
    chain."""
    from ledger.archive.store.archiving import Chore
    from ledger.archive.store.compaction import compact

    made: dict[str, tuple[float | None, Callable[[], object]]] = {}
    if anchoring is not None:
        made["anchor"] = config.archive.anchor_interval_s or None, anchoring.step
    made |= {
        "compact": (config.archive.compact_interval_s, lambda: compact(archive, clock.time())),
        "snapshot": (config.archive.snapshot_interval_s, lambda: keep_snapshots(config, archive, clock)),
        "expire": (config.archive.expire_interval_s, lambda: expire(config, archive, clock, instance("archiver"))),
    }
    return [Chore(name, every_s, do) for name, (every_s, do) in made.items() if every_s is not None]


def expiring(config: Config, archive: Archive, clock: Clock, report: Report = len) -> list[Expiry]:
    """The records whose retention is over, which no pin holds. Raises: as `expiring.plan`."""
    from ledger.archive.removal.expiring import plan
    from ledger.archive.removal.pins import held

    return plan(archive, config.topics, config.archive.retention, clock.time(), avro, held(archive), report)


def expire(config: Config, archive: Archive, clock: Clock, by: str, report: Report = len) -> list[Expiry]:
    """Removes the records whose retention is over, and returns what it removed. by: the user or process, for audits.

    Raises: as `expiring.plan` and `expiring.expire`."""
    from ledger.archive.removal.expiring import expire as remove

    due = expiring(config, archive, clock, report)
    remove(archive, due, by, times.rfc3339(clock.time()), report)
    return due


def make_snapshots(config: Config, archive: Archive, whole: bool = True) -> Iterator[tuple[str, int, int]]:
    """Takes a snapshot of each archived partition and yields (topic, partition, next offset). whole: from all archived
    records; False: from the latest snapshot and the records since. Raises: as `snapshots.make`."""
    from ledger.archive.snapshots import snapshots

    thin_recovery = partial(snapshots.thin_recovery, decode=avro.decode)
    same_entries = partial(snapshots.same_entries, decode=avro.decode)
    for topic, partition in archive.partitions():
        recovery = topic == config.topics.recovery
        thin, same = (thin_recovery, same_entries) if recovery else (snapshots.thin_events, snapshots.same_registers)
        if made := snapshots.make(archive, topic, partition, thin, _decoded, same, whole):
            yield topic, partition, made.next


def keep_snapshots(config: Config, archive: Archive, clock: Clock) -> None:
    """Takes a snapshot of each partition from the one before it, then deletes the old ones beyond the retention. Raises:
    as `make_snapshots`."""
    from ledger.archive.snapshots.snapshot_retention import thin_out

    for topic, partition, _ in make_snapshots(config, archive, whole=False):
        thin_out(archive, topic, partition, clock.time())


def _decoded(record: Record) -> Decoded:
    from ledger.archive.format.decoding import decoded

    return decoded(record, avro, cloudevents)
