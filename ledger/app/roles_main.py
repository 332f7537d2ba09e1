"""The roles as `jobledger serve` runs them: on the adapters of a ledger, until a stop signal."""

from __future__ import annotations

import gc
import threading
import uuid
from contextlib import closing, nullcontext
from functools import partial

import structlog

from ledger.adapters import avro, cloudevents
from ledger.adapters.kafka.java_client import java_settings
from ledger.adapters.kafka.topics import require_topics
from ledger.adapters.runners.subprocess import SubprocessRunner
from ledger.app import agent_folder, anchors, archives, notifying, waiting_reasons, wiring, worker_daemon
from ledger.app.ledger import Ledger, task_context
from ledger.app.reached_agents import AgentComparison
from ledger.config.config import Config
from ledger.operations import archive_upkeep
from ledger.reader.presence import Presence
from ledger.reader.rejects import RejectsTopic
from ledger.roles.common.candidacy import Candidacy
from ledger.roles.common.leaderless import LeaderlessAlarm
from ledger.roles.common.role_parts import Parts, ProjectorSettings, RoleTopics, ignore_entry
from ledger.roles.projector.cold_start import from_the_log
from ledger.util.identity import instance, whoami

log = structlog.get_logger("ledger.roles")
SLOTS = 4  # groups of actions that may run at once, besides one for each plug-in
HEADER_BYTES_MAX = 16_384  # the most that key, headers and batch overhead of a value may take


def spare_the_collector() -> None:
    """Makes Python's garbage collector run less often. Registers and entries live as long as the process and form no
    reference cycles. Scanning them repeatedly would cost a fifth of a projector's cold start (benchmarks/fold_rate.py).
    """
    gc.set_threshold(200_000, 50, 100)


def run_projector(ledger: Ledger, *, force_lead: bool = False, stop: threading.Event) -> None:
    """Runs a projector until `stop` is set. force_lead: lead one term without the lock. Raises: ConfigError if a topic
    has wrong settings; Unreachable if Kafka does not answer."""
    from ledger.roles.projector.projector import Projector

    spare_the_collector()
    config = ledger.config
    require_topics(config.client(), config.topic_settings())
    settings = ProjectorSettings(
        restore_points=config.projector.restore_points,
        history=config.projector.history,
        commit_interval_s=config.projector.commit_interval_s,
        forget_after_s=config.topics.delete_retention_s / 2,
        collect_unadmitted_after_s=config.projector.collect_unadmitted_after_s,
        result_retention_s=config.projector.result_retention_s,
        record_bytes_max=config.topics.max_message_bytes - HEADER_BYTES_MAX,
    )
    parts = _parts(ledger, "projector", force_lead)
    rejects = RejectsTopic(parts.topics.rejects, parts.topics.events)
    notifier = notifying.notifier(config)
    with closing(parts.leadership), closing(notifier) if notifier else nullcontext():
        snapshots = config.projector.cold_start == "snapshot"
        if snapshots:
            ledger.archive  # noqa: B018  # raises on wrong settings now; later, an archive that does not answer is ignored
        cold_start = partial(archives.cold_start, ledger) if snapshots else from_the_log
        projector = Projector(parts, rejects, settings, notifier.offer if notifier else ignore_entry, cold_start)
        if notifier:
            notifier.start()
        with _presence(config, "projector", parts, projector.candidacy):
            projector.run(stop.is_set)


def run_reconciler(ledger: Ledger, *, force_lead: bool = False, stop: threading.Event) -> None:
    """Runs a reconciler until `stop` is set. force_lead: lead one term without the lock. Raises: ConfigError if a
    topic, or a setting of Kafka or of the blob store, is wrong; Unreachable if Kafka does not answer."""
    from ledger.adapters.parallel_observer import ParallelObserver
    from ledger.adapters.spark.executor import SparkExecutor
    from ledger.adapters.spark.session import start_session
    from ledger.adapters.spark.stream import SparkRecoveryStream
    from ledger.app.gc_schedule import Collections, command_of
    from ledger.roles.reconciler.reconciler import Reconciler
    from ledger.roles.reconciler.term import ReconcilerSettings

    config = ledger.config
    kafka = java_settings(config.client())
    require_topics(config.client(), config.topic_settings())
    agent_folder.require_agent_folder(ledger)
    ledger.blobs  # noqa: B018  # executors make their own, much later; wrong settings raise now
    folder = config.dir / "spark"
    plugins = frozenset(wiring.plugins())
    spark = start_session(
        folder, slots=SLOTS + len(plugins), daemon=worker_daemon.__name__, settings=config.spark_settings()
    )
    try:
        stream = SparkRecoveryStream(
            spark, config.topics.recovery, kafka, folder / "recovery",
            config.reconciler.trigger_interval_s, config.reconciler.batch_offsets_max,
        )  # fmt: skip
        executor = SparkExecutor(
            spark, partial(task_context, config), config.reconciler.action_timeout_s,
            SLOTS, partial(wiring.preload, config), plugins,
        )  # fmt: skip
        settings = ReconcilerSettings(
            observe_interval_s=config.reconciler.observe_interval_s,
            starts_max=config.reconciler.starts_max,
            replaced_after_s=config.reconciler.replaced_after_s,
            pools=config.limits(),
        )
        parts = _parts(ledger, "reconciler", force_lead)
        tell = partial(waiting_reasons.tell, config.waits_file)
        with closing(parts.leadership):
            ask = ParallelObserver(config.reconciler.observe_timeout_s).observe
            reconciler = Reconciler(parts, ledger.runners, stream, executor, settings, tell, ask)
            with (
                _presence(config, "reconciler", parts, reconciler.candidacy),
                AgentComparison(ledger.source(), partial(_agent, config), parts.writer_name),
                Collections(command_of(config), lambda: reconciler.epoch > 0, config.gc_interval_s),
            ):
                reconciler.run(stop.is_set)
    finally:
        spark.stop()


def run_archiver(ledger: Ledger, *, stop: threading.Event) -> None:
    """Runs an archiver until `stop` is set. Raises: ConfigError if the settings name no archive, or a topic or a
    setting is wrong; Unreachable if Kafka does not answer; LedgerError if the archive holds records of other topics."""
    from ledger.adapters.spark.segments import SparkSegments
    from ledger.adapters.spark.session import start_session
    from ledger.archive.store.archiving import Archiver

    config = ledger.config
    kafka = java_settings(config.client())
    require_topics(config.client(), config.topic_settings())
    archive = ledger.archive
    if (signer := anchors.signer(config)) is not None and signer.open_to_others:
        log.warning("key_open_to_others", file=str(config.archive.anchor_key_file), mend="chmod 600")
    folder = config.dir / "spark" / "archiver"
    daemon = worker_daemon.__name__
    spark = start_session(folder, slots=2, name="jobledger-archiver", daemon=daemon, settings=config.spark_settings())
    try:
        stream = SparkSegments(
            spark, kafka, folder / "checkpoints", partial(archives.archiving, config),
            config.archive.interval_s,
        )  # fmt: skip
        shapes = partial(archives.archived_partitions, ledger)
        with closing(anchors.anchoring(ledger, archive)) as anchoring:
            chores = archive_upkeep.chores(config, archive, ledger.clock, anchoring)
            archiver = Archiver(archive, stream, shapes, ledger.clock, chores)
            with anchors.watched(ledger, archiver, anchoring):
                archiver.run(stop.is_set)
    finally:
        spark.stop()


def _parts(ledger: Ledger, role: str, force_lead: bool) -> Parts:
    topics = ledger.config.topics
    return Parts(
        log=ledger.event_log,
        leadership=ledger.leadership(role, force=force_lead),
        clock=ledger.clock,
        codec=avro,
        envelope=cloudevents,
        new_id=lambda: str(uuid.uuid4()),
        topics=RoleTopics(topics.events, topics.recovery, topics.rejects),
        writer_name=instance(role),
        actor=whoami(),
        forced=force_lead,
    )


def _presence(config: Config, role: str, parts: Parts, candidacy: Candidacy) -> Presence:
    """The file that reports this instance, and the alarm when nobody leads."""
    after_s = config.leadership.leaderless_after_s or 1.5 * config.leadership.session_timeout_s
    alarm = LeaderlessAlarm(role, parts.writer_name, candidacy, parts.leadership, parts.clock, after_s)
    return Presence(config.candidates_folder / f"{parts.writer_name}.json", alarm.look, parts.clock)


def _agent(config: Config) -> dict[str, str]:
    """Runner name -> the instance of the agent that this host reaches. Raises: Unreachable."""
    return {wiring.SUBPROCESS: SubprocessRunner(config.agent_folder).instance()}
