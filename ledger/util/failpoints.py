"""Places at which a test can kill, stop or delay a process, or let it fail: `LEDGER_FAILPOINT=name:action@n,…`.

    LEDGER_FAILPOINT=transaction.produced:kill@3 jobledger serve projector

name: one of `NAMES`. action: kill (as kill -9), stop (as SIGSTOP), raise, delay=SECONDS. @n: at the n-th time that this
process comes there, and only then; without it, each time. Unset, a place costs one call that does nothing.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

VARIABLE = "LEDGER_FAILPOINT"
#: Name -> where that is. What a name promises of the world outside stands here; the line that bears it is one call.
NAMES = {
    "submit.unstored": "a submitter is about to store a job's graph",
    "submit.stored": "the graph is stored, and nothing in the log names it yet",
    "term.elected": "a candidate has won the election, and its predecessor is not fenced",
    "term.initialised": "it has fenced its predecessor and has not claimed its epoch",
    "transaction.begun": "a leader's transaction is begun, nothing is handed over yet",
    "transaction.produced": "all records are handed over to the client; some may have reached a broker",
    "transaction.delivered": "all records lie in the log, and nobody has asked to commit them",
    "transaction.committed": "the commit is answered, and the role does not know it yet",
    "transaction.offsets": "also the offsets for lag tools are told, and the role does not know of either",
    "start.recorded": "a reconciler's attempt stands in the log, and no runner was asked to start it",
    "start.answered": "the runner has answered, and the reconciler has done nothing about it",
    "replace.undeclared": "an intent that a replacement asks for is about to be written",
    "replace.declared": "it is committed, and the reconciler has done nothing after that",
    "savepoint.unasked": "a periodic ask is about to be written",
    "savepoint.asked": "it is committed, and no runner was told of it",
    "dispose.unrecorded": "nobody needs a savepoint, and it is about to be recorded that it is given up",
    "dispose.recorded": "that is recorded, and nothing is deleted",
    "dispose.deleted": "the files of savepoints that are given up are deleted, and their registers still stand in the log",
    "dispose.written": "their registers are removed, and the reconciler has done nothing after that",
    "clean.unasked": "a job is over, nothing of its blobs is deleted yet",
    "clean.answered": "its blobs are deleted, and its facts still stand in the log",
    "retire.unwritten": "result and tombstones are about to be written",
    "restore.writing": "a restore is about to hand over one more record",
    "restore.written": "all records are acknowledged, and nothing was compared yet",
    "restore.read": "what was restored is as it must be, and no role may start on it yet",
    "compact.stored": "the objects of a day are stored joined, and no note says so",
    "compact.noted": "a note says so, and what was joined still lies there",
    "compact.deleted": "one more of what was joined is deleted",
    "pin.marked": "a pin is listed as held, and no note says so yet",
    "pin.sealed": "a note says so, for one more of its jobs",
    "unpin.sealed": "a note says that a pin is lifted, for one more of its jobs, and it is still listed as held",
    "rewrite.stored": "objects are stored without what expired or is redacted, and no note says so",
    "rewrite.noted": "a note says so, and the old objects still lie there",
    "rewrite.deleted": "one more of the old objects, or of those that nobody names and that hold what is gone, is deleted",
    "retire.written": "they are committed, and the reconciler has done nothing after that",
}


class Failed(RuntimeError):
    """What the action `raise` raises."""


class _Point(NamedTuple):
    """at: the number of the hit, 0 = each."""

    action: str
    seconds: float
    at: int


def _nothing(_: str) -> None: ...


#: Call it as `failpoints.hit("…")`, by the module: `arm` puts another in its place.
hit: Callable[[str], None] = _nothing


def arm(text: str) -> None:
    """text: the variable's value; "" disarms all. Raises: ValueError if it can't be read, or names no failpoint."""
    global hit  # noqa: PLW0603 - the cheapest switch that there is
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
        raise ValueError(f"there is no failpoint {name!r}; there are {', '.join(NAMES)}")
    action, _, seconds = action.partition("=")
    if action not in ("kill", "stop", "raise", "delay") or bool(seconds) is not (action == "delay"):
        raise ValueError(f"{text!r}: the action is kill, stop, raise or delay=SECONDS")
    try:
        return name, _Point(action, float(seconds or 0), int(at or 0))
    except ValueError:
        raise ValueError(f"{text!r}: it is name:action@n, with n a number") from None
