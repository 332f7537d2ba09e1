"""The agent may die at any moment: no attempt stops, no event is lost, and no attempt is started twice."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from ledger.adapters import cloudevents
from ledger.adapters.local.blobs import FileBlobs
from ledger.adapters.runners import wire
from ledger.adapters.runners.subprocess import SubprocessRunner, jobs
from ledger.adapters.runners.subprocess.agent import Agent
from ledger.core.model.registers import Checkpoint, Ended, Running, partition_of
from ledger.errors import ConfigError, PermanentError, Unreachable
from ledger.ports import RunnerEvent
from tests.support.host import DEADLINE_S, PARTITIONS, Host, LogFile, SystemClock, facts_in, gone
from tests.support.waiting import until

pytestmark = pytest.mark.slow

J = "job-1"
WRITES_FOR_EVER = (
    "i=0; while :; do i=$((i+1)); echo $i > $LEDGER_CHECKPOINT_DIR/.p;"
    " mv $LEDGER_CHECKPOINT_DIR/.p $LEDGER_CHECKPOINT_DIR/chk-$i; sleep 0.02; done"
)


def checkpoints(host: Host) -> list[int]:
    return [register.id for register, _ in host.logged(J) if isinstance(register, Checkpoint)]


# -- kill -9 ---------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(400)
def test_killing_the_agent_stops_nothing_and_loses_no_checkpoint(host: Host) -> None:
    host.spawn_agent()
    host.runner.start(J, 1, host.graph(J, command=["sh", "-c", WRITES_FOR_EVER]), None, {})
    supervisor = host.supervisor(J)
    for _ in range(4):
        seen = len(checkpoints(host))
        until(lambda seen=seen: len(checkpoints(host)) > seen, "checkpoints in the log")
        host.kill_agent()
        assert not gone(supervisor)
        host.spawn_agent()
    assert host.alive(J) == [1]
    host.runner.stop(J, 1, "stopped")
    end, fact = host.end(J)
    seen = checkpoints(host)
    distinct = list(dict.fromkeys(seen))
    assert distinct == list(range(1, fact.checkpoint + 1))
    assert host.logged(J)[-1][0] == end
    assert_same_bytes(host.log.read())


def test_what_is_sent_to_the_agents_terminal_reaches_no_job(host: Host) -> None:
    """A terminal sends Ctrl-C to a process group, and its hang-up to a session. The job and its supervisor are in
    neither the agent's group nor its session."""
    agent = host.spawn_agent()
    host.runner.start(J, 1, host.graph(J, command=["sh", "-c", WRITES_FOR_EVER]), None, {})
    supervisor = host.supervisor(J)
    assert os.getpgid(supervisor) != os.getpgid(agent)
    assert os.getsid(supervisor) != os.getsid(agent)
    host.runner.stop(J, 1, "stopped")
    host.end(J)


def assert_same_bytes(events: list[RunnerEvent]) -> None:
    """Checks that events sent twice are identical, and that the sequence numbers of each partition have no gap."""
    by_key: dict[bytes, RunnerEvent] = {}
    sequences: dict[int, set[int]] = {}
    for event in events:
        assert by_key.setdefault(event.key, event) == event
        envelope = cloudevents.parse(event.headers)
        assert envelope.sequence is not None
        sequences.setdefault(partition_of(envelope.subject, PARTITIONS), set()).add(envelope.sequence)
    assert len({cloudevents.parse(event.headers).id for event in by_key.values()}) == len(by_key)
    for numbers in sequences.values():
        assert numbers == set(range(1, max(numbers) + 1))
    assert sum(len(numbers) for numbers in sequences.values()) == len(by_key)


def test_killing_both_ends_the_attempt_as_failed_with_its_newest_checkpoint(host: Host) -> None:
    host.spawn_agent()
    job = host.start(J)
    host.tell(J, "fork")
    grandchild = int(host.said(J, "fork"))
    host.tell(J, "checkpoint 2")
    until((host.run_folder(J) / "checkpoints" / "chk-2").exists, "a checkpoint")
    host.kill_agent()
    os.kill(host.supervisor(J), signal.SIGKILL)
    until(lambda: gone(job), "the job dies with its supervisor, without any agent")
    host.spawn_agent()
    end, fact = host.end(J)
    assert (end.outcome, fact.checkpoint) == ("failed", 2)
    assert gone(grandchild)


def test_an_attempt_that_ended_while_there_was_no_agent_is_reported(host: Host) -> None:
    host.spawn_agent()
    host.start(J)
    host.kill_agent()
    host.tell(J, "checkpoint 8")
    host.tell(J, "exit 0")
    until((host.run_folder(J) / "order.json").exists, "its end is decided")
    host.spawn_agent()
    end, fact = host.end(J)
    assert (end.outcome, fact.checkpoint) == ("finished", 8)


@pytest.mark.parametrize("order", ["", "canceled"])
def test_after_a_restart_of_the_machine_what_ran_has_failed_or_ended_as_ordered(host: Host, order: str) -> None:
    """After a reboot another process may have the same pid and start time by chance."""
    host.start_agent()
    job = host.start(J)
    until(lambda: Running(1) in dict(host.logged(J)), "the attempt runs")
    host.stop_agent()
    folder = host.run_folder(J)
    os.kill(host.supervisor(J), signal.SIGSTOP)  # alive, but its recorded boot id is an earlier one
    if order:
        (folder / "order.json").write_text(json.dumps({"outcome": order, "savepoint": False}))
    for name in ("supervisor.json", "child.json"):
        who = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**who, "boot_id": "earlier"}))
    supervisor = host.supervisor(J)
    try:
        host.start_agent()
        end, fact = host.end(J)
        assert end.outcome == (order or "failed")
        assert "the machine was restarted" in fact.cause
    finally:
        os.kill(supervisor, signal.SIGKILL)
    until(lambda: gone(job), "the job dies with its supervisor")


# -- crash points of a start -----------------------------------------------------------------------------------------


def crash_at(host: Host, point: str) -> None:
    graph = host.graph(J)
    host.spawn_agent(point)
    until(lambda: host.folder.exists() and (host.folder / wire.SOCKET).exists(), "the agent listens")

    def start() -> bool:
        try:
            host.runner.start(J, 1, graph, None, {})
        except Unreachable:
            return host.process is not None and host.process.poll() is not None
        return False

    until(start, "the agent dies in a start")
    host.kill_agent()


def test_a_crash_before_the_marker_has_started_nothing(host: Host) -> None:
    crash_at(host, "prepared")
    host.spawn_agent()
    assert host.runner.observe() == []
    assert host.runner.start(J, 1, host.graph(J), None, {}).value == "started"
    host.said(J, "ready")
    assert host.runner.start(J, 1, host.graph(J), None, {}).value == "already"


def test_a_crash_behind_the_marker_is_an_attempt_that_never_ran(host: Host) -> None:
    crash_at(host, "marked")
    host.spawn_agent()
    end, fact = host.end(J)
    assert end.outcome == "failed"
    assert fact.cause == "never started: the agent died before the start"
    assert [register for register, _ in host.logged(J)] == [end]
    assert host.runner.start(J, 1, host.graph(J), None, {}).value == "already"
    assert not list(host.control(J).glob("*.said"))


def test_an_attempt_that_never_ran_ends_as_it_was_ordered_to(host: Host) -> None:
    crash_at(host, "marked")
    (host.run_folder(J) / "order.json").write_text(json.dumps({"outcome": "canceled", "savepoint": False}))
    host.spawn_agent()
    assert host.end(J)[0].outcome == "canceled"


def test_a_supervisor_that_comes_too_late_starts_nothing(host: Host) -> None:
    """The agent died after it had started the supervisor. The next agent closed the attempt before the job began."""
    crash_at(host, "marked")
    host.spawn_agent()
    host.end(J)
    from ledger.adapters.runners.subprocess import prepare
    from ledger.adapters.runners.subprocess.folders import MarkedAttempt

    late = prepare.spawn(MarkedAttempt(J, 1, host.run_folder(J)))
    assert late.wait(DEADLINE_S) == 0
    assert "this attempt was claimed before" in (host.run_folder(J) / "logs" / "supervisor.log").read_text()
    assert not list(host.control(J).glob("*.said"))


def test_a_crash_behind_the_spawn_leaves_an_attempt_that_runs(host: Host) -> None:
    crash_at(host, "spawned")
    assert int(host.said(J, "ready")) > 0  # the job runs without any agent
    host.spawn_agent()
    until(lambda: Running(1) in dict(host.logged(J)), "the next agent reports the attempt")
    assert host.alive(J) == [1]
    assert host.runner.start(J, 1, host.graph(J), None, {}).value == "already"
    host.tell(J, "exit 0")
    assert host.end(J)[0].outcome == "finished"


def test_a_crash_behind_the_sending_sends_the_same_again(host: Host) -> None:
    graph = host.graph(J, command=["true"])
    host.spawn_agent()
    host.kill_agent()
    host.spawn_agent("sent")

    def asked() -> str:
        """The answer of the start. The agent may die before it answers; that counts as started."""
        try:
            return host.runner.start(J, 1, graph, None, {}).value
        except Unreachable:
            return "" if host.process is None or host.process.poll() is None else "started"

    assert until(asked, "the agent has been asked") == "started"
    until(lambda: host.process is not None and host.process.poll() is not None, "the agent dies after its first sending")
    host.kill_agent()
    host.spawn_agent()
    end = until(lambda: [r for r, _ in host.logged(J) if isinstance(r, Ended)], "an end")[0]
    assert end.outcome == "finished"
    assert len(host.log.read()) > len({event.key for event in host.log.read()})
    assert_same_bytes(host.log.read())


# -- sending ---------------------------------------------------------------------------------------------------------


def test_a_lost_acknowledgement_means_the_same_bytes_again(host: Host) -> None:
    host.log.lose = True
    host.start_agent()
    host.start(J)
    until(lambda: len(host.log.read()) >= 3, "the event is sent repeatedly")
    host.restart_agent()
    host.log.lose = False
    host.tell(J, "exit 0")
    host.end(J)
    assert {event.key for event in host.log.read()[:3]} == {f"{J}/running/1".encode()}
    assert_same_bytes(host.log.read())


def test_an_end_is_not_sent_before_all_else_is_acknowledged(host: Host) -> None:
    """Otherwise a reader could treat the end as the last event, and miss a checkpoint that was not sent."""
    host.log.lose = True
    host.start_agent()
    host.start(J)
    host.tell(J, "checkpoint 1")
    host.tell(J, "exit 0")
    until(lambda: host.alive(J) == [], "the attempt is over")
    sent = len(host.log.read())
    until(lambda: len(host.log.read()) > sent + 4, "events are sent again")
    assert not [r for r, _ in host.logged(J) if isinstance(r, Ended)]
    host.runner.acknowledge(J, [b"job-1/running/1", b"job-1/checkpoint/1/1"])  # as after a reconciler relayed them
    until(lambda: [r for r, _ in host.logged(J) if isinstance(r, Ended)], "now the end is sent")


def test_no_number_is_used_twice_even_after_a_job_is_forgotten(host: Host) -> None:
    host.start_agent()
    for n in range(1, 4):
        host.runner.start(J, n, host.graph(J, command=["true"]), None, {})
        host.end(J, n)
        until(lambda: not host.runner.fence(J, 0), "all events are acknowledged")
        if n == 2:
            host.runner.forget(J)
        host.restart_agent()
    assert_same_bytes(host.log.read())
    assert len({event.key for event in host.log.read()}) == 6


def test_numbers_of_events_that_were_forgotten_unacknowledged_are_not_used_again(host: Host) -> None:
    host.log.lose = True
    host.start_agent()
    host.runner.start(J, 1, host.graph(J, command=["true"]), None, {})
    until(lambda: host.log.read() and host.alive(J) == [], "its first event is in the log")
    host.runner.forget(J)
    host.restart_agent()
    host.log.lose = False
    host.runner.start(J, 2, host.graph(J, command=["true"]), None, {})
    host.end(J, 2)
    numbers = {event.key: cloudevents.parse(event.headers).sequence for event in host.log.read()}
    assert len(set(numbers.values())) == len(numbers) == 3


def test_while_nothing_can_be_sent_facts_wait_and_a_fence_answers_with_all(host: Host) -> None:
    host.log.up = False
    host.start_agent()
    host.start(J)
    for number in range(1, 6):
        host.tell(J, f"checkpoint {number}")
    host.tell(J, "exit 1")
    until(lambda: host.alive(J) == [], "the attempt is over")
    host.restart_agent()
    events = facts_in(host.runner.fence(J, 1))
    assert [type(register) for register, _ in events] == [Running, *[Checkpoint] * 5, Ended]
    host.log.up = True
    host.end(J)
    until(lambda: not host.runner.fence(J, 1), "all events are acknowledged")
    assert [register for register, _ in host.logged(J)] == [register for register, _ in events]


def test_what_is_in_memory_is_bounded_while_nothing_can_be_sent(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "BACKLOG_MAX", 4)
    host.log.up = False
    host.start_agent()
    host.start(J)
    events = host.folder / "jobs" / J / "events"
    for number in range(1, 9):
        host.tell(J, f"checkpoint {number}")
    facts = host.run_folder(J) / "facts"
    until(lambda: len(list(facts.glob("*.json"))) == 9, "all facts are written")
    until(lambda: len(list(events.iterdir())) == 4, "four of them are events")
    host.restart_agent()
    assert len(list(events.iterdir())) == 4
    assert len(host.runner.fence(J, 1)) == 9
    host.log.up = True
    host.tell(J, "exit 0")
    host.end(J)
    assert_same_bytes(host.log.read())


# -- many attempts at once -------------------------------------------------------------------------------------------


@pytest.mark.timeout(400)
def test_fifty_attempts_are_observed_in_one_call(host: Host) -> None:
    host.start_agent()
    graph = host.graph(J, command=["sleep", "1000"])
    for n in range(1, 51):
        assert host.runner.start(J, n, graph, None, {}).value == "started"
    observed = host.runner.observe()
    assert [(a.job_id, a.n, a.alive) for a in observed] == [(J, n, True) for n in range(1, 51)]
    for n in range(1, 51):
        host.runner.stop(J, n, "stopped")
    until(lambda: not host.alive(J), "all attempts are stopped", 120)
    assert {r.n for r, _ in host.logged(J) if isinstance(r, Ended)} <= set(range(1, 51))
    until(lambda: len({r.n for r, _ in host.logged(J) if isinstance(r, Ended)}) == 50, "all ends are in the log", 120)


def test_a_slow_start_holds_up_nobody_else(host: Host) -> None:
    """While the graph of one job is fetched, another job starts, ends and is observed. The slow job counts as possibly
    alive."""
    fetching, go_on = threading.Event(), threading.Event()

    class SlowBlobs(FileBlobs):
        def fetch(self, ref, target):  # type: ignore[no-untyped-def]
            if f"/{J}/" in ref.uri:
                fetching.set()
                assert go_on.wait(DEADLINE_S)
            super().fetch(ref, target)

    host.blobs = SlowBlobs(host.root / "blobs")
    host.start_agent()
    slow = host.graph(J)
    starting = threading.Thread(target=lambda: SubprocessRunner(host.folder, 2 * DEADLINE_S).start(J, 1, slow, None, {}))
    starting.start()
    try:
        assert fetching.wait(DEADLINE_S)
        assert host.alive(J) == [1]
        with pytest.raises(Unreachable, match="is being started"):
            host.runner.start(J, 1, slow, None, {})
        with pytest.raises(Unreachable, match=r"attempt 1 of .* is being started"):
            host.runner.start(J, 2, slow, None, {})
        host.runner.start("job-2", 1, host.graph("job-2", command=["true"]), None, {})
        assert host.end("job-2")[0].outcome == "finished"
        host.runner.fence(J, 1)
    finally:
        go_on.set()
        starting.join(DEADLINE_S)
    assert host.alive(J) == []  # fenced at the last moment: it was not started
    assert host.runner.start(J, 1, slow, None, {}).value == "fenced"
    assert host.runner.observe()[0].job_id == "job-2"


def test_a_blob_store_that_refuses_us_makes_a_start_wait(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    """Missing rights or a missing bucket show nothing about the job. They are no bug either, so no traceback is logged."""

    class RefusingBlobs(FileBlobs):
        def fetch(self, ref, target):  # type: ignore[no-untyped-def]
            raise ConfigError("the bucket refuses us", hint="Grant the rights.")

    sound, host.blobs = host.blobs, RefusingBlobs(host.root / "blobs")
    host.start_agent()
    graph = host.graph(J, command=["true"])
    with pytest.raises(Unreachable, match="refuses us") as raised:
        host.runner.start(J, 1, graph, None, {})
    assert raised.value.hint == "Grant the rights."
    assert "call_failed" not in caplog.text
    host.blobs = sound
    host.restart_agent()
    assert host.runner.start(J, 1, graph, None, {}).value == "started"


def test_slow_starts_leave_room_for_other_calls(host: Host) -> None:
    from ledger.adapters.runners.subprocess import server

    go_on = threading.Event()

    class SlowBlobs(FileBlobs):
        def fetch(self, ref, target):  # type: ignore[no-untyped-def]
            assert go_on.wait(DEADLINE_S)
            super().fetch(ref, target)

    host.blobs = SlowBlobs(host.root / "blobs")
    host.start_agent()
    patient = SubprocessRunner(host.folder, DEADLINE_S)
    graphs = {f"job-{i}": host.graph(f"job-{i}", command=["true"]) for i in range(server.THREADS + 4)}

    def start(job_id: str) -> None:
        until(lambda: patient.start(job_id, 1, graphs[job_id], None, {}), "the job is started")

    threads = [threading.Thread(target=start, args=(job_id,)) for job_id in graphs]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(host.runner.observe()) == server.THREADS // 2, "as many starts as may wait")
        with pytest.raises(Unreachable, match="busy"):
            host.runner.start("other", 1, graphs["job-0"], None, {})
        assert len(host.runner.observe()) == server.THREADS // 2
    finally:
        go_on.set()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert {a.job_id for a in host.runner.observe()} == set(graphs)


# -- the folder ------------------------------------------------------------------------------------------------------


def test_a_folder_has_one_agent(host: Host) -> None:
    host.start_agent()
    with pytest.raises(ConfigError, match="another agent serves"):
        Agent(host.folder, host.blobs, host.log, SystemClock(), new_id=lambda: "other")


def test_an_agent_in_another_container_is_refused_too(host: Host) -> None:
    """Containers that share the folder have separate pid namespaces. Each agent would take the other's supervisors for
    dead, so the check must not depend on a pid."""
    apart = ["unshare", "--pid", "--fork", "--mount-proc"]
    if (tried := subprocess.run([*apart, "true"], capture_output=True, text=True, check=False)).returncode != 0:
        pytest.skip(f"this machine allows no PID namespaces: {tried.stderr.strip()}")
    host.start_agent()
    code = """
import os, sys
from pathlib import Path
from ledger.adapters.runners.subprocess.agent import Agent
from ledger.errors import ConfigError
try:
    Agent(Path(sys.argv[1]), None, None, None, new_id=lambda: "other")
except ConfigError as error:
    print(os.getpid(), error)
"""
    command = [*apart, sys.executable, "-c", code, str(host.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("1 another agent serves"), done.stderr


def test_a_folder_whose_name_no_event_can_hold_is_refused(tmp_path: Path, host: Host) -> None:
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))
    with pytest.raises(ConfigError, match="no event can hold it"):
        Agent(folder, host.blobs, host.log, SystemClock(), new_id=lambda: "other")


@pytest.mark.parametrize(
    ("name", "damaged", "says"),
    [
        ("id", "[ ]", "holds no id"), ("id", "", "holds no id: ''"), ("id", "\xff", "holds no id"),
        ("sequences.json", "[ ]", "is damaged"), ("sequences.json", "", "is damaged"),
    ],
)  # fmt: skip
def test_an_agent_that_lost_its_identity_does_not_begin(host: Host, name: str, damaged: str, says: str) -> None:
    """The agent also releases the folder, so that it can be repaired."""
    host.start_agent()
    host.runner.start(J, 1, host.graph(J, command=["true"]), None, {})
    host.end(J)
    host.stop_agent()
    content = (host.folder / name).read_text()
    (host.folder / name).write_text(damaged, encoding="latin-1")
    with pytest.raises(ConfigError, match=says) as told:
        Agent(host.folder, host.blobs, host.log, SystemClock(), new_id=lambda: "other")
    assert "ove " in told.value.hint
    (host.folder / name).write_text(content)
    host.start_agent()


def test_the_log_has_a_line_for_the_start_of_an_attempt_and_one_for_its_end(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ledger.adapters.runners.subprocess")
    host.start_agent()
    host.runner.start(J, 1, host.graph(J, command=["sh", "-c", "echo first >&2; echo second >&2; exit 3"]), None, {})
    host.end(J)
    started, ended = (record.__dict__ for record in caplog.records if record.__dict__.get("job") == J)
    assert (started["message"], started["attempt"], started["begins_from"]) == ("attempt_started", 1, "scratch")
    assert (ended["message"], ended["attempt"], ended["outcome"]) == ("attempt_ended", 1, "failed")
    assert ended["cause"] == "exit code 3: first"


def test_the_name_of_an_agent_stays(host: Host) -> None:
    host.start_agent()
    host.runner.start(J, 1, host.graph(J, command=["true"]), None, {})
    first = host.end(J)[0].writer
    host.restart_agent()
    host.runner.start(J, 2, host.graph(J, command=["true"]), None, {})
    assert host.end(J, 2)[0].writer == first
    assert first.startswith("agent-")


def test_a_path_may_be_longer_than_a_socket_address(host: Host) -> None:
    host.stop_agent()
    deep = Host(Path(tempfile.mkdtemp(prefix="x" * 120)) / ("y" * 120))
    try:
        deep.start_agent()
        assert deep.runner.observe() == []
    finally:
        deep.close()


def test_only_the_owner_can_reach_the_agent(host: Host) -> None:
    host.start_agent()
    assert host.folder.stat().st_mode & 0o777 == 0o700


def test_a_damaged_job_waits_and_concerns_no_other(host: Host) -> None:
    host.start_agent()
    host.start(J)
    until(lambda: Running(1) in dict(host.logged(J)), "the attempt runs")
    host.runner.fence(J, 1)
    host.stop_agent()
    marker = host.run_folder(J).parents[1] / "fence"
    content = marker.read_text()
    marker.write_text("{")
    host.start_agent()
    assert [(a.n, a.alive) for a in host.runner.observe()] == [(1, True)]  # known from its processes
    with pytest.raises(Unreachable, match="damaged"):
        host.runner.fence(J, 1)
    host.runner.start("job-2", 1, host.graph("job-2", command=["true"]), None, {})
    assert host.end("job-2")[0].outcome == "finished"
    marker.write_text(content)
    host.restart_agent()
    host.tell(J, "exit 0")
    assert host.end(J)[0].outcome == "finished"


# -- the socket ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"\n", b"{}\n", b"[]\n", b"\xff\n", b'{"call": "observe"}\n', b"no end"])
def test_nonsense_on_the_socket_harms_nobody(host: Host, said: bytes) -> None:
    host.start_agent()
    with socket.socket(socket.AF_UNIX) as connection:
        with wire.socket_path(host.folder) as path:
            connection.connect(path)
        connection.sendall(said)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(DEADLINE_S)
        connection.recv(1 << 16)
    assert host.runner.observe() == []


def test_a_checkpoint_that_cant_be_deleted_holds_nothing_up(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(f"{path} stays")

    monkeypatch.setattr(jobs, "remove", refuse)
    host.start_agent()
    host.start(J)
    for number in range(1, 6):
        host.tell(J, f"checkpoint {number}")
    until(lambda: Checkpoint(1, 5) in dict(host.logged(J)), "the last checkpoint is in the log")
    until(lambda: not list((host.folder / "jobs" / J / "events").iterdir()), "all events are acknowledged")
    assert (host.run_folder(J) / "checkpoints" / "chk-1").exists()
    monkeypatch.undo()
    host.tell(J, "checkpoint 6")
    until(lambda: not (host.run_folder(J) / "checkpoints" / "chk-1").exists(), "the deletion is retried")


def test_an_unknown_call_is_refused(host: Host) -> None:
    host.start_agent()
    with pytest.raises(PermanentError, match="has no call"):
        host.runner.ask("rm", str)


def test_silent_callers_do_not_take_all_threads_for_ever(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    from ledger.adapters.runners.subprocess import server

    monkeypatch.setattr(server, "REQUEST_S", 0.5)
    host.start_agent()
    silent = []
    try:
        for _ in range(server.THREADS):
            connection = socket.socket(socket.AF_UNIX)
            with wire.socket_path(host.folder) as path:
                connection.connect(path)
            silent.append(connection)
        # unless this call is slow for half a second too
        until(lambda: host.runner.observe() == [], "a call is answered")
    finally:
        for connection in silent:
            connection.close()


def test_an_agent_that_hangs_is_unreachable_in_time(host: Host) -> None:
    pid = host.spawn_agent()
    os.kill(pid, signal.SIGSTOP)
    until(lambda: ") T " in Path(f"/proc/{pid}/stat").read_text(), "the agent is stopped")
    try:

        def asked_for_s() -> float:
            asked_at = time.monotonic()
            with pytest.raises(Unreachable):
                SubprocessRunner(host.folder, timeout_s=0.3).observe()
            return time.monotonic() - asked_at

        until(lambda: asked_for_s() < 5, "the call ends after its timeout")
    finally:
        os.kill(pid, signal.SIGCONT)


def test_no_agent_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="did not answer"):
        SubprocessRunner(tmp_path / "nowhere").observe()


def test_the_senders_log_is_read_back_as_written(tmp_path: Path) -> None:
    event = RunnerEvent(b"job-1/running/1", (("a", b"\xff"),), b"\x00\x01")
    log = LogFile(tmp_path / "log")
    log.send([event])
    assert log.read() == [event]


def test_half_a_line_of_the_senders_log_does_not_count(tmp_path: Path) -> None:
    """The writer is in the middle of the line, or was killed there."""
    one, two = RunnerEvent(b"job-1/running/1", (), b"\x00"), RunnerEvent(b"job-1/running/2", (), b"\x00")
    log = LogFile(tmp_path / "log")
    log.send([one])
    with log.path.open("ab") as file:
        file.write(b'["job-1/run')
    assert log.read() == [one]
    log.send([two])
    assert log.read() == [one, two]
