"""Pins: what must stay as long as somebody says so, whatever retention says. Notes in the chain, so as sure as any record.

A pin names jobs and a window, and there is a note of it for each job, in the chain of the partition in which the job lies.
Nothing is ever taken out of a chain: a pin is lifted by another note. Source: docs/decisions/0036.
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
    """from_ms, to_ms: of the window that is wanted, append times in milliseconds since the epoch; None = open on that side.
    reason, by: for people. at: when it was made, RFC 3339."""

    id: str
    jobs: tuple[str, ...]
    from_ms: int | None
    to_ms: int | None
    reason: str
    by: str
    at: str

    def holds(self, job_id: str, time_ms: int) -> bool:
        """Whether a record of that job, appended at that time, must stay. All older ones too: what a job was at `from_ms`
        is folded from what came before."""
        return job_id in self.jobs and (self.to_ms is None or time_ms <= self.to_ms)


def pins(archive: Archive) -> list[Pin]:
    """Those that are not lifted, oldest first; of jobs those for which it is not lifted. Reads every manifest.

    Raises: LedgerError if a manifest or a note can't be read: then nobody knows whether something is pinned."""
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
    """Whether a record of a job (its id), appended then (milliseconds since the epoch), is held by a pin that there is now.

    Raises: as `pins`, at once."""
    found = pins(archive)
    return lambda job_id, time_ms: any(pin.holds(job_id, time_ms) for pin in found)


def held_jobs(archive: Archive) -> Mapping[str, str]:
    """job id -> the pin that holds it, by the chain; and by `holds`, for one that is just being made. Raises: as `pins`."""
    found = {job_id: pin.id for pin in reversed(pins(archive)) for job_id in pin.jobs}
    return {**holds.held_jobs(archive.store), **found}


def unlisted(archive: Archive, found: Iterable[Pin]) -> list[tuple[str, str]]:
    """Pin and job of what the chain holds and `holds` does not list: somebody has removed or lifted it there, so that
    agents and retirements spare nothing of it. Raises: as the store."""
    listed = _listed(archive)
    return [(pin.id, job_id) for pin in found for job_id in pin.jobs if (job_id, pin.id) not in listed]


def unsealed(archive: Archive, found: Iterable[Pin]) -> list[tuple[str, str]]:
    """Pin and job of what `holds` lists and the chain does not: who pinned, or lifted, was killed in the middle; it is
    held until it is lifted. Or it is being pinned right now. Raises: as the store."""
    sealed = {(job_id, pin.id) for pin in found for job_id in pin.jobs}
    return sorted((pin_id, job_id) for job_id, pin_id in _listed(archive) - sealed)


def pin(archive: Archive, made: Pin, topic: str, partition_of: Callable[[str], int]) -> None:
    """Seals it, for one job after the other. topic: of the events. partition_of: of a job's id.

    Raises: LedgerError: the archive holds nothing of that topic yet; TemporaryError: no turn. A pin that is made for some
    of its jobs only holds these; it may be made again as another one."""
    for job_id in made.jobs:  # where there can be no note, nothing is marked: that would hold, and stand nowhere
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
    """Lifts a pin, for all of its jobs; the pin as it was, None if it was lifted before. May be repeated.

    Raises: NotFound: there is no such pin. Else as `pin`."""
    found = next((one for one in pins(archive) if one.id == pin_id), None)
    told = [_pin_of(note) for _, note in _notes(archive)]
    jobs = {job_id for one in told if one.id == pin_id for job_id in one.jobs}
    jobs |= {job_id for job_id, one in _marked(archive, holds.PIN) if one == pin_id}
    if not jobs:
        raise NotFound(f"There is no pin {pin_id[:200]}.", hint="See: jobledger audit pins")
    if found is not None:
        for job_id in found.jobs:
            body = _body(replace(found, jobs=(job_id,), reason=reason, by=by, at=at))
            _seal(archive, topic, partition_of(job_id), UNPINNED, body)
            failpoints.hit("unpin.sealed")
    for job_id in sorted(jobs):  # also what an earlier run has not come to
        archive.store.create(holds.name_of(job_id, pin_id, holds.LIFTED), _encode({"pin": pin_id, "at": at, "by": by}))
    return found


def _seal(archive: Archive, topic: str, partition: int, kind: str, body: Mapping[str, Any]) -> None:
    for _ in range(_TRIES):
        head = archive.head(topic, partition)
        topic_id = _topic_id(archive, topic, head)
        try:
            archive.note(head, kind, body, topic_id=topic_id)
        except Overtaken:  # an archiver goes on beside us: say it behind what it has sealed
            continue
        return
    raise TemporaryError(f"{topic}[{partition}] is sealed so fast that nobody else gets a turn.", hint="Try again.")


def _topic_id(archive: Archive, topic: str, head: Head) -> str:
    """Of a topic in whose partition nothing is sealed yet: that of its other partitions. Raises: LedgerError."""
    if head.topic_id:
        return head.topic_id
    heads: Iterator[Head] = (archive.head(*place) for place in archive.places() if place[0] == topic)
    found = next((head.topic_id for head in heads if head.topic_id), "")
    if not found:
        raise LedgerError(f"The archive holds nothing of {topic} yet, so nothing can be pinned in it.",
                          hint="Run: jobledger serve archiver")  # fmt: skip
    return found


def _notes(archive: Archive) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kind and body of every note on pins, of any partition, in sequence."""
    for place in archive.places():
        for manifest in archive.manifests(*place):
            if manifest.is_note:
                body = notes.read_note(archive.store, manifest)
                if body.get("kind") in (PINNED, UNPINNED):
                    yield str(body["kind"]), body


def _marked(archive: Archive, which: str) -> set[tuple[str, str]]:
    """Job and pin of all that lies beside the chain."""
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
    """Raises: LedgerError: it is none of ours; then nobody knows what it pins."""
    try:
        texts = [note[name] for name in ("pin", "job", "reason", "by", "at")]
        times = [note["from_ms"], note["to_ms"]]
        if not all(isinstance(text, str) for text in texts) or any(type(t) not in (int, type(None)) for t in times):
            raise ValueError("not the values of a pin")
        if not is_job_id(note["job"]):
            raise ValueError("it names no job")
    except (KeyError, ValueError) as error:
        raise LedgerError(f"A note of the archive on a pin can't be read: {error}.",
                          hint="Run: jobledger audit verify") from error  # fmt: skip
    return Pin(note["pin"], (note["job"],), note["from_ms"], note["to_ms"], note["reason"], note["by"], note["at"])
