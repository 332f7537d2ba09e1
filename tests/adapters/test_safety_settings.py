"""The settings that a Kafka client is made with: settings needed for safety override all settings of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ledger.adapters.kafka import reader, restore_target, sender, writer
from ledger.adapters.kafka.restore_target import KafkaTarget
from ledger.adapters.kafka.sender import KafkaSender
from ledger.adapters.kafka.topics import TopicSettings, specs
from ledger.adapters.kafka.writer import TRANSACTION_TIMEOUT_MS, KafkaWriter
from ledger.adapters.memory.clock import ManualClock
from ledger.ports import MemoryRecord

#: Settings of a user, all of them unsafe.
USERS: dict[str, str | int] = {
    "bootstrap.servers": "127.0.0.1:1", "enable.idempotence": "false", "acks": "0", "message.timeout.ms": 1,
    "transactional.id": "another", "transaction.timeout.ms": 1, "linger.ms": 77,
}  # fmt: skip


class Made(Exception):
    """A fake client constructor raises it."""


def settings_of(monkeypatch: pytest.MonkeyPatch, module: Any, make: Callable[[], object]) -> dict[str, Any]:
    """The settings that the client is made with."""
    seen: dict[str, Any] = {}

    def made(kind: object, settings: Mapping[str, Any], logger: object) -> None:
        seen.update(settings)
        raise Made

    monkeypatch.setattr(module, "made", made)
    with pytest.raises(Made):
        make()
    return seen


def test_a_writer_is_idempotent_waits_for_all_replicas_and_ends_its_transactions_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = settings_of(monkeypatch, writer, KafkaWriter(USERS, "reconciler", ManualClock()).init)
    needed = {
        "enable.idempotence": "true", "acks": "all", "transactional.id": "reconciler",
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "log.connection.close": "true", "log_level": 6,
    }  # fmt: skip
    assert {name: found[name] for name in needed} == needed
    assert (found["linger.ms"], found["message.max.bytes"]) == (77, 1_048_576), "the user's setting, or else the default"


def test_a_sender_is_idempotent_and_waits_for_all_replicas_for_as_long_as_it_was_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = settings_of(monkeypatch, sender, lambda: KafkaSender(USERS, ManualClock(), timeout_s=2.5))
    needed = {"enable.idempotence": "true", "acks": "all", "message.timeout.ms": 2500}
    assert {name: found[name] for name in needed} == needed
    assert found["linger.ms"] == 77


def test_a_restore_is_idempotent_and_waits_for_all_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore_target, "Cluster", lambda _: None)
    target = KafkaTarget(USERS, TopicSettings(max_message_bytes=500), timeout_s=3)
    found = settings_of(monkeypatch, restore_target, lambda: target.write(MemoryRecord("t", 0, 0, b"k", b"v")))
    needed = {"enable.idempotence": "true", "acks": "all", "message.timeout.ms": 3000, "message.max.bytes": 1000}
    assert {name: found[name] for name in needed} == needed


def test_a_reader_sees_what_is_committed_alone_and_never_jumps() -> None:
    assert reader._SAFETY == {
        "isolation.level": "read_committed", "enable.partition.eof": "true", "enable.auto.commit": "false",
        "enable.auto.offset.store": "false", "auto.offset.reset": "error", "allow.auto.create.topics": "false",
        "max.poll.interval.ms": 86_400_000,
    }  # fmt: skip


def test_every_setting_of_every_topic() -> None:
    settings = TopicSettings(
        replication_factor=3, min_insync_replicas=2, delete_retention_s=1, min_compaction_lag_s=2,
        recovery_min_compaction_lag_s=3, rejects_retention_s=4, max_message_bytes=5, leaders=True, anchors=True,
    )  # fmt: skip
    common = {
        "cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime", "delete.retention.ms": "1000",
        "min.insync.replicas": "2", "max.message.bytes": "5", "unclean.leader.election.enable": "false",
    }  # fmt: skip
    assert {spec.name: spec.config for spec in specs(settings)} == {
        "ledger.events": {**common, "min.compaction.lag.ms": "2000"},
        "ledger.recovery": {**common, "min.compaction.lag.ms": "3000"},
        "ledger.rejects": {**common, "cleanup.policy": "compact,delete", "retention.ms": "4000"},
        "ledger.leaders": {"cleanup.policy": "compact"},
        "ledger.anchors": {**common, "min.compaction.lag.ms": "86400000", "segment.ms": "3600000"},
    }
