"""--as-of, on the verbs that read."""

from __future__ import annotations

import pytest

from ledger.cli import explaining
from ledger.util import times
from ledger.util.identity import whoami
from tests.support.jobs_world import Shell, seal


def now(shell: Shell) -> str:
    return times.rfc3339(shell.clock.time())


def told(shell: Shell, *arguments: str) -> str:
    """The offsets that an answer is for."""
    stderr = shell.run(*arguments).stderr
    return next(line.partition("as of ")[2] for line in stderr.splitlines() if "as of " in line)


def test_what_was_published_then_and_what_is_now(shell: Shell) -> None:
    first = shell.submit("first")
    shell.clock.advance(5.0)
    then = now(shell)
    shell.clock.advance(5.0)
    second = shell.submit("second")
    shell.good("suspend", first, "--reason", "a pause")
    assert shell.good("list", "-o", "name").split() == sorted([first, second])
    assert shell.good("list", "--as-of", then, "-o", "name").split() == [first]
    assert shell.json("show", first)["state"] == "SUSPENDED"
    assert shell.json("show", first, "--as-of", then)["state"] == "CREATED"
    assert shell.json("explain", first, "--as-of", then)["state"] == "CREATED"
    assert len(shell.json("history", first)) > len(shell.json("history", first, "--as-of", then))
    assert shell.run("replay", "--as-of", then).exit_code == 0
    gone = shell.run("show", second, "--as-of", then)
    assert gone.exit_code == 1


def test_no_leader_is_told_to_have_come_further_than_the_past_goes(shell: Shell) -> None:
    """A leader's position is behind the end of a transaction; the past ends behind its last record."""
    row = shell.json("explain", shell.submit("first"), "--as-of", "0s")
    assert explaining.lines({**row, "as_of": 3, "log_end": 4})[-1].split(";")[0].endswith("]@3 of 4")
    assert explaining.lines({**row, "as_of": 20, "log_end": 19})[-1].endswith("]@19 of 19")


def test_the_offsets_of_an_answer_ask_for_the_same(shell: Shell) -> None:
    shell.submit("first")
    shell.clock.advance(5.0)
    vector = told(shell, "list", "--as-of", now(shell))
    shell.clock.advance(5.0)
    shell.submit("second")
    assert told(shell, "list", "--as-of", vector) == vector
    assert len(shell.json("list", "--as-of", vector)) == 1
    assert len(shell.json("list", "--as-of", "0s")) == 2


def test_an_event_is_a_moment(shell: Shell) -> None:
    job = shell.submit("first")
    spec = shell.json("history", job)[0]
    assert shell.json("history", job, "--as-of", spec["event_id"])[-1]["event_id"] == spec["event_id"]
    assert shell.run("history", job, "--as-of", "no-such-event").exit_code == 1


def test_what_is_too_long_ago_is_refused_with_what_would_help(shell: Shell) -> None:
    shell.submit("first")
    shell.clock.advance(3 * 86_400.0)
    refused = shell.run("list", "--as-of", "2d")
    assert refused.exit_code == 1
    assert "there is no archive" in refused.stderr


def test_what_changed_between_two_moments_and_by_whom(shell: Shell) -> None:
    still, paused = shell.submit("still"), shell.submit("paused")
    shell.clock.advance(5.0)
    then = now(shell)
    shell.clock.advance(5.0)
    shell.good("suspend", paused, "--reason", "a pause")
    shell.clock.advance(5.0)
    later = now(shell)
    shell.clock.advance(5.0)
    third = shell.submit("third")
    (one,) = shell.json("diff", "--from", then, "--to", later)
    assert (one["job_id"], one["before"]["state"], one["after"]["state"]) == (paused, "CREATED", "SUSPENDED")
    assert [(record["fact"]["reason"], record["actor"]) for record in one["records"]] == [("a pause", whoami())]
    assert {one["job_id"] for one in shell.json("diff", "--from", then)} == {paused, third}
    (line,) = shell.good("diff", "--from", then, "--to", later).splitlines()[1:]
    assert all(word in line for word in (paused, "CREATED/0", "SUSPENDED/0", whoami(), "a pause"))
    assert still not in line and line.startswith("paused ")
    wide = shell.good("diff", "--from", then, "--to", later, "-o", "wide")
    assert "WROTE" in wide and "intent/1/" in wide
    assert "WROTE" in shell.good("diff", "--from", then, "--all-records")
    lines = shell.good("diff", "--from", then, "--job", "third").splitlines()
    assert len(lines) == 2 and lines[1].startswith("third ") and third in lines[1]
    assert shell.run("diff", "--from", then, "--job", "nobody").exit_code == 1
    assert shell.json("diff", "--from", later, "--to", later) == []


@pytest.mark.parametrize("arguments", [
    ("diff", "--from", "0s", "--to", "10s"), ("diff", "--from", "nonsense is here"),
    ("list", "--as-of", "half past two"), ("list", "--as-of", "2026-13-01"), ("list", "--as-of", "events[0]@x"),
    ("list", "--as-of", "0s", "--watch"), ("history", "x", "--as-of", "0s", "--follow"), ("show", "x", "--as-of", ""),
])  # fmt: skip
def test_what_is_no_moment_is_wrong_usage(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert shell.run(*arguments).exit_code == 2


def test_a_range_is_played_record_by_record(shell: Shell) -> None:
    paused, other = shell.submit("paused"), shell.submit("other")
    shell.clock.advance(5.0)
    then = now(shell)
    shell.clock.advance(5.0)
    shell.good("suspend", paused, "--reason", "a pause")
    shell.clock.advance(5.0)
    third = shell.submit("third")
    found = shell.json("replay", "--from", then)
    assert found[0]["job_id"] == paused
    assert (found[0]["before"]["state"], found[0]["after"]["state"], found[0]["why"]) == ("CREATED", "SUSPENDED", "a pause")
    assert {one["job_id"] for one in found} == {paused, third} and other not in {one["job_id"] for one in found}
    first = next(one for one in found if one["job_id"] == third)
    assert first["before"] is None
    assert [one for one in found if one["job_id"] == third][-1]["after"]["state"] == "CREATED"
    assert {one["job_id"] for one in shell.json("replay", "--from", then, "--job", "third")} == {third}
    (line,) = shell.good("replay", "--from", then, "--job", "paused").splitlines()[1:]
    assert all(word in line for word in (paused, "CREATED/0", "SUSPENDED/0", whoami(), "a pause"))
    assert "nothing was written" in shell.run("replay", "--from", "0s").output


@pytest.mark.parametrize("arguments", [
    ("--to", "0s"), ("--job", "x"), ("--from", "0s", "--as-of", "0s"), ("--from", "0s", "--what-if", "drop x"),
    ("--from", "0s", "--to", "10s"),
])  # fmt: skip
def test_a_range_that_is_none_is_refused(shell: Shell, arguments: tuple[str, ...]) -> None:
    shell.submit("first")
    assert shell.run("replay", *arguments).exit_code == 2


def test_an_offset_that_is_not_there_yet_is_no_moment(shell: Shell) -> None:
    job = shell.submit("first")
    partition = shell.json("history", job)[0]["partition"]
    refused = shell.run("list", "--as-of", f"events[{partition}]@999999")
    assert refused.exit_code == 1 and "there is no offset 999999 yet" in refused.stderr
    last = shell.json("history", job)[-1]["offset"]
    assert shell.run("list", "--as-of", f"events[{partition}]@{last}").exit_code == 0


def test_what_was_meant_as_a_time_is_told_how_times_are_written(shell: Shell) -> None:
    shell.submit("first")
    refused = shell.run("list", "--as-of", "14:05")
    assert refused.exit_code == 1 and "15m ago" in refused.stderr


def test_a_job_is_as_old_as_it_was_then(shell: Shell) -> None:
    shell.submit("first")
    shell.clock.advance(60.0)
    then = now(shell)
    shell.clock.advance(3600.0)
    assert shell.good("list").split()[-1] != shell.good("list", "--as-of", then).split()[-1]
    (line,) = shell.good("list", "--as-of", then).splitlines()[1:]
    assert line.rstrip().endswith(" 1m") or " 1m " in line or " 60s" in line, line


def test_in_the_past_nobody_need_have_come_to_the_last_record(shell: Shell) -> None:
    job = shell.submit("first")
    spec = shell.json("history", job)[0]
    told = shell.run("replay", "--as-of", spec["event_id"])
    assert told.exit_code == 0 and "the leader had not come to the last records by then" in told.stderr


def test_the_archive_of_another_topic_of_that_name_tells_nothing_of_this_one(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGER_ARCHIVE__ADAPTER", "file")
    shell.submit("first")
    seal(shell)
    for topic_id, code in (("id", 0), ("made-anew", 1)):
        monkeypatch.setattr(shell.log, "topic_ids", lambda ts, it=topic_id: dict.fromkeys(ts, it), raising=False)
        told = shell.run("list", "--as-of", "0s")
        assert told.exit_code == code
        assert ("was created again: the archive holds the records of another topic" in told.stderr) == bool(code)


@pytest.mark.parametrize("text", ["15x", "15min"])
def test_a_span_of_no_known_unit_is_wrong_usage(shell: Shell, text: str) -> None:
    told = shell.run("list", "--as-of", text)
    assert told.exit_code == 2 and "a number with s, m, h or d" in told.stderr and "event" in told.stderr
