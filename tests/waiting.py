"""Waiting for a condition with a deadline, the one way in which tests wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psutil
from confluent_kafka import KafkaException

from ledger.errors import LedgerError

T = TypeVar("T")


def until(
    holds: Callable[[], T | None], what: str = "", timeout_s: float = 60.0, every_s: float = 0.05,
    story: Callable[[], str] = str,
) -> T:  # fmt: skip
    """The first true answer; `story` is told when none came in time.

    Trouble with a server that is away is no answer, and neither is a file or a process that is gone (or not yet there)
    when it is looked at: what tests wait for is done by others meanwhile.

    Raises: AssertionError.
    """
    deadline, trouble = time.monotonic() + timeout_s, ""
    while True:
        try:
            if answer := holds():
                return answer
        except (LedgerError, KafkaException, OSError, psutil.NoSuchProcess) as error:
            trouble = f" ({type(error).__name__}: {error})"
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what or holds}{trouble}\n{story()}".rstrip()
        time.sleep(every_s)
