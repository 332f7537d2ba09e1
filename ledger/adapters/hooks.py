"""Where notifications go: a command of the operator's, or a webhook. Each call has a time limit and raises if it failed."""

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

#: What a command gets of our environment, which may hold passwords that are none of its business.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
MASK = "********"


class HookFailed(Exception):
    """The hook did not take the notification; the message says how, without what may be secret."""


class CommandHook:
    """Runs a program with the body on its stdin. No shell: the words are what the program gets. Exit code 0: taken."""

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
    """A child that was not waited for yet, so its number is still its own, with all that it started."""
    os.killpg(child.pid, signal.SIGKILL)
    if child.stdin is not None:
        with suppress(OSError):
            child.stdin.close()
    child.wait()


class Webhook:
    """POSTs the body as JSON, the id as Idempotency-Key. 2xx: taken. Redirections are not followed: a url that holds a
    secret is for one host."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._parts, self._timeout_s, self._shown = urlsplit(url), timeout_s, shown(url)

    def __call__(self, id_: str, body: bytes) -> None:
        parts = self._parts
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        try:  # without a port it would look for one behind the last colon, which an IPv6 address has as well
            connection = kind(str(parts.hostname), parts.port or kind.default_port, timeout=self._timeout_s)
        except (HTTPException, ValueError) as error:
            raise HookFailed(f"{self._shown} is no address: {type(error).__name__}") from None
        # A server that answers a byte at a time keeps within every limit of a socket, and never comes to an end.
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
    """Why this is no webhook; "" if it is one. Never says what the url is."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound or any(c.isspace() or not c.isprintable() for c in url):
        return "it must be http://host[:port][/path] or https://…"
    return ""


def shown(url: str) -> str:
    """Scheme and host: user, path and query of a webhook are secret."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port is not None else ""
    secret = parts.path.strip("/") or parts.query or parts.username is not None
    return f"{parts.scheme}://{parts.hostname}{port}{f'/{MASK}' if secret else ''}"
