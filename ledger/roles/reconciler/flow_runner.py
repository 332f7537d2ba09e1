"""Runs the flows of one term, at most one for each job. Their events are committed together, their tasks submitted
together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from ledger.ports import Event, Task, TaskOutcome
from ledger.roles.reconciler.flow_steps import Flow

log = structlog.get_logger("reconciler")


class FlowRunner:
    """Runs the flows of one term. commit: writes events in one transaction and returns their offsets. submit: hands
    tasks to the executor.

    starting: job id -> attempt, for the flows that start an attempt.
    """

    def __init__(
        self,
        commit: Callable[[list[Event]], list[int]],
        submit: Callable[[Sequence[Task[Any]]], None],
        counters: Counter[str],
    ) -> None:
        self._commit, self._submit, self._counters = commit, submit, counters
        self._flows: dict[str, Flow] = {}
        self._outbox: list[tuple[str, list[Event]]] = []
        self._tasks: list[Task[Any]] = []
        self._asked: dict[str, Task[Any]] = {}
        self.starting: dict[str, int] = {}

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._flows

    def begin(self, job_id: str, flow: Flow, starting: int = 0) -> None:
        self._flows[job_id] = flow
        if starting:
            self.starting[job_id] = starting
        self._advance(job_id, None)

    def resume(self, task: Task[Any], outcome: TaskOutcome[Any]) -> None:
        if self._asked.get(task.job_id) is task:  # the same object: an equal task of an earlier term does not count
            del self._asked[task.job_id]
            self._advance(task.job_id, outcome)

    def flush(self) -> None:
        """Commits the events of all flows in one transaction and continues the flows; then submits their tasks."""
        while self._outbox:
            outbox, self._outbox = self._outbox, []
            offsets = iter(self._commit([event for _, events in outbox for event in events]))
            for job_id, events in outbox:
                self._advance(job_id, [next(offsets) for _ in events])
        tasks, self._tasks = self._tasks, []
        if tasks:
            self._submit(tasks)

    def _advance(self, job_id: str, answer: Any) -> None:
        try:
            wanted = self._flows[job_id].send(answer)
        except StopIteration:
            self._ends(job_id)
            return
        except Exception:  # one job's trouble is nobody else's (incident 003); the next pass judges it anew
            log.exception("flow_broke", job=job_id)
            self._counters["flows_broken"] += 1
            self._ends(job_id)
            return
        if isinstance(wanted, Task):
            self._asked[job_id] = wanted
            self._tasks.append(wanted)
        else:
            self._outbox.append((job_id, wanted))

    def _ends(self, job_id: str) -> None:
        del self._flows[job_id]
        self.starting.pop(job_id, None)
