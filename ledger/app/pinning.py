"""Makes and removes the pins of a ledger, and finds the pins of a job."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ledger.core.model.registers import is_job_id, parse_key
from ledger.util.identity import whoami
from ledger.util.ids import RANDOM_BYTES, uuid7

if TYPE_CHECKING:
    from ledger.app.ledger import Ledger
    from ledger.archive.removal.pins import Pin
    from ledger.reader.reading import Source


def pin(ledger: Ledger, source: Source, jobs: Sequence[str], from_ms: int | None, to_ms: int | None, reason: str) -> Pin:
    """A new pin, recorded with the name of the user. Raises: as `Ledger.archive` and `pins.pin`."""
    kept = ledger.archive
    from ledger.archive.removal import pins
    from ledger.util.times import rfc3339

    now_s = ledger.clock.time()
    made = pins.Pin(
        uuid7(now_s, os.urandom(RANDOM_BYTES)), tuple(jobs), from_ms, to_ms, reason, whoami(), rfc3339(now_s)
    )  # fmt: skip
    pins.pin(kept, made, source.topics.events, source.partition_of)
    return made


def is_archived(ledger: Ledger, source: Source, job_id: str) -> bool:
    """Whether the archive contains a record of the job with that id. Reads the segments that may contain such a record,
    until the first is found. Raises: as `Ledger.archive` and `key_scan.picked`."""
    if not is_job_id(job_id):
        return False
    kept = ledger.archive
    from ledger.archive.query.key_scan import picked

    partition, topic = source.partition_of(job_id), source.topics.events
    found = picked(kept, topic, partition, 0, kept.head(topic, partition).next, [f"{job_id}/".encode()])
    return any(parse_key(record.key()) is not None for record in found)


def unpin(ledger: Ledger, source: Source, pin_id: str, reason: str) -> Pin | None:
    """Removes a pin and returns it; None if no pin has that id. Raises: as `Ledger.archive` and `pins.unpin`."""
    kept = ledger.archive
    from ledger.archive.removal import pins
    from ledger.util.times import rfc3339

    at = rfc3339(ledger.clock.time())
    return pins.unpin(kept, pin_id, reason, whoami(), at, source.topics.events, source.partition_of)


def held_jobs(ledger: Ledger) -> Mapping[str, str]:
    """The pinned jobs: job id -> id of a pin that protects the job, from the archive's chain of removals; empty without
    an archive. Raises: as `Ledger.archive` and `pins.pins`."""
    if not ledger.config.archive.adapter:
        return {}
    kept = ledger.archive
    from ledger.archive.removal import pins

    return pins.held_jobs(kept)


def listed_holds(ledger: Ledger) -> Mapping[str, str]:
    """The pinned jobs: job id -> id of a pin that protects the job, from one listing of the object store; empty without
    an archive. Raises: as `Ledger.objects`; the errors of the store."""
    from ledger.archive.removal import holds

    return holds.held_jobs(ledger.objects) if ledger.config.archive.adapter else {}


def held_by(ledger: Ledger) -> Callable[[str], str]:
    """A function from a job id to the id of a pin that protects the job; "" if none does. The function raises as
    `Ledger.objects`, and the errors of the store."""

    def ask(job_id: str) -> str:
        from ledger.archive.removal import holds

        return holds.held_by(ledger.objects, job_id) if ledger.config.archive.adapter else ""

    return ask
