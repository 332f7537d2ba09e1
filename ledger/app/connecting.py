"""A client of the ledger that the settings name: for scripts, and for the command line."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ledger.adapters import avro
from ledger.app import wiring
from ledger.config.config import Config, load_config
from ledger.operations.client import Client
from ledger.producer.recorder import Recorder
from ledger.util.identity import whoami
from ledger.util.ids import RANDOM_BYTES, uuid7

if TYPE_CHECKING:
    from ledger.reader.reading import Progressed

#: For `ce_source` of what operators write: /ns/default/producer/operator/<instance>.
OPERATOR = "operator"


def connect(
    config: Config | None = None, *, actor: str | None = None, timeout_s: float = 30.0,
    progressed: Progressed | None = None,
) -> Client:  # fmt: skip
    """actor: who asks, for audit; default user@host. timeout_s: how long Kafka may take to answer a write.

    Opens no connection yet. Raises: ConfigError."""
    config = config if config is not None else load_config()
    clock = wiring.clock()
    who = actor if actor is not None else whoami()
    return Client(
        wiring.source(config, progressed),
        lambda: Recorder(OPERATOR, config=config, actor=who, timeout_s=timeout_s, clock=clock),
        wiring.blobs(config),
        digest=avro.spec_digest,
        new_id=lambda: uuid7(clock.time(), os.urandom(RANDOM_BYTES)),
        actor=who,
        held_by=_held_by(config),
    )


def _held_by(config: Config) -> Callable[[str], str]:
    """Returns the pin that holds a job, "" for none. Without an archive there are no pins, and nothing is imported."""
    if not config.archive.adapter:
        return lambda _: ""
    from ledger.app import wiring_pins

    return wiring_pins.held_by(config)
