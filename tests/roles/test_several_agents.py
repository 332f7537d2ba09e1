"""Reconcilers that reach different agents. Attempts of an agent are left alone until a reconciler leads that reaches it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ledger.adapters import avro
from ledger.adapters.memory.runner import MemoryRunner
from ledger.core.model.facts import AttemptStarted, CheckpointKind, IntentKind, LeaderClaimed, SavepointDisposed
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import Attempt, Disposed, parse_claim
from tests.support.roles.cluster import Cluster
from tests.support.roles.world import EVENTS, PARTITIONS

HELD = "attempt 1 is held by agent-a, which this reconciler can't reach (agent-b answers)"


class Hosts(Cluster):
    """Two hosts, each with an agent. The leading reconciler reaches only the agent of its own host."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.agents = {name: MemoryRunner(self.clock, writer=f"agent-{name}", partitions=PARTITIONS) for name in "ab"}
        self.lead("a")

    def lead(self, host: str) -> None:
        self.runner = self.agents[host]
        self.r = self.new_reconciler()

    def deliver(self) -> None:
        """All agents send their facts, whichever reconciler leads."""
        here = self.runner
        for agent in self.agents.values():
            self.runner = agent
            super().deliver()
        self.runner = here

    def share_storage(self) -> None:
        self.agents["b"].stored = self.agents["a"].stored

    def entry_of(self, job_id: str = "job") -> RecoveryEntry:
        entry = self.entry(job_id)
        assert entry is not None
        return entry

    def all_alive(self) -> set[tuple[str, str, int]]:
        return {(name, a.job_id, a.n) for name, agent in self.agents.items() for a in agent.observe() if a.alive}

    def ends(self) -> set[str]:
        return {name for name in self.registers("job") if name.startswith("ended/")}


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    hosts = Hosts(tmp_path)
    hosts.go(4)
    hosts.job("job")
    hosts.go()
    assert hosts.all_alive() == {("a", "job", 1)}
    return hosts


def test_an_attempt_is_recorded_with_its_agent_before_it_starts(hosts: Hosts) -> None:
    record = avro.decode(AttemptStarted, hosts.values()[b"job/attempt/1/1"])
    assert record.instance == "agent-a" == hosts.entry_of().instance


def test_what_another_agent_holds_is_never_lost_and_never_started_twice(hosts: Hosts) -> None:
    hosts.lead("b")
    hosts.go(40)
    assert hosts.all_alive() == {("a", "job", 1)}
    assert hosts.ends() == set() and hosts.state("job") == "RUNNING"
    assert hosts.r.waits == {"job": HELD}
    hosts.lead("a")
    hosts.go(10)
    assert hosts.r.waits == {} and hosts.all_alive() == {("a", "job", 1)}


def test_a_recorded_attempt_that_never_started_waits_for_its_agent(hosts: Hosts) -> None:
    """The start may be in flight, so no other agent may start the attempt."""
    spec = hosts.job("late")
    hosts.elections["reconciler"].holder = None
    hosts.go(2)
    digest = avro.spec_digest(spec)
    hosts.lead("b")
    hosts.record("late", Attempt(1, 1), AttemptStarted(digest, instance="agent-a"))
    hosts.go(20)
    assert hosts.all_alive() == {("a", "job", 1)} and "agent-a" in hosts.r.waits["late"]
    hosts.lead("a")
    hosts.go(10)
    assert ("a", "late", 1) in hosts.all_alive()


def test_a_cancel_waits_for_the_agent_and_is_not_done_before(hosts: Hosts) -> None:
    hosts.lead("b")
    hosts.go(6)
    hosts.intend("job", IntentKind.CANCEL)
    hosts.go(20)
    assert hosts.state("job") == "CANCELLING" and hosts.r.waits == {"job": HELD}
    assert hosts.all_alive() == {("a", "job", 1)}
    hosts.lead("a")
    hosts.go(20)
    assert hosts.all_alive() == set() and hosts.registers("job") == {"result/CANCELED"}


def test_a_suspended_job_is_not_taken_for_stopped(hosts: Hosts) -> None:
    hosts.lead("b")
    hosts.intend("job", IntentKind.SUSPEND)
    hosts.go(10)
    assert hosts.state("job") == "SUSPENDED" and hosts.r.waits == {"job": HELD}


def test_a_job_that_is_over_is_retired_by_its_agent(hosts: Hosts) -> None:
    hosts.agents["a"].checkpoint("job", 1, 1)
    hosts.lead("b")
    hosts.agents["a"].end("job", 1)
    hosts.go(20)
    assert hosts.state("job") == "FINISHED" and hosts.r.waits == {"job": HELD}
    assert hosts.blobs.stored != {} and hosts.agents["a"].stored != {}
    hosts.lead("a")
    hosts.go(20)
    assert hosts.registers("job") == {"result/FINISHED"} and hosts.agents["a"].stored == {}


def test_an_attempt_that_its_agent_reported_as_over_is_followed_by_one_elsewhere(hosts: Hosts) -> None:
    hosts.share_storage()
    hosts.agents["a"].checkpoint("job", 1, 7)
    hosts.agents["a"].kill("job", 1)
    hosts.lead("b")
    hosts.go(20)
    assert hosts.all_alive() == {("b", "job", 2)} and hosts.entry_of().instance == "agent-b"
    assert [str(base) for _, _, base in hosts.agents["b"].starts] == ["1/7"]


def test_a_checkpoint_that_only_another_agent_can_read_makes_the_start_wait(hosts: Hosts) -> None:
    hosts.agents["a"].checkpoint("job", 1, 7)
    hosts.agents["a"].kill("job", 1)
    hosts.lead("b")
    hosts.go(20)
    assert hosts.all_alive() == set() and hosts.state("job") == "RESTARTING"
    assert "restore point 1/7 is not stored with agent-b" in hosts.r.waits["job"]
    hosts.lead("a")
    hosts.go(20)
    assert [str(base) for _, _, base in hosts.agents["a"].starts] == ["None", "1/7"]


def test_what_its_own_agent_calls_damaged_is_passed_over(hosts: Hosts) -> None:
    hosts.agents["a"].checkpoint("job", 1, 6)
    damaged = hosts.agents["a"].checkpoint("job", 1, 7)
    del hosts.agents["a"].stored[damaged.location]
    hosts.agents["a"].kill("job", 1)
    hosts.go(20)
    assert [str(base) for _, _, base in hosts.agents["a"].starts] == ["None", "1/6"]


def test_a_savepoint_that_lies_elsewhere_is_not_called_deleted(hosts: Hosts) -> None:
    point = hosts.agents["a"].checkpoint("job", 1, 3, kind=CheckpointKind.SAVEPOINT)
    hosts.agents["a"].checkpoint("job", 1, 4)
    hosts.go(4)
    hosts.lead("b")
    hosts.record("job", Disposed(1, 3, "u"), SavepointDisposed(point.location))
    hosts.go(20)
    assert "checkpoint/1/3" in hosts.registers("job") and point.location in hosts.agents["a"].stored
    hosts.lead("a")
    hosts.go(20)
    assert "checkpoint/1/3" not in hosts.registers("job") and point.location not in hosts.agents["a"].stored


def test_force_gives_up_what_an_agent_holds_and_it_is_stopped_once_it_is_reached_again(hosts: Hosts) -> None:
    hosts.lead("b")
    hosts.go(6)
    hosts.intend("job", IntentKind.RETRY, attempt=1, force=True)
    hosts.go(20)
    assert hosts.all_alive() == {("a", "job", 1), ("b", "job", 2)}, "the operator gave up the single-attempt guarantee"
    hosts.lead("a")
    hosts.go(20)
    assert hosts.all_alive() == {("b", "job", 2)}
    assert hosts.r.waits["job"].startswith("attempt 2 is held by agent-b")


def test_an_older_record_names_no_agent_and_whoever_took_it_remembers_it(hosts: Hosts) -> None:
    spec = hosts.job("old")
    hosts.r = hosts.agents["a"]  # this instance does not lead
    hosts.r.step = lambda: None  # type: ignore[attr-defined]
    hosts.go(2)
    hosts.record("old", Attempt(1, 1), AttemptStarted(avro.spec_digest(spec)))
    hosts.agents["a"].start("old", 1, spec.graph, None, {})
    hosts.go(2)
    hosts.lead("b")
    hosts.go(20)
    assert hosts.r.waits["old"].startswith("attempt 1 is held by an agent that its record does not name")
    hosts.lead("a")
    hosts.go(20)
    assert "old" not in hosts.r.waits and ("a", "old", 1) in hosts.all_alive()


def test_a_call_that_reaches_another_agent_than_was_observed_does_nothing(hosts: Hosts) -> None:
    """The agent of the folder is replaced between a pass and the call that the pass decided on."""
    hosts.job("next")
    observe, swapped = hosts.runner.observe, hosts.agents["b"]

    def observe_then_swap() -> Any:
        answer = observe()
        if any(entry.job_id == "next" for entry in hosts.r.published.entries.values()):
            hosts.r._executor._runners = {"memory": swapped}
        return answer

    hosts.runner.observe = observe_then_swap  # type: ignore[method-assign]
    hosts.go(10)
    assert swapped.starts == [] and swapped._jobs == {}
    assert hosts.r.waits["next"] == "attempt 1 is recorded, and its runner gave no sign of it: it is started again"


def claims(hosts: Hosts) -> dict[int, LeaderClaimed]:
    found = {}
    for key, value in hosts.values(EVENTS).items():
        if (claim := parse_claim(key)) is not None:
            found[claim[1]] = avro.decode(LeaderClaimed, value)
    return found


def test_a_claim_names_the_agent_and_one_that_reaches_another_is_told_apart(hosts: Hosts) -> None:
    hosts.lead("b")
    with capture_logs() as logs:
        hosts.go(4)
    assert {epoch: dict(claim.reaches) for epoch, claim in claims(hosts).items()} == {
        1: {"memory": "agent-a"}, 2: {"memory": "agent-b"},
    }  # fmt: skip
    (told,) = [line for line in logs if line["event"] == "reaches_other_instance"]
    assert (told["before"], told["now"], told["log_level"]) == ("agent-a", "agent-b", "warning")
    (held,) = [line for line in logs if line["event"] == "held_elsewhere"]
    assert held["job"] == "job" and held["log_level"] == "warning"


def test_an_agent_that_is_replaced_under_a_leader_is_told(hosts: Hosts) -> None:
    hosts.runner.writer = "agent-c"
    with capture_logs() as logs:
        hosts.go(4)
    (told,) = [line for line in logs if line["event"] == "instance_changed"]
    assert (told["before"], told["now"]) == ("agent-a", "agent-c")
    assert hosts.all_alive() == {("a", "job", 1)} and "agent-a" in hosts.r.waits["job"]
