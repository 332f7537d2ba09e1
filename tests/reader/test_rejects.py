"""Records that can't be used: they are detected, kept as evidence, and listed."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ledger.adapters.cloudevents import parse
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.core.model.registers import partition_of
from ledger.core.model.table import RegisterTable
from ledger.errors import Unreachable
from ledger.ports import Event, MemoryRecord
from ledger.reader.rejects import (
    HEADERS_MAX,
    KEY_HEAD_BYTES,
    VALUE_BYTES_MAX,
    VALUE_HEAD_BYTES,
    Reject,
    RejectsTopic,
    decode,
    encode,
    judge,
    list_rejects,
    reject_of,
)

EVENTS, REJECTS = "ledger.events", "ledger.rejects"
N = 4
FRAMED = b"\xc3\x01" + bytes(8) + b"body"


def record(key: bytes | None, value: bytes | None = FRAMED, partition: int | None = None, offset: int = 7) -> MemoryRecord:
    home = partition_of((key or b"").split(b"/")[0].decode("ascii", "replace"), N) if partition is None else partition
    return MemoryRecord(EVENTS, home, offset, key, value, (("ce_id", b"1"),), 1_700_000_000_123)


# -- detecting faulty records ------------------------------------------------------------------------------------------

LEGAL = [
    b"job-1/admitted", b"job-1/spec/" + b"a" * 64, b"job-1/attempt/1/2", b"job-1/ended/3/finished/agent-x",
    b"job-1/checkpoint/1/0", b"job-1/result/FINISHED", b"x" * 128 + b"/running/1",
    b"~claim/projector/1", b"~claim/reconciler/9007199254740992",
]  # fmt: skip


@pytest.mark.parametrize("key", LEGAL)
def test_a_register_and_a_claim_are_not_foreign(key: bytes) -> None:
    assert judge(record(key), N) is None


def test_the_tombstone_of_a_register_is_not_foreign() -> None:
    assert judge(record(b"job-1/admitted", None), N) is None


@pytest.mark.parametrize(
    ("foreign", "reason"),
    [
        (record(None), "needs a key"),
        (record(b""), "job id"),
        (record(b"/admitted"), "job id"),
        (record(b"job 1/admitted"), "job id"),
        (record(b"x" * 129 + b"/admitted"), "job id"),
        (record("jöb/admitted".encode()), "job id"),
        (record(b"\xff\xfe/admitted"), "job id"),
        (record(b"job-1"), "no register"),
        (record(b"job-1/"), "no register"),
        (record(b"job-1/attempt/0/1"), "no register"),
        (record(b"job-1/attempt/01/1"), "no register"),
        (record(b"job-1/ended/1/exploded/agent-x"), "no register"),
        (record(b"job-1/\xff"), "no register"),
        (record(b"job-1/admitted", partition=(partition_of("job-1", N) + 1) % N), "belong in partition"),
        (record(b"~claim/projector/0"), "the ledger's own"),
        (record(b"~claim/projector"), "the ledger's own"),
        (record(b"~progress"), "the ledger's own"),
        (record(b"~"), "the ledger's own"),
        (record(b"~claim/projector/1", None), "never tombstoned"),
        (record(b"job-1/admitted", b""), "empty"),
        (record(b"job-1/admitted", b"{}"), "single-object"),
        (record(b"job-1/admitted", b"\x00\x00\x00\x00\x01body"), "single-object"),
        (record(b"~claim/projector/1", b"x"), "single-object"),
        (record(b"job-1/admitted", FRAMED + bytes(VALUE_BYTES_MAX)), "bytes, more than"),
    ],
)
def test_what_is_foreign_is_told(foreign: MemoryRecord, reason: str) -> None:
    told = judge(foreign, N)
    assert told is not None
    assert reason in told


pieces = st.sampled_from([b"job-1", b"~claim", b"projector", b"attempt", b"admitted", b"ended", b"finished", b"agent-x",
                          b"1", b"0", b"2", b"", b"\xff", b"~", b"..", b"spec", b"a" * 64])  # fmt: skip
keys = st.one_of(st.none(), st.binary(max_size=12), st.lists(pieces, max_size=5).map(b"/".join), st.sampled_from(LEGAL))
values = st.one_of(st.none(), st.sampled_from([b"", b"x", FRAMED, b"\xc3\x01"]))


@given(keys, values, st.one_of(st.none(), st.integers(0, N - 1)))
@example(b"~claim/projector/1", FRAMED, 0)
def test_the_judge_and_the_hot_loop_agree(key: bytes | None, value: bytes | None, partition: int | None) -> None:
    """The register table checks a record with minimal work. It must reach the same verdict as `judge`."""
    one = record(key, value, partition)
    _, foreign = RegisterTable(N).apply([one])
    if key is not None and key.startswith(b"~"):
        assert not foreign or judge(one, N) is not None  # the table looks at a claim's key only
    else:
        assert [bool(f.reason) for f in foreign] == ([] if judge(one, N) is None else [True])


# -- the evidence in a reject ------------------------------------------------------------------------------------------


def test_a_reject_survives_the_topic() -> None:
    rejected = record(b"job-1/nonsense", b"\x00\xff value", offset=41)
    reject = reject_of(rejected, "the key names no register")
    event = encode(reject, REJECTS)
    assert (event.topic, event.partition) == (REJECTS, 0)
    assert event.key == f"ledger.events/{rejected.partition()}/41".encode()
    assert event.value is not None
    assert decode(event.value) == reject
    assert reject.sha256 == hashlib.sha256(b"\x00\xff value").hexdigest()
    assert (reject.size, reject.time_ms, reject.headers) == (8, 1_700_000_000_123, (("ce_id", b"1"),))


@given(
    st.builds(
        Reject, topic=st.text(), partition=st.integers(0, 2**31), offset=st.integers(0, 2**63 - 1),
        key=st.none() | st.binary(), value_head=st.none() | st.binary(), sha256=st.text(),
        size=st.integers(0, 2**63 - 1), reason=st.text(),
        headers=st.lists(st.tuples(st.text(), st.binary())).map(tuple), time_ms=st.integers(0, 2**42),
    )
)  # fmt: skip
def test_every_reject_is_decoded_as_it_was_encoded(reject: Reject) -> None:
    event = encode(reject, REJECTS, 3)
    assert event.value is not None
    assert decode(event.value) == reject


def test_the_same_record_gives_the_same_bytes_whoever_rejects_it() -> None:
    one, two = (RejectsTopic(REJECTS, EVENTS).record(record(b"x", b"y"), "why") for _ in range(2))
    assert one == two


def test_what_is_held_is_rejected_under_the_key_of_its_record() -> None:
    event = RejectsTopic(REJECTS, EVENTS).held(2, b"job-1/admitted", b"junk", 99, "undecodable")
    assert event.key == b"ledger.events/2/99"
    assert event.value is not None
    reject = decode(event.value)
    assert (reject.key, reject.value_head, reject.reason) == (b"job-1/admitted", b"junk", "undecodable")


def test_its_headers_are_a_cloud_event() -> None:
    said = parse(list(encode(reject_of(record(b"x"), "why"), REJECTS).headers))
    assert said.type == "io.jobledger.RecordRejected.v1"
    assert said.id.startswith("ledger.events/")
    assert (said.sequence, said.time_s) == (1, 1_700_000_000.123)


def test_evidence_is_cut_to_size_and_says_what_it_was() -> None:
    """The reject of any record fits into a record."""
    value = b"v" * (VALUE_HEAD_BYTES + 1)
    headers = tuple(("h" * 5000, b"x" * 5000) for _ in range(500))
    huge = MemoryRecord(EVENTS, 0, 1, b"k" * 100_000, value, headers, -1)
    reject = reject_of(huge, "r" * 100_000)
    assert (len(reject.key or b""), len(reject.value_head or b"")) == (KEY_HEAD_BYTES, VALUE_HEAD_BYTES)
    assert (reject.size, reject.sha256) == (len(value), hashlib.sha256(value).hexdigest())
    assert len(reject.headers) == HEADERS_MAX
    assert reject.time_ms == 0
    assert len(encode(reject, REJECTS).value or b"") < 300_000


def test_a_tombstone_and_an_empty_value_are_told_apart() -> None:
    tombstone, empty = reject_of(record(b"x", None), "why"), reject_of(record(b"x", b""), "why")
    assert (tombstone.value_head, tombstone.sha256, tombstone.size) == (None, "", 0)
    assert (empty.value_head, empty.size) == (b"", 0)
    assert decode(encode(tombstone, REJECTS).value or b"").value_head is None
    assert decode(encode(empty, REJECTS).value or b"").value_head == b""


@pytest.mark.parametrize("change", [
    {"offset": "1"}, {"offset": True}, {"key": 1}, {"key": "not base64!"}, {"headers": [["a"]]}, {"headers": "ab"},
    {"headers": [["a", 1]]}, {"reason": None}, {"size": 1.5}, {"topic": []},
])  # fmt: skip
def test_what_is_no_reject_is_not_decoded(change: dict) -> None:
    fields = json.loads(encode(reject_of(record(b"x"), "why"), REJECTS).value or b"")
    with pytest.raises(ValueError, match=r"."):
        decode(json.dumps(fields | change).encode())


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b"\xff", b"null", b"{" * 10_000, b"[" * 100_000])
def test_junk_is_not_decoded(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(value)


# -- listing rejects ---------------------------------------------------------------------------------------------------


def test_rejects_are_listed_once_and_junk_is_passed_over() -> None:
    log = MemoryLog({REJECTS: 1}, ManualClock())
    topic = RejectsTopic(REJECTS, EVENTS)
    first, second = (topic.record(record(b"x", offset=n), f"reason {n}") for n in (1, 2))
    log.append([first, Event(REJECTS, 0, b"junk", b"junk"), second, first, Event(REJECTS, 0, b"gone", None)])
    assert [r.reason for r in list_rejects(log.reader([REJECTS]))] == ["reason 1", "reason 2"]
    assert list(list_rejects(MemoryLog({REJECTS: 1}, ManualClock()).reader([REJECTS]))) == []


def test_an_end_that_is_not_reached_is_told() -> None:
    log = MemoryLog({REJECTS: 1}, ManualClock())
    log.append([RejectsTopic(REJECTS, EVENTS).record(record(b"x"), "seen")])
    transaction = log.begin("stranger", log.init("stranger"), timeout_s=1e9)
    log.produce(transaction, Event(REJECTS, 0, b"k", b"open"))
    listed = list_rejects(log.reader([REJECTS]))
    assert next(listed).reason == "seen"
    with pytest.raises(Unreachable):
        next(listed)
