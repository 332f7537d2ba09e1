"""--as-of, on the verbs that read."""

from __future__ import annotations

import pytest

from ledger.adapters import cloudevents
from ledger.identity import whoami
from tests.cli.jobs_world import Shell


def now(shell: Shell) -> str:
    return cloudevents.rfc3339(shell.clock.time())


def told(shell: Shell, *arguments: str) -> str:
    """The offsets that an answer stands for."""
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
    assert still not in line
    assert shell.json("diff", "--from", later, "--to", later) == []


@pytest.mark.parametrize("arguments", [
    ("diff", "--from", "0s", "--to", "10s"), ("diff", "--from", "nonsense is here"),
    ("list", "--as-of", "half past two"), ("list", "--as-of", "2026-13-01"), ("list", "--as-of", "events[0]@x"),
    ("list", "--as-of", "0s", "--watch"), ("history", "x", "--as-of", "0s", "--follow"), ("show", "x", "--as-of", ""),
])  # fmt: skip
def test_what_is_no_moment_is_wrong_usage(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert shell.run(*arguments).exit_code == 2
