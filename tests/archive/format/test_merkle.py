"""The hash tree, compared with a literal implementation of RFC 9162."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.archive.format import merkle

ENTRIES = st.lists(st.binary(max_size=4), max_size=70)


def by_the_book(entries: list[bytes]) -> bytes:
    """Section 2.1.1: of n > 1 entries, hash the trees over the first k and over the rest; k is the largest power of two
    < n."""
    if not entries:
        return sha256(b"").digest()
    if len(entries) == 1:
        return sha256(b"\x00" + entries[0]).digest()
    k = 1 << ((len(entries) - 1).bit_length() - 1)
    return sha256(b"\x01" + by_the_book(entries[:k]) + by_the_book(entries[k:])).digest()


@given(ENTRIES)
def test_the_root_is_that_of_the_definition(entries: list[bytes]) -> None:
    assert merkle.root([merkle.leaf(entry) for entry in entries]) == by_the_book(entries)


@given(ENTRIES.filter(bool), st.data())
def test_a_proof_leads_from_each_leaf_to_the_root(entries: list[bytes], data: st.DataObject) -> None:
    leaves = [merkle.leaf(entry) for entry in entries]
    index = data.draw(st.integers(0, len(leaves) - 1))
    assert merkle.root_from(merkle.proof(leaves, index), leaves[index], index, len(leaves)) == merkle.root(leaves)


@given(ENTRIES.filter(lambda entries: len(entries) > 1), st.data())
def test_a_proof_of_anything_else_leads_elsewhere(entries: list[bytes], data: st.DataObject) -> None:
    leaves = [merkle.leaf(entry) for entry in entries]
    index = data.draw(st.integers(0, len(leaves) - 1))
    path, root = merkle.proof(leaves, index), merkle.root(leaves)
    assert merkle.root_from(path, merkle.leaf(b"other"), index, len(leaves)) != root
    assert merkle.root_from(path[:-1], leaves[index], index, len(leaves)) is None
    assert merkle.root_from([*path, leaves[0]], leaves[index], index, len(leaves)) is None
    assert merkle.root_from(path, leaves[index], len(leaves), len(leaves)) is None


@given(ENTRIES.filter(bool), st.data())
def test_one_proof_for_many_leaves_leads_to_the_root_and_gives_each_its_own(
    entries: list[bytes], data: st.DataObject
) -> None:
    leaves = [merkle.leaf(entry) for entry in entries]
    shown = data.draw(st.sets(st.integers(0, len(leaves) - 1), min_size=1))
    others = merkle.others(leaves, shown)
    levels = merkle.rebuilt({i: leaves[i] for i in shown}, others, len(leaves))
    assert levels is not None and levels[-1] == {0: merkle.root(leaves)}
    assert len(others) <= sum(len(merkle.proof(leaves, i)) for i in shown) and (len(shown) < len(leaves) or not others)
    for i in shown:
        assert merkle.path_in(levels, i) == merkle.proof(leaves, i)
    with pytest.raises(KeyError):
        merkle.path_in(levels, len(leaves) + 1)
    assert merkle.rebuilt({i: leaves[i] for i in shown}, [*others, leaves[0]], len(leaves)) is None
    if others:
        assert merkle.rebuilt({i: leaves[i] for i in shown}, others[:-1], len(leaves)) is None
    for wrong in ({}, {-1: leaves[0]}, {len(leaves): leaves[0]}):
        assert merkle.rebuilt(wrong, others, len(leaves)) is None


def test_no_node_can_be_shown_as_a_leaf() -> None:
    a, b = merkle.leaf(b"a"), merkle.leaf(b"b")
    assert merkle.leaf(a + b) != merkle.root([a, b])


def test_there_is_no_proof_of_what_is_not_there() -> None:
    for index in (-1, 1):
        with pytest.raises(IndexError):
            merkle.proof([merkle.leaf(b"a")], index)
