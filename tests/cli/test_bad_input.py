"""Bad input from people and logs: the command names the problem, prints no terminal escapes, and does not crash."""

from __future__ import annotations

import pytest

from ledger.cli.output import utc
from ledger.core.model.facts import AttemptEnded, AttemptRunning, AttemptStarted, IntentDeclared, IntentKind, JobResult
from ledger.core.model.registers import Attempt, Ended, Intent, Result, Running
from tests.support.bad_input import Fate, everything
from tests.support.jobs_world import Shell

ODD = {
    "control": "\x1b]0;owned\x07\x1b[2J\x9b31m", "NUL": "a\0b", "lines": "a\nb\r\nc", "none": "", "blank": " \t\n",
    "no text": "\udcff\udcfe", "slashes": "../../etc/passwd", "huge": "x" * 100_000, "a flag": "--yes",
    "wide": "✓ 𝕏 \u202e",
}  # fmt: skip
JOB_VERBS = ["show", "history", "explain", "logs", "wait"]
CHANGING = ["cancel", "suspend", "resume", "retry", "savepoint"]


def printable(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


@pytest.fixture
def quick(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    shell.submit("etl", "--id", "etl-1")
    return shell


@pytest.mark.parametrize("odd", ODD)
def test_a_job_that_nobody_can_mean_is_not_found(quick: Shell, odd: str) -> None:
    for verb in JOB_VERBS:
        told = quick.run(verb, "--", ODD[odd])
        assert told.exit_code in (1, 2) and printable(told.output), (verb, told.output)
    for verb in CHANGING:
        told = quick.run(verb, "--reason", "why", "--", ODD[odd])
        assert told.exit_code in (1, 2) and printable(told.output), (verb, told.output)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("flag", ["--id", "--name", "--namespace"])
def test_an_id_or_a_name_that_is_none_is_wrong_usage(quick: Shell, flag: str, odd: str) -> None:
    if (flag, odd) == ("--id", "none"):
        return  # as if the option was not given
    told = quick.run("submit", f"{flag}={ODD[odd]}", "--", "true")
    good = flag != "--id" and odd == "a flag"
    assert told.exit_code == (0 if good else 2) or (flag, odd) == ("--id", "a flag"), told.output
    assert printable(told.output)


@pytest.mark.parametrize("odd", ODD)
def test_a_reason_is_shown_without_what_drives_a_terminal(quick: Shell, odd: str) -> None:
    told = quick.run("suspend", "etl-1", f"--reason={ODD[odd]}")
    assert told.exit_code == (2 if odd in ("none", "blank", "no text") else 0), told.output
    assert printable(told.output)
    for verb in ("show", "history", "explain"):
        assert printable(quick.good(verb, "etl-1"))
    assert printable(quick.good("list", "-o", "wide"))


@pytest.mark.parametrize("flags", [
    ["--restart", "\0"], ["--restart", "fixed-delay:" + "9" * 5000], ["--restart", "fixed-delay:1:" + "9" * 400 + "s"],
    ["--slots", "9" * 30], ["--priority", "9" * 30], ["--priority", str(2**63)], ["--checkpoint-interval", "9" * 400 + "h"],
    ["--checkpoint-interval", "1s", "--stalled-after", "9" * 30], ["--env", "\0"], ["--env", "=x"],
    ["--failure-label", "a=("],
    ["--failure-label", "\x1b[2J=1"], ["--permanent-exit-code", "9" * 30], ["--permanent-pattern", "(" * 5000],
    ["--graph", "/no\0where"], ["--graph", "/" + "x" * 5000],
])  # fmt: skip
def test_flags_that_are_none_are_wrong_usage(quick: Shell, flags: list[str]) -> None:
    told = quick.run("submit", *flags, "--", "true")
    assert told.exit_code == 2 and printable(told.output), told.output


def test_the_end_of_a_job_is_told_without_what_its_program_printed_to_drive_a_terminal(quick: Shell) -> None:
    quick.record("etl-1", Ended(1, "failed-permanent", "agent-a"), AttemptEnded(f"exit 1: {ODD['control']}"))
    told = quick.run("submit", "--id", "etl-1", "--name", "etl", "--wait", "--", "true")
    assert told.exit_code == 1 and "etl is QUARANTINED" in told.stderr and printable(told.output)


def test_times_beyond_the_calendar_are_shown(quick: Shell) -> None:
    job_id = quick.submit("far", "--checkpoint-interval", "277777h", "--stalled-after", "1000000000")
    digest = quick.now(job_id).digest
    quick.record(job_id, Attempt(1, 1), AttemptStarted(digest))
    quick.record(job_id, Running(1), AttemptRunning("1"))
    assert (quick.now(job_id).stalls_at or 0) > 1e17
    assert "far" in quick.good("list", "-o", "wide")
    result = JobResult("\x1b[2J", "d", "memory", "0" * 64, "\0\x9b", 1e308, 2**63 - 1, {"\x1b": "\0"})
    quick.record("old", Result("FINISHED"), result)
    assert printable(quick.good("list", "--all", "-o", "wide"))
    assert [utc(time_s) for time_s in (1e18, -1e308, 0)] == ["1e+18s", "-1e+308s", "1970-01-01T00:00:00Z"]


def test_a_log_full_of_bad_records_can_be_read(quick: Shell) -> None:
    bads = [bad for bad in everything() if bad.key is not None and len(bad.value or b"") < 1_000_000]
    for bad in bads:
        quick.log.append([bad.event("ledger.events", quick.log.partitions("ledger.events"))])
    quick.now("etl-1")
    rejected = quick.json("rejects")
    assert len(rejected) >= sum(bad.fate is Fate.REJECTED and not bad.job for bad in bads)
    for arguments in (["rejects"], ["rejects", "-o", "wide"], ["list", "--all", "-o", "wide"], ["replay"], ["plan"]):
        told = quick.run(*arguments)
        assert told.exit_code in (0, 1) and printable(told.stdout), arguments
    for job_id in ("order-1", "top-end", "clock-1", "size-3", "good-0"):
        assert printable(quick.run("history", job_id).output) and printable(quick.run("explain", job_id).output)


def test_a_retry_from_what_is_no_restore_point_is_wrong_usage(quick: Shell) -> None:
    quick.record("etl-1", Ended(1, "failed-permanent", "agent-a"), AttemptEnded("x"))
    for point in ("", "\0", "1/" + "9" * 30, "-1/1", "9007199254740993/1", "1/1/1", "../x"):
        told = quick.run("retry", "etl-1", "--reason", "x", f"--from={point}")
        assert told.exit_code == 2 and printable(told.output), (point, told.output)
    quick.record("etl-1", Intent(7, "u"), IntentDeclared(IntentKind.SUSPEND, reason="\x1b[2J"))
    assert printable(quick.good("show", "etl-1"))
