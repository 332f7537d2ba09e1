"""The headers of every record, tombstones included: CloudEvents 1.0 in binary mode, plus the actor and the epoch.

A tombstone has no value, so only its headers record the fact's kind, the time and the actor. Source: CloudEvents Kafka
protocol binding 1.0.2 section 3.2, docs/PROTOCOL.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ledger.core.model.registers import NUMBER_MAX
from ledger.ports import Headers
from ledger.util.times import parse_rfc3339, rfc3339

EPOCH = "ledger_epoch"
ACTOR = "ledger_actor"
CONTENT_TYPE = "application/avro"
TYPE_PREFIX = "io.jobledger."

_DECIMAL = re.compile(r"[1-9][0-9]{0,18}\Z")
_HEADER_CHARS_MAX = 4096


class ParsedHeaders(NamedTuple):
    """The attributes in a record's headers. "" or None: the header is missing. time_s: seconds since the epoch. No
    attribute is verified: a producer can write any value."""

    id: str = ""
    source: str = ""
    type: str = ""
    time_s: float | None = None
    subject: str = ""
    actor: str = ""
    sequence: int | None = None
    epoch: int | None = None


def type_of(fact_name: str) -> str:
    return f"{TYPE_PREFIX}{fact_name}.v1"


def headers(
    fact_name: str, *, event_id: str, source: str, subject: str, key: str | bytes, time_s: float, sequence: int,
    actor: str = "", epoch: int | None = None, extra: Iterable[tuple[str, bytes]] = (),
) -> Headers:  # fmt: skip
    """The headers of one record. The same arguments give the same bytes, so a resent event is identical.

    fact_name: the kind of fact in the register, also for its tombstone. subject: the job id, "" if the record belongs
    to no job. sequence: counts per (source, partition), from 1. actor: "" = none. epoch: of the leader that writes;
    None for other writers. extra: more headers."""
    attributes = [
        ("ce_specversion", "1.0"),
        ("ce_id", event_id),
        ("ce_source", source),
        ("ce_type", type_of(fact_name)),
        ("ce_time", rfc3339(time_s)),
        ("ce_subject", subject),
        ("ce_partitionkey", key.decode() if isinstance(key, bytes) else key),
        ("ce_sequence", str(sequence)),
        (ACTOR, actor),
        (EPOCH, "" if epoch is None else str(epoch)),
        ("content-type", CONTENT_TYPE),
    ]
    return (*((name, text.encode()) for name, text in attributes if text), *extra)


def parse(headers: Sequence[tuple[str, Any]] | None) -> ParsedHeaders:
    """The attributes in a record's headers. Never raises: a missing or malformed attribute is "" or None. If a header
    occurs twice, which it should not, the first one counts, as for the epoch in `core.model.published`."""
    texts = {name: _text(value) for name, value in reversed(headers or ())}
    return ParsedHeaders(
        id=texts.get("ce_id", ""),
        source=texts.get("ce_source", ""),
        type=texts.get("ce_type", ""),
        time_s=parse_rfc3339(texts.get("ce_time", "")),
        subject=texts.get("ce_subject", ""),
        actor=texts.get(ACTOR, ""),
        sequence=_number(texts.get("ce_sequence", "")),
        epoch=_number(texts.get(EPOCH, "")),
    )


def _text(value: Any) -> str:
    if not isinstance(value, bytes) or len(value) > _HEADER_CHARS_MAX:
        return ""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return ""


def _number(text: str) -> int | None:
    if _DECIMAL.match(text) is None:
        return None
    number = int(text)
    return number if number <= NUMBER_MAX else None
