"""Failpoints: named places in the code at which a test can kill, stop or delay a process, or make it raise.

    LEDGER_FAILPOINT=transaction.produced:kill@3 jobledger serve projector

The variable holds `name:action@n,…`. name: one of `NAMES`. action: kill (SIGKILL), stop (SIGSTOP), raise,
delay=SECONDS. @n: act only at the n-th hit in this process; without it, at each hit. If the variable is not set, a
failpoint costs one call that does nothing.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

VARIABLE = "LEDGER_FAILPOINT"
#: Name -> the state of the ledger when a process reaches this failpoint.
NAMES = {
    "submit.unstored": "a submitter is about to store a job's graph",
    "submit.stored": "the graph is stored, and no record in the log names it yet",
    "term.elected": "a candidate has won the election, and has not fenced its predecessor yet",
    "term.initialised": "the candidate has fenced its predecessor, and has not claimed its epoch yet",
    "transaction.begun": "a leader has begun a transaction, and has not passed any record to the client yet",
    "transaction.produced": "all records are passed to the client; some may have reached a broker",
    "transaction.delivered": "all records are in the log, and no commit was requested yet",
    "transaction.committed": "the broker has confirmed the commit, and the role does not know it yet",
    "transaction.offsets": "the offsets for lag tools are committed too, and the role knows neither commit yet",
    "start.recorded": "a reconciler's attempt is in the log, and no runner was asked to start it yet",
    "start.answered": "the runner has answered, and the reconciler has not acted on the answer yet",
    "replace.undeclared": "an intent for a replacement is about to be written",
    "replace.declared": "the intent is committed, and the reconciler has done nothing since",
    "savepoint.unasked": "a periodic savepoint request is about to be written",
    "savepoint.asked": "the savepoint request is committed, and the runner has not received it yet",
    "dispose.unrecorded": "no job needs a savepoint, and its disposal is about to be recorded",
    "dispose.recorded": "the disposal is recorded, and no file is deleted yet",
    "dispose.deleted": "the files of disposed savepoints are deleted, and their registers are still in the log",
    "dispose.written": "the registers of disposed savepoints are removed, and the reconciler has done nothing since",
    "clean.unasked": "a job is over, and none of its blobs is deleted yet",
    "clean.answered": "the job's blobs are deleted, and its facts are still in the log",
    "retire.unwritten": "a job's result and tombstones are about to be written",
    "restore.writing": "a restore is about to pass one more record to the client",
    "restore.written": "all restored records are acknowledged, and not compared with the archive yet",
    "restore.read": "the restored topics are verified, and no role may start on them yet",
    "compact.stored": "the merged objects of a day are stored, and no note names them yet",
    "compact.noted": "a note names the merged objects, and the original objects still exist",
    "compact.deleted": "one more of the original objects is deleted",
    "pin.marked": "a pin is listed as held, and no note records it yet",
    "pin.sealed": "a note records the pin for one more of its jobs",
    "unpin.sealed": "a note records the removal of a pin for one more of its jobs, and the pin is still listed as held",
    "rewrite.stored": "objects without the expired or redacted records are stored, and no note names them yet",
    "rewrite.noted": "a note names the new objects, and the old objects still exist",
    "rewrite.deleted": "one more old object, or orphan that holds removed records, is deleted",
    "retire.written": "the result and tombstones are committed, and the reconciler has done nothing since",
}


class Failed(RuntimeError):
    """The error that the action `raise` raises."""


class _Point(NamedTuple):
    """seconds: of a delay. at: the number of the hit that acts; 0 means each."""

    action: str
    seconds: float
    at: int


def _nothing(_: str) -> None: ...


#: Call it as `failpoints.hit("…")`, through the module, because `arm` replaces it.
hit: Callable[[str], None] = _nothing


def arm(text: str) -> None:
    """Arms the failpoints in `text`, the variable's value; "" disarms all. Raises: ValueError if it is invalid."""
    global hit  # noqa: PLW0603 - the cheapest switch
    points = dict(_parsed(one.strip()) for one in text.split(",") if one.strip())
    hit = _Armed(points) if points else _nothing


class _Armed:
    def __init__(self, points: dict[str, _Point]) -> None:
        self._points, self._hits = points, Counter[str]()

    def __call__(self, name: str) -> None:
        point = self._points.get(name)
        if point is None:
            return
        self._hits[name] += 1
        if point.at in (0, self._hits[name]):
            _act(point, name)


def _act(point: _Point, name: str) -> None:
    match point.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "delay":
            time.sleep(point.seconds)
        case _:
            raise Failed(f"failpoint {name}")


def _parsed(text: str) -> tuple[str, _Point]:
    name, _, rest = text.partition(":")
    action, _, at = rest.partition("@")
    if name not in NAMES:
        raise ValueError(f"there is no failpoint {name!r}. Use one of: {', '.join(NAMES)}")
    action, _, seconds = action.partition("=")
    if action not in ("kill", "stop", "raise", "delay") or bool(seconds) is not (action == "delay"):
        raise ValueError(f"{text!r}: the action is kill, stop, raise or delay=SECONDS")
    try:
        return name, _Point(action, float(seconds or 0), int(at or 0))
    except ValueError:
        raise ValueError(f"{text!r}: write name:action@n, where n is a number") from None
