"""The process in which a plug-in lives: loads it, then answers calls until nobody asks any more.

`python -P -m ledger.adapters.runners.contained.server FD VALUE FOLDER MEMORY_BYTES`. On the socket FD comes one line
when the plug-in is loaded, or why it can't be; then a line for each line. What the plug-in prints goes to stderr.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import socket
import sys
import traceback
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from ledger.adapters.runners import calls, wire
from ledger.errors import LedgerError
from ledger.ports import Runner

GROUP = "jobledger.runners"
FRAMES = 3  # of a traceback that people are told
FOR_EVER = float("inf")
PR_SET_PDEATHSIG = 1


def main() -> None:
    fd, value, folder, memory_bytes = sys.argv[1:]
    _live_no_longer_than(os.getppid())
    _limit(int(memory_bytes))
    os.set_inheritable(int(fd), False)  # what the plug-in starts must not keep the line open
    os.dup2(2, 1)
    with socket.socket(fileno=int(fd)) as line:
        try:
            runner: Runner = EntryPoint("runner", value, GROUP).load()(Path(folder))
        except BaseException as error:  # sys.exit at its import too
            _say(line, _broken(error))
            return
        _say(line, {"result": "loaded"})
        while (request := _next(line)) is not None:
            answer = _answered(runner, request)
            _say(line, answer)
            if answer.get("ends"):
                return


def _answered(runner: Runner, request: dict[str, Any]) -> dict[str, Any]:
    """One that ran out of memory, or wanted to end, ends, to be loaded anew."""
    try:
        return {"result": calls.answer(runner, request["call"], request["arguments"], request["instance"])}
    except LedgerError as error:
        return calls.failed(calls.kind_of(error), error)
    except BaseException as error:
        return {**_broken(error), "ends": isinstance(error, MemoryError) or not isinstance(error, Exception)}


def _broken(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    error.__traceback__ = None  # what its frames hold may be what there is no memory for
    gc.collect()
    return {"error": "broken", "message": f"{type(error).__name__}: {str(error)[:1000]} ({where})"}


def _next(line: socket.socket) -> dict[str, Any] | None:
    try:
        request: dict[str, Any] = wire.read_line(line, wire.REQUEST_BYTES_MAX, FOR_EVER)
    except (OSError, ValueError):  # nobody asks any more
        return None
    return request


def _say(line: socket.socket, answer: dict[str, Any]) -> None:
    """What no JSON can hold is no answer."""
    try:
        wire.send_line(line, answer, FOR_EVER)
    except (TypeError, ValueError, RecursionError) as error:
        wire.send_line(line, _broken(error), FOR_EVER)


def _live_no_longer_than(parent: int) -> None:
    """Dies with the thread that started it, also if it hangs where no end of file is seen."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def _limit(memory_bytes: int) -> None:
    """memory_bytes: of addresses, 0 = no limit. No core dumps: they fill disks."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


if __name__ == "__main__":
    main()
