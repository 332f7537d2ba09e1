"""Incident 000: an old job was resurrected, and the live one starved.

In the incident, a member of the ZooKeeper ensemble lost its network. The leading JobManager's connection was suspended. It
gave up its lead although its session never ended, and suspended its job. Its successor read the jobs to recover from the
store and found two: the live job with three checkpoints, and a job that had been over for two months, whose graph had
never been deleted. The old job had no checkpoints, so it started at once from scratch and took the slots. The live job
failed again and again for lack of slots, until operators stopped both and started a new job from the last known
checkpoint.

Here the same happens on one host with one slot. There is a job that is over, with everything restored that could have been
left behind, and a live job. One leader is paused, and then one dies.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.app.ledger import Ledger
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Attempt, parse_key
from ledger.ports import Event, Record
from ledger.reader.claims import read_claims
from tests.scenarios.keeping import keep
from tests.support.folder import TICKER, Folder

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

PATIENCE_S = 300.0


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    made = Folder(tmp_path_factory.mktemp("resurrected") / "ledger")
    made.path.mkdir()
    (made.path / "ledger.toml").write_text("[pools.everything]\nslots = 1\n")
    try:
        made.run("up", "--detach", "--projectors", "2", timeout_s=PATIENCE_S)
        yield made
    finally:
        made.clear()


def of_job(folder: Folder, job_id: str) -> list[Record]:
    """The records of a job in the log, without tombstones and without its result."""
    found = ((record, parse_key(record.key())) for record in folder.records(folder.config.topics.events))
    own = [record for record, parsed in found if parsed and parsed[0] == job_id and record.value() is not None]
    return [record for record in own if b"/result/" not in (record.key() or b"")]


def attempts(folder: Folder, job_id: str) -> set[int]:
    parsed = (parse_key(record.key()) for record in of_job(folder, job_id))
    return {found[1].n for found in parsed if found and isinstance(found[1], Attempt)}


def leader(folder: Folder) -> str:
    """The process name of the projector that has claimed the newest epoch."""
    claim = next(claim for claim in read_claims(Ledger.open(folder.config).source()) if claim.role == "projector")
    return next(name for name in ("projector-1", "projector-2") if claim.writer.endswith(f"-{folder.pid(name)}"))


def retired(folder: Folder, job_id: str) -> bool:
    done = folder.run("show", job_id, "-o", "json", expect=None)
    return done.returncode == 0 and folder.entry(job_id) is None


def epoch(folder: Folder) -> int:
    return max(claim.epoch for claim in read_claims(Ledger.open(folder.config).source()) if claim.role == "projector")


def test_incident_000_the_old_job_stays_over_and_the_live_one_runs_on(folder: Folder, tmp_path: Path) -> None:
    # -- an old job ran and was ended
    folder.submit("old", sys.executable, "-c", "import time; time.sleep(600)")
    folder.until(lambda: "old" in folder.running(), "the old job runs", PATIENCE_S)
    entry = folder.entry("old")
    assert entry is not None and entry.graph is not None
    graph, told = entry.graph, of_job(folder, "old")
    copy = tmp_path / "graph"
    copy.write_bytes((folder.path / "blobs" / graph.uri).read_bytes())
    folder.run("cancel", "old", "--reason", "it has run for a month")
    folder.until(lambda: retired(folder, "old"), "the old job is retired", PATIENCE_S)

    # -- a live job runs, and has checkpoints
    folder.ticker("live")
    folder.until(lambda: (e := folder.entry("live")) and e.restore_points, "the live job has a checkpoint", PATIENCE_S)
    alive = folder.running()["live"]

    # -- everything of the old job that could be left behind comes back: its graph, and late copies of its records
    Ledger.open(folder.config).blobs.put("old", copy)
    writer = Ledger.open(folder.config).event_log.writer("somebody-s-late-copies")
    writer.init()
    topic = folder.config.topics.events
    writer.commit([Event(topic, r.partition(), r.key() or b"", r.value(), tuple(r.headers() or ())) for r in told])
    writer.close()

    # -- the leader is paused and continues: nothing changes
    before, led = epoch(folder), leader(folder)
    os.kill(folder.pid(led), signal.SIGSTOP)
    assert folder.running()["live"] == alive
    os.kill(folder.pid(led), signal.SIGCONT)
    folder.until(lambda: folder.entry("old") is None, "the leader has removed the late records", PATIENCE_S)
    assert epoch(folder) == before

    # -- the leader dies, and the reconciler too: others take over
    reconciler = folder.pid("reconciler-1")
    os.kill(folder.pid(led), signal.SIGKILL)
    os.kill(reconciler, signal.SIGKILL)
    folder.until(lambda: epoch(folder) > before, "the other projector leads", PATIENCE_S)
    folder.until(lambda: folder.pid("reconciler-1") != reconciler, "a new reconciler process exists", PATIENCE_S)
    to_be_recovered = {job_id for job_id, entry in folder.published().entries.items() if entry.in_recovery_set}
    assert to_be_recovered == {"live"}
    folder.submit("next", "true")
    waits = "waiting for slots: needs 1, 0 of 1 free in pool everything"
    folder.until(lambda: waits in folder.run("explain", "next").stdout, "the new reconciler leads and plans", PATIENCE_S)
    assert folder.running() == {"live": alive}, "the live job keeps its process and its slot"
    assert attempts(folder, "live") == {1}
    assert "old" not in folder.run("plan").stdout
    shown = folder.run("show", "old").stdout
    assert "CANCELED" in shown and folder.entry("old") is None, "a terminal job stays terminal"
    folder.run("cancel", "next", "--reason", "it has shown what it should")

    # -- the live job dies: it is restarted from its newest checkpoint, and no other job takes its slot
    os.kill(int(alive[1]), signal.SIGKILL)
    folder.until(
        lambda: (e := folder.entry("live")) and e.attempt == 2 and e.known, "the live job is restarted", PATIENCE_S
    )
    entry = folder.entry("live")
    assert entry is not None and entry.state is JobState.RUNNING and entry.failures == 1
    assert entry.base is not None and entry.base.attempt == 1
    assert set(folder.alive()) == {"live"}

    # -- the operators' manual repair is one command: a new job from the last known checkpoint of another job
    location = tmp_path / "last-known"
    location.write_text(Path(entry.base.location).read_text())
    folder.run("cancel", "live", "--reason", "it moves")
    command = (sys.executable, "-c", TICKER, str(folder.enough))
    folder.submit("anew", *command, options=("--from", str(location)))
    folder.until(lambda: "anew" in folder.running(), "the new job has the slot", PATIENCE_S)
    begins = f"begins at {entry.base.id}"
    folder.until(lambda: begins in folder.run("logs", "anew").stdout, "the new job prints its restore point")
    folder.run("replay")
    keep("000", "a job that was over came back, and a live one starved", folder.config)
