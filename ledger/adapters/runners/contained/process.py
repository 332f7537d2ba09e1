"""The process of a plug-in, as its parent uses it: start, call and kill."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from ledger.adapters.runners import wire
from ledger.adapters.runners.plain import shown

SERVER = "ledger.adapters.runners.contained.server"
ANSWER_BYTES_MAX = 64 << 20
END_S = 2.0


class Broke(Exception):
    """The plug-in gave no usable answer; the message states the reason. goes_on: whether the plug-in's process is
    healthy and stays."""

    def __init__(self, why: str, goes_on: bool = False) -> None:
        super().__init__(why)
        self.goes_on = goes_on


class PluginProcess:
    """The process of one plug-in. value: the plug-in's entry point, `module:attribute`. folder: where the plug-in may
    store files. memory_bytes: the limit of the process; 0 = no limit. deadline: until when the plug-in must be loaded
    (monotonic, seconds).

    Raises (here and in `ask`): Broke."""

    def __init__(self, value: str, folder: Path, memory_bytes: int, deadline: float) -> None:
        self._line, theirs = socket.socketpair()
        arguments = [str(theirs.fileno()), value, str(folder), str(memory_bytes)]
        try:
            with theirs:
                # -P: never import from the current folder.
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", SERVER, *arguments],
                    stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            self._line.close()
            raise Broke(f"its process can't be started: {error}") from error
        try:
            self._read(deadline)
        except Broke as error:
            self.kill()
            raise Broke(f"it can't be loaded: {error}") from error

    def ask(self, call: str, arguments: dict[str, Any], expected: str, deadline: float) -> dict[str, Any]:
        """The plug-in's answer to one call: a result, or one of the ledger's errors (`calls.error_from`). expected: the
        instance that must answer; "" means any. deadline: monotonic, in seconds."""
        try:
            wire.send_line(self._line, {"call": call, "arguments": arguments, "instance": expected}, deadline)
        except OSError as error:
            raise self._broke(error) from error
        return self._read(deadline)

    def kill(self) -> None:
        """Kills the process of the plug-in. Processes that the plug-in has started keep running."""
        self._line.close()
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # stuck in the kernel: it stays until the kernel lets go
            self._process.wait(END_S)

    def _read(self, deadline: float) -> dict[str, Any]:
        try:
            answer = wire.read_line(self._line, ANSWER_BYTES_MAX, deadline)
        except (OSError, ValueError, RecursionError) as error:
            raise self._broke(error) from error
        if not isinstance(answer, dict) or not ("result" in answer or "error" in answer):
            raise Broke("its process gave an invalid answer")
        if answer.get("error") == "broken":
            raise Broke(shown(str(answer.get("message"))), goes_on=not answer.get("ends"))
        return answer

    def _broke(self, error: Exception) -> Broke:
        if isinstance(error, TimeoutError):
            return Broke("it did not answer in time, and was killed")
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(END_S)
            return Broke(f"its process died by {signal.Signals(-code).name}" if code < 0 else
                         f"its process ended with exit code {code}")  # fmt: skip
        return Broke(f"its process gave an invalid answer: {error}")
