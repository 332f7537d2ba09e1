"""The watchdog reports a call that does not return in time, and no other."""

from __future__ import annotations

import subprocess
import sys
import threading

from ledger.adapters.kafka.watchdog import Watchdog


def test_a_call_that_hangs_is_told() -> None:
    told: list[str] = []
    heard = threading.Event()
    watchdog = Watchdog(lambda what: (told.append(what), heard.set()), grace_s=0.0)
    with watchdog.over("quick", 60.0):
        pass
    with watchdog.over("hanging", 0.1):
        assert heard.wait(60)
    assert told == ["hanging"]


def test_a_watchdog_that_dies_is_told_as_a_call_that_hangs() -> None:
    told: list[str] = []
    heard = threading.Event()

    def sleep(_: float) -> None:
        raise OSError(22, "Invalid argument")

    watchdog = Watchdog(lambda what: (told.append(what), heard.set()), sleep=sleep)
    with watchdog.over("commit", 3600.0):
        assert heard.wait(60)
    assert told == ["the watchdog (OSError: [Errno 22] Invalid argument)"]


def test_the_process_leaves_with_the_code_of_a_fenced_leader() -> None:
    program = (
        "import threading; from ledger.adapters.kafka.watchdog import Watchdog\n"
        "with Watchdog(grace_s=0.0).over('commit', 0.1): threading.Event().wait(60)"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True, check=False)
    assert done.returncode == 5 and "commit did not come back" in done.stderr
