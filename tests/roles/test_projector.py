"""The projector on memory adapters: admission, publication, takeover, fencing, repair."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.adapters import avro
from ledger.adapters.memory.log import NoAnswer
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    IntentDeclared,
    IntentKind,
    JobAdmitted,
    JobResult,
    LeaderClaimed,
    Progress,
    SavepointDisposed,
)  # fmt: skip
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import (
    NOOP_KEY,
    PROGRESS_KEY,
    Admitted,
    Attempt,
    Checkpoint,
    Disposed,
    Ended,
    Intent,
    Result,
    Running,
    Spec,
    claim_key,
    key_of,
    partition_of,
)  # fmt: skip
from ledger.errors import Fenced
from ledger.roles.common.role_parts import ProjectorSettings
from tests.support.roles.world import EVENTS, PARTITIONS, RECOVERY, REJECTS, SPEC, World, run

AGENT = "agent-1"


def epoch_header(epoch: int) -> tuple[tuple[str, bytes], ...]:
    return (("ledger_epoch", str(epoch).encode()),)


def test_a_submitted_job_is_admitted_and_published() -> None:
    world = World()
    projector = world.projector()
    run(projector)
    world.submit("job-1")
    run(projector)
    entry = world.entry("job-1")
    assert entry is not None and entry.state is JobState.CREATED and entry.due and entry.epoch == 1
    assert key_of("job-1", Admitted()).encode() in world.values()
    assert projector.epoch == 1


def test_the_first_valid_spec_in_log_order_is_admitted_and_the_other_refused() -> None:
    world = World()
    projector = world.projector()
    first, second = replace(SPEC, name="first"), replace(SPEC, name="second")
    world.submit("job-1", first)
    world.submit("job-1", second)
    run(projector)
    entry = world.entry("job-1")
    assert entry is not None and entry.name == "first"
    values = world.values()
    assert key_of("job-1", Spec(avro.spec_digest(second))).encode() not in values
    assert b"another spec is admitted under this job id" in world.values(REJECTS).values()


def test_a_spec_with_a_wrong_digest_is_refused_and_the_valid_one_admitted() -> None:
    world = World()
    projector = world.projector()
    world.record("job-1", Spec("0" * 64), SPEC)
    world.submit("job-1", SPEC)
    run(projector)
    assert world.entry("job-1") is not None
    assert key_of("job-1", Spec("0" * 64)).encode() not in world.values()
    assert any(b"digest" in reason for reason in world.values(REJECTS).values())


def test_garbage_goes_to_rejects_and_stops_nothing() -> None:
    world = World()
    projector = world.projector()
    right = partition_of("job-1", PARTITIONS)
    world.raw(b"no register", b"x", 0)
    world.raw(b"job-1/running/1", b"not avro", right)
    world.raw(b"job-1/running/1", avro.encode(AttemptRunning("1")), 1 - right)
    world.raw(b"~claim/nobody", b"x", 0)
    world.submit("job-1")
    run(projector)
    assert len(world.values(REJECTS)) == 4
    assert world.entry("job-1") is not None
    before = len(world.log.records(REJECTS, 0))
    run(projector)
    assert len(world.log.records(REJECTS, 0)) == before


def test_a_bad_value_over_a_good_one_counts_as_absent() -> None:
    world = World()
    projector = world.projector()
    world.submit("job-1")
    world.record("job-1", Attempt(1, 1), AttemptStarted(avro.spec_digest(SPEC)))
    run(projector)
    entry = world.entry("job-1")
    assert entry is not None and entry.state is JobState.RUNNING
    world.raw(b"job-1/attempt/1/1", b"\xc3\x01 no such schema", partition_of("job-1", PARTITIONS))
    run(projector)
    entry = world.entry("job-1")
    assert entry is not None and entry.state is JobState.CREATED
    assert any(b"counts as absent" in reason for reason in world.values(REJECTS).values())


def test_due_is_set_by_the_leader_when_the_delay_has_passed() -> None:
    world = World()
    projector = world.projector()
    world.submit("job-1")
    world.record("job-1", Attempt(1, 1), AttemptStarted(avro.spec_digest(SPEC)))
    world.record("job-1", Ended(1, "failed", AGENT), AttemptEnded("boom"))
    run(projector)
    entry = world.entry("job-1")
    assert entry is not None and entry.state is JobState.RESTARTING and not entry.due
    assert entry.due_at == world.clock.time() + 1.0
    world.clock.advance(1.01)
    run(projector)
    after = world.entry("job-1")
    assert after is not None and after.due and after.due_at == entry.due_at


def test_a_successor_takes_over_due_at_and_a_wrong_clock_cannot_stall_a_job() -> None:
    world = World()
    first, second = world.projector("p1"), world.projector("p2")
    world.submit("job-1")
    world.record("job-1", Attempt(1, 1), AttemptStarted(avro.spec_digest(SPEC)))
    world.record("job-1", Ended(1, "failed", AGENT), AttemptEnded("boom"))
    run(first, second)
    stamped = world.entry("job-1")
    world.elections["projector"].holder = second._parts.leadership
    world.clock.jump(-3600)
    run(second)
    entry = world.entry("job-1")
    assert stamped is not None and entry is not None and entry.due_at == stamped.due_at and not entry.due
    world.clock.advance(1.01)
    run(second)
    entry = world.entry("job-1")
    assert entry is not None and entry.due


def test_progress_is_published_though_nothing_changes() -> None:
    world = World()
    projector = world.projector()
    run(projector)
    world.submit("job-1")
    world.raw(b"garbage", b"x", 0)
    world.clock.advance(1)
    run(projector)
    world.clock.advance(1)
    run(projector)
    published, reader = world.published(), world.log.reader([EVENTS])
    ends = reader.high_watermarks()
    assert {p: ends[EVENTS, p] for p in range(PARTITIONS)} == published.progress


def test_nothing_is_written_when_nothing_changes() -> None:
    world = World()
    projector = world.projector()
    world.submit("job-1")
    run(projector)
    world.clock.advance(30)
    run(projector)
    before = sum(len(world.log.records(RECOVERY, p)) for p in range(PARTITIONS))
    world.clock.advance(30)
    run(projector)
    assert sum(len(world.log.records(RECOVERY, p)) for p in range(PARTITIONS)) == before


def test_a_standby_leads_with_the_next_epoch_and_republishes_nothing() -> None:
    world = World()
    first, second = world.projector("p1"), world.projector("p2")
    for i in range(20):
        world.submit(f"job-{i}")
    run(first, second)
    meaning = world.meaning()
    entries = {e.job_id: e for e in world.published().entries.values()}
    world.elections["projector"].holder = second._parts.leadership
    run(second)
    assert second.epoch == 2
    assert world.meaning() == meaning
    assert {e.job_id: e for e in world.published().entries.values()} == entries


def test_a_stale_leader_writes_nothing_that_readers_see() -> None:
    """A leader has read facts to publish, and its lease is outdated. Another leader takes over and publishes before it
    writes."""
    world = World()
    first, second = world.projector("p1"), world.projector("p2")
    world.submit("job-1")
    run(first, second)
    lease, seen = first._parts.leadership, []

    class Lie:
        """A lease whose end the leader has not learned yet."""

        def valid(self) -> bool:
            if not seen:
                world.elections["projector"].holder = second._parts.leadership
                run(second)
                seen.append(world.published().entries)
                marks.update(world.log.reader([RECOVERY]).high_watermarks())
            return True

        def __getattr__(self, name: str) -> Any:
            return getattr(lease, name)

    marks: dict[Any, int] = {}
    world.record("job-1", Intent(1, "a"), IntentDeclared(IntentKind.SUSPEND, reason="why"))
    for part in (first.candidacy, first._term):
        part._leadership = Lie()  # type: ignore[union-attr]
    first.step()
    assert (first.epoch, second.epoch) == (0, 2)
    assert world.published().entries == seen[0] and seen[0]["job-1"].state is JobState.SUSPENDED
    assert world.log.reader([RECOVERY]).high_watermarks() == marks, "the stale leader has written nothing"


def test_a_zombies_late_record_is_written_over_by_the_leader() -> None:
    """A zombie's entry or tombstone follows a good entry. Readers drop it, but log compaction would remove the good
    entry."""
    world = World()
    projector = world.projector()
    world.submit("job-1")
    run(projector)
    place = partition_of("job-1", PARTITIONS)
    good = world.entry("job-1")
    for value in (None, avro.encode(replace(good, state=JobState.FINISHED))):  # type: ignore[type-var]
        world.elections["projector"].holder = None
        projector.step_down(Fenced("test"))
        run(projector)
        assert projector.epoch > 1
        world.raw(b"job-1", value, place, RECOVERY, epoch_header(1))
        run(projector)
        world.log.compact(RECOVERY)
        assert world.meaning()["job-1"] == replace(good, as_of=0, epoch=0)  # type: ignore[type-var]


def test_a_zombies_late_progress_is_written_over_though_nothing_has_changed() -> None:
    """Otherwise readers would not know the leader's progress, once log compaction has removed the leader's record."""
    world = World()
    projector = world.projector()
    world.submit("job-1")
    run(projector)
    projector.step_down(Fenced("test"))
    world.elections["projector"].holder = None
    run(projector)
    assert projector.epoch == 2
    progress = world.published().progress
    for partition in range(PARTITIONS):
        stale = avro.encode(Progress(partition, 0, 1))
        world.raw(PROGRESS_KEY.encode(), stale, partition, RECOVERY, epoch_header(1))
    world.clock.advance(10)
    run(projector)
    world.log.compact(RECOVERY)
    assert world.published().progress == progress
    assert progress.keys() == {*range(PARTITIONS)}


def test_the_takeover_compares_with_the_last_raw_record_not_with_what_readers_see() -> None:
    """The zombie's record came while there was no leader. The standby sees the good entry, but log compaction would
    remove it."""
    world = World()
    first = world.projector("p1")
    world.submit("job-1")
    run(first)
    first.step_down(Fenced("test"))
    second = world.projector("p2")
    world.elections["projector"].holder = object()
    run(second)
    good = world.meaning()["job-1"]
    world.raw(b"job-1", None, partition_of("job-1", PARTITIONS), RECOVERY, epoch_header(7))  # an unclaimed epoch
    run(second)
    world.elections["projector"].holder = None
    run(second)
    assert second.epoch == 8
    world.log.compact(RECOVERY)
    assert world.meaning()["job-1"] == good


def test_the_leader_stands_back_at_a_higher_claim() -> None:
    world = World()
    projector = world.projector()
    run(projector)
    claim = avro.encode(LeaderClaimed("projector", 9, "other"))
    world.raw(claim_key("projector", 9).encode(), claim, 0, RECOVERY, epoch_header(9))
    projector.step()
    assert projector.epoch == 0
    run(projector)
    assert projector.epoch == 10


def test_a_stale_candidate_wakes_up_after_its_lease_and_writes_nothing() -> None:
    world = World()
    first, second = world.projector("p1"), world.projector("p2")
    world.submit("job-1")
    run(first)
    before = [len(world.log.records(RECOVERY, p)) for p in range(PARTITIONS)]
    lease = second._parts.leadership
    lease.acquire = lambda: True  # type: ignore[method-assign]  # won long ago, and paused since
    second.step()
    assert second.epoch == 0
    assert [len(world.log.records(RECOVERY, p)) for p in range(PARTITIONS)] == before


def test_superseded_registers_are_pruned() -> None:
    world = World(ProjectorSettings(commit_interval_s=0.0, restore_points=2, history=2))
    projector = world.projector()
    world.submit("job-1")
    digest = avro.spec_digest(SPEC)
    for n in range(1, 5):
        world.record("job-1", Attempt(n, 1), AttemptStarted(digest))
        world.record("job-1", Running(n), AttemptRunning("x"))
        if n == 1:
            for i in range(5):
                world.record("job-1", Checkpoint(1, i), CheckpointCompleted(f"/c/{i}"))
        if n < 4:
            world.record("job-1", Ended(n, "stopped", AGENT), AttemptEnded(""))
    run(projector)
    left = {key.decode().removeprefix("job-1/") for key in world.values() if key.startswith(b"job-1/")}
    assert "checkpoint/1/0" not in left and "checkpoint/1/4" in left
    assert "running/1" not in left and "attempt/4/1" in left and "attempt/3/1" in left


def test_retirement_leaves_the_result_alone() -> None:
    world = World()
    projector = world.projector()
    world.submit("job-1")
    world.record("job-1", Attempt(1, 1), AttemptStarted(avro.spec_digest(SPEC)))
    world.record("job-1", Ended(1, "finished", AGENT), AttemptEnded(""))
    run(projector)
    entry = world.entry("job-1")
    assert entry is not None and entry.state is JobState.FINISHED and entry.graph is None
    assert set(entry.registers) == {
        "admitted", "attempt/1/1", "ended/1/finished/agent-1", f"spec/{avro.spec_digest(SPEC)}"
    }  # fmt: skip
    result = JobResult("name", "default", "memory", entry.digest, "", world.clock.time(), 1)
    world.record("job-1", Result("FINISHED"), result)
    run(projector)
    assert world.entry("job-1") is None
    assert [k for k in world.values() if k.startswith(b"job-1/")] == [b"job-1/result/FINISHED"]
    world.submit("job-1")  # a late copy of the spec resurrects nothing
    run(projector)
    assert world.entry("job-1") is None
    assert [k for k in world.values() if k.startswith(b"job-1/")] == [b"job-1/result/FINISHED"]


def test_what_is_never_admitted_is_collected() -> None:
    world = World(ProjectorSettings(commit_interval_s=0.0, collect_unadmitted_after_s=100))
    projector = world.projector()
    world.record("job-1", Running(1), AttemptRunning("x"))
    run(projector)
    world.clock.advance(50)
    run(projector)
    assert b"job-1/running/1" in world.values()
    world.clock.advance(60)
    run(projector)
    assert b"job-1/running/1" not in world.values()


def test_results_expire_where_a_retention_is_set() -> None:
    world = World(ProjectorSettings(commit_interval_s=0.0, result_retention_s=1000))
    projector = world.projector()
    world.record("job-1", Result("FINISHED"), JobResult("n", "d", "m", "0" * 64, "", world.clock.time(), 1))
    run(projector)
    world.clock.advance(900)
    run(projector)
    assert b"job-1/result/FINISHED" in world.values()
    world.clock.advance(200)
    run(projector)
    assert b"job-1/result/FINISHED" not in world.values()


def test_what_is_given_up_stays_with_the_result_and_expires_with_it() -> None:
    world = World(ProjectorSettings(commit_interval_s=0.0, result_retention_s=1000))
    projector = world.projector()
    world.record("job-1", Result("FINISHED"), JobResult("n", "d", "m", "0" * 64, "", world.clock.time(), 1))
    world.record("job-1", Disposed(1, 3, "u"), SavepointDisposed("/x/sav-3"))
    world.record("job-1", Running(1), AttemptRunning("17"))
    run(projector)
    run(projector)
    assert world.values().keys() == {b"job-1/result/FINISHED", b"job-1/disposed/1/3/u"} and world.entry("job-1") is None
    world.clock.advance(1100)
    run(projector)
    assert world.values() == {}


def test_a_standby_that_slept_reads_everything_anew() -> None:
    """Otherwise it would keep a job whose tombstones it never read."""
    world = World()
    world.log.delete_retention_s = 10.0
    first, second = world.projector("p1"), world.projector("p2")
    world.submit("job-1")
    run(first, second)
    for name, _ in list(world.values().items()):
        world.raw(name, None, partition_of("job-1", PARTITIONS))
    run(first)
    for _ in range(3):
        world.log.compact(EVENTS)
        world.clock.advance(20)
    world.clock.advance(4 * 86_400)
    world.elections["projector"].holder = second._parts.leadership
    run(second)
    assert world.entry("job-1") is None


def test_a_standby_that_never_comes_to_the_end_of_the_log_reads_everything_anew() -> None:
    """It reads more slowly than others write. Tombstones may be removed by log compaction before it reads them."""
    world = World(ProjectorSettings(commit_interval_s=0.0, records_max=1, forget_after_s=1000.0))
    world.elections["projector"].holder = object()
    standby = world.projector()
    table, job_ids = standby._table, iter(range(1000))
    for _ in range(12):
        for _ in range(3):
            world.submit(f"job-{next(job_ids)}")
        world.clock.advance(100.0)
        standby.step()
    assert standby._table is not table
    for _ in range(100):  # now it reaches the end
        standby.step()
    table = standby._table
    for _ in range(30):
        world.clock.advance(100.0)
        standby.step()
    assert standby._table is table


def test_a_job_is_admitted_once_only_when_read_back() -> None:
    world = World()
    projector = world.projector()
    world.submit("job-1")
    run(projector)
    run(projector)
    admitted = [r for p in range(PARTITIONS) for r in world.log.records(EVENTS, p) if r.key() == b"job-1/admitted"]
    assert len(admitted) == 1
    assert avro.decode(JobAdmitted, admitted[0].value() or b"").digest == avro.spec_digest(SPEC)


def test_a_spec_that_is_too_large_is_refused() -> None:
    world = World()
    projector = world.projector()
    world.submit("job-1", replace(SPEC, labels={"essay": "x" * 600_000}))
    run(projector)
    assert world.entry("job-1") is None
    assert any(b"the spec takes 600" in reason for reason in world.values(REJECTS).values())


@pytest.mark.parametrize(
    ("bytes_max", "why"),
    [(10_000, "it takes 13"), (1_000_000, "this RecoveryEntry takes 13")],
    ids=["more than the settings allow", "more than can be encoded"],
)
def test_an_entry_that_no_record_can_hold_quarantines_its_job_alone(bytes_max: int, why: str) -> None:
    """The spec just fits into a record. The entry repeats its labels and also holds restore points."""
    world = World(replace(World().settings, record_bytes_max=bytes_max))
    projector = world.projector()
    world.submit("good")
    world.submit("job-1", replace(SPEC, labels={"essay": "x" * (bytes_max * 4 // 10)}))
    run(projector)
    for i in range(3):
        world.record("job-1", Checkpoint(1, i), CheckpointCompleted("x" * (bytes_max * 3 // 10)))
    run(projector)
    entry, good = world.entry("job-1"), world.entry("good")
    assert entry is not None and entry.state is JobState.QUARANTINED
    assert entry.reason.startswith(f"its entry can't be published: {why}")
    assert good is not None and good.state is JobState.CREATED and projector.epoch == 1


def test_rejects_whose_transaction_came_to_nothing_are_written_by_the_next_term() -> None:
    world, wanted = World(), ["begin"]

    def fail(step: str) -> None:
        if wanted and step == wanted[0]:
            wanted.clear()
            raise NoAnswer

    projector = world.projector()
    run(projector, steps=3)
    world.raw(b"no register", b"x", 0)
    world.log.failpoint = fail
    run(projector, steps=6)
    assert not wanted and projector.epoch == 2
    assert [key for key in world.values(REJECTS) if key != NOOP_KEY.encode()]


def test_a_leader_that_slept_for_too_long_forgets_what_it_has_read() -> None:
    """It may have missed tombstones that log compaction has removed meanwhile."""
    world = World(ProjectorSettings(commit_interval_s=0.0, forget_after_s=1000.0))
    projector = world.projector()
    world.submit("job")
    for _ in range(300):  # a leader that makes steps keeps its state
        world.clock.advance(10.0)
        run(projector, steps=1)
    assert projector.epoch == 1
    table = projector._table
    world.clock.advance(2000.0)
    world.elections["projector"].holder = None
    run(projector, steps=6)
    assert projector.epoch == 2 and projector._table is not table
    assert world.entry("job") is not None
