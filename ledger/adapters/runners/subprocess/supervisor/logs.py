"""Rotates and reads the job's output. The job writes to its log files itself, so no failure of the supervisor can block
or kill it.

A file that has grown too large is copied and then truncated. The job's descriptor has O_APPEND, so it continues at the
new end. Output between copy and truncation (microseconds) is lost: a log is not a fact."""

from __future__ import annotations

import os

from .files import say

TAIL_BYTES = 4096
TAIL_LINES = 20
_READ_BYTES = 1 << 16  # a progress bar rewrites its line again and again, so earlier lines are far back


class Log:
    """A log of at most `files` files of about `bytes_max` bytes: `path` and, newest first, `path`.1, `path`.2 …"""

    def __init__(self, path: str, bytes_max: int, files: int) -> None:
        self.path, self.bytes_max, self.files = path, bytes_max, max(files, 2)
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def rotate(self) -> None:
        """Rotates the log if it is too large. An error costs old lines, but the size stays bounded."""
        size = os.fstat(self.fd).st_size
        if size <= self.bytes_max:
            return
        try:
            for i in range(self.files - 1, 1, -1):
                if os.path.exists(f"{self.path}.{i - 1}"):
                    os.replace(f"{self.path}.{i - 1}", f"{self.path}.{i}")
            self._copy(f"{self.path}.1", max(0, size - self.bytes_max))
        except OSError as error:
            say(f"{self.path}: old lines are lost: {error}")
        os.ftruncate(self.fd, 0)

    def _copy(self, target: str, offset: int) -> None:
        out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            while copied := os.sendfile(out, self.fd, offset, 1 << 20):
                offset += copied
        finally:
            os.close(out)


def tail(path: str) -> str:
    """The last lines of a log, as text without control characters; "" if the log has none. If a line was rewritten with
    carriage returns, as progress bars do, its last version is returned."""
    data = b""
    for part in (f"{path}.1", path):
        try:
            with open(part, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _READ_BYTES))
                data = (data + file.read(_READ_BYTES))[-_READ_BYTES:]
        except OSError:
            continue
    shown = "\n".join(_as_left(line) for line in data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n"))
    lines = shown.encode()[-TAIL_BYTES:].decode("utf-8", "ignore").splitlines()[-TAIL_LINES:]
    return "\n".join("".join(c for c in line if c.isprintable() or c == "\t") for line in lines).strip()


def _as_left(line: str) -> str:
    """The last version of a line. If a progress bar was wiped with spaces, the version before that."""
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")
