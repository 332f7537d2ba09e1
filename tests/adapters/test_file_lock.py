"""Leadership by a file lock: its own behaviour beyond the contract (tests/contract/test_leadership)."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.adapters.local import leadership
from ledger.adapters.local.leadership import FileLockLeadership, Holder, holder
from ledger.adapters.local.private import private_folder
from ledger.adapters.memory.clock import ManualClock
from tests.support.waiting import in_time


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leader-projector.lock"


def test_the_file_says_who_leads(path: Path) -> None:
    clock = ManualClock(1_700_000_000.0)
    one = FileLockLeadership(path, who="anna@host", clock=clock)
    assert holder(path) is None
    one.acquire()
    assert holder(path) == Holder("anna@host", os.getpid(), 1_700_000_000.0)
    signed = json.loads(path.read_text())
    assert {"who": "anna@host", "pid": os.getpid(), "since": 1_700_000_000.0}.items() <= signed.items()
    one.release()
    assert holder(path) is None


def test_a_scribbled_file_still_has_a_holder(path: Path) -> None:
    one = FileLockLeadership(path)
    one.acquire()
    path.write_text("not json")
    assert one.valid()
    assert holder(path) == Holder("", 0, 0.0)


def test_a_lock_that_somebody_else_holds_behind_a_dead_leader_is_told(path: Path, child: subprocess.Popen[str]) -> None:
    """flock needs no write permission: any process that can open the file can hold it. The signature is still the last
    leader's."""
    child.kill()
    child.wait()
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        mine = FileLockLeadership(path)
        assert not mine.acquire()
        found = holder(path)
        assert found is not None and found.outsider
        assert "is no role of this ledger" in mine.standing().waits_for
    assert mine.acquire()
    found = holder(path)
    assert found is not None and not found.outsider


def test_a_lock_of_another_pid_namespace_is_believed(path: Path) -> None:
    one = FileLockLeadership(path)
    one.acquire()
    signed = json.loads(path.read_text())
    path.write_text(json.dumps({**signed, "pid": 7, "pid_namespace": "pid:[1]"}))
    found = holder(path)
    assert found is not None and not found.outsider


def test_a_lock_file_that_an_earlier_version_made_is_closed_to_others(path: Path) -> None:
    path.touch()
    path.chmod(0o644)
    FileLockLeadership(path).acquire()
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_can_neither_hold_the_lock_nor_read_what_jobs_printed(open_to_all: Path) -> None:
    folder = open_to_all / "ledger"
    folder.mkdir(mode=0o755)
    (folder / "run").mkdir(mode=0o755)
    path = folder / "run" / "leader-projector.lock"
    path.touch(mode=0o644)
    one = FileLockLeadership(path)
    one.acquire()
    assert path.stat().st_mode & 0o077 == 0, "a file that an earlier version made is closed to others"

    def others() -> int:
        program = "import os, sys; os.setuid(65534); os.open(sys.argv[1], os.O_RDONLY)"
        return subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, check=False).returncode

    assert others() != 0
    path.chmod(0o644)
    assert others() == 0, "otherwise the next line proves nothing"
    private_folder(folder)
    assert others() != 0


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_a_lock_on_a_file_that_was_replaced_is_none(path: Path) -> None:
    one, two = FileLockLeadership(path), FileLockLeadership(path)
    one.acquire()
    path.unlink()
    assert not one.valid()
    assert two.acquire()
    assert not one.acquire()
    assert two.valid()


def test_a_file_that_is_replaced_between_open_and_lock_makes_nobody_lead(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next candidate locks the file that exists now."""
    plain = fcntl.flock

    def flock(handle: int, operation: int) -> None:
        monkeypatch.undo()
        path.unlink()
        path.touch()
        plain(handle, operation)

    one, two = FileLockLeadership(path), FileLockLeadership(path)
    monkeypatch.setattr(leadership.fcntl, "flock", flock)
    assert not one.acquire()
    assert two.acquire() and two.valid()
    assert not one.valid()


_HOLD = """
import sys, time
from pathlib import Path
from ledger.adapters.local.leadership import FileLockLeadership
lock = FileLockLeadership(Path(sys.argv[1]), who="child")
print(lock.acquire(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def child(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", _HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_kill_9_of_the_holder_frees_the_lock(path: Path, child: subprocess.Popen[str]) -> None:
    mine = FileLockLeadership(path)
    assert not mine.acquire()
    found = holder(path)
    assert found is not None
    assert (found.who, found.pid) == ("child", child.pid)
    child.kill()
    child.wait()
    assert mine.acquire()
    assert mine.valid()


def test_a_stopped_holder_keeps_the_lock(path: Path, child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGSTOP)
    assert not FileLockLeadership(path).acquire()
    child.send_signal(signal.SIGCONT)


def test_a_forked_child_neither_leads_nor_keeps_the_lock(path: Path) -> None:
    """A flock belongs to the open file: a forked child that outlives its parent would hold the lead for ever,
    unknowingly."""
    script = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from ledger.adapters.local.leadership import FileLockLeadership\n"
        "lock = FileLockLeadership(Path(sys.argv[1]))\n"
        "assert lock.acquire()\n"
        "if os.fork() == 0:\n"
        "    print(os.getpid(), lock.valid(), flush=True)\n"
        "    time.sleep(60)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid, valid = parent.stdout.readline().split()
    try:
        assert valid == "False"
        mine = FileLockLeadership(path)
        assert not mine.acquire()
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 5
        while not mine.acquire():
            in_time(time.monotonic() < deadline, "not within the time")
            time.sleep(0.01)
    finally:
        os.kill(int(pid), signal.SIGKILL)
        parent.kill()
        parent.wait()
        parent.stdout.close()
