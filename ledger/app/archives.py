"""The archive of a ledger, opened for each use: queries, progress, the past, restoring, redaction, bundles.

Every function imports what it needs, so that a command loads only what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.adapters.clock import SystemClock
from ledger.app.wiring import of_extra
from ledger.ports import EventLog, Record, TopicPartition
from ledger.util import times
from ledger.util.identity import versions, whoami

if TYPE_CHECKING:
    from ledger.app.ledger import Ledger
    from ledger.archive.format.chain import Head
    from ledger.archive.format.decoding import Decoded
    from ledger.archive.format.objects import ObjectStore
    from ledger.archive.query.querying import Queries
    from ledger.archive.removal.redacting import Redacting
    from ledger.archive.restore.restoring import Restoring
    from ledger.archive.snapshots.snapshots import Thin
    from ledger.archive.store.archiving import PartitionShape
    from ledger.archive.store.status import ArchiveProgress
    from ledger.config.config import Config
    from ledger.history.bundle_about import About
    from ledger.history.bundling import Bundle
    from ledger.history.historical_log import Archived
    from ledger.history.moment import Cut, Moment
    from ledger.reader.reading import Progressed, Source
    from ledger.roles.projector.cold_start import StartSnapshot


def where(config: Config) -> str:
    """A sentence that names the location of the archive."""
    given = config.archive
    return f"It lies in {config.dir / 'archive' if given.adapter == 'file' else f'{given.bucket}/{given.prefix}'}."


@contextmanager
def queries(ledger: Ledger, bundled: Path | None = None) -> Iterator[Queries]:
    """The archive, opened for SQL; with `bundled`, that bundle instead. Raises: as `Ledger.archive`, `bundle` and
    `querying.opened`."""
    with of_extra("duckdb"):
        from ledger.archive.query.querying import opened
    from ledger.archive.format.lateness import sure_from_s

    if bundled is None:
        kept, lag_s = ledger.archive, ledger.config.topics.lags_s
        asked = opened(kept, ledger.config.topics, lambda found: sure_from_s(found, lag_s[found[0].topic], kept.leaves))
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
    """The object store and the decoder for a task of the archiver. Call this function in the process that performs the
    task."""
    from ledger.app.ledger import Ledger

    return Ledger.open(config).objects, _decoded


def _decoded(record: Record) -> Decoded:
    from ledger.adapters import avro, cloudevents
    from ledger.archive.format.decoding import decoded

    return decoded(record, avro, cloudevents)


def archived_partitions(ledger: Ledger) -> dict[TopicPartition, PartitionShape]:
    """Each partition that the archive covers -> its topic id, first offset and current end. Raises: ConfigError if no
    setting names a Kafka; Unreachable."""
    from ledger.adapters.kafka.cluster import EARLIEST, Cluster
    from ledger.archive.store.archiving import PartitionShape

    topics = ledger.config.topics.events, ledger.config.topics.recovery
    cluster = Cluster(ledger.config.client())
    shapes = cluster.shape(topics)
    tps = [(topic, n) for topic in topics for n in range(shapes[topic].partitions)]
    begins, ends = cluster.ends(tps, EARLIEST), cluster.ends(tps)
    return {tp: PartitionShape(shapes[tp[0]].id, begins[tp], ends[tp]) for tp in tps}


def archive_progress(ledger: Ledger, known: Mapping[TopicPartition, Head] | None = None) -> list[ArchiveProgress]:
    """How far the archive is behind each partition. known: heads that are known already; the other heads are read from
    the archive.

    Raises: as `Ledger.archive` and `archived_partitions`."""
    from ledger.adapters.kafka.append_times import first_times
    from ledger.archive.store.status import progress

    kept, known = ledger.archive, known or {}  # a missing archive is reported before Kafka is queried
    shapes = archived_partitions(ledger)
    heads = {tp: known.get(tp) or kept.head(*tp) for tp in shapes}
    oldest = partial(first_times, ledger.config.client())
    return progress(heads, shapes, oldest, ledger.config.topics.lags_s, ledger.clock.time())


def redacting(ledger: Ledger) -> Redacting:
    """An object that redacts archived records of this ledger. Raises: as `Ledger.archive`."""
    from ledger.adapters import avro, cloudevents
    from ledger.archive.removal.redacting import Redacting
    from ledger.archive.snapshots.snapshots import thin_events, thin_recovery
    from ledger.core.model.published import headers_of

    topics = ledger.config.topics

    def thin(topic: str) -> Thin:
        return thin_events if topic == topics.events else partial(thin_recovery, decode=avro.decode)

    kept = ledger.archive
    from ledger.archive.removal.pins import held

    return Redacting(kept, topics.events, thin, lambda one: cloudevents.parse(headers_of(one)).id, held(kept))


def restoring(ledger: Ledger, report: Callable[[str], object]) -> Restoring:
    """An object that restores the topics from the archive. report: called with the current step, for people.

    Raises: as `Ledger.archive`; ConfigError if no setting names a Kafka."""
    from ledger.adapters import avro
    from ledger.adapters.kafka.restore_target import KafkaTarget

    config = ledger.config
    kept, target = ledger.archive, KafkaTarget(config.client(), config.topic_settings())
    from ledger.archive.restore.restoring import Restoring

    keep = config.projector.restore_points
    return Restoring(kept, target, ledger.event_log, avro, ledger.clock, keep=keep, report=report)


def past(ledger: Ledger, source: Source, moment: Moment, thin: bool = False) -> tuple[Source, Cut]:
    """The ledger as it was at a moment, and the offset in each partition at which the moment lies. thin: read only the
    records that a fold needs.

    Raises: as `resolve_moment.as_of`, and as `Ledger.archive` if the settings name an archive."""
    from ledger.history.resolve_moment import as_of, must_be_of

    archived, lag_s = _archived(ledger), ledger.config.topics.lags_s
    if archived:
        must_be_of(archived, source.log.topic_ids(list(lag_s)))
    return as_of(source, moment, archived, lag_s, thin)


def _archived(ledger: Ledger) -> Archived:
    """The archived records of each partition; empty without an archive."""
    if not ledger.config.archive.adapter:
        return {}
    kept = ledger.archive
    from ledger.history.archived_records import archived_records

    return archived_records(kept, ledger.config.topics.lags_s)


def cold_start(ledger: Ledger) -> Mapping[TopicPartition, StartSnapshot]:
    """The snapshots from which a projector may start: partition -> snapshot. Raises: as `Ledger.archive` and
    `archived_partitions`."""
    from ledger.archive.snapshots.bootstrap import usable
    from ledger.roles.projector.cold_start import StartSnapshot

    found = usable(ledger.archive, archived_partitions(ledger), ledger.config.topics.delete_retention_s / 2)
    return {
        (one.topic, one.partition): StartSnapshot(one.snapshot.next, one.newest_s, one.snapshot.records) for one in found
    }


def make_bundle(ledger: Ledger, store: ObjectStore, then: Source, cut: Cut, jobs: Sequence[str], reason: str) -> int:
    """Writes a past ledger to an empty store and returns the number of records. then, cut: the result of `past`. Add
    other files before you call `seal_bundle`.

    Raises: as `bundling.write` and `Ledger.archive`."""
    with of_extra("archive"):
        from ledger.history import bundling
    from ledger.archive.proof.bundle_proofs import carry

    config = ledger.config
    now_s = ledger.clock.time()
    why = bundling.Why(times.rfc3339(now_s), whoami(), reason, config.shown(), versions())
    carried = {"carried": partial(carry, ledger.archive)} if config.archive.adapter else {}
    return bundling.write(
        store, then, cut, jobs, why, _decoded, _archived(ledger), config.topics.lags_s, now_s, **carried,
    )  # fmt: skip


def seal_bundle(store: ObjectStore) -> None:
    """Records the hash of every other file in the bundle's chains: the last step of making a bundle. Raises: as
    `sealing.seal`."""
    with of_extra("archive"):
        from ledger.history import bundling
    bundling.seal(store)


def bundle(path: Path, progressed: Progressed | None = None) -> Bundle:
    """The bundle in a file, opened without settings or a server. progressed: called while records are read. Raises:
    UsageError; LedgerError if `bundle.json` differs from its sealed hash."""
    with of_extra("archive"):
        from ledger.history import bundling
    from ledger.adapters import avro, cloudevents
    from ledger.adapters.local.zipped import ZipObjects
    from ledger.history.historical_runner import ThenClock
    from ledger.reader.reading import Source

    def source(log: EventLog, about: About) -> Source:
        made = Source(log, about, avro, cloudevents, ThenClock(SystemClock(), about.known_s), keep=about.keep)
        return made if progressed is None else replace(made, progressed=progressed)

    store = ZipObjects(path)
    bundling.must_be_as_sealed(store)
    return bundling.read(store, source)
