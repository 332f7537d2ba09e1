"""A failpoint performs its action at its name and its count, and nowhere else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.util import failpoints
from tests.support.pages import ROOT


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def test_unset_a_failpoint_is_a_call_that_does_nothing() -> None:
    failpoints.arm("")
    assert failpoints.hit is failpoints._nothing
    failpoints.hit("term.elected")


def test_it_acts_at_the_nth_time_only() -> None:
    failpoints.arm("term.elected:raise@3, transaction.begun:raise")
    failpoints.hit("term.elected")
    failpoints.hit("submit.stored")
    failpoints.hit("term.elected")
    with pytest.raises(failpoints.Failed, match=r"term\.elected"):
        failpoints.hit("term.elected")
    failpoints.hit("term.elected")
    for _ in range(2):
        with pytest.raises(failpoints.Failed):
            failpoints.hit("transaction.begun")


def test_a_delay_waits() -> None:
    failpoints.arm("term.elected:delay=0.2@1")
    began = time.monotonic()
    failpoints.hit("term.elected")
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize(("action", "number"), [("kill", signal.SIGKILL), ("stop", signal.SIGSTOP)])
def test_it_kills_or_stops_its_own_process(action: str, number: signal.Signals) -> None:
    script = (
        "from ledger.util import failpoints\n"
        f"failpoints.arm('term.elected:{action}@2')\n"
        "failpoints.hit('term.elected'); print('once', flush=True); failpoints.hit('term.elected'); print('twice')"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert (os.WSTOPSIG(status) if os.WIFSTOPPED(status) else os.WTERMSIG(status)) == number
        if action == "stop":
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
        assert child.stdout is not None and child.stdout.read() == "once\n"
    finally:
        child.returncode = 0
        assert child.stdout is not None
        child.stdout.close()


@pytest.mark.parametrize(
    "text",
    ["nowhere:kill", "term.elected", "term.elected:explode", "term.elected:delay", "term.elected:kill=3",
     "term.elected:delay=soon", "term.elected:kill@often", "term.elected:kill,nowhere:kill"],
)  # fmt: skip
def test_what_cannot_be_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"failpoint|action|number") as told:
        failpoints.arm(text)
    if "nowhere" in text:
        assert all(name in str(told.value) for name in failpoints.NAMES)


def test_a_name_that_nobody_knows_ends_a_command_at_its_start(tmp_path: Path) -> None:
    environment = {**os.environ, "LEDGER_FAILPOINT": "nowhere:kill", "LEDGER_DIR": str(tmp_path)}
    told = subprocess.run(
        [sys.executable, "-m", "ledger", "serve", "projector"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 2
    assert "LEDGER_FAILPOINT: there is no failpoint 'nowhere'" in told.stderr and "term.elected" in told.stderr


def test_every_name_is_the_name_of_some_place_and_every_place_has_one() -> None:
    used = [
        name
        for path in (ROOT / "ledger").rglob("*.py")
        for name in re.findall(r'failpoints\.hit\("([^"]*)"\)', path.read_text())
        if path.name != "failpoints.py"
    ]
    assert set(used) == set(failpoints.NAMES)
