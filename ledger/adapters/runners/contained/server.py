"""The process that hosts a plug-in: it loads the plug-in, then answers calls until the caller is gone.

`python -P -m ledger.adapters.runners.contained.server FD VALUE FOLDER MEMORY_BYTES`. The first line on the socket FD
states that the plug-in is loaded, or why it can't be loaded. Then each request line gets one answer line. Output of the
plug-in goes to stderr."""

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
FRAMES = 3  # frames of a traceback in an error message
FOR_EVER = float("inf")
PR_SET_PDEATHSIG = 1


def main() -> None:
    fd, value, folder, memory_bytes = sys.argv[1:]
    _live_no_longer_than(os.getppid())
    _limit(int(memory_bytes))
    os.set_inheritable(int(fd), False)  # processes of the plug-in must not keep the socket open
    os.dup2(2, 1)
    with socket.socket(fileno=int(fd)) as line:
        try:
            runner: Runner = EntryPoint("runner", value, GROUP).load()(Path(folder))
        except BaseException as error:  # including sys.exit during its import
            _say(line, _broken(error))
            return
        _say(line, {"result": "loaded"})
        while (request := _next(line)) is not None:
            answer = _answered(runner, request)
            _say(line, answer)
            if answer.get("ends"):
                return


def _answered(runner: Runner, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request. After a MemoryError or an exit, `ends` is true: this process ends, and the caller
    starts a new one."""
    try:
        return {"result": calls.answer(runner, request["call"], request["arguments"], request["instance"])}
    except LedgerError as error:
        return calls.failed(calls.kind_of(error), error)
    except BaseException as error:
        return {**_broken(error), "ends": isinstance(error, MemoryError) or not isinstance(error, Exception)}


def _broken(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    error.__traceback__ = None  # its frames may hold the data that exhausted the memory
    gc.collect()
    return {"error": "broken", "message": f"{type(error).__name__}: {str(error)[:1000]} ({where})"}


def _next(line: socket.socket) -> dict[str, Any] | None:
    try:
        request: dict[str, Any] = wire.read_line(line, wire.REQUEST_BYTES_MAX, FOR_EVER)
    except (OSError, ValueError):  # the caller is gone
        return None
    return request


def _say(line: socket.socket, answer: dict[str, Any]) -> None:
    """Sends an answer. If JSON can't represent it, an error is sent instead."""
    try:
        wire.send_line(line, answer, FOR_EVER)
    except (TypeError, ValueError, RecursionError) as error:
        wire.send_line(line, _broken(error), FOR_EVER)


def _live_no_longer_than(parent: int) -> None:
    """Makes this process die with the thread that started it, even if it hangs and never reads the end of file."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def _limit(memory_bytes: int) -> None:
    """Limits the address space to memory_bytes (0 = no limit), and disables core dumps: they fill disks."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


if __name__ == "__main__":
    main()
