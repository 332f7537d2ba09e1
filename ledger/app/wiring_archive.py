"""What the settings name of the archive, and of what is opened with it: made here as `wiring` makes the rest.

Every function imports what it makes, so that a command loads only what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.app import wiring
from ledger.errors import ConfigError
from ledger.ports import EventLog, Record, TopicPartition
from ledger.util.identity import instance, versions, whoami

if TYPE_CHECKING:
    from ledger.archive.anchors.anchoring import Anchoring
    from ledger.archive.format.chain import Head
    from ledger.archive.format.decoding import Decoded
    from ledger.archive.format.objects import ObjectStore
    from ledger.archive.query.querying import Queries
    from ledger.archive.removal.expiring import Expiry
    from ledger.archive.removal.redacting import Redacting
    from ledger.archive.restore.restoring import Restoring
    from ledger.archive.snapshots.snapshots import Thin
    from ledger.archive.store.archive import Archive
    from ledger.archive.store.archiving import Chore, PartitionShape
    from ledger.archive.store.status import ArchiveProgress
    from ledger.config.config import Config
    from ledger.history.bundle_about import About
    from ledger.history.bundling import Bundle
    from ledger.history.historical_log import Archived
    from ledger.history.moment import Moment, Places
    from ledger.reader.reading import Progressed, Source
    from ledger.roles.projector.cold_start import StartSnapshot


def objects(config: Config) -> ObjectStore:
    """What the archive lies in. Raises: as `blobs`; ConfigError if there is to be no archive."""
    if config.archive.adapter == "s3":
        from ledger.app.s3_settings import s3_settings

        with wiring.of_extra("s3"):
            from ledger.adapters.s3.objects import S3Objects
        return S3Objects(s3_settings(config.archive, "archive"))
    if not config.archive.adapter:
        raise ConfigError("This ledger has no archive.", hint="Set LEDGER_ARCHIVE__ADAPTER=file (or s3)")
    from ledger.adapters.local.objects import FolderObjects

    return FolderObjects(config.dir / "archive")


def where(config: Config) -> str:
    """Which archive is meant, for people."""
    given = config.archive
    return f"It lies in {config.dir / 'archive' if given.adapter == 'file' else f'{given.bucket}/{given.prefix}'}."


def archive(config: Config) -> Archive:
    """Raises: as `objects`; ConfigError if what it needs is not installed."""
    with wiring.of_extra("archive"):
        from ledger.archive.store.archive import Archive
    from ledger.adapters.cloudevents import rfc3339

    return Archive(objects(config), instance("archiver"), lambda: rfc3339(wiring.clock().time()))


@contextmanager
def queries(config: Config, bundled: Path | None = None) -> Iterator[Queries]:
    """The archive, or a bundle, to be asked in SQL. Raises: as `archive` and `bundle`, and as `querying.opened`."""
    with wiring.of_extra("duckdb"):
        from ledger.archive.query.querying import opened
    from ledger.archive.format.lateness import sure_from_s

    if bundled is None:
        kept, lag_s = archive(config), _lag_s(config)
        asked = opened(kept, config.topics, lambda found: sure_from_s(found, lag_s[found[0].topic], kept.leaves))
    else:
        given = bundle(bundled)
        given.must_hold_all()
        sure = given.archived
        asked = opened(
            given.archive, given.about, lambda found: sure[found[0].topic, found[0].partition].sure_from_s,
            lambda topic, partition: sure[topic, partition].expired,
        )  # fmt: skip
    with asked as made:
        yield made


def archiving(config: Config) -> tuple[ObjectStore, Callable[[Record], Decoded]]:
    """What a task of the archiver needs, made where it is performed."""
    from ledger.adapters import avro, cloudevents
    from ledger.archive.format.decoding import decoded

    return objects(config), lambda record: decoded(record, avro, cloudevents)


def archived_partitions(config: Config) -> dict[TopicPartition, PartitionShape]:
    """The partitions that an archive keeps, as they are now. Raises: as `event_log`; Unreachable."""
    from ledger.adapters.kafka.cluster import EARLIEST, Cluster
    from ledger.archive.store.archiving import PartitionShape

    cluster, topics = Cluster(config.client()), (config.topics.events, config.topics.recovery)
    shapes = cluster.shape(topics)
    places = [(topic, n) for topic in topics for n in range(shapes[topic].partitions)]
    begins, ends = cluster.ends(places, EARLIEST), cluster.ends(places)
    return {place: PartitionShape(shapes[place[0]].id, begins[place], ends[place]) for place in places}


def archive_progress(
    config: Config, kept: Archive | None = None, known: Mapping[TopicPartition, Head] | None = None
) -> list[ArchiveProgress]:
    """kept: the archive, if it was made already. known: heads for which it need not be asked.

    Raises: as `archive` and `archived_partitions`."""
    from ledger.adapters.kafka.oldest import first_times
    from ledger.archive.store.status import progress

    kept, known = kept or archive(config), known or {}  # that there is an archive is said before Kafka is asked
    shapes = archived_partitions(config)
    heads = {place: known.get(place) or kept.head(*place) for place in shapes}
    oldest = partial(first_times, config.client())
    return progress(heads, shapes, oldest, _lag_s(config), wiring.clock().time())


def chores(config: Config, archive: Archive, anchoring: Anchoring | None = None) -> list[Chore]:
    """What `serve archiver` does beside its work, by the settings."""
    from ledger.archive.store.archiving import Chore
    from ledger.archive.store.compaction import compact

    made: dict[str, tuple[float | None, Callable[[], object]]] = {}
    if anchoring is not None:
        made["anchor"] = config.archive.anchor_interval_s or None, anchoring.step
    made |= {
        "compact": (config.archive.compact_interval_s, lambda: compact(archive, wiring.clock().time())),
        "snapshot": (config.archive.snapshot_interval_s, lambda: keep_snapshots(config, archive)),
        "expire": (config.archive.expire_interval_s, lambda: expired(config, archive, instance("archiver"))),
    }
    return [Chore(name, every_s, do) for name, (every_s, do) in made.items() if every_s is not None]


def expiring(config: Config, archive: Archive, told: Callable[[str], object] = len) -> list[Expiry]:
    """What is due by the settings. Raises: as `expiring.plan`."""
    from ledger.adapters import avro
    from ledger.archive.removal.expiring import plan
    from ledger.archive.removal.pins import held

    now_s = wiring.clock().time()
    return plan(archive, config.topics, config.archive.retention, now_s, avro, held(archive), told)


def expired(config: Config, archive: Archive, by: str, told: Callable[[str], object] = len) -> list[Expiry]:
    """Takes out what is due, which is told. Raises: as `expiring.plan` and `expiring.expire`."""
    from ledger.adapters.cloudevents import rfc3339
    from ledger.archive.removal.expiring import expire

    due = expiring(config, archive, told)
    expire(archive, due, by, rfc3339(wiring.clock().time()), told)
    return due


def redacting(config: Config) -> Redacting:
    """Raises: as `archive`."""
    from ledger.adapters import avro, cloudevents
    from ledger.archive.removal.redacting import Redacting
    from ledger.archive.snapshots.snapshots import thin_events, thin_recovery
    from ledger.core.model.published import headers_of

    def thin(topic: str) -> Thin:
        return thin_events if topic == config.topics.events else partial(thin_recovery, decode=avro.decode)

    kept = archive(config)
    from ledger.archive.removal.pins import held

    return Redacting(kept, config.topics.events, thin, lambda one: cloudevents.parse(headers_of(one)).id, held(kept))


def restoring(config: Config, told: Callable[[str], object]) -> Restoring:
    """Raises: as `archive` and `event_log`."""
    from ledger.adapters import avro
    from ledger.adapters.kafka.restoring import KafkaTarget

    kept, target = archive(config), KafkaTarget(config.client(), config.topic_settings())
    from ledger.archive.restore.restoring import Restoring

    keep = config.projector.restore_points
    return Restoring(kept, target, wiring.event_log(config), avro, wiring.clock(), keep=keep, told=told)


def past(config: Config, source: Source, moment: Moment, thin: bool = False) -> tuple[Source, Places]:
    """The ledger as it was at a moment. Raises: as `moments.as_of`, and as `archive` if there is to be one."""
    from ledger.history.resolve_moment import as_of, must_be_of

    archived, lag_s = _archived(config), _lag_s(config)
    if archived:
        must_be_of(archived, source.log.topic_ids(list(lag_s)))
    return as_of(source, moment, archived, lag_s, thin)


def _archived(config: Config) -> Archived:
    """What the archive has, nothing if there is to be none. Raises: as `archive`."""
    from ledger.history.historical_log import SealedRecords, Span

    archived: dict[TopicPartition, SealedRecords] = {}
    if config.archive.adapter:
        from ledger.archive.format.lateness import sure_from_s
        from ledger.archive.format.removals import expired_of
        from ledger.archive.query.key_scan import picked

        kept, lag_s = archive(config), _lag_s(config)
        for topic, partition in kept.places():
            if topic in lag_s and (manifests := list(kept.manifests(topic, partition))):
                sure = sure_from_s(manifests, lag_s[topic], kept.leaves)
                spans = [Span(one.next, one.greatest_timestamp_ms / 1000) for one in manifests]
                read = partial(kept.records, topic, partition)
                snapshot = partial(_snapshot, kept, topic, partition)
                gone = expired_of(kept.expired(topic, partition))
                archived[topic, partition] = SealedRecords(
                    manifests[-1].next, sure, read, spans, snapshot, partial(picked, kept, topic, partition), gone,
                    manifests[-1].topic_id,
                )  # fmt: skip
    return archived


def _snapshot(archive: Archive, topic: str, partition: int, end: int) -> tuple[int, Callable[[], Iterator[Record]]] | None:
    from ledger.archive.snapshots.snapshots import latest

    found = latest(archive, topic, partition, end)
    return None if found is None else (found.next, found.records)


def snapshots(config: Config, kept: Archive | None = None, whole: bool = True) -> Iterator[tuple[str, int, int]]:
    """Makes one of each partition that the archive has; (topic, partition, next) of each. Raises: as `snapshots.make`."""
    from ledger.adapters import avro
    from ledger.archive.snapshots import snapshots

    kept, (_, decoded) = kept or archive(config), archiving(config)
    thin_recovery = partial(snapshots.thin_recovery, decode=avro.decode)
    same_entries = partial(snapshots.same_entries, decode=avro.decode)
    for topic, partition in kept.places():
        recovery = topic == config.topics.recovery
        thin, same = (thin_recovery, same_entries) if recovery else (snapshots.thin_events, snapshots.same_registers)
        if made := snapshots.make(kept, topic, partition, thin, decoded, same, whole):
            yield topic, partition, made.next


def keep_snapshots(config: Config, archive: Archive) -> None:
    """One of each partition, from the one before it, and of the old ones so many as are to stay. Raises: as `snapshots`."""
    from ledger.archive.snapshots.snapshot_retention import thin_out

    for topic, partition, _ in snapshots(config, archive, whole=False):
        thin_out(archive, topic, partition, wiring.clock().time())


def cold_start(config: Config) -> Mapping[TopicPartition, StartSnapshot]:
    """What a projector may begin from. Raises: as `archive` and `archived_partitions`."""
    from ledger.archive.snapshots.bootstrap import usable
    from ledger.roles.projector.cold_start import StartSnapshot

    found = usable(archive(config), archived_partitions(config), config.topics.delete_retention_s / 2)
    return {
        (one.topic, one.partition): StartSnapshot(one.snapshot.next, one.newest_s, one.snapshot.records) for one in found
    }


def make_bundle(config: Config, store: ObjectStore, then: Source, cut: Places, jobs: Sequence[str], reason: str) -> int:
    """Writes the ledger as it was into an empty store; the number of records. then, cut: as `past` gives them. What else is
    put in comes before `seal_bundle`.

    Raises: as `bundling.write`, `archive`."""
    with wiring.of_extra("archive"):
        from ledger.history import bundling
    from ledger.adapters import avro, cloudevents
    from ledger.archive.format.decoding import decoded
    from ledger.archive.proof.bundle_proofs import carry

    now_s = wiring.clock().time()
    why = bundling.Why(cloudevents.rfc3339(now_s), whoami(), reason, config.shown(), versions())
    carried = {"carried": partial(carry, archive(config))} if config.archive.adapter else {}
    return bundling.write(
        store, then, cut, jobs, why, lambda record: decoded(record, avro, cloudevents), _archived(config), _lag_s(config),
        now_s, **carried,
    )  # fmt: skip


def seal_bundle(store: ObjectStore) -> None:
    """The last step of making a bundle: its chains name by hash all that lies beside them. Raises: as `sealing.seal`."""
    with wiring.of_extra("archive"):
        from ledger.history import bundling
    bundling.seal(store)


def bundle(path: Path, progressed: Progressed | None = None) -> Bundle:
    """Opens one. No server is asked, and no settings are. Raises: UsageError. LedgerError: `bundle.json`, by which it
    answers, is not what was sealed."""
    with wiring.of_extra("archive"):
        from ledger.history import bundling
    from ledger.adapters import avro, cloudevents
    from ledger.adapters.local.zipped import ZipObjects
    from ledger.history.historical_runner import ThenClock
    from ledger.reader.reading import Source

    def source(log: EventLog, about: About) -> Source:
        made = Source(log, about, avro, cloudevents, ThenClock(wiring.clock(), about.known_s), keep=about.keep)
        return made if progressed is None else replace(made, progressed=progressed)

    store = ZipObjects(path)
    bundling.must_be_as_sealed(store)
    return bundling.read(store, source)


def _lag_s(config: Config) -> dict[str, float]:
    """For how long each topic that is archived keeps everything."""
    topics = config.topics
    return {topics.events: topics.min_compaction_lag_s, topics.recovery: topics.recovery_min_compaction_lag_s}
