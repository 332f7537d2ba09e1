"""Signals that end a verb, handled so that it still removes its temporary files."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

NUMBERS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """Inside the `with` block, SIGTERM and SIGHUP raise SystemExit with the exit code 128 + number, as Ctrl-C raises
    KeyboardInterrupt. By default these signals end the process at once, and temporary files such as a packed graph
    stay. A second signal does end the process at once."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
        yield
        return
    before = {number: signal.signal(number, _exit) for number in NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _: Any) -> None:
    for each in NUMBERS:
        signal.signal(each, signal.SIG_DFL)
    raise SystemExit(128 + number)
