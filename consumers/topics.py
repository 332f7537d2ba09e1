"""The topics of the audit consumer. Only the subcommand `topics` creates them."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from consumers.settings import BadSetting, Settings

TIMEOUT_S = 30.0
COMMAND = "python -m consumers.audit topics"
#: Largest record of these topics, in bytes. A reject holds a whole record of the ledger (1 MiB) and headers about it.
RECORD_BYTES_MAX = 2 << 20
_COMMON = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(RECORD_BYTES_MAX)}


def create(settings: Settings) -> list[str]:
    """Creates the missing topics and returns their names. They are compacted: the key of a finding is its id, the key
    of a reject its position, so each is kept once.

    Raises: BadSetting if Kafka refuses or does not answer."""
    in_sync = str(min(2, settings.replication_factor))
    config = {**_COMMON, "cleanup.policy": "compact", "min.insync.replicas": in_sync}
    new = [NewTopic(name, 1, settings.replication_factor, config=config) for name in (settings.findings, settings.rejects)]
    made = []
    # In a variable, because its deletion would abort the requests.
    client = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    for name, future in client.create_topics(new, operation_timeout=TIMEOUT_S).items():
        try:
            future.result(TIMEOUT_S)
            made.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise BadSetting(
                    f"The topic {name} can't be created at {settings.bootstrap_servers}: {error.args[0].str()}. "
                    f"AUDIT_REPLICATION_FACTOR is {settings.replication_factor}."
                ) from error
    return made


def require(settings: Settings) -> None:
    """Checks that all topics exist. Raises: BadSetting that names the missing topics and what to do."""
    try:
        there = AdminClient({"bootstrap.servers": settings.bootstrap_servers}).list_topics(timeout=TIMEOUT_S).topics
    except KafkaException as error:
        raise BadSetting(
            f"No answer from Kafka at {settings.bootstrap_servers}: {error.args[0].str()}. "
            f"Is AUDIT_BOOTSTRAP_SERVERS right?"
        ) from error
    if settings.events not in there:
        raise BadSetting(
            f"There is no topic {settings.events} at {settings.bootstrap_servers}. Set AUDIT_PREFIX to the ledger's prefix."
        )
    if missing := [name for name in (settings.findings, settings.rejects) if name not in there]:
        raise BadSetting(f"There is no topic {' and no topic '.join(missing)}. Create them: {COMMAND}")
