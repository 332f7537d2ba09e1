"""A reconciler on a host whose agent is not the leader's logs a warning before it leads."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ledger.adapters import avro, cloudevents
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.app.reached_agents import AgentComparison
from ledger.config.settings import TopicsSection
from ledger.core.model.facts import LeaderClaimed
from ledger.core.model.registers import claim_key
from ledger.errors import Unreachable
from ledger.ports import Event
from ledger.reader.reading import Source
from tests.support.folder import JOBLEDGER
from tests.support.waiting import until

TOPICS = TopicsSection()


@pytest.fixture
def source() -> Source:
    clock = ManualClock(1000.0)
    return Source(MemoryLog({TOPICS.events: 1, TOPICS.recovery: 1}, clock), TOPICS, avro, cloudevents, clock)


def claim(source: Source, epoch: int, writer: str, reaches: Mapping[str, str]) -> None:
    value = avro.encode(LeaderClaimed("reconciler", epoch, writer, "elected", reaches))
    log = source.log.writer("r")
    log.init()
    log.commit([Event(TOPICS.events, 0, claim_key("reconciler", epoch).encode(), value)])


def compared(source: Source, here: Mapping[str, str], own_name: str = "reconciler-b-1") -> tuple[bool, list[Any]]:
    with capture_logs() as logs:
        done = AgentComparison(source, lambda: here, own_name).step()
    return done, logs


def test_another_agent_than_the_leaders_is_told_with_what_waits_and_what_to_do(source: Source):
    claim(source, 1, "reconciler-z-1", {"subprocess": "agent-b"})
    claim(source, 2, "reconciler-a-1", {"subprocess": "agent-a"})
    done, (told,) = compared(source, {"subprocess": "agent-b"})
    assert done
    assert (told["event"], told["log_level"]) == ("leader_reaches_other_instance", "warning")
    assert (told["here"], told["there"], told["leader"]) == ("agent-b", "agent-a", "reconciler-a-1")
    assert "those of agent-a do" in told["effect"] and "folder" in told["mend"]


@pytest.mark.parametrize(
    ("reaches", "own_name"),
    [
        ({"subprocess": "agent-b"}, "reconciler-b-1"),
        ({}, "reconciler-b-1"),  # the agent did not answer when the leader claimed
        ({"subprocess": "agent-a"}, "reconciler-a-1"),  # its own claim: it compared the agents when it took over
    ],
    ids=["the same", "unknown", "its own"],
)
def test_nothing_is_told_without_a_difference(source: Source, reaches: Mapping[str, str], own_name: str):
    claim(source, 1, "reconciler-a-1", reaches)
    assert compared(source, {"subprocess": "agent-b"}, own_name) == (True, [])


def test_it_waits_for_a_leader_and_for_its_own_agent(source: Source):
    assert compared(source, {"subprocess": "agent-b"}) == (False, [])

    def away() -> Mapping[str, str]:
        raise Unreachable("no agent")

    claim(source, 1, "reconciler-a-1", {"subprocess": "agent-a"})
    assert AgentComparison(source, away, "reconciler-b-1").step() is False


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(420)
def test_two_reconcilers_with_a_folder_each_are_told_apart_when_the_second_starts(
    bootstrap: str, prefix: str, tmp_path: Path
):
    environment = {
        **os.environ, "LEDGER_KAFKA__BOOTSTRAP_SERVERS": bootstrap, "LEDGER_TOPICS__PREFIX": prefix,
        "LEDGER_TOPICS__REPLICATION_FACTOR": "1", "LEDGER_TOPICS__MIN_INSYNC_REPLICAS": "1",
        "LEDGER_LEADERSHIP__ADAPTER": "kafka", "LEDGER_LOG__FORMAT": "json",
    }  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []

    def serve(role: str, folder: str) -> Path:
        output = tmp_path / f"{role}-{folder}"
        command = [JOBLEDGER, "serve", role, "--dir", str(tmp_path / folder)]
        with output.open("wb") as file:
            started.append(subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT))
        return output

    def says(output: Path, word: str) -> str:
        found = [line for line in output.read_text().splitlines() if word in line]
        return found[0] if found else ""

    try:
        subprocess.run([JOBLEDGER, "topics", "create"], env=environment, check=True, capture_output=True)
        serve("agent", "a")
        serve("agent", "b")
        first = serve("reconciler", "a")
        until(lambda: says(first, '"leads"'), "the first leads", 180.0, story=first.read_text)
        second = serve("reconciler", "b")
        told = until(
            lambda: says(second, "leader_reaches_other_instance"), "the second tells", 180.0, story=second.read_text
        )
        assert "agent-" in told and '"warning"' in told
        assert not says(second, '"leads"'), "the warning came before it led"
        assert not says(first, "leader_reaches_other_instance")
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(60)
