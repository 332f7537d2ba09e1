"""All runners asked at once what runs, with a time limit for all of them together."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping

from ledger.errors import LedgerError, RunnerBroke, Unreachable
from ledger.ports import ObservedAttempt, Runner

Answer = list[ObservedAttempt] | LedgerError


class SideBySide:
    """As `tasks.observe`, each runner on a thread of its own that stays.

    An answer counts only in the pass that asked for it: one that comes later may be older than what is read from the log
    meanwhile, and an attempt that was started in between would seem to be gone. So who does not answer within limit_s is
    silent, and later passes do not wait for it before it has answered once, however late.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._askers: dict[str, _Asker] = {}

    def observe(
        self, runners: Mapping[str, Runner], unheard: Callable[[str, LedgerError], None]
    ) -> dict[str, list[ObservedAttempt] | None]:
        deadline = time.monotonic() + self._limit_s
        for name, runner in runners.items():
            if name not in self._askers:
                self._askers[name] = _Asker(name, runner)
            self._askers[name].ask()
        answers: dict[str, list[ObservedAttempt] | None] = {}
        for name in runners:
            answer = self._askers[name].answer(deadline, self._limit_s)
            if isinstance(answer, LedgerError):
                unheard(name, answer)
            answers[name] = None if isinstance(answer, LedgerError) else answer
        return answers


class _Asker:
    """One runner and its thread. `late`: it has not answered what it was asked in an earlier pass."""

    def __init__(self, name: str, runner: Runner) -> None:
        self._runner, self._late = runner, False
        self._questions: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        # A plug-in's process dies with the thread that started it: so there is one for good.
        threading.Thread(target=self._run, name=f"asks-{name}", daemon=True).start()

    def ask(self) -> None:
        if self._late and not self._answers.empty():
            self._answers.get()  # too old to be believed, but a sign of life
            self._late = False
        if not self._late:
            self._questions.put(None)

    def answer(self, deadline: float, limit_s: float) -> Answer:
        if not self._late:
            try:
                return self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self._late = True
        return Unreachable(f"it did not answer within {limit_s:g} s")

    def _run(self) -> None:
        while True:
            self._questions.get()
            try:
                answer: Answer = self._runner.observe()
            except LedgerError as error:
                answer = error
            except Exception as error:
                answer = RunnerBroke(f"it broke in observe: {type(error).__name__}: {error}")
            self._answers.put(answer)
