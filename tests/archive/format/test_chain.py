"""Manifests: their bytes, and the links between them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.archive.format.chain import Head, Manifest, broken_links, decode, head_of, leaf_of

FIRST = Manifest(
    "ledger.events", "id", 0, 0, "", 0, 10, 8, 2, "00" * 32, 1, 2, "r", "11" * 32, "l", "22" * 32, "archiver", "2026-01-01"
)
SECOND = replace(FIRST, sequence=1, previous=FIRST.sha256, first=10, next=15, count=5, missing=0)
THIRD = replace(FIRST, sequence=2, previous=SECOND.sha256, first=15, next=16, count=1, missing=0)


def why(*manifests: Manifest | None, anchors: dict[int, str] | None = None) -> list[tuple[int, int]]:
    return why_of(manifests, anchors)


def why_of(manifests: Sequence[Manifest | None], anchors: dict[int, str] | None = None) -> list[tuple[int, int]]:
    return [(one.sequence, one.offset) for one in broken_links("ledger.events", 0, manifests, anchors or {})]


def test_a_chain_that_holds() -> None:
    assert why() == why(FIRST) == why(FIRST, SECOND, THIRD) == []
    assert head_of(SECOND) == Head("ledger.events", 0, 1, SECOND.sha256, 15, "id")


def test_bytes_and_back() -> None:
    assert decode(SECOND.encode()) == SECOND


@pytest.mark.parametrize("name", [name for name in asdict(FIRST) if name != "format"])
def test_a_change_of_anything_is_blamed_on_the_one_that_was_changed(name: str) -> None:
    """The next manifest or an anchor shows which manifest was changed."""
    value = getattr(SECOND, name)
    altered = replace(SECOND, **{name: value + 1 if isinstance(value, int) else value + "0"})
    assert why(FIRST, altered, THIRD) == [(1, 10)]
    assert why(FIRST, altered, anchors={1: SECOND.sha256}) == [(1, 10)]


def test_one_that_was_altered_accuses_nobody() -> None:
    assert why(FIRST, replace(SECOND, previous="0" * 64), THIRD) == [(1, 10)]


@pytest.mark.parametrize(
    ("count", "missing"), [(6, 0), (4, 0), (5, 1), (5, -1), (6, -1), (-1, 6)],
    ids=["one too many", "one too few", "a hole too many", "fewer than none missing", "both", "fewer than none"],
)  # fmt: skip
def test_numbers_that_do_not_fit_the_offsets_are_told_though_nobody_names_the_manifest(count: int, missing: int) -> None:
    (broken,) = broken_links("ledger.events", 0, [FIRST, replace(SECOND, count=count, missing=missing)], {})
    assert (broken.sequence, broken.reason) == (1, "its numbers of records do not fit its offsets")


def test_what_is_missing_repeated_or_swapped_is_told_by_its_offset() -> None:
    assert why(FIRST, None, THIRD) == [(1, 10)]
    assert why(None, SECOND) == [(0, 0)]
    assert why(FIRST, THIRD) == [(1, 10)]
    assert why(FIRST, FIRST) == [(1, 10)]
    assert why(SECOND, FIRST) == [(0, 0), (1, 15)]


def test_an_anchor_of_what_is_not_there() -> None:
    assert why(FIRST, None, anchors={1: SECOND.sha256}) == [(1, 10)]
    assert why(FIRST, anchors={0: "0" * 64}) == [(0, 0)]


class Counted(list):
    """A list that counts how many of its elements were read."""

    seen = 0

    def __getitem__(self, at):
        found = super().__getitem__(at)
        self.seen += len(found) if isinstance(at, slice) else 1
        return found

    def __iter__(self):
        return (self[at] for at in range(len(self)))


def test_it_costs_by_the_number_of_manifests_however_many_are_missing() -> None:
    """Anybody who can write may add one object with a high number. Then all manifests below it are missing."""
    manifests = Counted([FIRST, *[None] * 998, replace(THIRD, sequence=999)])
    assert why_of(manifests) == [(sequence, 10) for sequence in range(1, 999)]
    assert manifests.seen <= 4 * len(manifests)


def test_a_topic_made_anew_is_another() -> None:
    assert why(FIRST, replace(SECOND, topic_id="other")) == [(1, 10)]


@pytest.mark.parametrize("change", [
    lambda plain: plain.pop("root"), lambda plain: plain.update(more=1), lambda plain: plain.update(first="0"),
    lambda plain: plain.update(format=2), lambda plain: plain.update(first=True),
])  # fmt: skip
def test_what_is_no_manifest_is_refused(change: object) -> None:
    plain = asdict(FIRST)
    change(plain)  # type: ignore[operator]
    with pytest.raises(ValueError):
        decode(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode())


#: The same fields as FIRST in another order, so other bytes of the same length.
ANOTHER_ORDER = json.dumps(asdict(FIRST), separators=(",", ":")).encode()


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, FIRST.encode() + b"\n", ANOTHER_ORDER])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data)


FIELDS = st.tuples(
    st.integers(0, 2**62), st.integers(-1, 2**62), st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9),
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=4)), max_size=3).map(tuple),
)  # fmt: skip


@given(FIELDS, FIELDS)
def test_two_records_have_two_leaves(one: tuple, other: tuple) -> None:
    assert (leaf_of(*one) == leaf_of(*other)) == (one == other)


def test_the_leaf_of_a_record_stays_what_it_is() -> None:
    """The anchors that people keep were computed from these hashes."""
    found = leaf_of(7, 1_700_000_000_000, b"job/admitted", None, [("ce_id", b"x"), ("none", None)])
    assert found.hex() == "37d84cb4a4a687e9c96bf7c3cdc837edb1e8839af997627e62641cd978de3a9e"
