"""`up` and `down` by the installed command: processes keep running, are found again, are restarted, and can be stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from ledger.adapters.runners.subprocess import pack
from ledger.app.ledger import Ledger
from ledger.ports import StartAnswer
from tests.support.folder import JOBLEDGER, Folder
from tests.support.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1200)]

# No reconciler: it takes a JVM with Spark. test_kill covers it.
ROLES = ("broker", "agent", "projector-1", "projector-2")
SMALL = ("--projectors", "2", "--reconcilers", "0")
BROKER_AND_AGENT = ("--projectors", "0", "--reconcilers", "0")


def pids(folder: Folder, roles: tuple[str, ...] = ROLES) -> dict[str, int]:
    return {role: folder.pid(role) for role in roles}


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


#: A process comes back at the second try, and each try starts a JVM.
patiently = partial(until, timeout_s=240.0)


def ends(pid: int) -> None:
    patiently(lambda: not runs(pid), f"pid {pid} ends")


def shown(folder: Folder) -> dict[str, object]:
    settings: dict[str, object] = json.loads(folder.run("config show", "-o", "json").stdout)
    return settings


@pytest.fixture
def ledger(own_folder: Folder) -> Folder:
    return own_folder


def test_a_ledger_is_brought_up_kept_found_again_and_ended(ledger: Folder) -> None:
    told = ledger.run("up", "--detach", *SMALL).stdout.splitlines()
    address = str(shown(ledger)["bootstrap"])
    assert told[-1] == f"ready: broker {address} dir {ledger.path}"
    assert ledger.run("topics check").returncode == 0
    before = pids(ledger)
    rights = {name: (ledger.path / name).stat().st_mode & 0o777 for name in (".", "broker", "log", "run", "agent")}
    assert set(rights.values()) == {0o700}, rights
    assert {path.name for path in (ledger.path / "run").glob("*.lock") if path.stat().st_mode & 0o077} == set()
    assert all(runs(pid) for pid in before.values())
    assert all(os.getsid(pid) == pid for pid in before.values())

    def both() -> Any:
        """The row of the projector, once the standby is listed as a candidate too: `up` does not wait for the standby."""
        (row,) = json.loads(ledger.run("leader", "projector", "-o", "json").stdout)
        return row if {one["pid"] for one in row["candidates"]} == {before["projector-1"], before["projector-2"]} else None

    projector = until(both, "the standby is a candidate", 240.0)
    assert projector["led"] and projector["epoch"] == 1
    assert projector["pid"] in (before["projector-1"], before["projector-2"])
    assert "reconciler: nobody leads: there is no candidate" in ledger.run("leader", expect=1).stderr

    # The leader dies: the standby leads, and the restarted process stands by.
    os.kill(projector["pid"], signal.SIGKILL)
    patiently(lambda: set(pids(ledger).values()) != set(before.values()), "the projector is restarted")
    patiently(lambda: _epoch(ledger) >= 2, "another projector leads")

    # The broker dies: it comes back under the same address, and the roles go on.
    os.kill(before["broker"], signal.SIGKILL)
    patiently(lambda: ledger.pid("broker") != before["broker"], "the broker is restarted")
    patiently(lambda: ledger.run("topics check", expect=None).returncode == 0, "the broker answers")
    assert shown(ledger)["bootstrap"] == address

    # `up` dies: no other process does, and the next `up` adopts the running ones.
    now = pids(ledger)
    up = ledger.pid("up")
    os.kill(up, signal.SIGKILL)
    ends(up)
    assert all(runs(pid) for pid in now.values())
    told = ledger.run("up", "--detach", *SMALL).stdout.splitlines()
    assert pids(ledger) == now
    assert sorted(told[:-1]) == sorted(f"adopted {role} pid {pid}" for role, pid in now.items())
    assert ledger.pid("up") != up
    assert "up runs already" in ledger.run("up", "--detach").stdout
    assert ledger.run("up", expect=2).stderr.startswith("error: ")

    # The new `up` also restarts the processes that it adopted.
    os.kill(now["agent"], signal.SIGKILL)
    patiently(lambda: ledger.pid("agent") != now["agent"], "the agent is restarted")

    ended = [*pids(ledger).values(), ledger.pid("up")]
    told = ledger.run("down").stdout.splitlines()
    assert [line.split()[1] for line in told] == ["up", "projector-1", "projector-2", "agent", "broker"]
    assert not any(runs(pid) for pid in ended)
    assert not ledger.processes()
    assert not list((ledger.path / "run").glob("*.pid"))
    assert ledger.run("down", "--jobs").stdout == ""


def _epoch(folder: Folder) -> int:
    done = folder.run("leader", "projector", "-o", "json", expect=None)
    rows = json.loads(done.stdout) if done.returncode in (0, 1) else []
    return max((row["epoch"] or 0 for row in rows if row["role"] == "projector"), default=0)


def test_after_a_power_cut_it_comes_up_again(ledger: Folder) -> None:
    """Pid files, sockets and locks of dead processes are left, and their pids belong to other processes."""
    ledger.run("up", "--detach", *BROKER_AND_AGENT)
    address = shown(ledger)["bootstrap"]
    ledger.kill_everything()
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        for role in ("broker", "agent", "up"):
            note = ledger.path / "run" / f"{role}.pid"
            note.write_text(json.dumps({**json.loads(note.read_text()), "pid": bystander.pid}))
        ledger.run("up", "--detach", *BROKER_AND_AGENT)
        assert shown(ledger)["bootstrap"] == address
        assert bystander.poll() is None
        ledger.run("down")
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_one_that_is_not_asked_for_any_more_is_stopped(ledger: Folder) -> None:
    ledger.run("up", "--detach", *SMALL)
    surplus = pids(ledger)
    os.kill(ledger.pid("up"), signal.SIGKILL)
    ends(ledger.pid("up"))
    told = ledger.run("up", "--detach", "--projectors", "1", "--reconcilers", "0").stdout
    assert f"stopping projector-2 pid {surplus['projector-2']}" in told
    ends(surplus["projector-2"])
    assert ledger.pid("projector-1") == surplus["projector-1"]


def test_in_the_foreground_an_interrupt_ends_up_alone(ledger: Folder) -> None:
    up = subprocess.Popen(
        [JOBLEDGER, "up", *BROKER_AND_AGENT, "-X", "client.id=told-by-flag"], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "LEDGER_DIR": str(ledger.path)},
    )  # fmt: skip
    try:
        assert up.stdout is not None
        lines = iter(up.stdout.readline, "")
        assert any(line.startswith("ready: ") for line in lines)
        assert psutil.Process(ledger.pid("agent")).environ()["LEDGER_KAFKA__CLIENT_ID"] == "told-by-flag"
        up.send_signal(signal.SIGINT)
        assert "the ledger runs on" in list(lines)[-1]
        assert up.wait(120) == 130
        assert all(runs(pid) for pid in pids(ledger, ("broker", "agent")).values())
    finally:
        up.kill()
        up.communicate()


def test_when_it_cannot_come_up_the_reason_is_told_and_nothing_stays(ledger: Folder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (ledger.path / "broker").mkdir(parents=True)
        port = taken.getsockname()[1]
        ports = {"port": port, "controller_port": port - 1}
        (ledger.path / "broker" / "ports.json").write_text(json.dumps(ports))
        done = ledger.run("up", "--detach", *BROKER_AND_AGENT, expect=None)
    assert done.returncode == 3
    assert "error: " in done.stderr
    assert f"log: {ledger.path / 'log' / 'up.log'}" in done.stderr
    assert not ledger.processes()


def test_when_the_topics_are_not_as_set_it_does_not_come_up(ledger: Folder) -> None:
    ledger.run("up", "--detach", *BROKER_AND_AGENT)
    ledger.run("down")
    (ledger.path / "ledger.toml").write_text("[topics]\npartitions = 7\n")
    done = ledger.run("up", "--detach", *BROKER_AND_AGENT, expect=2)
    assert "partitions is 4, must be 7" in done.stdout + done.stderr
    assert not ledger.processes(), "the processes started for it are stopped again"


def test_flags_reach_the_roles_also_in_the_background(ledger: Folder) -> None:
    ledger.run("up", "--detach", *BROKER_AND_AGENT, "-X", "client.id=told-by-flag")
    agent = psutil.Process(ledger.pid("agent"))
    assert agent.environ()["LEDGER_KAFKA__CLIENT_ID"] == "told-by-flag"


# -- jobs ------------------------------------------------------------------------------------------------------------


def start_job(folder: Folder, job_id: str = "sleeper") -> int:
    """Starts the job through the runner alone, as a reconciler would, and returns the pid of the job."""
    blob = pack(["sleep", "600"], folder=folder.path.parent)
    graph = Ledger.open(folder.config).blobs.put(job_id, Path(blob))
    runner = Ledger.open(folder.config).runners["subprocess"]
    answer = until(lambda: runner.start(job_id, 1, graph, None, {}), "the job is started", 240.0)
    assert answer in (StartAnswer.STARTED, StartAnswer.ALREADY), (
        "already: an earlier start succeeded, but its answer came too late"
    )
    patiently(lambda: any(a.engine_id for a in runner.observe()), "the job runs")
    return int(next(a.engine_id for a in runner.observe()).split()[0])


def test_jobs_run_on_unless_told_and_a_folder_with_jobs_is_not_deleted(ledger: Folder) -> None:
    ledger.run("up", "--detach", *BROKER_AND_AGENT)
    job = start_job(ledger)
    refused = ledger.run("down", "--purge", expect=5)
    assert str(job) in refused.stderr
    assert all(runs(pid) for pid in pids(ledger, ("broker", "agent", "up")).values()), "no process was stopped"

    ledger.run("down")
    assert runs(job)
    assert "--jobs" in ledger.run("down", "--purge", expect=5).stderr
    assert ledger.run("down", "--jobs", expect=3).stderr.startswith("error: "), "no agent is there to stop the job"

    ledger.run("up", "--detach", *BROKER_AND_AGENT)
    assert [a.alive for a in Ledger.open(ledger.config).runners["subprocess"].observe()] == [True]
    assert "stopping attempt 1 of sleeper" in ledger.run("down", "--jobs", "--purge").stdout
    ends(job)
    assert not ledger.processes()
    assert not ledger.path.exists()


def test_a_stopped_job_has_ended_as_stopped(ledger: Folder) -> None:
    """There is no intent, so the next reconciler restarts the job."""
    ledger.run("up", "--detach", *BROKER_AND_AGENT)
    start_job(ledger)
    ledger.run("down", "--jobs")
    ledger.run("up", "--detach", *BROKER_AND_AGENT)

    def ended() -> bool:
        keys = [(record.key() or b"").decode() for record in ledger.records("ledger.events")]
        return any(key.startswith("sleeper/ended/1/stopped/agent-") for key in keys)

    patiently(ended, "the end is in the log")
