"""Requests that are refused for a job that restores by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ledger.core.model.facts import AttemptEnded, CheckpointCompleted, IntentKind, RestoreBy, RestorePoint
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Checkpoint, Ended
from ledger.errors import UsageError
from tests.support.operated import Operated, spec


@pytest.fixture
def world(tmp_path: Path) -> Operated:
    return Operated(tmp_path)


@pytest.fixture
def failed(world: Operated) -> str:
    job_id = world.started(restore=RestoreBy.EXTERNAL)
    world.record(job_id, Checkpoint(1, 3), CheckpointCompleted("/chk-3"))
    world.record(job_id, Ended(1, "failed", "agent-a"), AttemptEnded("exit code 1"))
    world.now(job_id)
    return job_id


@pytest.mark.parametrize("from_", ["1/3", "scratch"])
def test_a_retry_from_somewhere_is_refused_and_one_without_goes_on(world: Operated, failed: str, from_: str) -> None:
    with pytest.raises(UsageError, match=r"restores by itself \(restore: external\): --from") as told:
        world.client().declare(failed, IntentKind.RETRY, reason="again", from_=from_)
    assert "without --from" in told.value.hint
    world.client().declare(failed, IntentKind.RETRY, reason="again")
    assert world.now(failed).state is JobState.RESTARTING


def test_to_begin_from_a_restore_point_is_refused(world: Operated) -> None:
    with pytest.raises(UsageError, match="can't begin --from"):
        world.started(restore=RestoreBy.EXTERNAL, restore_from=RestorePoint(0, 0, "/chk-9"))
    assert world.client().entries() == {}


def test_a_replacement_restores_in_the_same_way(world: Operated) -> None:
    old = world.started(restore=RestoreBy.EXTERNAL)
    new = spec(restore=RestoreBy.EXTERNAL, priority=3)
    with pytest.raises(UsageError, match="has restore: external"):
        world.client().replace(old, replace(new, restore=RestoreBy.LEDGER), world.graph("new"))
    for from_ in ("1/3", "scratch", "/chk-9"):
        with pytest.raises(UsageError, match="would have no effect"):
            world.client().replace(old, new, world.graph("new"), from_=from_)
    job_id = world.client().replace(old, new, world.graph("new"))
    assert world.now(job_id).restore is RestoreBy.EXTERNAL
