"""Starts `up` in the background and repeats its output until the ledger is ready."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import BinaryIO

from ledger.config.config import Config
from ledger.embedded.broker import Broker
from ledger.embedded.folder import BROKER, up_runs
from ledger.embedded.keeper import Say
from ledger.errors import ConfigError
from ledger.util.processes import LOG_BYTES_MAX, texts_of

READY = "ready:"
TIMEOUT_S = 600.0  # the first time, Java and jars are downloaded
_POLL_S = 0.05


def detach(config: Config, arguments: Sequence[str], *, say: Say, complain: Say) -> int:
    """Starts `up` in the background. Returns 0 once the ledger is ready, otherwise the exit code of `up`; `complain`
    then gets the reason and the path of the log of `up`.

    If an `up` runs already, returns 0 and starts none. Raises: ConfigError if the folder or log can't be created.
    """
    if (who := up_runs(config.dir)) is not None:
        say(f"{READY} broker {Broker.at(config.dir / BROKER).bootstrap} dir {config.dir} (up runs already, pid {who.pid})")
        return 0
    log = config.dir / "log" / "up.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_name(f"{log.name}.1"))
        written = log.open("ab")
    except OSError as error:
        raise ConfigError(f"{log} can't be written: {error}.", hint="Choose another folder: --dir DIR") from error
    # An environment variable for --detach would make the child detach too.
    environment = {**os.environ, **config.environment()}
    form = "table" if config.log.format == "console" else "jsonl"  # a log is a file, where auto is JSON
    paths = ["--config", str(config.config_file.absolute())] if config.config_file else []
    with written, log.open("rb") as log_file:
        log_file.seek(0, os.SEEK_END)
        child = subprocess.Popen(
            [sys.executable, "-m", "ledger", "up", "--dir", str(config.dir), "-o", form, *paths, *arguments],
            stdin=subprocess.DEVNULL, stdout=written, stderr=written, env=environment, start_new_session=True,
            cwd=config.dir,
        )  # fmt: skip
        code = _relay(child, log_file, say, complain)
    if code:
        complain(f"log: {log}")
    return code


def _relay(child: subprocess.Popen[bytes], log_file: BinaryIO, say: Say, complain: Say) -> int:
    """Repeats the lines of the log until the ledger is ready, or `up` ends. Returns the exit code."""
    deadline = time.monotonic() + TIMEOUT_S
    rest = b""
    while time.monotonic() < deadline:
        code = child.poll()  # before reading, so that the last lines are read too
        *lines, rest = (rest + log_file.read()).split(b"\n")
        for text in (text for line in lines for text in texts_of(line.decode(errors="replace"))):
            (complain if text.startswith(("error:", "hint:", "Traceback", " ")) else say)(text)
            if text.startswith(READY):
                return 0
        if code is not None:
            return code or 1
        time.sleep(_POLL_S)
    complain(f"error: not ready within {TIMEOUT_S:g} s; up continues to run, pid {child.pid}")
    return 3
