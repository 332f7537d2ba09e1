"""Encodes facts and entries as Avro in single-object encoding, and decodes them.

The bytes: C3 01, then the CRC-64-AVRO fingerprint of the writer's schema (8 bytes, little-endian), then the Avro body.
The reader needs no registry: all versions of all schemas are in the package. Encoding is deterministic and uses the
oldest schema that can hold the value. So a fact has the same bytes in every release, and a spec's digest can be its
name. Source: Avro specification 1.12, docs/PROTOCOL.md.

The fold spends most of its time decoding, so schemas are parsed once and the builder of a class is made once."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from io import BytesIO
from typing import NamedTuple, TypeVar

from fastavro import schemaless_reader, schemaless_writer

from ledger.adapters import schemas
from ledger.adapters.schema_fit import Fits, fits_in
from ledger.adapters.schemas import Schema
from ledger.adapters.values import Build, Flatten, builder, flattener
from ledger.core.model.facts import FACT_OF, Fact, JobSubmitted, LeaderClaimed, Progress
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import Register, Spec
from ledger.errors import UsageError

__all__ = ["FACT_OF", "KINDS", "Undecodable", "decode", "encode", "read", "spec_digest"]

T = TypeVar("T")

VALUE_BYTES_MAX = 1 << 20
MAGIC = b"\xc3\x01"
HEADER_BYTES = 10

KINDS: tuple[type, ...] = (*FACT_OF.values(), LeaderClaimed, Progress, RecoveryEntry)


class Undecodable(ValueError):
    """The bytes do not decode to the requested fact. Such a record counts as absent and goes to the rejects."""


class _Reader(NamedTuple):
    """How to decode values of one writer's schema. A field that only the class has gets its default; a field that only
    the schema has is ignored. Avro's schema resolution gives the same result in twice the time (tests/schemas)."""

    kind: type
    schema: Schema
    build: Build


class _Writer(NamedTuple):
    """How to encode a class: with the oldest schema that can hold the value; the newest one always can.

    older: (test, schema) for each version before the newest, oldest first."""

    flatten: Flatten
    older: tuple[tuple[Fits, Schema], ...]
    newest: Schema


def encode(fact: object) -> bytes:
    """The value of a record that holds `fact`.

    Raises: UsageError if the fact can't be stored: a number out of range or not finite, text that is not valid Unicode,
    more than 1 MiB. TypeError if its class is not one of KINDS."""
    kind = type(fact)
    writer = _writers().get(kind)
    if writer is None:
        raise TypeError(f"{kind.__name__} is not stored in the log; the classes that are: ledger.adapters.avro.KINDS")
    out = BytesIO()
    try:
        plain = writer.flatten(fact)
        schema = next((schema for fits, schema in writer.older if fits(plain)), writer.newest)
        out.write(MAGIC + schema.fingerprint)
        schemaless_writer(out, schema.parsed, plain)
    except Exception as error:  # fastavro raises many classes
        raise UsageError(f"this {kind.__name__} can't be stored: {error or type(error).__name__}") from error
    if out.tell() > VALUE_BYTES_MAX:
        raise UsageError(
            f"this {kind.__name__} takes {out.tell()} bytes, the log accepts {VALUE_BYTES_MAX}",
            hint="Put large data into the job graph, not into labels or reasons.",
        )
    return out.getvalue()


def decode(kind: type[T], value: bytes) -> T:
    """The fact or entry of class `kind` in a record's value.

    Raises: Undecodable, and nothing else, for any bytes. Decoding takes memory of at most some 150 times the length of
    `value`."""
    reader = _reader(value)
    if reader.kind is not kind:
        raise Undecodable(f"holds {reader.kind.__name__}, not {kind.__name__}")
    body = BytesIO(value)
    body.seek(HEADER_BYTES)
    try:
        plain = schemaless_reader(body, reader.schema.parsed, None)
        fact: T = reader.build(plain)  # type: ignore[arg-type]
    except Exception as error:  # on damaged bytes, fastavro raises a dozen classes
        reason = str(error) or type(error).__name__
        raise Undecodable(f"{kind.__name__} version {reader.schema.version} is damaged: {reason}") from error
    if body.tell() != len(value):
        raise Undecodable(f"{kind.__name__} ends at byte {body.tell()}, {len(value) - body.tell()} bytes are left over")
    return fact


def read(register: Register, value: bytes) -> Fact | None:
    """The fact in a register (a `core.fold.job.Read`). None if the value does not decode, or its class does not fit the
    register. A spec must have the digest that its register names."""
    try:
        fact = decode(FACT_OF[type(register)], value)
    except Undecodable:
        return None
    if isinstance(register, Spec) and sha256(value[HEADER_BYTES:]).hexdigest() != register.digest:
        return None
    return fact


def spec_digest(spec: JobSubmitted) -> str:
    """The digest that names a spec: the lower-case hex SHA-256 of its Avro body, without the framing."""
    return sha256(encode(spec)[HEADER_BYTES:]).hexdigest()


# -- how ---------------------------------------------------------------------------------------------------------------


def _reader(value: bytes) -> _Reader:
    """The reader for a value, chosen by its first bytes. Support for a schema registry (Confluent framing) belongs
    here.

    Raises: Undecodable."""
    if len(value) > VALUE_BYTES_MAX:
        raise Undecodable(f"is {len(value)} bytes long, more than {VALUE_BYTES_MAX}")
    reader = _readers().get(value[:HEADER_BYTES])
    if reader is not None:
        return reader
    if value[:1] == b"\0" and len(value) > 5:
        schema_id = int.from_bytes(value[1:5], "big")
        raise Undecodable(f"has Confluent framing (schema id {schema_id}), and no registry is configured")
    if value[:2] == MAGIC and len(value) >= HEADER_BYTES:
        raise Undecodable(f"schema {value[2:HEADER_BYTES].hex()} is not known: written by a newer version, or damaged")
    raise Undecodable("is not Avro in single-object encoding (C3 01, fingerprint, body)")


@cache
def _readers() -> dict[bytes, _Reader]:
    """C3 01 and fingerprint -> how to decode the body."""
    kinds = {kind.__name__: kind for kind in KINDS}
    return {
        MAGIC + schema.fingerprint: _Reader(kinds[schema.fact], schema, builder(kinds[schema.fact]))
        for schema in schemas.by_fingerprint().values()
    }


@cache
def _writers() -> dict[type, _Writer]:
    """Class -> how to encode it."""
    out = {}
    for kind in KINDS:
        *older, newest = schemas.versions()[kind.__name__]
        fitting = tuple((fits_in(schema.raw, newest.raw), schema) for schema in older)
        out[kind] = _Writer(flattener(kind), fitting, newest)
    return out
