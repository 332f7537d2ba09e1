"""Client and server on a Unix domain socket: one line of JSON per request, and one line per answer."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOCKET = "agent.sock"
REQUEST_BYTES_MAX = 4 << 20
ANSWER_BYTES_MAX = 256 << 20


@contextmanager
def socket_path(folder: Path) -> Iterator[str]:
    """A short path to the socket in a folder. The socket's own path may be longer than the 108 bytes that an address
    can hold.

    Raises: OSError if the folder does not exist."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET}"
    finally:
        os.close(fd)


def send_line(connection: socket.socket, value: Any, deadline: float) -> None:
    """Sends a value as one line of JSON. deadline: monotonic, in seconds; inf means none.

    Raises: OSError; TimeoutError (an OSError) after the deadline."""
    _limit(connection, deadline)
    connection.sendall(json.dumps(value, separators=(",", ":")).encode() + b"\n")


def read_line(connection: socket.socket, bytes_max: int, deadline: float) -> Any:
    """The value on the next line. bytes_max: limit of the line's length. deadline: monotonic, in seconds; inf means
    none.

    Raises: OSError; TimeoutError after the deadline; ValueError if the line is too long, cut short or not JSON."""
    data = bytearray()
    while not data.endswith(b"\n"):
        _limit(connection, deadline)
        part = connection.recv(1 << 16)
        if not part:
            raise ValueError("the line was cut short")
        data += part
        if len(data) > bytes_max:
            raise ValueError(f"the line is longer than {bytes_max} bytes")
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("the line is nested too deep") from error


def _limit(connection: socket.socket, deadline: float) -> None:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no answer in time")
    connection.settimeout(None if left_s == math.inf else left_s)
