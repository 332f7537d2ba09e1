"""The ports at which the embedded broker of a folder listens, read from its file `ports.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from ledger.errors import ConfigError

HOST = "127.0.0.1"
FILE = "ports.json"


class BrokerPorts(NamedTuple):
    """The ports of an embedded broker. port: the listener for clients. controller_port: the listener of the KRaft
    controller."""

    port: int
    controller_port: int


def read_ports(folder: Path) -> BrokerPorts | None:
    """The ports of the broker in this folder; None if no broker was ever created in it.

    Raises: ConfigError if the file is damaged.
    """
    chosen = folder / FILE
    if not chosen.exists():
        return None
    try:
        ports = json.loads(chosen.read_text())
        return BrokerPorts(int(ports["port"]), int(ports["controller_port"]))
    except (ValueError, KeyError, TypeError) as damaged:
        raise ConfigError(
            f"{chosen} does not hold the two ports of the broker.",
            hint='Write {"port": P, "controller_port": C} into it, with the ports that clients use, or delete it.',
        ) from damaged
