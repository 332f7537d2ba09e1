"""`jobledger gc`, as a library: it finds data left by crashes, and deletes no data that a job needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters.memory.blobs import MemoryBlobs
from ledger.core.model.facts import CheckpointKind, CheckpointRetention, IntentDeclared, IntentKind
from ledger.core.model.registers import Admitted, Intent, Spec, partition_of
from ledger.errors import Unreachable, UsageError
from ledger.operations import collecting
from ledger.operations.collecting import DeletionLog, collect, look
from ledger.ports import Event
from ledger.reader.reading import Source
from ledger.util import failpoints
from tests.operations.collecting import DAY_S, Collecting, wheres
from tests.support.operated import Operated, spec
from tests.support.roles.world import EVENTS, PARTITIONS, RECONCILER, RECOVERY, SPEC, Killed


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


@pytest.fixture
def cluster(tmp_path: Path) -> Collecting:
    return Collecting(tmp_path)


def test_a_graph_that_nobody_recorded_is_found_with_its_evidence_and_deleted_with_a_record(cluster: Collecting) -> None:
    kept = cluster.job("live").graph.uri
    cluster.go()
    uri = cluster.put("lost")
    assert cluster.look().orphans == () and cluster.look().young == 1
    cluster.clock.advance(2 * DAY_S)
    cluster.go(2)
    (orphan,) = cluster.look().orphans
    partition = partition_of("lost", PARTITIONS)
    end = cluster.log.reader([EVENTS]).high_watermarks()[EVENTS, partition]
    assert orphan.evidence == f"no register of this job in the log up to ledger.events[{partition}]@{end}"
    assert (orphan.item.where, orphan.item.size) == (uri, 4) and orphan.item.age_s >= 2 * DAY_S
    found = cluster.collect()
    assert wheres(found.deleted) == [uri] and found.left == ()
    assert list(cluster.blobs.stored) == [kept]
    (record,) = cluster.recorded()
    assert (record["does"], record["where"], record["job_id"], record["size"]) == ("delete", uri, "lost", 4)
    assert record["actor"] == "ann@here" and record["evidence"] == orphan.evidence and record["as_of"][EVENTS]
    assert cluster.collect().orphans == () and len(cluster.recorded()) == 1


def test_a_grace_below_the_least_is_refused(cluster: Collecting) -> None:
    for ask in (cluster.look, cluster.collect):
        with pytest.raises(UsageError, match="too short"):
            ask(3599.0)


# -- data left by crashes is found -------------------------------------------------------------------------------------


def end_at(point: str) -> list[str]:
    """Ends the code under test at the first pass of that failpoint, as kill -9 does. Returns a list that gets its name."""
    reached: list[str] = []

    def end(name: str) -> None:
        if name == point and not reached:
            reached.append(name)
            raise Killed

    failpoints.hit = end
    return reached


@pytest.mark.parametrize("point", ["submit.unstored", "submit.stored", "recorded"])
def test_a_submitter_that_ends_there_leaves_only_what_is_found(point: str, world: Operated) -> None:
    world.blobs = MemoryBlobs(world.clock.time)  # type: ignore[assignment]
    reached = end_at(point)
    if point == "recorded":
        record = world.recorder.record

        def recorded(*given: Any) -> Any:
            record(*given)
            reached.append(point)
            raise Killed

        world.recorder.record = recorded  # type: ignore[method-assign]
    world.clock.advance(60.0)
    with pytest.raises(Killed):
        world.client().submit(spec(), world.graph(), job_id="job-1")
    assert reached
    world.clock.advance(2 * DAY_S)
    item = list(world.blobs.stored)  # type: ignore[attr-defined]
    found = look(world.source(), {}, world.blobs)
    if point == "recorded":
        assert found.orphans == () and world.now("job-1").graph is not None, "no data of an existing job is garbage"
    else:
        assert wheres(found.orphans) == item and len(item) == (point == "submit.stored")
    collect(world.source(), {}, world.blobs, DeletionLog(world.folder / "c", "ann", world.clock.time))
    world.clock.advance(1.0)
    failpoints.arm("")
    world.recorder.__dict__.pop("record", None)
    assert world.client().submit(spec(), world.graph(), job_id="job-1") == "job-1", "the job can still be submitted"
    assert world.blobs.exists(world.now("job-1").graph)  # type: ignore[arg-type]


@pytest.mark.parametrize("point", [name for name in RECONCILER if name.startswith(("clean", "retire"))])
def test_a_retirement_that_ends_there_is_finished_or_found(point: str, cluster: Collecting) -> None:
    """Between the steps of a retirement, no referenced data counts as garbage. Afterwards nothing is left of the job."""
    cluster.job("job")
    cluster.go()
    cluster.runner.checkpoint("job", 1, 3)
    cluster.go()
    cluster.runner.end("job", 1)
    reached = end_at(point)
    for _ in range(30):
        try:
            cluster.go(1)
        except Killed:
            break
    assert reached
    cluster.clock.advance(2 * DAY_S)
    item = set(cluster.blobs.stored)
    assert set(wheres(cluster.collect().deleted)) <= {"/memory/job/"}, "the next reconciler deletes the graph"
    assert set(cluster.blobs.stored) == item
    cluster.r = cluster.new_reconciler()
    cluster.go(30)
    assert cluster.registers("job") == {"result/FINISHED"}
    cluster.clock.advance(2 * DAY_S)
    cluster.collect()
    assert (cluster.blobs.stored, cluster.runner.stored, cluster.runner.observe()) == ({}, {}, [])


def test_a_graph_that_came_back_after_its_job_was_retired_is_found(cluster: Collecting) -> None:
    """A submitter that was paused in the middle stores the graph again."""
    cluster.job("job")
    cluster.go()
    cluster.runner.end("job", 1)
    cluster.go(20)
    uri = cluster.put("job")
    cluster.clock.advance(2 * DAY_S)
    (orphan,) = cluster.look().orphans
    assert orphan.evidence == "the job is FINISHED and retired" and orphan.name == SPEC.name
    assert wheres(cluster.collect().deleted) == [uri]


def test_checkpoints_that_a_retirement_by_force_left_are_found_and_savepoints_stay(cluster: Collecting) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.checkpoint("job", 1, 3)
    saved = cluster.runner.checkpoint("job", 1, 4, kind=CheckpointKind.SAVEPOINT)
    cluster.go()
    cluster.runner.up = False
    cluster.intend("job", IntentKind.CANCEL, attempt=1, force=True)
    cluster.go(20)
    assert cluster.registers("job") == {"result/CANCELED"}
    cluster.runner.up = True
    cluster.go(20)
    assert cluster.runner.observe() == [] and len(cluster.runner.stored) == 2
    cluster.clock.advance(2 * DAY_S)
    (orphan,) = cluster.look().orphans
    assert orphan.item.locations == ("/memory/job/1/chk-3",)
    cluster.collect()
    assert list(cluster.runner.stored) == [saved.location]


def test_checkpoints_that_were_kept_stay(cluster: Collecting) -> None:
    cluster.job("job", replace(SPEC, checkpoint_retention=CheckpointRetention.KEEP))
    cluster.go()
    point = cluster.runner.checkpoint("job", 1, 3)
    cluster.go()
    cluster.runner.end("job", 1)
    cluster.go(20)
    assert cluster.registers("job") == {"result/FINISHED"}
    cluster.clock.advance(30 * DAY_S)
    assert cluster.collect().deleted == () and list(cluster.runner.stored) == [point.location]


# -- data that must stay -----------------------------------------------------------------------------------------------


def test_what_is_recorded_after_the_first_reading_is_seen_by_the_second(
    cluster: Collecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = cluster.put("job")
    cluster.clock.advance(2 * DAY_S)
    read = collecting._Read
    reads = []

    def reading(source: Source) -> Any:
        reads.append(read(source))
        if len(reads) == 1:  # the spec comes right after the first read
            cluster.submit("job", replace(SPEC, graph=cluster.blobs.put("job", cluster.tmp_path / "graph")))
            cluster.blobs.put_at[uri] = 0.0  # its age does not protect it
        return reads[-1]

    monkeypatch.setattr(collecting, "_Read", reading)
    found = cluster.collect()
    assert len(reads) == 2 and wheres(found.orphans) == [uri] and found.deleted == ()
    assert [one.why for one in found.left] == ["a job refers to it now"]
    assert uri in cluster.blobs.stored and cluster.recorded() == []


def test_what_is_put_again_after_both_readings_is_too_young(cluster: Collecting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spec comes after the second read of the log, so only the age of the graph protects it."""
    uri = cluster.put("job")
    cluster.clock.advance(2 * DAY_S)
    tell = DeletionLog.tell

    def telling(self: DeletionLog, *given: Any) -> None:
        tell(self, *given)
        cluster.put("job")

    monkeypatch.setattr(DeletionLog, "tell", telling)
    found = cluster.collect()
    assert found.deleted == () and [one.why for one in found.left] == ["it was put again meanwhile"]
    assert uri in cluster.blobs.stored
    assert [record["does"] for record in cluster.recorded()] == ["delete", "left"]


def test_a_submitter_that_was_stopped_for_long_puts_its_graph_again(world: Operated) -> None:
    """The graph was stored longer ago than the grace period, and the spec comes only now. So the submitter stores the
    graph again, although it still exists."""
    blobs = world.blobs = MemoryBlobs(world.clock.time)  # type: ignore[assignment]
    record = world.recorder.record

    def stopped(*given: Any) -> Any:
        world.clock.advance(2 * DAY_S)
        return record(*given)

    world.recorder.record = stopped  # type: ignore[method-assign]
    world.client().submit(spec(), world.graph(), job_id="job-1")
    (blob,) = blobs.listing()
    assert blob.age_s < 60.0


@pytest.mark.parametrize("register", [Spec("e" * 64), Admitted()])
def test_a_job_of_which_a_register_cannot_be_read_is_left_alone(cluster: Collecting, register: Any) -> None:
    uri = cluster.put("job")
    key = b"job/" + (b"admitted" if isinstance(register, Admitted) else b"spec/" + b"e" * 64)
    cluster.p.step = lambda: None  # type: ignore[method-assign] - or it would be refused, and gone
    cluster.raw(key, b"\xc3\x01no fact at all", partition_of("job", PARTITIONS))
    cluster.clock.advance(2 * DAY_S)
    found = cluster.collect()
    assert found.orphans == () and [one.item.where for one in found.spared] == [uri]
    assert "can't be read" in found.spared[0].why


def test_a_job_whose_entry_cannot_be_read_is_left_alone(cluster: Collecting) -> None:
    uri = cluster.put("job")
    headers = [("ledger_epoch", b"1")]
    cluster.log.append([Event(RECOVERY, partition_of("job", PARTITIONS), b"job", b"no entry", tuple(headers))])
    cluster.p.step = lambda: None  # type: ignore[method-assign]
    cluster.clock.advance(2 * DAY_S)
    found = cluster.collect()
    assert found.orphans == () and [one.item.where for one in found.spared] == [uri]
    assert found.spared[0].why == "its published entry can't be read"


def test_what_is_older_than_the_log_is_left_alone(cluster: Collecting) -> None:
    """After the topics were created again, or with another Kafka cluster, all graphs look unreferenced."""
    uri = cluster.put("job")
    cluster.blobs.put_at[uri] -= 3600.0
    cluster.clock.advance(2 * DAY_S)
    found = cluster.collect()
    assert found.orphans == () and [one.why for one in found.spared] == [
        "it is older than this log: another one may have known it"
    ]
    assert uri in cluster.blobs.stored


def test_if_a_store_or_a_runner_is_silent_nothing_is_deleted(cluster: Collecting) -> None:
    uri = cluster.put("lost")
    cluster.clock.advance(2 * DAY_S)
    cluster.runner.up = False
    with pytest.raises(Unreachable, match="nothing was deleted"):
        cluster.collect()
    assert wheres(cluster.look().orphans) == [uri] and "does not answer" in cluster.look().silent["memory"]
    cluster.runner.up, cluster.blobs.up = True, False
    for ask in (cluster.look, cluster.collect):
        with pytest.raises(Unreachable):
            ask()
    assert uri in cluster.blobs.stored and cluster.recorded() == []


def test_what_can_not_be_put_on_record_is_not_deleted(cluster: Collecting) -> None:
    uri = cluster.put("lost")
    cluster.clock.advance(2 * DAY_S)
    cluster.file.mkdir()
    with pytest.raises(Unreachable, match="can't be recorded"):
        cluster.collect()
    assert uri in cluster.blobs.stored


def test_a_runner_with_facts_that_are_not_in_the_log_keeps_what_it_has(cluster: Collecting) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.up = False
    cluster.intend("job", IntentKind.CANCEL, attempt=1, force=True)
    cluster.go(20)
    cluster.runner.up, cluster.mute = True, True
    cluster.runner.end("job", 1)
    cluster.clock.advance(2 * DAY_S)
    found = cluster.collect()
    assert found.deleted == ()
    assert [one.why for one in found.left] == ["its runner has facts of the job that are not in the log yet"]
    for event in cluster.runner.pending():
        cluster.runner.acknowledge("job", [event.key])
    cluster.clock.advance(2 * DAY_S)
    assert [orphan.item.kind.value for orphan in cluster.collect().deleted] == ["run-folder"]
    assert cluster.runner.observe() == []


def test_a_plug_in_that_knows_no_listing_keeps_nothing_as_far_as_anybody_knows(cluster: Collecting) -> None:
    class Older:
        def observe(self) -> list[Any]:
            return []

    found = look(cluster.source(), {"older": Older()}, cluster.blobs)  # type: ignore[dict-item]
    assert found.silent == {} and found.orphans == ()


def test_live_jobs_in_every_state_are_left_alone(cluster: Collecting) -> None:
    for job_id, intent in {"runs": None, "waits": IntentKind.SUSPEND, "goes": IntentKind.CANCEL}.items():
        cluster.job(job_id)
        cluster.go()
        if intent is not None:
            cluster.runner.obedient = False
            cluster.record(job_id, Intent(1, "u"), IntentDeclared(intent, reason="test"))
    cluster.go()
    cluster.submit("new", replace(SPEC, graph=cluster.blobs.put("new", cluster.tmp_path / "runs")))  # not admitted yet
    item = dict(cluster.blobs.stored)
    cluster.clock.advance(30 * DAY_S)
    found = cluster.collect()
    assert (found.orphans, found.spared, found.young) == ((), (), 0)
    assert cluster.blobs.stored == item and len(item) == 4
