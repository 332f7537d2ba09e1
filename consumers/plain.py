"""Prints ledger.events as JSON lines, using only schemas/ of the ledger: python -m consumers.plain BOOTSTRAP [PREFIX]
Gaps in ce_sequence per (ce_source, partition) go to stderr: the missing events were compacted away, or are lost."""

import json
import sys
from io import BytesIO
from operator import methodcaller
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from fastavro.read import schemaless_reader
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

servers, *prefix = sys.argv[1:] or sys.exit(sys.stderr.write("usage: python -m consumers.plain BOOTSTRAP [PREFIX]\n") and 2)
topic = "".join(prefix[:1]) + "ledger.events"
raw = [json.loads(path.read_text()) for path in Path(__file__).resolve().parents[1].glob("schemas/*/*.avsc")]
prints = [bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")) for schema in raw]
schemas = {b"\xc3\x01" + mark: parse_schema(schema) for mark, schema in zip(prints, raw, strict=True)}
setup = {"bootstrap.servers": servers, "group.id": "plain", "enable.auto.commit": False}
consumer = Consumer({**setup, "isolation.level": "read_committed"})
places = [TopicPartition(topic, p, OFFSET_BEGINNING) for p in consumer.list_topics(topic, 30).topics[topic].partitions]
consumer.assign(places or sys.exit(f"there is no topic {topic} at {servers}"))
last: dict[tuple[str, int], int] = {}
while True:
    message = consumer.poll(1)
    if message is None or message.error():  # never test a message's truth value: a tombstone is falsy
        sys.stderr.write("" if message is None else f"{message.error()}\n")
        continue
    key, value, p, head = (message.key() or b"").decode(errors="replace"), message.value(), message.partition(), {}
    try:  # called directly, `message.headers()` crashes the interpreter in hot code if a header's name is not UTF-8
        head |= {name: (text or b"").decode(errors="replace") for name, text in methodcaller("headers")(message) or ()}
        said = "tombstone" if value is None else schemaless_reader(BytesIO(value[10:]), schemas[value[:10]])
    except Exception as error:
        said = f"undecodable: {error!r}"
    row = {"key": key, "fact": head.get("ce_type"), "who": head.get("ledger_actor") or head.get("ce_source"), "value": said}
    print(json.dumps(row | {"when": head.get("ce_time"), "partition": p, "offset": message.offset()}), flush=True)
    source, number = (head.get("ce_source", ""), p), int(n if (n := head.get("ce_sequence", "")[:19]).isdecimal() else 0)
    if number > last.get(source, 0) + 1:
        sys.stderr.write(f"gap: {source[0]} in partition {p}: after {last.get(source, 0)} comes {number}\n")
    last[source] = max(number, last.get(source, 0))
