"""The hash tree of a list of leaves: one hash stands for all leaves, and short proofs show that a leaf is one of them.

Leaves and inner nodes are hashed with different first bytes, so that no node can be presented as a leaf.
Source: RFC 9162 (Certificate Transparency 2.0), section 2.1. Hashes are SHA-256, 32 bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256

_LEAF, _NODE = b"\x00", b"\x01"


def leaf(data: bytes) -> bytes:
    """The hash of a leaf with this data."""
    return sha256(_LEAF + data).digest()


def node(left: bytes, right: bytes) -> bytes:
    return sha256(_NODE + left + right).digest()


def root(leaves: Sequence[bytes]) -> bytes:
    """The hash of the tree over hashed leaves, in this order."""
    if not leaves:
        return sha256(b"").digest()
    level = list(leaves)
    while len(level) > 1:
        level = _above(level)
    return level[0]


def proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The hashes that lead from the leaf at `index` to the root: the neighbour on each level, from the lowest level on.

    Raises: IndexError if there is no such leaf.
    """
    if not 0 <= index < len(leaves):
        raise IndexError(index)
    path, level = [], list(leaves)
    while len(level) > 1:
        if (neighbour := index ^ 1) < len(level):
            path.append(level[neighbour])
        level, index = _above(level), index >> 1
    return path


def root_from(proof: Sequence[bytes], leaf: bytes, index: int, size: int) -> bytes | None:
    """The root that a proof leads to, for the leaf at `index` of `size`; None if the proof has too few or too many
    hashes."""
    if not 0 <= index < size:
        return None
    hashed, left = leaf, list(proof)
    while size > 1:
        if index ^ 1 < size:
            if not left:
                return None
            neighbour = left.pop(0)
            hashed = node(neighbour, hashed) if index & 1 else node(hashed, neighbour)
        index, size = index >> 1, (size + 1) >> 1
    return None if left else hashed


def others(leaves: Sequence[bytes], shown: Collection[int]) -> list[bytes]:
    """One proof for many leaves: the nodes that are needed, besides the shown leaves, to compute the root. shown: the
    indexes of those leaves.

    The nodes are listed by level, from the lowest on, and in order: the neighbours of nodes that can be computed. [] if
    all leaves are shown.
    """
    level, known, found = list(leaves), set(shown), list[bytes]()
    while len(level) > 1:
        found += [level[i ^ 1] for i in sorted(known) if i ^ 1 < len(level) and i ^ 1 not in known]
        level, known = _above(level), {i >> 1 for i in known}
    return found


def rebuilt(shown: Mapping[int, bytes], others: Sequence[bytes], size: int) -> list[dict[int, bytes]] | None:
    """The levels of a tree of `size` leaves, as far as they are known: index -> node. The root is node 0 of the last
    level. None if `others` has too few or too many nodes.

    shown: index -> leaf. others: as the function `others` returns. On each level with more than one node, all
    neighbours are known.
    """
    if not shown or min(shown) < 0 or max(shown) >= size:
        return None
    level, left, levels = dict(shown), list(reversed(others)), list[dict[int, bytes]]()
    while size > 1:
        for i in sorted(level):
            if i ^ 1 < size and i ^ 1 not in level:
                if not left:
                    return None
                level[i ^ 1] = left.pop()
        levels.append(level)
        firsts = {i & ~1 for i in level}
        level = {i >> 1: node(level[i], level[i + 1]) if i + 1 < size else level[i] for i in firsts}
        size = (size + 1) >> 1
    return None if left else [*levels, level]


def path_in(levels: Sequence[Mapping[int, bytes]], index: int) -> list[bytes]:
    """The proof of one shown leaf, as `proof` returns it, from a rebuilt tree. Raises: KeyError if that leaf was not
    shown."""
    if index not in levels[0]:
        raise KeyError(index)
    return [level[above ^ 1] for n, level in enumerate(levels[:-1]) if (above := index >> n) ^ 1 in level]


def _above(level: Sequence[bytes]) -> list[bytes]:
    """The next level: pairs are joined, and a last node without a partner moves up unchanged."""
    pairs = [node(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
    return [*pairs, level[-1]] if len(level) % 2 else pairs
