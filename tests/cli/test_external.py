"""`--restore external`, as people see it."""

from __future__ import annotations

import pytest

from ledger.adapters import schemas
from ledger.core.model.facts import AttemptEnded, AttemptRunning, AttemptStarted, CheckpointCompleted
from ledger.core.model.registers import Attempt, Checkpoint, Ended, Running
from tests.support.jobs_world import Shell, table
from tests.support.roles.world import PARTITIONS


@pytest.fixture
def external(shell: Shell) -> str:
    job_id = shell.submit("stream", "--restore", "external")
    shell.record(job_id, Attempt(1, 1), AttemptStarted("d" * 64))
    shell.record(job_id, Running(1), AttemptRunning("17"))
    shell.now(job_id)
    return job_id


def test_list_show_and_explain_say_how_far_it_is_and_that_nothing_is_offered(shell: Shell, external: str) -> None:
    assert table(shell.good("list"))[0]["RESTORE"] == "external"
    shell.record(external, Checkpoint(1, 31), CheckpointCompleted("/x/31", 1))
    shell.now(external)
    assert table(shell.good("list"))[0]["RESTORE"] == "external,1/31"
    assert "RESTORE    external,1/31" in shell.good("show", external)
    told = shell.good("explain", external)
    assert "restores by itself (restore: external)" in told and "none offered" in told
    row = shell.json("show", external)
    assert (row["restore"], row["marker"]["id"], row["restore_points"]) == ("EXTERNAL", 31, [])


def test_the_plan_and_the_timeline_do_not_say_scratch(shell: Shell, external: str) -> None:
    shell.record(external, Ended(1, "failed", "agent-a"), AttemptEnded("exit code 1"))
    shell.now(external)
    picture = shell.folder / "life.svg"
    shell.good("history", external, "--timeline", str(picture))
    assert "from its own state" in picture.read_text() and "scratch" not in picture.read_text()


def test_a_retry_from_a_checkpoint_is_wrong_usage(shell: Shell, external: str) -> None:
    shell.record(external, Ended(1, "failed", "agent-a"), AttemptEnded("exit code 1"))
    shell.now(external)
    told = shell.run("retry", external, "--from", "scratch", "--reason", "x")
    assert told.exit_code == 2 and "restores by itself" in told.stderr


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--restore", "external", "--from", "/chk-9"], "would never read it"),
        (["--restore", "elsewhere"], "--restore takes ledger or external, not elsewhere"),
    ],
)
def test_what_can_not_be_meant_is_wrong_usage(shell: Shell, flags: list[str], told: str) -> None:
    answer = shell.run("submit", *flags, "--", "true")
    assert answer.exit_code == 2 and told in answer.stderr


def test_only_such_a_job_needs_the_new_schema(shell: Shell, external: str) -> None:
    plain = shell.submit("plain")
    versions = {}
    for job_id in (external, plain):
        shell.now(job_id)
        for partition in range(PARTITIONS):
            for record in shell.log.records("ledger.events", partition):
                if record.key().startswith(f"{job_id}/spec/".encode()):
                    versions[job_id] = schemas.by_fingerprint()[record.value()[2:10]].version
    assert versions == {external: 5, plain: 1}
