"""kill -9 of any one process of a running ledger, and of everything at once (incident 004's "all JobManagers go down").

No acknowledged event is lost, no finished job comes back, no attempt is started twice, and no running job is affected.
"""

from __future__ import annotations

import os
import signal
import subprocess

import psutil
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from ledger.adapters import cloudevents
from ledger.core.model.recovery import JobState
from tests.support.folder import JOBLEDGER, Folder

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1200)]

TICKERS = [f"ticker-{i}" for i in range(2)]


def started_once(folder: Folder) -> None:
    """Checks that every attempt was started once: one running fact per attempt, one live attempt per job. The log may
    hold the same event twice: an agent that was killed before the acknowledgement sends it again."""
    folder.alive()
    running = [r for r in folder.records("ledger.events") if b"/running/" in (r.key() or b"") and r.value() is not None]
    seen = [key for key, _ in {(r.key(), cloudevents.parse(r.headers()).id) for r in running}]
    doubles = {key for key in seen if seen.count(key) > 1}
    assert not doubles, f"started twice: {doubles}"


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def submitted(folder: Folder, job_id: str) -> None:
    """Submits as a client does: under the same id again and again, until the ledger acknowledges the job."""

    def tried() -> bool:
        command = ("true",)
        return folder.run("submit", "--id", job_id, "--", *command, expect=None).returncode == 0

    folder.until(tried, f"{job_id} is acknowledged")


def test_kill_any_one_process(own_folder: Folder) -> None:
    folder = own_folder
    folder.up("--projectors", "2")
    for job in TICKERS:
        folder.ticker(job)
    folder.submit("finished-before", "true")
    folder.until(lambda: folder.retired("finished-before"), "the first job is retired")
    before = folder.until(lambda: (a := folder.running()).keys() >= set(TICKERS) and a, "all tickers run")
    for process in ("broker", "agent", "projector-1", "projector-2", "reconciler-1", "up"):
        pid = folder.pid(process)
        submitted(folder, f"before-{process}")
        os.kill(pid, signal.SIGKILL)
        if process == "up":
            folder.until(lambda pid=pid: not runs(pid), "`up` is gone")
            folder.up("--projectors", "2")
        submitted(folder, f"after-{process}")
        for job in (f"before-{process}", f"after-{process}"):
            folder.until(lambda job=job: folder.retired(job), f"{job} is retired")
        assert {j: a for j, a in folder.alive().items() if j in TICKERS} == before, (
            f"jobs were affected by the end of {process}"
        )
    assert folder.entry("finished-before") is None
    started_once(folder)
    folder.run("replay")
    folder.run("down", "--jobs")
    assert folder.processes() == []


def test_kill_everything_then_up(own_folder: Folder) -> None:
    folder = own_folder
    folder.up()
    for job in TICKERS:
        folder.ticker(job)
    folder.submit("done", "true")
    folder.until(lambda: folder.retired("done"), "the short job is retired")

    def checkpointed() -> bool:
        entries = folder.published().entries
        return all((entry := entries.get(job)) and entry.restore_points for job in TICKERS)

    folder.until(checkpointed, "every ticker has a checkpoint")
    folder.kill_everything()
    folder.up()

    def back() -> bool:
        entries = folder.published().entries
        return all(
            entries[job].state is JobState.RUNNING and entries[job].attempt == 2 and entries[job].known for job in TICKERS
        )

    folder.until(back, "every ticker runs again")
    assert folder.retired("done")
    for job in TICKERS:
        entry = folder.entry(job)
        assert entry is not None and entry.base is not None and entry.base.attempt == 1
        words = f"begins at {entry.base.id}"
        folder.until(lambda job=job, words=words: words in folder.run("logs", job, "--attempt", "2").stdout, words)
    started_once(folder)
    folder.enough.touch()
    for job in TICKERS:
        folder.run("wait", job)
    folder.until(lambda: not folder.published().entries, "all jobs are retired")
    folder.run("replay")


def test_down_with_jobs_then_up_brings_them_back(own_folder: Folder) -> None:
    folder = own_folder
    folder.up()
    folder.ticker("ticker")

    def checkpoint() -> int | None:
        entry = folder.entry("ticker")
        return entry.restore_points[0].id if entry and entry.restore_points else None

    folder.until(checkpoint, "a checkpoint")
    folder.run("down", "--jobs")
    assert folder.processes() == []
    folder.up()

    def back() -> bool:
        entry = folder.entry("ticker")
        return entry is not None and entry.state is JobState.RUNNING and entry.attempt == 2 and entry.failures == 0

    folder.until(back, "the ticker runs again, without a counted failure")
    entry = folder.entry("ticker")
    assert entry is not None and entry.base is not None


def test_a_stale_leader_changes_nothing_that_readers_see(own_folder: Folder) -> None:
    """The leader is stopped, replaced by force, and continued. Readers see no change, even after compaction of the
    recovery topic."""
    folder = own_folder
    folder.up("--projectors", "1")
    for job in TICKERS:
        folder.ticker(job)

    def published() -> bool:
        entries = folder.published().entries
        return all((e := entries.get(job)) and e.state is JobState.RUNNING and e.known for job in TICKERS)

    folder.until(published, "all tickers run, and their entries say so")
    compact = {"segment.ms": "1000", "max.compaction.lag.ms": "1000", "min.compaction.lag.ms": "0",
               "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "2000"}  # fmt: skip
    stale = folder.pid("projector-1")
    epoch = max(folder.published().claimed.values())
    os.kill(stale, signal.SIGSTOP)
    forced = psutil.Popen(
        [str(JOBLEDGER), "serve", "projector", "--dir", str(folder.path), "--force-lead"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        folder.until(lambda: max(folder.published().claimed.values()) > epoch, "the forced projector leads")
        resource = ConfigResource(ConfigResource.Type.TOPIC, "ledger.recovery", incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in compact.items()
        ])  # fmt: skip
        admin = AdminClient({"bootstrap.servers": folder.config.bootstrap})
        for future in admin.incremental_alter_configs([resource]).values():
            future.result()
        before = {j: (e.state, e.attempt) for j, e in folder.published().entries.items()}
        os.kill(stale, signal.SIGCONT)
        folder.until(lambda: stood_back(folder), "the stale leader has stepped down")
        seen = {(r.partition(), r.offset()) for r in folder.records("ledger.recovery")}

        def cleaned() -> bool:
            folder.run("submit", "--", "true")  # only an append closes a segment
            left = {(r.partition(), r.offset()) for r in folder.records("ledger.recovery")}
            return len(seen - left) > len(seen) // 2

        folder.until(cleaned, "the cleaner has run")
        after = {j: (e.state, e.attempt) for j, e in folder.published().entries.items() if j in before}
        assert after == before
        folder.run("replay")
    finally:
        forced.terminate()
        forced.wait(120)


def stood_back(folder: Folder) -> bool:
    return "stands_back" in (folder.path / "log" / "projector-1.log").read_text()
