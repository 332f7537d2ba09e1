"""Makes Faust read a log as an audit needs it: committed records only, in order, and none lost, even if it is
malformed."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import confluent_kafka
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import ConsumerRecord
from faust.topics import Topic
from faust.transport.drivers import aiokafka as driver

#: The only header of a record whose own headers can't be read.
ODD_HEADERS = "audit_unreadable_headers"
PATIENCE_S = 30.0


class Unreadable(NamedTuple):
    """A value that could not be decoded; it stands at the position of that value in the stream."""

    error: str


class KeepingTopic(Topic):
    """A topic that passes undecodable records to the agent, at their position, so that the agent can reject them. Faust
    itself would acknowledge such a record and end the agent."""

    async def on_decode_error(self, exc: Exception, message: Any) -> None:
        event = self._create_event(message.key, Unreadable(str(exc)[:500]), message.headers, message=message)
        await self.queue.put(event)

    async def on_key_decode_error(self, exc: Exception, message: Any) -> None:
        await self.on_decode_error(exc, message)

    async def on_value_decode_error(self, exc: Exception, message: Any) -> None:
        await self.on_decode_error(exc, message)


class ReaderThread(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread, with two behaviours corrected that have no setting.

    First, Faust reads uncommitted records unless it writes in transactions itself. Aborted records would count as
    facts. Second, aiokafka can't pass a record with a header whose name is not UTF-8. It raises at each attempt, and
    loses the earlier records of the same response. So anybody could stop an audit with one record. Here librdkafka
    fetches the key and value of such a record, which replace it in the stream.
    """

    _one_by_one = False

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"  # the consumer uses it when it starts
        return consumer

    async def _fetch_records(
        self, consumer: AIOKafkaConsumer, active_partitions: Any, timeout: float | None = None,
        max_records: int | None = None,
    ) -> Any:  # fmt: skip
        limit = 1 if self._one_by_one else max_records
        try:
            return await super()._fetch_records(consumer, active_partitions, timeout=timeout, max_records=limit)
        except UnicodeDecodeError:
            place, offset = _broken(consumer)
            if not self._one_by_one:
                # The earlier records of this response are lost, but the position has not moved: fetch again, one by one.
                self._one_by_one = True
                consumer._fetcher._records.pop(place, None)
                return {}
        record = await asyncio.to_thread(_by_librdkafka, consumer._client._bootstrap_servers, place, offset)
        consumer.seek(place, record.offset + 1)
        self._one_by_one = False
        return {place: [record]}


class Consumer(driver.Consumer):
    def _new_consumer_thread(self) -> ReaderThread:
        return ReaderThread(self, loop=self.loop, beacon=self.beacon)


class Transport(driver.Transport):
    Consumer = Consumer


def _broken(consumer: AIOKafkaConsumer) -> tuple[TopicPartition, int]:
    """The partition whose iterator has just raised, and an offset at or below that of the unreadable record."""
    for place, result in consumer._fetcher._records.items():
        records = getattr(result, "_partition_records", None)
        iterator = getattr(records, "_records_iterator", None)
        if records is not None and iterator is not None and iterator.gi_frame is None:
            return place, records.next_fetch_offset
    raise RuntimeError("a header could not be decoded, and its record could not be found")


def _by_librdkafka(servers: Any, place: TopicPartition, offset: int) -> ConsumerRecord[bytes, bytes]:
    """The first record at or above the offset, without its headers, because librdkafka's client would crash on them.

    Raises: TimeoutError."""
    settings = {
        "bootstrap.servers": servers if isinstance(servers, str) else ",".join(servers),
        "group.id": "audit", "enable.auto.commit": False, "isolation.level": "read_committed",
    }  # fmt: skip
    reader = confluent_kafka.Consumer(settings)
    try:
        reader.assign([confluent_kafka.TopicPartition(place.topic, place.partition, offset)])
        message = reader.poll(PATIENCE_S)
        if message is None or message.error() is not None:
            why = "nothing came" if message is None else message.error()  # a message with a null value is falsy
            raise TimeoutError(f"{place.topic}[{place.partition}]@{offset}: {why}")
        kind, time_ms = message.timestamp()
        key, value = message.key(), message.value()
        by_broker = int(kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME)
        return ConsumerRecord(
            place.topic, place.partition, message.offset(), time_ms, by_broker, key, value, None, len(key or b""),
            len(value or b""), ((ODD_HEADERS, b"1"),),
        )  # fmt: skip
    finally:
        reader.close()
