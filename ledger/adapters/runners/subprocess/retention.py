"""Decides which checkpoint files no attempt will ever start from again. Pure functions.

The fold offers restore points along a chain: the newest of the highest attempt, then down from base to base. Retention
keeps every checkpoint that the fold may offer. These are the newest KEEP of that chain, whether it begins with the
highest attempt or with the highest one that has checkpoints. Every base of an attempt that is not over is kept too.
Savepoints are deleted only when they are disposed of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ledger.core.fold.restore_points import RESTORE_POINTS
from ledger.core.model.facts import CheckpointKind

KEEP = RESTORE_POINTS
CheckpointKey = tuple[int, int]  # attempt, checkpoint id


class AttemptCheckpoints(NamedTuple):
    """An attempt as retention sees it. base: the checkpoint of this job that the attempt started from; None = none.
    checkpoints: those in the log whose files are on this host, id -> kind. over: whether the attempt has ended."""

    base: CheckpointKey | None
    checkpoints: Mapping[int, CheckpointKind]
    over: bool


def subsumed(attempts: Mapping[int, AttemptCheckpoints], keep: int = KEEP) -> list[CheckpointKey]:
    """The checkpoints whose files can be deleted, because newer checkpoints that are in the log replace them."""
    if not attempts:
        return []
    top = max(attempts)
    holders = [n for n, attempt in attempts.items() if attempt.checkpoints]
    if not holders:
        return []
    kept = set(islice(_downwards(attempts, top, None), keep))
    kept |= set(islice(_downwards(attempts, max(holders), None), keep))
    if len(kept) < keep:
        return []  # there are not enough newer checkpoints yet to replace any
    kept |= {attempt.base for n, attempt in attempts.items() if attempt.base and (n == top or not attempt.over)}
    return sorted(
        (n, number)
        for n, attempt in attempts.items()
        for number, kind in attempt.checkpoints.items()
        if kind is CheckpointKind.CHECKPOINT and (n, number) not in kept
    )


def _downwards(attempts: Mapping[int, AttemptCheckpoints], n: int, below: int | None) -> Iterator[CheckpointKey]:
    """The chain that starts at attempt n's checkpoint `below` (None: its newest): each attempt's own, then its
    base's."""
    seen: set[int] = set()
    while n in attempts and n not in seen:
        seen.add(n)
        ids: Sequence[int] = sorted(attempts[n].checkpoints, reverse=True)
        yield from ((n, number) for number in ids if below is None or number <= below)
        base = attempts[n].base
        if base is None:
            return
        n, below = base
