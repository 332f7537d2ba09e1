"""Pins: they protect the records of jobs from every retention until they are removed.

A pin names jobs and a time window. The chain of each job's partition holds one note for it, which is verified like any
record. A chain is append-only, so another note removes a pin. Source: docs/decisions/0036.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ledger.archive.format import notes
from ledger.archive.format.chain import Head
from ledger.archive.format.notes import PINNED, UNPINNED
from ledger.archive.removal import holds
from ledger.archive.store.archive import Archive, Overtaken
from ledger.core.model.registers import is_job_id
from ledger.errors import LedgerError, NotFound, TemporaryError
from ledger.util import failpoints

_TRIES = 100


@dataclass(frozen=True, slots=True)
class Pin:
    """A pin. from_ms, to_ms: the time window of the pin, as append times in milliseconds since the epoch; None = open
    on that side. reason, by: for people. at: when the pin was made, RFC 3339."""

    id: str
    jobs: tuple[str, ...]
    from_ms: int | None
    to_ms: int | None
    reason: str
    by: str
    at: str

    def holds(self, job_id: str, time_ms: int) -> bool:
        """Whether the pin protects a record of that job that was appended at that time. Records before `from_ms` are
        protected too, because the job's state at `from_ms` is folded from them."""
        return job_id in self.jobs and (self.to_ms is None or time_ms <= self.to_ms)


def pins(archive: Archive) -> list[Pin]:
    """The pins in effect, oldest first, each with the jobs that it still protects. Reads every manifest.

    Raises: LedgerError if a manifest or a note can't be read, because it may hold a pin."""
    made: dict[str, Pin] = {}
    lifted: set[tuple[str, str]] = set()
    for kind, note in _notes(archive):
        pin = _pin_of(note)
        if kind == UNPINNED:
            lifted.add((pin.id, pin.jobs[0]))
        else:
            known = made.get(pin.id)
            made[pin.id] = pin if known is None else replace(known, jobs=(*known.jobs, *pin.jobs))
    left = [replace(pin, jobs=tuple(sorted({j for j in pin.jobs if (pin.id, j) not in lifted}))) for pin in made.values()]
    return sorted((pin for pin in left if pin.jobs), key=lambda pin: (pin.at, pin.id))


def held(archive: Archive) -> Callable[[str, int], bool]:
    """A function that returns whether a pin protects a record, by its job's id and its append time in milliseconds
    since the epoch. It uses the pins in effect now.

    Raises: as `pins`, at this call."""
    found = pins(archive)
    return lambda job_id, time_ms: any(pin.holds(job_id, time_ms) for pin in found)


def held_jobs(archive: Archive) -> Mapping[str, str]:
    """The jobs that pins protect: job id -> pin id, by the chain, and by `holds` for a pin that is being made. Raises:
    as `pins`."""
    found = {job_id: pin.id for pin in reversed(pins(archive)) for job_id in pin.jobs}
    return {**holds.held_jobs(archive.store), **found}


def unlisted(archive: Archive, found: Iterable[Pin]) -> list[tuple[str, str]]:
    """The (pin, job) of each pin in the chain that `holds` does not list. Somebody altered its marker objects, so
    agents and retirements do not protect the job. Raises: as the store."""
    listed = _listed(archive)
    return [(pin.id, job_id) for pin in found for job_id in pin.jobs if (job_id, pin.id) not in listed]


def unsealed(archive: Archive, found: Iterable[Pin]) -> list[tuple[str, str]]:
    """The (pin, job) of each pin that `holds` lists and the chain does not hold. Either the process that pinned or
    unpinned was killed halfway, and the job stays protected until the pin is removed; or the pin is being made now.
    Raises: as the store."""
    sealed = {(job_id, pin.id) for pin in found for job_id in pin.jobs}
    return sorted((pin_id, job_id) for job_id, pin_id in _listed(archive) - sealed)


def pin(archive: Archive, made: Pin, topic: str, partition_of: Callable[[str], int]) -> None:
    """Makes a pin: seals a note for one job after the other. topic: the events topic. partition_of: job id ->
    partition.

    Raises: LedgerError if the archive holds nothing of that topic yet; TemporaryError if other writers were faster at
    every attempt. After an error, the pin protects only the jobs that it reached; make another pin for the rest.
    """
    for job_id in made.jobs:  # check first that each note is possible: a marker without a note would protect the job
        _topic_id(archive, topic, archive.head(topic, partition_of(job_id)))
    for job_id in made.jobs:
        own = replace(made, jobs=(job_id,))
        archive.store.create(holds.name_of(job_id, made.id, holds.PIN), _encode(_body(own)))
        failpoints.hit("pin.marked")
        _seal(archive, topic, partition_of(job_id), PINNED, _body(own))
        failpoints.hit("pin.sealed")


def unpin(
    archive: Archive, pin_id: str, reason: str, by: str, at: str, topic: str, partition_of: Callable[[str], int]
) -> Pin | None:
    """Removes a pin from all of its jobs. Returns the pin as it was, or None if it was removed before. May be repeated.

    Raises: NotFound if there was never such a pin. Else as `pin`."""
    found = next((one for one in pins(archive) if one.id == pin_id), None)
    all_pins = [_pin_of(note) for _, note in _notes(archive)]
    jobs = {job_id for one in all_pins if one.id == pin_id for job_id in one.jobs}
    jobs |= {job_id for job_id, one in _marked(archive, holds.PIN) if one == pin_id}
    if not jobs:
        raise NotFound(f"There is no pin {pin_id[:200]}.", hint="See: jobledger audit pins")
    if found is not None:
        for job_id in found.jobs:
            body = _body(replace(found, jobs=(job_id,), reason=reason, by=by, at=at))
            _seal(archive, topic, partition_of(job_id), UNPINNED, body)
            failpoints.hit("unpin.sealed")
    for job_id in sorted(jobs):  # also those that an interrupted run has not reached
        archive.store.create(holds.name_of(job_id, pin_id, holds.LIFTED), _encode({"pin": pin_id, "at": at, "by": by}))
    return found


def _seal(archive: Archive, topic: str, partition: int, kind: str, body: Mapping[str, Any]) -> None:
    for _ in range(_TRIES):
        head = archive.head(topic, partition)
        topic_id = _topic_id(archive, topic, head)
        try:
            archive.note(head, kind, body, topic_id=topic_id)
        except Overtaken:  # an archiver has sealed a manifest meanwhile: append the note after it
            continue
        return
    raise TemporaryError(
        f"Other writers kept sealing {topic}[{partition}], so the pin's note was not written.", hint="Try again."
    )


def _topic_id(archive: Archive, topic: str, head: Head) -> str:
    """The topic id at the head of the chain. If nothing is sealed in this partition, the id at another partition's
    head.

    Raises: LedgerError if no partition of the topic has one."""
    if head.topic_id:
        return head.topic_id
    heads: Iterator[Head] = (archive.head(*tp) for tp in archive.partitions() if tp[0] == topic)
    found = next((head.topic_id for head in heads if head.topic_id), "")
    if not found:
        raise LedgerError(f"The archive holds nothing of {topic} yet, so nothing can be pinned in it.",
                          hint="Run: jobledger serve archiver")  # fmt: skip
    return found


def _notes(archive: Archive) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields kind and body of every note on pins, partition by partition, in sequence."""
    for tp in archive.partitions():
        for manifest in archive.manifests(*tp):
            if manifest.is_note:
                body = notes.read_note(archive.store, manifest)
                if body.get("kind") in (PINNED, UNPINNED):
                    yield str(body["kind"]), body


def _marked(archive: Archive, which: str) -> set[tuple[str, str]]:
    """(job, pin) of each marker object of this kind (PIN or LIFTED)."""
    parts = (name.split("/") for name in archive.store.names(holds.PREFIX))
    return {(part[1].partition("-")[2], part[2]) for part in parts if len(part) == 4 and part[3] == which}


def _listed(archive: Archive) -> set[tuple[str, str]]:
    return _marked(archive, holds.PIN) - _marked(archive, holds.LIFTED)


def _body(pin: Pin) -> dict[str, Any]:
    return {
        "pin": pin.id, "job": pin.jobs[0], "from_ms": pin.from_ms, "to_ms": pin.to_ms, "reason": pin.reason, "by": pin.by,
        "at": pin.at,
    }  # fmt: skip


def _encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True).encode()


def _pin_of(note: Mapping[str, Any]) -> Pin:
    """The pin that a note holds, for one job. Raises: LedgerError if the note is not of this form."""
    try:
        texts = [note[name] for name in ("pin", "job", "reason", "by", "at")]
        times = [note["from_ms"], note["to_ms"]]
        if not all(isinstance(text, str) for text in texts) or any(type(t) not in (int, type(None)) for t in times):
            raise ValueError("not the values of a pin")
        if not is_job_id(note["job"]):
            raise ValueError("it names no job")
    except (KeyError, ValueError) as error:
        raise LedgerError(f"The archive's note on a pin can't be read: {error}.",
                          hint="Run: jobledger audit verify") from error  # fmt: skip
    return Pin(note["pin"], (note["job"],), note["from_ms"], note["to_ms"], note["reason"], note["by"], note["at"])
