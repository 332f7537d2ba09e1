"""Targets for files, sockets and settings: requests to and answers from the agent, configuration, hooks."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from ledger.adapters.hooks import MASK, HookFailed, Webhook, problem, shown
from ledger.adapters.runners import wire
from ledger.adapters.runners.subprocess import SubprocessRunner
from ledger.adapters.runners.subprocess.registry import JobRegistry
from ledger.adapters.runners.subprocess.server import AgentServer
from ledger.config.config_sources import from_environment, from_file, names_of
from ledger.core.model.facts import GraphRef, RestorePoint
from ledger.core.model.registers import is_job_id
from ledger.errors import ConfigError, LedgerError
from ledger.ports import ObservedAttempt, RunnerEvent, RunnerStorage, StartAnswer, Verification
from tests.fuzz.spoil import TEXTS, spoiled, spoiled_plain
from tests.fuzz.targets import target

# -- answers of the agent ----------------------------------------------------------------------------------------------

POINT = {"attempt": 1, "id": 2, "location": "/c/chk-2", "size": 3, "digest": "", "kind": "CHECKPOINT"}
KEPT = {
    "job_id": "a", "where": "/x", "age_s": 1.5, "rest": True, "rest_size": 1, "alive": [1], "checkpoints": [POINT],
    "checkpoint_size": 3,
}  # fmt: skip
EVENT = {"key": "a/running/1", "headers": [["ce_id", "eA=="]], "value": "eA=="}
ANSWERS: Mapping[str, Any] = {
    "start": {"result": "started"}, "observe": {"result": [["a", 1, True, "17"]]}, "fence": {"result": [EVENT]},
    "verify": {"result": "valid"}, "kept": {"result": [KEPT]}, "stop": {"error": "permanent", "message": "m", "hint": "h"},
}  # fmt: skip


def an_answer(rng: Random) -> tuple[str, bytes]:
    call = rng.choice(list(ANSWERS))
    line = json.dumps(spoiled_plain(rng, ANSWERS[call]) if rng.random() < 0.9 else ANSWERS[call]).encode() + b"\n"
    return call, spoiled(rng, line) if rng.random() < 0.3 else line


class RunnerReport(SubprocessRunner):
    """A client of the agent whose every answer is `line`, read from a real socket."""

    line = b""

    def _exchange(self, request: Any) -> Any:
        json.dumps(request)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(self.line)
            theirs.shutdown(socket.SHUT_WR)
            return wire.read_line(ours, wire.ANSWER_BYTES_MAX, time.monotonic() + 30)


HEARD = RunnerReport(Path("/nowhere"))


@target("answers", an_answer)
def check_answer(drawn: tuple[str, bytes]) -> bool:
    """The client raises a LedgerError or returns an answer of the right shape."""
    call, HEARD.line = drawn
    try:
        match call:
            case "start":
                assert isinstance(HEARD.start("a", 1, GraphRef("", "", 0), None, {}), StartAnswer)
            case "observe":
                for attempt in HEARD.observe():
                    assert isinstance(attempt, ObservedAttempt) and is_job_id(attempt.job_id) and hash(attempt) is not None
            case "fence":
                assert all(isinstance(e, RunnerEvent) and isinstance(e.key, bytes) for e in HEARD.fence("a", 1))
            case "verify":
                assert isinstance(HEARD.verify(RestorePoint(1, 1, "/x")), Verification)
            case "kept":
                assert all(isinstance(kept, RunnerStorage) and hash(kept) is not None for kept in HEARD.kept())
            case "stop":
                HEARD.stop("a", 1, "stopped")
    except LedgerError:
        return False
    return True


# -- requests to the agent ---------------------------------------------------------------------------------------------

ARGUMENTS = {
    "job_id": "a", "n": 1, "graph": {"uri": "graphs/a/0", "sha256": "0", "size": 1}, "restore_point": POINT,
    "environment": {"A": "1"}, "failure_rules": [{"label": "l", "exit_code": 1, "pattern": "", "permanent": True}],
    "outcome": "stopped", "savepoint": True, "ask": "u", "keys": ["a/running/1"], "restore_points": [POINT],
}  # fmt: skip
CALLS = (
    "start", "observe", "stop", "savepoint", "fence", "acknowledge", "verify", "why_refused", "dispose", "forget",
    "kept",
)  # fmt: skip


def a_request(rng: Random) -> bytes:
    request = {"call": rng.choice(CALLS), "arguments": ARGUMENTS}
    line = json.dumps(spoiled_plain(rng, request) if rng.random() < 0.9 else request).encode() + b"\n"
    return spoiled(rng, line) if rng.random() < 0.3 else line


class NoAgent:
    """Parses requests as an agent does, and does nothing: the work itself needs a disk and is tested elsewhere."""

    def __init__(self) -> None:
        self._jobs = JobRegistry(Path("/nowhere"), None)  # type: ignore[arg-type]

    def _known(self, job_id: Any, *_: Any) -> Any:
        with self._jobs.locked(job_id) as job:
            self._jobs.forget(job)
        return StartAnswer.ALREADY

    def fence(self, job_id: Any, n: Any) -> Sequence[Any]:
        self._known(job_id)
        return []

    def observe(self) -> Sequence[Any]:
        return []

    kept = observe
    start = stop = savepoint = acknowledge = dispose = forget = _known

    def verify(self, point: RestorePoint) -> Verification:
        return Verification.VALID

    def why_refused(self, point: RestorePoint) -> str:
        return ""


SERVER = AgentServer(NoAgent(), None, threading.Event())  # type: ignore[arg-type]


@target("requests", a_request)
def check_request(line: bytes) -> bool:
    """The agent answers a line with one line or with none. No request ends its thread."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(line)
        ours.shutdown(socket.SHUT_WR)
        with suppress(OSError, ValueError):
            SERVER._serve(theirs)
        theirs.close()
        said = ours.recv(1 << 16)
    if not said:
        return False
    answer = json.loads(said)
    assert ("result" in answer) != ("error" in answer)
    return "result" in answer


# -- settings ----------------------------------------------------------------------------------------------------------

TOML = b"""
[kafka]
bootstrap.servers = "a:9092,b:9092"
"socket.timeout.ms" = 5000
[projector]
restore_points = 3
result_retention_s = 86400.0
[pools.small]
slots = 2
namespaces = ["prod"]
[notify]
webhook = "https://user:secret@example.org/hook"
on = ["QUARANTINED"]
since = 2025-01-31T12:00:00Z
"""


class Content:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def open(self, _: str) -> BytesIO:
        return BytesIO(self._content)


@target("config", lambda rng: spoiled(rng, TOML, [TOML]))
def check_config(content: bytes) -> bool:
    try:
        settings = from_file(Content(content))  # type: ignore[arg-type]
    except ConfigError as error:
        assert str(error)
        return False
    assert all(isinstance(name, str) for name in names_of(settings))
    from_environment({f"LEDGER_{name}".upper().replace(".", "__"): "1" for name in names_of(settings)})
    return True


# -- hooks -------------------------------------------------------------------------------------------------------------

URLS = (b"https://user:s3cret@example.org:8443/t0ken?x=1", b"http://[::1]/t0ken", b"http://127.0.0.1:80", b"http://a")


def a_url(rng: Random) -> str:
    url = rng.choice(URLS).decode()
    if rng.random() < 0.3:
        at = rng.randrange(len(url) + 1)
        return url[:at] + rng.choice(TEXTS) + url[at:]
    return spoiled(rng, url.encode(), URLS).decode("utf-8", rng.choice(("replace", "surrogateescape", "ignore")))


CONTEXT = ssl.create_default_context()  # loaded once, because loading certificates for each input is slow


def _refuse(*_: object, **__: object) -> None:
    raise ConnectionRefusedError


@target("hooks", a_url)
def check_url(url: str) -> bool:
    """An accepted webhook URL can be called, and a failure raises HookFailed. The URL shown to people hides its password
    and path."""
    if problem(url):
        return False
    told, parts = shown(url), urlsplit(url)
    public = f"{parts.scheme}://{parts.hostname}:{parts.port}/{MASK}"
    for secret in (parts.password, parts.path.strip("/")):
        assert not secret or secret in public or secret not in told
    before = socket.create_connection, ssl._create_default_https_context
    socket.create_connection, ssl._create_default_https_context = _refuse, lambda: CONTEXT  # type: ignore[assignment]
    try:
        Webhook(url, 60.0)("id", b"{}")
    except HookFailed:
        return True
    finally:
        socket.create_connection, ssl._create_default_https_context = before
    raise AssertionError("the webhook was not called")
