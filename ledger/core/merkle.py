"""The hash tree of a list of leaves: one hash that stands for all, and short proofs that a leaf is one of them.

Leaves and inner nodes are hashed with different first bytes, so that no node can be shown as a leaf.
Source: RFC 9162 (Certificate Transparency 2.0), section 2.1. Hashes are SHA-256, 32 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

_LEAF, _NODE = b"\x00", b"\x01"


def leaf(data: bytes) -> bytes:
    """The hash of one entry."""
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
    """The hashes that lead from the leaf at `index` to the root: of each level, from the lowest, its neighbour.

    Raises: IndexError if there is no such leaf."""
    if not 0 <= index < len(leaves):
        raise IndexError(index)
    path, level = [], list(leaves)
    while len(level) > 1:
        if (neighbour := index ^ 1) < len(level):
            path.append(level[neighbour])
        level, index = _above(level), index >> 1
    return path


def root_from(proof: Sequence[bytes], leaf: bytes, index: int, size: int) -> bytes | None:
    """The root that a proof leads to, for the leaf at `index` of `size`; None if it has too few or too many hashes."""
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


def _above(level: Sequence[bytes]) -> list[bytes]:
    """The next level: pairs are joined; the last one without a partner goes up as it is."""
    pairs = [node(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
    return [*pairs, level[-1]] if len(level) % 2 else pairs
