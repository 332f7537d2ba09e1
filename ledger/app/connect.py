"""The public `ledger.connect`: a client of the ledger that the settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.app.ledger import Ledger

if TYPE_CHECKING:
    from ledger.config.config import Config
    from ledger.operations.client import Client
    from ledger.reader.reading import Progressed


def connect(
    config: Config | None = None, *, actor: str | None = None, timeout_s: float = 30.0,
    progressed: Progressed | None = None,
) -> Client:  # fmt: skip
    """A client of the ledger that the settings name, as `Ledger.open(config).client(...)`. actor: the user, for audits;
    None = user@host. timeout_s: how long Kafka may take to acknowledge a write. progressed: called while the client
    reads.

    The client opens no connection before its first use. Raises: ConfigError."""
    return Ledger.open(config).client(actor=actor, timeout_s=timeout_s, progressed=progressed)
