"""A damaged file of one attempt: its contents are derived again, and the attempt can still end and be stopped."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from ledger.adapters.runners.subprocess.supervisor import procs
from ledger.core.model.facts import CheckpointCompleted, RestorePoint
from ledger.core.model.registers import NUMBER_MAX, Checkpoint, Ended, Running
from ledger.errors import TemporaryError, Unreachable
from ledger.ports import Verification
from tests.support.host import Host, gone
from tests.support.waiting import until

pytestmark = pytest.mark.slow

J = "job-1"
FILES = ("progress.json", "started", "supervisor.json", "attempt.json", "child.json", "ran_for_s")
DAMAGES = {"empty": b"", "zeros": b"\0" * 200, "another object": b'{"pid": "x"}'}


def running(host: Host, base: RestorePoint | None = None) -> int:
    """Starts attempt 1 and waits until its checkpoint 3 is in the log; the pid of its job. The agent is stopped
    afterwards."""
    host.start_agent()
    pid = host.start(J, base=base)
    host.tell(J, "checkpoint 3")
    until(lambda: Checkpoint(1, 3) in dict(host.logged(J)), "the checkpoint is in the log")
    until((host.run_folder(J) / "progress.json").exists, "the agent has recorded its progress")
    host.stop_agent()
    return pid


def damage(host: Host, name: str, how: str) -> None:
    (host.run_folder(J) / name).write_bytes(DAMAGES[how])


def kill(host: Host, pid: int) -> None:
    """Kills the supervisor, and thereby the job. Call it before the file that names the supervisor is damaged."""
    os.kill(host.supervisor(J), signal.SIGKILL)
    until(lambda: gone(pid), "the job dies with its supervisor")


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_an_attempt_that_was_killed_ends_whatever_file_of_it_is_damaged(host: Host, name: str, how: str) -> None:
    kill(host, running(host))
    damage(host, name, how)
    host.start_agent()
    register, end = host.end(J)
    assert (register.outcome, end.checkpoint) == ("failed", 3)  # type: ignore[attr-defined]
    assert host.alive(J) == [] and host.runner.fence(J, 1) == []
    fact = dict(host.logged(J))[Checkpoint(1, 3)]
    assert isinstance(fact, CheckpointCompleted)
    point = RestorePoint(1, 3, fact.location, fact.size, fact.digest)
    assert host.runner.verify(point) is Verification.VALID
    host.hush(J)
    assert host.runner.start(J, 2, host.graph(J), point, {}) == "started"
    assert json.loads(host.said(J, "environment").replace("'", '"'))["LEDGER_RESTORE_FROM"] == fact.location


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_an_attempt_runs_on_whatever_file_of_it_is_damaged(host: Host, name: str, how: str) -> None:
    running(host)
    damage(host, name, how)
    host.start_agent()
    assert host.alive(J) == [1]
    host.tell(J, "checkpoint 5")
    until(lambda: Checkpoint(1, 5) in dict(host.logged(J)), "its checkpoints are reported")
    host.runner.stop(J, 1, "stopped")
    assert host.end(J)[0] == Ended(1, "stopped", host.end(J)[0].writer)  # type: ignore[attr-defined]
    assert [register for register, _ in host.logged(J)].count(Running(1)) == 1


def test_checkpoints_from_before_the_damage_are_known_to_the_end_and_to_retention(host: Host) -> None:
    running(host)
    damage(host, "progress.json", "empty")
    host.start_agent()
    host.tell(J, "exit 0")
    assert host.end(J)[1].checkpoint == 3
    host.stop_agent()
    host.start_agent()
    host.start(J, 2)
    for number in (1, 2, 3):
        host.tell(J, f"checkpoint {number}")
        until(lambda number=number: Checkpoint(2, number) in dict(host.logged(J)), "the checkpoint is recorded")
    old = host.run_folder(J) / "checkpoints" / "chk-3"
    until(lambda: not old.exists(), "three newer checkpoints have replaced it")


def test_the_base_of_an_attempt_is_known_without_its_marker(host: Host) -> None:
    base = RestorePoint(1, 7, str(host.root / "chk-7"), 5)
    running(host, base)
    damage(host, "started", "empty")
    host.start_agent()
    host.tell(J, "checkpoint 5")
    found = until(lambda: dict(host.logged(J)).get(Checkpoint(1, 5)), "its next checkpoint is reported")
    assert isinstance(found, CheckpointCompleted) and found.base == base


def test_a_supervisor_whose_claim_is_lost_is_found(host: Host) -> None:
    running(host)
    supervisor = host.supervisor(J)
    damage(host, "supervisor.json", "zeros")
    host.start_agent()
    until(
        lambda: (host.run_folder(J) / "supervisor.json").read_bytes() != DAMAGES["zeros"],
        "the supervisor has claimed the attempt again",
    )
    assert json.loads((host.run_folder(J) / "supervisor.json").read_text()) == procs.identity(supervisor)


def test_an_end_that_was_reported_is_reported_again_and_says_the_same(host: Host) -> None:
    running(host)
    host.start_agent()
    host.tell(J, "exit 0")
    register, end = host.end(J)
    until(lambda: not list((host.run_folder(J).parents[1] / "events").iterdir()), "all events are acknowledged")
    host.stop_agent()
    damage(host, "progress.json", "empty")
    host.start_agent()
    ends = until(lambda: [one for one in host.logged(J) if isinstance(one[0], Ended)][1:], "the end is reported again")
    assert ends == [(register, end)]


@pytest.mark.parametrize("how", ["empty", "zeros"])
def test_an_order_that_is_damaged_is_given_anew(host: Host, how: str) -> None:
    running(host)
    damage(host, "order.json", how)
    host.start_agent()
    host.tell(J, "checkpoint 5")
    until(lambda: Checkpoint(1, 5) in dict(host.logged(J)), "the supervisor still works")
    host.runner.stop(J, 1, "canceled")
    assert host.end(J)[0].outcome == "canceled"  # type: ignore[attr-defined]


def test_a_fact_that_is_damaged_counts_as_never_written(host: Host) -> None:
    pid = running(host)
    host.tell(J, "checkpoint 5")
    facts = host.run_folder(J) / "facts"
    last = until(lambda: sorted(facts.glob("*.json"))[-1:], "the supervisor has seen the checkpoint")
    last[0].write_bytes(b"")
    kill(host, pid)
    host.start_agent()
    assert host.end(J)[1].checkpoint == 5


def test_an_end_whose_outcome_is_no_outcome_is_a_failure(host: Host) -> None:
    """The job can write into this folder too. No reader would accept a register with such an outcome."""
    pid = running(host)
    kill(host, pid)
    forged = {"fact": "ended", "outcome": "resurrected", "cause": "so it says", "ran_for_s": 1.0, "time_s": 2.0}
    (host.run_folder(J) / "facts" / f"{99:012d}.json").write_text(json.dumps(forged))
    host.start_agent()
    register, end = host.end(J)
    assert register.outcome == "failed"  # type: ignore[attr-defined]
    assert end.cause == "so it says (its end was recorded as 'resurrected', which is no outcome)"


# -- files that can't be derived again ---------------------------------------------------------------------------------


def fence_of(host: Host) -> Path:
    return host.run_folder(J).parents[1] / "fence"


def test_a_job_whose_fence_is_damaged_can_be_stopped_and_forgotten(host: Host) -> None:
    """No attempt is started, as it may be fenced. But stop and forget do not need the fence."""
    pid = running(host)
    fence_of(host).write_bytes(b"")
    host.start_agent()
    for asked in (lambda: host.runner.fence(J, NUMBER_MAX), lambda: host.runner.start(J, 2, host.graph(J), None, {})):
        with pytest.raises(Unreachable, match="is damaged"):
            asked()
    with pytest.raises(TemporaryError, match="is alive"):
        host.runner.forget(J)
    host.runner.stop(J, 1, "canceled")
    until(lambda: gone(pid) and not host.alive(J), "the supervisor obeys")
    host.runner.forget(J)
    assert host.runner.observe() == []
