"""The whole loop on real servers, by the installed command: poison, garbage, cancel, suspend, retry, a duplicate
submit."""

from __future__ import annotations

import json
import os
import signal
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ledger.adapters import avro
from ledger.app.ledger import Ledger
from ledger.core.model.facts import AttemptEnded, CheckpointKind, JobSubmitted, RestartKind, RestartPolicy
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Spec, key_of, partition_of
from tests.support.folder import TICKER, Folder

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

PYTHON = sys.executable
ONE_RETRY = ("--restart", "fixed-delay:1:0.2")


def quarantined(folder: Folder, job_id: str) -> str:
    entry = folder.entry(job_id)
    return entry.reason if entry is not None and entry.state is JobState.QUARANTINED else ""


def state(folder: Folder, job_id: str) -> str:
    entry = folder.entry(job_id)
    return str(entry.state) if entry else ""


def submit_blob(folder: Folder, job_id: str, blob: Path) -> None:
    """Submits a job with a graph that no client of this project would have packed."""
    config = folder.config
    graph = Ledger.open(config).blobs.put(job_id, blob)
    spec = JobSubmitted(job_id, "default", "subprocess", graph, RestartPolicy(RestartKind.NONE))
    producer = Producer({"bootstrap.servers": config.bootstrap})
    key = key_of(job_id, Spec(avro.spec_digest(spec)))
    producer.produce("ledger.events", avro.encode(spec), key, partition_of(job_id, 4))
    assert producer.flush(30) == 0


def test_poison_harms_nobody_else(shared_ledger: Folder, tmp_path: Path) -> None:
    """Five graphs that raise, exit at once, die by a signal, ignore SIGTERM, or can't be read."""
    folder = shared_ledger
    folder.ticker("neighbour")
    before = folder.until(lambda: folder.running().get("neighbour"), "the neighbour runs")
    projector = max(folder.published().claimed.values())
    folder.submit("raises", PYTHON, "-c", "raise ValueError('bad graph')", options=ONE_RETRY)
    folder.submit("exits", PYTHON, "-c", "raise SystemExit(7)", options=ONE_RETRY)
    folder.submit("dies", PYTHON, "-c", "import os; os.kill(os.getpid(), 11)", options=ONE_RETRY)
    hang = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    folder.submit("hangs", PYTHON, "-c", hang)
    (tmp_path / "rubbish").write_bytes(b"this is no archive" * 1000)
    submit_blob(folder, "unreadable", tmp_path / "rubbish")
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        info = tarfile.TarInfo("../../escaped")
        tar.addfile(info)
    submit_blob(folder, "evil", tmp_path / "evil.tar")

    reasons = {
        "raises": "bad graph", "exits": "7", "dies": "SIG", "unreadable": "", "evil": "",
    }  # fmt: skip
    for job, words in reasons.items():
        reason = folder.until(lambda job=job: quarantined(folder, job), f"{job} is quarantined")
        assert words in reason, (job, reason)
    folder.until(lambda: "hangs" in folder.alive(), "the hanging job runs")
    folder.run("cancel", "hangs", "--reason", "it hangs")
    folder.until(lambda: "hangs" not in folder.alive() and not state(folder, "hangs"), "the hanging job is killed")
    listed = {e["job_id"]: e for e in json.loads(folder.run("list", "-o", "json").stdout)}
    assert all(listed[job]["state"] == "QUARANTINED" for job in reasons)
    assert folder.alive()["neighbour"] == before
    assert max(folder.published().claimed.values()) == projector, "no leader changed"
    folder.run("cancel", "neighbour", "--reason", "seen")


def test_a_permanent_failure_is_not_tried_again(shared_ledger: Folder) -> None:
    """The rule matches the exit code or the last lines of output. A failure that matches no rule is followed by a
    restart."""
    folder = shared_ledger
    code = ("--permanent-exit-code", "64", "--restart", "fixed-delay:3:0.2")
    words = ("--failure-label", "schema=No such (table|column)", "--permanent-label", "schema")
    exits = "import os; raise SystemExit(64 if os.environ['LEDGER_ATTEMPT'] == '2' else 3)"
    folder.submit("by-code", PYTHON, "-c", exits, options=code)
    folder.submit("by-words", PYTHON, "-c", "raise ValueError('No such table: t')", options=words)
    reason = folder.until(lambda: quarantined(folder, "by-code"), "by-code is quarantined")
    assert reason.startswith("attempt 2 failed-permanent: permanent: exit code 64")
    reason = folder.until(lambda: quarantined(folder, "by-words"), "by-words is quarantined")
    assert reason.startswith("attempt 1 failed-permanent: schema: exit code 1") and "No such table" in reason


SLOW_STARTER = """
import os, pathlib, time
folder, n = pathlib.Path(os.environ["LEDGER_CHECKPOINT_DIR"]), 0
while True:
    time.sleep(0.2)
    if os.environ["LEDGER_ATTEMPT"] != "1":
        (folder / "part").write_text("x")
        (folder / "part").rename(folder / f"chk-{n}")
        n += 1
"""


def test_a_job_that_makes_no_progress_is_marked_or_restarted(shared_ledger: Folder) -> None:
    folder = shared_ledger
    watched = ("--checkpoint-interval", "2s", "--stalled-after", "2", "--restart", "fixed-delay:0:0.2")
    folder.submit("restarted", PYTHON, "-c", SLOW_STARTER, options=(*watched, "--on-stall", "restart"))
    folder.submit("marked", PYTHON, "-c", SLOW_STARTER, options=watched)

    def second() -> bool:
        entry = folder.entry("restarted")
        return entry is not None and entry.attempt >= 2 and bool(entry.restore_points)

    folder.until(second, "the stalled job is restarted and completes checkpoints")
    entry = folder.until(lambda: (e := folder.entry("marked")) and e.stalled and e, "the other job is marked as stalled")
    assert (entry.state, entry.attempt) == (JobState.RUNNING, 1)
    assert "RUNNING,stalled" in folder.run("list").stdout
    assert "stalled since" in folder.run("explain", "marked").stdout
    ends = {
        record.key(): avro.decode(AttemptEnded, value)
        for record in folder.records("ledger.events")
        if (record.key() or b"").startswith(b"restarted/ended/1/failed/agent-") and (value := record.value()) is not None
    }
    assert len(ends) == 1 and "no progress" in next(iter(ends.values())).cause
    for job in ("restarted", "marked"):
        folder.run("cancel", job, "--reason", "seen")


def test_garbage_is_listed_and_stops_nothing(shared_ledger: Folder) -> None:
    folder = shared_ledger
    producer = Producer({"bootstrap.servers": folder.config.bootstrap})
    for partition in range(4):
        producer.produce("ledger.events", b"\x00\xffgarbage", b"no-such-register", partition)
        producer.produce("ledger.events", None, b"~something", partition)
    job = "garbled"
    right = partition_of(job, 4)
    producer.produce("ledger.events", b"", f"{job}/running/1".encode(), right)
    producer.produce("ledger.events", b"\xc3\x01" + os.urandom(40), f"{job}/spec/{'0' * 64}".encode(), right)
    producer.produce("ledger.events", b"\xc3\x01", f"{job}/running/2".encode(), (right + 1) % 4)
    assert producer.flush(30) == 0

    def listed() -> bool:
        rejects = [json.loads(line) for line in folder.run("rejects", "-o", "jsonl").stdout.splitlines()]
        return len(rejects) >= 11

    folder.until(listed, "all eleven jobs are listed")
    folder.submit("after-garbage", "true")
    folder.run("wait", "after-garbage")
    folder.run("replay")


def test_cancel_suspend_resume_retry(shared_ledger: Folder) -> None:
    folder = shared_ledger
    folder.ticker("steady")

    def checkpoint() -> int:
        entry = folder.entry("steady")
        return entry.restore_points[0].id if entry and entry.restore_points else 0

    folder.until(checkpoint, "a checkpoint")
    savepoint = json.loads(folder.run("savepoint", "steady", "--reason", "upgrade", "-o", "json").stdout)
    assert savepoint["kind"] == "SAVEPOINT" and Path(savepoint["location"]).name == f"sav-{savepoint['id']}"
    folder.run("suspend", "steady", "--savepoint", "--reason", "maintenance")
    folder.until(lambda: "steady" not in folder.alive(), "the job is stopped")
    entry = folder.entry("steady")
    assert entry is not None and entry.state is JobState.SUSPENDED
    ended = folder.until(lambda: (e := folder.entry("steady")) and e.outcome and e, "the end of the job is known")
    # The job runs on between its savepoint and the order to stop, and may complete another checkpoint.
    assert any(p.kind is CheckpointKind.SAVEPOINT and p.id > savepoint["id"] for p in ended.restore_points)
    folder.run("resume", "steady", "--reason", "done")
    folder.until(lambda: folder.alive().get("steady", (0, ""))[0] == 2, "attempt 2 runs")
    os.kill(int(folder.until(lambda: folder.running().get("steady"), "the job has a process")[1]), signal.SIGKILL)
    folder.until(lambda: folder.alive().get("steady", (0, ""))[0] == 3, "attempt 3 runs")
    folder.run("cancel", "steady", "--reason", "enough")
    done = folder.run("wait", "steady", expect=1)
    assert "CANCELED" in done.stdout + done.stderr
    folder.run("cancel", "steady", "--reason", "again")  # a second cancel has no effect

    folder.submit("quits", "false", options=("--restart", "none"))
    folder.until(lambda: quarantined(folder, "quits"), "quarantined")
    folder.run("retry", "quits", "--reason", "once more")
    folder.until(
        lambda: (e := folder.entry("quits")) and e.attempt == 2 and e.state is JobState.QUARANTINED, "quarantined again"
    )
    folder.run("cancel", "quits", "--reason", "no use")
    folder.until(lambda: not state(folder, "quits"), "retired")


def test_savepoints_come_by_themselves_and_go_when_they_are_disposed_of(shared_ledger: Folder) -> None:
    """Savepoints of a job that is over can be disposed of too, and no more periodic ones are kept than configured."""
    folder = shared_ledger
    often = ("--savepoint-interval", "2s", "--savepoint-keep", "2")
    folder.submit("saver", PYTHON, "-c", TICKER, str(folder.enough), options=often)

    def listed(state: str = "") -> list[dict[str, Any]]:
        rows = json.loads(folder.run("savepoint list", "saver", "-o", "json").stdout)
        return [row for row in rows if not state or row["state"] == state]

    first = folder.until(listed, "a periodic savepoint")[0]
    assert first["periodic"]
    folder.until(lambda: not Path(first["location"]).exists(), "two newer savepoints have replaced it")
    by_hand = json.loads(folder.run("savepoint", "saver", "--reason", "upgrade", "-o", "json").stdout)
    assert Path(by_hand["location"]).exists()
    folder.run("savepoint dispose", "saver", by_hand["restore"], "--reason", "it was not needed")
    assert not Path(by_hand["location"]).exists()
    assert by_hand["restore"] not in [row["savepoint"] for row in listed()]
    folder.run("savepoint dispose", "saver", by_hand["restore"], "--reason", "again")
    folder.run("cancel", "saver", "--reason", "seen")
    folder.until(lambda: not state(folder, "saver"), "retired")

    left = listed()
    assert len(left) >= 2 and all(Path(row["location"]).exists() for row in left), "its savepoints outlive the job"
    folder.run("savepoint dispose", "saver", left[0]["location"], "--reason", "the disk is full")
    assert [row["savepoint"] for row in listed()] == [row["savepoint"] for row in left[1:]]
    assert not Path(left[0]["location"]).exists()


def test_the_same_job_twice_is_one_job(shared_ledger: Folder, tmp_path: Path) -> None:
    folder, ran, go = shared_ledger, tmp_path / "ran", tmp_path / "go"
    command = ("sh", "-c", f"echo ran >> {ran}; until [ -e {go} ]; do sleep 0.1; done")
    folder.submit("twice", *command)
    folder.submit("twice", *command)
    go.touch()
    folder.run("wait", "twice")
    folder.until(lambda: not state(folder, "twice"), "retired")
    assert ran.read_text().splitlines() == ["ran"]
    folder.submit("twice", *command)
    folder.run("submit", "--id", "twice", "--", "another", expect=5)
    assert ran.read_text().splitlines() == ["ran"]


def test_an_answer_says_what_why_and_what_to_do(shared_ledger: Folder, tmp_path: Path) -> None:
    folder = shared_ledger
    unknown = folder.run("show", "nobody", expect=1)
    assert "nobody" in unknown.stderr and unknown.stdout == ""
    folder.run("submit", expect=2)
    folder.run("cancel", "nobody", expect=2)  # --reason is required
    nowhere = Folder(tmp_path / "nowhere").run("list", expect=2)
    assert "jobledger up" in nowhere.stderr
