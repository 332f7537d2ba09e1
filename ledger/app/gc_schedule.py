"""The garbage collection of the leading reconciler: `jobledger gc --apply` on a schedule, in a separate process.

The process reads the log from its beginning, which takes time and memory, and its failures do not touch the reconciler.
Two leaders that collect at once, or a former leader that still collects, do no harm: the log decides what is garbage,
not leadership."""

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
SHOWN_MAX = 1000
TAIL_BYTES = 2000
STOP_S = 5.0
log = structlog.get_logger("reconciler")


class Command(NamedTuple):
    argv: tuple[str, ...]
    environment: Mapping[str, str]


def command_of(config: Config) -> Command:
    """The command that collects garbage. The settings of this process are in its environment, since all users can read
    arguments."""
    given = {"LEDGER_DIR": str(config.dir)}
    if config.config_file:
        given["LEDGER_CONFIG"] = str(config.config_file.absolute())
    inherited = {name: value for name, value in os.environ.items() if name not in (VARIABLE, "LEDGER_DEBUG")}
    argv = (sys.executable, "-m", "ledger", "gc", "--apply", "-o", "json")
    return Command(argv, {**inherited, **given, **config.environment()})


class Collections:
    """Collects garbage on a schedule inside the `with` block: runs `command` every interval_s seconds if `leads`
    returns True. interval_s 0: never. The first run starts after a whole interval, since a new leader has more urgent
    work."""

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
            except Exception as error:  # any error: the next run may succeed
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
        """The stdout and stderr of a collection. When the role ends, it is terminated, and the next leader repeats it.

        Raises: TimeoutError after TIMEOUT_S."""
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
    """Logs the result of a collection: the deleted items, and the items that could not be deleted."""
    for row in answer["deleted"][:SHOWN_MAX]:
        log.info("collected", **{name: row[name] for name in ("kind", "job_id", "where", "size", "evidence")})
    for row in answer["left"][:SHOWN_MAX]:
        log.warning("left", kind=row["kind"], job_id=row["job_id"], where=row["where"], reason=row["why"])
    log.info(
        "garbage", deleted=len(answer["deleted"]), left=len(answer["left"]), spared=len(answer["spared"]),
        young=answer["young"], bytes=sum(row["size"] for row in answer["deleted"]),
    )  # fmt: skip
