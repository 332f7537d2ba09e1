"""A thousand moments of one long history under repeated log compaction: each answer equals a fold of the full copy.

MOMENTS=1000 .venv/bin/python -m pytest tests/history/test_resolve_moment.py -s --timeout 3600
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import structlog

from ledger.history.moment import Moment, vector
from ledger.history.resolve_moment import as_of
from ledger.ports import TopicPartition
from ledger.reader.reading import entries_of
from tests.support.remembered import LAG_S, Remembered, a_life, folded_from, refolded, republished

MOMENTS = int(os.environ.get("MOMENTS", "80"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 + 6 * MOMENTS)]
TURNS = 400
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 10**6)


def test_each_is_what_the_full_copy_says_with_snapshots_and_without(tmp_path: Path) -> None:
    with structlog.testing.capture_logs():
        world, moments = a_life(tmp_path, SEED, TURNS)
    drawn = random.Random(SEED)
    seen, jobs, removed = 0, set[str](), len(world.copy) - _left(world)
    assert removed > len(world.copy) / 4, f"SEED={SEED}: compaction has removed enough records"
    kinds = {"whole": (world.archived(), False), "thin": (world.with_snapshots(), True)}
    for number in range(MOMENTS):
        time_s = drawn.uniform(moments[0], world.clock.time())
        listed, logged = republished(world, time_s), refolded(world, time_s)
        for kind, (archived, thin) in kinds.items():
            source, cut = as_of(world.source(), Moment(time_s=time_s), archived, LAG_S, thin=thin)
            what = f"SEED={SEED}, number {number}, {kind}, as of {vector(cut)}"
            assert entries_of(source) == listed, what
            assert folded_from(source) == logged, what
        seen, jobs = seen + 1, jobs | listed.keys()
    print(f"SEED={SEED}: {seen} moments of {len(world.copy)} records, of which compaction had removed {removed}, "
          f"{len(jobs)} jobs")  # fmt: skip


def _left(world: Remembered) -> int:
    places: list[TopicPartition] = list(world.log.reader(list(LAG_S)).high_watermarks())
    return sum(len(world.log.records(*place)) for place in places)
