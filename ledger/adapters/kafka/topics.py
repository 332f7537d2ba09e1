"""The topics of a ledger: their required settings, their creation, and checks for deviations.

A guarantee depends on every setting here: a topic that is only almost right loses jobs months later. So roles call
`require_topics` before they start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from ledger.adapters.kafka.cluster import Cluster, Unheard
from ledger.adapters.kafka.errors import error_of
from ledger.config.topics import ANCHORS, EVENTS, LEADERS, RECOVERY, REJECTS, TopicSettings
from ledger.errors import ConfigError, Unreachable

#: The topic of anchors. LAG: how long log compaction keeps an anchor beside one that superseded it, as evidence if an
#: older anchor was written over a newer one. SEGMENT: the most that a record stays in the active segment, which is
#: never compacted.
_ANCHORS_LAG_S, _ANCHORS_SEGMENT_S = 86_400.0, 3_600.0
CREATE = "jobledger topics create"
FEW_BROKERS = (
    "Set topics.replication_factor and topics.min_insync_replicas (LEDGER_TOPICS__REPLICATION_FACTOR, "
    "LEDGER_TOPICS__MIN_INSYNC_REPLICAS) to numbers that the cluster can provide, the same for every command and role."
)
#: The settings of a topic that is being restored. No other topic has all four: one created by hand with `delete` keeps
#: its records for a week.
RESTORING = {
    "message.timestamp.type": "CreateTime", "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1",
}  # fmt: skip
Client = Mapping[str, str | int]


class Problem(NamedTuple):
    """One deviation of a topic from its required settings. found, wanted: the values of the setting. why: why the
    deviation matters. mend: the exact command that corrects it, or instructions if no command can."""

    topic: str
    setting: str
    found: str
    wanted: str
    why: str
    mend: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.setting} is {self.found}, must be {self.wanted}: {self.why}. To correct: {self.mend}"


class TopicSpec(NamedTuple):
    name: str
    partitions: int
    config: Mapping[str, str]


def specs(settings: TopicSettings) -> list[TopicSpec]:
    """The topics with all their required settings: events, recovery and rejects; the topic of leaders if Kafka elects
    leaders; the topic of anchors if the ledger has an archive."""
    common = {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "delete.retention.ms": _ms(settings.delete_retention_s),
        "min.insync.replicas": str(settings.min_insync_replicas),
        "max.message.bytes": str(settings.max_message_bytes),
        "unclean.leader.election.enable": "false",
    }
    events = {**common, "min.compaction.lag.ms": _ms(settings.min_compaction_lag_s)}
    recovery = {**common, "min.compaction.lag.ms": _ms(settings.recovery_min_compaction_lag_s)}
    rejects = {**common, "cleanup.policy": "compact,delete", "retention.ms": _ms(settings.rejects_retention_s)}
    leaders = [(LEADERS, 1, {"cleanup.policy": "compact"})] if settings.leaders else []
    lasting = {"min.compaction.lag.ms": _ms(_ANCHORS_LAG_S), "segment.ms": _ms(_ANCHORS_SEGMENT_S)}
    anchors = [(ANCHORS, 1, {**common, **lasting})] if settings.anchors else []
    return [
        TopicSpec(settings.prefix + name, partitions, {**config, **settings.extra.get(name, {})})
        for name, partitions, config in (
            (EVENTS, settings.partitions, events),
            (RECOVERY, settings.partitions, recovery),
            (REJECTS, settings.rejects_partitions, rejects),
            *leaders,
            *anchors,
        )
    ]


def create_topics(client: Client, settings: TopicSettings, *, timeout_s: float = 10.0) -> list[str]:
    """Creates the missing topics and returns their names. Idempotent. Existing topics are not changed (see
    check_topics). timeout_s: per query.

    Raises: Unreachable; ConfigError if the cluster refuses.
    """
    cluster = Cluster(client, timeout_s)
    new = [
        NewTopic(spec.name, spec.partitions, settings.replication_factor, config=dict(spec.config))
        for spec in specs(settings)
    ]
    made = []
    for topic, future in cluster.admin.create_topics(new, request_timeout=cluster.timeout_s).items():
        try:
            future.result(cluster.timeout_s + 1.0)
            made.append(topic)
        except KafkaException as exception:
            if error_of(exception).code() == KafkaError.INVALID_REPLICATION_FACTOR:
                raise ConfigError(
                    f"Kafka at {cluster.bootstrap} has fewer than {settings.replication_factor} brokers, so it can't keep "
                    f"{settings.replication_factor} copies of {topic}.", hint=FEW_BROKERS,
                ) from exception  # fmt: skip
            if error_of(exception).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                cluster.answer(future)
    _wait_until_seen(cluster, [spec.name for spec in specs(settings)])
    return made


def check_topics(client: Client, settings: TopicSettings, *, timeout_s: float = 10.0) -> list[Problem]:
    """All deviations of the topics from their required settings; [] = none. timeout_s: per query. Raises: Unreachable,
    ConfigError."""
    cluster = Cluster(client, timeout_s)
    problems = []
    wanted = specs(settings)
    shapes = cluster.shapes([spec.name for spec in wanted])
    for spec in wanted:
        shape = shapes[spec.name]
        if shape is None:
            problems.append(Problem(spec.name, "topic", "missing", "there", "the ledger needs it", CREATE))
            continue
        if shape.partitions != spec.partitions:
            problems.append(_partitions(spec, shape.partitions))
        if shape.replicas < settings.replication_factor:
            problems.append(_replicas(spec, shape.replicas, settings.replication_factor, cluster.bootstrap))
        found = cluster.config(spec.name)
        if is_restoring(found):
            why = "a restore into it is running or was interrupted, so its records are incomplete"
            problems.append(Problem(spec.name, "restore", "not done", "done", why, "jobledger archive restore"))
        else:
            problems += _settings(spec, found, cluster.bootstrap)
    return problems


def is_restoring(config: Mapping[str, str]) -> bool:
    """Whether a topic with these settings is being restored (decision 30)."""
    return all(config.get(name) == value for name, value in RESTORING.items())


def require_topics(client: Client, settings: TopicSettings, *, timeout_s: float = 10.0) -> None:
    """Checks the topics. timeout_s: per query. Raises: ConfigError that lists every deviation; Unreachable."""
    if problems := check_topics(client, settings, timeout_s=timeout_s):
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise ConfigError(
            f"The topics are not as they must be:\n{listed}", hint="Correct them, then run: jobledger topics check"
        )


def topic_ids(client: Client, settings: TopicSettings) -> dict[str, str]:
    """Topic -> its id. A topic that was deleted and created again has another id. Raises: ConfigError, Unreachable."""
    names = [spec.name for spec in specs(settings)]
    return {topic: shape.id for topic, shape in Cluster(client).shape(names).items()}


def _wait_until_seen(cluster: Cluster, names: Sequence[str]) -> None:
    """Waits until every partition of the topics has a leader. The controller creates a topic some moments before all
    brokers know it, and before each partition's leader knows that it leads.

    Raises: Unreachable after the cluster's time limit."""
    deadline = time.monotonic() + cluster.timeout_s
    while not _led(cluster, names):
        if time.monotonic() >= deadline:
            raise Unreachable(f"The topics were created, but {cluster.bootstrap} does not know all of them yet.")
        time.sleep(0.05)


def _led(cluster: Cluster, names: Sequence[str]) -> bool:
    shapes = cluster.shapes(names)
    tps = [(name, p) for name, shape in shapes.items() if shape is not None for p in range(shape.partitions)]
    if None in shapes.values():
        return False
    try:
        cluster.ends(tps)
    except (Unreachable, Unheard):
        return False
    return True


# -- judging -----------------------------------------------------------------------------------------------------------


def _same(found: str, wanted: str) -> bool:
    return found == wanted


def _same_set(found: str, wanted: str) -> bool:
    return {word.strip() for word in found.split(",")} == {word.strip() for word in wanted.split(",")}


def _at_least(found: str, wanted: str) -> bool:
    """Whether found is at least wanted; -1 means without limit."""
    return found == "-1" or (wanted != "-1" and _is_number(found) and int(found) >= int(wanted))


def _at_most(found: str, wanted: str) -> bool:
    return _is_number(found) and 0 <= int(found) <= int(wanted)


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()


#: setting -> (the test of the found value against the required one, the reason for the requirement)
RULES: Mapping[str, tuple[Callable[[str, str], bool], str]] = {
    "cleanup.policy": (_same_set, "`delete` would remove the only copy of a live fact; only rejects expire by age"),
    "message.timestamp.type": (_same, "as-of, audit windows and segment rolling use the broker's clock"),
    "delete.retention.ms": (_at_least, "a reader or replica that was down for longer misses tombstones"),
    "min.compaction.lag.ms": (_at_least, "records must stay until the archiver, or a new leader, has read them"),
    "min.insync.replicas": (_at_least, "an acknowledged fact must outlive the loss of a broker"),
    "max.message.bytes": (_at_least, "the ledger guarantees that facts up to this size are accepted"),
    "unclean.leader.election.enable": (_same, "an unclean leader loses acknowledged facts and breaks transactions"),
    "retention.ms": (_at_least, "rejects are evidence"),
    "segment.ms": (_at_most, "log compaction skips the active segment, and readers of this topic read every record"),
}


def _settings(spec: TopicSpec, found: Mapping[str, str], bootstrap: str) -> list[Problem]:
    problems = []
    for setting, wanted in spec.config.items():
        holds, why = RULES.get(setting, (_same, "this ledger's configuration sets it"))
        if not holds(found.get(setting, ""), wanted):
            value = f"[{wanted}]" if "," in wanted else wanted
            mend = (
                f"kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics "
                f"--entity-name {spec.name} --add-config {setting}={value}"
            )
            problems.append(Problem(spec.name, setting, found.get(setting, "unknown"), wanted, why, mend))
    return problems


def _partitions(spec: TopicSpec, found: int) -> Problem:
    if spec.name.endswith(LEADERS):
        why = "the candidate with partition 0 leads, so with more partitions a candidate might be assigned only others"
        mend = f"stop the roles, delete the topic (it has no records), then: {CREATE}"
        return Problem(spec.name, "partitions", str(found), str(spec.partitions), why, mend)
    if spec.name.endswith(ANCHORS):
        why = "an anchor supersedes the previous one only in the same partition"
        mend = f"save the anchors (jobledger audit anchor --to FILE), delete the topic, then: {CREATE}"
        return Problem(spec.name, "partitions", str(found), str(spec.partitions), why, mend)
    why = "the job id determines the partition, so with another count readers search jobs in wrong partitions"
    mend = (
        f"no command can: either set partitions = {found} in the configuration (if the topic always had that count, and "
        f"events and recovery have the same), or create the topics again from the archive: jobledger archive restore"
    )
    return Problem(spec.name, "partitions", str(found), str(spec.partitions), why, mend)


def _replicas(spec: TopicSpec, found: int, wanted: int, bootstrap: str) -> Problem:
    why = "an acknowledged fact must outlive the loss of a broker"
    mend = (
        f"kafka-reassign-partitions.sh --bootstrap-server {bootstrap} --execute --reassignment-json-file PLAN.json, "
        f"where PLAN.json lists {wanted} brokers for each partition of {spec.name}. With fewer brokers: {FEW_BROKERS}"
    )
    return Problem(spec.name, "replicas", str(found), str(wanted), why, mend)


def _ms(seconds: float) -> str:
    return str(round(seconds * 1000))
