"""Chooses ports for servers on the loopback interface, once; the caller records them.

The environment variable JOBLEDGER_PORTS is the range to choose from (`20000-24999`, both ends included). Give each of
several ledgers its own range: other programs can take a port between its choice and the start of its server, and while
its server is down.
"""

from __future__ import annotations

import os
import random
import socket

from ledger.errors import ConfigError

HOST = "127.0.0.1"
VARIABLE = "JOBLEDGER_PORTS"

# Below the range of outgoing connections in Linux (32768 upwards): such a connection could take a server's port while
# the server is down, and the server could not start again.
PORTS = range(20_000, 30_000)
_TRIED = 200


def free_ports(count: int) -> list[int]:
    """`count` ports on which nothing listens now. Raises: ConfigError if too few are free."""
    ports = _chosen_from(os.environ.get(VARIABLE, ""))
    held: list[socket.socket] = []
    try:
        for port in random.sample(ports, min(_TRIED, len(ports))):
            candidate = socket.socket()
            held.append(candidate)
            try:
                candidate.bind((HOST, port))
            except OSError:
                held.pop().close()
            if len(held) == count:
                return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
    raise ConfigError(
        f"no free ports on {HOST} between {ports.start} and {ports.stop - 1}",
        hint=f"Stop servers that listen there, or choose another range: {VARIABLE}=20000-29999.",
    )


def _chosen_from(text: str) -> range:
    """The range in the environment variable's value. Raises: ConfigError if it is not a range of ports."""
    if not text:
        return PORTS
    first, separator, last = text.partition("-")
    try:
        ports = range(int(first), int(last) + 1)
    except ValueError:
        ports = range(0)
    if not separator or not ports or ports.start < 1 or ports.stop > 65_536:
        raise ConfigError(f"{VARIABLE} is {text!r}, which is not a range of ports", hint=f"Set {VARIABLE}=20000-29999.")
    return ports
