"""The only module that chooses adapters by the settings. It makes adapters and does nothing else.

Every method imports the adapter that it makes, so that a command loads only the modules that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import EntryPoint, distributions, entry_points
from typing import TYPE_CHECKING

from ledger.adapters.clock import SystemClock
from ledger.core.model.registers import is_job_id
from ledger.core.plan.outside import OUTSIDE
from ledger.errors import ConfigError
from ledger.ports import BlobStore, Candidate, Clock, EventLog, Leadership, Runner
from ledger.util.identity import instance

if TYPE_CHECKING:
    from ledger.adapters.kafka.sender import KafkaSender
    from ledger.adapters.zookeeper.settings import ZooKeeperSettings
    from ledger.archive.format.objects import ObjectStore
    from ledger.config.config import Config

RUNNERS = "jobledger.runners"  # the entry point group of plug-ins
SUBPROCESS = "subprocess"


class SettingsAdapters:
    """Implements `ledger.Adapters` by the settings: Kafka, the election, the blob store and the runners that they
    name."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.clock: Clock = SystemClock()

    def event_log(self) -> EventLog:
        """The log on Kafka. Raises: ConfigError if no setting names a Kafka."""
        from ledger.adapters.kafka.log import KafkaLog

        # confluent_kafka types topic and offset as optional, although every record that was read has them.
        return KafkaLog(self._config.client(), self.clock)  # type: ignore[return-value]

    def sender(self, timeout_s: float = 30.0) -> KafkaSender:
        """A new sender of events to Kafka; the caller closes it. timeout_s: how long Kafka may take to acknowledge a
        write. Raises: as `event_log`."""
        from ledger.adapters.kafka.sender import KafkaSender

        return KafkaSender(self._config.client(), self.clock, timeout_s=timeout_s)

    def leadership(self, role: str) -> Leadership:
        """A new candidate of the role's election, by `leadership.adapter`. Raises: ConfigError if the settings of the
        election are invalid, or an extra is missing."""
        config, who = self._config, instance(role)
        if config.leadership.adapter == "zookeeper":
            zookeeper, path = self._zookeeper(role)
            with of_extra("zookeeper"):
                from ledger.adapters.zookeeper.leadership import ZooKeeperLeadership
            return ZooKeeperLeadership(zookeeper, path, who=who, clock=self.clock)
        if config.leadership.adapter == "kafka":
            from ledger.adapters.kafka.leadership import ElectionNames, KafkaLeadership

            names, session_timeout_s = ElectionNames.of(config.topics.prefix, role), config.leadership.session_timeout_s
            return KafkaLeadership(config.client(), names, who=who, session_timeout_s=session_timeout_s, clock=self.clock)
        from ledger.adapters.local.leadership import FileLockLeadership

        return FileLockLeadership(config.leader_lock(role), who=who, clock=self.clock)

    def candidates(self, role: str) -> list[Candidate]:
        """The candidates of a role, the leader first. Elections by a file lock or by Kafka know only the leader.

        Raises: Unreachable if the election does not answer; as `leadership`."""
        config = self._config
        if config.leadership.adapter == "zookeeper":
            zookeeper, path = self._zookeeper(role)
            with of_extra("zookeeper"):
                from ledger.adapters.zookeeper.leadership import candidates as in_zookeeper
            return in_zookeeper(zookeeper, path, clock=self.clock)
        if config.leadership.adapter == "kafka":
            from ledger.adapters.kafka.leadership import ElectionNames
            from ledger.adapters.kafka.leadership import candidates as in_kafka

            names = ElectionNames.of(config.topics.prefix, role)
            return in_kafka(config.client(), names, session_timeout_s=config.leadership.session_timeout_s, clock=self.clock)
        from ledger.adapters.local.leadership import holder, outsider

        found = holder(config.leader_lock(role))
        if found is None:
            return []
        if found.outsider:
            return [Candidate("", 0, 0.0, leads=False, waits_for=outsider(config.leader_lock(role)))]
        return [Candidate(found.who or "another process", found.pid, found.since, leads=True)]

    def _zookeeper(self, role: str) -> tuple[ZooKeeperSettings, str]:
        from ledger.app.zookeeper_settings import zookeeper_settings

        settings = zookeeper_settings(self._config)
        return settings, settings.candidates(self._config.topics.prefix, role)

    def blobs(self) -> BlobStore:
        """The store of job graphs. Raises: Unreachable if its folder can't be created; ConfigError if the settings are
        invalid, or an extra is missing."""
        if self._config.blobs.adapter == "s3":
            from ledger.app.s3_settings import s3_settings

            with of_extra("s3"):
                from ledger.adapters.s3.blobs import S3Blobs
            return S3Blobs(s3_settings(self._config.blobs, "blobs"))
        from ledger.adapters.local.blobs import FileBlobs

        return FileBlobs(self._config.dir / "blobs")

    def objects(self) -> ObjectStore:
        """The object store of the archive. Raises: as `blobs`; ConfigError if the settings name no archive."""
        if self._config.archive.adapter == "s3":
            from ledger.app.s3_settings import s3_settings

            with of_extra("s3"):
                from ledger.adapters.s3.objects import S3Objects
            return S3Objects(s3_settings(self._config.archive, "archive"))
        if not self._config.archive.adapter:
            raise ConfigError("This ledger has no archive.", hint="Set LEDGER_ARCHIVE__ADAPTER=file (or s3)")
        from ledger.adapters.local.objects import FolderObjects

        return FolderObjects(self._config.dir / "archive")

    def runners(self) -> dict[str, Runner]:
        """All installed runners by name: our own, and one for each plug-in. A plug-in that can't be loaded is included:
        its jobs wait.

        A plug-in runs in a separate process, which starts at the first call (docs/decisions/0023). Runners keep files
        in a folder: the agent's for `subprocess`, `<dir>/runners/<name>` for a plug-in."""
        from ledger.adapters.runners.contained import ContainedRunner
        from ledger.adapters.runners.outside import OutsideRunner
        from ledger.adapters.runners.subprocess import SubprocessRunner

        config = self._config
        timeout_s, memory_bytes = config.plugins.call_timeout_s, config.plugins.memory_mb << 20
        made: dict[str, Runner] = {OUTSIDE: OutsideRunner(), SUBPROCESS: SubprocessRunner(config.agent_folder)}
        for name, value in plugins().items():
            made[name] = ContainedRunner(name, value, config.dir / "runners" / name, timeout_s, memory_bytes)
        return made


@contextmanager
def of_extra(name: str) -> Iterator[None]:
    """Wraps the import of a package that an extra installs. Raises: ConfigError that names the extra."""
    try:
        yield
    except ImportError as error:
        hint = f"Install it with: pip install 'jobledger[{name}]'"
        raise ConfigError(f"The settings need {error.name or name}, which is not installed.", hint=hint) from error


def plugins() -> dict[str, str]:
    """The runners of plug-ins: name -> `module:attribute`. A plug-in with the name of one of our own runners is
    ignored. If two plug-ins have the same name, the value that sorts first counts, so that every process chooses the
    same."""
    found = {point.name: point.value for point in sorted(_entry_points(), key=lambda point: point.value, reverse=True)}
    return {name: value for name, value in found.items() if name not in (OUTSIDE, SUBPROCESS) and is_job_id(name)}


def _entry_points() -> list[EntryPoint]:
    """The entry points of every distribution with readable metadata: an unreadable one must not hide the others."""
    try:
        return list(entry_points(group=RUNNERS))
    except Exception:
        out: list[EntryPoint] = []
        for distribution in distributions():
            with suppress(Exception):
                out += [point for point in distribution.entry_points if point.group == RUNNERS]
        return out


def preload(config: Config) -> None:
    """Loads the modules and data that the blob store would load at its first use, so that forked processes inherit
    them. Opens no connection.

    Raises: ConfigError if an extra is missing."""
    if config.blobs.adapter == "s3":
        with of_extra("s3"):
            from ledger.adapters.s3.client import preload as preload_s3
        preload_s3()
