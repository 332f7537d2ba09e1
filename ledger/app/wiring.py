"""The only place that picks adapters: what the settings name is made here, and nothing is decided.

Every function imports what it makes, so that a command loads only what it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.metadata import EntryPoint, distributions, entry_points
from typing import TYPE_CHECKING, Any

from ledger.adapters.clock import SystemClock
from ledger.core.model.registers import is_job_id
from ledger.core.plan.outside import OUTSIDE
from ledger.errors import ConfigError
from ledger.ports import BlobStore, Candidate, Clock, EventLog, Leadership, Runner
from ledger.util.identity import instance

if TYPE_CHECKING:
    from ledger.adapters.kafka.sender import KafkaSender
    from ledger.adapters.runners.subprocess.sender import KafkaEventSender
    from ledger.adapters.zookeeper.settings import ZooKeeperSettings
    from ledger.app.notifying import Deliver, Notifier
    from ledger.config.config import Config
    from ledger.reader.reading import Progressed, Source

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


def require_agent_folder(config: Config) -> None:
    """Raises: ConfigError if the agent's folder of this host holds jobs of another ledger."""
    from ledger.adapters.runners.subprocess.owner import require_own

    require_own(config.agent_folder, config.topics.events, _events_id(config))


def claim_agent_folder(config: Config) -> None:
    """As `require_agent_folder`; and notes that the jobs to come are of this ledger."""
    from ledger.adapters.runners.subprocess.owner import record

    require_agent_folder(config)
    record(config.agent_folder, config.topics.events, _events_id(config))


def adopt_agent_folder(config: Config) -> None:
    """The topics were restored: they are the ledger of the jobs in the agent's folder of this host, if there are any."""
    from ledger.adapters.runners.subprocess.owner import record

    if config.agent_folder.is_dir():
        record(config.agent_folder, config.topics.events, _events_id(config))


def _events_id(config: Config) -> str:
    return event_log(config).topic_ids([config.topics.events])[config.topics.events]


def source(config: Config, progressed: Progressed | None = None) -> Source:
    """The ledger for reading (`ledger.reader.reading`). Raises: as `event_log`."""
    from ledger.adapters import avro, cloudevents
    from ledger.reader.reading import Source

    made = Source(event_log(config), config.topics, avro, cloudevents, clock(), keep=config.projector.restore_points)
    return made if progressed is None else replace(made, progressed=progressed)


def leadership(config: Config, role: str, force: bool = False) -> Leadership:
    """force: leads one term without the lock; the epoch in the log alone keeps two leaders apart.

    Raises: ConfigError if what the settings name can't be had."""
    made = _leadership(config, role)
    if not force:
        return made
    from ledger.adapters.forced import ForcedLeadership

    return ForcedLeadership(made, who=instance(role))


def _leadership(config: Config, role: str) -> Leadership:
    if config.leadership.adapter == "zookeeper":
        zookeeper, path = _zookeeper(config, role)
        with of_extra("zookeeper"):
            from ledger.adapters.zookeeper.leadership import ZooKeeperLeadership
        return ZooKeeperLeadership(zookeeper, path, who=instance(role), clock=clock())
    if config.leadership.adapter == "kafka":
        from ledger.adapters.kafka.leadership import ElectionNames, KafkaLeadership

        names, session_timeout_s = ElectionNames.of(config.topics.prefix, role), config.leadership.session_timeout_s
        return KafkaLeadership(
            config.client(), names, who=instance(role), session_timeout_s=session_timeout_s, clock=clock()
        )
    from ledger.adapters.local.leadership import FileLockLeadership

    return FileLockLeadership(config.leader_lock(role), who=instance(role), clock=clock())


def candidates(config: Config, role: str) -> list[Candidate]:
    """Who wants to lead a role, the leader first, as far as the election tells: a file lock tells of its holder alone, and
    so does Kafka.

    Raises: Unreachable if the election does not answer; as `leadership`."""
    if config.leadership.adapter == "zookeeper":
        zookeeper, path = _zookeeper(config, role)
        with of_extra("zookeeper"):
            from ledger.adapters.zookeeper.leadership import candidates as in_zookeeper
        return in_zookeeper(zookeeper, path, clock=clock())
    if config.leadership.adapter == "kafka":
        from ledger.adapters.kafka.leadership import ElectionNames
        from ledger.adapters.kafka.leadership import candidates as in_kafka

        names = ElectionNames.of(config.topics.prefix, role)
        return in_kafka(config.client(), names, session_timeout_s=config.leadership.session_timeout_s, clock=clock())
    from ledger.adapters.local.leadership import holder, outsider

    found = holder(config.leader_lock(role))
    if found is None:
        return []
    if found.outsider:
        return [Candidate("", 0, 0.0, leads=False, waits_for=outsider(config.leader_lock(role)))]
    return [Candidate(found.who or "another process", found.pid, found.since, leads=True)]


def _zookeeper(config: Config, role: str) -> tuple[ZooKeeperSettings, str]:
    from ledger.app.zookeeper_settings import zookeeper_settings

    settings = zookeeper_settings(config)
    return settings, settings.candidates(config.topics.prefix, role)


@contextmanager
def of_extra(name: str) -> Iterator[None]:
    """Around the import of what an extra brings. Raises: ConfigError that names it."""
    try:
        yield
    except ImportError as error:
        hint = f"Install it with: pip install 'jobledger[{name}]'"
        raise ConfigError(f"The settings need {error.name or name}, which is not installed.", hint=hint) from error


def blobs(config: Config) -> BlobStore:
    """Raises: Unreachable if the folder can't be made; ConfigError if what the settings name can't be had."""
    if config.blobs.adapter == "s3":
        from ledger.app.s3_settings import s3_settings

        with of_extra("s3"):
            from ledger.adapters.s3.blobs import S3Blobs
        return S3Blobs(s3_settings(config.blobs, "blobs"))
    from ledger.adapters.local.blobs import FileBlobs

    return FileBlobs(config.dir / "blobs")


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
    from ledger.app.notifying import Notifier

    return Notifier(config.notify.states, hooks, config.notified_file, clock())


def _hooks(config: Config) -> dict[str, Deliver]:
    from ledger.adapters import hooks
    from ledger.config.config import read_secret

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
        with of_extra("s3"):
            from ledger.adapters.s3.client import preload as preload_s3
        preload_s3()


def world(config: Config) -> tuple[dict[str, Runner], BlobStore]:
    """What a task of the reconciler needs, made where it is performed: what a pin holds is spared there."""
    if not config.archive.adapter:
        return runners(config), blobs(config)
    from ledger.app import pin_guard, wiring_pins

    held_by = wiring_pins.held_by(config)
    # It is a runner: what it does not say itself, the one within says.
    spared: dict[str, Any] = {name: pin_guard.SparingRunner(one, held_by) for name, one in runners(config).items()}
    return spared, pin_guard.PinGuardedBlobStore(blobs(config), held_by)
