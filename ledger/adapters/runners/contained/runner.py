"""A third-party runner in isolation: if it breaks, or its answers are invalid, only its own jobs suffer.

The runner has a separate process with a memory limit, and a time limit for each call. Its answers are validated before
use. After a failure, calls are refused for an exponential backoff, and the process is killed unless it is healthy. The
next call starts the process again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ledger.adapters.runners.calls import CalledRunner, error_from
from ledger.adapters.runners.contained.process import Broke, PluginProcess
from ledger.errors import RunnerBroke, Unreachable

T = TypeVar("T")
FIRST_DELAY_S = 1.0
DELAY_MAX_S = 60.0
TIMEOUT_S = 20.0
MEMORY_BYTES = 1 << 30


class ContainedRunner(CalledRunner):
    """A third-party runner in a separate process. name, value: of the plug-in's entry point. folder: where the plug-in
    may store files. timeout_s: for one call, including the loading of the plug-in. memory_bytes: limit of the process,
    0 = no limit.

    The process lives at most as long as the thread that made the first call. Raises, besides the errors of a runner:
    RunnerBroke if the plug-in broke during the call, so that the outcome is unknown; Unreachable if the plug-in broke a
    moment ago and was not called."""

    def __init__(
        self, name: str, value: str, folder: Path, timeout_s: float = TIMEOUT_S, memory_bytes: int = MEMORY_BYTES,
        now: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.name, self.folder = name, folder
        self._value, self._timeout_s, self._memory_bytes, self._now = value, timeout_s, memory_bytes, now
        self._lock = threading.Lock()  # one call at a time
        self._process: PluginProcess | None = None
        self._failures, self._not_before, self._why = 0, 0.0, ""

    def ask(self, call: str, convert: Callable[[Any], T], *, expected: str = "", **arguments: Any) -> T:
        with self._lock:
            if self._now() < self._not_before:
                raise Unreachable(self._why, hint="It is called again automatically, within a minute.")
            deadline = time.monotonic() + self._timeout_s
            try:
                return self._ask(call, convert, arguments, expected, deadline)
            except Broke as broke:
                self._back_off(call, broke)
                raise RunnerBroke(self._why) from broke

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _ask(self, call: str, convert: Callable[[Any], T], arguments: dict[str, Any], expected: str, deadline: float) -> T:
        if self._process is None:
            self._process = PluginProcess(self._value, self.folder, self._memory_bytes, deadline)
        answer = self._process.ask(call, arguments, expected, deadline)
        try:
            if "error" in answer:
                raise error_from(answer)
            result = convert(answer["result"])
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise Broke(f"it gave an invalid answer: {error}", goes_on=True) from error
        self._failures = 0
        return result

    def _back_off(self, call: str, broke: Broke) -> None:
        self._why = f"the plug-in {self.name} ({self._value}) broke in {call}: {broke}"
        if not broke.goes_on or self._process is None:
            self._drop()
        self._not_before = self._now() + min(DELAY_MAX_S, FIRST_DELAY_S * 2**self._failures)
        self._failures = min(self._failures + 1, 16)

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
