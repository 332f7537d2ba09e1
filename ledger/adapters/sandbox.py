"""Calls in child processes, with a time limit: a call that hangs, crashes or exhausts memory harms no other call."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from typing import Any

from ledger.ports import TaskOutcome, TaskStatus

_FORK = multiprocessing.get_context("fork")  # the parent has everything imported, so a child costs milliseconds


def in_children(calls: Sequence[Callable[[], TaskOutcome[Any]]], limit_s: float) -> list[TaskOutcome[Any]]:
    """Runs all calls at once, each in a forked child. Returns their outcomes in the order of the calls.

    The outcome is CRASHED, with a reason, if the child raises, dies, or has not answered after limit_s seconds."""
    children = [_begin(call) for call in calls]
    outcomes: dict[int, TaskOutcome[Any]] = {}
    deadline = time.monotonic() + limit_s
    while len(outcomes) < len(children):
        waiting = {pipe: i for i, (_, pipe) in enumerate(children) if i not in outcomes}
        ready = wait_for(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
        for pipe in ready:
            i = waiting[pipe]  # type: ignore[index]
            outcomes[i] = _answer(*children[i])
        if not ready:
            for i in waiting.values():
                children[i][0].kill()
                outcomes[i] = TaskOutcome(TaskStatus.CRASHED, reason=f"no answer within {limit_s:g} s; it was killed")
    for process, pipe in children:
        process.join()
        pipe.close()
    return [outcomes[i] for i in range(len(children))]


def _begin(call: Callable[[], TaskOutcome[Any]]) -> tuple[multiprocessing.process.BaseProcess, Connection]:
    ours, theirs = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_child, args=(theirs, call), daemon=False)
    process.start()
    theirs.close()
    return process, ours


def _child(pipe: Connection, call: Callable[[], TaskOutcome[Any]]) -> None:
    try:
        outcome = call()
    except BaseException as error:
        outcome = TaskOutcome(TaskStatus.CRASHED, reason=f"{type(error).__name__}: {error}")
    pipe.send(outcome)
    pipe.close()


def _answer(process: multiprocessing.process.BaseProcess, pipe: Connection) -> TaskOutcome[Any]:
    try:
        outcome: TaskOutcome[Any] = pipe.recv()
        return outcome
    except EOFError:
        process.join()
        code = process.exitcode or 0
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return TaskOutcome(TaskStatus.CRASHED, reason=f"its process died {how}")
