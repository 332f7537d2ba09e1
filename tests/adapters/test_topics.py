"""The topics: their required settings, and that each deviation is found together with the command that corrects it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, ResourceType

from ledger.adapters.kafka.topics import (
    CREATE,
    FEW_BROKERS,
    RULES,
    Problem,
    TopicSettings,
    check_topics,
    create_topics,
    require_topics,
    specs,
    topic_ids,
)
from ledger.errors import ConfigError, Unreachable
from tests.support.waiting import in_time

# -- without a broker --------------------------------------------------------------------------------------------------


def test_events_and_recovery_are_compacted_and_have_the_same_partitions() -> None:
    events, recovery, rejects = specs(TopicSettings(prefix="p.", partitions=24))
    assert [s.name for s in (events, recovery, rejects)] == ["p.ledger.events", "p.ledger.recovery", "p.ledger.rejects"]
    assert (events.partitions, recovery.partitions, rejects.partitions) == (24, 24, 1)
    assert events.config["cleanup.policy"] == recovery.config["cleanup.policy"] == "compact"
    assert rejects.config["cleanup.policy"] == "compact,delete"
    assert events.config["min.compaction.lag.ms"] == "86400000"
    assert recovery.config["min.compaction.lag.ms"] == "3600000"
    assert rejects.config["retention.ms"] == "2592000000"


def test_with_an_archive_there_is_a_compacted_topic_of_one_partition_for_anchors() -> None:
    *_, anchors = specs(TopicSettings(prefix="p.", partitions=24, anchors=True))
    assert (anchors.name, anchors.partitions, anchors.config["cleanup.policy"]) == ("p.ledger.anchors", 1, "compact")
    assert anchors.config["min.compaction.lag.ms"] == "86400000"
    assert len(specs(TopicSettings())) == 3


def test_every_setting_has_a_rule_with_a_reason() -> None:
    for spec in specs(TopicSettings(anchors=True, leaders=True)):
        assert set(spec.config) <= set(RULES)
    assert all(why for _, why in RULES.values())


def test_extra_settings_win() -> None:
    settings = TopicSettings(extra={"ledger.events": {"segment.ms": "1000", "min.compaction.lag.ms": "0"}})
    events, recovery, _ = specs(settings)
    assert (events.config["segment.ms"], events.config["min.compaction.lag.ms"]) == ("1000", "0")
    assert "segment.ms" not in recovery.config


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": 0},
        {"replication_factor": 0},
        {"replication_factor": 2, "min_insync_replicas": 3},
        {"extra": {"events": {}}},
    ],
)
def test_settings_that_can_not_be_are_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError):
        TopicSettings(**wrong)


@pytest.mark.parametrize(
    ("setting", "found", "wanted", "holds"),
    [
        ("cleanup.policy", "compact", "compact", True),
        ("cleanup.policy", "delete", "compact", False),
        ("cleanup.policy", "compact,delete", "compact", False),
        ("cleanup.policy", "delete,compact", "compact,delete", True),
        ("delete.retention.ms", "604800000", "604800000", True),
        ("delete.retention.ms", "604799999", "604800000", False),
        ("delete.retention.ms", "704800000", "604800000", True),
        ("retention.ms", "-1", "5", True),
        ("retention.ms", "5", "-1", False),
        ("max.message.bytes", "", "5", False),
        ("message.timestamp.type", "CreateTime", "LogAppendTime", False),
        ("unclean.leader.election.enable", "true", "false", False),
        ("segment.ms", "3600000", "3600000", True),
        ("segment.ms", "3600001", "3600000", False),
        ("segment.ms", "", "3600000", False),
    ],
)
def test_rules(setting: str, found: str, wanted: str, holds: bool) -> None:
    assert RULES[setting][0](found, wanted) is holds


# -- with a broker -----------------------------------------------------------------------------------------------------

WRONG = [
    ("ledger.events", "cleanup.policy", "delete"),
    ("ledger.recovery", "cleanup.policy", "compact,delete"),
    ("ledger.rejects", "cleanup.policy", "compact"),
    ("ledger.events", "message.timestamp.type", "CreateTime"),
    ("ledger.events", "delete.retention.ms", "1000"),
    ("ledger.recovery", "min.compaction.lag.ms", "0"),
    ("ledger.events", "min.compaction.lag.ms", "3600000"),
    ("ledger.recovery", "min.insync.replicas", "1"),
    ("ledger.events", "max.message.bytes", "100000"),
    ("ledger.recovery", "unclean.leader.election.enable", "true"),
    ("ledger.rejects", "retention.ms", "86400000"),
    ("ledger.anchors", "cleanup.policy", "compact,delete"),
    ("ledger.anchors", "segment.ms", "604800000"),
]


@pytest.fixture
def settings(prefix: str) -> TopicSettings:
    return TopicSettings(prefix=prefix, partitions=2)


@pytest.fixture
def client(bootstrap: str) -> dict[str, str | int]:
    return {"bootstrap.servers": bootstrap}


def test_what_create_makes_is_right_and_making_it_twice_changes_nothing(client: dict, settings: TopicSettings) -> None:
    assert {problem.mend for problem in check_topics(client, settings)} == {CREATE}
    assert sorted(create_topics(client, settings)) == [settings.events, settings.recovery, settings.rejects]
    assert create_topics(client, settings) == []
    assert check_topics(client, settings) == []
    require_topics(client, settings)


@pytest.mark.parametrize(("topic", "setting", "value"), WRONG)
def test_each_wrong_setting_is_found_and_what_it_says_mends_it(
    client: dict, settings: TopicSettings, topic: str, setting: str, value: str
) -> None:
    settings = replace(settings, anchors=topic == "ledger.anchors")
    create_topics(client, settings)
    if setting == "min.insync.replicas":  # with one replica the setting can't be wrong, so two replicas are wanted
        settings = _more_replicas_wanted(settings)
        problems = [p for p in check_topics(client, settings) if (p.topic, p.setting) == (settings.prefix + topic, setting)]
        assert [(p.found, p.wanted) for p in problems] == [("1", "2")]
        assert problems[0].mend.endswith("--add-config min.insync.replicas=2")
        return
    _alter(client, settings.prefix + topic, setting, value)

    (problem,) = _problems(client, settings, 1)

    assert (problem.topic, problem.setting, problem.found) == (settings.prefix + topic, setting, value)
    assert problem.why
    with pytest.raises(ConfigError, match=setting):
        require_topics(client, settings)
    _mend(client, problem)
    assert _problems(client, settings, 0) == []


def test_too_few_replicas_are_found(client: dict, settings: TopicSettings) -> None:
    create_topics(client, settings)
    problems = check_topics(client, _more_replicas_wanted(settings))
    replicas = [p for p in problems if p.setting == "replicas"]
    assert [(p.found, p.wanted) for p in replicas] == [("1", "2")] * 3
    assert all("kafka-reassign-partitions.sh" in p.mend for p in replicas)


def test_more_copies_than_there_are_brokers_are_refused_with_the_settings_to_change(
    client: dict, settings: TopicSettings
) -> None:
    wanted = _more_replicas_wanted(settings)
    with pytest.raises(ConfigError, match="fewer than 2 brokers") as refused:
        create_topics(client, wanted)
    assert refused.value.hint == FEW_BROKERS
    create_topics(client, settings)
    assert all(FEW_BROKERS in p.mend for p in check_topics(client, wanted) if p.setting == "replicas")


def test_another_partition_count_is_found_and_nothing_mends_it(client: dict, settings: TopicSettings) -> None:
    create_topics(client, settings)
    admin = AdminClient(client)
    admin.create_partitions([NewPartitions(settings.recovery, 3)])[settings.recovery].result(60)
    (problem,) = _problems(client, settings, 1)
    assert (problem.topic, problem.setting, problem.found, problem.wanted) == (settings.recovery, "partitions", "3", "2")
    assert "no command can" in problem.mend


def test_a_missing_topic_is_found(client: dict, settings: TopicSettings) -> None:
    create_topics(client, settings)
    admin = AdminClient(client)
    admin.delete_topics([settings.recovery], operation_timeout=10)[settings.recovery].result(60)
    (problem,) = _problems(client, settings, 1)
    assert (problem.topic, problem.found, problem.mend) == (settings.recovery, "missing", CREATE)
    assert create_topics(client, settings) == [settings.recovery]


def test_all_problems_are_told_at_once(client: dict, settings: TopicSettings) -> None:
    create_topics(client, settings)
    _alter(client, settings.events, "cleanup.policy", "delete")
    _alter(client, settings.recovery, "message.timestamp.type", "CreateTime")
    _problems(client, settings, 2)
    with pytest.raises(ConfigError) as told:
        require_topics(client, settings)
    assert settings.events in str(told.value)
    assert settings.recovery in str(told.value)


def test_a_topic_made_anew_has_another_id(client: dict, settings: TopicSettings) -> None:
    create_topics(client, settings)
    before = topic_ids(client, settings)
    assert set(before) == {settings.events, settings.recovery, settings.rejects}
    admin = AdminClient(client)
    admin.delete_topics([settings.events], operation_timeout=10)[settings.events].result(60)
    _problems(client, settings, 1)
    with pytest.raises(ConfigError, match=settings.events):
        topic_ids(client, settings)
    create_topics(client, settings)
    after = topic_ids(client, settings)
    assert {topic for topic in before if before[topic] != after[topic]} == {settings.events}


def test_extra_settings_are_made_and_checked(client: dict, settings: TopicSettings) -> None:
    settings = replace(settings, extra={"ledger.events": {"segment.ms": "1000", "min.compaction.lag.ms": "0"}})
    create_topics(client, settings)
    assert check_topics(client, settings) == []
    _alter(client, settings.events, "segment.ms", "2000")
    assert [p.setting for p in _problems(client, settings, 1)] == ["segment.ms"]


@pytest.mark.slow
def test_no_broker_is_no_problem_of_the_topics() -> None:
    nobody = {"bootstrap.servers": "127.0.0.1:1", "socket.connection.setup.timeout.ms": 1000}
    with pytest.raises(Unreachable):
        check_topics(nobody, TopicSettings(), timeout_s=1.0)


@pytest.mark.parametrize("ask", [create_topics, check_topics, require_topics])
def test_how_long_an_answer_may_take_is_as_asked(ask: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    def cluster(_: object, timeout_s: float = 10.0) -> None:
        told.append(timeout_s)
        raise Unreachable("nobody answers")

    monkeypatch.setattr("ledger.adapters.kafka.topics.Cluster", cluster)
    with pytest.raises(Unreachable):
        ask({}, TopicSettings(), timeout_s=61.0)
    assert told == [61.0]


def _problems(client: dict, settings: TopicSettings, count: int) -> list[Problem]:
    """The problems, once there are `count`: brokers learn of a change a moment after it was acknowledged."""
    deadline = time.monotonic() + 60
    while len(problems := check_topics(client, settings)) != count:
        in_time(time.monotonic() < deadline, f"not within 60 s: {count} problems, but {problems}")
        time.sleep(0.05)
    return problems


def _more_replicas_wanted(settings: TopicSettings) -> TopicSettings:
    return replace(settings, replication_factor=2, min_insync_replicas=2)


def _alter(client: dict, topic: str, setting: str, value: str) -> None:
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient(client)
    admin.incremental_alter_configs([resource])[resource].result(60)


def _mend(client: dict, problem: Problem) -> None:
    """Does what kafka-configs.sh does with these arguments."""
    command, *words = problem.mend.split()
    assert command == "kafka-configs.sh"
    words.remove("--alter")
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert options["--bootstrap-server"] == client["bootstrap.servers"]
    assert options["--entity-type"] == "topics"
    setting, _, value = options["--add-config"].partition("=")
    _alter(client, options["--entity-name"], setting, value.strip("[]"))
