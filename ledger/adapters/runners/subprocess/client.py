"""The runner as the roles use it: it calls the agent of this host."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ledger.adapters.runners import wire
from ledger.adapters.runners.calls import CalledRunner, error_from
from ledger.errors import Unreachable

T = TypeVar("T")


class SubprocessRunner(CalledRunner):
    """Calls the agent of this host. folder: the folder of the agent. timeout_s: for a whole call. A start that takes
    longer continues in the agent."""

    def __init__(self, folder: Path, timeout_s: float = 10.0) -> None:
        self.folder, self.timeout_s = Path(folder), timeout_s

    def ask(self, call: str, convert: Callable[[Any], T], *, expected: str = "", **arguments: Any) -> T:
        try:
            answer = self._exchange({"call": call, "arguments": arguments, "instance": expected})
        except (OSError, ValueError) as error:
            raise self._unheard(call, error) from error
        try:
            if "error" not in answer:
                return convert(answer["result"])
            failure = error_from(answer)
        except Exception as error:  # any answer that can't be read counts as none
            raise self._unheard(call, f"its answer can't be read: {type(error).__name__}: {error}") from error
        raise failure

    def _exchange(self, request: Any) -> Any:
        """Raises: OSError, ValueError."""
        deadline = time.monotonic() + self.timeout_s
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(self.timeout_s)
            with wire.socket_path(self.folder) as path:
                connection.connect(path)
            wire.send_line(connection, request, deadline)
            return wire.read_line(connection, wire.ANSWER_BYTES_MAX, deadline)

    def _unheard(self, call: str, why: object) -> Unreachable:
        return Unreachable(
            f"the agent in {self.folder} did not answer {call}: {why}",
            hint="Start it with `jobledger serve agent`. Running attempts are not affected.",
        )
