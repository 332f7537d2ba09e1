"""A producer written from docs/PROTOCOL.md alone: a Kafka client, an Avro library and `schemas/`, but not the ledger."""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import Any, NamedTuple

import confluent_kafka
import fastavro
from fastavro.schema import to_parsing_canonical_form

from tests.protocol import page

murmur2 = page.function("murmur2", "murmur2")
crc64_avro = page.function("crc64", "crc64_avro")


class Written(NamedTuple):
    """An event as it was sent; a resend sends the same bytes."""

    partition: int
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]]


def encode(fact: str, fields: dict[str, Any]) -> bytes:
    """The fact, encoded with the lowest schema version that has all given fields. fact: a folder name of schemas/."""
    *lower, highest = sorted((page.SCHEMAS / fact).glob("*.avsc"))
    for path in lower:
        try:
            return _written(json.loads(path.read_text(encoding="utf-8")), fields, strict=True)
        except ValueError:
            continue
    return _written(json.loads(highest.read_text(encoding="utf-8")), fields)


def _written(schema: dict[str, Any], fields: dict[str, Any], strict: bool = False) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), fields, strict_allow_default=strict)
    return b"\xc3\x01" + crc64_avro(to_parsing_canonical_form(schema).encode()) + body.getvalue()


def digest_of(spec: bytes) -> str:
    return hashlib.sha256(spec[10:]).hexdigest()


class Producer:
    """Writes registers to `<prefix>ledger.events`."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._topic = f"{prefix}ledger.events"
        self._client = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
        self._partitions = len(self._client.list_topics(self._topic, 10).topics[self._topic].partitions)
        self.source = f"/ns/prod/producer/etl/{uuid.uuid4()}"
        self._sequence: Counter[int] = Counter()

    def build(self, job_id: str, register: str, type_name: str, value: bytes | None) -> Written:
        partition = (murmur2(job_id.encode()) & 0x7FFFFFFF) % self._partitions
        key = f"{job_id}/{register}"
        self._sequence[partition] += 1
        headers = {
            "ce_specversion": "1.0",
            "ce_id": str(uuid.uuid4()),
            "ce_source": self.source,
            "ce_type": f"io.jobledger.{type_name}.v1",
            "ce_time": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "ce_subject": job_id,
            "ce_partitionkey": key,
            "ce_sequence": str(self._sequence[partition]),
            "content-type": "application/avro",
            "ledger_actor": "zoë@ops",
        }
        return Written(partition, key.encode(), value, [(name, text.encode()) for name, text in headers.items()])

    def send(self, event: Written) -> int:
        """Sends the event, waits for the acknowledgement, and returns the offset."""
        stored: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                raise confluent_kafka.KafkaException(error)
            stored.append(message.offset())

        self._client.produce(
            self._topic, event.value, event.key, event.partition, headers=event.headers, on_delivery=delivered
        )
        assert self._client.flush(30) == 0
        return stored[0]

    def write(self, job_id: str, register: str, type_name: str, value: bytes | None) -> Written:
        event = self.build(job_id, register, type_name, value)
        self.send(event)
        return event
