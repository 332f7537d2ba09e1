"""The collection of garbage by the reconciler that leads: `jobledger gc --apply`, every so often, in a process of its own.

Out of the way of its passes: the log is read from its beginning there, which takes time and memory, and whatever goes wrong
concerns that process alone. That two leaders do it at once, or one that leads no more, does no harm: a collection rests
on the log, not on the lead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

import structlog

from ledger.config.config import Config
from ledger.util.failpoints import VARIABLE

LOOK_S = 1.0
TIMEOUT_S = 3600.0
TOLD_MAX = 1000
TAIL_BYTES = 2000
STOP_S = 5.0
log = structlog.get_logger("reconciler")


class Command(NamedTuple):
    argv: tuple[str, ...]
    environment: Mapping[str, str]


def command_of(config: Config) -> Command:
    """With the settings of this process, by the environment: argv is no place for them."""
    given = {"LEDGER_DIR": str(config.dir)}
    if config.config_file:
        given["LEDGER_CONFIG"] = str(config.config_file.absolute())
    inherited = {name: value for name, value in os.environ.items() if name not in (VARIABLE, "LEDGER_DEBUG")}
    argv = (sys.executable, "-m", "ledger", "gc", "--apply", "-o", "json")
    return Command(argv, {**inherited, **given, **config.environment()})


class Collections:
    """Within `with`, runs the command every interval_s while `leads` says so; 0 = never. The first time after a whole
    interval: who takes over has better things to do."""

    def __init__(self, command: Command, leads: Callable[[], bool], interval_s: float) -> None:
        self._command, self._leads, self._interval_s = command, leads, interval_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="collections", daemon=True)

    def __enter__(self) -> Self:
        if self._interval_s > 0:
            self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self._over.wait(self._interval_s):
            try:
                if self._leads():
                    self._collect()
            except Exception as error:  # whatever it is: the next one may go well
                log.warning("not_collected", reason=f"{type(error).__name__}: {error}")

    def _collect(self) -> None:
        with subprocess.Popen(
            self._command.argv, env=dict(self._command.environment), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        ) as child:  # fmt: skip
            try:
                out, err = self._answer(child)
            except BaseException:
                child.kill()
                raise
        if self._over.is_set():
            return
        if child.returncode == 0:
            tell(json.loads(out))
        else:
            reason = err[-TAIL_BYTES:].decode(errors="replace").strip()
            log.warning("not_collected", exit_code=child.returncode, reason=reason)

    def _answer(self, child: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
        """Raises: TimeoutError. What is under way when the role ends is ended too: the next leader does it again."""
        waited_s = 0.0
        while True:
            try:
                return child.communicate(timeout=LOOK_S)
            except subprocess.TimeoutExpired:
                waited_s += LOOK_S
            if self._over.is_set():
                child.terminate()
            elif waited_s > TIMEOUT_S:
                raise TimeoutError(f"no answer within {TIMEOUT_S:g} s")


def tell(answer: Mapping[str, Any]) -> None:
    """To the log: what was deleted, and what could not be."""
    for row in answer["deleted"][:TOLD_MAX]:
        log.info("collected", **{name: row[name] for name in ("kind", "job_id", "where", "size", "evidence")})
    for row in answer["left"][:TOLD_MAX]:
        log.warning("left", kind=row["kind"], job_id=row["job_id"], where=row["where"], reason=row["why"])
    log.info(
        "garbage", deleted=len(answer["deleted"]), left=len(answer["left"]), spared=len(answer["spared"]),
        young=answer["young"], bytes=sum(row["size"] for row in answer["deleted"]),
    )  # fmt: skip
