"""The topics: what they must be like, making them, and finding what is not so.

Every setting here carries a promise: a topic that is merely "about right" loses jobs months later. So roles call
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

#: Of the topic of anchors: an older one that was written over a newer one stays beside it so long, and no record lies
#: longer than this in a segment that is still open, which no cleaner takes.
_ANCHORS_LAG_S, _ANCHORS_SEGMENT_S = 86_400.0, 3_600.0
CREATE = "jobledger topics create"
FEW_BROKERS = (
    "Set topics.replication_factor and topics.min_insync_replicas (LEDGER_TOPICS__REPLICATION_FACTOR, "
    "LEDGER_TOPICS__MIN_INSYNC_REPLICAS) to what the cluster has, alike for every command and role."
)
#: What a topic is like while it is restored. No other topic is all of it: one made by hand keeps its records for a week.
RESTORING = {
    "message.timestamp.type": "CreateTime", "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1",
}  # fmt: skip
Client = Mapping[str, str | int]


class Problem(NamedTuple):
    """One thing that is not as it must be. mend: the exact command that mends it, or what to do if none can."""

    topic: str
    setting: str
    found: str
    wanted: str
    why: str
    mend: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.setting} is {self.found}, wanted {self.wanted}: {self.why}. Mend: {self.mend}"


class TopicSpec(NamedTuple):
    name: str
    partitions: int
    config: Mapping[str, str]


def specs(settings: TopicSettings) -> list[TopicSpec]:
    """The topics with every setting that matters: three, the one of the elections where Kafka holds them, and the one of
    anchors where there is an archive."""
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
    """Makes those that are missing; their names. Idempotent; what exists is not changed (check_topics).
    timeout_s: per question.

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
    """Everything that is not as it must be, [] if all is well. timeout_s: per question. Raises: Unreachable."""
    cluster = Cluster(client, timeout_s)
    problems = []
    wanted = specs(settings)
    shapes = cluster.shapes([spec.name for spec in wanted])
    for spec in wanted:
        shape = shapes[spec.name]
        if shape is None:
            problems.append(Problem(spec.name, "topic", "missing", "there", "the ledger lives in it", CREATE))
            continue
        if shape.partitions != spec.partitions:
            problems.append(_partitions(spec, shape.partitions))
        if shape.replicas < settings.replication_factor:
            problems.append(_replicas(spec, shape.replicas, settings.replication_factor, cluster.bootstrap))
        found = cluster.config(spec.name)
        if is_restoring(found):
            why = "it was broken off or is under way, and what lies there is not whole"
            problems.append(Problem(spec.name, "restore", "not done", "done", why, "jobledger archive restore"))
        else:
            problems += _settings(spec, found, cluster.bootstrap)
    return problems


def is_restoring(config: Mapping[str, str]) -> bool:
    """Whether a topic of these settings is being restored (decision 30)."""
    return all(config.get(name) == value for name, value in RESTORING.items())


def require_topics(client: Client, settings: TopicSettings, *, timeout_s: float = 10.0) -> None:
    """timeout_s: per question. Raises: ConfigError that lists every problem; Unreachable."""
    if problems := check_topics(client, settings, timeout_s=timeout_s):
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise ConfigError(f"The topics are not as they must be:\n{listed}", hint="Mend them, then: jobledger topics check")


def topic_ids(client: Client, settings: TopicSettings) -> dict[str, str]:
    """Topic -> its id, a new one for every topic ever made, also under an old name. Raises: ConfigError, Unreachable."""
    names = [spec.name for spec in specs(settings)]
    return {topic: shape.id for topic, shape in Cluster(client).shape(names).items()}


def _wait_until_seen(cluster: Cluster, names: Sequence[str]) -> None:
    """A controller has made a topic some moments before every broker has heard of it, and some more pass until each
    partition has a leader that knows it is one."""
    deadline = time.monotonic() + cluster.timeout_s
    while not _led(cluster, names):
        if time.monotonic() >= deadline:
            raise Unreachable(f"The topics were made, but {cluster.bootstrap} has not heard of them yet.")
        time.sleep(0.05)


def _led(cluster: Cluster, names: Sequence[str]) -> bool:
    shapes = cluster.shapes(names)
    places = [(name, p) for name, shape in shapes.items() if shape is not None for p in range(shape.partitions)]
    if None in shapes.values():
        return False
    try:
        cluster.ends(places)
    except (Unreachable, Unheard):
        return False
    return True


# -- judging -----------------------------------------------------------------------------------------------------------


def _same(found: str, wanted: str) -> bool:
    return found == wanted


def _same_set(found: str, wanted: str) -> bool:
    return {word.strip() for word in found.split(",")} == {word.strip() for word in wanted.split(",")}


def _at_least(found: str, wanted: str) -> bool:
    """-1 means without limit."""
    return found == "-1" or (wanted != "-1" and _is_number(found) and int(found) >= int(wanted))


def _at_most(found: str, wanted: str) -> bool:
    return _is_number(found) and 0 <= int(found) <= int(wanted)


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()


#: setting -> how what is found is judged, and why it matters.
RULES: Mapping[str, tuple[Callable[[str, str], bool], str]] = {
    "cleanup.policy": (_same_set, "of facts, `delete` would remove the only copy of a live one; rejects go by age"),
    "message.timestamp.type": (_same, "as-of and audit windows are by the broker's clock, and segments roll by it"),
    "delete.retention.ms": (_at_least, "a reader or replica that was away longer misses tombstones"),
    "min.compaction.lag.ms": (_at_least, "records must stay until the archive, or a new leader, has seen them"),
    "min.insync.replicas": (_at_least, "an acknowledged fact must outlive the loss of a broker"),
    "max.message.bytes": (_at_least, "facts up to this size are promised to be taken"),
    "unclean.leader.election.enable": (_same, "an unclean leader loses acknowledged facts and breaks transactions"),
    "retention.ms": (_at_least, "rejects are evidence"),
    "segment.ms": (_at_most, "what is superseded goes only from segments that are closed, and all of it is read each time"),
}


def _settings(spec: TopicSpec, found: Mapping[str, str], bootstrap: str) -> list[Problem]:
    problems = []
    for setting, wanted in spec.config.items():
        holds, why = RULES.get(setting, (_same, "it is set so in this ledger's configuration"))
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
        why = "whoever is assigned its partition 0 leads, and with more of them candidates would share what is no work"
        mend = f"stop the roles, delete the topic (nothing is in it), then: {CREATE}"
        return Problem(spec.name, "partitions", str(found), str(spec.partitions), why, mend)
    if spec.name.endswith(ANCHORS):
        why = "an anchor takes the place of the one before it only within a partition"
        mend = f"keep what is anchored (jobledger audit anchor --to FILE), delete the topic, then: {CREATE}"
        return Problem(spec.name, "partitions", str(found), str(spec.partitions), why, mend)
    why = "the job id decides the partition, so with another count every job would be looked for in the wrong place"
    mend = (
        f"no command can: either set partitions = {found} in the configuration (if the topic was always so, and events "
        f"and recovery have the same count), or make the topics anew from the archive: jobledger archive restore"
    )
    return Problem(spec.name, "partitions", str(found), str(spec.partitions), why, mend)


def _replicas(spec: TopicSpec, found: int, wanted: int, bootstrap: str) -> Problem:
    why = "an acknowledged fact must outlive the loss of a broker"
    mend = (
        f"kafka-reassign-partitions.sh --bootstrap-server {bootstrap} --execute --reassignment-json-file PLAN.json, "
        f"where PLAN.json lists {wanted} brokers for each partition of {spec.name}. A cluster that has fewer: {FEW_BROKERS}"
    )
    return Problem(spec.name, "replicas", str(found), str(wanted), why, mend)


def _ms(seconds: float) -> str:
    return str(round(seconds * 1000))
