"""`jobledger leader`: the leaders, candidates and locks that it shows, and its --wait."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from ledger.adapters import avro
from ledger.config.config import load_config
from ledger.core.model.facts import LeaderClaimed
from ledger.core.model.registers import claim_key
from ledger.errors import Fenced, Unreachable
from ledger.ports import Candidate
from ledger.util.identity import instance
from ledger.util.processes import identity
from tests.support.jobs_world import Shell

KEYS = {
    "role", "led", "epoch", "writer", "since", "reason", "led_s", "lock", "pid", "lease_left_s", "why_not", "not_asked",
    "candidates", "reaches", "others",
}  # fmt: skip
HERE = os.getpid()


@pytest.fixture
def elected(shell: Shell) -> list[Candidate]:
    """The candidates in the election of the projectors. The election of the reconcilers has none."""
    found: list[Candidate] = []
    shell.replaced["candidates"] = lambda role: found if role == "projector" else []
    return found


def roles(shell: Shell, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
    told = shell.run("leader", *arguments, "-o", "json")
    assert told.exit_code == exit_code, told.output
    return {row["role"]: row for row in json.loads(told.stdout)}


def test_who_leads_is_told_with_the_keys_that_help_names(shell: Shell, elected: list[Candidate]) -> None:
    elected.append(Candidate("", 0, 0.0, leads=True))
    (row,) = roles(shell, "projector").values()
    assert set(row) == KEYS
    assert (row["led"], row["epoch"], row["writer"], row["reason"]) == (True, 1, "p1", "elected")
    words = " ".join(shell.good("leader", "--help").replace("│", " ").split())
    for key in KEYS | {"who", "holds", "waits_for"}:
        assert f" {key}" in words, key
    assert set(row["candidates"][0]) == {"who", "pid", "holds", "epoch", "since", "lease_left_s", "waits_for"}


def test_on_a_narrow_terminal_the_writer_and_the_time_are_whole(
    shell: Shell, elected: list[Candidate], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = "projector-a-long-host-1234567"
    shell.leader._parts = replace(shell.leader._parts, writer_name=writer)
    shell.leader.step_down(Fenced("epoch 1 was replaced"))
    shell.step()
    elected.append(Candidate("a-long-host", 1234567, 0.0, leads=True))
    elected.append(Candidate("ann@there", 5, 0.0, leads=False, waits_for="zookeeper: no answer from zk1:2181 for 12 s"))
    monkeypatch.setattr("ledger.cli.output.is_terminal", lambda stream: True)
    monkeypatch.setattr("time.time", shell.clock.time)
    clock = f"{datetime.fromtimestamp(shell.clock.time(), UTC):%H:%M:%S}"
    for arguments in ((), ("--all",)):
        text = shell.run("leader", "projector", *arguments, COLUMNS="80", NO_COLOR="1").stdout
        head, row, *_ = text.splitlines()
        assert {writer, clock} <= set(row.split()) and "the same" in row, text
        assert "LOCK" not in head.split() and head.endswith("REASON")
        assert all(len(line) <= 80 for line in text.splitlines())
    assert " LOCK " in shell.run("leader", "projector", COLUMNS="300", NO_COLOR="1").stdout


def test_a_role_without_a_leader_is_exit_1_and_a_plain_line(shell: Shell, elected: list[Candidate]) -> None:
    elected.append(Candidate("ann@there", 5, 0.0, leads=False, waits_for="zookeeper: no answer from zk1:2181 for 12 s"))
    told = shell.run("leader")
    assert told.exit_code == 1
    assert told.stderr.splitlines() == [
        "projector: nobody leads: projector-there-5 waits for zookeeper: no answer from zk1:2181 for 12 s",
        "reconciler: nobody leads: there is no candidate",
    ]
    assert "NO" in told.stdout and "projector-there-5" in told.stdout
    found = roles(shell, exit_code=1)
    assert found["projector"]["led"] is False and found["projector"]["epoch"] == 1
    assert found["reconciler"]["epoch"] is None and found["reconciler"]["reason"] == "nobody has led yet"


def test_an_election_that_does_not_answer_leaves_the_logs_word(shell: Shell) -> None:
    def candidates(role: str) -> list[Candidate]:
        raise Unreachable("no answer from zk1:2181 within 10 s")

    shell.replaced["candidates"] = candidates
    told = shell.run("leader", "projector", "-o", "json")
    assert told.exit_code == 0
    assert told.stderr == "projector: the election could not be asked: no answer from zk1:2181 within 10 s\n"
    (row,) = json.loads(told.stdout)
    assert (row["led"], row["epoch"], row["not_asked"]) == (None, 1, "no answer from zk1:2181 within 10 s")


def test_a_log_that_does_not_answer_is_exit_3_and_who_waits_for_it_is_told(shell: Shell, elected: list[Candidate]) -> None:
    config = load_config(shell.folder)
    who = identity(HERE)
    assert who is not None
    config.candidates_folder.mkdir(parents=True)
    (config.candidates_folder / f"projector-x-{HERE}.json").write_text(json.dumps({
        "role": "projector", "who": f"projector-x-{HERE}", "leads": False, "at": 0.0, "waits_for": "Kafka", **who._asdict(),
    }))  # fmt: skip
    shell.log.up = False
    told = shell.run("leader")
    assert told.exit_code == 3
    assert f"projector: nobody leads: projector-x-{HERE} waits for Kafka" in told.stderr


def test_the_timeline_tells_each_epoch_why_it_began_and_how_long_it_lasted(shell: Shell) -> None:
    shell.clock.advance(60)
    shell.leader.step_down(Fenced("epoch 1 was replaced"))
    shell.step()
    shell.clock.advance(30)
    found = shell.json("leader", "--timeline")
    assert [(row["role"], row["epoch"], row["reason"]) for row in found] == [
        ("projector", 2, "the same leader after: epoch 1 was replaced"), ("projector", 1, "elected"),
    ]  # fmt: skip
    assert [round(row["led_s"]) for row in found] == [30, 60]
    assert found == shell.json("leader", "--all")
    assert shell.json("leader", "reconciler", "--all") == []


def test_the_lock_on_this_host_is_asked_where_nothing_else_is_set(shell: Shell) -> None:
    from ledger.adapters.local.leadership import FileLockLeadership

    assert roles(shell, "projector", exit_code=1)["projector"]["lock"] is None
    lock = FileLockLeadership(load_config(shell.folder).leader_lock("projector"), who="ann")
    lock.acquire()
    row = roles(shell, "projector", exit_code=1)["projector"]
    held = (row["lock"], row["pid"], row["led"])
    assert held == (instance("projector"), HERE, False), "p1 is not the name of this process"
    shell.leader._parts = replace(shell.leader._parts, writer_name=instance("projector"))
    shell.leader.step_down(Fenced("test"))
    shell.step()
    assert roles(shell, "projector")["projector"]["led"] is True
    lock.release()


def test_wait_asks_until_each_role_has_a_leader(shell: Shell, elected: list[Candidate]) -> None:
    told = shell.run("leader", "projector", "--wait", "--timeout", "0")
    assert told.exit_code == 4 and "projector: there is no candidate" in told.stderr
    while_waiting(shell, lambda: elected.append(Candidate("", 0, 0.0, leads=True)))
    told = shell.run("leader", "projector", "--wait", "--timeout", "60", "-o", "name")
    assert (told.exit_code, told.stdout) == (0, "projector\n")


def test_wait_goes_on_while_the_log_does_not_answer(shell: Shell, elected: list[Candidate]) -> None:
    elected.append(Candidate("", 0, 0.0, leads=True))
    shell.log.up = False
    told = shell.run("leader", "projector", "--wait", "--timeout", "0")
    assert told.exit_code == 4
    while_waiting(shell, lambda: setattr(shell.log, "up", True))
    assert shell.run("leader", "projector", "--wait", "--timeout", "60").exit_code == 0


def test_wait_waits_for_the_end_of_a_take_over(shell: Shell, elected: list[Candidate]) -> None:
    """A leader claims its epoch first. If the rest of its take-over fails again and again, it does not lead."""
    elected.append(Candidate("p1", 0, 0.0, leads=True))
    who = identity(HERE)
    assert who is not None
    file = load_config(shell.folder).candidates_folder / "projector-p1.json"
    file.parent.mkdir(parents=True)

    def says(**said: object) -> None:
        file.write_text(json.dumps({"role": "projector", "who": "p1", "at": 0.0, **said, **who._asdict()}))

    says(leads=False, epoch=None, waits_for="its next try, after: the stream can't begin")
    told = shell.run("leader", "projector", "--wait", "--timeout", "0")
    doing = "p1 has claimed its epoch, and waits for its next try, after: the stream can't begin"
    assert told.exit_code == 4 and doing in " ".join(told.stderr.split())
    while_waiting(shell, lambda: says(leads=True, epoch=1, waits_for=""))
    assert shell.run("leader", "projector", "--wait", "--timeout", "60").exit_code == 0


def while_waiting(shell: Shell, happens: Callable[[], object]) -> None:
    """Makes something happen once the command waits."""
    sleep = shell.clock.sleep
    shell.clock.sleep = lambda seconds: (happens(), sleep(seconds))  # type: ignore[assignment,func-returns-value,return-value]


def test_a_reconciler_that_reaches_another_agent_than_its_predecessor_is_told(
    shell: Shell, elected: list[Candidate]
) -> None:
    for epoch, agent in ((1, "agent-a"), (2, "agent-b")):
        claim = LeaderClaimed("reconciler", epoch, f"reconciler-h{epoch}-1", "elected", {"subprocess": agent})
        shell.raw(claim_key("reconciler", epoch).encode(), avro.encode(claim), 0)
    told = shell.run("leader", "reconciler")
    assert told.stderr.splitlines()[0] == (
        "reconciler: the leader before it reached agent-a (subprocess), and it reaches agent-b: jobs that agent-a holds "
        "wait until a reconciler leads that reaches it"
    )
    (row,) = roles(shell, "reconciler", exit_code=1).values()
    assert (row["reaches"], row["others"]) == ({"subprocess": "agent-b"}, {"subprocess": "agent-a"})
    assert [row["reaches"] for row in shell.json("leader", "reconciler", "--all")] == [
        {"subprocess": "agent-b"}, {"subprocess": "agent-a"},
    ]  # fmt: skip
