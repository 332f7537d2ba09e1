"""Calls in child processes: a call that hangs, dies, exits or raises affects neither other calls nor the parent."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial

import psutil
import pytest

from ledger.adapters.sandbox import in_children
from ledger.ports import TaskOutcome, TaskStatus

LIMIT_S = 5.0  # a hanging call takes all of it; for other calls it is slack on a busy machine


def answer(text: str) -> TaskOutcome:
    return TaskOutcome(TaskStatus.DONE, text)


def hang() -> TaskOutcome:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
    return answer("never")


def die(number: int) -> TaskOutcome:
    os.kill(os.getpid(), number)
    return answer("never")


def leave() -> TaskOutcome:
    os._exit(7)


def fail() -> TaskOutcome:
    raise ValueError("a bug")


def stop_python() -> TaskOutcome:
    sys.exit("out")


@pytest.mark.slow
def test_each_has_its_own_end() -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    calls = [
        partial(answer, "first"), hang, partial(die, signal.SIGKILL), leave, fail, stop_python,
        partial(answer, "x" * 1_000_000), partial(answer, "last"),
    ]  # fmt: skip
    outcomes = in_children(calls, limit_s=LIMIT_S)
    statuses = [outcome.status for outcome in outcomes]
    assert statuses == [TaskStatus.DONE, *[TaskStatus.CRASHED] * 5, TaskStatus.DONE, TaskStatus.DONE]
    assert [outcomes[0].answer, len(outcomes[6].answer), outcomes[7].answer] == ["first", 1_000_000, "last"]
    reasons = [f"within {LIMIT_S:g} s", "SIGKILL", "exit code 7", "a bug", "out"]
    for outcome, words in zip(outcomes[1:6], reasons, strict=True):
        assert words in outcome.reason
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_nothing_to_do() -> None:
    assert in_children([], 1.0) == []
