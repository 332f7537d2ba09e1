"""The readable columns of an archive, for people who query it. The hashes of the archive cover only the raw bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ledger.core.model.facts import LeaderClaimed, Progress
from ledger.core.model.published import headers_of
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.redaction import is_redacted
from ledger.core.model.registers import PROGRESS_KEY, parse_claim, parse_key, register_name
from ledger.ports import Codec, Envelope, Record
from ledger.util.plain import to_plain

_PROGRESS = PROGRESS_KEY.encode()


@dataclass(frozen=True, slots=True)
class Decoded:
    """The readable columns of one record. None: the record does not have this value.

    fact: the name of the fact or entry. body: the fact as JSON, with the field names of the schemas. event_time_s: by
    the producer's own clock, in seconds since the epoch. unreadable: why there is no body although there is a value.
    """

    job_id: str | None = None
    register: str | None = None
    fact: str | None = None
    event_id: str | None = None
    event_time_s: float | None = None
    source: str | None = None
    actor: str | None = None
    sequence: int | None = None
    epoch: int | None = None
    body: str | None = None
    unreadable: str | None = None


def decoded(record: Record, codec: Codec, envelope: Envelope) -> Decoded:
    """The readable columns of a record. Total: it never fails, whatever the bytes are."""
    said = envelope.parse(headers_of(record))
    job_id, register, (fact, unreadable) = *_named(record.key()), _fact(record, codec)
    return Decoded(
        job_id=job_id,
        register=register,
        fact=type(fact).__name__ if fact is not None else None,
        event_id=said.id or None,
        event_time_s=said.time_s,
        source=said.source or None,
        actor=said.actor or None,
        sequence=said.sequence,
        epoch=said.epoch,
        body=json.dumps(to_plain(fact), ensure_ascii=False, sort_keys=True) if fact is not None else None,
        unreadable=unreadable,
    )


def _named(key: bytes | None) -> tuple[str | None, str | None]:
    """The job id and the register. In `ledger.recovery`, a key is the job id alone."""
    if key is None or key.startswith(b"~"):
        return None, None
    if (named := parse_key(key)) is not None:
        return named[0], register_name(named[1])
    return (key.decode("ascii", "replace"), None) if b"/" not in key else (None, None)


def _fact(record: Record, codec: Codec) -> tuple[object | None, str | None]:
    key, value = record.key(), record.value()
    if value is None:
        return None, None
    if is_redacted(value):
        return None, "the value is redacted"
    try:
        if key == _PROGRESS:
            return codec.decode(Progress, value), None
        if parse_claim(key) is not None:
            return codec.decode(LeaderClaimed, value), None
        if (named := parse_key(key)) is not None:
            fact = codec.read(named[1], value)
            return fact, None if fact is not None else "the value does not fit the register, or its schema is unknown"
        return codec.decode(RecoveryEntry, value), None
    except ValueError as error:
        return None, str(error)[:500] or "the value can't be decoded"
