"""Processes that outlive their starter are found again, never mistaken for others, and ended only by pid. The processes
are real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from ledger.adapters.clock import SystemClock
from ledger.config.config import load_config
from ledger.embedded import folder as ledger_folder
from ledger.embedded.keeper import DELAY_MAX_S, FIRST_DELAY_S, HEALTHY_S, ProcessRestarter
from ledger.embedded.leaders import Leaders
from ledger.embedded.up import Up
from ledger.errors import ConfigError
from ledger.ports import Clock
from ledger.util import processes
from ledger.util.processes import Identity, Process, find, identity, note_identity, read_identity
from tests.support.small_disks import fill, make_room, small_disk
from tests.support.waiting import until

pytestmark = pytest.mark.slow

SLEEPS = "import time; time.sleep(600)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Makes processes for a test. Those that still run at its end are killed."""
    started: list[Process] = []

    def make(code: str = SLEEPS, name: str = "worker", **options: object) -> Process:
        process = Process(name, lambda: [sys.executable, "-c", code, str(tmp_path)], tmp_path, **options)  # type: ignore[arg-type]
        started.append(process)
        return process

    yield make
    for process in started:
        if process.alive():
            os.kill(process.pid, signal.SIGKILL)
        process.stop(10)


# -- identity --------------------------------------------------------------------------------------------------------


def test_a_process_is_named_by_pid_start_and_boot(tmp_path: Path) -> None:
    who = identity(os.getpid())
    assert who is not None
    assert who == identity(os.getpid())
    assert (who.pid, who.start_time > 0) == (os.getpid(), True)
    path = tmp_path / "me.pid"
    note_identity(path, who)
    assert read_identity(path) == who


@pytest.mark.parametrize("change", [{"start_time": 1}, {"boot_id": "another"}, {"pid": 4_194_305}])
def test_another_process_under_the_same_pid_is_not_it(change: dict[str, object], tmp_path: Path) -> None:
    who = identity(os.getpid())
    assert who is not None
    note_identity(tmp_path / "me.pid", who._replace(**change))  # type: ignore[arg-type]
    assert read_identity(tmp_path / "me.pid") is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"pid": "x"}', '{"pid": 1}', "\x00", "99999999999999999999"])
def test_a_pid_file_that_cannot_be_read_names_nobody(text: str, tmp_path: Path) -> None:
    path = tmp_path / "worker.pid"
    assert read_identity(path) is None
    path.write_text(text)
    assert read_identity(path) is None


def test_a_zombie_does_not_run() -> None:
    child = subprocess.Popen([sys.executable, "-c", SLEEPS])
    try:
        who = identity(child.pid)
        assert who is not None
        child.kill()
        until(lambda: Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        assert identity(child.pid) is None
    finally:
        child.kill()
        child.wait()


def test_a_signal_reaches_only_the_process_that_is_meant() -> None:
    child = subprocess.Popen([sys.executable, "-c", SLEEPS])
    try:
        who = identity(child.pid)
        assert who is not None
        processes.send(Identity(child.pid, who.start_time - 1, who.boot_id), signal.SIGKILL)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.3)
        processes.send(who, signal.SIGKILL)
        assert child.wait(60) == -signal.SIGKILL
        processes.send(who, signal.SIGKILL)  # the process is gone: no error
    finally:
        child.kill()
        child.wait()


# -- start, adopt, stop ----------------------------------------------------------------------------------------------


def test_started_it_leads_a_session_and_writes_to_its_log(made: Callable[..., Process], tmp_path: Path) -> None:
    code = "import os, sys; print('out', os.getsid(0) == os.getpid(), os.getcwd()); print('err', file=sys.stderr)"
    process = made(code)
    process.start()
    until(lambda: not process.alive())
    assert process.log == tmp_path / "log" / "worker.log"
    assert sorted(process.log.read_text().splitlines()) == ["err", f"out True {tmp_path}"]
    assert process.ended_how() == "exit code 0"
    assert process.last_line() in ("err", f"out True {tmp_path}")


def test_it_is_found_again_by_whoever_comes_next(made: Callable[..., Process]) -> None:
    first = made()
    who = first.start()
    second = made()
    assert second.adopt() == who
    assert second.alive()
    assert second.stop(60)
    assert second.adopt() is None
    assert not first.alive()
    assert not first.pid_file.exists()


def test_it_outlives_its_starter(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from ledger.util.processes import Process\n"
        f"Process('worker', lambda: [sys.executable, '-c', {SLEEPS!r}], Path({str(tmp_path)!r})).start()\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    process = Process("worker", list, tmp_path)
    assert process.adopt() is not None
    assert process.alive()
    assert process.stop(60)
    assert not process.alive()


def test_one_whose_starter_died_before_it_was_noted_is_found_by_its_command(made: Callable[..., Process]) -> None:
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    child = subprocess.Popen([sys.executable, "-c", SLEEPS, "--name", mark], start_new_session=True)
    try:
        until(lambda: find("--name", mark) is not None)
        process = made(marks=["--name", mark])
        assert process.adopt() == identity(child.pid)
        assert read_identity(process.pid_file) == identity(child.pid)
        assert made(marks=["--name", f"{mark}-other"], name="other").adopt() is None
    finally:
        child.kill()
        child.wait()


def test_what_a_program_forks_is_not_taken_for_it() -> None:
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    code = "import os, time\nif os.fork():\n  time.sleep(600)\nelse:\n  time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code, mark], start_new_session=True)
    try:
        until(lambda: subprocess.run(["pgrep", "-c", "-f", mark], capture_output=True, text=True).stdout.strip() == "2")
        assert find(mark) == identity(child.pid)
        child.kill()
        child.wait()
        assert find(mark) is None
    finally:
        os.killpg(child.pid, signal.SIGKILL)


def test_one_that_does_not_listen_is_killed(made: Callable[..., Process]) -> None:
    process = made(DEAF)
    process.start()
    until(lambda: process.last_line() == "deaf")
    assert process.stop(0.3) is False
    until(lambda: not process.alive(), "the process is dead, killed no later than its grace period allows")
    assert process.ended_how() == "killed by SIGKILL"


def test_stopping_what_does_not_run_is_no_error(made: Callable[..., Process]) -> None:
    process = made()
    assert process.stop(1)
    process.start()
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: not process.alive())
    assert process.stop(1)
    assert not process.pid_file.exists()


def test_a_pid_file_of_another_boot_is_no_obstacle(made: Callable[..., Process]) -> None:
    process = made()
    process.pid_file.parent.mkdir(parents=True)
    process.pid_file.write_text(json.dumps({"pid": os.getpid(), "start_time": 5, "boot_id": "before"}))
    assert process.adopt() is None
    process.stop(1)  # ends no process: the file names this process itself
    who = process.start()
    assert read_identity(process.pid_file) == who


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    process = Process("worker", lambda: ["/no/such/program"], tmp_path)
    with pytest.raises(ConfigError, match="worker can't be started"):
        process.start()
    assert not process.alive()


def test_of_what_it_said_the_reason_counts_not_the_hint(made: Callable[..., Process]) -> None:
    process = made("print('error: no Java'); print('hint: install it'); print()")
    process.start()
    until(lambda: not process.alive())
    assert process.last_line() == "error: no Java"


def test_a_long_log_is_copied_away_while_the_program_goes_on(made: Callable[..., Process]) -> None:
    code = "import sys, time\nfor i in range(100000):\n  print('line', i, flush=True); time.sleep(0.001)"
    process = made(code, log_bytes_max=2000)
    process.start()
    older = [process.log.with_name(f"worker.log.{number}") for number in range(1, 5)]

    def rotated() -> bool:
        process.rotate_log()
        return older[2].exists()

    until(rotated)
    assert older[0].stat().st_size >= 2000
    assert not older[3].exists()
    until(lambda: process.last_line().startswith("line"))
    process.rotate_log()
    before = process.last_line()
    until(lambda: process.last_line() > before or process.last_line() != before)
    assert b"\0" not in process.log.read_bytes()  # it appends at the end, not at its old position


def test_on_a_full_disk_it_cannot_be_started_and_nobody_is_left_running(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        process = Process("worker", lambda: [sys.executable, "-c", "import time; time.sleep(600)"], disk)
        fill(disk)
        with pytest.raises(ConfigError, match="worker can't be started"):
            process.start()
        assert not process.alive() and find("-c", "import time; time.sleep(600)", str(disk)) is None
        (disk / "log").mkdir(exist_ok=True)
        (disk / "run").mkdir(exist_ok=True)
        with pytest.raises(ConfigError, match="No space left"):
            process.start()  # it starts, but its pid can't be stored
        assert not process.alive()
        make_room(disk)
        process.start()
        assert process.alive()
        process.stop(5)


def test_a_long_log_that_cannot_be_copied_is_cut(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        process = Process("worker", lambda: ["true"], disk, log_bytes_max=2000)
        process.log.parent.mkdir()
        process.log.write_bytes(b"x" * 5000)
        fill(disk)
        process.rotate_log()
        assert process.log.stat().st_size == 0
        assert not process.log.with_name("worker.log.1").exists(), "an incomplete copy is not kept"


# -- restarting --------------------------------------------------------------------------------------------------------


class HandClock(Clock):
    """A clock that the test moves."""

    now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def fallen(keeper: ProcessRestarter) -> None:
    os.kill(keeper.process.pid, signal.SIGKILL)
    until(lambda: not keeper.process.alive())


def test_one_that_falls_is_started_again(made: Callable[..., Process]) -> None:
    said: list[str] = []
    clock = HandClock()
    keeper = ProcessRestarter(made(), clock, said.append)
    keeper.begin()
    first = keeper.process.pid
    keeper.step()
    assert keeper.process.pid == first
    fallen(keeper)
    keeper.step()
    assert not keeper.process.alive()  # it is not restarted at once, because it may fall again
    clock.now += FIRST_DELAY_S
    keeper.step()
    assert keeper.process.alive()
    assert keeper.process.pid != first
    assert said == [
        f"started worker pid {first}",
        f"worker pid {first} fell: killed by SIGKILL",
        f"started worker pid {keeper.process.pid} again",
    ]


def test_an_adopted_one_that_falls_is_started_again(made: Callable[..., Process]) -> None:
    starter = made()
    starter.start()
    said: list[str] = []
    clock = HandClock()
    keeper = ProcessRestarter(made(), clock, said.append)
    keeper.begin()
    assert said == [f"adopted worker pid {starter.pid}"]
    assert not keeper.started_here
    fallen(keeper)
    until(lambda: not starter.alive())  # `alive` reaps it
    clock.now += FIRST_DELAY_S
    keeper.step()
    clock.now += FIRST_DELAY_S
    keeper.step()
    assert keeper.process.alive()
    assert keeper.process.pid != starter.pid


def test_one_that_keeps_falling_is_started_less_and_less_often(made: Callable[..., Process]) -> None:
    said: list[str] = []
    clock = HandClock()
    keeper = ProcessRestarter(made("print('no good'); raise SystemExit(3)"), clock, said.append)
    keeper.begin()
    delays = []
    for _ in range(8):
        until(lambda: not keeper.process.alive())
        keeper.step()
        began, starts = clock.now, sum("again" in line for line in said)
        while sum("again" in line for line in said) == starts:
            clock.now += 0.05
            keeper.step()
        delays.append(clock.now - began)
    assert delays[:3] == pytest.approx([0.2, 0.4, 0.8], abs=0.06)
    assert max(delays) == delays[-1] == pytest.approx(DELAY_MAX_S, abs=0.06)
    assert any("exit code 3: no good" in line for line in said)


def test_one_that_ran_well_for_long_is_started_soon(made: Callable[..., Process]) -> None:
    clock = HandClock()
    keeper = ProcessRestarter(made(), clock, lambda _: None)
    keeper.begin()
    for _ in range(5):
        fallen(keeper)
        keeper.step()
        clock.now += DELAY_MAX_S
        keeper.step()
        assert keeper.process.alive()
    clock.now += HEALTHY_S
    fallen(keeper)
    keeper.step()
    clock.now += FIRST_DELAY_S
    keeper.step()
    assert keeper.process.alive()


def test_what_cannot_be_started_is_tried_again(tmp_path: Path, made: Callable[..., Process]) -> None:
    said: list[str] = []
    clock = HandClock()
    broken = True

    def command() -> list[str]:
        if broken:
            raise ConfigError("no Java")
        return [sys.executable, "-c", SLEEPS]

    keeper = ProcessRestarter(Process("worker", command, tmp_path), clock, said.append)
    with pytest.raises(ConfigError):
        keeper.begin()
    keeper.step()
    assert said == ["worker can't be started: no Java"]
    broken = False
    clock.now += FIRST_DELAY_S
    keeper.step()
    assert keeper.process.alive()
    keeper.process.stop(10)


# -- the folder ------------------------------------------------------------------------------------------------------


def test_one_works_in_a_folder_at_a_time_and_a_dead_one_is_no_obstacle(tmp_path: Path) -> None:
    script = (
        "import time; from pathlib import Path; from ledger.embedded import folder as f\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "with f.only_one(folder), f.noted_as_up(folder):\n  print('held', flush=True); time.sleep(600)"
    )
    other = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert ledger_folder.up_runs(tmp_path) == identity(other.pid)
        with pytest.raises(ConfigError, match=f"pid {other.pid}"), ledger_folder.only_one(tmp_path):
            pass
    finally:
        other.kill()
        other.communicate()
    assert ledger_folder.up_runs(tmp_path) is None
    with ledger_folder.only_one(tmp_path):
        pass


def test_what_runs_in_the_agents_folder_is_seen_whoever_started_it(tmp_path: Path) -> None:
    inside = tmp_path / "agent" / "jobs" / "j" / "work"
    inside.mkdir(parents=True)
    assert ledger_folder.users_of(tmp_path) == []
    children = [
        subprocess.Popen([sys.executable, "-c", SLEEPS], cwd=inside),
        subprocess.Popen([sys.executable, "-c", SLEEPS, str(inside)]),
        subprocess.Popen([sys.executable, "-c", SLEEPS, "--dir", str(tmp_path)]),  # a role, not a job
        subprocess.Popen([sys.executable, "-c", SLEEPS], cwd=tmp_path),
    ]
    try:
        until(lambda: ledger_folder.users_of(tmp_path) == sorted(child.pid for child in children[:2]))
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert ledger_folder.users_of(tmp_path) == []


def test_who_acts_stops_before_what_it_acts_on(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in ("broker", "up", "agent", "projector-2", "reconciler-1", "projector-1"):
        (tmp_path / "run" / f"{name}.pid").touch()
    assert ledger_folder.noted(tmp_path) == ["reconciler-1", "projector-1", "projector-2", "agent", "broker"]


def test_of_a_log_in_json_what_it_says_is_told(made: Callable[..., Process]) -> None:
    said: list[str] = []
    line = json.dumps({"process": "x" * 400, "event": "no broker", "level": "error", "hint": "Start one."})
    keeper = ProcessRestarter(made(f"print({line!r}); raise SystemExit(3)"), HandClock(), said.append)
    keeper.begin()
    until(lambda: not keeper.process.alive())
    keeper.step()
    assert said[-1].endswith("fell: exit code 3: error: no broker")


def test_one_that_refuses_again_and_again_is_counted_and_one_that_fails_is_not(made: Callable[..., Process]) -> None:
    for code, counted in ((2, 3), (3, 0)):
        clock = HandClock()
        keeper = ProcessRestarter(made(f"print('no'); raise SystemExit({code})"), clock, lambda _: None)
        keeper.begin()
        for _ in range(3):
            until(lambda keeper=keeper: not keeper.process.alive())
            keeper.step()
            clock.now += DELAY_MAX_S
            keeper.step()
        assert keeper.refusals == counted
    keeper = ProcessRestarter(made(), HandClock(), lambda _: None)
    keeper.begin()
    keeper.refusals = 2
    fallen(keeper)
    keeper.step()
    assert keeper.refusals == 0, "the next end has another reason"


def test_what_is_brought_up_is_given_up_with_the_reason_once_a_role_refuses_again_and_again(
    tmp_path: Path, made: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    up = Up(load_config(tmp_path), ["projector-1"], say=said.append, stopped=threading.Event(), source=_nothing)
    line = '{"event": "Can\'t read ledger.events[1]: damaged.", "level": "error", "hint": "See there."}'
    keeper = ProcessRestarter(made(f"print({line!r}); raise SystemExit(2)"), SystemClock(), said.append)
    keeper.begin()
    monkeypatch.setattr(up, "_keepers", {"projector-1": keeper})
    with pytest.raises(ConfigError, match=r"projector-1 ended 3 times in a row: error: Can.t read") as told:
        up._wait_for_roles(cast("Leaders", Unled()))
    assert "worker.log" in told.value.hint


class Unled:
    """Leaders of a ledger without any leader."""

    def led(self, _: str) -> bool:
        return False


def _nothing() -> Any:
    raise AssertionError("nobody leads, so no readiness must be asked for")
