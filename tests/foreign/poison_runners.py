"""Runners that break the contract: a class `<call>_<deed>` for each deed in each call. Tests copy it to PYTHONPATH."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time


def hangs():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)


def raises():
    raise ValueError("no such \x1b[31mcolour")


def segfault():
    ctypes.string_at(0)


def memory():
    held = []
    while True:
        held.append(bytearray(16 << 20))


def nonsense():
    return [("../x", -1, "perhaps", object())]


DEEDS = {
    "exits": lambda: os._exit(7),
    "hangs": hangs,
    "leaves": lambda: sys.exit(7),
    "memory": memory,
    "nonsense": nonsense,
    "raises": raises,
    "segfault": segfault,
}
CALLS = ("init", "observe", "start", "fence")


class Idle:
    """A runner that has no attempts and answers every call with success."""

    def __init__(self, folder):
        self.folder = folder

    def start(self, *_):
        return "started"

    def observe(self):
        return []

    def stop(self, *_):
        return None

    def fence(self, *_):
        return []

    def verify(self, _):
        return "valid"

    savepoint = acknowledge = dispose = forget = stop


def _doing(call, deed):
    """A runner class whose method `call` performs the deed and returns the deed's result, if it returns."""
    return type(f"{call}_{deed}", (Idle,), {"__init__" if call == "init" else call: lambda *_: DEEDS[deed]()})


globals().update({f"{call}_{deed}": _doing(call, deed) for call in CALLS for deed in DEEDS})
