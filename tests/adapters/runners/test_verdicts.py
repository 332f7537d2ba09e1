"""The failure rule that matches: by exit code, by pattern, and never by a match that takes too long."""

from __future__ import annotations

import os
import signal
import time

import pytest

from ledger.adapters.runners.subprocess.supervisor import procs, verdicts
from ledger.adapters.runners.subprocess.supervisor.verdicts import failure, verdict

pytestmark = pytest.mark.slow

CAUSE = "exit code 3: line one\nConfigError: no such table"


def rule(label: str = "x", exit_code: int | None = None, pattern: str = "", permanent: bool = True) -> dict[str, object]:
    return {"label": label, "exit_code": exit_code, "pattern": pattern, "permanent": permanent}


@pytest.mark.parametrize(
    ("rules", "outcome", "label"),
    [
        ([], "failed", ""),
        ([rule(exit_code=3)], "failed-permanent", "x: "),
        ([rule(exit_code=4)], "failed", ""),
        ([rule(pattern="ConfigError")], "failed-permanent", "x: "),
        ([rule(pattern="^ConfigError")], "failed", ""),  # the pattern is matched against the whole cause …
        ([rule(pattern="(?m)^ConfigError")], "failed-permanent", "x: "),  # … which has several lines
        ([rule(pattern="code 3")], "failed-permanent", "x: "),
        ([rule(exit_code=4, pattern="ConfigError")], "failed", ""),
        ([rule(exit_code=3, pattern="OtherError")], "failed", ""),
        ([rule(exit_code=3, pattern="ConfigError", permanent=False)], "failed", "x: "),
        ([rule("a", 3, permanent=False), rule("b", 3)], "failed", "a: "),
        ([rule("a", None, "nothing"), rule("b", 3)], "failed-permanent", "b: "),
        ([rule("a", None, "(", True), rule("b", 3)], "failed-permanent", "b: "),  # an invalid expression
    ],
)
def test_the_first_rule_that_fits(rules, outcome, label):
    assert failure(3, CAUSE, rules) == (outcome, label + CAUSE)


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [(os.CLD_EXITED, 64, 64), (os.CLD_KILLED, signal.SIGKILL, 137), (os.CLD_DUMPED, signal.SIGSEGV, 139)],
)
def test_a_signal_is_128_and_its_number_as_shells_say(code, status, exit_code):
    assert verdict(code, status, "", [rule(exit_code=exit_code)])[0] == "failed-permanent"
    assert verdict(code, status, "", [rule(exit_code=status % 128 + 1)])[0] == "failed"


def test_a_clean_exit_is_no_failure():
    assert verdict(os.CLD_EXITED, 0, "oh", [rule(pattern=".")]) == ("finished", "exit code 0")


@pytest.fixture
def nobody_left():
    """Checks that no judge process is left."""
    before = set(procs.children(os.getpid()))
    yield
    assert set(procs.children(os.getpid())) <= before


def test_a_pattern_that_never_comes_to_an_end_is_given_up_and_said(monkeypatch, nobody_left):
    """The failure then counts as one that may be retried."""
    monkeypatch.setattr(verdicts, "JUDGE_CPU_S", 1)
    cause = f"exit code 1: {'x' * 3000}"
    outcome, said = failure(1, cause, [rule("evil", None, "(x+x+)+y")])
    assert outcome == "failed"
    assert said.startswith(cause) and "took longer" in said


def test_a_judge_who_stands_still_is_given_up_and_said(monkeypatch, nobody_left):
    monkeypatch.setattr(verdicts, "JUDGE_S", 0.3)
    monkeypatch.setattr(verdicts, "_first", lambda *_: signal.pause())
    outcome, said = failure(1, CAUSE, [rule("evil", None, "x")])
    assert outcome == "failed" and "no answer came for 0.3 s" in said


def test_a_judge_on_a_busy_machine_is_waited_for(monkeypatch):
    """Time that the judge waits for a CPU must not turn a permanent failure into one that is retried."""
    first = verdicts._first
    monkeypatch.setattr(verdicts, "JUDGE_CPU_S", 1)
    monkeypatch.setattr(verdicts, "_first", lambda *about: time.sleep(1.5) or first(*about))
    assert failure(3, CAUSE, [rule("no table", 3, "no such table")])[0] == "failed-permanent"


def test_a_pattern_that_takes_all_memory_is_given_up_and_said(monkeypatch):
    monkeypatch.setattr(verdicts, "JUDGE_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(verdicts, "_first", lambda *_: 0 * len(b"x" * (1 << 28)))
    outcome, said = failure(1, CAUSE, [rule("evil", None, "x")])
    assert outcome == "failed" and "more memory" in said
