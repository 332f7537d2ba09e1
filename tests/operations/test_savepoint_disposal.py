"""`savepoint list` and `savepoint dispose`, as a library. A disposal is recorded before the deletion, and savepoints in
use are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.adapters import avro
from ledger.adapters.memory.sender import MemorySender
from ledger.config.config import load_config
from ledger.core.garbage import Kind
from ledger.core.model.facts import (
    CheckpointKind,
    CheckpointRetention,
    IntentKind,
    Replacement,
    RestorePoint,
    SavepointDisposed,
    SavepointPolicy,
)  # fmt: skip
from ledger.errors import NotFound, OutcomeUnknown, Refused, Unreachable, UsageError
from ledger.operations.client import Client
from ledger.ports import Runner
from ledger.producer.recorder import Recorder
from ledger.util import failpoints
from tests.operations.collecting import DAY_S, Collecting, wheres
from tests.support.roles.world import SPEC, Killed

SAV = CheckpointKind.SAVEPOINT


class Disposing(Collecting):
    """A ledger whose roles make steps whenever somebody waits."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        sender = MemorySender(self.log)
        self.recorder = Recorder(
            "cli", config=load_config(folder), sender=sender, clock=self.clock, actor="ann@here", new_id=self.new_id
        )
        self.working, self._stepping = True, False
        move, self.clock.sleep = self.clock.sleep, lambda seconds: (move(seconds), self.step())  # type: ignore

    def step(self) -> None:
        if self.working and not self._stepping:
            self._stepping = True
            self.go(2, 0.01)
            self._stepping = False

    def client(self) -> Client:
        return Client(
            self.source(), lambda: nullcontext(self.recorder), self.blobs, digest=avro.spec_digest,
            new_id=self.new_id, actor="ann@here",
        )  # fmt: skip

    def runners(self) -> Mapping[str, Runner]:
        return {"memory": self.runner}

    def runs(self, job_id: str = "job", **fields: object) -> None:
        """Starts a job with savepoints 1/1 and 1/3, and checkpoints 1/2 and 1/4."""
        self.job(job_id, replace(SPEC, **fields))  # type: ignore[arg-type]
        self.go()
        for id_ in (1, 2, 3, 4):
            self.runner.checkpoint(job_id, 1, id_, kind=SAV if id_ % 2 else CheckpointKind.CHECKPOINT)
        self.go(4)

    def retired(self, job_id: str = "job", **fields: object) -> None:
        self.runs(job_id, **fields)
        self.runner.end(job_id, 1)
        self.go(20)
        assert self.registers(job_id) == {"result/FINISHED"}

    def dispose(self, which: str, job_id: str = "job") -> RestorePoint | None:
        return self.client().dispose(job_id, which, self.runners, reason="the disk is full")

    def listed(self, job_id: str = "job") -> dict[str, str]:
        return {str(one.point): one.state for one in self.client().savepoints(job_id, self.runners)}

    def disposals(self) -> list[str]:
        return sorted(key.decode().rpartition("/")[0] for key in self.values() if b"/disposed/" in key)

    def stored(self) -> list[str]:
        return sorted(name.removeprefix("/memory/") for name in self.runner.stored if "sav" in name)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Disposing]:
    yield Disposing(tmp_path)
    failpoints.arm("")


# -- savepoints of live jobs -------------------------------------------------------------------------------------------


def test_it_is_recorded_with_its_reason_deleted_and_gone(cluster: Disposing) -> None:
    cluster.runs()
    assert cluster.listed() == {"1/1": "kept", "1/3": "offered"}
    point = cluster.dispose("1/3")
    assert point is not None and str(point) == "1/3"
    assert cluster.stored() == ["job/1/sav-1"] and set(cluster.listed()) == {"1/1"}
    (held,) = [value for key, value in cluster.values().items() if b"/disposed/" in key]
    fact = avro.decode(SavepointDisposed, held)
    assert (fact.reason, fact.actor, fact.location) == ("the disk is full", "ann@here", "/memory/job/1/sav-3")
    cluster.runner.kill("job", 1)
    cluster.go()
    assert cluster.starts()[-1] == (2, "1/4")


def test_by_its_location(cluster: Disposing) -> None:
    cluster.runs()
    cluster.dispose("/memory/job/1/sav-1")
    assert cluster.stored() == ["job/1/sav-3"]


def test_the_same_again_changes_nothing(cluster: Disposing) -> None:
    cluster.runs()
    cluster.dispose("1/1")
    assert cluster.dispose("1/1") is None and cluster.dispose("/memory/job/1/sav-1") is None
    assert cluster.disposals() == ["job/disposed/1/1"]


def test_what_is_no_savepoint(cluster: Disposing) -> None:
    cluster.runs()
    with pytest.raises(UsageError, match="no savepoint 1/9") as told:
        cluster.dispose("1/9")
    assert told.value.hint == "It has: 1/1, 1/3."
    with pytest.raises(UsageError, match="1/4 is a checkpoint that job made by itself"):
        cluster.dispose("1/4")
    with pytest.raises(NotFound):
        cluster.dispose("1/1", "nobody")
    assert cluster.disposals() == []


def test_the_base_of_an_attempt_that_is_not_over_is_refused(cluster: Disposing) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.checkpoint("job", 1, 1, kind=SAV)
    cluster.runner.kill("job", 1)
    cluster.go()
    cluster.runner.checkpoint("job", 2, 2)
    cluster.go(4)
    with pytest.raises(Refused, match="Attempt 2 of job, which is not over, began from 1/1"):
        cluster.dispose("1/1")
    cluster.runner.kill("job", 2)
    cluster.go()
    assert cluster.starts()[-1] == (3, "2/2")
    cluster.dispose("1/1")
    assert cluster.stored() == []


def test_all_that_a_job_could_begin_from_is_refused(cluster: Disposing) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.checkpoint("job", 1, 1, kind=SAV)
    cluster.intend("job", IntentKind.SUSPEND)
    cluster.go()
    with pytest.raises(Refused, match="1/1 is the only restore point of job"):
        cluster.dispose("1/1")
    assert cluster.disposals() == [] and cluster.stored() == ["job/1/sav-1"]


def test_what_is_to_be_tried_again_from_is_refused(cluster: Disposing) -> None:
    cluster.runs()
    cluster.intend("job", IntentKind.RETRY, attempt=1, from_="1/1")
    cluster.go(4)
    with pytest.raises(Refused, match="retry of job starts from 1/1"):
        cluster.dispose("1/1")


def test_what_another_job_began_from_is_refused_until_that_is_over(cluster: Disposing) -> None:
    cluster.runs()
    cluster.job("other", replace(SPEC, restore_from=RestorePoint(0, 0, "/memory/job/1/sav-1", 1)))
    cluster.go()
    assert cluster.starts("other") == [(1, "/memory/job/1/sav-1")]
    with pytest.raises(Refused, match="other, which is not over, began from 1/1 of job"):
        cluster.dispose("1/1")
    assert [one.needed_by for one in cluster.client().savepoints("job", cluster.runners)] == [("other",), ()]
    cluster.runner.end("other", 1)
    cluster.go(20)
    cluster.dispose("1/1")
    assert cluster.stored() == ["job/1/sav-3"]


def test_what_a_job_that_takes_over_may_begin_from_is_refused(cluster: Disposing) -> None:
    """The refusal lasts until the new job has its own checkpoint."""
    cluster.runs()
    cluster.runner.obedient = False  # the old job does not stop yet
    cluster.job("new", replace(SPEC, replaces="job", replacement=Replacement("latest")))
    cluster.go(8)
    with pytest.raises(Refused, match="new is to take over from job, and may begin from 1/3"):
        cluster.dispose("1/3")
    cluster.runner.end("job", 1)
    cluster.go(8)
    assert [n for n, _ in cluster.starts("new")] == [1]
    with pytest.raises(Refused, match="new"):
        cluster.dispose("1/3")


def test_a_need_that_comes_after_the_record_is_respected_all_the_same(cluster: Disposing) -> None:
    cluster.runs()

    def late(name: str) -> None:
        if name == "dispose.unrecorded":
            cluster.job("other", replace(SPEC, restore_from=RestorePoint(0, 0, "/memory/job/1/sav-1", 1)))
            cluster.go()

    failpoints.hit = late
    with pytest.raises(OutcomeUnknown, match="disposed of, but was not deleted"):
        cluster.client().dispose("job", "1/1", cluster.runners, reason="r", timeout_s=1.0)
    assert cluster.listed() == {"1/1": "given up", "1/3": "offered"}
    assert cluster.stored() == ["job/1/sav-1", "job/1/sav-3"]
    cluster.runner.end("other", 1)
    cluster.go(20)
    assert cluster.stored() == ["job/1/sav-3"]


def test_periodic_ones_are_told_from_those_that_people_asked_for(cluster: Disposing) -> None:
    cluster.runs(savepoint_policy=SavepointPolicy(60.0))
    cluster.clock.advance(61.0)
    cluster.go()
    cluster.runner.checkpoint("job", 1, 9, kind=SAV)
    cluster.go(4)
    found = {str(one.point): (one.periodic, one.made_at is not None) for one in cluster.client().savepoints("job", dict)}
    assert found == {"1/1": (False, True), "1/3": (False, True), "1/9": (True, True)}


# -- savepoints of terminal jobs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("retention", [CheckpointRetention.DELETE, CheckpointRetention.KEEP])
def test_savepoints_of_a_retired_job_are_listed_and_disposed_of(cluster: Disposing, retention: CheckpointRetention) -> None:
    cluster.retired(checkpoint_retention=retention)
    checkpoints = [name for name in cluster.runner.stored if "chk" in name]
    assert cluster.listed() == {"1/1": "kept", "1/3": "kept"}
    assert cluster.dispose("1/3") is not None
    assert cluster.stored() == ["job/1/sav-1"] and set(cluster.listed()) == {"1/1"}
    cluster.go(20)
    assert cluster.disposals() == ["job/disposed/1/3"], "the disposal stays with the result"
    assert cluster.dispose("1/3") is None
    assert [name for name in cluster.runner.stored if "chk" in name] == checkpoints, "the checkpoints are unchanged"
    assert cluster.state("job") == "none" and cluster.runner.observe() == []


def test_what_another_job_began_from_stays_also_when_its_own_is_retired(cluster: Disposing) -> None:
    cluster.retired()
    cluster.job("other", replace(SPEC, restore_from=RestorePoint(0, 0, "/memory/job/1/sav-1", 1)))
    cluster.go()
    with pytest.raises(Refused, match="other"):
        cluster.dispose("1/1")
    assert cluster.disposals() == []


def test_a_runner_that_is_away_can_list_and_delete_nothing(cluster: Disposing) -> None:
    cluster.retired()
    cluster.runner.up = False
    with pytest.raises(Unreachable):
        cluster.dispose("1/1")
    assert cluster.disposals() == []


@pytest.mark.parametrize("retired", [False, True])
@pytest.mark.parametrize("point", ["dispose.unrecorded", "dispose.recorded"])
def test_a_command_that_is_killed_is_given_again(cluster: Disposing, point: str, retired: bool) -> None:
    (cluster.retired if retired else cluster.runs)()

    def end(name: str) -> None:
        if name == point:
            raise Killed

    failpoints.hit = end
    with pytest.raises(Killed):
        cluster.dispose("1/1")
    failpoints.arm("")
    assert cluster.stored() == ["job/1/sav-1", "job/1/sav-3"]
    cluster.dispose("1/1")
    assert cluster.stored() == ["job/1/sav-3"] and cluster.disposals() == ["job/disposed/1/1"]


def test_the_collector_finds_what_a_command_that_was_killed_has_left(cluster: Disposing) -> None:
    cluster.retired()
    failpoints.arm("dispose.recorded:raise")
    with pytest.raises(failpoints.Failed):
        cluster.dispose("1/1")
    failpoints.arm("")
    assert cluster.look().orphans == (), "the savepoint is too young"
    cluster.clock.advance(2 * DAY_S)
    cluster.go(4)
    (orphan,) = cluster.look().orphans
    assert (orphan.item.kind, orphan.item.where) == (Kind.SAVEPOINT, "/memory/job/1/sav-1")
    assert orphan.evidence == "it was disposed of, the job is FINISHED and retired, and no job begins from it"
    assert wheres(cluster.collect().deleted) == ["/memory/job/1/sav-1"]
    assert cluster.stored() == ["job/1/sav-3"] and cluster.look().orphans == ()


def test_the_collector_leaves_what_a_job_began_from(cluster: Disposing) -> None:
    cluster.retired()
    failpoints.arm("dispose.recorded:raise")
    with pytest.raises(failpoints.Failed):
        cluster.dispose("1/1")
    failpoints.arm("")
    cluster.job("other", replace(SPEC, restore_from=RestorePoint(0, 0, "/memory/job/1/sav-1", 1)))
    cluster.go()
    cluster.clock.advance(2 * DAY_S)
    cluster.go(4)
    assert cluster.look().orphans == ()


def test_the_collector_leaves_savepoints_that_nobody_disposed_of(cluster: Disposing) -> None:
    cluster.retired()
    cluster.clock.advance(20 * DAY_S)
    cluster.go(4)
    assert cluster.collect().orphans == () and len(cluster.stored()) == 2
