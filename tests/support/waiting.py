"""Functions that wait for a condition with a deadline: tests wait only with them. And the failures that are retried."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil
from confluent_kafka import KafkaException

from ledger.errors import LedgerError

T = TypeVar("T")


class NotInTime(AssertionError):
    """A deadline of a test passed, perhaps because the machine is busy. Only such a test is tried once more."""


def in_time(holds: object, what: str) -> None:
    """Raises: NotInTime if `holds` is false. what: the event that did not come, and its deadline."""
    if not holds:
        raise NotInTime(what)


def late(error: BaseException) -> bool:
    """Whether a test that ends with this error is tried once more. Only the error's type counts, not its text or cause."""
    return isinstance(error, NotInTime)


def until(
    holds: Callable[[], T | None], what: str = "", timeout_s: float = 60.0, every_s: float = 0.02,
    story: Callable[[], str] = str,
) -> T:  # fmt: skip
    """Waits for the first true answer and returns it. story: its text is added to the error if none came in time.

    An error counts as a false answer if a server is unreachable, or a file or process does not exist (yet or any more):
    other processes are at work meanwhile.

    Raises: NotInTime.
    """
    deadline, trouble = time.monotonic() + timeout_s, ""
    while True:
        try:
            if answer := holds():
                return answer
        except (LedgerError, KafkaException, OSError, psutil.NoSuchProcess) as error:
            trouble = f" ({type(error).__name__}: {error})"
        if time.monotonic() >= deadline:
            raise NotInTime(f"not within {timeout_s:g} s: {what or holds}{trouble}\n{story()}".rstrip())
        time.sleep(every_s)


def seconds_until(holds: Callable[[], object], within_s: float, what: str = "") -> float:
    """Waits as `until` does, and returns the seconds that it took. Raises: NotInTime."""
    began = time.monotonic()
    until(holds, what, within_s, every_s=0.002)
    return time.monotonic() - began


def run(command: Sequence[str | Path], timeout_s: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end and returns it with its output, for any exit code. Raises: NotInTime if it takes too long;
    the command is then killed."""
    try:
        return subprocess.run(command, timeout=timeout_s, capture_output=True, text=True, check=False, **options)
    except subprocess.TimeoutExpired as error:
        raise NotInTime(f"{error}\n{error.stdout!r}\n{error.stderr!r}") from error
