"""The copy of the log that scenario tests check: it also holds aborted records, and can tell them apart."""

from __future__ import annotations

from confluent_kafka import Producer

from tests.support.mirror import Mirror
from tests.support.servers import create_topic


def test_a_mirror_holds_all_and_knows_what_was_aborted(bootstrap: str, prefix: str) -> None:
    topic = create_topic(bootstrap, f"{prefix}t", 2)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{prefix}w"})
    producer.init_transactions(20)
    with Mirror({"bootstrap.servers": bootstrap}, [topic]) as mirror:
        for key, end in (("a", "commit"), ("b", "abort"), ("c", "commit")):
            producer.begin_transaction()
            producer.produce(topic, b"v", key.encode(), partition=1, headers={"h": b"x"})
            producer.flush(10)
            (producer.commit_transaction if end == "commit" else producer.abort_transaction)(10)
        mirror.to_end()
        assert [(record.partition, record.offset, record.key) for record in mirror.raw(topic)] == [
            (1, 0, b"a"), (1, 2, b"b"), (1, 4, b"c"),
        ]  # fmt: skip
        assert [record.key for record in mirror.committed(topic)] == [b"a", b"c"]
        assert [record.key for record in mirror.aborted(topic)] == [b"b"]
        assert mirror.raw(topic)[0].headers == (("h", b"x"),)
        producer.begin_transaction()
        producer.produce(topic, b"v", b"open", partition=1)
        producer.flush(10)
        while len(mirror.raw(topic)) < 4:
            mirror.take()
        assert [record.key for record in mirror.aborted(topic)] == [b"b"], (
            "the outcome of the open transaction is not known yet"
        )
        producer.abort_transaction(10)
        assert [record.key for record in mirror.to_end().aborted(topic)] == [b"b", b"open"]
