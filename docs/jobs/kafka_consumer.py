"""A consumer: counts the records of a topic by key. Its offsets are in the checkpoint, beside the counts.

If offsets are committed to a consumer group and the state is stored elsewhere, a crash makes them disagree: records are
counted twice, or never. Here both are in one checkpoint, so a restart counts each record once.
"""

import json
import os
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

import ledger


def main(topic: str) -> None:
    consumer = Consumer({
        "bootstrap.servers": os.environ["BROKERS"],
        "group.id": f"counter-{os.environ['LEDGER_JOB_ID']}",  # required by the client; nothing is committed to it
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    })  # fmt: skip
    with ledger.job() as job:
        state = {"offsets": {}, "counts": {}}
        if job.restored:
            state = json.loads((job.restored / "state.json").read_text())
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([  # assign, not subscribe: this job reads all partitions, and nobody takes one from it
            TopicPartition(topic, p, state["offsets"].get(str(p), OFFSET_BEGINNING)) for p in partitions
        ])  # fmt: skip
        while not job.stopping:
            for record in consumer.consume(1000, timeout=0.5):
                if record.error():
                    raise SystemExit(f"reading {topic}: {record.error()}")  # the restart policy decides what follows
                key = (record.key() or b"").decode()
                state["counts"][key] = state["counts"].get(key, 0) + 1
                state["offsets"][str(record.partition())] = record.offset() + 1
            if job.checkpoint_due(every_s=2):
                with job.checkpoint() as folder:
                    (folder / "state.json").write_text(json.dumps(state))
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
