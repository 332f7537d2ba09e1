"""One attempt as a process: how it starts, how it ends, and that none of its processes is left."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ledger.adapters.runners.subprocess import log_paths, supervisor
from ledger.adapters.runners.subprocess import prepare as preparing
from ledger.adapters.runners.subprocess.supervisor import main as life
from ledger.adapters.runners.subprocess.supervisor import procs
from ledger.core.model.facts import FailureRule, RestorePoint
from ledger.core.model.registers import Checkpoint, Ended, Running
from tests.support.host import DEADLINE_S, Host, gone
from tests.support.waiting import until

pytestmark = pytest.mark.slow

J = "job-1"


@pytest.fixture(autouse=True)
def agent(host: Host) -> None:
    host.start_agent()


# -- kill -9 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", ["fork", "escape"])
def test_killing_the_supervisor_leaves_no_process_of_the_job(host: Host, leave: str) -> None:
    job = host.start(J)
    host.tell(J, leave)
    grandchild = int(host.said(J, leave))
    host.tell(J, "checkpoint 3")
    until(lambda: Checkpoint(1, 3) in dict(host.logged(J)), "a checkpoint is in the log")
    host.tell(J, "checkpoint 4")
    until((host.run_folder(J) / "checkpoints" / "chk-4").exists, "a checkpoint, reported or not")
    os.kill(host.supervisor(J), signal.SIGKILL)
    end, fact = host.end(J)
    assert gone(job)
    assert gone(grandchild)
    assert end.outcome == "failed"
    assert fact.checkpoint == 4
    assert "its supervisor was killed" in fact.cause
    assert [register for register, _ in host.logged(J)] == [Running(1), Checkpoint(1, 3), Checkpoint(1, 4), end]
    assert host.alive(J) == []


def test_killing_the_job_is_a_failure_with_the_last_words_as_its_cause(host: Host) -> None:
    job = host.start(J, command=["sh", "-c", f"echo oh no >&2; exec {sys.executable} -ISE job.py $LEDGER_CONTROL"],
                     environment={"LEDGER_CONTROL": str(host.control(J))})  # fmt: skip
    os.kill(job, signal.SIGKILL)
    end, fact = host.end(J)
    assert end.outcome == "failed"
    assert fact.cause == "killed by SIGKILL: oh no"
    assert fact.ran_for_s > 0


def test_a_supervisor_lets_no_ordinary_signal_end_it(host: Host) -> None:
    job = host.start(J)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(host.supervisor(J), number)
    host.tell(J, "checkpoint 1")
    until(lambda: Checkpoint(1, 1) in dict(host.logged(J)), "the supervisor still reports")
    assert not gone(job)


def test_signals_that_the_supervisor_ignores_are_not_ignored_by_the_job(host: Host) -> None:
    pid = host.start(J)
    ignored = next(
        int(line.split()[1], 16)
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigIgn:")
    )
    # Python itself ignores SIGPIPE and SIGXFSZ.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2, signal.SIGCHLD):
        assert not ignored >> (number - 1) & 1


# -- processes that a job leaves -------------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", ["fork", "escape", "vanish"])
def test_nothing_of_a_job_outlives_it(host: Host, leave: str) -> None:
    """`vanish` starts a process with another POSIX session id, another parent and no environment: only the supervisor can
    find it."""
    host.start(J)
    host.tell(J, leave)
    grandchild = int(host.said(J, leave))
    host.tell(J, "exit 0")
    end, _ = host.end(J)
    assert end.outcome == "finished"
    assert gone(grandchild)


def test_a_job_that_becomes_a_daemon_is_over_with_its_first_process(host: Host) -> None:
    """A job has to stay in the foreground: the processes that it leaves are killed, and its exit code counts."""
    graph = host.graph(J, command=["sh", "-c", "setsid sleep 1000 & echo $! > pid; exit 0"])
    host.runner.start(J, 1, graph, None, {})
    end, _ = host.end(J)
    assert end.outcome == "finished"
    assert gone(int((host.run_folder(J) / "graph" / "pid").read_text()))


# -- start -----------------------------------------------------------------------------------------------------------


def test_a_job_that_exits_at_once_has_run_and_ended(host: Host) -> None:
    graph = host.graph(J, command=["true"])
    host.runner.start(J, 1, graph, None, {})
    end, fact = host.end(J)
    assert end.outcome == "finished"
    assert [register for register, _ in host.logged(J)] == [Running(1), end]
    assert fact.cause == "exit code 0"


@pytest.mark.parametrize(
    ("command", "outcome", "cause"),
    [
        ("no-such-program", "failed-permanent", f"no-such-program is not in PATH ({os.environ['PATH']})"),
        ("bin/no-such-file", "failed-permanent", "there is no file bin/no-such-file in the job graph"),
        ("/no-such-disk/program", "failed", "FileNotFoundError: [Errno 2] No such file or directory"),
        ("./job.py", "failed", "PermissionError: [Errno 13] Permission denied"),
    ],
)
def test_a_command_that_cant_be_executed_fails_and_says_why(host: Host, command: str, outcome: str, cause: str) -> None:
    host.runner.start(J, 1, host.graph(J, command=[command]), None, {})
    end, fact = host.end(J)
    assert (end.outcome, fact.cause.partition(": '")[0]) == (outcome, f"the command could not be executed: {cause}")
    assert [register for register, _ in host.logged(J)] == [end]


def test_a_rule_of_the_job_says_whether_a_command_that_is_not_there_is_tried_again(host: Host) -> None:
    rule = FailureRule("deploying", exit_code=127)
    host.runner.start(J, 1, host.graph(J, command=["no-such-program"]), None, {}, [rule])
    end, fact = host.end(J)
    assert end.outcome == "failed" and fact.cause.startswith("deploying: the command could not be executed: ")


def test_a_job_sees_a_small_fixed_environment_and_its_own(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_AGENT", "x")
    monkeypatch.setenv("TZ", "UTC")
    base = RestorePoint(7, 3, str(host.root / "chk-3"))
    graph = host.graph(J, environment={"COLOUR": "blue", "LEDGER_RESTORE_FROM": "lies", "LEDGER_ATTEMPT": "99"})
    host.runner.start(J, 8, graph, base, {"SHAPE": "round"})
    seen = ast.literal_eval(host.said(J, "environment"))
    allowed = {*preparing.INHERITED, "COLOUR", "SHAPE", "LC_CTYPE"}
    assert {name for name in seen if not name.startswith("LEDGER_")} <= allowed
    assert (seen["COLOUR"], seen["SHAPE"], seen["TZ"]) == ("blue", "round", "UTC")
    folder = host.run_folder(J, 8)
    assert {name: value for name, value in seen.items() if name.startswith("LEDGER_")} == {
        "LEDGER_JOB_ID": J, "LEDGER_ATTEMPT": "8", "LEDGER_GRAPH_DIR": str(folder / "graph"),
        "LEDGER_CHECKPOINT_DIR": str(folder / "checkpoints"), "LEDGER_RESTORE_FROM": base.location,
    }  # fmt: skip


def test_from_scratch_there_is_no_restore_point(host: Host) -> None:
    host.runner.start(J, 1, host.graph(J, environment={"LEDGER_RESTORE_FROM": "lies"}), None, {})
    assert "LEDGER_RESTORE_FROM" not in ast.literal_eval(host.said(J, "environment"))


def test_a_job_has_a_session_of_its_own_and_works_in_its_graphs_folder(host: Host) -> None:
    pid = host.start(J)
    found, keeper = procs.stat(pid), procs.stat(host.supervisor(J))
    assert found is not None
    assert keeper is not None
    assert (found.pgid, found.sid, found.ppid) == (pid, pid, keeper.pid)
    assert keeper.sid == keeper.pid != os.getsid(0)
    assert Path(f"/proc/{pid}/cwd").readlink() == host.run_folder(J) / "graph"


def test_the_memory_limit_is_the_jobs_not_the_supervisors(host: Host) -> None:
    limit = 64 << 20
    program = "x = bytearray(200 << 20)"
    host.runner.start(J, 1, host.graph(J, command=[sys.executable, "-c", program], memory_bytes=limit), None, {})
    end, fact = host.end(J)
    assert end.outcome == "failed"
    assert "MemoryError" in fact.cause
    host.runner.start("job-2", 1, host.graph("job-2", command=[sys.executable, "-c", program]), None, {})
    assert host.end("job-2")[0].outcome == "finished"


# -- orders ----------------------------------------------------------------------------------------------------------


def test_a_job_that_ignores_sigterm_is_killed_after_its_grace(host: Host) -> None:
    host.start(J, stop_grace_s=0.5)
    host.tell(J, "on ignore")
    host.tell(J, "fork")
    grandchild = int(host.said(J, "fork"))
    ordered_at = time.monotonic()
    host.runner.stop(J, 1, "canceled")
    end, fact = host.end(J)
    assert time.monotonic() - ordered_at >= 0.5
    assert end.outcome == "canceled"
    assert fact.cause == "killed by SIGKILL"
    assert gone(grandchild)


def test_the_grace_counts_from_the_signal_however_long_the_order_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asks").mkdir()
    (tmp_path / "attempt.json").write_text(json.dumps({"stop_grace_s": 3.0}))
    kept, now_s = life.Supervisor(str(tmp_path)), [100.0]

    def slow_disk() -> None:
        now_s[0] += 10.0
        kept.order = {"outcome": "canceled", "savepoint": False}

    monkeypatch.setattr(kept, "_read_order", slow_disk)
    monkeypatch.setattr(life, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(life, "procs", SimpleNamespace(kill_group=lambda *_: None))
    kept._orders()
    assert kept.kill_at == 113.0


@pytest.mark.parametrize("code", [0, 3])
def test_a_job_has_its_grace_to_write_a_last_checkpoint(host: Host, code: int) -> None:
    script = (
        f"trap 'touch $LEDGER_CHECKPOINT_DIR/chk-9; exit {code}' TERM; echo 1 > {host.control(J)}/ready.said;"
        " while :; do sleep 0.05; done"
    )
    host.start(J, stop_grace_s=DEADLINE_S, command=["sh", "-c", script])
    host.runner.stop(J, 1, "stopped")
    end, fact = host.end(J)
    assert (end.outcome, fact.checkpoint) == ("stopped", 9)
    assert fact.cause.startswith(f"exit code {code}")


def test_an_order_that_is_stored_before_the_end_is_seen_counts(host: Host) -> None:
    """The job has exited, and its exit was not seen yet when the order comes. The one that is stored first decides."""
    job = host.start(J)
    keeper = host.supervisor(J)
    os.kill(keeper, signal.SIGSTOP)
    until(lambda: ") T " in Path(f"/proc/{keeper}/stat").read_text(), "the supervisor is stopped")
    host.tell(J, "exit 0")
    until(lambda: gone(job), "the job is over")
    host.runner.stop(J, 1, "canceled")
    os.kill(keeper, signal.SIGCONT)
    end, fact = host.end(J)
    assert (end.outcome, fact.cause) == ("canceled", "exit code 0")


def test_an_order_reaches_a_job_that_is_halted(host: Host) -> None:
    job = host.start(J, stop_grace_s=DEADLINE_S)
    host.tell(J, "on 0")
    until(lambda: procs.catches(job, signal.SIGTERM), "the job has a handler")
    os.kill(job, signal.SIGSTOP)
    host.runner.stop(J, 1, "stopped")
    assert host.end(J)[1].cause == "exit code 0"


def test_a_stop_with_a_savepoint_waits_for_it(host: Host) -> None:
    host.start(J)
    host.tell(J, "checkpoint 4")
    until(lambda: Checkpoint(1, 4) in dict(host.logged(J)), "a checkpoint")
    host.runner.stop(J, 1, "stopped", savepoint=True)
    end, fact = host.end(J)
    assert (end.outcome, fact.checkpoint) == ("stopped", 5)
    assert dict(host.logged(J))[Checkpoint(1, 5)].kind.value == "SAVEPOINT"


def test_a_job_that_knows_no_savepoints_is_not_killed_by_the_question(host: Host) -> None:
    graph = host.graph(J, command=["sh", "-c", "sleep 1000; true"])
    host.runner.start(J, 1, graph, None, {})
    until(lambda: Running(1) in dict(host.logged(J)), "the attempt runs")
    host.runner.savepoint(J, 1, "ask-1")
    until(lambda: list((host.run_folder(J) / "asks").glob("*.ask")), "the request is stored")
    for number in (1, 2):  # between the two reports the supervisor has read the request
        (host.run_folder(J) / "checkpoints" / f"chk-{number}").touch()
        until(lambda number=number: Checkpoint(1, number) in dict(host.logged(J)), "a checkpoint")
    assert host.alive(J) == [1]
    host.runner.stop(J, 1, "stopped", savepoint=True)
    assert host.end(J)[1].cause == "killed by SIGTERM"


# -- checkpoints -----------------------------------------------------------------------------------------------------


RUN = (
    "import sys; sys.path.append(sys.argv[1]); import supervisor.main as m;"
    " m.GIVE_UP_S, m.SIGN_OF_LIFE_S, m.RETRY_S = 0.5, 0.1, 0.1; m.main(sys.argv[2])"
)


def test_a_supervisor_without_its_run_folder_is_an_orphan_and_ends_with_its_job(host: Host) -> None:
    host.start(J)
    folder = host.root / "copy"
    # separate folders: the contents of the originals change while the first supervisor lives
    for name in ("facts", "asks", "checkpoints", "logs"):
        (folder / name).mkdir(parents=True)
    shutil.copy(host.run_folder(J) / "attempt.json", folder)
    attempt = json.loads((folder / "attempt.json").read_text())
    command = ["sh", "-c", "setsid sleep 1000 & sleep 1000; true"]
    (folder / "attempt.json").write_text(json.dumps({**attempt, "command": command}))
    package = Path(supervisor.__file__).parents[1]
    process = subprocess.Popen([sys.executable, "-ISE", "-c", RUN, str(package), str(folder)])
    try:
        until((folder / "child.json").exists, "the job has started")
        job = json.loads((folder / "child.json").read_text())["pid"]
        escaped = until(
            lambda: [s.pid for s in procs.all_stats() if s.ppid == job and s.sid == s.pid], "a child has its own session"
        )
        folder.rename(folder.with_name("away"))
        assert process.wait(DEADLINE_S) == 1
    finally:
        process.kill()
        process.wait(DEADLINE_S)
    assert gone(job)
    assert all(gone(pid) for pid in escaped)


def test_a_supervisor_that_finds_no_run_folder_starts_nothing(tmp_path: Path) -> None:
    main = Path(supervisor.__file__).with_name("__main__.py")
    command = [sys.executable, "-ISE", str(main), str(tmp_path / "none")]
    done = subprocess.run(command, timeout=DEADLINE_S, capture_output=True)
    assert done.returncode == 1
    assert b"the run folder is gone" in done.stderr


def test_a_supervisor_that_can_start_nothing_says_why(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "LOG_FILES", "none")
    host.runner.start(J, 1, host.graph(J), None, {})
    end, fact = host.end(J)
    assert end.outcome == "failed"
    assert "its supervisor ended before the job began" in fact.cause
    assert "ValueError" in fact.cause


def test_what_is_no_checkpoint_by_its_name_is_none(host: Host) -> None:
    host.start(J)
    folder = host.run_folder(J) / "checkpoints"
    wrong = ("chk-", "chk-01", "chk--1", "chk-1x", "chk-1.tmp", "CHK-1", "chk-99999999999999999999", "other")
    for name in (*wrong, "chk-1@", "chk-1@a b", f"chk-1@{'x' * 129}", "chk-1@a@b"):
        (folder / name).touch()
    host.tell(J, "checkpoint 0")
    until(lambda: Checkpoint(1, 0) in dict(host.logged(J)), "a checkpoint")
    assert [r.id for r, _ in host.logged(J) if isinstance(r, Checkpoint)] == [0]


def test_a_folder_is_a_checkpoint_of_the_size_of_its_files(host: Host) -> None:
    host.start(J)
    folder = host.run_folder(J) / "checkpoints"
    (folder / "part" / "deep").mkdir(parents=True)
    (folder / "part" / "a").write_bytes(b"x" * 100)
    (folder / "part" / "deep" / "b").write_bytes(b"x" * 23)
    (folder / "part").rename(folder / "chk-1")
    fact = until(lambda: dict(host.logged(J)).get(Checkpoint(1, 1)), "a checkpoint")
    assert fact.size == 123
    point = RestorePoint(1, 1, fact.location, fact.size)
    assert host.runner.verify(point).value == "valid"
    (folder / "chk-1" / "deep" / "b").write_bytes(b"x" * 22)
    assert host.runner.verify(point).value == "invalid"


def test_an_id_below_the_newest_is_ignored_and_said_so(host: Host) -> None:
    host.start(J)
    host.tell(J, "checkpoint 5")
    until(lambda: Checkpoint(1, 5) in dict(host.logged(J)), "a checkpoint")
    host.tell(J, "checkpoint 4")
    log = host.run_folder(J) / "logs" / "supervisor.log"
    until(lambda: "chk-4 is not above the newest checkpoint 5" in log.read_text(), "a line in the log")
    host.tell(J, "exit 0")
    assert host.end(J)[1].checkpoint == 5
    assert [r.id for r, _ in host.logged(J) if isinstance(r, Checkpoint)] == [5]
    assert log.read_text().count("chk-4") == 1


def test_a_fact_that_cant_be_written_is_written_later(host: Host) -> None:
    """The disk is full for a while: the job goes on, and no fact is lost."""
    host.start(J)
    facts = host.run_folder(J) / "facts"
    until(lambda: Running(1) in dict(host.logged(J)), "the attempt runs")
    facts.rename(facts.with_name("away"))
    host.tell(J, "checkpoint 1")
    log = host.run_folder(J) / "logs" / "supervisor.log"
    until(lambda: "a fact can't be written" in log.read_text(), "the supervisor logs the error")
    host.tell(J, "exit 0")
    assert host.alive(J) == [1]
    facts.with_name("away").rename(facts)
    end, fact = host.end(J)
    assert (end.outcome, fact.checkpoint) == ("finished", 1)


def test_a_start_first_reports_what_earlier_attempts_left_unreported(host: Host) -> None:
    host.start(J)
    host.tell(J, "checkpoint 1")
    host.tell(J, "exit 1")
    host.end(J)
    (host.run_folder(J) / "checkpoints" / "chk-2").touch()
    host.start(J, 2)
    until(lambda: Running(2) in dict(host.logged(J)), "the attempt runs")
    registers = [register for register, _ in host.logged(J)]
    assert registers.index(Checkpoint(1, 2)) < registers.index(Running(2))
    assert host.runner.start(J, 2, host.graph(J), None, {}).value == "already"
    assert registers.count(Checkpoint(1, 2)) == 1


def test_a_killed_supervisor_leaves_word_how_long_the_job_ran(host: Host) -> None:
    began = time.monotonic()
    host.start(J)
    word, keeper = host.run_folder(J) / "ran_for_s", host.supervisor(J)
    until(word.exists, "a sign of life")
    os.kill(keeper, signal.SIGKILL)
    until(lambda: gone(keeper), "the supervisor is dead")
    said = float(word.read_text())  # a delayed supervisor may have written it late, or more than once
    assert 5 <= said <= time.monotonic() - began
    assert host.end(J)[1].ran_for_s == said


# -- logs ------------------------------------------------------------------------------------------------------------


def test_logs_are_bounded_and_keep_the_newest_lines(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "LOG_BYTES_MAX", 20_000)
    monkeypatch.setattr(preparing, "LOG_FILES", 3)
    host.start(J)
    logs = host.run_folder(J) / "logs"
    for i in range(1, 5):
        host.tell(J, "print 300")
        host.tell(J, f"checkpoint {i}")
        until((host.run_folder(J) / "checkpoints" / f"chk-{i}").exists, "the output is printed")
        until(lambda: (logs / "stdout.log").stat().st_size <= 20_000, "the log is truncated")
    host.tell(J, "exit 3")
    host.end(J)
    paths = [path for path in log_paths(host.folder, J, 1) if path.name.startswith("stdout")]
    assert [path.name for path in paths] == ["stdout.log.2", "stdout.log.1", "stdout.log"]
    assert all(path.stat().st_size <= 3 * 20_000 for path in paths)
    assert paths[1].read_text().endswith("x\n")
    assert "last words" in (logs / "stderr.log").read_text()


def test_a_supervisor_that_stands_still_holds_nothing_up(host: Host) -> None:
    """The job writes its logs itself, more than a pipe could hold."""
    host.start(J)
    keeper = host.supervisor(J)
    os.kill(keeper, signal.SIGSTOP)
    try:
        host.tell(J, "print 5000")
        host.tell(J, "checkpoint 1")
        until((host.run_folder(J) / "checkpoints" / "chk-1").exists, "the job goes on")
    finally:
        os.kill(keeper, signal.SIGCONT)
    until(lambda: Checkpoint(1, 1) in dict(host.logged(J)), "the checkpoint is reported in the end")


def test_a_supervisor_is_small(host: Host) -> None:
    host.start(J)
    until(lambda: Running(1) in dict(host.logged(J)), "the attempt runs")
    status = Path(f"/proc/{host.supervisor(J)}/status").read_text()
    resident_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    assert resident_kb < 13 * 1024


def test_the_end_of_an_exit_that_was_seen_but_not_reported_is_what_it_was(host: Host) -> None:
    """The supervisor is killed after it recorded the exit and before its report. The exit code is known all the same."""
    host.start(J)
    facts = host.run_folder(J) / "facts"
    until(lambda: Running(1) in dict(host.logged(J)), "the attempt runs")
    facts.rename(facts.with_name("away"))
    host.tell(J, "exit 0")
    until((host.run_folder(J) / "order.json").exists, "the end is decided")
    os.kill(host.supervisor(J), signal.SIGKILL)
    facts.with_name("away").rename(facts)
    end, fact = host.end(J)
    assert (end.outcome, fact.cause) == ("finished", "exit code 0")
    assert isinstance(end, Ended)
