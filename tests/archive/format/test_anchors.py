"""Anchors as text, which of them count, and which heads may be anchored."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.archive.format.anchor import (
    BYTES_MAX,
    Anchor,
    AnchorRecord,
    decode,
    encode,
    going_back,
    judge,
    signed_bytes,
    why_not_above,
)
from ledger.archive.format.chain import Head, Manifest, head_of

HEAD = Head("ledger.events", 3, 7, "ab" * 32, 4711, "id")
NUMBERS, HEX = st.integers(0, 2**53), st.binary(min_size=1, max_size=64).map(bytes.hex)
HEADS = st.builds(
    Head, st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True), NUMBERS, NUMBERS,
    st.binary(min_size=32, max_size=32).map(bytes.hex), NUMBERS, st.text(max_size=40),
)  # fmt: skip
ANCHORS = HEADS.map(Anchor) | st.tuples(HEADS, HEX, HEX).map(lambda parts: Anchor(*parts))


@given(ANCHORS)
def test_what_is_written_is_read(anchor: Anchor) -> None:
    assert decode(encode(anchor)) == anchor
    assert encode(anchor).isascii() and b"\n" not in encode(anchor)


PLAIN = st.none() | st.booleans() | st.integers() | st.text()
JSON = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)).map(json.dumps)


@given(st.binary(max_size=200) | st.text(max_size=200) | JSON)
def test_whatever_comes_is_read_or_is_no_anchor(data: bytes | str) -> None:
    with suppress(ValueError):
        decode(data)


@pytest.mark.parametrize("change", [
    {"sequence": -1}, {"sequence": True}, {"sequence": 2**53 + 1}, {"sequence": 1.0}, {"next": "1"}, {"sha256": "AB" * 32},
    {"sha256": "ab" * 31}, {"key": "0a"}, {"signature": "0a"}, {"key": "0a", "signature": "xx"}, {"more": 1},
    {"key": "0a", "signature": "0"}, {"key": 1, "signature": 1}, {"topic": "x" * BYTES_MAX},
    {"topic_id": "x" * BYTES_MAX}, {"topic": ""}, {"topic": "\ud800"}, {"topic": "a b"},
])  # fmt: skip
def test_what_is_not_quite_one_is_none(change: dict) -> None:
    with pytest.raises(ValueError):
        decode(json.dumps({**HEAD._asdict(), **change}))


def test_nested_too_deep_is_no_anchor() -> None:
    with pytest.raises(ValueError):
        decode("[" * (BYTES_MAX - 1))


@given(HEADS, HEADS)
def test_a_signature_is_of_one_head_alone(one: Head, other: Head) -> None:
    assert (signed_bytes(one) == signed_bytes(other)) == (one == other)
    assert signed_bytes(one) != encode(Anchor(one))


def test_a_fork_is_told_only_among_those_that_count() -> None:
    false = HEAD._replace(sha256="00" * 32)
    found = [
        AnchorRecord(Anchor(HEAD), "here"),
        AnchorRecord(Anchor(false, "0a", "ff"), "there"),
        AnchorRecord(Anchor(HEAD), "again"),
    ]
    judged = judge(found)
    assert judged.heads == (HEAD, false) and len(judged.forks) == 1
    assert "here says abab" in judged.forks[0] and "there says 0000" in judged.forks[0]
    assert judge(found, lambda anchor: "false" if anchor.signature else "").forks == ()


def chain(number: int, salt: str = "") -> list[Manifest]:
    found: list[Manifest] = []
    for n in range(number):
        previous = found[-1].sha256 if found else ""
        found.append(Manifest(
            "t", "id", 0, n, previous, n, n + 1, 1, 0, salt, 0, 0, "", "", "", "", "", "",
        ))  # fmt: skip
    return found


def test_what_grew_out_of_an_anchor_may_be_anchored_and_nothing_else() -> None:
    whole, other = chain(10), chain(10, "other")
    for n in range(10):
        anchor = head_of(whole[n])
        assert why_not_above(anchor, whole[n:]) == ""
        assert "cut off" in why_not_above(anchor, whole[10:])
        assert "not the one" in why_not_above(anchor, other[n:])
        for broken in range(n + 1, 10):
            assert f"manifest {broken} does not continue" in why_not_above(anchor, [*whole[n:broken], *other[broken:]])
            assert f"manifest {broken} can't be read" in why_not_above(
                anchor, [*whole[n:broken], None, *whole[broken + 1 :]]
            )


def test_an_anchor_that_names_a_lower_manifest_than_one_before_it_is_told() -> None:
    def kept(sequence: int, topic: str = "ledger.events") -> AnchorRecord:
        return AnchorRecord(Anchor(HEAD._replace(topic=topic, sequence=sequence)), f"at {sequence}")

    assert going_back([kept(1), kept(2), kept(2), kept(9), kept(1, "other")]) == []
    told = going_back([kept(5), kept(9), kept(7), kept(9), kept(8)])
    assert [one.split()[1] for one in told] == ["7", "8"] and all("at 9 named 9 before" in one for one in told)


def test_an_anchor_that_does_not_count_makes_none_of_the_others_old() -> None:
    forged, ours = AnchorRecord(Anchor(HEAD._replace(sequence=99)), "forged"), AnchorRecord(Anchor(HEAD), "ours")
    assert len(going_back([forged, ours])) == 1
    assert going_back([forged, ours], lambda one: "unsigned" if one == forged.anchor else "") == []
