"""Malformed records: found, kept as evidence on `ledger.rejects`, and listed.

A reject on the topic:
    key      `<topic>/<partition>/<offset>` of the rejected record, so that reading it again rejects it only once
    value    UTF-8 JSON {topic, partition, offset, time_ms, key, value_head, sha256, size, reason, headers}; bytes are
             base64; key and value_head are null if the record had none. value_head is the first 64 KiB; sha256 and size
             are those of the whole value (sha256 "" and size 0 for a tombstone). The key is cut to 4 KiB, each header to
             1 KiB, and only the first 64 headers are kept. headers is a list of [name, value].
    headers  CloudEvents, content-type application/json. Every reject is a source of its own with one event, so the same
             reject has the same bytes from every writer.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.core.model.published import headers_of
from ledger.core.model.registers import NOOP_KEY, is_job_id, parse_claim, parse_register, partition_of
from ledger.errors import Unreachable
from ledger.ports import Event, Headers, MemoryRecord, Reader, Record
from ledger.util.times import rfc3339

VALUE_HEAD_BYTES = 64 * 1024
KEY_HEAD_BYTES = 4 * 1024
HEADER_BYTES = 1024
HEADERS_MAX = 64
REASON_CHARS = 1000
VALUE_BYTES_MAX = 1_048_576
SINGLE_OBJECT = b"\xc3\x01"
_NUMBER_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A malformed record and the reason. key, value_head and headers are cut as described above."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value_head: bytes | None
    sha256: str
    size: int
    reason: str
    headers: Headers = ()
    time_ms: int = 0
    """LogAppendTime of the rejected record; 0 = not known."""

    @property
    def origin(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


def reject_of(record: Record, reason: str) -> Reject:
    key, value = record.key(), record.value()
    headers = [(name[:HEADER_BYTES], bytes(text or b"")[:HEADER_BYTES]) for name, text in headers_of(record)]
    return Reject(
        topic=record.topic(), partition=record.partition(), offset=record.offset(),
        key=None if key is None else key[:KEY_HEAD_BYTES],
        value_head=None if value is None else value[:VALUE_HEAD_BYTES],
        sha256="" if value is None else hashlib.sha256(value).hexdigest(), size=len(value or b""),
        reason=reason[:REASON_CHARS], headers=tuple(headers[:HEADERS_MAX]), time_ms=max(0, record.timestamp()[1]),
    )  # fmt: skip


def encode(reject: Reject, topic: str, partitions: int = 1) -> Event:
    """The event for the topic of rejects. partitions: of that topic."""
    fields = {
        "topic": reject.topic, "partition": reject.partition, "offset": reject.offset, "time_ms": reject.time_ms,
        "key": _text(reject.key), "value_head": _text(reject.value_head), "sha256": reject.sha256,
        "size": reject.size, "reason": reject.reason,
        "headers": [[name, _text(value)] for name, value in reject.headers],
    }  # fmt: skip
    value = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    return Event(topic, reject.partition % partitions, reject.origin.encode(), value, _headers(reject))


def decode(value: bytes) -> Reject:
    """The reject in these bytes. Raises: ValueError if they hold none."""
    try:
        fields = json.loads(value)
    except RecursionError as error:
        raise ValueError("nested too deep for a reject") from error
    if not isinstance(fields, dict):
        raise ValueError("a reject is a JSON object")
    try:
        return Reject(
            topic=_of(fields, "topic", str), partition=_of(fields, "partition", int), offset=_of(fields, "offset", int),
            key=_bytes(fields["key"]), value_head=_bytes(fields["value_head"]),
            sha256=_of(fields, "sha256", str), size=_of(fields, "size", int), reason=_of(fields, "reason", str),
            headers=tuple((_printable(str(name)), _bytes(text) or b"") for name, text in _of(fields, "headers", list)),
            time_ms=_of(fields, "time_ms", int),
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a reject: {error!r}") from error


def list_rejects(reader: Reader, *, timeout_s: float = 10.0) -> Iterator[Reject]:
    """Every reject on the topic at the time of the call, each once, oldest first in each partition.

    reader: of the topic of rejects, from offset 0. Other records are ignored. Raises: Unreachable if no record arrives for
    about timeout_s before the end is reached.
    """
    ends = reader.high_watermarks()
    seen: set[bytes | None] = set()
    silent_s, poll_s = 0.0, 0.5
    while any(reader.position().get(tp, 0) < end for tp, end in ends.items()):
        before = reader.position()
        records = reader.poll(1000, poll_s)
        for record in records:
            value = record.value()
            if value is not None and record.key() not in seen:
                try:
                    reject = decode(value)
                except ValueError:
                    continue  # a reject may still follow under the same key
                seen.add(record.key())
                yield reject
        silent_s = 0.0 if records or reader.position() != before else silent_s + poll_s
        if silent_s >= timeout_s:
            raise Unreachable(f"Reading the rejects made no progress for {timeout_s:g} s before their end.")


class RejectsTopic:
    """Implements `roles.rejecting.RejectEvents` for one topic of rejects."""

    def __init__(self, topic: str, events_topic: str, partitions: int = 1) -> None:
        self._topic, self._events_topic, self._partitions = topic, events_topic, partitions

    def record(self, record: Record, reason: str) -> Event:
        return encode(reject_of(record, reason), self._topic, self._partitions)

    def held(self, partition: int, key: bytes, value: bytes, offset: int, reason: str) -> Event:
        return self.record(MemoryRecord(self._events_topic, partition, offset, key, value), reason)


# -- judging -----------------------------------------------------------------------------------------------------------


def judge(record: Record, partitions: int, value_bytes_max: int = VALUE_BYTES_MAX) -> str | None:
    """Why a record of `ledger.events` is malformed; None if it is a register of a job, its tombstone, or a claim.

    The value is not decoded. The fold does that when it needs the value; one that does not decode counts as absent.
    """
    key, value = record.key(), record.value()
    if key is None:
        return "a record needs a key: <job_id>/<register>"
    if key == NOOP_KEY.encode():
        return None
    if key.startswith(b"~"):
        if parse_claim(key) is None:
            return "keys that begin with ~ are the ledger's own"
        if value is None:
            return "a claim is never tombstoned"
    elif reason := _judge_key(key, record.partition(), partitions):
        return reason
    return None if value is None else _judge_value(value, value_bytes_max)


def _judge_key(key: bytes, partition: int, partitions: int) -> str | None:
    head, _, name = key.partition(b"/")
    job_id = head.decode("ascii", "replace")
    if not is_job_id(job_id):
        return "the key does not begin with a job id"
    if parse_register(name) is None:
        return "the key names no register"
    wanted = partition_of(job_id, partitions)
    return None if wanted == partition else f"registers of this job belong in partition {wanted}"


def _judge_value(value: bytes, value_bytes_max: int) -> str | None:
    if not value:
        return "the value is empty: a tombstone has no value at all"
    if not value.startswith(SINGLE_OBJECT):
        return "the value is not in Avro single-object encoding"
    if len(value) > value_bytes_max:
        return f"the value has {len(value)} bytes, more than {value_bytes_max}"
    return None


# -- encoding ----------------------------------------------------------------------------------------------------------


def _headers(reject: Reject) -> Headers:
    attributes = [
        ("ce_specversion", "1.0"),
        ("ce_id", reject.origin),
        ("ce_source", f"/ledger/rejects/{reject.origin}"),
        ("ce_type", "io.jobledger.RecordRejected.v1"),
        ("ce_time", rfc3339(reject.time_ms / 1000) if reject.time_ms else ""),
        ("ce_partitionkey", reject.origin),
        ("ce_sequence", "1"),
        ("content-type", "application/json"),
    ]
    return tuple((name, text.encode()) for name, text in attributes if text)


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: object) -> bytes | None:
    if text is not None and not isinstance(text, str):
        raise ValueError("bytes are base64 text")
    return None if text is None else b64decode(text, validate=True)


def _of(fields: Mapping[str, Any], name: str, kind: type) -> Any:
    value = fields[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name} of a reject is {type(value).__name__}, not {kind.__name__}")
    if isinstance(value, int) and not -1 <= value <= _NUMBER_MAX:
        raise ValueError(f"{name} of a reject is no number of that kind")
    return _printable(value) if isinstance(value, str) else value


def _printable(text: str) -> str:
    """A text without surrogates, which JSON can hold and no terminal can print."""
    return text.encode("utf-8", "backslashreplace").decode()
