"""`replace`, as people and scripts see it. For the reconciler's side see tests/roles."""

from __future__ import annotations

import json

import pytest

from ledger.adapters import schemas
from ledger.adapters.runners.subprocess.graph import unpack
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    CheckpointKind,
    IntentDeclared,
    IntentKind,
    JobResult,
    Replacement,
)
from ledger.core.model.registers import Attempt, Checkpoint, Ended, Intent, Result, Running
from ledger.core.plan.replacing import CANCEL, RESUME, STOP, intent_id
from ledger.util import failpoints


@pytest.fixture
def old(shell) -> str:
    """A running job with a checkpoint and a savepoint."""
    (shell.folder / "etl.py").write_text("print(1)")
    job_id = shell.good(
        "submit", "--name", "etl", "--namespace", "prod", "--restart", "fixed-delay:3:10s", "--priority", "7",
        "--slots", "2", "--permanent-exit-code", "64", "--checkpoint-interval", "10s",
        "--graph", str(shell.folder / "etl.py"), "--env", "A=1", "--env", "B=2", "-o", "name", "--", "python", "etl.py",
    ).strip()  # fmt: skip
    shell.record(job_id, Attempt(1, 1), AttemptStarted("d" * 64))
    shell.record(job_id, Running(1), AttemptRunning("17"))
    shell.record(job_id, Checkpoint(1, 3), CheckpointCompleted("/sav-3", 5, kind=CheckpointKind.SAVEPOINT))
    shell.record(job_id, Checkpoint(1, 4), CheckpointCompleted("/chk-4", 6))
    shell.now(job_id)
    return job_id


def replaced(shell, *arguments: str) -> str:
    """Replaces a job; the id of the new job."""
    told = shell.good("replace", *arguments)
    return told.splitlines()[-1]


def spec(shell, job_id):
    shell.now(job_id)
    return shell.client().spec(job_id)


def graph(shell, job_id):
    """The unpacked graph of a job, and the folder with its files."""
    shell.blobs.fetch(spec(shell, job_id).graph, shell.folder / f"blob-{job_id}")
    return unpack(shell.folder / f"blob-{job_id}", shell.folder / job_id), shell.folder / job_id


def test_limits_and_labels_are_the_old_ones_but_for_what_is_given(shell):
    old = shell.good("submit", "--name", "etl", "-l", "a=1", "-l", "b=2", "--memory", "1G", "--stop-grace", "20s",
                     "-o", "name", "--", "true").strip()  # fmt: skip
    shell.now(old)
    kept = replaced(shell, old, "--env", "A=1")
    shell.good("cancel", kept, "--reason", "the next one")
    shell.now(kept)
    changed = replaced(shell, old, "-l", "b=3", "--memory", "0", "--stop-grace", "5s")
    found = [(dict(spec(shell, j).labels), (g := graph(shell, j)[0]).memory_bytes, g.stop_grace_s) for j in (kept, changed)]
    assert found == [({"a": "1", "b": "2"}, 1 << 30, 20.0), ({"a": "1", "b": "3"}, None, 5.0)]


def test_the_new_job_is_as_the_old_but_for_what_is_given(shell, old):
    (shell.folder / "new.py").write_text("print(2)")
    new = replaced(
        shell, "etl", "--from", "latest", "--reason", "release 7", "--env", "B=3", "--slots", "1",
        "--graph", str(shell.folder / "new.py"), "--", "python", "new.py", "-o", "json",
    )  # fmt: skip
    was, now = spec(shell, old), spec(shell, new)
    assert now.replaces == old and now.replacement == Replacement("latest", 0, "release 7")
    for name in ("name", "namespace", "priority", "restart_policy", "stall_policy", "labels", "runner"):
        assert getattr(now, name) == getattr(was, name), name
    assert now.slots == 1 and shell.now(new).inherits
    packed, folder = graph(shell, new)
    assert packed.command == ("python", "new.py", "-o", "json") and packed.environment == {"A": "1", "B": "3"}
    assert [path.name for path in folder.iterdir() if path.suffix == ".py"] == ["new.py"]


def test_what_is_not_given_of_the_graph_is_the_old_ones(shell, old):
    packed, folder = graph(shell, replaced(shell, old, "--", "python", "etl.py", "--fast"))
    assert packed.command == ("python", "etl.py", "--fast") and packed.environment == {"A": "1", "B": "2"}
    assert (folder / "etl.py").read_text() == "print(1)"


def test_a_release_that_knows_no_replacements_can_not_read_the_spec(shell, old):
    """A release that could read the spec without `replaces` would start the job at once, in parallel with the old one."""
    new = replaced(shell, old)
    (record,) = [value for key, value in shell.values().items() if key.startswith(f"{new}/spec/".encode())]
    third = schemas.versions()["JobSubmitted"][2]
    assert third.version == 3 and record[2:10] == third.fingerprint


def test_nothing_given_is_the_very_same_graph(shell, old):
    new = replaced(shell, old, "--restart", "none")
    assert spec(shell, new).graph.sha256 == spec(shell, old).graph.sha256
    policy = spec(shell, new).restart_policy
    assert (policy.kind, [rule.exit_code for rule in policy.failure_rules]) == ("NONE", [64])


@pytest.mark.parametrize("place", ["1/3", "/sav-3"])
def test_a_restore_point_of_the_old_job_is_taken_with_all_that_is_known_of_it(shell, old, place):
    point = spec(shell, replaced(shell, old, "--from", place)).restore_from
    assert (point.attempt, point.location, point.size, point.kind) == (0, "/sav-3", 5, CheckpointKind.SAVEPOINT)


def test_from_scratch_and_from_elsewhere(shell, old):
    told = shell.run("replace", old, "--from", "1/9")
    assert told.exit_code == 2 and "has no restore point 1/9" in told.stderr and "1/3, 1/4" in told.stderr
    new = replaced(shell, old, "--from", "scratch")
    assert spec(shell, new).restore_from is None and not shell.now(new).inherits


def test_the_same_again_is_the_one_that_is_there(shell, old):
    one = ["etl", "--reason", "release 7", "--", "python", "etl.py", "--fast"]
    new = replaced(shell, *one)
    assert replaced(shell, *one) == new
    shell.record(old, Intent(1, intent_id(new, STOP)), IntentDeclared(IntentKind.SUSPEND))
    assert replaced(shell, *one) == new == replaced(shell, "--id", new, *one)
    told = shell.run("replace", "etl", "--", "python", "other.py")
    assert told.exit_code == 5 and f"is being replaced by {new} already" in told.stderr
    told = shell.run("replace", "--id", "another", *one)
    assert told.exit_code == 5


def test_the_same_again_is_one_whatever_became_of_the_old_job(shell, old):
    one = ["--id", "new", "--reason", "release 7", "--env", "C=1", "--", "python", "etl.py", "--fast"]
    assert replaced(shell, "etl", *one) == "new"
    shell.record(old, Ended(2, "canceled", "reconciler-1"), AttemptEnded())
    shell.now(old)
    assert replaced(shell, "etl", *one) == replaced(shell, old, *one) == "new"
    shell.record(old, Result("CANCELED"), JobResult("etl", "prod", "subprocess", "d" * 64, "", 1.0, 2))
    shell.step()
    assert replaced(shell, "etl", *one) == replaced(shell, old, *one) == "new"
    assert shell.run("replace", old, "--", "true").exit_code == 5


def test_the_same_again_while_nobody_has_admitted_it_is_the_one_that_is_there(shell, old):
    shell.working = False
    one = ["replace", old, "--", "python", "etl.py", "--fast"]
    assert shell.run(*one).exit_code == 4
    assert shell.run(*one).exit_code == 4
    shell.working = True
    new = shell.good(*one).splitlines()[-1]
    assert [e.job_id for e in shell.client().entries().values() if e.replaces == old] == [new]


def test_one_that_was_given_up_is_no_obstacle(shell, old):
    new = replaced(shell, "etl")
    shell.record(new, Ended(1, "failed-permanent", "reconciler-1"), AttemptEnded("no such module"))
    shell.record(old, Intent(2, intent_id(new, RESUME)), IntentDeclared(IntentKind.RUN))
    shell.now(new), shell.now(old)
    again = replaced(shell, "etl", "--", "python", "fixed.py")
    assert again != new and spec(shell, again).replacement.after_rev == 2


def test_what_can_not_be_replaced(shell, old):
    assert shell.run("replace", "nobody").exit_code == 1
    new = replaced(shell, old)
    told = shell.run("replace", new)
    assert told.exit_code == 5 and f"{new} is still taking over from {old}" in told.stderr
    shell.record(old, Ended(1, "finished", "agent-a"), AttemptEnded())
    shell.now(old)
    told = shell.run("replace", old, "--", "true")
    assert told.exit_code == 5 and "FINISHED" in told.stderr
    outside = shell.recorder.job("theirs")
    outside.__enter__()
    shell.now(outside.job_id)
    told = shell.run("replace", outside.job_id)
    assert told.exit_code == 2 and "run by its own producer" in told.stderr


def test_unique_lets_the_replacement_through(shell, old):
    new = replaced(shell, old, "--unique", "--reason", "a")
    assert spec(shell, new).name == "etl"
    other = shell.submit("other")
    told = shell.run("replace", other, "--unique", "--name", "etl", "--namespace", "prod")
    assert told.exit_code == 5 and "prod/etl is" in told.stderr


@pytest.mark.parametrize("done", [True, False])
def test_wait_tells_what_became_of_it(shell, old, done):
    step = shell.step

    def go_on() -> None:
        step()
        if shell.entry("new") is None:
            return
        if done:
            shell.record("new", Attempt(1, 1), AttemptStarted("d" * 64))
            shell.record("new", Running(1), AttemptRunning("18"))
            shell.record(old, Intent(2, intent_id("new", CANCEL)), IntentDeclared(IntentKind.CANCEL))
        else:
            shell.record("new", Ended(1, "failed-permanent", "reconciler-1"), AttemptEnded("no such module"))
            shell.record(old, Intent(2, intent_id("new", RESUME)), IntentDeclared(IntentKind.RUN))

    shell.step = go_on
    told = shell.run("replace", old, "--id", "new", "--wait")
    assert told.exit_code == (0 if done else 1) and told.stdout.splitlines()[-1] == "new"
    assert (f"RUNNING in the place of {old}" if done else "given up, it is QUARANTINED") in told.stdout
    if not done:
        assert "no such module" in told.stdout


def test_o_json_is_one_object(shell, old):
    told = json.loads(shell.good("replace", old, "--id", "new", "-o", "json"))
    assert told == {"job_id": "new", "replaces": old}


@pytest.mark.parametrize("point", ["submit.unstored", "submit.stored", "recorded"])
def test_the_command_may_be_killed_at_any_point(shell, old, monkeypatch, point):
    """The repeated command finds or makes a single replacement. Before the replacement is recorded, nothing has
    changed."""

    class Killed(BaseException):
        pass

    def hit(name: str) -> None:
        if name == point:
            raise Killed

    record = shell.recorder.record

    def and_killed(*what):
        record(*what)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "hit", hit)
        if point == "recorded":
            patched.setattr(shell.recorder, "record", and_killed)
        with pytest.raises(Killed):
            shell.client().replace(old, spec(shell, old), shell.graph(), reason="release 7")
    there = [j for j, e in shell.client().entries().items() if e.replaces == old]
    assert there == [] and shell.now(old).state == "RUNNING"
    again = shell.client().replace(old, spec(shell, old), shell.graph(), reason="release 7")
    assert [j for j, e in shell.client().entries().items() if e.replaces == old] == [again]
