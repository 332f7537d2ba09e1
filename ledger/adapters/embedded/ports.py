"""Ports for servers on the loopback interface, chosen once and then kept by whoever writes them down."""

from __future__ import annotations

import random
import socket

from ledger.errors import ConfigError

HOST = "127.0.0.1"

# Below the range from which Linux takes the ports of outgoing connections (32768 upwards): such a connection could sit
# on a server's port while the server is down, and it would not come back.
_PORTS = range(20_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now. Raises: ConfigError if none of many can be had."""
    held: list[socket.socket] = []
    try:
        for port in random.sample(_PORTS, 200):
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
    raise ConfigError(f"no free ports on {HOST} between {_PORTS.start} and {_PORTS.stop}", hint="Stop what listens there.")
