"""An archive of a hundred thousand records in which one thing at a time is altered.

MUTATIONS=1000 .venv/bin/python -m pytest tests/archive/store/test_hundred_thousand.py -s --timeout 3600
"""

from __future__ import annotations

import os
import random
from collections import Counter
from itertools import count

import pytest

from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format.chain import Head
from ledger.archive.store.archive import Archive
from ledger.archive.store.verifying import verify, verify_partition
from tests.support.archives.given import TOPIC, records, sealed
from tests.support.archives.mutations import MUTATIONS

ROUNDS = int(os.environ.get("MUTATIONS", "60"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 + 6 * ROUNDS)]
PARTITIONS, EACH, SEGMENT = 20, 5_000, 250
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 10**6)


def test_it_is_proved_whole_and_only_where_nothing_was_altered() -> None:
    store = MemoryObjects()
    archive = Archive(store, "test", lambda: "2026-01-01T00:00:00Z")
    heads, offsets = list[Head](), list[list[int]]()
    for p in range(PARTITIONS):
        given = records(EACH, p, p)
        heads.append(sealed(archive, given, each=SEGMENT)[-1])
        offsets.append([one.offset() for one in given])
    assert sum(one.records for one in verify(archive, heads)) == PARTITIONS * EACH
    whole, found = dict(store.stored), Counter[str]()
    for number in count():
        if found.total() == ROUNDS:
            break
        mutation = MUTATIONS[number % len(MUTATIONS)]
        what = f"{mutation.__name__}, SEED={SEED}, number {number}"
        struck = mutation(random.Random(f"{SEED}/{number}"), archive, store.stored)
        if struck is not None:  # None: the mutation would have changed nothing
            partition, offset = struck
            verdict = verify_partition(store, TOPIC, partition, [heads[partition]])
            assert verdict.broken, f"{what}: not found"
            named = verdict.broken[0].offset
            assert named >= offset, f"{what}: named {named}, which is before {offset}"
            assert not [one for one in offsets[partition] if offset <= one < named], f"{what}: named {named}, not {offset}"
            assert verdict.proved <= named, f"{what}: proved up to {verdict.proved}"
            found[mutation.__name__] += 1
        store.stored = dict(whole)
    print(f"SEED={SEED}: {found.total()} mutations of {PARTITIONS * EACH} records, all found: {dict(found)}")
    assert set(found) == {mutation.__name__ for mutation in MUTATIONS}
