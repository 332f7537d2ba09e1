"""The only place that picks adapters: what the settings name is made here, and nothing is decided.

Every function imports what it makes, so that a command loads only what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint, distributions, entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.adapters.clock import SystemClock
from ledger.config import Config, read_secret
from ledger.core.outside import OUTSIDE
from ledger.core.registers import is_job_id
from ledger.errors import ConfigError
from ledger.identity import instance, versions, whoami
from ledger.ports import BlobStore, Candidate, Clock, EventLog, Leadership, Record, Runner, TopicPartition

if TYPE_CHECKING:
    from ledger.adapters.kafka.sender import KafkaSender
    from ledger.adapters.runners.subprocess.sender import KafkaEventSender
    from ledger.adapters.zookeeper.settings import ZooKeeperSettings
    from ledger.archive.archive import Archive
    from ledger.archive.archiving import PartitionShape
    from ledger.archive.decoding import Decoded
    from ledger.archive.objects import ObjectStore
    from ledger.archive.querying import Queries
    from ledger.archive.restoring import Restoring
    from ledger.archive.status import Progress
    from ledger.bundling import About, Bundle
    from ledger.core.moment import Moment, Places
    from ledger.notifying import Deliver, Notifier
    from ledger.past import Archived, Sealed
    from ledger.reading import Progressed, Source

RUNNERS = "jobledger.runners"  # the entry point group of plug-ins
SUBPROCESS = "subprocess"


def clock() -> Clock:
    return SystemClock()


def event_log(config: Config) -> EventLog:
    """Raises: ConfigError if nothing says where Kafka is."""
    from ledger.adapters.kafka.log import KafkaLog

    # confluent_kafka types as optional what every record that was read has (its topic, its offset).
    return KafkaLog(config.client(), clock())  # type: ignore[return-value]


def sender(config: Config, timeout_s: float = 30.0) -> KafkaSender:
    """What producers and agents write with. Raises: as `event_log`."""
    from ledger.adapters.kafka.sender import KafkaSender

    return KafkaSender(config.client(), clock(), timeout_s=timeout_s)


def agent_sender(config: Config) -> KafkaEventSender:
    """What the runner agent sends its facts with. Raises: as `event_log`, and Unreachable: it asks for the partitions."""
    from ledger.adapters.runners.subprocess.sender import KafkaEventSender

    topic = config.topics.events
    partitions = event_log(config).partitions(topic)
    return KafkaEventSender(topic, partitions, config.client(), timeout_s=config.agent.send_timeout_s)


def source(config: Config, progressed: Progressed | None = None) -> Source:
    """The ledger for reading (`ledger.reading`). Raises: as `event_log`."""
    from ledger.adapters import avro, cloudevents
    from ledger.reading import Source

    made = Source(event_log(config), config.topics, avro, cloudevents, clock(), keep=config.projector.restore_points)
    return made if progressed is None else replace(made, progressed=progressed)


def leadership(config: Config, role: str, force: bool = False) -> Leadership:
    """force: leads one term without the lock; the epoch in the log alone keeps two leaders apart.

    Raises: ConfigError if what the settings name can't be had."""
    made = _leadership(config, role)
    if not force:
        return made
    from ledger.adapters.forced import ForcedLeadership

    return ForcedLeadership(made, who=whoami())


def _leadership(config: Config, role: str) -> Leadership:
    if config.leadership.adapter == "zookeeper":
        zookeeper, path = _zookeeper(config, role)
        with _extra("zookeeper"):
            from ledger.adapters.zookeeper.leadership import ZooKeeperLeadership
        return ZooKeeperLeadership(zookeeper, path, who=whoami(), clock=clock())
    if config.leadership.adapter == "kafka":
        from ledger.adapters.kafka.leadership import KafkaLeadership, Names

        names, session_timeout_s = Names.of(config.topics.prefix, role), config.leadership.session_timeout_s
        return KafkaLeadership(config.client(), names, who=whoami(), session_timeout_s=session_timeout_s, clock=clock())
    from ledger.adapters.local.leadership import FileLockLeadership

    return FileLockLeadership(config.leader_lock(role), who=whoami(), clock=clock())


def candidates(config: Config, role: str) -> list[Candidate]:
    """Who wants to lead a role, the leader first, as far as the election tells: a file lock tells of its holder alone, and
    so does Kafka.

    Raises: Unreachable if the election does not answer; as `leadership`."""
    if config.leadership.adapter == "zookeeper":
        zookeeper, path = _zookeeper(config, role)
        with _extra("zookeeper"):
            from ledger.adapters.zookeeper.leadership import candidates as in_zookeeper
        return in_zookeeper(zookeeper, path, clock=clock())
    if config.leadership.adapter == "kafka":
        from ledger.adapters.kafka.leadership import Names
        from ledger.adapters.kafka.leadership import candidates as in_kafka

        names = Names.of(config.topics.prefix, role)
        return in_kafka(config.client(), names, session_timeout_s=config.leadership.session_timeout_s, clock=clock())
    from ledger.adapters.local.leadership import holder

    found = holder(config.leader_lock(role))
    return [] if found is None else [Candidate(found.who or "another process", found.pid, found.since, leads=True)]


def _zookeeper(config: Config, role: str) -> tuple[ZooKeeperSettings, str]:
    from ledger.electing import zookeeper_settings

    settings = zookeeper_settings(config)
    return settings, settings.candidates(config.topics.prefix, role)


@contextmanager
def _extra(name: str) -> Iterator[None]:
    """Around the import of what an extra brings. Raises: ConfigError that names it."""
    try:
        yield
    except ImportError as error:
        hint = f"Install it with: pip install 'jobledger[{name}]'"
        raise ConfigError(f"The settings need {error.name or name}, which is not installed.", hint=hint) from error


def blobs(config: Config) -> BlobStore:
    """Raises: Unreachable if the folder can't be made; ConfigError if what the settings name can't be had."""
    if config.blobs.adapter == "s3":
        from ledger.storing import s3_settings

        with _extra("s3"):
            from ledger.adapters.s3.blobs import S3Blobs
        return S3Blobs(s3_settings(config.blobs, "blobs"))
    from ledger.adapters.local.blobs import FileBlobs

    return FileBlobs(config.dir / "blobs")


def objects(config: Config) -> ObjectStore:
    """What the archive lies in. Raises: as `blobs`; ConfigError if there is to be no archive."""
    if config.archive.adapter == "s3":
        from ledger.storing import s3_settings

        with _extra("s3"):
            from ledger.adapters.s3.objects import S3Objects
        return S3Objects(s3_settings(config.archive, "archive"))
    if not config.archive.adapter:
        raise ConfigError("This ledger has no archive.", hint="Set LEDGER_ARCHIVE__ADAPTER=file (or s3)")
    from ledger.adapters.local.objects import FolderObjects

    return FolderObjects(config.dir / "archive")


def archive(config: Config) -> Archive:
    """Raises: as `objects`; ConfigError if what it needs is not installed."""
    with _extra("archive"):
        from ledger.archive.archive import Archive
    from ledger.adapters.cloudevents import rfc3339

    return Archive(objects(config), instance("archiver"), lambda: rfc3339(clock().time()))


@contextmanager
def queries(config: Config, bundled: Path | None = None) -> Iterator[Queries]:
    """The archive, or a bundle, to be asked in SQL. Raises: as `archive` and `bundle`, and as `querying.opened`."""
    with _extra("duckdb"):
        from ledger.archive.querying import opened
    from ledger.archive.status import sure_from_s

    if bundled is None:
        lag_s = _lag_s(config)
        asked = opened(archive(config), config.topics, lambda found: sure_from_s(found, lag_s[found[0].topic]))
    else:
        given = bundle(bundled)
        sure = given.archived
        asked = opened(
            given.archive, given.about, lambda found: sure[found[0].topic, found[0].partition].sure_from_s
        )
    with asked as made:
        yield made


def archiving(config: Config) -> tuple[ObjectStore, Callable[[Record], Decoded]]:
    """What a task of the archiver needs, made where it is performed."""
    from ledger.adapters import avro, cloudevents
    from ledger.archive.decoding import decoded

    return objects(config), lambda record: decoded(record, avro, cloudevents)


def archived_partitions(config: Config) -> dict[TopicPartition, PartitionShape]:
    """The partitions that an archive keeps, as they are now. Raises: as `event_log`; Unreachable."""
    from ledger.adapters.kafka.cluster import EARLIEST, Cluster
    from ledger.archive.archiving import PartitionShape

    cluster, topics = Cluster(config.client()), (config.topics.events, config.topics.recovery)
    shapes = cluster.shape(topics)
    places = [(topic, n) for topic in topics for n in range(shapes[topic].partitions)]
    begins, ends = cluster.ends(places, EARLIEST), cluster.ends(places)
    return {place: PartitionShape(shapes[place[0]].id, begins[place], ends[place]) for place in places}


def archive_progress(config: Config) -> list[Progress]:
    """Raises: as `archive` and `archived_partitions`."""
    from ledger.adapters.kafka.oldest import first_times
    from ledger.archive.status import progress

    return progress(
        archive(config), archived_partitions(config), lambda begin: first_times(config.client(), begin), _lag_s(config),
        clock().time(),
    )  # fmt: skip


def restoring(config: Config, told: Callable[[str], object]) -> Restoring:
    """Raises: as `archive` and `event_log`."""
    from ledger.adapters import avro
    from ledger.adapters.kafka.restoring import KafkaTarget

    kept, target = archive(config), KafkaTarget(config.client(), config.topic_settings())
    from ledger.archive.restoring import Restoring

    keep = config.projector.restore_points
    return Restoring(kept, target, event_log(config), avro, clock(), keep=keep, told=told)


def past(config: Config, source: Source, moment: Moment, thin: bool = False) -> tuple[Source, Places]:
    """The ledger as it was at a moment. Raises: as `past.as_of`, and as `archive` if there is to be one."""
    from ledger.past import as_of

    return as_of(source, moment, _archived(config), _lag_s(config), thin)


def _archived(config: Config) -> Archived:
    """What the archive has, nothing if there is to be none. Raises: as `archive`."""
    from ledger.past import Sealed, Span

    archived: dict[TopicPartition, Sealed] = {}
    if config.archive.adapter:
        from ledger.archive.status import sure_from_s

        kept, lag_s = archive(config), _lag_s(config)
        for topic, partition in kept.places():
            if topic in lag_s and (manifests := list(kept.manifests(topic, partition))):
                sure = sure_from_s(manifests, lag_s[topic])
                spans = [Span(one.next, one.greatest_timestamp_ms / 1000) for one in manifests]
                read = partial(kept.records, topic, partition)
                snapshot = partial(_snapshot, kept, topic, partition)
                archived[topic, partition] = Sealed(manifests[-1].next, sure, read, spans, snapshot)
    return archived


def _snapshot(
    archive: Archive, topic: str, partition: int, end: int
) -> tuple[int, Callable[[], Iterator[Record]]] | None:
    from ledger.archive.snapshots import latest

    found = latest(archive, topic, partition, end)
    return None if found is None else (found.next, found.records)


def snapshots(config: Config) -> Iterator[tuple[str, int, int]]:
    """Makes one of each partition that the archive has; (topic, partition, next) of each. Raises: as `snapshots.make`."""
    from ledger.adapters import avro
    from ledger.archive import snapshots

    kept, (_, decoded) = archive(config), archiving(config)
    thin_recovery = partial(snapshots.thin_recovery, decode=avro.decode)
    same_entries = partial(snapshots.same_entries, decode=avro.decode)
    for topic, partition in kept.places():
        recovery = topic == config.topics.recovery
        thin, same = (thin_recovery, same_entries) if recovery else (snapshots.thin_events, snapshots.same_registers)
        if made := snapshots.make(kept, topic, partition, thin, decoded, same):
            yield topic, partition, made.next


def make_bundle(config: Config, store: ObjectStore, then: Source, cut: Places, jobs: Sequence[str], reason: str) -> int:
    """Writes the ledger as it was into an empty store; the number of records. then, cut: as `past` gives them.

    Raises: as `bundling.write`, `archive`."""
    with _extra("archive"):
        from ledger import bundling
    from ledger.adapters import avro, cloudevents
    from ledger.archive.decoding import decoded

    now_s = clock().time()
    why = bundling.Why(cloudevents.rfc3339(now_s), whoami(), reason, config.shown(), versions())
    return bundling.write(
        store, then, cut, jobs, why, lambda record: decoded(record, avro, cloudevents), _archived(config), _lag_s(config),
        now_s,
    )  # fmt: skip


def bundle(path: Path, progressed: Progressed | None = None) -> Bundle:
    """Opens one. No server is asked, and no settings are. Raises: UsageError."""
    with _extra("archive"):
        from ledger import bundling
    from ledger.adapters import avro, cloudevents
    from ledger.adapters.local.zipped import ZipObjects
    from ledger.reading import Source
    from ledger.recorded import ThenClock

    def source(log: EventLog, about: About) -> Source:
        made = Source(log, about, avro, cloudevents, ThenClock(clock(), about.made_at_s), keep=about.keep)
        return made if progressed is None else replace(made, progressed=progressed)

    return bundling.read(ZipObjects(path), source)


def _lag_s(config: Config) -> dict[str, float]:
    """For how long each topic that is archived keeps everything."""
    topics = config.topics
    return {topics.events: topics.min_compaction_lag_s, topics.recovery: topics.recovery_min_compaction_lag_s}


def runners(config: Config) -> dict[str, Runner]:
    """All installed runners by name: our own, and one for each plug-in, in a process that is started when it is first asked
    (docs/decisions/0023). Each has a folder in which it may keep things: the agent's for `subprocess`,
    `<dir>/runners/<name>` for a plug-in. A plug-in that can't be loaded is not left out: its jobs wait for it."""
    from ledger.adapters.runners.contained import ContainedRunner
    from ledger.adapters.runners.outside import OutsideRunner
    from ledger.adapters.runners.subprocess import SubprocessRunner

    timeout_s, memory_bytes = config.plugins.call_timeout_s, config.plugins.memory_mb << 20
    made: dict[str, Runner] = {OUTSIDE: OutsideRunner(), SUBPROCESS: SubprocessRunner(config.agent_folder)}
    for name, value in plugins().items():
        made[name] = ContainedRunner(name, value, config.dir / "runners" / name, timeout_s, memory_bytes)
    return made


def plugins() -> dict[str, str]:
    """Runners of somebody else's, name -> `module:attribute`. The names of our own runners are taken, and of two plug-ins
    of one name the value that comes first in the alphabet counts, wherever this is asked."""
    found = {point.name: point.value for point in sorted(_entry_points(), key=lambda point: point.value, reverse=True)}
    return {name: value for name, value in found.items() if name not in (OUTSIDE, SUBPROCESS) and is_job_id(name)}


def _entry_points() -> list[EntryPoint]:
    """Of all distributions whose list can be read: one that can't must not hide the others."""
    try:
        return list(entry_points(group=RUNNERS))
    except Exception:
        out: list[EntryPoint] = []
        for distribution in distributions():
            with suppress(Exception):
                out += [point for point in distribution.entry_points if point.group == RUNNERS]
        return out


def notifier(config: Config) -> Notifier | None:
    """Who is told that people are needed; None: nobody is. Raises: ConfigError if what the settings name can't be."""
    hooks = _hooks(config)
    if not hooks:
        return None
    from ledger.notifying import Notifier

    return Notifier(config.notify.states, hooks, config.notified_file, clock())


def _hooks(config: Config) -> dict[str, Deliver]:
    from ledger.adapters import hooks

    given, made = config.notify, dict[str, "Deliver"]()
    if given.command:
        made["command"] = hooks.CommandHook(given.command, given.timeout_s)
    if given.webhook and given.webhook_file:
        raise ConfigError("notify.webhook and notify.webhook_file are both set: set one.")
    url = read_secret("notify.webhook_file", given.webhook_file) if given.webhook_file else given.webhook
    if url:
        if why := hooks.problem(url):
            raise ConfigError(f"notify.webhook can't be: {why}.")
        made["webhook"] = hooks.Webhook(url, given.timeout_s)
    return made


def preload(config: Config) -> None:
    """Imports and reads what takes `blobs` long at its first use, for processes that fork. Nothing is connected.

    Raises: ConfigError if it is not installed."""
    if config.blobs.adapter == "s3":
        with _extra("s3"):
            from ledger.adapters.s3.client import preload as preload_s3
        preload_s3()


def world(config: Config) -> tuple[dict[str, Runner], BlobStore]:
    """What a task of the reconciler needs, made where it is performed."""
    return runners(config), blobs(config)
