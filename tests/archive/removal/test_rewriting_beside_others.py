"""A rewrite of the archive that is killed at any point, or that runs in parallel with other writers."""

from __future__ import annotations

import random

import pytest

from ledger.archive.format.segments import store_segment
from ledger.archive.store.archive import Archive
from ledger.archive.store.chains import Chain
from ledger.archive.store.compaction import compact
from ledger.archive.store.verifying import verify
from ledger.ports import MemoryRecord
from ledger.util import failpoints
from tests.support.archives.days import BEGIN_MS, DAY_MS, LATER_S, an_archive, spread
from tests.support.archives.given import TOPIC, TOPIC_ID, Between, Dying, read_out
from tests.support.archives.taking import (
    AT,
    GONE,
    LEFT,
    SECRET,
    WANTED,
    check_remaining,
    must_be_gone,
    take_out,
    verdict_of,
)
from tests.support.repetitions import DEEP, one_fast

pytestmark = pytest.mark.slow

# -- kills, and two writers at once ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_anywhere_nothing_else_is_lost_and_the_next_one_goes_on() -> None:
    _, whole, anchors = an_archive()
    done = False
    for at in range(0, 60, 1 if DEEP else 3):
        store = Dying()
        store.stored, store.left = dict(whole.stored), at
        archive = Archive(store, "test", lambda: "2026-01-01T00:00:00Z")
        try:
            take_out(archive)
            done = True
        except KeyboardInterrupt:
            store.left = 10**9
            verdict = verdict_of(archive, [])
            assert verdict.broken == ()
            found = list(Archive(store).records(TOPIC, 0))
            assert found in (spread(0), LEFT)
        take_out(Archive(store, "test", lambda: "2026-01-01T00:00:00Z"))
        check_remaining(archive, anchors)
        must_be_gone(store)
        if done:
            break
    assert at > 0, "the rewrite was never killed"
    assert done, "the rewrite was killed at every point and never completed"


@pytest.mark.parametrize("name", ["rewrite.stored", "rewrite.noted", "rewrite.deleted"])
def test_each_failpoint_is_come_to_and_gone_on_from(name: str) -> None:
    archive, store, anchors = an_archive()
    failpoints.arm(f"{name}:raise@1")
    try:
        with pytest.raises(failpoints.Failed):
            take_out(archive)
    finally:
        failpoints.arm("")
    verdict = verdict_of(archive, [])
    assert verdict.broken == () and verdict.orphans  # the new objects or the old ones: no reader uses them
    take_out(archive)
    check_remaining(archive, anchors)
    must_be_gone(store)


def test_what_another_has_left_when_it_was_killed_is_deleted_if_it_holds_what_is_gone() -> None:
    """A killed rewrite stored an object without the expired records, and wrote no note. The records in it are redacted
    later."""
    archive, store, anchors = an_archive()
    failpoints.arm("rewrite.stored:raise")
    try:
        with pytest.raises(failpoints.Failed):
            take_out(archive, WANTED[:1])
    finally:
        failpoints.arm("")
    # a killed archiver left such an object too
    left = store_segment(store, 5, [one for one in spread(0) if one.offset() >= 5][:30], read_out)
    take_out(archive)
    assert left.records not in store.stored
    store.delete(left.leaves)
    check_remaining(archive, anchors)
    must_be_gone(store)


def test_what_another_takes_out_between_looking_and_saying_is_not_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    archive, store, anchors = an_archive()
    load, turns = archive.chain, iter([True])

    def chain(topic: str, partition: int) -> Chain:
        found = load(topic, partition)
        if next(turns, False):  # and it is killed before it deletes the old objects
            failpoints.arm("rewrite.noted:raise")
            with pytest.raises(failpoints.Failed):
                take_out(Archive(store, "another", lambda: AT), WANTED[1:])
            failpoints.arm("")
        return found

    monkeypatch.setattr(archive, "chain", chain)
    take_out(archive, WANTED[:1])
    check_remaining(archive, anchors, strays=True)
    must_be_gone(store)


@pytest.mark.parametrize("where", ["compact.stored", "rewrite.stored"])
def test_who_joins_and_who_rewrites_see_each_other(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one has stored an object and not named it yet; then the other one runs."""
    archive, store, anchors = an_archive()
    turns = iter([True])

    def hit(name: str) -> None:
        if name == where and next(turns, False):
            other = Archive(store, "another", lambda: AT)
            compact(other, LATER_S) if where == "rewrite.stored" else take_out(other)

    monkeypatch.setattr(failpoints, "hit", hit)
    compact(archive, LATER_S) if where == "compact.stored" else take_out(archive)
    take_out(archive)
    assert list(Archive(store).records(TOPIC, 0)) == LEFT
    compact(archive, LATER_S)
    check_remaining(archive, anchors, strays=True)
    must_be_gone(store)


@pytest.mark.parametrize("seed", one_fast(range(6)))
def test_beside_who_joins_who_rewrites_and_an_archiver(seed: int) -> None:
    _, whole, _ = an_archive()
    store, drawn = Between(), random.Random(seed)
    store.stored = dict(whole.stored)
    archive, head = Archive(store, "one", lambda: AT), Archive(store).head(TOPIC, 0)
    added = 0

    def other() -> None:
        nonlocal head, added
        match drawn.randrange(10):
            case 0:
                compact(Archive(store, "two", lambda: AT), LATER_S)
            case 1:
                take_out(Archive(store, "three", lambda: AT), WANTED[1:])
            case 2:
                record = MemoryRecord(TOPIC, 0, head.next, b"job/admitted", b"x", (), BEGIN_MS + 30 * DAY_MS)
                head = Archive(store, "four", lambda: AT).head(TOPIC, 0)
                head = Archive(store, "four").seal(head, TOPIC_ID, store_segment(store, head.next, [record], read_out))
                added += 1
            case 3:
                assert verify(Archive(store))[0].broken == ()

    store.other = other
    take_out(archive)
    compact(archive, LATER_S)
    store.other = lambda: None
    take_out(archive)
    compact(archive, LATER_S)
    found = list(Archive(store).records(TOPIC, 0))
    assert found[: len(LEFT)] == LEFT and len(found) == len(LEFT) + added
    verdict = verify(Archive(store), [archive.head(TOPIC, 0)])[0]
    assert (verdict.broken, verdict.expired, verdict.redacted) == ((), len(GONE), len(SECRET))
    must_be_gone(store)
