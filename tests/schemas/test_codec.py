"""Facts survive encoding and decoding. For all other bytes, decoding raises Undecodable."""

from __future__ import annotations

import io
import json
import tracemalloc
from dataclasses import replace
from hashlib import sha256
from typing import Any

import avro.io
import avro.schema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.adapters import avro as codec
from ledger.adapters.avro import HEADER_BYTES, KINDS, VALUE_BYTES_MAX, Undecodable, decode, encode, read
from ledger.adapters.schemas import by_fingerprint
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptStarted,
    CheckpointKind,
    CheckpointRetention,
    GraphRef,
    JobAdmitted,
    JobSubmitted,
    RestartPolicy,
    RestorePoint,
    StallPolicy,
)  # fmt: skip
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Admitted, Checkpoint, Ended, Running, Spec
from ledger.errors import UsageError
from tests.schemas.examples import FULL, anything, plain
from tests.schemas.versions import ALL, snake

SPEC = next(fact for fact in FULL if isinstance(fact, JobSubmitted))
ENTRY = next(fact for fact in FULL if isinstance(fact, RecoveryEntry))


def name(fact: Any) -> str:
    return type(fact).__name__


# -- round trip --------------------------------------------------------------------------------------------------------


@given(anything())
def test_what_is_encoded_decodes_to_the_same(fact: Any) -> None:
    value = encode(fact)
    back = decode(type(fact), value)
    assert back == fact
    assert _types(back) == _types(fact)
    assert encode(back) == value


def _types(fact: Any) -> Any:
    """The types inside a fact. An int in place of a float, or a list in place of a tuple, would be equal but wrong."""
    return [(key, type(getattr(fact, key))) for key in fact.__slots__ if key != "labels"]


@given(anything())
@settings(max_examples=50)
def test_apache_avro_reads_the_same(fact: Any) -> None:
    """This includes fields that a newer version added to an older value: the codec takes their defaults from the classes,
    Avro takes them from the schemas."""
    value = encode(fact)
    written = avro.schema.parse(json.dumps(ALL[snake(name(fact))][by_fingerprint()[value[2:10]].version - 1].schema))
    newest = avro.schema.parse(json.dumps(ALL[snake(name(fact))][-1].schema))
    body = io.BytesIO(value[HEADER_BYTES:])
    assert avro.io.DatumReader(written, newest).read(avro.io.BinaryDecoder(body)) == plain(fact)
    assert body.read() == b""


@pytest.mark.parametrize("spec", [SPEC, replace(SPEC, restart_policy=RestartPolicy(), stall_policy=StallPolicy())])
def test_old_and_new_specs_round_trip_by_apache_avro_too(spec: JobSubmitted) -> None:
    test_apache_avro_reads_the_same.hypothesis.inner_test(spec)  # type: ignore[attr-defined]


@pytest.mark.parametrize("fact", FULL, ids=name)
def test_what_apache_avro_writes_is_read(fact: Any) -> None:
    schema = avro.schema.parse(json.dumps(ALL[snake(name(fact))][-1].schema))
    body = io.BytesIO()
    avro.io.DatumWriter(schema).write(plain(fact), avro.io.BinaryEncoder(body))
    assert decode(type(fact), encode(fact)[:HEADER_BYTES] + body.getvalue()) == fact


@pytest.mark.parametrize("fact", FULL, ids=name)
def test_the_framing_is_the_single_object_encoding(fact: Any) -> None:
    schema = avro.schema.parse(json.dumps(ALL[snake(name(fact))][-1].schema))
    assert encode(fact)[:HEADER_BYTES] == b"\xc3\x01" + schema.fingerprint("CRC-64-AVRO")


def test_the_order_of_labels_changes_nothing() -> None:
    turned = replace(SPEC, labels=dict(reversed(SPEC.labels.items())))
    assert list(turned.labels) != list(SPEC.labels)
    assert encode(turned) == encode(SPEC)
    assert codec.spec_digest(turned) == codec.spec_digest(SPEC)


def test_the_digest_of_a_spec_is_that_of_the_body() -> None:
    assert codec.spec_digest(SPEC) == sha256(encode(SPEC)[HEADER_BYTES:]).hexdigest()


# -- values that can't be stored ---------------------------------------------------------------------------------------

BAD_FACTS = {
    "a number that no double holds": AttemptEnded(ran_for_s=float("nan")),
    "an endless delay": replace(SPEC, restart_policy=RestartPolicy(delay_max_s=float("inf"))),
    "a long out of range": AttemptEnded(checkpoint=2**63),
    "text that is no Unicode": JobAdmitted("\ud800"),
    "a number as text": JobAdmitted(7),  # type: ignore[arg-type]
    "too large": replace(SPEC, labels={"a": "x" * VALUE_BYTES_MAX}),
}


@pytest.mark.parametrize("fact", BAD_FACTS.values(), ids=BAD_FACTS.keys())
def test_what_does_not_fit_is_refused(fact: Any) -> None:
    with pytest.raises(UsageError, match=f"this {name(fact)} "):
        encode(fact)


def test_a_value_of_just_the_limit_is_stored() -> None:
    overhead = len(encode(AttemptEnded(cause="x" * 1_000_000))) - 1_000_000
    fact = AttemptEnded(cause="x" * (VALUE_BYTES_MAX - overhead))
    assert len(encode(fact)) == VALUE_BYTES_MAX
    assert decode(AttemptEnded, encode(fact)) == fact
    with pytest.raises(UsageError):
        encode(replace(fact, cause=fact.cause + "x"))


def test_what_is_no_fact_is_refused() -> None:
    with pytest.raises(TypeError, match="RestorePoint is not stored in the log"):
        encode(RestorePoint(1, 1, "x"))


# -- damaged bytes -----------------------------------------------------------------------------------------------------


def outcome(kind: type, value: bytes) -> Any:
    """The fact, or the Undecodable error. Any other error fails the test."""
    try:
        return decode(kind, value)
    except Undecodable:
        return Undecodable


@pytest.mark.parametrize("fact", FULL, ids=name)
def test_a_value_cut_short_is_undecodable(fact: Any) -> None:
    value = encode(fact)
    for length in range(len(value)):
        assert outcome(type(fact), value[:length]) is Undecodable, length


@pytest.mark.parametrize("fact", FULL, ids=name)
def test_bytes_left_over_are_undecodable(fact: Any) -> None:
    for rest in (b"\0", b"\x02", encode(fact)):
        assert outcome(type(fact), encode(fact) + rest) is Undecodable


@pytest.mark.parametrize("fact", FULL, ids=name)
def test_every_flipped_bit_gives_a_fact_or_undecodable(fact: Any) -> None:
    value = encode(fact)
    for i in range(len(value)):
        for bit in range(8):
            damaged = bytearray(value)
            damaged[i] ^= 1 << bit
            result = outcome(type(fact), bytes(damaged))
            assert i >= HEADER_BYTES or result is Undecodable
            assert result is Undecodable or type(result) is type(fact)


@given(st.sampled_from(KINDS), st.data())
@settings(max_examples=400)
def test_any_bytes_give_a_fact_or_undecodable(kind: type, data: Any) -> None:
    header = encode(next(fact for fact in FULL if type(fact) is kind))[:HEADER_BYTES]
    body = data.draw(st.binary(max_size=200))
    result = outcome(kind, header + body)
    assert result is Undecodable or type(result) is kind
    assert outcome(kind, body) is Undecodable


def varint(n: int) -> bytes:
    """A long as Avro encodes it."""
    n = (n << 1) ^ (n >> 63)
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


HUGE = (2**31, 2**40, 2**62, 2**63 - 1, -1, -2, -(2**31), -(2**62), -(2**63))


@pytest.mark.parametrize("length", HUGE)
def test_a_length_that_lies_costs_no_memory(length: int) -> None:
    """The length is that of a string, or the count of an array or map, with and without a block size after it."""
    admitted = encode(JobAdmitted("x"))[:HEADER_BYTES]
    started = encode(AttemptStarted(""))
    spec = encode(SPEC)
    at = spec.index(varint(len(SPEC.labels)) + varint(1) + b"a")  # where the map of labels begins
    values = [
        (JobAdmitted, admitted + varint(length) + b"x" * 50),
        (AttemptStarted, started[:-1] + varint(length) + b"\0" * 50),
        (AttemptStarted, started[:-1] + varint(length) + varint(length) + b"\0" * 50),
        (AttemptStarted, started[:-3] + varint(length) + b"\2\2" * 50),
        (JobSubmitted, spec[:at] + varint(length) + spec[at + 1 :]),
        (JobSubmitted, spec[:at] + varint(length) + varint(length) + spec[at + 1 :]),
    ]
    tracemalloc.start()
    for kind, value in values:
        assert outcome(kind, value) is Undecodable
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


def test_a_value_of_the_smallest_items_takes_bounded_memory() -> None:
    """The worst case is refused restore points of seven bytes each, which decode to two objects each."""
    count = 10_000
    value = encode(AttemptStarted(""))[:-3] + b"".join([varint(count), b"\2\2\0\0\0\2\0" * count, b"\0\0\0"])
    tracemalloc.start()
    fact = decode(AttemptStarted, value)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(fact.refused) == count
    assert peak < 150 * len(value)


def test_a_value_beyond_the_limit_is_not_looked_at() -> None:
    with pytest.raises(Undecodable, match="more than 1048576"):
        decode(JobAdmitted, encode(JobAdmitted("x")) + b"\0" * VALUE_BYTES_MAX)


def test_a_symbol_that_the_enum_does_not_have_is_damage() -> None:
    value = encode(JobSubmitted("a", "b", "c", GraphRef("", "", 0)))
    assert value.endswith(varint(1))
    assert outcome(JobSubmitted, value[:-1] + varint(3)) is Undecodable


def test_a_branch_that_the_union_does_not_have_is_damage() -> None:
    value = encode(AttemptEnded("", 7, 0.0))
    at = HEADER_BYTES + 1
    assert value[at:].startswith(varint(1) + varint(7))
    assert outcome(AttemptEnded, value[:at] + varint(2) + value[at + 1 :]) is Undecodable


@pytest.mark.parametrize("number", ["7ff8000000000000", "7ff0000000000000", "fff0000000000000"])
def test_a_number_that_is_not_finite_is_undecodable(number: str) -> None:
    """NaN is not equal to itself, so an entry with NaN would be published again for ever."""
    value = encode(AttemptEnded("", None, 1.0))
    with pytest.raises(Undecodable, match="not a finite number"):
        decode(AttemptEnded, value[:-8] + bytes.fromhex(number)[::-1])


# -- framing -----------------------------------------------------------------------------------------------------------

FOREIGN = {
    b"": "not Avro in single-object",
    b"\xc3\x01": "not Avro in single-object",
    b"{}": "not Avro in single-object",
    b"Obj\x01" + b"x" * 40: "not Avro in single-object",
    b"\xc3\x01" + b"\x11" * 8: "schema 1111111111111111 is not known",
    b"\0\0\0\0\x07body": "Confluent framing .schema id 7., and no registry is configured",
}


@pytest.mark.parametrize(("value", "says"), FOREIGN.items(), ids=FOREIGN.values())
def test_a_foreign_value_is_undecodable_and_says_why(value: bytes, says: str) -> None:
    with pytest.raises(Undecodable, match=says):
        decode(JobAdmitted, value)


@pytest.mark.parametrize("fact", FULL, ids=name)
def test_one_fact_is_not_read_as_another(fact: Any) -> None:
    for kind in KINDS:
        if kind is not type(fact):
            with pytest.raises(Undecodable, match=f"holds {name(fact)}, not {kind.__name__}"):
                decode(kind, encode(fact))


# -- registers ---------------------------------------------------------------------------------------------------------


def test_a_register_is_read_as_what_it_holds() -> None:
    assert read(Spec(codec.spec_digest(SPEC)), encode(SPEC)) == SPEC
    assert read(Admitted(), encode(JobAdmitted("d"))) == JobAdmitted("d")


def test_what_is_not_the_registers_fact_is_not_read() -> None:
    assert read(Ended(1, "failed", "agent-a"), encode(JobAdmitted("d"))) is None
    assert read(Running(1), encode(JobAdmitted("d"))) is None
    assert read(Checkpoint(1, 1), b"garbage") is None
    assert read(Admitted(), b"") is None


def test_a_spec_under_a_digest_that_is_not_its_own_is_not_read() -> None:
    other = replace(SPEC, slots=SPEC.slots + 1)
    assert read(Spec(codec.spec_digest(SPEC)), encode(other)) is None
    assert read(Spec(codec.spec_digest(other)), encode(other)) == other


def test_what_a_fact_is_built_of_is_what_the_core_expects() -> None:
    entry = decode(RecoveryEntry, encode(ENTRY))
    assert type(entry.state) is JobState
    assert type(entry.restore_points) is tuple
    assert type(entry.restore_points[0].kind) is CheckpointKind
    assert type(entry.graph) is GraphRef
    bare = {"labels": (), "together": None}
    assert hash(replace(entry, **bare)) == hash(replace(ENTRY, **bare))  # type: ignore[arg-type]
