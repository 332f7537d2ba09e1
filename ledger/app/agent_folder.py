"""Checks and records which ledger owns the agent's folder of this host: two ledgers must not share such a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.adapters.runners.subprocess.sender import KafkaEventSender
    from ledger.app.ledger import Ledger


def agent_sender(ledger: Ledger) -> KafkaEventSender:
    """The sender of the runner agent's facts. Raises: ConfigError if no setting names a Kafka; Unreachable."""
    from ledger.adapters.runners.subprocess.sender import KafkaEventSender

    config = ledger.config
    topic = config.topics.events
    partitions = ledger.event_log.partitions(topic)
    return KafkaEventSender(topic, partitions, config.client(), timeout_s=config.agent.send_timeout_s)


def require_agent_folder(ledger: Ledger) -> None:
    """Checks that the agent's folder of this host may be used by this ledger. Raises: ConfigError if the folder holds
    jobs of another ledger."""
    from ledger.adapters.runners.subprocess.owner import require_own

    require_own(ledger.config.agent_folder, ledger.config.topics.events, _events_id(ledger))


def claim_agent_folder(ledger: Ledger) -> None:
    """Checks the agent's folder as `require_agent_folder`, then records that this ledger owns the folder."""
    from ledger.adapters.runners.subprocess.owner import record

    require_agent_folder(ledger)
    record(ledger.config.agent_folder, ledger.config.topics.events, _events_id(ledger))


def adopt_agent_folder(ledger: Ledger) -> None:
    """Records, after a restore of the topics, that this ledger owns the agent's folder of this host, if it exists."""
    from ledger.adapters.runners.subprocess.owner import record

    if ledger.config.agent_folder.is_dir():
        record(ledger.config.agent_folder, ledger.config.topics.events, _events_id(ledger))


def _events_id(ledger: Ledger) -> str:
    topic = ledger.config.topics.events
    return ledger.event_log.topic_ids([topic])[topic]
