"""The names of the ledger's topics, and what they are to be like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ledger.errors import ConfigError

EVENTS, RECOVERY, REJECTS = "ledger.events", "ledger.recovery", "ledger.rejects"
LEADERS, ANCHORS = "ledger.leaders", "ledger.anchors"


@dataclass(frozen=True, kw_only=True)
class TopicSettings:
    """What the topics are to be like. Durations in seconds."""

    prefix: str = ""
    partitions: int = 4
    """Of events and recovery; fixed at birth, for the job id decides the partition."""
    rejects_partitions: int = 1
    replication_factor: int = 1
    min_insync_replicas: int = 1
    delete_retention_s: float = 7 * 86_400.0
    """How long a tombstone can be seen: longer than any reader or replica is ever away."""
    min_compaction_lag_s: float = 86_400.0
    """How long ledger.events keeps every record: until the archive has it."""
    recovery_min_compaction_lag_s: float = 3_600.0
    """How long ledger.recovery keeps every record: longer than the longest failover, so that a zombie's record can be
    written over before the cleaner lets it hide the good one."""
    max_message_bytes: int = 1_048_576
    rejects_retention_s: float = 30 * 86_400.0
    leaders: bool = False
    """Whether Kafka holds the elections: then there is a fourth topic, of one partition, to which nothing is written."""
    anchors: bool = False
    """Whether there is an archive: then there is a topic for its anchors, of one partition."""
    extra: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Further settings by topic without prefix, e.g. {"ledger.events": {"segment.ms": "1000"}}; they win."""

    def __post_init__(self) -> None:
        """Raises: ConfigError."""
        if min(self.partitions, self.rejects_partitions, self.replication_factor, self.min_insync_replicas) < 1:
            raise ConfigError("Partitions, replication_factor and min_insync_replicas must be at least 1.")
        if self.min_insync_replicas > self.replication_factor:
            raise ConfigError(
                f"min_insync_replicas ({self.min_insync_replicas}) is more than replication_factor "
                f"({self.replication_factor}): nothing could ever be written."
            )
        if unknown := set(self.extra) - {EVENTS, RECOVERY, REJECTS, ANCHORS}:
            raise ConfigError(f"extra names topics that the ledger does not have: {', '.join(sorted(unknown))}.")

    @property
    def events(self) -> str:
        return self.prefix + EVENTS

    @property
    def recovery(self) -> str:
        return self.prefix + RECOVERY

    @property
    def rejects(self) -> str:
        return self.prefix + REJECTS
