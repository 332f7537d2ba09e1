"""Observes all runners at once, with one time limit for all of them together."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping

from ledger.errors import LedgerError, RunnerBroke, Unreachable
from ledger.ports import Observation, Runner
from ledger.tasks import observation_of

Answer = Observation | LedgerError


class ParallelObserver:
    """Observes runners as `tasks.observe`, but with a lasting thread for each runner.

    An answer counts only in the pass that requested it. A late answer may be older than the log that was read
    meanwhile, and an attempt started in between would seem to be lost. So a runner that does not answer within limit_s
    seconds is silent.

    A silent runner is still queried, but no pass waits for it until it has answered without an error, within limit_s.
    So a runner that always hangs delays the other runners by limit_s once, not each time that it seems to recover."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._askers: dict[str, _Asker] = {}

    def observe(
        self, runners: Mapping[str, Runner], unheard: Callable[[str, LedgerError], None]
    ) -> dict[str, Observation | None]:
        deadline = time.monotonic() + self._limit_s
        for name, runner in runners.items():
            if name not in self._askers:
                self._askers[name] = _Asker(name, runner, self._limit_s)
            self._askers[name].ask()
        answers: dict[str, Observation | None] = {}
        for name in runners:
            answer = self._askers[name].answer(deadline)
            if isinstance(answer, LedgerError):
                unheard(name, answer)
            answers[name] = None if isinstance(answer, LedgerError) else answer
        return answers


class _Asker:
    """One runner and its thread. trouble: why passes do not wait for the runner; None if they do."""

    def __init__(self, name: str, runner: Runner, limit_s: float) -> None:
        self._runner, self._limit_s = runner, limit_s
        self._trouble: LedgerError | None = None
        self._questions: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Answer, float]] = queue.SimpleQueue()
        # A plug-in's process dies with the thread that started it, so this thread never ends.
        threading.Thread(target=self._run, name=f"asks-{name}", daemon=True).start()

    def ask(self) -> None:
        if self._trouble is not None:
            if self._answers.empty():
                return
            answer, took_s = self._answers.get()  # too old to use, but it shows that the runner answers
            if isinstance(answer, LedgerError):
                self._trouble = answer
            elif took_s <= self._limit_s:
                self._trouble = None
        self._questions.put(None)

    def answer(self, deadline: float) -> Answer:
        if self._trouble is not None:
            return self._trouble
        try:
            return self._answers.get(timeout=max(0.0, deadline - time.monotonic()))[0]
        except queue.Empty:
            self._trouble = Unreachable(f"it did not answer within {self._limit_s:g} s")
            return self._trouble

    def _run(self) -> None:
        while True:
            self._questions.get()
            began = time.monotonic()
            try:
                answer: Answer = observation_of(self._runner)
            except LedgerError as error:
                answer = error
            except Exception as error:
                answer = RunnerBroke(f"it broke in observe: {type(error).__name__}: {error}")
            self._answers.put((answer, time.monotonic() - began))
