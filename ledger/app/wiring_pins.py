"""What the settings name of pins: who makes and lifts them, and who is told what they hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ledger.app import wiring, wiring_archive
from ledger.config.config import Config
from ledger.core.model.registers import is_job_id, parse_key
from ledger.util.identity import whoami
from ledger.util.ids import RANDOM_BYTES, uuid7

if TYPE_CHECKING:
    from ledger.archive.removal.pins import Pin
    from ledger.reader.reading import Source


def pin(config: Config, source: Source, jobs: Sequence[str], from_ms: int | None, to_ms: int | None, reason: str) -> Pin:
    """Makes a pin, in the name of whoever asks. Raises: as `archive` and `pins.pin`."""
    kept = wiring_archive.archive(config)
    from ledger.adapters.cloudevents import rfc3339
    from ledger.archive.removal import pins

    now_s = wiring.clock().time()
    made = pins.Pin(
        uuid7(now_s, os.urandom(RANDOM_BYTES)), tuple(jobs), from_ms, to_ms, reason, whoami(), rfc3339(now_s)
    )  # fmt: skip
    pins.pin(kept, made, source.topics.events, source.partition_of)
    return made


def is_archived(config: Config, source: Source, job_id: str) -> bool:
    """Whether the archive holds a record of a job with that id. Reads what may hold one until it has. Raises: as `archive`
    and `picking.picked`."""
    if not is_job_id(job_id):
        return False
    kept = wiring_archive.archive(config)
    from ledger.archive.query.key_scan import picked

    partition, topic = source.partition_of(job_id), source.topics.events
    found = picked(kept, topic, partition, 0, kept.head(topic, partition).next, [f"{job_id}/".encode()])
    return any(parse_key(record.key()) is not None for record in found)


def unpin(config: Config, source: Source, pin_id: str, reason: str) -> Pin | None:
    """Raises: as `archive` and `pins.unpin`."""
    kept = wiring_archive.archive(config)
    from ledger.adapters.cloudevents import rfc3339
    from ledger.archive.removal import pins

    at = rfc3339(wiring.clock().time())
    return pins.unpin(kept, pin_id, reason, whoami(), at, source.topics.events, source.partition_of)


def held_jobs(config: Config) -> Mapping[str, str]:
    """job id -> the pin that holds it, by the word of the chain; nothing without an archive. Raises: as `archive` and
    `pins.pins`."""
    if not config.archive.adapter:
        return {}
    kept = wiring_archive.archive(config)
    from ledger.archive.removal import pins

    return pins.held_jobs(kept)


def listed_holds(config: Config) -> Mapping[str, str]:
    """As `held_jobs`, by one listing of the store. Raises: as `objects`, and as the store."""
    from ledger.archive.removal import holds

    return holds.held_jobs(wiring_archive.objects(config)) if config.archive.adapter else {}


def held_by(config: Config) -> Callable[[str], str]:
    """Asks for the pin that holds a job; "" = none does. Raises when asked: as `objects`, and as the store."""

    def ask(job_id: str) -> str:
        from ledger.archive.removal import holds

        return holds.held_by(wiring_archive.objects(config), job_id) if config.archive.adapter else ""

    return ask
