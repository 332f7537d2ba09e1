"""The names of the ledger's topics, and the settings that they must have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ledger.errors import ConfigError

EVENTS, RECOVERY, REJECTS = "ledger.events", "ledger.recovery", "ledger.rejects"
LEADERS, ANCHORS = "ledger.leaders", "ledger.anchors"


@dataclass(frozen=True, kw_only=True)
class TopicSettings:
    """The settings that the topics must have. Durations in seconds."""

    prefix: str = ""
    partitions: int = 4
    """The number for events and for recovery. It is fixed, because it maps each job id to its partition."""
    rejects_partitions: int = 1
    replication_factor: int = 1
    min_insync_replicas: int = 1
    delete_retention_s: float = 7 * 86_400.0
    """How long readers can see a tombstone. Must be longer than any reader or replica is ever down."""
    min_compaction_lag_s: float = 86_400.0
    """How long ledger.events keeps every record. The archive must copy it within this time."""
    recovery_min_compaction_lag_s: float = 3_600.0
    """How long ledger.recovery keeps every record. Must be longer than the longest failover: otherwise log compaction
    may remove the correct record before the new leader has overwritten the record of a stale leader."""
    max_message_bytes: int = 1_048_576
    rejects_retention_s: float = 30 * 86_400.0
    leaders: bool = False
    """Whether Kafka elects the leaders. Then there is a topic of one partition for the elections; it holds no
    records."""
    anchors: bool = False
    """Whether there is an archive. Then there is a topic of one partition for its anchors."""
    extra: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Further settings by topic name without prefix, e.g. {"ledger.events": {"segment.ms": "1000"}}. They override the
    others."""

    def __post_init__(self) -> None:
        """Checks the sizes and the topics that `extra` names. Raises: ConfigError."""
        if min(self.partitions, self.rejects_partitions, self.replication_factor, self.min_insync_replicas) < 1:
            raise ConfigError("Partitions, replication_factor and min_insync_replicas must be at least 1.")
        if self.min_insync_replicas > self.replication_factor:
            raise ConfigError(
                f"min_insync_replicas ({self.min_insync_replicas}) is more than replication_factor "
                f"({self.replication_factor}): every write would fail."
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
