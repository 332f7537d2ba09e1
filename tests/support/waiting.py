"""Waiting for a condition with a deadline, the one way in which tests wait; and which failure is tried again."""

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
    """A deadline of a test passed, which may be the machine's doing. Such a test is tried once more, and no other."""


def in_time(holds: object, what: str) -> None:
    """Raises: NotInTime if it does not hold; `what` says what did not come, and by when."""
    if not holds:
        raise NotInTime(what)


def late(error: BaseException) -> bool:
    """Whether a test that ends with this is tried once more. Neither its text nor its cause is looked at."""
    return isinstance(error, NotInTime)


def until(
    holds: Callable[[], T | None], what: str = "", timeout_s: float = 60.0, every_s: float = 0.02,
    story: Callable[[], str] = str,
) -> T:  # fmt: skip
    """The first true answer; `story` is told when none came in time.

    Trouble with a server that is away is no answer, and neither is a file or a process that is gone (or not yet there)
    when it is looked at: what tests wait for is done by others meanwhile.

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
    """Waits as `until` does, and returns how many seconds that took. Raises: NotInTime."""
    began = time.monotonic()
    until(holds, what, within_s, every_s=0.002)
    return time.monotonic() - began


def run(command: Sequence[str | Path], timeout_s: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command once it has ended, whatever its exit code, with what it said. Raises: NotInTime; then it is killed."""
    try:
        return subprocess.run(command, timeout=timeout_s, capture_output=True, text=True, check=False, **options)
    except subprocess.TimeoutExpired as error:
        raise NotInTime(f"{error}\n{error.stdout!r}\n{error.stderr!r}") from error
