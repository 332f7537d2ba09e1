"""A pid alone identifies no process: which processes are alive, which belong to an attempt, and which must not be
killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.adapters.runners.subprocess.orphan_processes import MARK, kill_leftovers, leftovers
from ledger.adapters.runners.subprocess.supervisor import procs
from tests.support.host import DEADLINE_S, gone
from tests.support.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a separate session that belongs to no attempt."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True, cwd="/")
    yield process
    process.kill()
    process.wait(DEADLINE_S)


def test_a_process_is_alive_by_pid_start_time_and_boot(sleeper: subprocess.Popen[bytes]) -> None:
    who = procs.identity(sleeper.pid)
    assert procs.alive(who)
    assert not procs.alive({**who, "start_time": who["start_time"] - 1})
    assert not procs.alive({**who, "boot_id": "another"})
    assert not procs.alive({**who, "pid": 0})
    assert not procs.alive({})
    sleeper.kill()
    until(lambda: not procs.alive(who), "a zombie is not alive")
    assert sleeper.returncode is None  # nobody has waited for it: it is a zombie
    sleeper.wait(DEADLINE_S)
    assert not procs.alive(who)
    with pytest.raises(ProcessLookupError):
        procs.identity(sleeper.pid)


@pytest.mark.parametrize("name", ["a b", "a) R 1 (b", "x" * 15, ") Z 1 1 1 ("])
def test_the_name_of_a_process_may_hold_anything(tmp_path: Path, name: str) -> None:
    program = tmp_path / name
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "1000"], start_new_session=True) as process:
        try:
            until(lambda: f"({name}" in Path(f"/proc/{process.pid}/stat").read_text(), "the process has its name")
            found = procs.stat(process.pid)
            assert found is not None
            assert (found.pid, found.ppid, found.sid, found.dead) == (process.pid, os.getpid(), process.pid, False)
        finally:
            process.kill()


def test_a_process_whose_main_thread_has_ended_is_not_dead() -> None:
    program = (
        "import threading, time, ctypes\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            until(lambda: ") Z " in Path(f"/proc/{process.pid}/stat").read_text(), "its main thread is gone")
            found = procs.stat(process.pid)
            assert found is not None
            assert not found.dead
        finally:
            process.kill()


def test_whoever_bears_the_mark_is_found_wherever_it_is(tmp_path: Path) -> None:
    folder = str(tmp_path / "attempts" / "1")
    marked = subprocess.Popen(["sleep", "1000"], env={MARK: f"{folder}/checkpoints"}, start_new_session=True, cwd="/")
    other = subprocess.Popen(["sleep", "1000"], env={MARK: f"{folder}0/checkpoints"}, start_new_session=True, cwd="/")
    try:
        # Between fork and exec the child still has this process's environment.
        until(lambda: [process.pid for process in leftovers(folder, None)] == [marked.pid], "the marked process is found")
        assert kill_leftovers(folder, None, DEADLINE_S) == []
        until(lambda: gone(marked.pid), "the process is killed")
        assert not gone(other.pid)
    finally:
        for process in (marked, other):
            process.kill()
            process.wait(DEADLINE_S)


def test_a_group_whose_number_is_used_again_is_left_alone(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """The job is long over. Its pid, which was also its group's number, belongs to another process now."""
    who = procs.identity(sleeper.pid)
    for stranger in ({**who, "start_time": who["start_time"] - 5}, {**who, "boot_id": "earlier"}):
        assert kill_leftovers(str(tmp_path), stranger) == []
    assert not gone(sleeper.pid)


def test_a_group_whose_first_process_is_the_job_is_the_jobs(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    who = procs.identity(sleeper.pid)
    assert [process.pid for process in leftovers(str(tmp_path), who)] == [sleeper.pid]
    assert kill_leftovers(str(tmp_path), who, DEADLINE_S) == []
    assert gone(sleeper.pid)


def test_who_needs_long_to_look_kills_all_the_same(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """Otherwise, on a busy machine, no process would ever be killed."""
    kill_leftovers(str(tmp_path), procs.identity(sleeper.pid), timeout_s=0.0)
    until(lambda: gone(sleeper.pid), "the process is killed")


@pytest.mark.parametrize("proof", ["mark", "log"])
def test_a_group_without_its_first_process_needs_a_proof(tmp_path: Path, proof: str) -> None:
    """Two processes of the group are left, both without the job's environment. One of them has the mark or an open log."""
    script = "sleep 1000 & echo $! > $0/first; {} sleep 1000 >/dev/null 2>&1 & echo $! > $0/second; exit 0"
    how = {"mark": f"{MARK}={tmp_path}/checkpoints", "log": ""}[proof]
    (tmp_path / "logs").mkdir()
    log = {"log": tmp_path / "logs" / "stdout.log"}.get(proof, Path("/dev/null"))
    with log.open("ab") as out:
        job = subprocess.Popen(
            ["sh", "-c", script.format(how), str(tmp_path)], start_new_session=True, cwd="/", env={}, stdout=out,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
    who = procs.identity(job.pid)
    job.wait(DEADLINE_S)
    pids = [int((tmp_path / name).read_text()) for name in ("first", "second")]
    try:
        until(lambda: {p.pid for p in leftovers(str(tmp_path), who)} == set(pids), "both processes are found")
        assert leftovers(str(tmp_path / "other"), who) == []
        assert kill_leftovers(str(tmp_path), who, DEADLINE_S) == []
        until(lambda: all(gone(pid) for pid in pids), "both processes are killed")
    finally:
        for pid in pids:
            procs.kill(pid)


def test_somebody_who_reads_a_log_is_not_killed(tmp_path: Path) -> None:
    """A process that reads a log is not killed, even if it leads a group that has the number of the job's group."""
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "stdout.log"
    log.touch()
    reader = subprocess.Popen(["tail", "-f", str(log)], cwd=tmp_path, start_new_session=True)
    try:
        until(
            lambda: str(log) in {os.readlink(p) for p in Path(f"/proc/{reader.pid}/fd").iterdir()},
            "the reader has opened the log",
        )
        who = procs.identity(reader.pid)
        assert leftovers(str(tmp_path), {**who, "start_time": who["start_time"] - 5}) == []
    finally:
        reader.kill()
        reader.wait(DEADLINE_S)


def test_a_signal_is_caught_only_by_whoever_has_a_handler(sleeper: subprocess.Popen[bytes]) -> None:
    assert not procs.catches(sleeper.pid, signal.SIGUSR1)
    program = "import signal, time; signal.signal(signal.SIGUSR1, print); print('on', flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert procs.catches(process.pid, signal.SIGUSR1)
            assert not procs.catches(process.pid, signal.SIGUSR2)
        finally:
            process.kill()
    assert not procs.catches(process.pid, signal.SIGUSR1)
