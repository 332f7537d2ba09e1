"""The hooks that deliver notifications: a command or a webhook. Each call has a time limit and may raise HookFailed."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import unquote, urlsplit

#: The only variables that a command inherits: our environment may hold passwords that it must not see.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
MASK = "********"


class HookFailed(Exception):
    """The hook did not accept the notification. The message states the reason, without anything that may be secret."""


class CommandHook:
    """Runs a program with the notification's body on its stdin, without a shell. Exit code 0 means that the program
    accepted the notification."""

    def __init__(self, command: Sequence[str], timeout_s: float) -> None:
        self._command, self._timeout_s = list(command), timeout_s

    def __call__(self, id_: str, body: bytes) -> None:
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
        try:
            child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=environment | {"LEDGER_NOTIFICATION_ID": id_}, cwd="/", start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise HookFailed(f"the command can't be executed: {error}") from error
        try:
            child.communicate(body, timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            _kill_group(child)
            raise HookFailed(f"the command did not end within {self._timeout_s:g} s; it was killed") from None
        if child.returncode:
            raise HookFailed(f"the command ended with exit code {child.returncode}")


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kills a child and all processes of its group. The child was not waited for yet, so its pid can't belong to
    another."""
    os.killpg(child.pid, signal.SIGKILL)
    if child.stdin is not None:
        with suppress(OSError):
            child.stdin.close()
    child.wait()


class Webhook:
    """POSTs the notification's body as JSON, with the notification's id as Idempotency-Key. Status 2xx means accepted.
    Redirects are not followed: a url that holds a secret is for one host only."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._parts, self._timeout_s, self._shown = urlsplit(url), timeout_s, shown(url)

    def __call__(self, id_: str, body: bytes) -> None:
        parts = self._parts
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        try:  # without a port, http.client would search for one after the last colon, even in an IPv6 address
            connection = kind(str(parts.hostname), parts.port or kind.default_port, timeout=self._timeout_s)
        except (HTTPException, ValueError) as error:
            raise HookFailed(f"{self._shown} is not an address: {type(error).__name__}") from None
        # A server that sends one byte at a time never exceeds a socket's timeout, and never ends its answer.
        limit = threading.Timer(self._timeout_s, _cut, (connection,))
        limit.daemon = True
        limit.start()
        try:
            path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
            connection.request("POST", path, body, _headers(parts.username, parts.password, id_))
            status = connection.getresponse().status
        except (OSError, HTTPException, ValueError) as error:
            raise HookFailed(f"no answer from {self._shown}: {type(error).__name__}") from None
        finally:
            limit.cancel()
            connection.close()
        if not 200 <= status < 300:
            raise HookFailed(f"{self._shown} answered with status {status}")


def _headers(user: str | None, password: str | None, id_: str) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Idempotency-Key": id_, "User-Agent": "jobledger"}
    if user is not None:
        who = f"{unquote(user)}:{unquote(password or '')}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(who).decode()}"
    return headers


def _cut(connection: HTTPConnection) -> None:
    sock = connection.sock
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def problem(url: str) -> str:
    """Why a url can't be a webhook; "" if the url can be one. The text never contains the url."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound or any(c.isspace() or not c.isprintable() for c in url):
        return "it must be http://host[:port][/path] or https://…"
    return ""


def shown(url: str) -> str:
    """The scheme, host and port of a webhook, for people. Its user, path and query are secret, so they are masked."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port is not None else ""
    secret = parts.path.strip("/") or parts.query or parts.username is not None
    return f"{parts.scheme}://{parts.hostname}{port}{f'/{MASK}' if secret else ''}"
